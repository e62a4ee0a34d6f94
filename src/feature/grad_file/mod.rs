//! `audit grad`: a model and its gradient as one ONNX file, compared with the audit's own gradient before it
//! is written.

mod written;

use crate::check;
use crate::check::load::JITTER;
use crate::data::Dataset;
use crate::error::shortened;
use crate::model::Model;
use crate::model::card::{Card, Preprocessing};
use crate::model::grad_export::{Joined, NAMES};
use crate::model::runtime::{INLINE_LIMIT, Input, Optimise, Options, Provider, Session};
use crate::pipeline::images::first_batch;
use crate::pipeline::machine;
use crate::pipeline::settings::{refuse_inputs, settle_card};
use crate::progress::Mode;
use crate::random::Random;
use crate::record::{GradientCheck, reason};
use crate::report::Destination;
use crate::request::Reading;
use crate::{Error, Result, interrupt};
use ndarray::ArrayView2;
use onnx_grad::operators::OPSET;
use std::path::{Path, PathBuf};
use written::write;

/// Batches at which a file for any batch is run.
const BATCHES: [usize; 3] = [1, 2, 5];
/// Images at which a file for a fixed batch is run, at most; the rest of the batch is grey.
const IMAGES: usize = 8;
/// Accepted difference between two gradients of an image, or two embeddings, as a share of their length.
/// Rounding moves a few values across the kink of a ReLU. If images of a batch change each other's
/// embeddings, the difference is far larger.
const SAME: f64 = 1e-2;
/// The same where values are quantised: the last bit of a float decides between neighbouring integers.
const SAME_QUANTISED: f64 = 1e-1;

/// The file that is asked for.
pub struct GradFile {
    /// The model, an .onnx file.
    pub model: PathBuf,
    /// The file to write, .onnx.
    pub file: PathBuf,
    /// Whether it takes the model's own input.
    pub raw: bool,
    /// The only batch size; `None`: any.
    pub batch: Option<usize>,
    /// How the model is read.
    pub reading: Reading,
    /// Threads; 0: one per core.
    pub threads: usize,
    /// ONNX Runtime's library; `None`: searched for.
    pub library: Option<PathBuf>,
    /// Bytes that the model may use; `None`: what is free, less a reserve.
    pub memory: Option<u64>,
}

/// Writes the file; what it says. Errors: those of [`Joined::form`]; exit code 12 where an audit of the model
/// would be refused, or the file's gradient isn't the audit's.
pub fn run(request: &GradFile) -> Result<String> {
    let path = request.model.as_path();
    if request.file.extension().is_none_or(|e| !e.eq_ignore_ascii_case("onnx")) {
        return Err(Error::usage(format!(
            "-o {}: a graph is written. Name a file that ends in .onnx",
            request.file.display()
        )));
    }
    let card = request.reading.card.iter().map(|card| ("the file of --card", card.as_path()));
    let inputs: Vec<_> = std::iter::once(("the model", path)).chain(card).collect();
    refuse_inputs(&inputs, &[("-o", request.file.as_path())])?;
    let card = settle_card(request.reading.stated.clone(), request.reading.card.as_deref(), path)?;
    let to = Destination::open("-o", &request.file)?;
    machine::load(request.library.as_deref(), request.memory, Mode::Auto)?;
    let options = Options { provider: Provider::Cpu, threads: request.threads };
    let (model, batch, raw) = (request.model.clone(), request.batch, request.raw);
    let work = move || form(&model, &card, options, batch, raw);
    let (joined, checked) = interrupt::watched("while the graph was made", &mut || (), work)??;
    // A first signal lets the files be written: they belong together.
    let written = write(&joined.graph, INLINE_LIMIT, to, &request.file, &request.model)?;
    Ok(render(&joined, &written, request.raw, &checked))
}

/// Forms and checks the graph.
fn form(
    path: &Path,
    card: &Card,
    options: Options,
    batch: Option<usize>,
    raw: bool,
) -> Result<(Joined, Checked)> {
    let audited = Audited::open(path, card, options, batch)?;
    let batch = batch.or(audited.model.info.fixed_batch);
    let mut joined = Joined::form(path, card, options, batch, raw)?;
    describe(&mut joined, raw);
    let checked = check(&joined, audited, path, options, raw)?;
    Ok((joined, checked))
}

/// The model of an audit, and images in [0,1] to run it on: one batch, filled with grey.
struct Audited {
    model: Model,
    images: Vec<f32>,
    /// What the check at load measured.
    measured: GradientCheck,
}

impl Audited {
    /// Errors: those of [`Model::open`]; the embedding is drawn at random, or an audit refuses the model for
    /// another reason that the check at load finds (exit code 12).
    fn open(path: &Path, card: &Card, options: Options, batch: Option<usize>) -> Result<Audited> {
        let open = |batch| Model::open(path, card, options, batch);
        let most = BATCHES[BATCHES.len() - 1];
        let mut model = match batch {
            Some(n) => open(Some(n))?,
            // The file may fix its batch.
            None => open(Some(most)).or_else(|_| open(None))?,
        };
        model.info.refuse_drawn()?;
        let count = model.batch();
        let dataset = Dataset::generated(0, count.min(IMAGES), 1);
        let (mut images, real) = first_batch(&dataset, &model)?;
        images.truncate(count * model.pixels());
        let real = real.min(count);
        let measured = check::load::measure(&mut model, &images, real, &mut |_, _| ())?;
        let mut findings = check::at_load(&measured);
        // The file is run at each of its own batches, and may be for one alone.
        findings.retain(|finding| !finding.invalidates(&reason::BATCH_SIZE));
        check::admit(&model.info, &findings, "; nothing is written")?;
        Ok(Audited { measured: measured.summary(), model, images })
    }
}

/// What was found when the file was run.
struct Checked {
    batches: Vec<usize>,
    /// Largest difference from the audit's gradient, as a share of its length.
    difference: f64,
    /// The same of the embedding alone if ONNX Runtime computes with integer kernels; `None` if no values are
    /// quantised.
    kernels: Option<f64>,
    /// Of the audit's gradient from finite differences of the untouched model; `None` where there is nothing
    /// to compare with.
    finite: Option<f64>,
}

/// What the graph is run on, and the audit's own embeddings and gradients of it.
struct Expected {
    /// [B, P].
    inputs: Vec<f32>,
    /// [B, D].
    cotangent: Vec<f32>,
    /// [B, D].
    embedding: Vec<f32>,
    /// [B, P].
    gradient: Vec<f32>,
    dim: usize,
    pixels: usize,
}

impl Expected {
    /// Of a batch of `images`. `raw`: by the model's own input, which `pre` makes of them.
    fn new(model: &mut Model, mut images: Vec<f32>, pre: &Preprocessing, raw: bool) -> Result<Expected> {
        let (count, dim, pixels) = (model.batch(), model.info.dim, model.pixels());
        let mut random = Random::seeded(0x6772_6164);
        images.iter_mut().for_each(|v| *v += JITTER * random.sign_unit());
        images = model.info.preprocessing.taken(&images).into_owned();
        let cotangent: Vec<f32> = (0..count * dim).map(|_| random.sign_unit()).collect();
        let view = ArrayView2::from_shape((count, dim), &cotangent)
            .map_err(|e| Error::internal(format!("cotangent: {e}")))?;
        let (embedding, gradient) = model.gradient(&images, view)?;
        // By the model's own input: its derivative by pixels, without the scale of the preprocessing.
        let (inputs, gradient) = match raw {
            false => (images, gradient),
            true => {
                let inverse = Preprocessing {
                    scale: pre.scale.iter().map(|s| 1.0 / s).collect(),
                    shift: vec![0.0; pre.channels],
                    integers: None,
                    ..pre.clone()
                };
                (pre.apply(&images), inverse.apply(&gradient))
            }
        };
        let embedding = embedding.iter().copied().collect();
        Ok(Expected { inputs, cotangent, embedding, gradient, dim, pixels })
    }

    /// How far the embeddings of the first `n` images are apart.
    fn embedding_error(&self, found: &[f32], n: usize) -> f64 {
        apart(found, &self.embedding[..n * self.dim], self.dim)
    }

    /// How far the gradients of the first `n` images are apart.
    fn gradient_error(&self, found: &[f32], n: usize) -> f64 {
        apart(found, &self.gradient[..n * self.pixels], self.pixels)
    }
}

/// Runs the graph as users will, and compares.
fn check(
    joined: &Joined,
    Audited { mut model, images, measured }: Audited,
    path: &Path,
    options: Options,
    raw: bool,
) -> Result<Checked> {
    let pre = &joined.info.preprocessing;
    let expected = Expected::new(&mut model, images, pre, raw)?;
    let Expected { inputs, cotangent, dim, pixels, .. } = &expected;
    let quantised = model.quantised();
    // Integer kernels are an optimisation, and round in other places.
    let session = |shipped| {
        let session = if shipped {
            Session::as_shipped(&joined.graph, options)
        } else {
            Session::new(&joined.graph, options, Optimise::Off)
        };
        session.map_err(|e| e.context(format!("{}, the graph to be written", path.display())))
    };
    let mut session_of_kernels = if quantised { Some(session(true)?) } else { None };
    let mut session = session(!quantised)?;
    let batches = joined.batch.map_or(BATCHES.to_vec(), |n| vec![n]);
    let accepted = if quantised { SAME_QUANTISED } else { SAME };
    let (mut difference, mut kernels) = (0.0f64, None);
    for &n in &batches {
        let shape = if raw { pre.input_shape(n) } else { pre.pixel_shape(n) };
        let feed = [
            (NAMES[0], Input::Host(&shape, &inputs[..n * pixels])),
            (NAMES[1], Input::Host(&[n as i64, *dim as i64], &cotangent[..n * dim])),
        ];
        let found = session.run(&feed, &NAMES[2..]).map_err(|e| {
            e.context(format!("{}, the graph to be written, at a batch of {n}", path.display()))
        })?;
        let worst = worse(
            expected.embedding_error(found[0].floats()?.1, n),
            expected.gradient_error(found[1].floats()?.1, n),
        );
        // NaN doesn't.
        let agrees = worst <= accepted;
        if !agrees {
            return Err(other_results(path, joined.batch, n, worst, accepted));
        }
        difference = difference.max(worst);
        if let Some(session) = &mut session_of_kernels {
            let found = session.run(&feed, &NAMES[2..3])?;
            kernels = Some(worse(expected.embedding_error(found[0].floats()?.1, n), kernels.unwrap_or(0.0)));
        }
    }
    Ok(Checked { batches, difference, kernels, finite: measured.gradient_error })
}

/// The error that the graph's results at a batch of `n` are `worst` from the audit's.
fn other_results(path: &Path, fixed: Option<usize>, n: usize, worst: f64, accepted: f64) -> Error {
    let next = match fixed {
        None => {
            "The model may treat images of a batch differently. Write a file for a fixed batch: --batch 1"
        }
        Some(_) => "ONNX Runtime's optimiser may change the graph",
    };
    Error::untrusted(format!(
        "{}: at a batch of {n} the graph to be written is {worst:.1e} from the audit's own embedding or gradient, as a share of \
         their length; {accepted:.0e} is accepted, and nothing is written. {next}",
        path.display()
    ))
}

/// The largest ‖a − b‖ / ‖b‖ over rows of a length.
fn apart(a: &[f32], b: &[f32], length: usize) -> f64 {
    if a.len() != b.len() {
        return f64::INFINITY;
    }
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let rows = a.chunks(length).zip(b.chunks(length)).map(|(a, b)| {
        let off = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(a - b)));
        off / norm(&mut b.iter().map(|b| f64::from(*b))).max(f64::MIN_POSITIVE)
    });
    rows.fold(0.0, worse)
}

/// The larger of two errors; NaN where one is, which `max` would lose.
fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || b <= a { a } else { b }
}

/// Describes the file in the graph's metadata.
fn describe(joined: &mut Joined, raw: bool) {
    let info = &joined.info;
    let nodes = |straight_through| {
        let of = joined.notes.iter().filter(|n| n.straight_through == straight_through);
        of.map(|n| n.node.as_str()).collect::<Vec<_>>().join("\n")
    };
    let name = info.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let all = [
        ("audit.version", env!("CARGO_PKG_VERSION").to_string()),
        ("audit.model", name),
        ("audit.model_sha256", info.identity.sha256.clone()),
        ("audit.embedding", info.output.clone()),
        ("audit.image", image(joined, raw)),
        ("audit.preprocessing", if raw { String::new() } else { info.preprocessing.words() }),
        ("audit.straight_through", nodes(true)),
        ("audit.zero_gradient", nodes(false)),
    ];
    let entries = all.into_iter().filter(|(_, value)| !value.is_empty());
    joined.graph.metadata.extend(entries.map(|(key, value)| (key.to_string(), value)));
}

/// What the input holds, in words.
fn image(joined: &Joined, raw: bool) -> String {
    let p = &joined.info.preprocessing;
    let colours = if p.channels == 1 { "grey" } else { "RGB" };
    match (raw, &p.integers) {
        (true, None) => "the model's own input".into(),
        (true, Some(dtype)) => {
            format!("the model's own input, whole numbers; the model takes them as {dtype}")
        }
        (false, None) => format!("pixels in [0,1], {colours}; further preprocessing is in the graph"),
        (false, Some(dtype)) => {
            format!(
                "whole grey levels in [0,1], n/255, {colours}: the model takes {dtype}. Round before you measure"
            )
        }
    }
}

/// Text for the terminal.
fn render(joined: &Joined, written: &[PathBuf], raw: bool, checked: &Checked) -> String {
    let graph = &joined.graph;
    let files: Vec<String> = written.iter().map(|p| p.display().to_string()).collect();
    let mut text = format!("{}: {} nodes, opset {OPSET}\n", files.join(" and "), graph.nodes.len());
    let embedding = format!("{} of the model", joined.info.output);
    let meanings = [image(joined, raw), "∂L/∂embedding".into(), embedding, "∂L/∂image".into()];
    for (name, meaning) in NAMES.iter().zip(meanings) {
        let value = graph.inputs.iter().chain(&graph.outputs).find(|v| v.name == *name);
        let shape = value.map_or(String::new(), |v| v.shape_text());
        text += &format!("  {name:<10} float32 {shape:<23} {meaning}\n");
    }
    let batches: Vec<String> = checked.batches.iter().map(usize::to_string).collect();
    let batches = match &batches[..] {
        [one] => format!("a batch of {one}"),
        many => format!("batches of {}", many.join(", ")),
    };
    text += &format!(
        "Run at {batches}: {} the audit's own embedding and gradient. ",
        match checked.difference {
            0.0 => "equals".to_string(),
            d => format!("within {d:.0e} (relative) of"),
        }
    );
    text += &match checked.finite {
        Some(e) => format!("That gradient is within {:.2} % of finite differences of the model\n", 100.0 * e),
        None => "There are no finite differences to compare that gradient with\n".to_string(),
    };
    if let Some(kernels) = checked.kernels {
        text += &format!(
            "With its default optimisation ONNX Runtime may quantise by integer kernels, which round in other places: the embedding is then {}\n",
            match kernels {
                0.0 => "the same".to_string(),
                d => format!("within {d:.0e} (relative)"),
            }
        );
    }
    for (straight_through, meaning) in [
        (true, "Straight through (the derivative as if nothing were rounded)"),
        (false, "Gradient of zero (constant almost everywhere)"),
    ] {
        let nodes: Vec<&str> = (joined.notes.iter())
            .filter(|n| n.straight_through == straight_through)
            .map(|n| n.node.as_str())
            .collect();
        if !nodes.is_empty() {
            text += &format!("{meaning}: {}\n", shortened(&nodes, 8));
        }
    }
    let foreign: Vec<String> =
        (graph.nodes.iter()).filter(|n| !n.domain.is_empty()).map(|n| n.label()).collect();
    if !foreign.is_empty() {
        text += &format!(
            "Not in ONNX's own operator set, so that few runtimes support them: {}\n",
            foreign.join(", ")
        );
    }
    text
}
