//! `.onnx` file → [`Graph`].

use super::external::{ExternalRange, extent, regular};
use super::{Graph, canonical, proto, read, tensor};
use crate::{Error, Result};
use prost::{Message, bytes::Bytes};
use std::path::Path;

impl Graph {
    /// Loads a model and rewrites it to the canonical opset ([`super::OPSET`]).
    ///
    /// Weights may be inline or in files beside the model. Errors (exit code 3) name the file and the fault:
    /// not ONNX, truncated, external data missing.
    pub fn load(path: &Path) -> Result<Graph> {
        let bytes = regular(path).and_then(|()| std::fs::read(path)).map_err(|e| {
            Error::Unreadable(format!(
                "can't read the model {}: {e}. Give the path of an .onnx file",
                path.display()
            ))
        })?;
        Self::decode(bytes.into(), path)
    }

    /// [`Graph::load`] from bytes; `path` locates external data and names the file in errors.
    pub fn decode(bytes: Bytes, path: &Path) -> Result<Graph> {
        let mut graph = Self::decode_as_is(bytes, path)?;
        canonical::rewrite(&mut graph).map_err(|e| Error::Model(format!("{}: {e}", path.display())))?;
        Ok(graph)
    }

    /// Decodes without rewriting to the canonical opset.
    pub fn decode_as_is(bytes: Bytes, path: &Path) -> Result<Graph> {
        let external = |tensor: &proto::TensorProto| ExternalRange::of(tensor, path)?.read().map(Bytes::from);
        Self::decode_with(bytes, path, &external)
    }

    /// [`Graph::decode_as_is`] of a graph whose external data are all in `weights`; `path` names the graph in
    /// errors.
    pub fn decode_beside(bytes: Bytes, weights: Bytes, path: &Path) -> Result<Graph> {
        let external = |tensor: &proto::TensorProto| {
            let (offset, length) = extent(tensor)?;
            let available = (weights.len() as u64).saturating_sub(offset);
            match length.unwrap_or(available) {
                length if length <= available => {
                    Ok(weights.slice(offset as usize..(offset + length) as usize))
                }
                length => Err(format!(
                    "has {available} bytes of external data at {offset}, and {length} are wanted"
                )),
            }
        };
        Self::decode_with(bytes, path, &external)
    }

    fn decode_with(bytes: Bytes, path: &Path, external: tensor::External) -> Result<Graph> {
        let bad = |why: String| Error::Model(format!("{}: {why}", path.display()));
        let mut model =
            proto::ModelProto::decode(bytes.clone()).map_err(|e| bad(not_onnx(&bytes, Some(&e))))?;
        let opsets =
            model.opset_import.iter().map(|o| (read::norm(&o.domain).to_string(), o.version)).collect();
        let Some(mut g) = model.graph.take() else { return Err(bad(not_onnx(&bytes, None))) };
        if g.node.is_empty() && g.output.is_empty() {
            return Err(bad("the file holds an empty graph. Export the model again".into()));
        }
        // Operator sets follow the graph: a file that is truncated between them is valid protobuf.
        if model.opset_import.is_empty() {
            return Err(bad(
                "the file is truncated: it names no operator set. Copy or export it again".into()
            ));
        }
        let mut graph = read::graph(&mut g, external).map_err(bad)?;
        graph.opsets = opsets;
        graph.functions = model.functions;
        graph.metadata = model.metadata_props.into_iter().map(|p| (p.key, p.value)).collect();
        Ok(graph)
    }
}

fn not_onnx(bytes: &[u8], error: Option<&prost::DecodeError>) -> String {
    // Every ONNX file starts with field 1 (ir_version) as a varint.
    if bytes.is_empty() {
        return "the file is empty, not an ONNX model".into();
    }
    if bytes.starts_with(b"version https://git-lfs") {
        return "this is a Git LFS pointer, not the model itself. Fetch it with `git lfs pull`".into();
    }
    if bytes[0] != 0x08 {
        return "this is not an ONNX file. Export the model with torch.onnx.export or tf2onnx".into();
    }
    match error {
        Some(e) => {
            format!(
                "the file is truncated or damaged after {} bytes ({e}). Copy or export it again",
                bytes.len()
            )
        }
        None => "the file is truncated: it ends before its graph. Copy or export it again".into(),
    }
}
