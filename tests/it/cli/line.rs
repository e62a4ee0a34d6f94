//! The command line, its help and lists, and the runtime that is or is not found.

use super::*;

#[test]
fn a_good_run_says_what_it_found() {
    let dir = stage();
    let out = works(&dir, "model.onnx", &[]);
    says(&out, &["CA+", "GTT", "few-queries"]);
    // The text before the first table.
    insta::assert_snapshot!(unmeasured(out.split_once('┌').unwrap().0));
}

#[test]
fn flags_out_of_range_are_refused() {
    let dir = stage();
    for eps in ["8", "1.01", "0", "-1", "256/255", "nan", "x"] {
        let flag = format!("--eps={eps}");
        dir.refused(&["model.onnx", "--data", "data", &flag], USAGE);
    }
    let flags = "--alpha=2 --steps=0 --max-queries=0 --steps=1000000000000 --resize=1000000 --resize-shorter=100000 \
                 --size=4000000000 --range=0,inf --protocol=rob29 --range=255,0 --mean=0.5 --std=0.5 \
                 --trials=nowhere.json --card=nowhere.yaml";
    for flag in words(flags) {
        dir.refused(&["model.onnx", "-q", "--data", "data", flag], USAGE);
    }
    dir.refused(&["model.onnx", "-q", "--layout", "folder"], USAGE);
    dir.refused(&["images", "--out", "coloured", "--channels", "2"], USAGE);
    assert!(!dir.join("coloured").exists());
    for flags in [
        "ars-strict --alpha 1/255",
        "strong --alpha=1/255",
        "strong --steps=5",
        "strong --strong-sample 20",
        "robust --alpha=1/255",
        "robust --steps=5",
        "robust --strong-sample 20",
        // Without the strong search there is no robust R@1.
        "ars --strong-sample off --fail-under robust_r1=1",
    ] {
        dir.refused(&words(&format!("model.onnx -q --data data --suite {flags}")), USAGE);
    }
    // Clap's own errors: flags and values it doesn't know, a missing model.
    for line in [
        "model.onnx --epz 1",
        "model.onnx --metric manhattan",
        "model.onnx --layout heap",
        "model.onnx --partition hash:1/1000000000000",
        "model.onnx --threads 10000",
        "model.onnx --batch 100000000000",
        "model.onnx --batch 0",
        "doctor model.onnx --threads 10000",
        "grad model.onnx -o g.onnx --threads 10000",
        "images --out images --size 1000000",
        "model.onnx --strong-sample 0",
        "model.onnx --strong-sample x",
        "model.onnx --strong-sample=-1",
    ] {
        dir.refused(&words(line), USAGE);
    }
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_missing_runtime_names_the_command_that_fetches_it() {
    let dir = stage();
    let args = [&["model.onnx"], &QUICK[..]].concat();
    let mut command = program(dir.path());
    command.env("ORT_DYLIB_PATH", "/nowhere/libonnxruntime.so").args(&args);
    // The rest of these messages is the operating system's.
    let words = ["ORT_DYLIB_PATH", "/nowhere/libonnxruntime.so", "cargo xtask setup"];
    says(&dir.refused_by(&mut command, USAGE), &words);
    let nowhere = [&args[..], &["--ort-lib", "nowhere.so"]].concat();
    says(&dir.refused(&nowhere, USAGE), &["--ort-lib", "nowhere.so", "cargo xtask setup"]);
    dir.write("libfake.so", b"no library");
    let fake = [&args[..], &["--ort-lib", "./libfake.so"]].concat();
    says(&dir.refused(&fake, USAGE), &["can't load", "libfake.so", "cargo xtask setup"]);
    // No variable names a library, and none lies beside the executable.
    let copy = Temp::new();
    // Deep enough that the folders above it, which are searched too, are the test's own.
    let exe = copy.join("a/b/c/audit");
    crate::common::copy_program(&exe);
    let mut command = Command::new(exe);
    command.current_dir(dir.path()).env_remove("ORT_DYLIB_PATH").args(&args);
    let at = copy.join("a/b/onnxruntime").display().to_string();
    let places = ["beside the program", &at, "the program's Python environment", "conda", "the system"];
    let words =
        [&["`cargo xtask setup`", "pip install", "--ort-lib", "ORT_DYLIB_PATH"], &places[..]].concat();
    says(&dir.refused_by(&mut command, USAGE), &words);
}

/// `pip install ".[cpu]"` puts the program and the library where this test puts them.
#[test]
#[ignore = "needs what `cargo xtask setup` fetches"]
fn the_runtime_of_the_python_environment_serves() {
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/../onnxruntime");
    let dir = stage();
    let environment = Temp::new();
    let exe = environment.join("a/b/bin/audit");
    crate::common::copy_program(&exe);
    let run = |library: &str, whole: bool| {
        let at = environment.write(library, "no library");
        if whole {
            let from = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
            let library = from.into_iter().find(|p| p.to_string_lossy().contains("libonnxruntime.")).unwrap();
            std::fs::copy(library, at).unwrap();
        }
        let mut command = Command::new(&exe);
        command.current_dir(dir.path()).env_remove("ORT_DYLIB_PATH").env_remove("CONDA_PREFIX");
        ran(command.arg("model.onnx").args(QUICK))
    };
    // A library that doesn't load is named, and the search continues.
    let place = |python: &str, version: &str| {
        format!("a/b/lib/{python}/site-packages/onnxruntime/capi/libonnxruntime.so.{version}")
    };
    let broken = run(&place("python3.12", "1.30.0"), false).ended(USAGE);
    says(&broken.err, &["libonnxruntime.so.1.30.0 doesn't load"]);
    run(&place("python3.11", "1.31.1"), true).ended(0);
}

/// First tries of people who know other tools: each error names a next step.
#[test]
fn a_wrong_command_line_leads_on() {
    let dir = stage();
    let refused = |line: &str| drop(dir.refused(&words(line), USAGE));
    for line in [
        "",
        // A misspelt command is no model, whatever follows it. A word that looks like a path is one.
        "rnu",
        "rnu model.onnx",
        "inspct model.onnx",
        "rnu --suite ars model.onnx",
        "rnu.onnx",
        // Errors within a command are reported as such.
        "inspect --nothing",
        "help rnu",
        "model.onnx data",
        // Flags may come before the model.
        "-q model.onnx data",
        "--suite ars",
        "model.onnx inspect",
        "--suite ars model.onnx --forse",
        "model.onnx --epsilon 8/255",
        "model.onnx --device cuda",
    ] {
        refused(line);
    }
    // Flags of audits without a meaning for a command.
    for (command, flags) in [
        ("doctor", "--baseline --fail-under --journal --trials-out --strong-sample --attack-precision"),
        ("sweep", "--fail-under --partition --trials --trials-out --save-baseline"),
        ("geometry", "--partition --resume --surrogate --gallery --hub-class --nmi --sample"),
        ("compare", "--partition --trials --attack-precision --surrogate --gallery --baseline"),
        ("embed", "--suite --eps --seed --max-queries"),
    ] {
        words(flags).into_iter().for_each(|flag| refused(&format!("{command} model.onnx {flag} 1")));
    }
    refused("model.onnx --max-queries -12");
    refused("model.onnx --max-queries=-12");
    refused("model.onnx --max-queries few");
    refused("gate model.onnx --fail-under robust_r1");
    refused("report model.onnx");
    dir.write("lone/only/a.png", std::fs::read(dir.join("data/class00/00.png")).unwrap());
    dir.write("lone/only/b.png", std::fs::read(dir.join("data/class00/01.png")).unwrap());
    dir.refused(&["model.onnx", "--data", "lone"], EMPTY);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn lists_print_every_row() {
    let dir = Temp::new();
    let lines = |args: &[&str]| {
        let ran = run(&dir, args);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        ran.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let starts = |lines: &[String], word: &str| {
        assert!(lines.iter().any(|l| l.split_whitespace().next() == Some(word)), "no {word} in {lines:?}");
    };
    let attacks = lines(&["attacks"]);
    // A long row continues on further lines.
    assert_eq!(attacks.iter().filter(|line| !line.starts_with(' ')).count(), OBJECTIVES.len());
    assert!(attacks.iter().all(|line| line.chars().count() <= 80), "{attacks:?}");
    OBJECTIVES.iter().for_each(|a| starts(&attacks, a.code));
    let suites = lines(&["suites"]);
    for name in ["ers", "ars", "full", "ers-strict", "ars-strict", "smoke", "minimum-target"] {
        starts(&suites, name);
    }
    // Names and descriptions are two columns, however long a name is.
    assert!(suites.iter().all(|line| line.contains("  ")), "{suites:?}");
    // The operators that issue 2 names, except those that loading rewrites (Dropout).
    let ops = lines(&["ops"]);
    for op in "Conv BatchNormalization Relu LeakyRelu PRelu Clip Sigmoid HardSigmoid HardSwish Tanh Softmax Add Sub Mul \
               Div Pow Sqrt Exp Log Neg Abs MaxPool AveragePool GlobalAveragePool GlobalMaxPool ReduceMean ReduceSum \
               ReduceL2 Gemm MatMul Flatten Reshape Transpose Squeeze Unsqueeze Concat Split Slice Gather Pad Identity \
               Cast Expand LpNormalization"
        .split_whitespace()
    {
        starts(&ops, op);
    }
    assert!(lines(&["--version"])[0].contains(env!("CARGO_PKG_VERSION")));
}

/// Nor does progress that nobody reads any more end an audit.
#[test]
fn a_closed_pipe_is_no_error() {
    let dir = stage();
    let audit = env!("CARGO_BIN_EXE_audit");
    let line = format!(
        "set -o pipefail; {audit:?} model.onnx {} --progress plain 2>&1 | head -n 1",
        QUICK.join(" ")
    );
    let done = ran(Command::new("bash").args(["-c", &line]).current_dir(dir.path())).ended(0);
    assert_eq!(done.out.lines().count(), 1, "{}", done.out);
    for args in [&["ops"][..], &[&["model.onnx", "-q"], &QUICK[..]].concat()] {
        let mut command = program(dir.path());
        let mut child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

/// `-h` fits a screen, names every command, and names only flags and commands that exist.
#[test]
fn short_help_fits_a_screen() {
    let dir = Temp::new();
    let said = run(&dir, ["-h"]).ended(0).out;
    assert_eq!(said, SHORT);
    assert!(said.lines().count() <= 50, "{}", said.lines().count());
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    let mut cli = Cli::command();
    cli.build();
    let words: Vec<&str> = said.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).collect();
    for word in words.iter().filter(|word| word.starts_with("--")) {
        assert!(cli.get_arguments().any(|arg| arg.get_long() == Some(&word[2..])), "{word}");
    }
    for command in cli.get_subcommands().map(|command| command.get_name()) {
        assert!(words.contains(&command) || ["run", "help"].contains(&command), "{command}");
    }
}

/// Texts of help that can't be printed, as behind `> help.txt` on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn help_that_cannot_be_written_is_an_error() {
    let dir = Temp::new();
    for words in [&["-h"][..], &["--help"], &["--version"], &["gate", "--help"], &["ops"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let err = ran(program(&dir).args(words).stdout(full)).ended(1).err;
        assert_eq!(
            err, "audit: can't write to standard output: No space left on device (os error 28)\n",
            "{words:?}"
        );
        // To somebody who reads it, it is none.
        assert_eq!(ran(program(&dir).args(words)).ended(0).err, "", "{words:?}");
    }
}
