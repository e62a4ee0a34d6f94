//! `cargo research matrix PLAN`: methods × seeds × data as a file, or a paper's tables by name.
//! research/README.md has an example with every key.

#[cfg(all(test, unix))]
mod tests;
mod text;
mod words;

use crate::Outcome;
use crate::matrix::lab::Lab;
use crate::matrix::outcome::TrainedModel;
use crate::matrix::paper::{self, Printed};
use crate::matrix::{Spec, split, write};
use audit::data::Layout;
use audit::judge::published;
use audit::{Error, Result, yaml};
use clap::Args;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{self, Path, PathBuf};
use std::time::Instant;
use words::{OF_ATTACKS, joined, name_of, own_flags, with_flags_first};
use xtask::project::reference;
use xtask::train::{self, Tools};

/// The file. Paths in it are relative to its folder or to the reference data.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MatrixPlan {
    /// Empty if `--data` names them.
    #[serde(default)]
    data: Vec<Images>,
    seeds: Vec<u64>,
    methods: Vec<Method>,
    /// Flags of audit-train for every method that doesn't set them itself.
    #[serde(default)]
    train: String,
    /// Flags for every method on some data sets, by name. They go before `train`.
    #[serde(default)]
    on: BTreeMap<String, String>,
    /// Flags of audit for every model.
    #[serde(default = "standard_audit")]
    audit: String,
    /// Threads of each training and audit. Other numbers change the last bits, and so the models.
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
    /// The curve that it is a further point of; without it, it is a curve's first point and a row of the main
    /// table.
    curve: Option<String>,
    /// Its own flags for some data sets, by name. They go before `train`.
    #[serde(default)]
    on: BTreeMap<String, String>,
    /// Its rows in `audit compare --paper`, one or more.
    #[serde(default)]
    rows: Vec<String>,
    /// Its numbers in the paper, by the data set's name.
    #[serde(default)]
    printed: BTreeMap<String, Printed>,
    /// Data sets on which it is not made, because the paper's tables don't have it there.
    #[serde(skip)]
    left_out: BTreeSet<String>,
}

impl Method {
    /// Whether the paper has its numbers on the data of that name.
    fn is_printed(&self, data: &str) -> Result<bool> {
        let rows = published::names(data)?;
        Ok(self.printed.contains_key(data) || self.rows.iter().any(|row| rows.contains(row)))
    }
}

/// The papers' tables, which are part of the program.
const TABLES: [(&str, &str); 4] = [
    ("ca-tride-tables", include_str!("../../../plans/ca-tride-tables.yaml")),
    ("hm-tables", include_str!("../../../plans/hm-tables.yaml")),
    ("panum-tables", include_str!("../../../plans/panum-tables.yaml")),
    ("adml-tables", include_str!("../../../plans/adml-tables.yaml")),
];

fn one() -> usize {
    1
}

fn standard_audit() -> String {
    "--suite full --max-queries 200".into()
}

/// The plan, and what a run of it is given beside the file.
#[derive(Args)]
pub struct Flags {
    /// The plan, a .yaml file (research/README.md), or the tables of a paper: ca-tride-tables, hm-tables,
    /// panum-tables, adml-tables
    plan: PathBuf,
    /// A benchmark as it is distributed, whose halves are trained and audited on. May be repeated; it goes
    /// before the plan's data
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// Methods of the plan to make, with those that they start from [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Seeds [default: the plan's]
    #[arg(long, value_name = "SEED", value_delimiter = ',')]
    seeds: Vec<u64>,
    /// Flags of audit-train for every method, which go before all of the plan's, such as "--steps 2 --batch
    /// 8"
    #[arg(
        long,
        value_name = "FLAGS",
        allow_hyphen_values = true,
        default_value = "",
        hide_default_value = true
    )]
    train: String,
    /// Flags of audit, which go before the plan's
    #[arg(
        long,
        value_name = "FLAGS",
        allow_hyphen_values = true,
        default_value = "",
        hide_default_value = true
    )]
    audit: String,
    /// Models made at a time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Where models, logs and reports are kept [default: beside the plan, with the extension .work]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// The page to write [default: beside the plan, with the extension .md]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Flags that the matrix sets itself.
const OWN_OF_TRAINER: [&str; 7] =
    ["--data", "--validation", "--out", "--seed", "--init", "--resume", "--threads"];
const OWN_OF_AUDIT: [&str; 4] = ["--data", "-o", "--report", "--threads"];

/// Builds both programs and runs the plan.
pub fn run(flags: &Flags) -> Outcome {
    // A wrong plan is refused before minutes of building.
    Plan::read(flags)?.labs(flags, None)?;
    let tools = train::build()?;
    println!("{}", make(flags, &tools)?);
    Ok(())
}

/// A plan to run: the file, with the changes of flags.
struct Plan {
    plan: MatrixPlan,
    /// Its name in errors.
    name: String,
    /// The folder that paths of the file are relative to.
    folder: PathBuf,
    /// Path of the work folder and of the page, without an extension.
    beside: PathBuf,
}

impl Plan {
    /// The file, or the tables of that name, with the flags' changes. Exit code 2 for an invalid plan, with
    /// the key.
    fn read(flags: &Flags) -> Result<Plan> {
        let file = flags.plan.as_path();
        let name = file.display().to_string();
        let tables = TABLES.iter().find(|(known, _)| *known == name);
        let text = match tables {
            Some((_, text)) => (*text).to_string(),
            None => fs::read_to_string(file).map_err(|e| {
                let known = TABLES.map(|(known, _)| known).join(", ");
                Error::usage(format!(
                    "can't read the plan {name}: {e}. Expected a .yaml file, or one of {known}"
                ))
            })?,
        };
        let mut plan: MatrixPlan = yaml::read(&name, &text)?;
        if !flags.data.is_empty() {
            plan.data = flags.data.iter().map(|path| Images::benchmark(path)).collect::<Result<_>>()?;
        }
        if tables.is_some() && plan.data.is_empty() {
            return Err(Error::usage(format!(
                "{name}: --data is missing; expected CUB-200-2011, Cars-196, SOP or In-shop as it is distributed, such as --data cub/"
            )));
        }
        if !flags.seeds.is_empty() {
            plan.seeds.clone_from(&flags.seeds);
        }
        plan.choose(&flags.only)?;
        if tables.is_some() && flags.only.is_empty() {
            plan.leave_out().map_err(|e| Error::usage(format!("{name}: {}", e.message)))?;
        }
        let other_attack = split(&flags.audit).any(|word| OF_ATTACKS.contains(&name_of(&word)));
        for method in &mut plan.methods {
            method.train = with_flags_first(&flags.train, &method.train);
            method.on.values_mut().for_each(|on| *on = joined(&flags.train, on).join(" "));
            if other_attack {
                // The papers' numbers under attack belong to the plan's attacks.
                method.rows.clear();
                method.printed.values_mut().for_each(|printed| printed.retain(|name, _| !name.contains(' ')));
            }
        }
        plan.audit = joined(&flags.audit, &plan.audit).join(" ");
        for images in &plan.data {
            plan.specs(&images.name).map_err(|e| Error::usage(format!("{name}: {}", e.message)))?;
        }
        if plan.data.is_empty() {
            return Err(Error::usage(format!(
                "{name}: data is empty; give a name, train and test, or --data DIR"
            )));
        }
        let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
        Ok(Plan { plan, name, folder, beside: file.to_path_buf() })
    }

    /// The settings for each data set. Exit code 2 if images are missing.
    fn labs(&self, flags: &Flags, tools: Option<&Tools>) -> Result<Vec<(&Images, Lab)>> {
        let work = flags.work.clone().unwrap_or_else(|| self.beside.with_extension("work"));
        let mut labs = vec![];
        for images in &self.plan.data {
            let program = |of: fn(&Tools) -> &PathBuf| tools.map(of).cloned().unwrap_or_default();
            let lab = Lab {
                trainer: program(|tools| &tools.trainer),
                audit: program(|tools| &tools.audit),
                train: find(&self.folder, &images.train),
                test: find(&self.folder, &images.test),
                audit_words: split(&self.plan.audit).collect(),
                seeds: self.plan.seeds.clone(),
                jobs: flags.jobs,
                threads: self.plan.threads,
                work: work.join(&images.name),
                for_all: flags.train.clone(),
                began: Instant::now(),
            };
            for (key, path) in [("train", &lab.train), ("test", &lab.test)] {
                if !path.exists() {
                    return Err(Error::usage(format!(
                        "{}: data {}: {key}: {} is missing; expected images as audit reads them, by a path relative to the \
                         plan's folder or to the data of the reference data",
                        self.name,
                        images.name,
                        path.display()
                    )));
                }
            }
            labs.push((images, lab));
        }
        Ok(labs)
    }
}

/// Runs the unfinished part, and writes the page with a picture for each data set. Returns the text to print.
///
/// Exit code 2 for an invalid plan, with the key; 1 for a failed training or audit, with its output.
fn make(flags: &Flags, tools: &Tools) -> Result<String> {
    let read = Plan::read(flags)?;
    let plan = &read.plan;
    let out = flags.out.clone().unwrap_or_else(|| read.beside.with_extension("md"));
    let labs = read.labs(flags, Some(tools))?;
    for (_, lab) in &labs {
        fs::create_dir_all(&lab.work)
            .map_err(|e| Error::usage(format!("can't make {}: {e}", lab.work.display())))?;
    }
    for sentence in plan.data.iter().filter_map(|images| plan.left_out(&images.name)) {
        eprintln!("{sentence}");
    }
    // Before days of training.
    for (images, lab) in &labs {
        lab.check_all(&plan.specs(&images.name)?)?;
    }
    let mut page = plan.introduction();
    let mut count = 0;
    for (images, lab) in labs {
        let specs = plan.specs(&images.name)?;
        lab.make_all(&specs)?;
        let models: Vec<TrainedModel> =
            specs.iter().cloned().map(|spec| lab.read(spec)).collect::<Result<_>>()?;
        count += models.iter().map(|m| m.runs.len()).sum::<usize>();
        page += &plan.section(&images.name, &models, &lab, &out)?;
    }
    write(&out, &page)?;
    Ok(format!("{}: {count} models", out.display()))
}

impl Images {
    /// A data set that audit and audit-train divide themselves. Exit code 2 for others.
    fn benchmark(path: &Path) -> Result<Images> {
        let layout = Layout::detect(path)?;
        if !path.exists() || !(layout.has_splits)(path) {
            return Err(Error::usage(format!(
                "--data {}: expected CUB-200-2011, Cars-196, SOP or In-shop as it is distributed, found {}. Name other data in a plan, with \
                 train and test",
                path.display(),
                if path.exists() {
                    format!("the layout {}, which has no training half", layout.name)
                } else {
                    "nothing".into()
                }
            )));
        }
        let name = paper::data_name(layout.name).unwrap_or(layout.name).to_string();
        let path = path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        Ok(Images { name, train: path.clone(), test: path })
    }
}

/// Images of a plan: relative to its folder, or, if there are none, to the data of the reference data
/// (CONTRIBUTING.md).
fn find(folder: &Path, images: &Path) -> PathBuf {
    let (own, known) = (folder.join(images), reference("data").join(images));
    if !own.exists() && known.exists() { known } else { own }
}

impl MatrixPlan {
    /// Keeps the methods of these names and those that they start from; all of them if there are no names.
    /// Exit code 2 for a name without a method.
    fn choose(&mut self, only: &[String]) -> Result<()> {
        let names: Vec<&str> = self.methods.iter().map(|m| m.name.as_str()).collect();
        if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
            return Err(Error::usage(format!(
                "--only {unknown}: no such method; expected some of {}",
                names.join(", ")
            )));
        }
        let mut kept: BTreeSet<String> = only.iter().cloned().collect();
        self.add_parents(&mut kept);
        self.methods.retain(|m| only.is_empty() || kept.contains(&m.name));
        Ok(())
    }

    /// Leaves out each method on the data for which the paper's tables lack it. Methods that others start
    /// from stay. Exit code 2 if no method is left.
    fn leave_out(&mut self) -> Result<()> {
        for images in &self.data {
            let data = &images.name;
            let mut made = BTreeSet::new();
            for method in &self.methods {
                if method.is_printed(data)? {
                    made.insert(method.name.clone());
                }
            }
            if made.is_empty() {
                let has = |name: &&str| self.methods.iter().any(|m| m.is_printed(name).unwrap_or(false));
                return Err(Error::usage(format!(
                    "--data of {data}: the paper has no numbers on it; expected {}. --only NAME makes a method all the same",
                    paper::data_names().filter(has).collect::<Vec<_>>().join(", ")
                )));
            }
            self.add_parents(&mut made);
            for method in self.methods.iter_mut().filter(|m| !made.contains(&m.name)) {
                method.left_out.insert(data.clone());
            }
        }
        Ok(())
    }

    /// Adds the methods that those of these names start from.
    fn add_parents(&self, made: &mut BTreeSet<String>) {
        let missing = |m: &Method, made: &BTreeSet<String>| {
            m.from.clone().filter(|from| made.contains(&m.name) && !made.contains(from))
        };
        while let Some(from) = self.methods.iter().find_map(|m| missing(m, made)) {
            made.insert(from);
        }
    }

    /// The methods that are made on the data of that name.
    fn methods_on<'a>(&'a self, data: &'a str) -> impl Iterator<Item = &'a Method> {
        self.methods.iter().filter(move |m| !m.left_out.contains(data))
    }

    /// The methods that are left out on the data of that name, in a sentence; `None` if all are made.
    fn left_out(&self, data: &str) -> Option<String> {
        let names: Vec<&str> =
            self.methods.iter().filter(|m| m.left_out.contains(data)).map(|m| m.name.as_str()).collect();
        (!names.is_empty()).then(|| {
            format!(
                "Left out on {data}, where the paper has no numbers of them: {} (--only NAME makes a method all the same).",
                names.join(", ")
            )
        })
    }

    /// The flags of a method on the data of that name.
    fn words(&self, method: &Method, data: &str) -> Vec<String> {
        let on = |flags: &BTreeMap<String, String>| flags.get(data).cloned().unwrap_or_default();
        let common = joined(&on(&self.on), &self.train).join(" ");
        joined(&with_flags_first(&on(&method.on), &method.train), &common)
    }

    /// The models to make for the data of that name. The error names the key.
    fn specs(&self, data: &str) -> Result<Vec<Spec>> {
        let refuse = |wrong: bool, why: String| if wrong { Err(Error::usage(why)) } else { Ok(()) };
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
        for words in self.on.values().chain([&self.train]) {
            own_flags("train", words, &OWN_OF_TRAINER)?;
        }
        let mut specs: Vec<Spec> = vec![];
        for method in self.methods_on(data) {
            let name = &method.name;
            for words in method.on.values().chain([&method.train]) {
                own_flags(&format!("methods, {name}"), words, &OWN_OF_TRAINER)?;
            }
            let cells = method.printed.values().flatten();
            if let Some((cell, text)) = cells.into_iter().find(|(_, text)| text.parse::<f64>().is_err()) {
                return Err(Error::usage(format!(
                    "methods, {name}: printed, {cell}: expected a number as the paper prints it, found `{text}`"
                )));
            }
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
                words: self.words(method, data),
                from: method.from.clone(),
            });
        }
        // Points of a curve are adjacent, as in the picture and in the table of points.
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
}

/// Names are parts of file names, so they are simple and unique.
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
