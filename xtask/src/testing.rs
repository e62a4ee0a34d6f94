//! `cargo xtask test`: all tests. Plain `cargo test` ignores those that take long or need what not every
//! machine has.

use crate::{
    project::{Error, Result, cargo, line, reference, target, works},
    version::{NEWEST, OLDEST},
};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// Why a test is ignored, as its `#[ignore = "…"]` says it, and what is missing; `None` if nothing is.
type Need = (&'static str, fn() -> Option<String>);

const NEEDS: [Need; 12] = [
    ("slow", || None),
    ("needs the reference data", || missing("the folder golden", reference("golden").is_dir())),
    ("needs strace", || missing("strace, with the right to trace", runs("strace", &["-f", "true"]))),
    ("needs Chromium", || {
        let known = ["chromium", "chromium-browser", "google-chrome"];
        missing("Chromium", known.iter().any(|name| runs(name, &["--version"])))
    }),
    ("needs script of util-linux", || missing("script", runs("script", &["--version"]))),
    ("needs a C compiler", || missing("cc", runs("cc", &["--version"]))),
    ("needs the range of ONNX Runtime", || {
        let there = [OLDEST, NEWEST].iter().all(|version| fetched(&format!("onnxruntime-{version}")));
        missing("what `cargo xtask setup --range` fetches", there)
    }),
    ("needs the MobileFaceNet of its tutorial", || {
        missing("the folder AUDIT_FACES", std::env::var_os("AUDIT_FACES").is_some())
    }),
    ("needs what `cargo xtask setup` fetches", || missing("target/onnxruntime", fetched("onnxruntime"))),
    ("needs a debug build of audit and audit-train", || {
        let built = |name: &str| target().is_ok_and(|target| target.join("debug").join(name).is_file());
        missing(
            "target/debug/audit, target/debug/audit-train or target/onnxruntime",
            built("audit") && built("audit-train") && fetched("onnxruntime"),
        )
    }),
    ("needs CUDA", || {
        missing("a GPU, or what `cargo xtask setup --cuda` fetches,", gpu() && fetched("onnxruntime-gpu"))
    }),
    ("needs ONNX Runtime with CUDA, and no GPU", || {
        missing(
            "a machine without a GPU but with what `cargo xtask setup --cuda` fetches,",
            !gpu() && fetched("onnxruntime-gpu"),
        )
    }),
];

/// How a reason begins that ends with names of Python modules.
const PYTHON: &str = "needs Python with ";

/// What is missing for tests that are ignored for a reason; an error if nobody knows the reason.
fn lacks(reason: &str) -> std::result::Result<Option<String>, ()> {
    if let Some(modules) = reason.strip_prefix(PYTHON) {
        let own = target().map(|target| target.join("python/bin/python").display().to_string());
        let import = format!("import {modules}");
        let has = |python: &str| runs(python, &["-c", &import]);
        let there = own.is_ok_and(|own| has(&own)) || has("python3");
        return Ok(missing("one of the modules", there));
    }
    let (_, what) = NEEDS.iter().find(|(known, _)| *known == reason).ok_or(())?;
    Ok(what())
}

fn fetched(library: &str) -> bool {
    target().is_ok_and(|target| target.join(library).is_dir())
}

fn gpu() -> bool {
    runs("nvidia-smi", &[])
}

fn missing(what: &str, there: bool) -> Option<String> {
    (!there).then(|| format!("{what} is not here"))
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    works(Command::new(program).args(arguments))
}

/// Every package but the trainer, which needs libtorch.
pub const WITHOUT_LIBTORCH: [&str; 3] = ["--workspace", "--exclude", "audit-train"];

pub fn test(arguments: &[String]) -> Result {
    let own: Vec<&str> = arguments.iter().map(String::as_str).collect();
    all(if own.is_empty() { &WITHOUT_LIBTORCH[..] } else { &own[..] })
}

/// Runs the tests of some packages: first as `cargo test` does, then those that it ignores, if what they need
/// is here. Adds all up.
pub fn all(packages: &[&str]) -> Result {
    let plain = cargo(&["test", "--locked", "--no-fail-fast"]);
    let first = run(plain, packages, &[])?;
    let mut total = first.count;
    let mut later: Vec<&str> = Vec::new();
    let mut absent = Vec::new();
    for (reason, names) in &first.ignored {
        let Ok(missing) = lacks(reason) else {
            return Err(Error::Failed(format!(
                "{} is ignored as `{reason}`, which is no row of NEEDS in xtask/src/testing.rs",
                names[0]
            )));
        };
        match missing {
            None => later.extend(names.iter().map(String::as_str)),
            Some(why) => absent.push(format!("ignored: {} tests, {reason}: {why}", names.len())),
        }
    }
    let mut failed = first.failed;
    if !later.is_empty() {
        let more = run(
            cargo(&["test", "--locked", "--no-fail-fast", "--tests", "--lib"]),
            packages,
            &[&["--ignored", "--exact"], &later[..]].concat(),
        )?;
        if more.count.passed + more.count.failed != later.len() {
            let ran = more.count.passed + more.count.failed;
            return Err(Error::Failed(format!(
                "expected {} ignored tests to run, and {ran} did",
                later.len()
            )));
        }
        total.passed += more.count.passed;
        total.failed += more.count.failed;
        total.ignored -= later.len();
        failed = failed.or(more.failed);
    }
    absent.iter().for_each(|text| println!("{text}"));
    println!("tests: {} passed, {} failed, {} ignored", total.passed, total.failed, total.ignored);
    match (failed, total.passed) {
        (Some(why), _) => Err(Error::Failed(why)),
        (None, 0) => Err(Error::Failed("expected tests, but none ran".into())),
        (None, _) => Ok(()),
    }
}

/// What a run of `cargo test` says.
#[derive(Default)]
struct Ran {
    count: Count,
    /// Names of ignored tests by their reasons.
    ignored: BTreeMap<String, Vec<String>>,
    /// How it ended, unless all passed.
    failed: Option<String>,
}

fn run(mut command: Command, packages: &[&str], filter: &[&str]) -> Result<Ran> {
    command.args(packages);
    if !filter.is_empty() {
        command.arg("--").args(filter);
    }
    let name = line(&command);
    let cannot = |error: std::io::Error| Error::Failed(format!("cannot run {name}: {error}"));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(cannot)?;
    let mut found = Ran::default();
    let out = child.stdout.take().into_iter();
    for text in out.flat_map(|out| BufReader::new(out).lines().map_while(std::result::Result::ok)) {
        println!("{text}");
        found.count.add(&text);
        if let Some((test, reason)) = ignored(&text) {
            found.ignored.entry(reason.into()).or_default().push(test.into());
        }
    }
    let status = child.wait().map_err(cannot)?;
    found.failed = (!status.success())
        .then(|| format!("{} ended with {status}", name.split(" -- ").next().unwrap_or("")));
    Ok(found)
}

/// Name and reason in a line like `test gate::a ... ignored, slow`. A test that is ignored for no reason has
/// an empty one.
fn ignored(line: &str) -> Option<(&str, &str)> {
    let (test, end) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    // Of documentation, `ignore` marks what is not code to run.
    (!test.contains(" - ")).then(|| (test, end.trim_start_matches(", ")))
}

#[derive(Default, Debug, PartialEq)]
struct Count {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl Count {
    /// Counts in a line like `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|result| result.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            let (number, what) = count.split_once(' ').unwrap_or_default();
            let number: usize = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => (),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_add_up() {
        let mut total = Count::default();
        total.add("running 5 tests");
        total.add(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s",
        );
        total.add("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s");
        assert_eq!(total, Count { passed: 4, failed: 2, ignored: 1 });
    }

    #[test]
    fn reasons_are_read() {
        assert_eq!(ignored("test gate::a ... ignored, slow"), Some(("gate::a", "slow")));
        assert_eq!(ignored("test gate::a ... ignored"), Some(("gate::a", "")));
        assert_eq!(ignored("test gate::ignored ... ok"), None);
        assert_eq!(ignored("test src/lib.rs - (line 3) ... ignored"), None);
    }

    #[test]
    fn modules_of_python_are_looked_for() {
        assert_eq!(lacks("slow"), Ok(None));
        assert_eq!(
            lacks("needs Python with no_such_module_1, sys"),
            Ok(Some("one of the modules is not here".into()))
        );
        assert_eq!(lacks("needs nobody knows what"), Err(()));
    }
}
