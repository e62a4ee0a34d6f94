//! `cargo xtask bench strong`: the strong search beside the published suites, with more effort, and beside attacks of others.
//! The work is done by tools/bench_strong.py, and by tools/peer_attacks.py in PyTorch. With 100 queries and the attacks of
//! others, the result is kept in docs/strength.md and the pictures beside it.

use crate::{
    bench,
    project::{Error, Result, cargo, file, root, run, shown, target},
    python, setup,
};
use std::{env, fs, path::PathBuf, process::Command};

const ARGUMENTS: &str = "[--queries N] [--models DIR] [--data DIR] [--no-peers] [--reuse]";
/// Queries of each model in the result that is kept.
const QUERIES: usize = 100;
const PAGE: &str = "docs/strength.md";
/// Pictures, in docs/.
const PICTURES: [&str; 2] = ["strength.svg", "members.svg"];

#[derive(Debug, PartialEq)]
struct Options {
    queries: usize,
    /// Nets of the experiment on Omniglot, NAME-0.onnx, and their test images.
    models: PathBuf,
    data: PathBuf,
    peers: bool,
    /// Takes reports that an earlier run left.
    reuse: bool,
}

pub fn strong(arguments: &[String]) -> Result {
    let options = parse(arguments)?;
    setup::setup()?;
    run(&mut cargo(&["build", "--release", "--locked"]))?;
    run(&mut cargo(&["build", "--release", "--locked", "--example", "masked", "--example", "members"]))?;
    let python = if options.peers { python::environment()? } else { python::find()? };
    let release = target()?.join("release");
    let program = |name: &str| release.join(name).with_extension(env::consts::EXE_EXTENSION);
    let folder = target()?.join("bench").join("strong");
    let mut command = Command::new(&python);
    command.arg(root().join("tools/bench_strong.py"));
    command
        .arg(program("audit"))
        .arg(program("examples/masked"))
        .arg(program("examples/members"))
        .arg(&folder);
    command.arg("--queries").arg(options.queries.to_string());
    command.arg("--models").arg(&options.models).arg("--data").arg(&options.data);
    if options.peers {
        command.arg("--peers").arg(&python);
    }
    command.args(options.reuse.then_some("--reuse")).current_dir(root());
    run(&mut command)?;
    if options.queries != QUERIES || !options.peers {
        println!("The tables and pictures are in {}.", shown(&folder));
        return Ok(());
    }
    let result = folder.join("strength.md");
    let text = file("read", &result, fs::read_to_string(&result))?;
    for name in PICTURES {
        let to = root().join("docs").join(name);
        file("write", &to, fs::copy(folder.join(name), &to))?;
    }
    bench::keep(PAGE, "bench strong", &format!("{}\n\n{}", bench::conditions()?, text.trim_end()))
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        queries: QUERIES,
        models: root().join("target/experiment/omniglot-full"),
        data: root().join("../shared/data/omniglot28/test"),
        peers: true,
        reuse: false,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| Error::Usage(format!("expected a value after {word}")));
        match word.as_str() {
            "--queries" => {
                let value = value()?;
                options.queries = value.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
                    Error::Usage(format!("expected a number of queries after --queries, found `{value}`"))
                })?;
            }
            "--models" => options.models = value()?.into(),
            "--data" => options.data = value()?.into(),
            "--no-peers" => options.peers = false,
            "--reuse" => options.reuse = true,
            other => return Err(Error::Usage(format!("expected {ARGUMENTS}, found `{other}`"))),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_are_read() {
        let usual = parse(&[]).ok().unwrap();
        assert_eq!((usual.queries, usual.peers, usual.reuse), (100, true, false));
        let given = parse(&words("--queries 20 --models a --data b --no-peers --reuse")).ok().unwrap();
        let expected =
            Options { queries: 20, models: "a".into(), data: "b".into(), peers: false, reuse: true };
        assert_eq!(given, expected);
        for wrong in ["--queries", "--queries 0", "--queries x", "--models", "fast"] {
            assert!(matches!(parse(&words(wrong)), Err(Error::Usage(_))), "{wrong}");
        }
    }
}
