//! A model's message without the data of its tensors, and the data: they identify a net wherever its data are
//! saved.

use super::external::{ExternalRange, is_external};
use super::{proto, tensor};
use crate::{Error, Result};
use prost::{Message, bytes::Bytes};
use std::path::Path;

/// A model, separated into message and data.
pub struct Apart {
    /// The encoded message, without data and their locations. Equal for a net saved in one file and the net
    /// with some of its data in files beside the model.
    pub message: Vec<u8>,
    /// Data of all tensors, ordered by field number in onnx.proto, depth first. Of a graph: each node's
    /// attributes (and graphs in them), initializers, sparse initializers. Of a model: graph, training, local
    /// functions.
    pub data: Vec<TensorData>,
}

/// The data of a tensor.
pub enum TensorData {
    /// In the model file, little-endian as in `raw_data`, even if the file has them as numbers.
    Inline(Bytes),
    /// In a file beside the model.
    External(ExternalRange),
}

impl Apart {
    /// Separates the model in `bytes`; `path` locates external data and names the file in errors. Errors
    /// (exit code 3): it is not an ONNX model, or external data are missing.
    pub fn decode(bytes: Bytes, path: &Path) -> Result<Apart> {
        let named = |why: String| Error::Model(format!("{}: {why}", path.display()));
        let mut model = proto::ModelProto::decode(bytes).map_err(|e| named(e.to_string()))?;
        let mut taker = Taker { path, data: Vec::new() };
        taker.model(&mut model).map_err(named)?;
        Ok(Apart { message: model.encode_to_vec(), data: taker.data })
    }
}

/// Moves data out of messages.
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

#[cfg(test)]
mod tests {
    use super::super::proto::{
        AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, SparseTensorProto,
        StringStringEntryProto, TensorProto,
    };
    use super::*;

    /// A folder with a file of ten bytes; `test` makes its name unique.
    fn folder(test: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("onnx-grad-apart-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("w"), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
        folder
    }

    fn external(entries: &[(&str, &str)]) -> TensorProto {
        let entry = |(key, value): &(&str, &str)| StringStringEntryProto {
            key: (*key).into(),
            value: (*value).into(),
        };
        let external_data = entries.iter().map(entry).collect();
        TensorProto { name: "t".into(), data_type: 2, data_location: 1, external_data, ..Default::default() }
    }

    fn external_at(offset: &str) -> TensorProto {
        external(&[("location", "w"), ("offset", offset), ("length", "1")])
    }

    fn with(attribute: AttributeProto) -> NodeProto {
        NodeProto { attribute: vec![attribute], ..Default::default() }
    }

    /// A tensor in every place, in the documented order.
    #[test]
    fn all_places_of_tensors_are_found_in_order() {
        let folder = folder("order");
        let sparse = |a, b| SparseTensorProto {
            values: Some(external_at(a)),
            indices: Some(external_at(b)),
            ..Default::default()
        };
        let inner = GraphProto { initializer: vec![external_at("0")], ..Default::default() };
        let attribute = AttributeProto {
            t: Some(external_at("1")),
            g: Some(GraphProto {
                node: vec![with(AttributeProto { g: Some(inner), ..Default::default() })],
                ..Default::default()
            }),
            tensors: vec![external_at("2")],
            graphs: vec![GraphProto { initializer: vec![external_at("3")], ..Default::default() }],
            sparse_tensor: Some(sparse("4", "5")),
            ..Default::default()
        };
        let graph = GraphProto {
            node: vec![with(attribute)],
            initializer: vec![external_at("6"), external_at("7")],
            sparse_initializer: vec![sparse("8", "9")],
            ..Default::default()
        };
        let function = FunctionProto {
            node: vec![with(AttributeProto { t: Some(external_at("9")), ..Default::default() })],
            ..Default::default()
        };
        let model = ModelProto { graph: Some(graph), functions: vec![function], ..Default::default() };
        let apart = Apart::decode(model.encode_to_vec().into(), &folder.join("m.onnx")).unwrap();
        let offset = |data: &TensorData| match data {
            TensorData::External(range) => range.read().unwrap()[0],
            TensorData::Inline(_) => panic!("all data are external"),
        };
        let found: Vec<u8> = apart.data.iter().map(offset).collect();
        assert_eq!(found, [1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 9]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// Numbers and bytes, inline and external: one message and one value.
    #[test]
    fn data_are_the_same_in_every_form() {
        let folder = folder("form");
        let tensor = |t: TensorProto| TensorProto { name: "t".into(), data_type: 2, ..t };
        let forms = [
            tensor(TensorProto { raw_data: vec![2, 3].into(), ..Default::default() }),
            tensor(TensorProto { int32_data: vec![2, 3], ..Default::default() }),
            external(&[("location", "w"), ("offset", "2"), ("length", "2")]),
        ];
        let apart = forms.map(|t| {
            let graph = GraphProto { initializer: vec![t], ..Default::default() };
            let model = ModelProto { graph: Some(graph), ..Default::default() };
            let Apart { message, data } =
                Apart::decode(model.encode_to_vec().into(), &folder.join("m.onnx")).unwrap();
            let [data] = data.try_into().unwrap_or_else(|_| panic!("one tensor"));
            match data {
                TensorData::Inline(bytes) => (message, bytes.to_vec()),
                TensorData::External(range) => (message, range.read().unwrap()),
            }
        });
        assert_eq!(apart[0].1, [2, 3]);
        assert!(apart[0] == apart[1] && apart[1] == apart[2]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_two_readers_may_read_differently_is_refused() {
        let folder = folder("twice");
        let refused = |t: TensorProto, words: &str| {
            let graph = GraphProto { initializer: vec![t], ..Default::default() };
            let model = ModelProto { graph: Some(graph), ..Default::default() };
            let bytes: Bytes = model.encode_to_vec().into();
            let Err(Error::Model(e)) = Apart::decode(bytes, &folder.join("m.onnx")) else {
                panic!("{words}")
            };
            assert!(e.contains("m.onnx: tensor \"t\"") && e.contains(words), "{e}");
        };
        refused(
            external(&[("location", "w"), ("location", "v")]),
            "states the location of its external data twice",
        );
        refused(external(&[("location", "w"), ("offset", "0"), ("offset", "1")]), "states the offset");
        refused(external(&[("location", "w"), ("offset", "-1")]), "external offset");
        refused(external(&[("location", "w"), ("offset", "11"), ("length", "1")]), "too short");
        refused(external(&[("location", "/etc/passwd")]), "not a file beside the model");
        refused(external(&[("location", "../w")]), "not a file beside the model");
        refused(external(&[("location", "v")]), "Put that file beside the model");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
