//! `cargo xtask experiment omniglot`: every defence at equal budgets and over several seeds, audited, and written up.
//!
//! Each model is a child process of `audit-train`, then one of `audit`; what is done is not done again. The page and its
//! picture are pure functions of their logs and reports.

mod page;
mod picture;
mod statistics;

use audit::report::{Report, Score};
use audit::{Error, Result};
use clap::{Parser, ValueEnum};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// Flags of the experiment.
#[derive(Clone, Debug, Parser)]
pub struct Flags {
    /// Folder with `train` and `test`, each with a folder per class
    #[arg(long)]
    pub data: PathBuf,
    /// The program audit
    #[arg(long)]
    pub audit: PathBuf,
    /// The program audit-train
    #[arg(long)]
    pub trainer: PathBuf,
    /// How much
    #[arg(long, value_enum, default_value = "full")]
    pub budget: Budget,
    /// Models trained at a time, one thread each
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
    /// Where models, logs and reports are kept [default: target/experiment/omniglot-BUDGET]
    #[arg(long)]
    pub work: Option<PathBuf>,
    /// The page to write [default: docs/experiments/omniglot.md for the full budget, else a file in the work folder]
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Budget {
    /// Shows that it runs, nothing else: minutes.
    Smoke,
    /// An idea of it: two seeds, a third of the steps.
    Short,
    /// Three seeds; within two hours on two cores.
    Full,
}

/// The numbers of a budget.
struct Size {
    seeds: u64,
    /// Steps of the plain nets that all others start from.
    plain: u64,
    /// Training steps of HM; the others get as many as cost the same image steps, were no attack to stop early.
    base: u64,
    queries: usize,
    /// Steps of the audit's attacks; `None` as the protocol has it.
    attack: Option<usize>,
}

impl Budget {
    fn size(self) -> Size {
        match self {
            Budget::Smoke => Size { seeds: 2, plain: 48, base: 12, queries: 20, attack: Some(2) },
            Budget::Short => Size { seeds: 2, plain: 600, base: 300, queries: 100, attack: None },
            Budget::Full => Size { seeds: 3, plain: 1500, base: 700, queries: 200, attack: None },
        }
    }
}

/// A model to make, for every seed.
struct Spec {
    /// Its name in tables and files.
    name: String,
    /// The curve that it is a point of.
    family: String,
    /// What sets it apart on the curve.
    point: String,
    /// Whether it is a row of the main table.
    main: bool,
    /// Flags of audit-train.
    words: Vec<String>,
    steps: u64,
}

/// PGD inside training, for all: its steps, and how far each goes.
const PGD_STEPS: u64 = 8;
const ALPHA: &str = "12/255";

/// Images that one training step of HM moves: 56 triplets, all three.
const HM_IMAGES: u64 = 168;

/// Methods by the name of their curve: flags, and images moved per training step.
const FAMILIES: [(&str, &str, u64, bool); 9] = [
    ("act", "act --sampler random", 112, false),
    ("hm", "hm --sampler random", 168, true),
    ("hm-softhard", "hm --sampler softhard", 168, false),
    ("cap", "cap --sampler random --lambda 2", 112, true),
    ("anp", "anp --sampler random --lambda 2", 56, true),
    ("ca-tride", "ca-tride --sampler random --lambda 2", 84, true),
    ("cap-naive", "cap --sampler random --reading naive", 112, false),
    ("anp-naive", "anp --sampler random --reading naive", 56, false),
    ("ca-tride-naive", "ca-tride --sampler random --reading naive", 84, true),
];

/// Every model but the plain one.
fn specs(base: u64) -> Vec<Spec> {
    let mut specs = vec![];
    for (name, flags, images, both) in FAMILIES {
        for progressive in if both { &[false, true][..] } else { &[false] } {
            let family = if *progressive { format!("{name}+p") } else { name.to_string() };
            let switch = if *progressive { "on" } else { "off" };
            let full = base * HM_IMAGES / images;
            let mut add = |point: &str, extra: &[(&str, &str)], steps: u64| {
                let mut words: Vec<String> = flags.split_whitespace().map(String::from).collect();
                words.extend(["--progressive".into(), switch.into()]);
                for (flag, value) in extra {
                    // A setting of the sweep takes the place of the family's own.
                    match words.iter().position(|w| w == flag) {
                        Some(at) => words[at + 1] = value.to_string(),
                        None => words.extend([flag.to_string(), value.to_string()]),
                    }
                }
                let main = point.is_empty();
                let name = if main { family.clone() } else { format!("{family} {point}") };
                let point = if main { "main".into() } else { point.into() };
                specs.push(Spec { name, family: family.clone(), point, main, words, steps });
            };
            add("", &[], full);
            if name.ends_with("naive") && name != "ca-tride-naive" {
                continue;
            }
            add("half", &[], full / 2);
            match name {
                "ca-tride" => {
                    for lambda in ["0", "4", "10"] {
                        add(&format!("λ {lambda}"), &[("--lambda", lambda)], full);
                    }
                }
                "hm" => {
                    for destination in ["-0.15", "-0.1", "-0.05"] {
                        add(&format!("H {destination}"), &[("--destination", destination)], full);
                    }
                }
                _ => {}
            }
        }
    }
    specs
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(said) => {
            print!("{said}");
            ExitCode::SUCCESS
        }
        Err(Error { exit, message }) => {
            eprintln!("omniglot-experiment: {message}");
            ExitCode::from(exit as u8)
        }
    }
}

/// Runs what is not done yet, and writes the page.
fn run(flags: &Flags) -> Result<String> {
    let size = flags.budget.size();
    let budget = format!("{:?}", flags.budget).to_lowercase();
    let work =
        flags.work.clone().unwrap_or_else(|| PathBuf::from(format!("target/experiment/omniglot-{budget}")));
    fs::create_dir_all(&work).map_err(|e| Error::usage(format!("can't make {}: {e}", work.display())))?;
    let out = flags.out.clone().unwrap_or_else(|| match flags.budget {
        Budget::Full => PathBuf::from("docs/experiments/omniglot.md"),
        _ => work.join("omniglot.md"),
    });
    for part in ["train", "test"] {
        let folder = flags.data.join(part);
        if !folder.is_dir() {
            return Err(Error::usage(format!(
                "--data: {} is missing; expected a folder of classes",
                folder.display()
            )));
        }
    }
    let specs = specs(size.base);
    let lab = Lab { flags, size: &size, work: &work, began: Instant::now() };
    let plain = Spec {
        name: "none".into(),
        family: "none".into(),
        point: "main".into(),
        main: true,
        words: vec!["none".into(), "--sampler".into(), "semihard".into()],
        steps: size.plain,
    };
    let jobs: Vec<(&Spec, u64)> = (0..size.seeds).map(|seed| (&plain, seed)).collect();
    lab.all(&jobs)?;
    let jobs: Vec<(&Spec, u64)> =
        (0..size.seeds).flat_map(|seed| specs.iter().map(move |spec| (spec, seed))).collect();
    lab.all(&jobs)?;
    let rows: Vec<Model> =
        std::iter::once(&plain).chain(&specs).map(|spec| lab.read(spec)).collect::<Result<_>>()?;
    if let Some(folder) = out.parent() {
        fs::create_dir_all(folder)
            .map_err(|e| Error::usage(format!("can't make {}: {e}", folder.display())))?;
    }
    let beside = out.with_extension("svg");
    write(&beside, picture::scatter(&rows).as_bytes())?;
    let picture = beside.file_name().unwrap_or_default().to_string_lossy();
    write(&out, page::write_up(&rows, &size, flags.budget, &picture).as_bytes())?;
    Ok(format!("{}: {} models\n", out.display(), rows.iter().map(|m| m.runs.len()).sum::<usize>()))
}

/// What the models are made with.
struct Lab<'a> {
    flags: &'a Flags,
    size: &'a Size,
    work: &'a Path,
    began: Instant,
}

impl Lab<'_> {
    /// `jobs` at a time. The first error ends it; what is done stays.
    fn all(&self, jobs: &[(&Spec, u64)]) -> Result<()> {
        let next = Mutex::new((0usize, None::<Error>));
        std::thread::scope(|scope| {
            for _ in 0..self.flags.jobs.max(1) {
                scope.spawn(|| {
                    loop {
                        let at = {
                            let Ok(mut next) = next.lock() else { return };
                            if next.1.is_some() || next.0 == jobs.len() {
                                return;
                            }
                            next.0 += 1;
                            next.0 - 1
                        };
                        let (spec, seed) = jobs[at];
                        match self.make(spec, seed) {
                            Ok(said) => eprintln!(
                                "[{}/{}, {:.0} min] {} seed {seed}: {said}",
                                at + 1,
                                jobs.len(),
                                self.began.elapsed().as_secs_f64() / 60.0,
                                spec.name
                            ),
                            Err(e) => {
                                if let Ok(mut next) = next.lock() {
                                    next.1.get_or_insert(e);
                                }
                            }
                        }
                    }
                });
            }
        });
        match next.into_inner() {
            Ok((_, Some(error))) => Err(error),
            Ok(_) => Ok(()),
            Err(_) => Err(Error::internal("a worker of the experiment ended early")),
        }
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
        let mut words: Vec<String> = spec.words.clone();
        let steps = spec.steps.to_string();
        words.extend(
            ["--seed", &seed.to_string(), "--steps", &steps, "--threads", "1", "-q"].map(String::from),
        );
        let path = |p: PathBuf| p.display().to_string();
        words.extend(["--data".into(), path(self.flags.data.join("train"))]);
        words.extend(["--validation".into(), path(self.flags.data.join("test"))]);
        words.extend(["--out".into(), path(with("onnx"))]);
        if spec.family != "none" {
            let plain = self.work.join(format!("none-{seed}.checkpoint"));
            words.extend(["--init".into(), path(plain)]);
            words.extend(["--alpha", ALPHA, "--pgd-steps", &PGD_STEPS.to_string()].map(String::from));
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
            write(&asked, all.as_bytes())?;
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
            return Err(Error::internal(format!(
                "{} left no model; its log is {}",
                spec.name,
                with("jsonl").display()
            )));
        }
        let mut words = vec![path(model.clone()), "-o".into(), path(report)];
        words.extend(audit);
        child(&self.flags.audit, &words, &[0])?;
        Ok(if model.to_string_lossy().ends_with("collapsed.onnx") {
            "collapsed".into()
        } else {
            "done".into()
        })
    }

    fn audit_words(&self) -> Vec<String> {
        let data = self.flags.data.join("test").display().to_string();
        let queries = self.size.queries.to_string();
        let mut words: Vec<String> =
            ["--suite", "full", "--data", &data, "--max-queries", &queries, "--threads", "1", "-q"]
                .map(String::from)
                .into();
        // Collapsed nets are audited too, to show what score they would get.
        words.push("--allow-untrusted".into());
        if let Some(steps) = self.size.attack {
            words.extend(["--steps".into(), steps.to_string()]);
        }
        words
    }

    fn read(&self, spec: &Spec) -> Result<Model> {
        let runs = (0..self.size.seeds)
            .map(|seed| {
                let stem = self.stem(spec, seed).display().to_string();
                let log = Log::read(Path::new(&format!("{stem}.jsonl")))?;
                let report = Report::load(Path::new(&format!("{stem}.json")))?;
                Outcome::of(&log, &report)
            })
            .collect::<Result<_>>()?;
        Ok(Model {
            name: spec.name.clone(),
            family: spec.family.clone(),
            point: spec.point.clone(),
            main: spec.main,
            runs,
        })
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

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|e| Error::internal(format!("can't write {}: {e}", path.display())))
}

/// What is read of the log of a run of audit-train.
struct Log {
    name: String,
    rows: Vec<Row>,
}

/// A line of the log, with those of its fields that are used.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Settings(IgnoredAny),
    Epoch(Row),
    End(IgnoredAny),
}

#[derive(Deserialize)]
struct Row {
    step: u64,
    clean: Clean,
    image_steps: u64,
    seconds: f64,
    collapsed: bool,
}

#[derive(Deserialize)]
struct Clean {
    distance: f64,
}

impl Log {
    /// Reads a log. Exit code 2 where it is none, or holds no epoch.
    fn read(path: &Path) -> Result<Log> {
        let shown = path.display();
        let text =
            fs::read_to_string(path).map_err(|e| Error::usage(format!("can't read the log {shown}: {e}")))?;
        let mut rows = vec![];
        for (i, line) in text.lines().enumerate() {
            match serde_json::from_str(line) {
                Ok(Line::Epoch(row)) => rows.push(row),
                Ok(Line::Settings(_) | Line::End(_)) => {}
                Err(e) => {
                    let at = i + 1;
                    return Err(Error::usage(format!(
                        "{shown}, line {at}: not a line of audit-train's log: {e}"
                    )));
                }
            }
        }
        match rows.is_empty() {
            true => Err(Error::usage(format!("{shown} holds no epoch yet"))),
            false => Ok(Log { name: path.file_stem().unwrap_or_default().to_string_lossy().into(), rows }),
        }
    }
}

/// A model, over seeds.
struct Model {
    name: String,
    family: String,
    point: String,
    main: bool,
    runs: Vec<Outcome>,
}

/// One seed's.
struct Outcome {
    r1: f64,
    distance: f64,
    resistances: BTreeMap<String, f64>,
    ers: f64,
    ars: f64,
    image_steps: f64,
    seconds: f64,
    /// At which step.
    collapsed: Option<u64>,
}

impl Outcome {
    fn of(log: &Log, report: &Report) -> Result<Outcome> {
        let score = |s: &Option<Score>, name: &str| {
            s.as_ref()
                .map(|s| s.value)
                .ok_or_else(|| Error::internal(format!("the audit of {} gives no {name}", log.name)))
        };
        let last = &log.rows[log.rows.len() - 1];
        Ok(Outcome {
            r1: report.benign.r1,
            distance: last.clean.distance,
            resistances: (report.attacks.iter())
                .filter_map(|a| Some((a.code.clone(), a.resistance.per_trial?)))
                .collect(),
            ers: score(&report.scores.ers, "ERS")?,
            ars: score(&report.scores.ars, "ARS")?,
            image_steps: last.image_steps as f64,
            seconds: last.seconds,
            collapsed: log.rows.iter().find(|r| r.collapsed).map(|r| r.step),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_cost_the_same_image_steps() {
        for spec in specs(1000).iter().filter(|s| s.main) {
            let (_, _, images, _) =
                FAMILIES.iter().find(|f| f.0 == spec.family.trim_end_matches("+p")).unwrap();
            assert_eq!(spec.steps * images, 168_000, "{}", spec.name);
        }
        let names: Vec<String> = specs(1000).into_iter().map(|s| s.name).collect();
        let mut once = names.clone();
        once.sort();
        once.dedup();
        assert_eq!(names.len(), once.len());
        let sweep = specs(1000).into_iter().find(|s| s.name == "ca-tride+p λ 10").unwrap();
        assert_eq!(sweep.words.iter().filter(|w| *w == "--lambda").count(), 1);
        assert!(sweep.words.windows(2).any(|w| w == ["--lambda", "10"]));
    }

    /// A model of which only R@1, ARS and collapse matter.
    pub fn model(name: &str, family: &str, runs: &[(f64, f64, Option<u64>)]) -> Model {
        let run = |&(r1, ars, collapsed): &(f64, f64, Option<u64>)| Outcome {
            r1,
            distance: 1.0,
            resistances: BTreeMap::new(),
            ers: ars,
            ars,
            image_steps: 1e6,
            seconds: 60.0,
            collapsed,
        };
        Model {
            name: name.into(),
            family: family.into(),
            point: "main".into(),
            main: true,
            runs: runs.iter().map(run).collect(),
        }
    }
}
