//! A model's message without the data of its tensors, and these data: what names a net wherever its data lie.

use super::external::{ExternalRange, is_external};
use super::{proto, tensor};
use crate::{Error, Result};
use prost::{Message, bytes::Bytes};
use std::path::Path;

/// A model taken apart.
pub struct Apart {
    /// The encoded message, without data and without where these lie. It is the same for a net saved in one file and for the net
    /// with some of its data in files beside the model.
    pub message: Vec<u8>,
    /// Data of all tensors, in the order of the numbers that fields have in onnx.proto, depth first: of a graph each node's attributes
    /// (with the graphs in them), then initializers, then sparse ones; of a model the graph, training, local functions.
    pub data: Vec<TensorData>,
}

/// The data of a tensor.
pub enum TensorData {
    /// In the model file, little-endian as `raw_data` has them, also if they are numbers in the file.
    Inline(Bytes),
    /// In a file beside it.
    External(ExternalRange),
}

impl Apart {
    /// Takes the model in `bytes` apart; `path` locates external data and names the file in errors. Errors (exit code 3): it is no ONNX
    /// model, or external data can't be found.
    pub fn decode(bytes: Bytes, path: &Path) -> Result<Apart> {
        let named = |why: String| Error::Model(format!("{}: {why}", path.display()));
        let mut model = proto::ModelProto::decode(bytes).map_err(|e| named(e.to_string()))?;
        let mut taker = Taker { path, data: Vec::new() };
        taker.model(&mut model).map_err(named)?;
        Ok(Apart { message: model.encode_to_vec(), data: taker.data })
    }
}

/// Takes data out of messages.
struct Taker<'p> {
    path: &'p Path,
    data: Vec<TensorData>,
}

type Taken = std::result::Result<(), String>;

impl Taker<'_> {
    fn model(&mut self, model: &mut proto::ModelProto) -> Taken {
        model.graph.iter_mut().try_for_each(|g| self.graph(g))?;
        let training = model.training_info.iter_mut();
        training
            .flat_map(|t| [&mut t.initialization, &mut t.algorithm])
            .flatten()
            .try_for_each(|g| self.graph(g))?;
        model.functions.iter_mut().try_for_each(|function| {
            self.nodes(&mut function.node)?;
            self.attributes(&mut function.attribute_proto)
        })
    }

    fn graph(&mut self, graph: &mut proto::GraphProto) -> Taken {
        self.nodes(&mut graph.node)?;
        graph.initializer.iter_mut().try_for_each(|t| self.tensor(t))?;
        graph.sparse_initializer.iter_mut().try_for_each(|s| self.sparse(s))
    }

    fn nodes(&mut self, nodes: &mut [proto::NodeProto]) -> Taken {
        nodes.iter_mut().try_for_each(|node| self.attributes(&mut node.attribute))
    }

    fn attributes(&mut self, attributes: &mut [proto::AttributeProto]) -> Taken {
        attributes.iter_mut().try_for_each(|a| {
            a.t.iter_mut().try_for_each(|t| self.tensor(t))?;
            a.g.iter_mut().try_for_each(|g| self.graph(g))?;
            a.tensors.iter_mut().try_for_each(|t| self.tensor(t))?;
            a.graphs.iter_mut().try_for_each(|g| self.graph(g))?;
            a.sparse_tensor.iter_mut().try_for_each(|s| self.sparse(s))?;
            a.sparse_tensors.iter_mut().try_for_each(|s| self.sparse(s))
        })
    }

    fn sparse(&mut self, sparse: &mut proto::SparseTensorProto) -> Taken {
        let tensors = [&mut sparse.values, &mut sparse.indices];
        tensors.into_iter().flatten().try_for_each(|t| self.tensor(t))
    }

    fn tensor(&mut self, t: &mut proto::TensorProto) -> Taken {
        let data = match is_external(t) {
            true => TensorData::External(
                ExternalRange::of(t, self.path).map_err(|e| format!("tensor {:?} {e}", t.name))?,
            ),
            false => TensorData::Inline(tensor::take_inline(t)),
        };
        t.external_data.clear();
        t.data_location = 0;
        self.data.push(data);
        Ok(())
    }
}
