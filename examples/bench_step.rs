//! One half of `cargo xtask bench step`: seconds of a forward pass and of a PGD step, the best of several runs.
//!
//! Arguments: MODEL.onnx BATCH THREADS SECONDS [cpu | cuda[:N] | fast-math]. Prints `forward step`, measured in turns for at least that long.

use audit::attack::Batch;
use audit::model::Model;
use audit::model::card::Card;
use audit::model::runtime::{self, Cuda, Input, Options, Provider, Session};
use audit::onnx::Graph;
use rayon::prelude::*;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SETTLE: Duration = Duration::from_millis(100);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| arguments.get(i).and_then(|a| a.parse::<usize>().ok());
    let (Some(file), Some(batch), Some(threads), Some(seconds)) =
        (arguments.first().map(PathBuf::from), number(1), number(2), number(3))
    else {
        eprintln!("usage: bench_step MODEL.onnx BATCH THREADS SECONDS [cpu | cuda[:N] | fast-math]");
        std::process::exit(2);
    };
    let provider = match arguments.get(4).map(String::as_str) {
        Some("fast-math") => Ok(Provider::Cuda(Cuda { tf32: true, ..Cuda::default() })),
        other => other.unwrap_or("cpu").parse(),
    };
    let options = provider.map(|provider| Options { provider, threads });
    match options.and_then(|options| measure(&file, batch, options, seconds as f64)) {
        Ok((forward, step)) => println!("{forward} {step}"),
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(e.exit as i32);
        }
    }
}

/// Images of one lane.
fn some(count: usize, pixels: usize) -> Batch {
    let n = count * pixels;
    let x = (0..n).map(|i| ((i as f32 * 0.37).sin() + 1.0) / 2.0).collect();
    Batch { lo: vec![0.0; n], hi: vec![1.0; n], alpha: vec![1.0 / 255.0; count], x, changed: true }
}

fn measure(
    file: &std::path::Path,
    batch: usize,
    options: Options,
    seconds: f64,
) -> audit::Result<(f64, f64)> {
    runtime::load(None)?;
    runtime::require(options)?;
    let card = Card { range: Some([0.0, 1.0]), ..Default::default() };
    // As an audit runs it: on the CPU a few images at a time in each thread, as often as make a batch.
    let whole = (options.provider != Provider::Cpu).then_some(batch);
    let mut model = Model::open(file, &card, options, whole)?;
    if !batch.is_multiple_of(model.at_once()) {
        model = Model::open(file, &card, options, Some(batch.div_ceil(model.at_once() / model.batch())))?;
    }
    let rounds = batch.div_ceil(model.at_once());
    let x = some(batch, model.pixels()).x;
    let shape = model.info.preprocessing.pixel_shape(batch);
    let mut lanes: Vec<_> =
        model.lanes().into_iter().map(|lane| (some(lane.batch(), lane.pixels()), lane)).collect();
    // Forward is what a user runs, not our graph, whose further outputs cost time too.
    let bytes = std::fs::read(file).map_err(|e| audit::Error::usage(format!("{}: {e}", file.display())))?;
    let graph = Graph::decode_as_is(bytes.into(), file)?;
    let (input, output) = (graph.inputs[0].name.clone(), graph.outputs[0].name.clone());
    let mut shipped = Session::as_shipped(&graph, options)?;
    let (mut forward, mut step) = (f64::INFINITY, f64::INFINITY);
    let start = Instant::now();
    // A session's threads spin for a while when it is done, which isn't to be at the other's cost.
    let settle = || std::thread::sleep(SETTLE);
    for round in 0.. {
        settle();
        let clock = Instant::now();
        shipped.run(&[(&input, Input::Host(&shape, &x))], &[&output])?;
        forward = forward.min(clock.elapsed().as_secs_f64());
        settle();
        let clock = Instant::now();
        // The loss costs nothing here: what is measured is the model.
        lanes.par_iter_mut().try_for_each(|(images, lane)| {
            (0..rounds).try_for_each(|_| lane.step(images, &mut |e, mut out| out.assign(&e)))
        })?;
        step = step.min(clock.elapsed().as_secs_f64());
        if round >= 3 && start.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    Ok((forward, step))
}
