//! Normalisations: by the root mean square, with a sum before it, and groups as before version 21.

use super::{DAMAGED, Done, Expansion, Node, Rewrite, Tensor, contrib, standard};

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("GroupNormalization", 18, group).refuses("float64"),
    standard("RMSNormalization", 23, rms).refuses("float64"),
    // ONNX Runtime's own, although it is in the standard domain.
    standard("SimplifiedLayerNormalization", 1, rms),
    contrib("SkipLayerNormalization", skip_layer),
    contrib("SkipSimplifiedLayerNormalization", skip_rms).refuses("output of the mean"),
];

/// As an instance normalisation over the groups, as most exporters write it: ONNX Runtime has no kernel for
/// the operator itself, and its expansion loses digits in E[x²] − E[x]².
fn group(rw: &mut Rewrite, node: &Node) -> Done {
    let x = node.x(0)?;
    let groups = node.int("num_groups", 0);
    if !(1..=1 << 20).contains(&groups) {
        return Err(format!("num_groups is {groups}, expected 1 to {}. {DAMAGED}", 1 << 20));
    }
    let per_group =
        |rw: &mut Rewrite, value: f32| rw.constant(Tensor::f32(&[groups], &vec![value; groups as usize]));
    let (ones, zeros) = (per_group(rw, 1.0), per_group(rw, 0.0));
    let by_group = rw.reshape(&x, &[0, groups, -1]);
    let attrs = [("epsilon", node.float("epsilon", 1e-5).into())];
    let normal = rw.push("InstanceNormalization", &[&by_group, &ones, &zeros], &attrs);
    let (batch, channels, any) = (rw.dim(&x, 0), rw.dim(&x, 1), rw.ints(&[-1]));
    let by_channel = rw.concat(&[&batch, &channels, &any], 0);
    let mut y = rw.op("Reshape", &[&normal, &by_channel]);
    for (i, op) in [(1, "Mul"), (2, "Add")] {
        // Before version 21 there is one per group.
        let column = rw.reshape(&node.x(i)?, &[-1, 1]);
        let count = rw.op("Size", &[&column]);
        let each = rw.op("Div", &[&channels, &count]);
        let one = rw.ints(&[1]);
        let wide = rw.concat(&[&one, &each], 0);
        let spread = rw.op("Expand", &[&column, &wide]);
        let column = rw.reshape(&spread, &[-1, 1]);
        y = rw.op(op, &[&y, &column]);
    }
    let shape = rw.op("Shape", &[&x]);
    rw.finish(node, "Reshape", &[&y, &shape], &[])
}

/// x / √(mean x² + ε) · scale over the dimensions from `axis` on.
fn rms(rw: &mut Rewrite, node: &Node) -> Done {
    let x = node.x(0)?;
    let scale = node.x(1)?;
    let axis = node.int("axis", -1);
    let axes = if axis < 0 {
        // A damaged file may have an axis of any size, which must not become a list of that size.
        rw.ints(&(axis.max(-64)..0).collect::<Vec<_>>())
    } else {
        let shape = rw.op("Shape", &[&x]);
        let rank = rw.op("Size", &[&shape]);
        let (from, one) = (rw.int(axis), rw.int(1));
        rw.op("Range", &[&from, &rank, &one])
    };
    let inverse = inverse_rms(rw, &x, &axes, node.float("epsilon", 1e-5));
    rw.also(node, 1, &inverse);
    let normal = rw.op("Mul", &[&x, &inverse]);
    rw.finish(node, "Mul", &[&normal, &scale], &[])
}

fn inverse_rms(rw: &mut Rewrite, x: &str, axes: &str, epsilon: f32) -> String {
    let square = rw.op("Mul", &[x, x]);
    let mean = rw.op("ReduceMean", &[&square, axes]);
    let epsilon = rw.scalar(epsilon);
    let safe = rw.op("Add", &[&mean, &epsilon]);
    let root = rw.op("Sqrt", &[&safe]);
    rw.op("Reciprocal", &[&root])
}

/// input + skip (+ bias), which is also an output.
fn skip_sum(rw: &mut Rewrite, node: &Node, bias: usize) -> Result<String, String> {
    let mut sum = rw.op("Add", &[&node.x(0)?, &node.x(1)?]);
    if let Some(bias) = node.input(bias) {
        sum = rw.op("Add", &[&sum, bias]);
    }
    rw.also(node, 3, &sum);
    Ok(sum)
}

fn skip_layer(rw: &mut Rewrite, node: &Node) -> Done {
    let sum = skip_sum(rw, node, 4)?;
    let gamma = node.x(2)?;
    let inputs: Vec<&str> = [sum.as_str(), &gamma].into_iter().chain(node.input(3)).collect();
    let attrs = [("axis", (-1i64).into()), ("epsilon", node.float("epsilon", 1e-12).into())];
    rw.finish(node, "LayerNormalization", &inputs, &attrs)?;
    // Mean and inverse standard deviation are outputs 1 and 2 of both operators.
    if let Some(last) = rw.nodes.last_mut() {
        last.outputs.extend(node.outputs.iter().skip(1).take(2).cloned());
    }
    Ok(())
}

fn skip_rms(rw: &mut Rewrite, node: &Node) -> Done {
    node.without_outputs(&[(1, "mean")])?;
    let sum = skip_sum(rw, node, 3)?;
    let axes = rw.ints(&[-1]);
    let inverse = inverse_rms(rw, &sum, &axes, node.float("epsilon", 1e-12));
    rw.also(node, 2, &inverse);
    let normal = rw.op("Mul", &[&sum, &inverse]);
    rw.finish(node, "Mul", &[&normal, &node.x(2)?], &[])
}
