//! Writes the model that docs/tutorials/face.md audits in place of a face model: `stand_in FILE.onnx`.

#[path = "../tests/common/stand_in.rs"]
mod stand_in;

use onnx_grad::Graph;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file] = args.as_slice() else {
        return Err("one argument is expected: stand_in FILE.onnx".into());
    };
    let plain = Graph::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/plain.onnx"))
        .map_err(|e| e.to_string())?;
    std::fs::write(file, stand_in::stand_in(&plain).encode()).map_err(|e| format!("{file}: {e}"))?;
    Ok(())
}
