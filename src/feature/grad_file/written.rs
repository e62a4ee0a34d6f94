//! The files that `audit grad` writes: the graph, and its weights if they are large.

use crate::Result;
use crate::files::{self, hex};
use crate::report::Destination;
use crate::shards::journal::named;
use onnx_grad::Graph;
use onnx_grad::graph::{Apart, TensorData};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Digits of the hash in the name of weights.
const HASH: usize = 8;

/// Writes the graph, weights of `limit` bytes or more beside it, and removes the weights of the graph that it
/// replaces, unless they are those of `model` too. Returns the files.
pub(super) fn write(
    graph: &Graph,
    limit: usize,
    to: Destination,
    path: &Path,
    model: &Path,
) -> Result<Vec<PathBuf>> {
    let earlier = weights_of(path);
    let written = write_new(graph, limit, to, path)?;
    let of_model = |earlier: &Path| locations(model).iter().any(|used| earlier.ends_with(used));
    if let Some(earlier) = earlier.filter(|earlier| !written.contains(earlier) && !of_model(earlier)) {
        // The graph is written, whatever becomes of this file.
        let _ = std::fs::remove_file(earlier);
    }
    Ok(written)
}

/// The weights that an earlier run wrote beside the graph at `path`: the file that this graph names, and that
/// is named as here.
fn weights_of(path: &Path) -> Option<PathBuf> {
    let start = format!("{}.", path.file_name()?.to_string_lossy());
    let written = |location: &String| {
        let hash = location.strip_prefix(&start)?.strip_suffix(".data")?;
        let is_hash = hash.len() == HASH && hash.bytes().all(|b| b.is_ascii_hexdigit());
        is_hash.then(|| path.with_file_name(location))
    };
    locations(path).iter().find_map(written)
}

/// The files of weights that a model names; none if it can't be read.
fn locations(path: &Path) -> Vec<String> {
    let apart = files::read(path, files::LARGE).ok().and_then(|b| Apart::decode(b.into(), path).ok());
    let location = |data: TensorData| match data {
        TensorData::External(range) => Some(range.location),
        _ => None,
    };
    apart.into_iter().flat_map(|apart| apart.data).filter_map(location).collect()
}

fn write_new(graph: &Graph, limit: usize, to: Destination, path: &Path) -> Result<Vec<PathBuf>> {
    if graph.weight_bytes() < limit {
        to.write(&graph.encode())?;
        return Ok(vec![path.to_path_buf()]);
    }
    // Named by content: an earlier graph at this path keeps its own weights until it is replaced, and the new
    // graph has the new ones, whenever the process ends.
    let mut hash = Sha256::new();
    for weights in graph.constants.values() {
        hash.update((weights.bytes.len() as u64).to_le_bytes());
        hash.update(&weights.bytes[..]);
    }
    let beside = named(path, &format!("{}.data", &hex(&hash.finalize())[..HASH]));
    let name = beside.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let weights = Destination::open("-o", &beside)?;
    let encoded = graph.encode_beside(&name);
    weights.write(&encoded.weights)?;
    to.write(&encoded.model)?;
    Ok(vec![path.to_path_buf(), beside])
}

#[cfg(test)]
mod tests {
    use super::*;
    use onnx_grad::graph::Tensor;
    use std::collections::BTreeMap;

    /// The process may end between the two files: the earlier graph then still has its own weights, since the
    /// new ones have another name. In the end the earlier ones are removed, and no other file.
    #[test]
    fn a_graph_never_has_the_weights_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let (path, model) = (folder.path().join("g.onnx"), folder.path().join("m.onnx"));
        let written = |value: f32, limit: usize| {
            let weights = Tensor::f32(&[512], &[value; 512]);
            let graph = Graph::new(Vec::new(), BTreeMap::from([("w".to_string(), weights)]));
            let files = write(&graph, limit, Destination::open("-o", &path).unwrap(), &path, &model).unwrap();
            assert_eq!(files[0], path);
            files.get(1).cloned()
        };
        let of_others = ["0123abcd.data", "data"].map(|ending| named(&path, ending));
        of_others.iter().for_each(|file| std::fs::write(file, "").unwrap());
        let first = written(1.0, 0).unwrap();
        assert_eq!(written(1.0, 0).unwrap(), first);
        assert!(first.exists());
        let second = written(2.0, 0).unwrap();
        assert_ne!(second, first);
        assert!(second.exists() && !first.exists());
        // The model that is differentiated is a copy of the graph, and keeps its weights.
        std::fs::copy(&path, &model).unwrap();
        let third = written(4.0, 0).unwrap();
        assert!(second.exists() && third.exists());
        std::fs::remove_file(&model).unwrap();
        // With its weights in the graph itself.
        assert_eq!(written(3.0, usize::MAX), None);
        assert!(!third.exists() && of_others.iter().all(|file| file.exists()));
    }
}
