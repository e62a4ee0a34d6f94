//! The workers of a model with gradients other than its own.
//!
//! They are for searches only: the model's own forward pass measures the images found. If operators saturate
//! or are flat, the exact gradient has no information, but another slope may have ([`onnx_grad::Pass`]), or
//! the gradient of the widened model ([`Graph::wider`]).

use super::runtime::{Input, Optimise, Options, Session};
use super::worker::Worker;
use super::{
    Differentiable, IMAGE, Model, ModelSource, PrepareMode, Prepared, Sessions, Workers, left_to_cpu,
};
use audit_base::random::Random;
use audit_base::{Error, Result};
use onnx_grad::graph::{DType, Value};
use onnx_grad::{Graph, Pass, wider::Saturating};
use sha2::{Digest, Sha256};

/// Source of a search's gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// The derivative of the model.
    Exact,
    /// [`Pass::Softened`].
    Softened,
    /// [`Pass::StraightThrough`].
    StraightThrough,
    /// The softened gradient of the widened model: operators that saturate on both sides are wider
    /// ([`Graph::wider`]) if images drive them far beyond the range in which they have a slope. Losses are
    /// those of the widened model too.
    Widened,
}

impl Route {
    /// In words, for reports.
    pub fn in_words(self) -> &'static str {
        match self {
            Route::Exact => "exact",
            Route::Softened => "softened",
            Route::StraightThrough => "straight-through",
            Route::Widened => "widened",
        }
    }

    /// This route, behind those that it is compared with: a straight-through pass that equals the softened
    /// one counts as the softened one. None for the exact gradient.
    pub(super) fn compared(self) -> &'static [Route] {
        match self {
            Route::Exact => &[],
            Route::Softened => &[Route::Softened],
            Route::StraightThrough => &[Route::Softened, Route::StraightThrough],
            Route::Widened => &[Route::Widened],
        }
    }

    /// The slopes in its backward graph.
    fn pass(self) -> Pass {
        match self {
            Route::Exact => Pass::Exact,
            Route::Softened | Route::Widened => Pass::Softened,
            Route::StraightThrough => Pass::StraightThrough,
        }
    }
}

/// How far beyond its range half of an operator's values lie, in reaches, for it to be made wider.
/// Activations of usual nets lie nearer.
const FAR: f32 = 4.0;
/// In the widened model this share of an operator's values lies within so many reaches. If all lay within
/// one, pixels that the ball keeps from crossing the middle would count as much as those that cross it.
const WITHIN: (f64, f32) = (0.95, 3.0);

/// Workers with other gradients, as many as the model's and for the same batch.
pub struct Softened {
    /// Source of the gradients.
    pub route: Route,
    /// Labels of the nodes that the pass gives another slope than their own, in the order of the graph. The
    /// graph is the one that is differentiated: ONNX Runtime has folded constants and may have replaced
    /// operators.
    pub nodes: Vec<String>,
    pub(super) graph: [u8; 32],
    workers: Vec<Worker>,
}

impl Model {
    /// Loads the model again with other gradients. `None` if the model has no distinct backward pass for this
    /// route.
    ///
    /// This takes as long as [`Model::open`] and as much memory: sessions and workers of its own. Embeddings
    /// of [`Differentiable::embed`] are those of the model up to rounding, so outcomes must be measured with
    /// the model's own workers. The workers compute in float32 also where the model's attack steps run in
    /// float16.
    ///
    /// Errors: those of [`Model::open`]; the file has changed since it was loaded (exit code 2).
    pub fn softened(&self, route: Route) -> Result<Option<Softened>> {
        if self.graphs.estimated || route == Route::Exact || (route == Route::Widened && !self.saturates) {
            return Ok(None);
        }
        let (path, each) = (&self.info.path, self.batch());
        let (card, options, mode) = (&self.card, self.options, PrepareMode::default());
        let mut prepared = Prepared::read(ModelSource { path, card, options, batch: Some(each), mode })?;
        if prepared.info.identity != self.info.identity {
            return Err(Error::usage(format!(
                "{}: the file has changed since it was loaded. Its sha256 was {} and is {}. Start again",
                path.display(),
                self.info.identity.sha256,
                prepared.info.identity.sha256
            )));
        }
        let named = |e: Error| e.context(format!("{}, {}", path.display(), route.in_words()));
        if route == Route::Widened {
            let far = prepared.far_beyond(self.options).map_err(named)?;
            if far.is_empty() {
                return Ok(None);
            }
            prepared.graph = prepared.graph.wider(&far, &mut prepared.types);
        }
        prepared.graph.write_in_softer_operators(&mut prepared.types);
        let mut g = prepared.differentiate(IMAGE, route.pass(), self.options.provider.processor())?;
        if g.softened.is_empty() {
            return Ok(None);
        }
        let nodes = std::mem::take(&mut g.softened);
        let hash = fingerprint(&g.backward);
        if self
            .others
            .iter()
            .filter_map(|(_, other)| other.as_ref().ok()?.as_ref())
            .any(|other| other.graph == hash)
        {
            return Ok(None);
        }
        let Prepared { info, graph, types, .. } = prepared;
        drop((graph, types));
        let workers = Workers { count: self.workers.len(), each };
        let sessions = Sessions::new(g, &info, workers, workers.options(self.options)).map_err(named)?;
        left_to_cpu(&sessions.both(), self.options).map_err(named)?;
        let measured = match route {
            Route::Widened => &self.workers[0].forward,
            _ => &sessions.forward,
        };
        let worker = |_| sessions.worker(measured, None, &info, each);
        let workers = (0..workers.count).map(worker).collect::<Result<_>>().map_err(named)?;
        Ok(Some(Softened { route, nodes, graph: hash, workers }))
    }
}

impl Prepared {
    /// The operators that saturate on both sides and are driven far beyond their range, each with the factor
    /// by which to make it wider. They are told by a batch of images with uniform random pixels.
    fn far_beyond(&self, options: Options) -> Result<Vec<(Saturating, f32)>> {
        let places = self.graph.saturating(&self.types);
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let mut probe = self.graph.clone();
        probe.outputs =
            places.iter().map(|p| Value::new(p.input.clone(), DType::F32, &self.types[&p.input].1)).collect();
        // An input of several operators is one output.
        probe.outputs.sort_by(|a, b| a.name.cmp(&b.name));
        probe.outputs.dedup_by(|a, b| a.name == b.name);
        // The image itself is no output of a node.
        probe.outputs.retain(|out| out.name != IMAGE);
        probe.prune();
        let names: Vec<String> = probe.outputs.iter().map(|out| out.name.clone()).collect();
        let shape = self.info.preprocessing.pixel_shape(self.workers.each);
        let mut random = Random::seeded(0);
        let images: Vec<f32> = (0..shape.iter().product::<i64>()).map(|_| random.unit()).collect();
        let mut session = Session::new(&probe, self.workers.options(options), Optimise::All)?;
        let outputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = session.run(&[(IMAGE, Input::Host(&shape, &images))], &outputs)?;
        let mut far = Vec::new();
        for place in places {
            let Some(at) = names.iter().position(|name| *name == place.input) else { continue };
            let (_, values) = found[at].floats()?;
            let mut sizes: Vec<f32> = values.iter().map(|v| (v - place.centre).abs() / place.reach).collect();
            sizes.sort_unstable_by(f32::total_cmp);
            let share = |share: f64| sizes.get((share * sizes.len() as f64) as usize).copied();
            let found = share(0.5).zip(share(WITHIN.0));
            if let Some((_, most)) = found.filter(|(middle, most)| *middle > FAR && most.is_finite()) {
                far.push((place, most / WITHIN.1));
            }
        }
        Ok(far)
    }
}

/// SHA-256 of a graph's nodes and of its short constants. Long ones are the model's weights, which passes
/// share.
fn fingerprint(graph: &Graph) -> [u8; 32] {
    const SHORT: usize = 256;
    let short = graph.constants.iter().filter(|(_, tensor)| tensor.bytes.len() <= SHORT);
    let short = short.map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    Sha256::digest(Graph::new(graph.nodes.clone(), short).encode()).into()
}

impl Softened {
    /// The workers, for attacks.
    pub fn workers(&mut self) -> Vec<&mut dyn Differentiable> {
        self.workers.iter_mut().map(|worker| worker as &mut dyn Differentiable).collect()
    }
}
