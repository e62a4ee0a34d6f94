//! [`Graph`] → protobuf bytes, weights inline or as one external file.

use super::{Attr, Dim, Graph, Node, Tensor, Value, proto};
use prost::Message;

/// Minimum size, in bytes, of weights in the external file.
const EXTERNAL_FROM: usize = 1024;

/// A model for a runtime: protobuf, and the bytes of its external file.
pub struct Encoded {
    /// The model file.
    pub model: Vec<u8>,
    /// Content of the external file; empty if all weights are inline.
    pub weights: Vec<u8>,
}

impl Encoded {
    /// Name of the external file in the model.
    pub const WEIGHTS: &'static str = "weights.bin";
}

impl Graph {
    /// Size of all constants, in bytes.
    pub fn weight_bytes(&self) -> usize {
        self.constants.values().map(|t| t.bytes.len()).sum()
    }

    /// Encodes as protobuf, weights inline. Protobuf is limited to 2 GB: use [`Graph::encode_external`]
    /// above.
    pub fn encode(&self) -> Vec<u8> {
        self.model(&mut |name, t| t.to_proto(name)).encode_to_vec()
    }

    /// [`Graph::encode`] in parts whose concatenation is the file, each with at most one constant, so that a
    /// reader of a stream needs no second copy of all weights. Protobuf readers merge repeated occurrences of
    /// a message, here the graph.
    pub fn encode_parts(&self) -> impl Iterator<Item = Vec<u8>> + Send + use<> {
        let mut model = self.model(&mut |name, t| t.to_proto(name));
        let constants = model.graph.as_mut().map(|graph| std::mem::take(&mut graph.initializer));
        let constants = constants.unwrap_or_default().into_iter().map(|constant| {
            let graph = proto::GraphProto { initializer: vec![constant], ..Default::default() };
            proto::ModelProto { graph: Some(graph), ..Default::default() }
        });
        std::iter::once(model).chain(constants).map(|part| part.encode_to_vec())
    }

    /// Encodes with large weights in an external file, [`Encoded::WEIGHTS`].
    pub fn encode_external(&self) -> Encoded {
        self.encode_beside(Encoded::WEIGHTS)
    }

    /// Encodes with large weights in an external file. `location`: its path, relative to the model's folder.
    pub fn encode_beside(&self, location: &str) -> Encoded {
        let mut weights = Vec::new();
        let model = self
            .model(&mut |name, t| {
                if t.bytes.len() < EXTERNAL_FROM {
                    return t.to_proto(name);
                }
                // Aligned, so that a runtime may map the file.
                weights.resize(weights.len().next_multiple_of(64), 0);
                let external_data = vec![
                    entry("location", location.into()),
                    entry("offset", weights.len().to_string()),
                    entry("length", t.bytes.len().to_string()),
                ];
                weights.extend_from_slice(&t.bytes);
                let data_location = proto::tensor_proto::DataLocation::External as i32;
                let raw_data = Default::default();
                proto::TensorProto { data_location, external_data, raw_data, ..t.to_proto(name) }
            })
            .encode_to_vec();
        Encoded { model, weights }
    }

    fn model(&self, constant: &mut dyn FnMut(&str, &Tensor) -> proto::TensorProto) -> proto::ModelProto {
        proto::ModelProto {
            // IR 10 belongs to opset 21.
            ir_version: 10,
            producer_name: "audit".into(),
            opset_import: self
                .opsets
                .iter()
                .map(|(domain, &version)| proto::OperatorSetIdProto { domain: domain.clone(), version })
                .collect(),
            graph: Some(self.graph_proto(constant)),
            functions: self.functions.clone(),
            metadata_props: self.metadata.iter().map(|(key, value)| entry(key, value.clone())).collect(),
            ..Default::default()
        }
    }

    fn graph_proto(
        &self,
        constant: &mut dyn FnMut(&str, &Tensor) -> proto::TensorProto,
    ) -> proto::GraphProto {
        proto::GraphProto {
            name: "audit".into(),
            node: self.nodes.iter().map(node).collect(),
            initializer: self.constants.iter().map(|(name, t)| constant(name, t)).collect(),
            input: self.inputs.iter().map(value).collect(),
            output: self.outputs.iter().map(value).collect(),
            ..Default::default()
        }
    }
}

fn entry(key: &str, value: String) -> proto::StringStringEntryProto {
    proto::StringStringEntryProto { key: key.into(), value }
}

fn node(n: &Node) -> proto::NodeProto {
    proto::NodeProto {
        op_type: n.op.clone(),
        domain: n.domain.clone(),
        name: n.name.clone(),
        input: n.inputs.clone(),
        output: n.outputs.clone(),
        attribute: n.attrs.iter().map(|(name, a)| attr(name, a)).collect(),
        ..Default::default()
    }
}

fn attr(name: &str, a: &Attr) -> proto::AttributeProto {
    use proto::attribute_proto::AttributeType as K;
    let typed =
        |kind: K| proto::AttributeProto { name: name.into(), r#type: kind as i32, ..Default::default() };
    match a {
        Attr::Int(v) => proto::AttributeProto { i: *v, ..typed(K::Int) },
        Attr::Float(v) => proto::AttributeProto { f: *v, ..typed(K::Float) },
        Attr::Str(v) => proto::AttributeProto { s: v.clone().into_bytes(), ..typed(K::String) },
        Attr::Ints(v) => proto::AttributeProto { ints: v.clone(), ..typed(K::Ints) },
        Attr::Floats(v) => proto::AttributeProto { floats: v.clone(), ..typed(K::Floats) },
        Attr::Tensor(t) => proto::AttributeProto { t: Some(t.to_proto("")), ..typed(K::Tensor) },
        Attr::Graph(g) => {
            let g = g.graph_proto(&mut |name, t| t.to_proto(name));
            proto::AttributeProto { g: Some(g), ..typed(K::Graph) }
        }
        Attr::Other(other) => proto::AttributeProto { name: name.into(), ..other.0.clone() },
    }
}

fn value(v: &Value) -> proto::ValueInfoProto {
    use proto::tensor_shape_proto::{Dimension, dimension::Value as D};
    let shape = v.shape.as_ref().map(|dims| proto::TensorShapeProto {
        dim: dims
            .iter()
            .map(|d| Dimension {
                value: match d {
                    Dim::Known(n) => Some(D::DimValue(*n)),
                    Dim::Free(name) if name.is_empty() => None,
                    Dim::Free(name) => Some(D::DimParam(name.clone())),
                },
                ..Default::default()
            })
            .collect(),
    });
    // The runtime infers values without element type.
    let tensor = proto::type_proto::Tensor { elem_type: v.dtype.code(), shape };
    let kind = (v.dtype.code() != 0).then_some(proto::TypeProto {
        value: Some(proto::type_proto::Value::TensorType(tensor)),
        ..Default::default()
    });
    proto::ValueInfoProto { name: v.name.clone(), r#type: kind, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn parts_are_the_whole() {
        let constants = [("w", [1.0, -2.0]), ("v", [0.5, 3.0])];
        let constants = constants.map(|(name, values)| (name.to_string(), Tensor::f32(&[2], &values)));
        let nodes = vec![Node::new("Add", &["w", "v"], "y")];
        let mut graph = Graph::new(nodes, constants.into());
        graph.outputs = vec![Value::new("y", super::super::DType::F32, &[2])];
        let parts: Vec<Vec<u8>> = graph.encode_parts().collect();
        assert_eq!(parts.len(), 3);
        let decoded =
            |bytes: Vec<u8>| Graph::decode_as_is(bytes.into(), Path::new("graph")).unwrap().encode();
        assert_eq!(decoded(parts.concat()), decoded(graph.encode()));
    }

    #[test]
    fn weights_beside_a_graph_are_its_own() {
        let values: Vec<f32> = (0..1000u16).map(f32::from).collect();
        let constants = ["v", "w"].map(|name| (name.to_string(), Tensor::f32(&[1000], &values)));
        let graph = Graph::new(vec![Node::new("Add", &["w", "v"], "y")], constants.into());
        let Encoded { model, weights } = graph.encode_external();
        assert!(model.len() < 1000 && weights.len() >= 8000);
        let decoded = |weights: &[u8]| {
            let (model, weights) = (model.clone().into(), weights.to_vec().into());
            Graph::decode_beside(model, weights, Path::new("graph"))
        };
        assert_eq!(decoded(&weights).unwrap().encode(), graph.encode());
        let short = decoded(&weights[..5000]).err().unwrap().to_string();
        assert!(short.contains("4000 are wanted"), "{short}");
    }
}
