//! The lanes of a model with a backward pass other than the exact one.
//!
//! They serve searches: what a search finds is measured by the model's own lanes. Where operators saturate or are flat, the
//! exact gradient says nothing, and another slope may ([`onnx_grad::Pass`]).

use super::lane::Lane;
use super::{Differentiable, IMAGE, Lanes, Model, Prepared, Sessions, Taking, left_to_cpu};
use crate::{Error, Result};
use onnx_grad::{Graph, Pass};
use sha2::{Digest, Sha256};

/// Lanes with another backward pass, as many as the model's and for the same batch.
pub struct Softened {
    /// The backward pass.
    pub pass: Pass,
    /// Labels of the nodes that the pass gives another slope than their own, in the order of the graph. The graph is the
    /// one that is differentiated: ONNX Runtime has folded constants and may have replaced operators.
    pub nodes: Vec<String>,
    /// SHA-256 of the backward graph.
    pub(super) graph: [u8; 32],
    lanes: Vec<Lane>,
}

impl Model {
    /// Loads the model again with another backward pass; `None` where that is the exact one, because the pass softens no
    /// node, where it is the same as another pass that is loaded, and where gradients are estimated.
    ///
    /// This takes as long as [`Model::open`] and as much memory: sessions and lanes of its own. Embeddings are those of
    /// the model up to rounding, so outcomes must be measured with the model's own lanes. The lanes compute in float32
    /// also where the model's attack steps run in float16.
    ///
    /// Errors: those of [`Model::open`]; the file has changed since it was loaded (exit code 2).
    pub fn softened(&self, pass: Pass) -> Result<Option<Softened>> {
        if self.info.estimated || pass == Pass::Exact {
            return Ok(None);
        }
        let (path, each) = (&self.info.path, self.batch());
        let prepared = Prepared::read(path, &self.card, self.options, Some(each), Taking::default())?;
        if prepared.info.sha256 != self.info.sha256 {
            return Err(Error::usage(format!(
                "{}: the file has changed since it was loaded. Its sha256 was {} and is {}. Start again",
                path.display(),
                self.info.sha256,
                prepared.info.sha256
            )));
        }
        let mut g = prepared.differentiate(IMAGE, pass)?;
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
        let lanes = Lanes { count: self.lanes.len(), each };
        let named = |e: Error| e.context(format!("{}, softened", path.display()));
        let sessions = Sessions::new(g, &info, lanes, lanes.options(self.options)).map_err(named)?;
        left_to_cpu(&sessions.both(), self.options).map_err(named)?;
        let lane = |_| sessions.lane(None, &info, each);
        let lanes = (0..lanes.count).map(lane).collect::<Result<_>>().map_err(named)?;
        Ok(Some(Softened { pass, nodes, graph: hash, lanes }))
    }
}

/// SHA-256 of a graph's nodes and of its short constants. Long ones are the model's weights, which passes share.
fn fingerprint(graph: &Graph) -> [u8; 32] {
    const SHORT: usize = 256;
    let mut hash = Sha256::new_with_prefix(format!("{:?}", graph.nodes));
    for (name, tensor) in graph.constants.iter().filter(|(_, t)| t.bytes.len() <= SHORT) {
        hash.update(name);
        hash.update(&tensor.bytes);
    }
    hash.finalize().into()
}

impl Softened {
    /// The lanes, for [`crate::threat::run`].
    pub fn lanes(&mut self) -> Vec<&mut dyn Differentiable> {
        self.lanes.iter_mut().map(|lane| lane as &mut dyn Differentiable).collect()
    }
}
