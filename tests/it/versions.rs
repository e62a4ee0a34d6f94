//! The supported range of versions of ONNX Runtime: both ends, and versions beyond them.
#[path = "../../crates/audit-model/src/runtime/version.rs"]
mod version;

use crate::common::{Ran, Temp, bundled, models, near, one_line, program, ran, run, says, words};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use version::{NEWEST, OLDEST, VERSION};

/// The folder in which `cargo xtask setup --range` puts an end of the range.
fn library(version: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("../onnxruntime-{version}"));
    folder.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
}

fn with(dir: &Temp, library: &Path, line: &str) -> Ran {
    ran(program(dir).env("ORT_DYLIB_PATH", library).args(words(line)))
}

/// An audit with gradients and all its checks agrees with the usual version.
#[test]
#[ignore = "needs the range of ONNX Runtime"]
fn both_ends_of_the_range_audit_as_the_usual_version_does() {
    let dir = Temp::new();
    let model = bundled("hardened.onnx");
    let line = format!("{model:?} --suite ars --max-queries 30 --strong-sample off -q -o");
    run(&dir, words(&format!("{line} usual.json"))).ended(0);
    let usual = dir.json("usual.json");
    for version in [OLDEST, NEWEST] {
        let library = library(version);
        let done = with(&dir, &library, &format!("{line} r.json")).ended(0);
        assert_eq!(done.err, "", "{version}");
        let report = dir.json("r.json");
        let runtime = report["tool"]["runtime"].as_str().unwrap();
        assert!(runtime.contains(version) && !runtime.contains(VERSION), "{runtime}");
        // Kernels round differently, and a step follows the sign of a gradient.
        let number = |report: &Value, path: &str| {
            report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}"))
        };
        for (path, tolerance) in [("/benign/r1", 0.01), ("/scores/ars/value", 1.0)] {
            let (found, expected) = (number(&report, path), number(&usual, path));
            near(found, expected, tolerance, &format!("{version} {path}"));
        }
        let done = with(&dir, &library, &format!("inspect {model:?}")).ended(0);
        assert_eq!(done.err, "", "{version}");
        with(&dir, &library, &format!("grad {model:?} -o g.onnx")).ended(0);
    }
}

/// The usual library under the name of another version: below the range it is refused, above it works, with a
/// warning.
#[test]
#[ignore = "needs a C compiler"]
fn beyond_the_range_it_is_refused_or_said() {
    let named = crate::common::runtime_folder()
        .or_else(|| std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from))
        .unwrap();
    let mut files = match named.is_dir() {
        true => std::fs::read_dir(&named).unwrap().map(|entry| entry.unwrap().path()).collect(),
        false => vec![named],
    };
    files.retain(|file| file.file_name().unwrap().to_string_lossy().starts_with("libonnxruntime."));
    let real = files.pop().unwrap().canonicalize().unwrap();
    let dir = models::stage(3, 4);
    dir.write("shim.c", include_str!("versions.c"));
    let shim = |version: &str| {
        let library = dir.join(&format!("libonnxruntime.so.{version}"));
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(dir.join("shim.c")).arg("-ldl");
        cc.arg(format!("-DVERSION=\"{version}\"")).arg(format!("-DREAL=\"{}\"", real.display()));
        assert!(cc.status().is_ok_and(|status| status.success()), "cc");
        library
    };
    let old = shim("1.23.9");
    let refused = with(&dir, &old, "inspect model.onnx").ended(2).err;
    says(&refused, &["libonnxruntime.so.1.23.9", "its version is 1.23.9", "pip install"]);
    says(&refused, &["the oldest that works is 1.24"]);
    let new = shim("1.99.0");
    let audit = "model.onnx --data data --suite smoke --max-queries 4 --strong-sample off";
    for line in [&format!("{audit} -q"), "inspect model.onnx", "grad model.onnx -o g.onnx"] {
        let done = with(&dir, &new, line).ended(0);
        says(&one_line(&done.err), &["ONNX Runtime 1.99.0 is not among the versions", "1.24 to 1.32"]);
    }
    let done = with(&dir, &new, &format!("{audit} --progress json")).ended(0);
    let warned = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"] == "warning";
    assert!(done.err.lines().any(warned), "{}", done.err);
}
