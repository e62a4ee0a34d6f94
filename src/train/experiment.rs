//! `cargo xtask experiment omniglot`: every defence at equal budgets and over several seeds, audited, and written up.
//!
//! Each model is a child process of `audit-train`, then one of `audit`; what is done is not done again. The page is a pure
//! function of their logs and reports, its answers included: [`write_up`].

mod statistics;

use super::checkpoint::replace;
use super::report::Run;
use crate::report::Report;
use crate::{Error, Result};
use clap::{Args, ValueEnum};
use statistics::{Interval, Point, difference, dominance, mean_and_deviation};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// Flags of the experiment.
#[derive(Clone, Debug, Args)]
pub struct Flags {
    /// Its name: omniglot
    pub name: String,
    /// Folder with `train` and `test`, each with a folder per class
    #[arg(long)]
    pub data: PathBuf,
    /// The program audit
    #[arg(long)]
    pub audit: PathBuf,
    /// How much
    #[arg(long, value_enum, default_value = "full")]
    pub budget: Budget,
    /// Models trained at a time, one thread each
    #[arg(long, default_value_t = 2)]
    pub jobs: usize,
    /// Where models, logs and reports are kept [default: target/experiment/NAME-BUDGET]
    #[arg(long)]
    pub work: Option<PathBuf>,
    /// The page to write [default: docs/experiments/NAME.md for the full budget, else a file in the work folder]
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

/// Runs what is not done yet, and writes the page.
pub fn run(flags: &Flags) -> Result<String> {
    if flags.name != "omniglot" {
        return Err(Error::usage(format!("there is no experiment `{}`; known: omniglot", flags.name)));
    }
    let size = flags.budget.size();
    let budget = format!("{:?}", flags.budget).to_lowercase();
    let name = format!("{}-{budget}", flags.name);
    let work = flags.work.clone().unwrap_or_else(|| Path::new("target/experiment").join(&name));
    fs::create_dir_all(&work).map_err(|e| Error::usage(format!("can't make {}: {e}", work.display())))?;
    let out = flags.out.clone().unwrap_or_else(|| match flags.budget {
        Budget::Full => PathBuf::from(format!("docs/experiments/{}.md", flags.name)),
        _ => work.join(format!("{}.md", flags.name)),
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
    let lab = Lab { flags, size: &size, work: &work, program: program()?, began: Instant::now() };
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
    replace(&out, write_up(&rows, &size, flags.budget).as_bytes())?;
    Ok(format!("{}: {} models\n", out.display(), rows.iter().map(|m| m.runs.len()).sum::<usize>()))
}

fn program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|e| Error::internal(format!("can't tell where this program lies: {e}")))
}

/// What the models are made with.
struct Lab<'a> {
    flags: &'a Flags,
    size: &'a Size,
    work: &'a Path,
    program: PathBuf,
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
            replace(&asked, all.as_bytes())?;
        }
        let (model, collapsed) = (with("onnx"), with("collapsed.onnx"));
        if !model.is_file() && !collapsed.is_file() {
            if with("checkpoint").is_file() {
                words.push("--resume".into());
            }
            child(&self.program, &words, &[0, 12])?;
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
                let log = Run::read(Path::new(&format!("{stem}.jsonl")))?;
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

/// The eight terms of ARS, in its order.
const TERMS: [&str; 8] = ["CA+", "CA-", "QA+", "QA-", "ES:R", "LTM", "GTM", "GTT"];

impl Outcome {
    fn of(log: &Run, report: &Report) -> Result<Outcome> {
        let score = |s: &Option<crate::report::Score>, name: &str| {
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

/// The page.
fn write_up(models: &[Model], size: &Size, budget: Budget) -> String {
    let find = |name: &str| models.iter().find(|m| m.name == name);
    let mean = |m: &Model, of: &dyn Fn(&Outcome) -> f64| {
        mean_and_deviation(&m.runs.iter().map(of).collect::<Vec<_>>())
    };
    let mut out = String::from("# Defences on Omniglot\n\n");
    if budget != Budget::Full {
        out += "**Made with a smaller budget, to show that the experiment runs. Its numbers mean little or nothing.**\n\n";
    }
    out += &format!(
        "Written by `cargo xtask experiment omniglot`; every number and every answer below follows from logs and reports.\n\n\
         Trained on the characters of five alphabets, audited on those of three others (28×28, suite `full`, published form, \
         rob28, {} queries{}). Net c2f1, 128 dimensions; every hardened net starts from the plain one of its seed; Adam 1e-3, \
         112 images a step, random negatives unless said otherwise, PGD {PGD_STEPS} × {ALPHA}. {} seeds: ± is the standard \
         deviation over them. HM trains for {} steps and the others for as many as cost the same image steps (images × PGD \
         steps), were no attack to stop early; what was spent stands in the table. Minutes are wall time with two models trained at a time; other \
         work on the machine adds to them. `+p`: step size growing with the epochs. \
         `naive`: hardness raised as far as it goes, without collapse awareness.\n\n",
        size.queries,
        size.attack.map_or(String::new(), |s| format!(", {s} attack steps")),
        size.seeds,
        size.base
    );

    out += "## The models\n\nR@1 is clean, in per cent; d̄ the mean distance of clean embeddings. Resistances per trial, 0–100. A \
            collapsed net is no model whatever its score, and is left out of all comparisons.\n\n";
    out += &format!(
        "| model | R@1 | d̄ | {} | ERS | ARS | image steps, M | minutes | collapsed |\n|---|---|---|{}---|---|---|---|---|\n",
        TERMS.join(" | "),
        "---|".repeat(TERMS.len())
    );
    for m in models.iter().filter(|m| m.main) {
        let cell =
            |digits: usize, (mean, deviation): (f64, f64)| format!("{mean:.digits$} ± {deviation:.digits$}");
        let terms: Vec<String> = TERMS
            .iter()
            .map(|t| {
                let found: Vec<f64> = m.runs.iter().filter_map(|r| r.resistances.get(*t).copied()).collect();
                if found.is_empty() { "–".into() } else { format!("{:.1}", mean_and_deviation(&found).0) }
            })
            .collect();
        let steps: Vec<String> = m.runs.iter().filter_map(|r| r.collapsed).map(|s| s.to_string()).collect();
        let collapsed = match steps.is_empty() {
            true => "no".into(),
            false => format!("**{} of {}**, step {}", steps.len(), m.runs.len(), steps.join(", ")),
        };
        out += &format!(
            "| {} | {} | {} | {} | {} | {} | {:.2} | {:.1} | {collapsed} |\n",
            m.name,
            cell(1, mean(m, &|r| r.r1)),
            cell(3, mean(m, &|r| r.distance)),
            terms.join(" | "),
            cell(1, mean(m, &|r| r.ers)),
            cell(1, mean(m, &|r| r.ars)),
            mean(m, &|r| r.image_steps).0 / 1e6,
            mean(m, &|r| r.seconds).0 / 60.0
        );
    }

    out += "\n## What it must show\n\n";
    let word = |ok: bool| if ok { "yes" } else { "**no**" };
    let ars = |name: &str| find(name).map_or((f64::NAN, f64::NAN), |m| mean(m, &|r| r.ars));
    let (none, act, hm) = (ars("none"), ars("act"), ars("hm"));
    out += &format!("- `none` has ARS near zero (below 5): {}, {:.1}.\n", word(none.0 < 5.0), none.0);
    let gap: Vec<f64> = match (find("act"), find("hm")) {
        (Some(a), Some(h)) => h.runs.iter().zip(&a.runs).map(|(h, a)| h.ars - a.ars).collect(),
        _ => vec![],
    };
    out += &format!(
        "- `act` is below `hm`: {}, {:.1} and {:.1}; difference over seeds {}. (At their own R@1; matched below.)\n",
        word(act.0 < hm.0),
        act.0,
        hm.0,
        Interval::of(&gap).map_or("unknown".into(), |i| i.to_string())
    );
    for name in ["cap-naive", "anp-naive"] {
        let Some(m) = find(name) else { continue };
        let count = m.runs.iter().filter(|r| r.collapsed.is_some()).count();
        out += &format!(
            "- `{name}` without the progressive step collapses and is recognised: {}, {count} of {}.\n",
            word(count == m.runs.len()),
            m.runs.len()
        );
    }

    out += "\n## Curves\n\nEvery point of every method, means over the seeds that did not collapse. `half`: half the steps. λ: \
            CA-TRIDE's. H: HM's destination instead of LGA.\n\n| method | point | R@1 | ARS | image steps, M | seeds |\n|---|---|---|---|---|---|\n";
    for m in models {
        let kept: Vec<&Outcome> = m.runs.iter().filter(|r| r.collapsed.is_none()).collect();
        let of =
            |f: fn(&Outcome) -> f64| mean_and_deviation(&kept.iter().map(|r| f(r)).collect::<Vec<_>>()).0;
        match kept.is_empty() {
            true => out += &format!("| {} | {} | – | – | – | all collapsed |\n", m.family, m.point),
            false => {
                out += &format!(
                    "| {} | {} | {:.1} | {:.1} | {:.2} | {} |\n",
                    m.family,
                    m.point,
                    of(|r| r.r1),
                    of(|r| r.ars),
                    of(|r| r.image_steps) / 1e6,
                    kept.len()
                )
            }
        }
    }
    out += "\n## Matched R@1, equal work\n\nFor each seed and method: the best ARS that any of its points reaches at no less than a \
            given R@1, by straight lines between the points that no other beats in both. The difference of two such curves is \
            averaged over the R@1 that both reach; its 95 % interval is Student's, over seeds. Only points count whose image \
            steps are within 10 % of what the cheaper method's dearest point costs. Where the curves share no R@1 there is \
            no comparison, and none is made. `better in both`: seeds in which one model of A has a higher R@1 and a higher ARS \
            than every model of B (and of B than every one of A), which is no matched comparison and has no interval. The last column is the same whatever the work. Picking the best of several points on the same queries flatters both methods, \
            one with more points more.\n\n| A | B | ARS of A − B | R@1 compared | points A, B | image steps up to, M | seeds | better in both | at any work |\n|---|---|---|---|---|---|---|---|---|\n";
    let points = |family: &str| -> Vec<Point> {
        let of = |m: &Model| {
            let point = |(seed, r): (usize, &Outcome)| {
                r.collapsed.is_none().then_some(Point { seed, r1: r.r1, ars: r.ars, work: r.image_steps })
            };
            m.runs.iter().enumerate().filter_map(point).collect::<Vec<_>>()
        };
        models.iter().filter(|m| m.family == family).flat_map(of).collect()
    };
    let compare = |a: &str, b: &str| difference(&points(a), &points(b), true);
    let anyway = |a: &str, b: &str| match difference(&points(a), &points(b), false) {
        Ok(c) => c.gap.map_or("one seed".into(), |i| i.to_string()),
        Err(_) => "–".into(),
    };
    let better = |a: &str, b: &str| match dominance(&points(a), &points(b)) {
        (_, _, 0) => "–".to_string(),
        (ours, theirs, of) => format!("{ours} (and {theirs}) of {of}"),
    };
    for (a, b) in PAIRS {
        out += &match compare(a, b) {
            Ok(c) => format!(
                "| {a} | {b} | {} | {:.1} – {:.1} | {}, {} | {:.2} | {} | {} | {} |\n",
                c.gap.map_or("one seed".into(), |i| i.to_string()),
                c.range.0,
                c.range.1,
                c.points.0,
                c.points.1,
                c.work / 1e6,
                c.seeds,
                better(a, b),
                anyway(a, b)
            ),
            Err(why) => {
                format!(
                    "| {a} | {b} | not comparable: {why} | | | | | {} | {} |\n",
                    better(a, b),
                    anyway(a, b)
                )
            }
        };
    }

    out += "\n## Answers\n\n";
    let answer = |a: &str, b: &str| {
        let matched = match compare(a, b) {
            Err(why) => format!("not comparable: {why}"),
            Ok(c) => match c.gap {
                None => "cannot be told from one seed".into(),
                Some(i) if i.low > 0.0 => format!("**yes**, by {i} points of ARS"),
                Some(i) if i.high < 0.0 => format!("**no**, it is behind: {i} points of ARS"),
                Some(i) => format!("**cannot be told** from {} seeds: {i} points of ARS", c.seeds),
            },
        };
        match dominance(&points(a), &points(b)) {
            (0, 0, _) => matched,
            (ours, theirs, of) => format!(
                "{matched} (in {ours} of {of} seeds one of its models has more R@1 and more ARS than every one of the other's; the other way round in {theirs})"
            ),
        }
    };
    out += &format!(
        "Does CA-TRIDE beat HM at matched R@1 and equal work?\n\n- Each by its own recipe (CA-TRIDE with the progressive step, HM \
         without): {}.\n- Both with it: {}.\n- Both without it: {}.\n\n",
        answer("ca-tride+p", "hm"),
        answer("ca-tride+p", "hm+p"),
        answer("ca-tride", "hm")
    );
    let survivors = |family: &str| {
        let all: Vec<&Outcome> = models.iter().filter(|m| m.family == family).flat_map(|m| &m.runs).collect();
        format!("{} of {}", all.iter().filter(|r| r.collapsed.is_some()).count(), all.len())
    };
    out += &format!(
        "What does collapse awareness itself contribute? The same decoupled attacks with it and without it (`naive`):\n\n- Is it \
         better with it, both with the progressive step? {}.\n- Both without it? {}.\n- Runs that collapsed: with awareness {} \
         (progressive {}), without {} (progressive {}).\n\nWhat does the progressive step contribute?\n\n- To CA-TRIDE, better \
         with it? {}.\n- To HM, better with it? {}.\n",
        answer("ca-tride+p", "ca-tride-naive+p"),
        answer("ca-tride", "ca-tride-naive"),
        survivors("ca-tride"),
        survivors("ca-tride+p"),
        survivors("ca-tride-naive"),
        survivors("ca-tride-naive+p"),
        answer("ca-tride+p", "ca-tride"),
        answer("hm+p", "hm")
    );
    out
}

/// Compared at matched R@1.
const PAIRS: [(&str, &str); 9] = [
    ("ca-tride+p", "hm"),
    ("ca-tride+p", "hm+p"),
    ("ca-tride", "hm"),
    ("ca-tride+p", "ca-tride-naive+p"),
    ("ca-tride", "ca-tride-naive"),
    ("ca-tride+p", "ca-tride"),
    ("hm+p", "hm"),
    ("hm", "act"),
    ("ca-tride+p", "act"),
];

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

    fn model(name: &str, family: &str, runs: &[(f64, f64, Option<u64>)]) -> Model {
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

    /// The text says what the numbers say, either way, and never compares at different R@1.
    #[test]
    fn answers_follow_from_the_numbers() {
        let flat = |ars: f64| [(50.0, ars, None), (50.0, ars + 0.1, None), (50.0, ars - 0.1, None)];
        let page = |ours: &[(f64, f64, Option<u64>)]| {
            let models = [model("ca-tride+p", "ca-tride+p", ours), model("hm", "hm", &flat(30.0))];
            write_up(&models, &Budget::Full.size(), Budget::Full)
        };
        let line = |text: String| {
            text.lines().find(|l| l.starts_with("- Each by its own recipe")).unwrap().to_string()
        };
        assert!(line(page(&flat(40.0))).contains("**yes**, by 10.0"), "{}", line(page(&flat(40.0))));
        assert!(line(page(&flat(20.0))).contains("**no**, it is behind: −10.0"));
        let spread = [(50.0, 20.0, None), (50.0, 31.0, None), (50.0, 42.0, None)];
        assert!(line(page(&spread)).contains("**cannot be told**"), "{}", line(page(&spread)));
        let elsewhere = [(20.0, 90.0, None), (21.0, 90.0, None), (22.0, 90.0, None)];
        assert!(line(page(&elsewhere)).contains("not comparable"), "{}", line(page(&elsewhere)));
        let collapsed = [(50.0, 90.0, Some(48)), (50.0, 90.0, Some(48)), (50.0, 90.0, Some(72))];
        let page = page(&collapsed);
        assert!(page.contains("**3 of 3**, step 48, 48, 72"));
        assert!(line(page).contains("not comparable"));
    }
}
