//! The commands that the README names: see `cargo xtask help`.

use std::{env, process::ExitCode};
use xtask::project::{Error, Result};
use xtask::{
    backend, book, ci, demo, engines, fuzz, libtorch, numbers, package, parity, python, setup, testing, train,
};

struct Task {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result,
}

const TASKS: [Task; 14] = [
    Task {
        name: "setup",
        arguments: "[--train | --cuda | --range]",
        about: "fetch ONNX Runtime, where audit looks for it; with --train libtorch, where audit-train does; with --cuda ONNX \
                Runtime's GPU build, into target/onnxruntime-gpu; with --range the oldest and the newest version that are tested",
        run: |arguments| match arguments {
            [flag] if flag == "--cuda" => setup::setup_cuda(),
            [flag] if flag == "--range" => setup::setup_range(),
            [flag] if flag == "--train" => setup::setup().and_then(|()| libtorch::setup()),
            _ => alone(arguments, setup::setup),
        },
    },
    Task {
        name: "demo",
        arguments: "",
        about: "set up, build, and audit the two bundled models",
        run: |arguments| alone(arguments, demo::demo),
    },
    Task {
        name: "numbers",
        arguments: "",
        about: "audit the README's three models, and write their numbers into the README and docs/numbers.svg",
        run: |arguments| alone(arguments, numbers::numbers),
    },
    Task {
        name: "test",
        arguments: "[CARGO'S FLAGS]",
        about: "all tests but the trainer's: also the slow ones that `cargo test` ignores, and those whose data or programs are here",
        run: testing::test,
    },
    Task {
        name: "ci",
        arguments: "",
        about: "everything that CI runs, in its order, except cargo deny, actionlint and zizmor",
        run: |arguments| alone(arguments, ci::ci),
    },
    Task {
        name: "book",
        arguments: "",
        about: "write docs/reference.md, build the book of docs/ with mdBook into target/book/html, and follow its links",
        run: |arguments| alone(arguments, book::book),
    },
    Task {
        name: "python",
        arguments: "",
        about: "install PyTorch and the exporters into target/python (5 GB), for parity",
        run: |arguments| alone(arguments, || python::environment().map(drop)),
    },
    Task {
        name: "wheel",
        arguments: package::ARGUMENTS,
        about: "build the Python package onnx-audit into target/wheel, install it into a fresh environment, and run its tests; with \
                --manylinux for every Linux with glibc 2.28",
        run: package::wheel,
    },
    Task {
        name: "container",
        arguments: "",
        about: "lint the Dockerfile, and build its images where docker runs",
        run: |arguments| alone(arguments, package::container),
    },
    Task {
        name: "parity",
        arguments: parity::ARGUMENTS,
        about: "export models from PyTorch and compare audit's gradients with its own",
        run: parity::parity,
    },
    Task {
        name: "backend",
        arguments: backend::ARGUMENTS,
        about: "run ONNX's own node tests through the gradient: passed, refused by name, failed",
        run: backend::backend,
    },
    Task {
        name: "models",
        arguments: "[DIR]",
        about: "train the two bundled models anew, into models/ or DIR",
        run: train::models,
    },
    Task {
        name: "engines",
        arguments: engines::ARGUMENTS,
        about: "run audits in parts on GNU parallel, Ray and Slurm, kill their processes at random, and compare the merged report with \
                that of one run; hold the Kubernetes job to its schema; installs what is missing, by apt and pip",
        run: engines::engines,
    },
    Task {
        name: "fuzz",
        arguments: fuzz::ARGUMENTS,
        about: "fuzz the readers of models, cards, suites, lists of images, journals and reports with libFuzzer, ten minutes each",
        run: fuzz::fuzz,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.split_first() {
        None => help(),
        Some((name, _)) if ["help", "--help", "-h"].contains(&name.as_str()) => help(),
        Some((name, rest)) => match TASKS.iter().find(|task| task.name == name) {
            Some(task) => (task.run)(rest),
            None => Err(Error::Usage(format!("there is no command `{name}`"))),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Failed(message)) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
        Err(Error::Usage(message)) => {
            eprintln!("xtask: {message}; `cargo xtask help` lists the commands");
            ExitCode::from(2)
        }
    }
}

fn help() -> Result {
    println!("cargo xtask COMMAND\n");
    for Task { name, arguments, about, .. } in &TASKS {
        println!("  {name:11}{about}");
        if !arguments.is_empty() {
            println!("             {arguments}");
        }
    }
    println!("  help       this list\n\n`cargo research help` lists measurements of audit and experiments.");
    Ok(())
}

/// Runs a task that takes no arguments.
fn alone(arguments: &[String], task: impl FnOnce() -> Result) -> Result {
    match arguments {
        [] => task(),
        [first, ..] => Err(Error::Usage(format!("expected no argument, found `{first}`"))),
    }
}
