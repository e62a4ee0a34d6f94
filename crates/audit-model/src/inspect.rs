//! Description of a model file without an audit: inputs, outputs, kind of model, and the time of a forward
//! pass.

use super::card::Card;
use super::identity::ModelIdentity;
pub use super::kind::ModelKind;
use super::kind::Seen;
use super::mixing::{self, Mixing};
use super::prepared::{Loaded, ModelSource, PrepareMode, Prepared, declared};
use super::remedy::{self, Flags};
use super::runtime::{self, Input, Optimise, Options, Provider, Session};
use super::{IMAGE, Info, Pass};
use audit_base::random::Random;
use audit_base::{Error, Result};
use ndarray::Array2;
use onnx_grad::Note;
use onnx_grad::graph::DType;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// What inspecting a file consists of, for progress.
pub const STAGES: [&str; 4] =
    ["reading the file", "preparing the graph", "timing a forward pass", "comparing images of a batch"];

/// Facts about a file.
#[derive(Clone)]
pub struct Inspection {
    /// Its hashes and size.
    pub identity: ModelIdentity,
    /// Inputs and outputs as the file declares them.
    pub inputs: Vec<String>,
    /// See `inputs`.
    pub outputs: Vec<String>,
    /// The narrowest float type that the file computes in.
    pub precision: DType,
    /// What it looks like.
    pub look: ModelKind,
    /// Flags that read the value before its last layer, if it looks like a classifier.
    pub before: Option<Flags>,
    /// The model as an audit would take it, or why it would not.
    pub taken: Result<Taken>,
}

/// A model as an audit would take it.
#[derive(Clone)]
pub struct Taken {
    /// Facts about it.
    pub info: Info,
    /// Nodes whose gradient rule differs from the true derivative; empty if no gradient can be formed.
    pub notes: Vec<Note>,
    /// Operators on the way to the embedding, with the number of their nodes; the most frequent first.
    pub operators: Vec<(String, usize)>,
    /// Why an audit refuses it: its embedding is drawn at random or depends on the other images of a batch
    /// (exit code 12), or has no gradient.
    pub refused: Option<Error>,
    /// Seconds that a forward pass of one image takes, with all workers at work; `None` before it is
    /// measured.
    pub embed_s: Option<f64>,
    /// Whether it is known that images of a batch don't change each other's embeddings, or there is nothing
    /// to know.
    pub compared: bool,
}

/// Looks into a file. Errors: it can't be read (exit code 2), or is no ONNX model (exit code 3). What an
/// audit would refuse is part of the result. `stage` is told which of [`STAGES`] begins, and `known` the
/// facts so far, of the file alone or of the model, before steps that may take long.
pub fn inspect(
    path: &Path,
    card: &Card,
    options: Options,
    batch: Option<usize>,
    stage: &dyn Fn(usize),
    known: &dyn Fn(Inspection),
) -> Result<Inspection> {
    stage(0);
    let file = Loaded::read(path)?;
    let identity = file.identity.clone();
    // Weights are shared by the copies of a graph.
    let graph = file.graph.clone();
    let inspection = |look: ModelKind, taken: Result<Taken>| Inspection {
        identity: identity.clone(),
        inputs: declared(&graph.inputs),
        outputs: declared(&graph.outputs),
        precision: graph.precision,
        look,
        before: None,
        taken,
    };
    let unseen = |seen: &Seen| ModelKind::of(&graph, seen, card.output.as_deref(), None);
    let unknown = Error::model(format!("{}: the graph is not prepared yet", path.display()));
    known(inspection(unseen(&Seen::default()), Err(unknown)));
    let mut seen = Seen::default();
    let tell = |taken: &Taken| known(inspection(taken.info.look.clone(), Ok(taken.clone())));
    let source = ModelSource {
        path,
        card,
        options,
        batch,
        mode: PrepareMode { unrun: true, ..PrepareMode::default() },
    };
    let taken = take(file.clone(), source, &mut seen, stage, &tell);
    Ok(match taken {
        Ok(taken) => {
            let look = taken.info.look.clone();
            let open = |card: &Card| Prepared::opens(&file, ModelSource { card, ..source });
            let before = remedy::working(card, &look.before(), &open);
            Inspection { before, ..inspection(look, Ok(taken)) }
        }
        Err(e) => inspection(unseen(&seen), Err(e)),
    })
}

fn take(
    file: Loaded,
    source: ModelSource,
    seen: &mut Seen,
    stage: &dyn Fn(usize),
    tell: &dyn Fn(&Taken),
) -> Result<Taken> {
    stage(1);
    let ModelSource { path, options, .. } = source;
    let prepared = Prepared::of(file, source, seen)?;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    prepared.graph.nodes.iter().for_each(|n| *counts.entry(&n.op).or_default() += 1);
    let mut operators: Vec<(String, usize)> = counts.into_iter().map(|(op, n)| (op.to_string(), n)).collect();
    operators.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    // A gradient graph for weights that aren't known takes none of the time in which kernels are turned
    // round. What can't be formed so may be with them.
    let processor = options.provider.processor();
    let without_weights =
        prepared.differentiate_as(&runtime::hollow(&prepared.graph), IMAGE, Pass::Exact, processor);
    let (notes, without_gradient) =
        match without_weights.or_else(|_| prepared.differentiate(IMAGE, Pass::Exact, processor)) {
            Ok(g) => (g.notes, None),
            Err(e) => (Vec::new(), Some(e)),
        };
    let drawn = prepared.info.refuse_drawn().err();
    let refused = drawn.or(without_gradient);
    let info = prepared.info.clone();
    // Whatever is refused already needs no comparison.
    let untimed = Taken { info, notes, operators, compared: refused.is_some(), refused, embed_s: None };
    tell(&untimed);
    stage(2);
    let named = |e: Error| e.context(path.display());
    let mut session =
        Session::new(&prepared.graph, prepared.workers.options(options), Optimise::All).map_err(named)?;
    let embed_s = forward_seconds(&prepared, &mut session).map_err(named)?;
    let timed = Taken { embed_s: Some(embed_s), ..untimed };
    if timed.compared {
        return Ok(timed);
    }
    tell(&timed);
    stage(3);
    let mixing = mixing(&prepared, &mut session, options)?;
    let refused = mixing.map(|mixing| mixing.error(path, timed.info.fixed_batch));
    Ok(Taken { refused, compared: true, ..timed })
}

/// Looks whether images of a batch change each other's embeddings. The images are noise, the second half of
/// them dark, and bright in the second run.
fn mixing(prepared: &Prepared, session: &mut Session, options: Options) -> Result<Option<Mixing>> {
    let (info, each) = (&prepared.info, prepared.workers.each);
    let pixels = info.preprocessing.pixels();
    let mut random = Random::seeded(0);
    let images: Vec<f32> = (0..each * pixels)
        .map(|i| random.unit() * if i < pixels * each.div_ceil(2) { 1.0 } else { 0.1 })
        .collect();
    let shape = info.preprocessing.pixel_shape(each);
    let options = Options { provider: Provider::Cpu, ..options };
    mixing::look(&images, info, &prepared.input, options, &mut |images| {
        let found = session.run(&[(IMAGE, Input::Host(&shape, images))], &[super::EMBEDDING])?;
        let values = found[0].floats()?.1.to_vec();
        Array2::from_shape_vec((each, info.dim), values)
            .map_err(|e| Error::internal(format!("embeddings: {e}")))
    })
}

/// Seconds of a forward pass of an image, where every worker runs at once as one of them does here alone.
fn forward_seconds(prepared: &Prepared, session: &mut Session) -> Result<f64> {
    let Prepared { info, workers, .. } = prepared;
    let shape = info.preprocessing.pixel_shape(workers.each);
    let images = vec![0.5; workers.each * info.preprocessing.pixels()];
    let pass = || {
        session
            // The first run also rejects graphs that inference accepts and kernels do not.
            .run(&[(IMAGE, Input::Host(&shape, &images))], &[super::EMBEDDING])
            .map(drop)
    };
    Ok(fastest(pass)? / (workers.each * workers.count) as f64)
}

/// Runs of [`fastest`], unless they take longer than so many seconds in all.
const RUNS: (usize, f64) = (5, 0.25);

/// Seconds of the fastest of some runs, after one that makes room. Other programs slow single runs down.
pub fn fastest(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    let (began, mut best) = (Instant::now(), f64::INFINITY);
    for _ in 0..RUNS.0 {
        let since = Instant::now();
        run()?;
        best = best.min(since.elapsed().as_secs_f64());
        if began.elapsed().as_secs_f64() > RUNS.1 {
            break;
        }
    }
    Ok(best)
}
