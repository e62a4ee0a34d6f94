//! `cargo research bench graph`: milliseconds of a run of each graph, the least of several. Inputs and
//! outputs lie on the device.

use super::model;
use audit::Result;
use audit::model::runtime::{self, Memory, Optimise, Session};
use clap::Args;
use onnx_grad::graph::Dim;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The graphs, and the device.
#[derive(Args)]
pub struct Flags {
    /// cpu, cuda or cuda:N, with +fast-math for TensorFloat-32
    provider: String,
    /// .onnx files with float32 inputs of fixed shapes
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

const EACH: Duration = Duration::from_millis(150);

/// Prints a line for each file.
pub fn measure(flags: &Flags) -> Result<()> {
    runtime::load(None, None)?;
    for file in &flags.files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        println!("{:9.4} ms  {name}", 1000.0 * time(file, &flags.provider)?);
    }
    Ok(())
}

fn time(file: &Path, provider: &str) -> Result<f64> {
    let (options, _) = model::options(provider, 1)?;
    runtime::require(options)?;
    let graph = model::as_is(file)?;
    let session = Session::new(&graph, options, Optimise::All)?;
    let mut binding = session.binding()?;
    let mut places = Vec::new();
    for input in &graph.inputs {
        let mut place = session.place(input, Memory::Device)?;
        let size = |dim: &Dim| if let Dim::Known(n) = dim { *n as usize } else { 1 };
        place.write(&model::some(1, input.shape.iter().flatten().map(size).product()))?;
        binding.input(&input.name, &place)?;
        places.push(place);
    }
    for output in &graph.outputs {
        let mut place = session.place(output, Memory::Device)?;
        binding.output(&output.name, &mut place)?;
        places.push(place);
    }
    let (mut least, start) = (f64::INFINITY, Instant::now());
    for round in 0.. {
        let clock = Instant::now();
        session.run_bound(&mut binding)?;
        least = least.min(clock.elapsed().as_secs_f64());
        if round >= 5 && start.elapsed() > EACH {
            break;
        }
    }
    Ok(least)
}
