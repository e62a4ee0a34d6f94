//! Makes the models: each is a child process of `audit-train`, then one of `audit`. What is done is not done again.

use crate::outcome::{SeedResult, TrainedModel};
use crate::specs::{ALPHA, PGD_STEPS, PLAIN, Size, Spec, split};
use crate::{Flags, write};
use audit::{Error, Result};
use rayon::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What the models are made with.
pub struct Lab<'a> {
    pub flags: &'a Flags,
    pub size: &'a Size,
    pub work: &'a Path,
    pub began: Instant,
}

impl Lab<'_> {
    /// Makes these models for every seed, `--jobs` at a time. The first error ends it; what is done stays.
    pub fn make_all(&self, specs: &[Spec]) -> Result<()> {
        let jobs: Vec<(&Spec, u64)> =
            (0..self.size.seeds).flat_map(|seed| specs.iter().map(move |spec| (spec, seed))).collect();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.flags.jobs.max(1))
            .build()
            .map_err(|e| Error::internal(format!("can't start {} threads: {e}", self.flags.jobs)))?;
        pool.install(|| {
            jobs.iter().enumerate().par_bridge().try_for_each(|(at, &(spec, seed))| {
                let said = self.make(spec, seed)?;
                let minutes = self.began.elapsed().as_secs_f64() / 60.0;
                eprintln!("[{}/{}, {minutes:.0} min] {} seed {seed}: {said}", at + 1, jobs.len(), spec.name);
                Ok(())
            })
        })
    }

    fn stem(&self, spec: &Spec, seed: u64) -> PathBuf {
        let name: String = spec.name.chars().map(|c| if c == ' ' { '_' } else { c }).collect();
        self.work.join(format!("{}-{seed}", name.replace('λ', "lambda")))
    }

    /// Trains and audits one model, unless that was done with the same flags.
    fn make(&self, spec: &Spec, seed: u64) -> Result<String> {
        let stem = self.stem(spec, seed);
        let with = |ending: &str| PathBuf::from(format!("{}.{ending}", stem.display()));
        let (report, asked) = (with("json"), with("words"));
        let path = |p: PathBuf| p.display().to_string();
        let mut words: Vec<String> = spec.words.clone();
        words.extend(split(&format!("--seed {seed} --steps {} --threads 1 -q", spec.steps)));
        words.extend(["--data".into(), path(self.flags.data.join("train"))]);
        words.extend(["--validation".into(), path(self.flags.data.join("test"))]);
        words.extend(["--out".into(), path(with("onnx"))]);
        if spec.family != PLAIN {
            let plain = self.work.join(format!("{PLAIN}-{seed}.checkpoint"));
            words.extend(["--init".into(), path(plain)]);
            words.extend(split(&format!("--alpha {ALPHA} --pgd-steps {PGD_STEPS}")));
        }
        let audit = self.audit_words();
        let all = format!("{}\n{}\n", words.join(" "), audit.join(" "));
        let same = fs::read_to_string(&asked).is_ok_and(|found| found == all);
        if same && report.is_file() {
            return Ok("done before".into());
        }
        if !same {
            // Another budget, or another version of the list: nothing of it counts.
            for ending in ["onnx", "collapsed.onnx", "checkpoint", "jsonl", "json"] {
                let _ = fs::remove_file(with(ending));
            }
            write(&asked, &all)?;
        }
        let (model, collapsed) = (with("onnx"), with("collapsed.onnx"));
        if !model.is_file() && !collapsed.is_file() {
            if with("checkpoint").is_file() {
                words.push("--resume".into());
            }
            child(&self.flags.trainer, &words, &[0, 12])?;
        }
        let model = if model.is_file() { model } else { collapsed };
        if !model.is_file() {
            let log = with("jsonl");
            return Err(Error::internal(format!(
                "{} left no model; its log is {}",
                spec.name,
                log.display()
            )));
        }
        let said = if model == with("onnx") { "done" } else { "collapsed" };
        let mut words = vec![path(model), "-o".into(), path(report)];
        words.extend(audit);
        child(&self.flags.audit, &words, &[0])?;
        Ok(said.into())
    }

    fn audit_words(&self) -> Vec<String> {
        let mut words: Vec<String> = split("--suite full --data").collect();
        words.push(self.flags.data.join("test").display().to_string());
        // Collapsed nets are audited too, to show what score they would get.
        let queries = self.size.queries;
        words.extend(split(&format!("--max-queries {queries} --threads 1 -q --allow-untrusted")));
        if let Some(steps) = self.size.attack {
            words.extend(["--steps".into(), steps.to_string()]);
        }
        words
    }

    /// What came of a model, read from its logs and reports.
    pub fn read(&self, spec: Spec) -> Result<TrainedModel> {
        let stem = |seed| self.stem(&spec, seed).display().to_string();
        let runs = (0..self.size.seeds).map(|seed| SeedResult::read(&stem(seed))).collect::<Result<_>>()?;
        Ok(TrainedModel { spec, runs })
    }
}

/// Runs a program to its end; its words go into the error.
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
        _ => Err(Error::internal(format!(
            "`{shown} {}` ended with {}: {}",
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}
