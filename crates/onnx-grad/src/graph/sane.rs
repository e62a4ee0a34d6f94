//! Properties that no real model has and ONNX Runtime doesn't refuse: some of its kernels read beyond their
//! tensors at impossible attributes, and it takes hours for graphs of a million nodes.

use super::{Attr, MICROSOFT, Node};

/// What to do about an impossible attribute.
pub const DAMAGED: &str = "The file is damaged; export the model again";

/// Maximum number of nodes. The largest vision models have about ten thousand.
pub const MOST_NODES: usize = 100_000;

/// Maximum rank of a tensor.
const RANK: i64 = 64;
/// Maximum size or count.
const MAX_SIZE: i64 = 1 << 24;

/// Minimum and maximum of attributes that are axes, counts and sizes.
const LIMITS: [(i64, i64, &[&str]); 6] = [
    (-RANK, RANK, &["axes", "axis", "batch_axis", "time_axis"]),
    (0, RANK, &["batch_dims", "perm"]),
    (-MAX_SIZE, MAX_SIZE, &["pads"]),
    (0, MAX_SIZE, &["kv_num_heads", "output_padding", "output_shape", "p", "q_num_heads", "split"]),
    (1, MAX_SIZE, &["blocksize", "dilations", "group", "kernel_shape", "num_groups", "num_heads"]),
    (1, MAX_SIZE, &["num_outputs", "size", "strides"]),
];

/// Refuses a node with an impossible attribute.
pub(super) fn check(node: &Node) -> Result<(), String> {
    if !node.domain.is_empty() && node.domain != MICROSOFT {
        return Ok(());
    }
    for (name, attr) in &node.attrs {
        let values = match attr {
            Attr::Int(v) => std::slice::from_ref(v),
            Attr::Ints(v) => v,
            _ => continue,
        };
        let limits = LIMITS.iter().find(|(_, _, names)| names.contains(&name.as_str()));
        let Some(&(mut least, most, _)) = limits else { continue };
        // 0: not stated.
        if name == "num_heads" && node.op == "RotaryEmbedding" {
            least = 0;
        }
        if let Some(v) = values.iter().find(|v| !(least..=most).contains(*v)) {
            return Err(format!(
                "{}: attribute {name} is {v}, expected {least} to {most}. {DAMAGED}",
                node.label()
            ));
        }
    }
    Ok(())
}

impl Node {
    /// Refuses impossible shapes of a node's inputs (−1 for unknown sizes) that the runtime doesn't refuse
    /// before it runs: its GatherND reads beyond the data if the indices have more batches.
    pub fn check_shapes<'a>(&self, shape: impl Fn(&str) -> Option<&'a [i64]>) -> Result<(), String> {
        let shape_of = |i: usize| self.input(i).and_then(&shape);
        let (Some(data), Some(other)) = (shape_of(0), shape_of(1)) else { return Ok(()) };
        match self.op.as_str() {
            "GatherND" if self.domain.is_empty() => self.check_batches(data, other),
            "Conv" if self.domain.is_empty() => match (data.get(1), other.get(1)) {
                (Some(&found), Some(&each)) if found >= 0 && each >= 0 => {
                    let expected = each.saturating_mul(self.int("group", 1));
                    (found == expected).then_some(()).ok_or_else(|| {
                        format!("{}: its input has {found} channels, expected {expected}", self.label())
                    })
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn check_batches(&self, data: &[i64], indices: &[i64]) -> Result<(), String> {
        let batches = data.iter().zip(indices).take(self.int("batch_dims", 0).max(0) as usize);
        match batches.into_iter().find(|(d, i)| **d >= 0 && **i >= 0 && d != i) {
            None => Ok(()),
            Some((d, i)) => Err(format!(
                "{}: its indices have {i} batches where its data has {d}. The file is damaged, or made for another batch; \
                 export the model again",
                self.label()
            )),
        }
    }
}
