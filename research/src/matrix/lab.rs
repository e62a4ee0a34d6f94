//! Makes the models: each is a child process of `audit-train`, then one of `audit`. Finished work is not
//! repeated.

use crate::matrix::outcome::{SeedResult, TrainedModel};
use crate::matrix::{Spec, split, write};
use audit::{Error, Exit, Result};
use rayon::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The settings for the models of one data set.
pub struct Lab {
    /// The programs.
    pub trainer: PathBuf,
    pub audit: PathBuf,
    /// Images to train on; others to validate and audit on.
    pub train: PathBuf,
    pub test: PathBuf,
    /// Flags of `audit`.
    pub audit_words: Vec<String>,
    pub seeds: Vec<u64>,
    /// Number of models made at a time, and threads of each.
    pub jobs: usize,
    pub threads: usize,
    /// Folder of models, logs and reports.
    pub work: PathBuf,
    /// Flags of `--train`, which every method gets.
    pub for_all: String,
    pub began: Instant,
}

/// Extensions of the files of a model.
const EXTENSIONS: [&str; 8] = [
    "onnx",
    "collapsed.onnx",
    "diverged.onnx",
    "checkpoint",
    "good.checkpoint",
    "jsonl",
    "json",
    "json.journal",
];
/// Extensions of the model of a run, and how it ended.
const ENDINGS: [(&str, &str); 3] =
    [("onnx", "done"), ("collapsed.onnx", "collapsed"), ("diverged.onnx", "diverged")];

impl Lab {
    /// Refuses flags of these models that a training would refuse, before one is made (exit code 2).
    pub fn check_all(&self, specs: &[Spec]) -> Result<()> {
        let Some(&seed) = self.seeds.first() else { return Ok(()) };
        specs.iter().try_for_each(|spec| {
            let mut words = self.train_words(spec, seed);
            let out = format!("{}.onnx", self.stem(&spec.name, seed).display());
            words.extend(["--out".into(), out, "--check".into()]);
            child(&self.trainer, &words, &[0]).map_err(|e| self.refused(e, &spec.name))
        })
    }

    /// Makes these models for every seed, `jobs` at a time, a model after the one that it starts from. The
    /// first error ends it; finished models remain. The models that others start from must be among `specs`.
    pub fn make_all(&self, specs: &[Spec]) -> Result<()> {
        let mut done: Vec<&str> = vec![];
        while done.len() < specs.len() {
            let ready = |spec: &&Spec| {
                !done.contains(&spec.name.as_str())
                    && spec.from.as_deref().is_none_or(|from| done.contains(&from))
            };
            let wave: Vec<&Spec> = specs.iter().filter(ready).collect();
            if wave.is_empty() {
                let left: Vec<&str> =
                    specs.iter().map(|s| s.name.as_str()).filter(|name| !done.contains(name)).collect();
                return Err(Error::usage(format!(
                    "{} start from each other or from a model that isn't in the list; let one of them start from nothing",
                    left.join(", ")
                )));
            }
            self.make_wave(&wave)?;
            done.extend(wave.iter().map(|spec| spec.name.as_str()));
        }
        Ok(())
    }

    fn make_wave(&self, specs: &[&Spec]) -> Result<()> {
        let jobs: Vec<(&Spec, u64)> =
            self.seeds.iter().flat_map(|&seed| specs.iter().map(move |&spec| (spec, seed))).collect();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.jobs.max(1))
            .build()
            .map_err(|e| Error::internal(format!("can't start {} threads: {e}", self.jobs)))?;
        pool.install(|| {
            jobs.iter().enumerate().par_bridge().try_for_each(|(at, &(spec, seed))| {
                let outcome = self.make(spec, seed)?;
                let minutes = self.began.elapsed().as_secs_f64() / 60.0;
                eprintln!(
                    "[{}/{}, {minutes:.0} min] {} seed {seed}: {outcome}",
                    at + 1,
                    jobs.len(),
                    spec.name
                );
                Ok(())
            })
        })
    }

    fn stem(&self, name: &str, seed: u64) -> PathBuf {
        let name: String = name.chars().map(|c| if c == ' ' { '_' } else { c }).collect();
        self.work.join(format!("{}-{seed}", name.replace('λ', "lambda")))
    }

    /// Trains and audits one model, unless both were done with the same flags.
    fn make(&self, spec: &Spec, seed: u64) -> Result<String> {
        let stem = self.stem(&spec.name, seed);
        let with = |extension: &str| PathBuf::from(format!("{}.{extension}", stem.display()));
        let (report, trained, audited) = (with("json"), with("words"), with("audit"));
        let mut words = self.train_words(spec, seed);
        words.extend(["--out".into(), path_text(&with("onnx"))]);
        let mut training = words.join(" ") + "\n";
        if let Some(from) = &spec.from {
            // With another parent this would be another model, whatever its own flags.
            let parent = format!("{}.words", self.stem(from, seed).display());
            training += &fs::read_to_string(parent).unwrap_or_default();
        }
        let audit = self.words_of_audit();
        let auditing = audit.join(" ") + "\n";
        let same = |path: &Path, words: &str| fs::read_to_string(path).is_ok_and(|found| found == words);
        if !same(&trained, &training) {
            // Other flags: all its files are outdated.
            for extension in EXTENSIONS {
                let _ = fs::remove_file(with(extension));
            }
            write(&trained, &training)?;
        }
        if !same(&audited, &auditing) {
            // Another audit of the same model.
            let _ = fs::remove_file(&report);
            let _ = fs::remove_file(with("json.journal"));
            write(&audited, &auditing)?;
        }
        if report.is_file() {
            return Ok("done before".into());
        }
        let made = || ENDINGS.into_iter().find(|(extension, _)| with(extension).is_file());
        if made().is_none() {
            let checkpoint = with("checkpoint");
            if checkpoint.is_file() {
                words.push("--resume".into());
            }
            child(&self.trainer, &words, &[0, 12]).map_err(|e| self.refused(e, &spec.name))?;
            if made().is_none() && checkpoint.is_file() {
                // Its loss was not a number, and would be again. The other rows don't depend on it.
                let mut words = vec!["export".into(), path_text(&checkpoint)];
                words.extend(["--out".into(), path_text(&with("diverged.onnx"))]);
                child(&self.trainer, &words, &[0])?;
            }
        }
        let Some((extension, outcome)) = made() else {
            return Err(Error::internal(format!(
                "{} seed {seed} left no model; its log is {}",
                spec.name,
                with("jsonl").display()
            )));
        };
        let model = with(extension);
        let mut words = vec![path_text(&model), "-o".into(), path_text(&report)];
        words.extend(audit);
        // An audit that was killed has left a journal, and doesn't begin anew beside it.
        words.push("--resume".into());
        child(&self.audit, &words, &[0]).map_err(|e| self.refused(e, &spec.name))?;
        Ok(outcome.into())
    }

    /// The error of a method's training or audit, with the next step if the method doesn't have a flag of
    /// `--train`.
    fn refused(&self, error: Error, method: &str) -> Error {
        if error.exit != Exit::Usage {
            return error;
        }
        let mut flags =
            split(&self.for_all).map(|word| word.split('=').next().unwrap_or_default().to_string());
        let named = |flag: &String| flag.starts_with("--") && error.message.contains(flag.as_str());
        let help = flags.find(named).map_or(String::new(), |flag| {
            format!(
                ". --train \"{}\" goes to every method: leave {flag} out, or choose methods that take it by --only NAME,NAME",
                self.for_all
            )
        });
        Error::usage(format!("method {method}: {}{help}", error.message))
    }

    fn train_words(&self, spec: &Spec, seed: u64) -> Vec<String> {
        let mut words = spec.words.clone();
        words.extend(split(&format!("--seed {seed} --threads {} -q", self.threads)));
        words.extend(["--data".into(), path_text(&self.train), "--validation".into(), path_text(&self.test)]);
        if let Some(from) = &spec.from {
            let checkpoint = format!("{}.checkpoint", self.stem(from, seed).display());
            words.extend(["--init".into(), checkpoint]);
        }
        words
    }

    fn words_of_audit(&self) -> Vec<String> {
        let mut words = self.audit_words.clone();
        words.extend(["--data".into(), path_text(&self.test)]);
        // Collapsed nets are audited too, to show their scores.
        words.extend(split(&format!("--threads {} -q --allow-untrusted", self.threads)));
        words
    }

    /// The reports of a model, one for each seed.
    pub fn reports(&self, name: &str) -> Vec<String> {
        self.seeds.iter().map(|seed| format!("{}.json", self.stem(name, *seed).display())).collect()
    }

    /// The result of a model, read from its logs and reports.
    pub fn read(&self, spec: Spec) -> Result<TrainedModel> {
        let stem = |seed: &u64| self.stem(&spec.name, *seed).display().to_string();
        let runs = self.seeds.iter().map(|seed| SeedResult::read(&stem(seed))).collect::<Result<_>>()?;
        Ok(TrainedModel { spec, runs })
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

/// Runs a program to its end; its output goes into the error.
fn child(program: &Path, words: &[String], accepted: &[i32]) -> Result<()> {
    let shown = program.file_stem().unwrap_or_default().to_string_lossy();
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|e| Error::internal(format!("can't start {shown}: {e}")))?;
    match output.status.code() {
        Some(code) if accepted.contains(&code) => Ok(()),
        // A wrong flag or missing data: the program's message says it all.
        Some(2) => Err(Error::usage(String::from_utf8_lossy(&output.stderr).trim().to_string())),
        _ => Err(Error::internal(format!(
            "`{shown} {}` ended with {}: {}",
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A lab in a folder, with scripts for audit-train and audit. They write their calls to the file `calls`.
    fn lab(folder: &Path, trainer: &str, audit: &str) -> Lab {
        let program = |name: &str, body: &str| {
            let path = folder.join(name);
            let calls = folder.join("calls");
            write(&path, &format!("#!/bin/sh\nset -e\necho \"$@\" >> {}\n{body}\n", calls.display()))
                .unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        Lab {
            trainer: program("trainer", trainer),
            audit: program("auditor", audit),
            train: "train".into(),
            test: "test".into(),
            audit_words: Vec::new(),
            seeds: vec![0],
            jobs: 1,
            threads: 1,
            work: folder.into(),
            for_all: String::new(),
            began: Instant::now(),
        }
    }

    fn spec(words: &str) -> Spec {
        let words: Vec<String> = split(words).collect();
        let name = words[0].clone();
        Spec { family: name.clone(), name, point: String::new(), main: true, words, from: None }
    }

    fn calls(folder: &Path) -> Vec<String> {
        fs::read_to_string(folder.join("calls")).unwrap().lines().map(String::from).collect()
    }

    /// A trainer that refuses one method.
    #[test]
    fn a_later_methods_flags_are_refused_before_the_first_training() {
        let folder = tempfile::tempdir().unwrap();
        let refuse = "case $1 in second) echo 'audit-train: --lambda is not of second' >&2; exit 2;; esac";
        let lab =
            Lab { seeds: vec![3, 4], for_all: "--lambda 2".into(), ..lab(folder.path(), refuse, "exit 1") };
        let specs = ["first", "second", "third"].map(|name| spec(&format!("{name} --lambda 2")));
        let error = lab.check_all(&specs).unwrap_err();
        assert_eq!(error.exit, Exit::Usage);
        for words in ["method second: audit-train: --lambda is not of second", "leave --lambda out"] {
            assert!(error.message.contains(words), "{error}");
        }
        let calls = calls(folder.path());
        assert_eq!(calls.len(), 2, "{calls:?}");
        assert!(
            calls.iter().all(|call| call.contains("--seed 3") && call.ends_with(" --check")),
            "{calls:?}"
        );
    }

    /// A trainer whose loss is never a number: it leaves a checkpoint, which it exports. An auditor.
    #[test]
    fn a_run_that_diverges_is_audited_as_it_was_before() {
        let folder = tempfile::tempdir().unwrap();
        let find = |key: &str| format!("first=$1\nwhile [ \"$1\" != {key} ]; do shift; done; out=$2\n");
        let train =
            "case $first in export) echo x > $out;; *) echo x > ${out%.onnx}.checkpoint; exit 12;; esac";
        let (train, audit) = (find("--out") + train, find("-o") + "echo x > $out");
        let (lab, spec) = (lab(folder.path(), &train, &audit), spec("hm"));
        lab.make_all(std::slice::from_ref(&spec)).unwrap();
        let made = calls(folder.path());
        assert!(made.len() == 3 && made[0].starts_with("hm "), "{made:?}");
        assert!(made[1].starts_with("export ") && made[1].ends_with("hm-0.diverged.onnx"), "{made:?}");
        assert!(made[2].contains("hm-0.diverged.onnx -o "), "{made:?}");
        lab.make_all(&[spec]).unwrap();
        assert_eq!(calls(folder.path()).len(), 3, "it is not trained again");
    }

    /// An auditor that is killed once, and then refuses to begin anew, as audit does.
    #[test]
    fn an_audit_that_was_killed_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path();
        let find = |key: &str| format!("all=\"$*\"\nwhile [ \"$1\" != {key} ]; do shift; done; out=$2\n");
        let audit = "if [ -e $out.journal ]; then case $all in *--resume) mv $out.journal $out;; *) exit 2;; esac\n\
                     else echo x > $out.journal; kill -9 $$; fi";
        let lab = lab(work, &(find("--out") + "echo x > $out"), &(find("-o") + audit));
        let spec = spec("hm");
        assert!(lab.make_all(std::slice::from_ref(&spec)).is_err());
        lab.make_all(std::slice::from_ref(&spec)).unwrap();
        assert!(work.join("hm-0.json").is_file() && calls(work).len() == 3, "{:?}", calls(work));
        // The journal of an audit with other flags is removed: this one begins anew, and is killed.
        fs::write(work.join("hm-0.json.journal"), "x").unwrap();
        let other = Lab { audit_words: vec!["--seed".into(), "1".into()], ..lab };
        assert!(other.make_all(&[spec]).is_err());
    }
}
