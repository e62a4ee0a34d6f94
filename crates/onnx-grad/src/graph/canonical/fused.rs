//! Operators that include others: products with an activation, and the GELU family.

use super::{Attr, Done, Expansion, Node, Rewrite, contrib, standard};

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("Swish", 24, |rw, n| swish(rw, n, n.float("alpha", 1.0))),
    contrib("BiasGelu", |rw, n| gelu(rw, n, "none")),
    contrib("FastGelu", |rw, n| gelu(rw, n, "tanh")),
    contrib("FusedConv", conv).refuses(ACTIVATIONS),
    contrib("FusedGemm", gemm).refuses(ACTIVATIONS),
    contrib("FusedMatMul", matmul),
    contrib("GatedAdd", |rw, n| {
        let scaled = rw.op("Mul", &[&n.x(1)?, &n.x(2)?]);
        rw.finish(n, "Add", &[&n.x(0)?, &scaled], &[])
    }),
    contrib("Gelu", |rw, n| gelu(rw, n, "none")),
    contrib("QuickGelu", |rw, n| swish(rw, n, n.float("alpha", 1.702))),
    contrib("ScaledSiLU", |rw, n| {
        let x = match n.input(1) {
            Some(scale) => rw.op("Mul", &[&n.x(0)?, scale]),
            None => rw.scale(&n.x(0)?, n.float("alpha", 1.0)),
        };
        let gate = rw.op("Sigmoid", &[&x]);
        rw.finish(n, "Mul", &[&x, &gate], &[])
    }),
    contrib("TransposeMatMul", matmul),
];

const ACTIVATIONS: &str = "activations that ONNX Runtime doesn't fuse";

/// x · σ(α x)
fn swish(rw: &mut Rewrite, node: &Node, alpha: f32) -> Done {
    let x = node.x(0)?;
    let steeper = rw.scale(&x, alpha);
    let gate = rw.op("Sigmoid", &[&steeper]);
    rw.finish(node, "Mul", &[&x, &gate], &[])
}

/// GELU, of a sum if there is a bias.
fn gelu(rw: &mut Rewrite, node: &Node, approximate: &str) -> Done {
    let mut x = node.x(0)?;
    if let Some(bias) = node.input(1) {
        x = rw.op("Add", &[&x, bias]);
    }
    rw.finish(node, "Gelu", &[&x], &[("approximate", approximate.into())])
}

/// Attributes that a fused operator has in common with the plain one.
fn keep<'a>(node: &'a Node, names: &[&'a str]) -> Vec<(&'a str, Attr)> {
    names.iter().filter_map(|&name| Some((name, node.attrs.get(name)?.clone()))).collect()
}

fn conv(rw: &mut Rewrite, node: &Node) -> Done {
    let attrs = keep(node, &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"]);
    let (x, w) = (node.x(0)?, node.x(1)?);
    let inputs: Vec<&str> = [x.as_str(), &w].into_iter().chain(node.input(2)).collect();
    let mut y = rw.push("Conv", &inputs, &attrs);
    if let Some(sum) = node.input(3) {
        y = rw.op("Add", &[&y, sum]);
    }
    let given = node.floats("activation_params").unwrap_or_default();
    activation(rw, node, &y, |i| given.get(i).copied())
}

fn gemm(rw: &mut Rewrite, node: &Node) -> Done {
    let attrs = keep(node, &["alpha", "beta", "transA", "transB"]);
    let (a, b) = (node.x(0)?, node.x(1)?);
    let inputs: Vec<&str> = [a.as_str(), &b].into_iter().chain(node.input(2)).collect();
    let y = rw.push("Gemm", &inputs, &attrs);
    let names = ["activation_alpha", "activation_beta", "activation_gamma"];
    activation(rw, node, &y, |i| node.given_float(names[i]))
}

/// Appends the activation that a node names, with its parameters.
fn activation(rw: &mut Rewrite, node: &Node, y: &str, parameter: impl Fn(usize) -> Option<f32>) -> Done {
    // Names and values of the parameters.
    let named = |names: &[(&'static str, usize)]| -> Vec<(&str, Attr)> {
        names.iter().filter_map(|&(name, i)| Some((name, Attr::Float(parameter(i)?)))).collect()
    };
    match node.str("activation", "") {
        "" => rw.finish(node, "Identity", &[y], &[]),
        op @ ("Relu" | "Sigmoid" | "Tanh" | "Softplus" | "Softsign") => rw.finish(node, op, &[y], &[]),
        op @ ("LeakyRelu" | "Elu" | "ThresholdedRelu") => rw.finish(node, op, &[y], &named(&[("alpha", 0)])),
        op @ "HardSigmoid" => rw.finish(node, op, &[y], &named(&[("alpha", 0), ("beta", 1)])),
        op @ "Selu" => rw.finish(node, op, &[y], &named(&[("alpha", 0), ("gamma", 2)])),
        "Clip" => {
            let low = rw.scalar(parameter(0).unwrap_or(f32::MIN));
            let high = rw.scalar(parameter(1).unwrap_or(f32::MAX));
            rw.finish(node, "Clip", &[y, &low, &high], &[])
        }
        other => Err(format!("activation {other:?} is not covered")),
    }
}

fn matmul(rw: &mut Rewrite, node: &Node) -> Done {
    let mut side = |i: usize, [batch, last]: [&str; 2]| -> Result<String, String> {
        let mut x = node.x(i)?;
        if node.int(batch, 0) != 0 {
            x = first_behind_batch(rw, &x);
        }
        Ok(if node.int(last, 0) != 0 { swap_last(rw, &x) } else { x })
    };
    let (a, b) = (side(0, ["transBatchA", "transA"])?, side(1, ["transBatchB", "transB"])?);
    let a = rw.scale(&a, node.float("alpha", 1.0));
    rw.finish(node, "MatMul", &[&a, &b], &[])
}

/// Moves the first dimension to the last place but one.
fn first_behind_batch(rw: &mut Rewrite, x: &str) -> String {
    let (rows, batch, columns) = (rw.dim(x, 0), rw.dims(x, 1, Some(-1)), rw.dim(x, -1));
    let any = rw.ints(&[-1]);
    let flat = rw.concat(&[&rows, &any, &columns], 0);
    let flat = rw.op("Reshape", &[x, &flat]);
    let moved = rw.transpose(&flat, &[1, 0, 2]);
    let full = rw.concat(&[&batch, &rows, &columns], 0);
    rw.op("Reshape", &[&moved, &full])
}

/// Swaps the last two dimensions of a value of any rank: folds the others into one meanwhile.
fn swap_last(rw: &mut Rewrite, x: &str) -> String {
    let (lead, rows, columns) = (rw.dims(x, 0, Some(-2)), rw.dim(x, -2), rw.dim(x, -1));
    let any = rw.ints(&[-1]);
    let flat = rw.concat(&[&any, &rows, &columns], 0);
    let flat = rw.op("Reshape", &[x, &flat]);
    let swapped = rw.transpose(&flat, &[0, 2, 1]);
    let full = rw.concat(&[&lead, &columns, &rows], 0);
    rw.op("Reshape", &[&swapped, &full])
}
