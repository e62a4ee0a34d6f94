//! `cargo xtask ci`: everything a change must pass, the quick things first.

use crate::{
    backend, book, demo, engines, libtorch, package, parity,
    project::{Error, Result, Since, cargo, line, run},
    setup, train,
};
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Instant,
};

type Step = (&'static str, fn() -> Result);

const STEPS: [Step; 14] = [
    ("setup", || setup::setup().and_then(|()| setup::setup_range())),
    ("format", || {
        run(&mut cargo(&["fmt", "--all", "--check"])).map_err(|error| error.then("run `cargo fmt --all`"))
    }),
    ("clippy", || {
        run(cargo(&["clippy", "--all-targets", "--locked"])
            .args(WITHOUT_LIBTORCH)
            .args(["--", "-D", "warnings"]))
    }),
    ("tests", || test(cargo(&["test", "--locked"]).args(WITHOUT_LIBTORCH))),
    ("docs", || {
        let doc = &mut cargo(&["doc", "--no-deps", "--locked"]);
        run(doc.args(WITHOUT_LIBTORCH).env("RUSTDOCFLAGS", "-D warnings"))
    }),
    ("book", book::book),
    // What crates.io would get. Building it from there takes half a minute more and finds nothing that the tests don't.
    ("crate", || {
        run(&mut cargo(&[
            "package",
            "--package",
            "onnx-grad",
            "--no-verify",
            "--allow-dirty",
            "--locked",
            "--quiet",
        ]))
    }),
    ("trainer", trainer),
    // A third of them, which is some of every operator that has three tests.
    ("backend", || backend::backend(&["--every".to_owned(), "3".to_owned()])),
    ("parity", parity_if_possible),
    ("demo", demo::demo),
    // After parity, which installs PyTorch, and the demo, which builds most of the release.
    ("python", || package::wheel(&[])),
    ("container", package::container),
    // Slurm's daemons are left to whoever asks for them.
    ("engines", || engines::engines(&["kubernetes", "parallel", "ray"].map(str::to_owned))),
];

/// Every package but the trainer, which the step of that name looks at.
const WITHOUT_LIBTORCH: [&str; 3] = ["--workspace", "--exclude", "audit-train"];

pub fn ci() -> Result {
    let started = Instant::now();
    for (name, step) in STEPS {
        let started = Instant::now();
        println!("\n=== {name}");
        step().map_err(|error| match error {
            Error::Failed(message) => {
                Error::Failed(format!("ci stopped at the step `{name}` after {}: {message}", Since(started)))
            }
            usage => usage,
        })?;
        println!("=== {name}: passed in {}", Since(started));
    }
    println!("\nci: all {} steps passed in {}", STEPS.len(), Since(started));
    Ok(())
}

/// The trainer's own: clippy and tests, and what onnx.checker says of the files that it writes.
fn trainer() -> Result {
    libtorch::setup()?;
    let package = ["--locked", "-p", "audit-train"];
    run(cargo(&["clippy", "--all-targets"]).args(package).args(["--", "-D", "warnings"]))?;
    test(cargo(&["test"]).args(package))?;
    train::check_exports()
}

/// The models come from beside the checkout, which not every machine has.
fn parity_if_possible() -> Result {
    match parity::shared_tools() {
        Ok(_) => {
            parity::parity(&[])?;
            // Skipped among the tests where nobody had installed PyTorch yet.
            run(&mut cargo(&["test", "--locked", "--test", "grad_file", "python"]))
        }
        Err(Error::Failed(why) | Error::Usage(why)) => {
            println!("skipped: {why}");
            Ok(())
        }
    }
}

/// Runs the tests and adds them up, for cargo ends with the last of many counts, mostly that of no test at all.
fn test(command: &mut Command) -> Result {
    let cannot = |error: std::io::Error, name: &str| Error::Failed(format!("cannot run {name}: {error}"));
    let name = line(command);
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| cannot(error, &name))?;
    let mut total = Count::default();
    for text in child
        .stdout
        .take()
        .into_iter()
        .flat_map(|out| BufReader::new(out).lines().map_while(|text| text.ok()))
    {
        println!("{text}");
        total.add(&text);
    }
    let status = child.wait().map_err(|error| cannot(error, &name))?;
    println!("tests: {} passed, {} failed, {} skipped", total.passed, total.failed, total.ignored);
    match (status.success(), total.passed) {
        (false, _) => Err(Error::Failed(format!("{name} ended with {status}"))),
        (true, 0) => Err(Error::Failed(format!("expected tests from {name}, but none ran"))),
        (true, _) => Ok(()),
    }
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
}
