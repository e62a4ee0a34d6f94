//! `cargo research bench model`, one half of `bench step`: seconds of a forward pass and of a PGD step,
//! measured alternately, the best of several runs. On one thread of the CPU these are CPU seconds, to which
//! other work on the machine adds little. The forward pass is in float32 also if steps are in float16. Images
//! and embeddings are on the device, as in an audit.

use super::cpu_seconds;
use audit::model::card::Card;
use audit::model::runtime::{self, Memory, Options, Provider, Session};
use audit::model::{Differentiable, Model};
use audit::{Error, Result};
use clap::Args;
use ndarray::{ArrayView2, ArrayViewMut2};
use onnx_grad::Graph;
use onnx_grad::graph::{DType, Value};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SETTLE: Duration = Duration::from_millis(100);

/// The model, and how it is run.
#[derive(Args)]
pub struct Flags {
    /// The .onnx file
    file: PathBuf,
    /// Images in a batch; several, with commas between them
    batches: String,
    /// Threads, on the CPU; with one, CPU seconds are measured
    threads: usize,
    /// Measure for at least that long
    seconds: f64,
    /// cpu, cuda or cuda:N, with +fast-math for TensorFloat-32 and +fp16 for steps in float16; several, with
    /// commas between them
    #[arg(default_value = "cpu")]
    providers: String,
}

/// Prints `forward step` in seconds, one line for each batch with each provider, as soon as it is measured.
pub fn measure(flags: &Flags) -> Result<()> {
    for provider in flags.providers.split(',') {
        let (options, half) = options(provider, flags.threads)?;
        for batch in flags.batches.split(',') {
            let batch = batch
                .parse()
                .map_err(|_| Error::usage(format!("expected numbers of images, found `{batch}`")))?;
            let (forward, step) = times(&flags.file, batch, options, flags.seconds, half)?;
            println!("{forward} {step}");
        }
    }
    Ok(())
}

/// The options of a session, and whether steps run in float16.
pub fn options(provider: &str, threads: usize) -> Result<(Options, bool)> {
    let mut words = provider.split('+');
    let mut provider: Provider = words.next().unwrap_or_default().parse()?;
    let (mut tf32, mut half) = (false, false);
    for word in words {
        match word {
            "fast-math" => tf32 = true,
            "fp16" => half = true,
            _ => return Err(Error::usage(format!("expected fast-math or fp16 behind a +, found `{word}`"))),
        }
    }
    match &mut provider {
        Provider::Cuda(cuda) => cuda.tf32 = tf32,
        Provider::Cpu if tf32 => return Err(Error::usage("fast-math is for cuda")),
        Provider::Cpu => {}
    }
    Ok((Options { provider, threads }, half))
}

/// The graph of a file.
pub fn as_is(file: &Path) -> Result<Graph> {
    let bytes = std::fs::read(file).map_err(|e| Error::usage(format!("{}: {e}", file.display())))?;
    Graph::decode_as_is(bytes.into(), file).map_err(audit::model::refused)
}

/// `count` images.
pub fn some(count: usize, pixels: usize) -> Vec<f32> {
    (0..count * pixels).map(|i| ((i as f32 * 0.37).sin() + 1.0) / 2.0).collect()
}

fn times(file: &Path, batch: usize, options: Options, seconds: f64, half: bool) -> Result<(f64, f64)> {
    runtime::load(None, None)?;
    runtime::require(options)?;
    let card = Card { range: Some([0.0, 1.0]), ..Default::default() };
    // As in an audit: on the CPU a few images at a time in each thread, as often as a batch needs.
    let whole = (options.provider != Provider::Cpu).then_some(batch);
    let open = |each| Model::open_in(file, &card, options, each, half, &|_| {});
    let mut model = open(whole)?;
    if !batch.is_multiple_of(model.at_once()) {
        model = open(Some(batch.div_ceil(model.at_once() / model.batch())))?;
    }
    let rounds = batch.div_ceil(model.at_once());
    let x = some(batch, model.pixels());
    model.calibrate(&x, batch)?;
    let (shape, dim) = (model.info.preprocessing.pixel_shape(batch), model.info.dim);
    let mut workers = model.workers_in_half();
    for worker in &mut workers {
        let (count, pixels) = (worker.batch(), worker.pixels());
        let steps = worker.signed_steps().ok_or_else(|| Error::internal("the model makes no steps"))?;
        for (slot, image) in some(count, pixels).chunks(pixels).enumerate() {
            steps.put(slot, image, &vec![0.0; pixels], &vec![1.0; pixels])?;
        }
    }
    // The forward pass is the user's model, not our graph, whose additional outputs cost time too.
    let graph = as_is(file)?;
    let (input, output) = (graph.inputs[0].name.as_str(), graph.outputs[0].name.as_str());
    let shipped = Session::as_shipped(&graph, options)?;
    let mut images = shipped.place(&Value::new(input, DType::F32, &shape), Memory::Device)?;
    images.write(&x)?;
    let embeddings = Value::new(output, DType::F32, &[batch as i64, dim as i64]);
    let mut embeddings = shipped.place(&embeddings, Memory::Host)?;
    let mut bound = shipped.binding()?;
    bound.input(input, &images)?;
    bound.output(output, &mut embeddings)?;
    let (mut forward, mut step) = (f64::INFINITY, f64::INFINITY);
    let start = Instant::now();
    let alone = options.provider == Provider::Cpu && options.threads == 1;
    let clock = || if alone { cpu_seconds() } else { Ok(start.elapsed().as_secs_f64()) };
    // A session's threads spin for a while after a run, which must not slow the other side.
    let settle = || std::thread::sleep(SETTLE);
    for round in 0.. {
        settle();
        let before = clock()?;
        shipped.run_bound(&mut bound)?;
        forward = forward.min(clock()? - before);
        settle();
        let before = clock()?;
        // The loss costs next to nothing here, so that the model is measured. Its gradient is at most 1, as
        // in an audit.
        let cotangent = |e: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| {
            let largest = e.iter().fold(f32::MIN_POSITIVE, |most, v| most.max(v.abs()));
            out.zip_mut_with(&e, |out, e| *out = e / largest);
        };
        workers.par_iter_mut().try_for_each(|worker| {
            let alpha = vec![1.0 / 255.0; worker.batch()];
            (0..rounds).try_for_each(|_| match worker.signed_steps() {
                Some(steps) => steps.step(&alpha, &mut { cotangent }),
                None => Ok(()),
            })
        })?;
        step = step.min(clock()? - before);
        if round >= 3 && start.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    Ok((forward, step))
}
