//! Makes `crates/onnx-grad/src/graph/proto.rs` from the onnx package's `onnx-ml.proto`. The result is checked
//! in, so that a build of audit needs no protobuf compiler; README.md says when and how to run this.

use std::{env, error::Error, fs, path::Path, process::ExitCode};

const USAGE: &str = "usage: onnx-proto path/to/onnx-ml.proto path/to/proto.rs";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [proto, rust] = arguments.as_slice() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match generate(Path::new(proto)).and_then(|code| Ok(fs::write(rust, code)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("onnx-proto: {error}");
            ExitCode::FAILURE
        }
    }
}

fn generate(proto: &Path) -> Result<String, Box<dyn Error>> {
    let folder = proto.parent().unwrap_or(Path::new("."));
    let mut file = protox::compile([proto], [folder])?
        .file
        .into_iter()
        .find(|file| file.package() == "onnx")
        .ok_or_else(|| format!("{}: expected `package onnx`; is it onnx-ml.proto?", proto.display()))?;
    let ir_version = file
        .enum_type
        .iter()
        .flat_map(|kind| &kind.value)
        .find(|value| value.name() == "IR_VERSION")
        .ok_or("expected an enum value IR_VERSION, as every onnx-ml.proto has")?
        .number();
    // Nothing has these enums as its type: fields hold their values as integers.
    file.enum_type.clear();
    for message in &mut file.message_type {
        message.enum_type.retain(|kind| kind.name() != "DataType");
    }

    let code = prost_build::Config::new()
        // Weights: decoded from a `Bytes`, they stay where the file was read to instead of being copied.
        .bytes([".onnx.TensorProto.raw_data"])
        // Upstream's comments are written for protoc, and half of them break rustdoc.
        .disable_comments(["."])
        .generate(vec![(prost_build::Module::from_protobuf_package_name("onnx"), file)])?
        .into_values()
        .collect::<String>();

    // prost-build claims the file for itself in its first line; ours says what to run.
    let code = code.split_once('\n').map_or("", |(_, rest)| rest);
    let code = without_names(code);
    Ok(format!(
        "// Generated from ONNX's onnx-ml.proto (IR version {ir_version}, Apache-2.0) by tools/onnx-proto: do not edit.\n\
         #![allow(missing_docs, clippy::all, rustdoc::all)]\n\n{code}"
    ))
}

/// Leaves out the impls of enums, which convert values to their names in the .proto file and back: nothing
/// asks for these names.
fn without_names(code: &str) -> String {
    let mut end: Option<String> = None;
    let mut kept = String::new();
    for line in code.lines() {
        match &end {
            Some(brace) if line == brace => end = None,
            Some(_) => {}
            None if line.trim_start().starts_with("impl ") => {
                let indent = line.len() - line.trim_start().len();
                end = Some(format!("{}}}", " ".repeat(indent)));
            }
            None => kept += &format!("{line}\n"),
        }
    }
    kept
}
