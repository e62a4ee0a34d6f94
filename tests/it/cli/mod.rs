//! The program as its users meet it: every bad input with its exit code and message, what is printed, what is
//! left behind. Exit codes are those of the README; error messages are compared with the files in snapshots/.

mod files;
mod images;
mod line;
mod model_files;

use crate::common::models::{
    self, SIDE, Weights, before, free, grey, images, small, trunk, trunk_weights, value,
};
use crate::common::transcript::{Transcript, unmeasured};
use crate::common::{Temp, encoded, one_line, program, ran, run, says, warning, words};
use audit::command::{Cli, SHORT};
use audit::record::Report;
use audit::threat::OBJECTIVES;
use clap::CommandFactory;
use image::ImageFormat;
use onnx_grad::Graph;
use onnx_grad::graph::{Attr, Encoded, Node};
use std::path::Path;
use std::process::{Command, Stdio};

const USAGE: i32 = 2;
const MODEL: i32 = 3;
const EMPTY: i32 = 4;
const UNTRUSTED: i32 = 12;
/// Enough to be an audit, few enough to be quick.
const QUICK: [&str; 8] =
    ["--suite", "smoke", "--max-queries", "3", "--data", "data", "--strong-sample", "off"];

/// `audit <model> <QUICK> -v <args>` must work; returns what it printed.
#[track_caller]
fn works(dir: &Temp, model: &str, args: &[&str]) -> String {
    let ran = run(dir, [&[model, "-q", "-v"], &QUICK[..], args].concat()).ended(0);
    assert_eq!(ran.err, "");
    assert!(ran.out.contains("ARS") && ran.out.contains("ERS"), "{}", ran.out);
    ran.out
}

#[track_caller]
fn finding(dir: &Temp, report: &str, id: &str) -> String {
    warning(&Report::load(&dir.join(report)).unwrap(), id)
}

fn stage() -> Transcript {
    Transcript::new(models::stage(5, 4))
}

/// Fails unless the audit with quick settings is refused.
#[track_caller]
fn refused_quick(dir: &Transcript, model: &str, code: i32) {
    dir.refused(&[&[model], &QUICK[..]].concat(), code);
}

/// Fails unless the audit of this graph as `model.onnx` with quick settings is refused.
#[track_caller]
fn refused_model(dir: &Transcript, graph: &Graph, args: &[&str], code: i32) {
    dir.write("model.onnx", graph.encode());
    dir.refused(&[&["model.onnx", "-q"], &QUICK[..], args].concat(), code);
}
