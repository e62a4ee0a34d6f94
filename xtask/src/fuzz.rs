//! `cargo xtask fuzz`: builds the fuzz targets with the stable compiler, and runs them.

use crate::project::{self, Error, Result, cargo, file, root, target};
use std::{fs, process::Command};

pub const ARGUMENTS: &str = "[TARGET ...] [--seconds N]";

/// The targets; fuzz/fuzz_targets has a file for each.
const TARGETS: [&str; 7] = ["model", "gradient", "card", "suite", "image_list", "journal", "report"];

/// Runs the named targets, or all, one after the other, so many seconds each. What libFuzzer finds new goes
/// to target/fuzz/corpus, inputs that panic to target/fuzz/artifacts; those are kept in fuzz/corpus once they
/// are mended.
pub fn fuzz(arguments: &[String]) -> Result {
    let wrong = |what: &str| Error::Usage(format!("fuzz: {what}; expected {ARGUMENTS}"));
    let (mut targets, mut seconds) = (Vec::new(), 600);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seconds" => {
                let number = rest.next().and_then(|n| n.parse::<u32>().ok()).filter(|n| *n > 0);
                seconds = number.ok_or_else(|| wrong("--seconds needs a number above 0"))?;
            }
            name if TARGETS.contains(&name) => targets.push(name),
            name => {
                return Err(wrong(&format!("there is no target `{name}`, known: {}", TARGETS.join(", "))));
            }
        }
    }
    if targets.is_empty() {
        targets = TARGETS.to_vec();
    }
    let (crate_dir, out) = (root().join("fuzz"), target()?.join("fuzz"));
    let mut build = cargo(&["build", "--locked"]);
    build
        .current_dir(&crate_dir)
        .env("CARGO_TARGET_DIR", &out)
        .env("RUSTC_WRAPPER", crate_dir.join("rustc.sh"));
    project::run(&mut build)?;
    for name in targets {
        let (found, artifacts) = (out.join("corpus").join(name), out.join("artifacts").join(name));
        for folder in [&found, &artifacts] {
            file("make", folder, fs::create_dir_all(folder))?;
        }
        let mut command = Command::new(out.join("debug").join(name));
        command.arg(&found).arg(crate_dir.join("corpus").join(name));
        command
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()));
        command.args(["-rss_limit_mb=4096", "-timeout=20", "-print_final_stats=1"]);
        project::run(&mut command)?;
    }
    Ok(())
}
