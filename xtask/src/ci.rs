//! `cargo xtask ci`: everything a change must pass, the quick things first.

use crate::{
    backend, book, demo, engines, libtorch, package, parity,
    project::{Error, Result, Since, cargo, run},
    setup,
    testing::{self, WITHOUT_LIBTORCH},
    train,
};
use std::time::Instant;

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
    ("tests", || testing::all(&WITHOUT_LIBTORCH)),
    ("docs", || {
        let doc = &mut cargo(&["doc", "--no-deps", "--locked"]);
        run(doc.args(WITHOUT_LIBTORCH).env("RUSTDOCFLAGS", "-D warnings"))
    }),
    ("book", book::book),
    // What crates.io would get. Building it from there takes half a minute more and finds nothing that the
    // tests don't.
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

/// The trainer's own: clippy, tests and docs, and what onnx.checker says of the files that it writes.
fn trainer() -> Result {
    libtorch::setup()?;
    let package = ["--locked", "-p", "audit-train"];
    run(cargo(&["clippy", "--all-targets"]).args(package).args(["--", "-D", "warnings"]))?;
    run(cargo(&["doc", "--no-deps"]).args(package).env("RUSTDOCFLAGS", "-D warnings"))?;
    testing::all(&["-p", "audit-train"])?;
    train::check_exports()
}

/// The models come from beside the checkout, which not every machine has.
fn parity_if_possible() -> Result {
    match parity::shared_tools() {
        Ok(_) => {
            parity::parity(&[])?;
            // Ignored among the tests if nobody had installed PyTorch yet.
            run(&mut cargo(&["test", "--locked", "--test", "it", "grad_file::", "--", "--include-ignored"]))
        }
        Err(Error::Failed(why) | Error::Usage(why)) => {
            println!("skipped: {why}");
            Ok(())
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use crate::project::{output, root};
    use std::{fs, process::Command};

    /// CI begins with a script, and nothing that it runs would look at a broken one.
    #[test]
    fn scripts_can_be_read_by_a_shell() {
        let folders = ["tools/ci", "tools/engines", "research/tools", "fuzz"];
        let files = folders.into_iter().flat_map(|folder| fs::read_dir(root().join(folder)).unwrap());
        let scripts = files.map(|file| file.unwrap().path());
        let scripts = scripts.filter(|path| path.extension().is_some_and(|ending| ending == "sh"));
        for script in scripts.chain([root().join(".ci/run")]) {
            let read = output(Command::new("bash").arg("-n").arg(&script));
            assert!(read.is_ok(), "{}: see bash -n", script.display());
        }
    }
}
