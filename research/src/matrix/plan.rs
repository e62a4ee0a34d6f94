//! `cargo research matrix plan.yaml`: methods × seeds × data as a file. research/README.md has an example with every key.

use crate::Outcome;
use crate::matrix::lab::Lab;
use crate::matrix::outcome::TrainedModel;
use crate::matrix::page::Models;
use crate::matrix::{Spec, picture, split, write};
use audit::{Error, Result, yaml};
use clap::Args;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use xtask::project::reference;
use xtask::train::{self, Tools};

/// The file. Paths in it are relative to its folder or to the reference data.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MatrixPlan {
    data: Vec<Images>,
    seeds: Vec<u64>,
    methods: Vec<Method>,
    /// Flags of audit-train for every method that doesn't give them itself.
    #[serde(default)]
    train: String,
    /// Flags of audit for every model.
    #[serde(default = "standard_audit")]
    audit: String,
    /// Threads of each training and audit. With other numbers the last bits differ, and so the models.
    #[serde(default = "one")]
    threads: usize,
    /// Pairs of curves to compare at matched R@1.
    #[serde(default)]
    compare: Vec<(String, String)>,
}

/// A data set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Images {
    name: String,
    train: PathBuf,
    test: PathBuf,
}

/// A row of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Method {
    name: String,
    /// Method and flags of audit-train.
    train: String,
    /// The method whose net of the same seed it starts from.
    from: Option<String>,
    /// The curve that it is a further point of; without one it is a curve's first point and a row of the main table.
    curve: Option<String>,
}

fn one() -> usize {
    1
}

fn standard_audit() -> String {
    "--suite full --max-queries 200".into()
}

/// The plan, and what a run of it is given beside the file.
#[derive(Args)]
pub struct Flags {
    /// The plan, a .yaml file (research/README.md)
    plan: PathBuf,
    /// Models made at a time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Where models, logs and reports are kept [default: beside the plan, with the ending .work]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// The page to write [default: beside the plan, with the ending .md]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Flags that the matrix gives itself.
const OWN_OF_TRAINER: [&str; 7] =
    ["--data", "--validation", "--out", "--seed", "--init", "--resume", "--threads"];
const OWN_OF_AUDIT: [&str; 4] = ["--data", "-o", "--report", "--threads"];

/// Builds both programs and runs the plan.
pub fn run(flags: &Flags) -> Outcome {
    // A wrong plan is refused before minutes of building.
    read(&flags.plan)?;
    let tools = train::build()?;
    println!("{}", make(flags, &tools)?);
    Ok(())
}

/// The plan of a file, and the models to make of each data set.
fn read(file: &Path) -> Result<(MatrixPlan, Vec<Spec>)> {
    let text = fs::read_to_string(file)
        .map_err(|e| Error::usage(format!("can't read the plan {}: {e}", file.display())))?;
    let plan: MatrixPlan = yaml::read(&file.display().to_string(), &text)?;
    let specs = plan.specs().map_err(|e| Error::usage(format!("{}: {}", file.display(), e.message)))?;
    Ok((plan, specs))
}

/// Runs what is not done yet, and writes the page with a picture for each data set. Returns what to print.
///
/// Exit code 2 for a plan that makes no sense, with the key; that of a training or an audit that fails is 1, with its words.
fn make(flags: &Flags, tools: &Tools) -> Result<String> {
    let file = flags.plan.as_path();
    let (plan, specs) = read(file)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let work = flags.work.clone().unwrap_or_else(|| file.with_extension("work"));
    let out = flags.out.clone().unwrap_or_else(|| file.with_extension("md"));
    let mut labs = vec![];
    for images in &plan.data {
        let lab = Lab {
            trainer: tools.trainer.clone(),
            audit: tools.audit.clone(),
            train: find(folder, &images.train),
            test: find(folder, &images.test),
            audit_words: split(&plan.audit).collect(),
            seeds: plan.seeds.clone(),
            jobs: flags.jobs,
            threads: plan.threads,
            work: work.join(&images.name),
            began: Instant::now(),
        };
        for (key, path) in [("train", &lab.train), ("test", &lab.test)] {
            if !path.exists() {
                return Err(Error::usage(format!(
                    "{}: data {}: {key}: {} is missing; expected images as audit reads them, by a path relative to the \
                     plan's folder or to the data of the reference data",
                    file.display(),
                    images.name,
                    path.display()
                )));
            }
        }
        fs::create_dir_all(&lab.work)
            .map_err(|e| Error::usage(format!("can't make {}: {e}", lab.work.display())))?;
        labs.push((images, lab));
    }
    let mut page = plan.introduction();
    let mut count = 0;
    for (images, lab) in labs {
        lab.make_all(&specs)?;
        let models: Vec<TrainedModel> =
            specs.iter().cloned().map(|spec| lab.read(spec)).collect::<Result<_>>()?;
        count += models.iter().map(|m| m.runs.len()).sum::<usize>();
        page += &plan.section(&images.name, &models, &out)?;
    }
    write(&out, &page)?;
    Ok(format!("{}: {count} models", out.display()))
}

/// Images of a plan: relative to its folder, or, if there are none, to the data of the reference data (CONTRIBUTING.md).
fn find(folder: &Path, images: &Path) -> PathBuf {
    let (own, known) = (folder.join(images), reference("data").join(images));
    if !own.exists() && known.exists() { known } else { own }
}

impl MatrixPlan {
    /// The models to make of each data set. The error names the key.
    fn specs(&self) -> Result<Vec<Spec>> {
        let refuse = |wrong: bool, why: String| if wrong { Err(Error::usage(why)) } else { Ok(()) };
        refuse(self.data.is_empty(), "data is empty; give a name, train and test".into())?;
        refuse(self.threads == 0, "threads: 0; expected 1 or more".into())?;
        refuse(self.seeds.is_empty(), "seeds is empty; give one or more, such as [0, 1, 2]".into())?;
        refuse(
            self.methods.is_empty(),
            "methods is empty; give a name and train, the flags of audit-train".into(),
        )?;
        unique("seeds", self.seeds.iter().map(u64::to_string))?;
        unique("data", self.data.iter().map(|d| d.name.clone()))?;
        unique("methods", self.methods.iter().map(|m| m.name.clone()))?;
        own_flags("audit", &self.audit, &OWN_OF_AUDIT)?;
        own_flags("train", &self.train, &OWN_OF_TRAINER)?;
        let mut specs: Vec<Spec> = vec![];
        for method in &self.methods {
            let name = &method.name;
            own_flags(&format!("methods, {name}"), &method.train, &OWN_OF_TRAINER)?;
            let unknown = |from: &String| !self.methods.iter().any(|m| m.name == *from);
            refuse(
                method.from.as_ref().is_some_and(unknown),
                format!(
                    "methods, {name}: from: {} is no method of the plan",
                    method.from.as_deref().unwrap_or("")
                ),
            )?;
            specs.push(Spec {
                name: name.clone(),
                family: method.curve.clone().unwrap_or_else(|| name.clone()),
                point: if method.curve.is_some() { name.clone() } else { "main".into() },
                main: method.curve.is_none(),
                words: joined(&method.train, &self.train),
                from: method.from.clone(),
            });
        }
        // Points of a curve stand together, as the picture and the table of points have them.
        let first = |family: &str| specs.iter().position(|s| s.family == family).unwrap_or(specs.len());
        let mut order: Vec<usize> = (0..specs.len()).collect();
        order.sort_by_key(|&i| first(&specs[i].family));
        let specs: Vec<Spec> = order.into_iter().map(|i| specs[i].clone()).collect();
        for curve in self.compare.iter().flat_map(|(a, b)| [a, b]) {
            refuse(
                !specs.iter().any(|s| s.family == *curve),
                format!("compare: {curve} is no curve of the plan"),
            )?;
        }
        Ok(specs)
    }

    fn introduction(&self) -> String {
        let seeds = match self.seeds.len() {
            1 => "One seed.".into(),
            n => format!("{n} seeds: ± is the standard deviation over them."),
        };
        let mut out = format!(
            "# Methods, seeds and data\n\nWritten by `cargo research matrix`; every number follows from logs and reports. {seeds} Minutes are wall \
             time of the training. Every model is audited with `audit {}`.\n\n| method | audit-train | starts from |\n|---|---|---|\n",
            self.audit
        );
        for method in &self.methods {
            let words = joined(&method.train, &self.train).join(" ");
            out += &format!("| {} | `{words}` | {} |\n", method.name, method.from.as_deref().unwrap_or("–"));
        }
        out
    }

    /// What there is to say of a data set, with the picture written beside the page.
    fn section(&self, name: &str, models: &[TrainedModel], page: &Path) -> Result<String> {
        let all = Models(models);
        let mut out = format!("\n# {name}\n\n{}{}", all.table(), all.measures());
        if models.iter().flat_map(|m| &m.runs).any(|run| run.scores.ars.is_some()) {
            let stem = page.file_stem().unwrap_or_default().to_string_lossy();
            let beside = page.with_file_name(format!("{stem}-{name}.svg"));
            write(&beside, &picture::scatter(models))?;
            out += &all.curves(&beside.file_name().unwrap_or_default().to_string_lossy(), "");
        }
        if !self.compare.is_empty() {
            out += &all.matched(&self.compare);
        }
        Ok(out)
    }
}

/// A method's own flags, and those of all methods that it doesn't give itself.
fn joined(own: &str, common: &str) -> Vec<String> {
    let mut words: Vec<String> = split(own).collect();
    let given: BTreeSet<String> = words.iter().filter(|word| is_flag(word)).cloned().collect();
    let mut skipped = false;
    for word in split(common) {
        if is_flag(&word) {
            skipped = given.contains(&word);
        }
        if !skipped {
            words.push(word);
        }
    }
    words
}

/// Whether it is a flag's name. A negative number is a value.
fn is_flag(word: &str) -> bool {
    word.starts_with('-') && word.parse::<f64>().is_err()
}

fn own_flags(key: &str, words: &str, own: &[&str]) -> Result<()> {
    match split(words).find(|word| own.contains(&word.split('=').next().unwrap_or_default())) {
        Some(flag) => Err(Error::usage(format!("{key}: {flag} is given by the matrix itself; leave it out"))),
        None => Ok(()),
    }
}

/// Names are parts of file names, so they are kept simple, and each is there once.
fn unique(key: &str, names: impl Iterator<Item = String>) -> Result<()> {
    let mut seen = BTreeSet::new();
    for name in names {
        let plain = |c: char| c.is_alphanumeric() || " +-_.".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(Error::usage(format!(
                "{key}: the name `{name}` becomes a part of file names; expected letters, digits, blanks and + - _ ."
            )));
        }
        // A blank becomes an underscore in file names.
        if !seen.insert(name.replace(' ', "_")) {
            return Err(Error::usage(format!("{key}: {name} is there twice")));
        }
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const PLAN: &str = "
data:
  - {name: letters, train: a, test: b}
seeds: [0, 1]
train: --steps 7 --batch 16
audit: --suite ars
methods:
  - {name: hm far, train: hm --destination -0.05 --steps 9, from: none, curve: hm}
  - {name: none, train: none}
  - {name: hm, train: hm, from: none}
compare: [[hm, none]]
";

    fn plan(text: &str) -> Result<Vec<Spec>> {
        yaml::read::<MatrixPlan>("plan.yaml", text).and_then(|plan| plan.specs())
    }

    #[test]
    fn methods_give_flags_of_their_own() {
        let specs = plan(PLAN).unwrap();
        let words: Vec<(&str, String)> = specs.iter().map(|s| (s.name.as_str(), s.words.join(" "))).collect();
        assert_eq!(
            words,
            [
                ("hm far", "hm --destination -0.05 --steps 9 --batch 16".to_string()),
                ("hm", "hm --steps 7 --batch 16".into()),
                ("none", "none --steps 7 --batch 16".into()),
            ]
        );
        assert_eq!(
            (specs[0].family.as_str(), specs[0].point.as_str(), specs[0].main),
            ("hm", "hm far", false)
        );
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (from, to, said) in [
            ("seeds: [0, 1]", "seeds: []", "seeds is empty"),
            ("seeds: [0, 1]", "seeds: [1, 1]", "seeds: 1 is there twice"),
            ("name: hm,", "name: none,", "methods: none is there twice"),
            ("name: hm,", "name: a/b,", "the name `a/b` becomes a part of file names"),
            ("train: hm, from: none", "train: hm, from: nobody", "methods, hm: from: nobody is no method"),
            ("train: none}", "train: none --seed 3}", "methods, none: --seed is given by the matrix itself"),
            ("--suite ars", "--suite ars -o x.json", "audit: -o is given by the matrix itself"),
            ("[hm, none]", "[hm, cap]", "compare: cap is no curve"),
            ("seeds: [0, 1]", "seed: [0, 1]", "unknown key `seed`"),
            ("seeds: [0, 1]", "seeds: [0, 1]\nthreads: 0", "threads: 0; expected 1 or more"),
        ] {
            assert!(PLAN.contains(from));
            let e = plan(&PLAN.replacen(from, to, 1)).unwrap_err();
            assert!(e.message.contains(said), "{said}: {e}");
        }
    }

    /// Programs that stand for audit-train and audit: they write down how they are called, and leave files behind.
    fn programs(folder: &Path) -> [PathBuf; 2] {
        let report = folder.join("report.json");
        let write = |name: &str, body: &str| {
            let path = folder.join(name);
            let calls = folder.join("calls");
            fs::write(&path, format!("#!/bin/sh\nset -e\necho \"{name} $*\" >> {}\n{body}", calls.display()))
                .unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let row = r#"{"epoch":{"step":7,"clean":{"distance":1.5},"image_steps":2000000,"seconds":60,"collapsed":false}}"#;
        let find = "while [ \"$1\" != \"$KEY\" ]; do shift; done; out=$2\n";
        let trainer = write(
            "trainer",
            &format!("{}echo x > $out; echo '{row}' > ${{out%.onnx}}.jsonl\n", find.replace("$KEY", "--out")),
        );
        let audit =
            write("auditor", &format!("{}cp {} $out\n", find.replace("$KEY", "-o"), report.display()));
        [trainer, audit]
    }

    /// A report with R@1 90.4, ARS 31, and CA+ withstood by half.
    fn report() -> serde_json::Value {
        let score = |value: f64| serde_json::json!({ "value": value, "interval": null });
        serde_json::json!({
            "schema_version": audit::record::SCHEMA_VERSION,
            "tool": { "name": "audit", "version": "0.1.0", "runtime": "ONNX Runtime", "provider": "cpu" },
            "model": {
                "path": "m.onnx", "sha256": "ab", "inputs": ["x"], "output": "y", "dim": 8, "metric": "normalized-euclidean",
                "preprocessing": {
                    "channels": 1, "height": 28, "width": 28, "layout": "nchw", "order": "grey",
                    "scale": [1.0], "shift": [0.0], "resize": null, "assumed": true,
                },
                "licence": null, "source": null,
                "gradient_check": { "embedding_error": 1e-7, "gradient_error": 1e-3, "directions": 16 },
            },
            "data": {
                "source": "b", "images": 9, "gallery": 9, "queries": 9, "classes": 3, "sha256": "cd", "unreadable": [],
            },
            "suite": {
                "name": "full", "form": "published", "protocol": "rob28", "eps": 0.3, "alpha": 0.01,
                "steps": 32, "schedule": "fixed", "restarts": 0, "queries": 9,
            },
            "seed": 0,
            "benign": {
                "r1": 90.4, "r2": 95.0, "map": 50.0, "map_at_r": 40.0, "nmi": null, "queries": 9, "without_positive": 0,
            },
            "attacks": [{
                "code": "CA+", "form": "published", "queries": 9, "skipped": 0, "before": 50.0, "after": 25.5,
                "after_interval": null, "ers_term": 50.0, "resistance": { "per_trial": 50.0, "table": 50.0 },
            }],
            "scores": { "ers": score(33.0), "ars": score(31.0), "notes": [] },
            "trials": { "protocol": "rob28", "form": "published", "metric": "normalized-euclidean", "attacks": {} },
            "outcomes": [], "skipped": [], "warnings": [], "command": "audit",
            "timing": audit::record::Timing::default(),
        })
    }

    #[test]
    fn what_is_finished_is_not_done_again() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join("report.json"), report().to_string()).unwrap();
        ["a", "b"].iter().for_each(|name| fs::create_dir(folder.join(name)).unwrap());
        let [trainer, audit] = programs(folder);
        let tools = Tools { trainer, audit };
        let file = folder.join("plan.yaml");
        let flags = Flags { plan: file.clone(), jobs: 1, work: None, out: None };
        let run_with = |text: &str| {
            fs::write(&file, text).unwrap();
            let _ = fs::remove_file(folder.join("calls"));
            let said = make(&flags, &tools).unwrap();
            let calls = fs::read_to_string(folder.join("calls")).unwrap_or_default();
            (said, calls.lines().map(String::from).collect::<Vec<_>>())
        };
        let (said, calls) = run_with(PLAN);
        assert!(said.ends_with("plan.md: 6 models"), "{said}");
        assert_eq!(calls.len(), 12, "{calls:#?}");
        // A model comes after the one that it starts from.
        assert!(calls[0].starts_with("trainer none --steps 7") && calls[1].starts_with("auditor "));
        assert!(calls.iter().filter(|c| c.starts_with("trainer hm")).all(|c| c.contains("--init ")));
        let page = fs::read_to_string(folder.join("plan.md")).unwrap();
        assert!(
            page.contains(
                "| hm | 90.4 ± 0.0 | 1.500 ± 0.000 | 50.0 | 33.0 ± 0.0 | 31.0 ± 0.0 | – | 2.00 | 1.0 | no |"
            ),
            "{page}"
        );
        assert!(
            page.contains(
                "| hm far | 90.4 ± 0.0 | 95.0 ± 0.0 | 50.0 ± 0.0 | 40.0 ± 0.0 | – | – | 25.5 ± 0.0 |"
            ) && page.contains("## Matched R@1"),
            "{page}"
        );
        assert!(folder.join("plan-letters.svg").is_file());
        assert_eq!(run_with(PLAN).1.len(), 0, "all of it is done");
        // A seed more is trained by itself; another length is all of it but the model that has its own.
        assert_eq!(run_with(&PLAN.replace("[0, 1]", "[0, 1, 2]")).1.len(), 6);
        let longer = PLAN.replace("--steps 7", "--steps 8");
        assert_eq!(run_with(&longer).1.len(), 12, "what starts from another net is another net");
        // Another audit of the same models.
        let (_, calls) = run_with(&longer.replace("audit: ", "audit: --seed 1 "));
        assert_eq!(calls.len(), 6, "{calls:#?}");
        assert!(calls.iter().all(|c| c.starts_with("auditor ") && c.contains("--seed 1")), "{calls:#?}");
        run_with(&longer);
        // An audit that was not finished.
        fs::remove_file(folder.join("plan.work/letters/hm-1.json")).unwrap();
        let (_, calls) = run_with(&longer);
        assert!(calls.len() == 1 && calls[0].starts_with("auditor "), "{calls:?}");
    }

    #[test]
    fn the_plans_here_are_plans() {
        let folder = xtask::project::root().join("research/plans");
        let mut count = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path();
            let specs = plan(&fs::read_to_string(&file).unwrap());
            assert!(specs.is_ok_and(|specs| !specs.is_empty()), "{}", file.display());
            count += 1;
        }
        assert!(count > 0);
    }

    #[test]
    fn images_lie_beside_the_plan_or_among_the_reference_data() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let omniglot = Path::new("omniglot28/test");
        let known = reference("data").join(omniglot);
        assert_eq!(find(folder, omniglot), if known.exists() { known } else { folder.join(omniglot) });
        fs::create_dir_all(folder.join(omniglot)).unwrap();
        assert_eq!(find(folder, omniglot), folder.join(omniglot));
        assert_eq!(find(folder, Path::new("nothing")), folder.join("nothing"));
    }

    #[test]
    fn circles_are_refused() {
        let circle = PLAN.replace("train: none}", "train: none, from: hm}");
        let specs = plan(&circle).unwrap();
        let lab = Lab {
            trainer: "x".into(),
            audit: "x".into(),
            train: "x".into(),
            test: "x".into(),
            audit_words: vec![],
            seeds: vec![0],
            jobs: 1,
            threads: 1,
            work: "x".into(),
            began: Instant::now(),
        };
        let e = lab.make_all(&specs).unwrap_err();
        assert!(e.message.contains("start from each other"), "{e}");
    }
}
