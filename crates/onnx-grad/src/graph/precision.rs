//! Half precision, widened to float32.

use super::{Attr, DType, Graph, Tensor};

/// Attributes that are an element type.
const TYPES: [&str; 6] =
    ["dtype", "output_datatype", "output_dtype", "softmax_precision", "stash_type", "to"];

/// Rewrites a graph in float16 or bfloat16, or one that casts between these and float32, to float32 only.
/// Returns the narrowest type of the graph; float32 if it has no other.
///
/// Half precision loses gradients: the smallest float16 is 6e-8, gradients are often smaller, and sums over
/// readers and positions round at every step. The widened graph computes the model without rounding; a
/// float16 output differs from it by rounding only.
pub(super) fn widen(graph: &mut Graph) -> DType {
    let mut narrowest = DType::F32;
    for t in graph.constants.values_mut() {
        widen_tensor(t, &mut narrowest);
    }
    for value in graph.inputs.iter_mut().chain(&mut graph.outputs) {
        widen_type(&mut value.dtype, &mut narrowest);
    }
    for node in &mut graph.nodes {
        for (name, attr) in &mut node.attrs {
            match attr {
                Attr::Int(code) if TYPES.contains(&name.as_str()) => {
                    let mut dtype = DType::from_code(i32::try_from(*code).unwrap_or(0));
                    if half(dtype) {
                        widen_type(&mut dtype, &mut narrowest);
                        *code = dtype.code().into();
                    }
                }
                Attr::Tensor(t) => widen_tensor(t, &mut narrowest),
                Attr::Graph(g) => narrowest = narrower(narrowest, widen(g)),
                _ => {}
            }
        }
    }
    narrowest
}

fn half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The less precise type.
fn narrower(a: DType, b: DType) -> DType {
    if a == DType::BF16 || b == DType::F32 { a } else { b }
}

fn widen_type(dtype: &mut DType, narrowest: &mut DType) {
    if half(*dtype) {
        *narrowest = narrower(*narrowest, *dtype);
        *dtype = DType::F32;
    }
}

fn widen_tensor(t: &mut Tensor, narrowest: &mut DType) {
    if half(t.dtype)
        && let Some(values) = t.to_f32s()
    {
        *narrowest = narrower(*narrowest, t.dtype);
        *t = Tensor::f32(&t.shape, &values);
    }
}
