//! Operators with others inside: products with an activation, and the GELU family.

use super::{Attr, Done, Expansion, Node, Rewrite, contrib, standard};

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("Swish", 24, |rw, n| swish(rw, n, n.float("alpha", 1.0))),
    contrib("BiasGelu", |rw, n| gelu(rw, n, "none")),
    contrib("FastGelu", |rw, n| gelu(rw, n, "tanh")),
    contrib("FusedConv", conv).refuses("activations beyond the usual ten"),
    contrib("FusedGemm", gemm).refuses("activations beyond the usual ten"),
    contrib("FusedMatMul", matmul).refuses("transBatchA, transBatchB"),
    contrib("Gelu", |rw, n| gelu(rw, n, "none")),
    contrib("QuickGelu", |rw, n| swish(rw, n, n.float("alpha", 1.702))),
    contrib("TransposeMatMul", matmul).refuses("transBatchA, transBatchB"),
];

/// x · σ(α x)
fn swish(rw: &mut Rewrite, node: &Node, alpha: f32) -> Done {
    let x = node.x(0)?;
    let steeper = rw.scale(&x, alpha);
    let gate = rw.op("Sigmoid", &[&steeper]);
    rw.finish(node, "Mul", &[&x, &gate], &[])
}

/// GELU, of a sum where there is a bias.
fn gelu(rw: &mut Rewrite, node: &Node, approximate: &str) -> Done {
    let mut x = node.x(0)?;
    if let Some(bias) = node.input(1) {
        x = rw.op("Add", &[&x, bias]);
    }
    rw.finish(node, "Gelu", &[&x], &[("approximate", approximate.into())])
}

/// Attributes that a fused operator shares with the plain one.
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
    let given = match node.attrs.get("activation_params") {
        Some(Attr::Floats(v)) => v.as_slice(),
        _ => &[],
    };
    activation(rw, node, &y, |i| given.get(i).copied())
}

fn gemm(rw: &mut Rewrite, node: &Node) -> Done {
    let attrs = keep(node, &["alpha", "beta", "transA", "transB"]);
    let (a, b) = (node.x(0)?, node.x(1)?);
    let inputs: Vec<&str> = [a.as_str(), &b].into_iter().chain(node.input(2)).collect();
    let y = rw.push("Gemm", &inputs, &attrs);
    activation(rw, node, &y, |i| match node.attrs.get(["activation_alpha", "activation_beta"][i]) {
        Some(Attr::Float(v)) => Some(*v),
        _ => None,
    })
}

/// The activation that a node names, with its first and second parameter.
fn activation(rw: &mut Rewrite, node: &Node, y: &str, parameter: impl Fn(usize) -> Option<f32>) -> Done {
    let named = |names: [&'static str; 2]| -> Vec<(&str, Attr)> {
        (0..2)
            .filter_map(|i| Some((names[i], Attr::Float(parameter(i).filter(|_| !names[i].is_empty())?))))
            .collect()
    };
    match node.str("activation", "") {
        "" => rw.finish(node, "Identity", &[y], &[]),
        op @ ("Relu" | "Sigmoid" | "Tanh" | "Softplus" | "Softsign") => rw.finish(node, op, &[y], &[]),
        op @ ("LeakyRelu" | "Elu" | "ThresholdedRelu") => rw.finish(node, op, &[y], &named(["alpha", ""])),
        op @ "HardSigmoid" => rw.finish(node, op, &[y], &named(["alpha", "beta"])),
        "Clip" => {
            let low = rw.scalar(parameter(0).unwrap_or(f32::MIN));
            let high = rw.scalar(parameter(1).unwrap_or(f32::MAX));
            rw.finish(node, "Clip", &[y, &low, &high], &[])
        }
        other => Err(format!("activation {other:?} is not covered")),
    }
}

fn matmul(rw: &mut Rewrite, node: &Node) -> Done {
    node.only("transBatchA", 0)?;
    node.only("transBatchB", 0)?;
    let (mut a, mut b) = (node.x(0)?, node.x(1)?);
    if node.int("transA", 0) != 0 {
        a = swap_last(rw, &a);
    }
    if node.int("transB", 0) != 0 {
        b = swap_last(rw, &b);
    }
    let a = rw.scale(&a, node.float("alpha", 1.0));
    rw.finish(node, "MatMul", &[&a, &b], &[])
}

/// Swaps the last two dimensions of a value of any rank: the ones in front are folded into one on the way.
fn swap_last(rw: &mut Rewrite, x: &str) -> String {
    let (lead, rows, columns) = (rw.dims(x, 0, Some(-2)), rw.dim(x, -2), rw.dim(x, -1));
    let any = rw.ints(&[-1]);
    let flat = rw.concat(&[&any, &rows, &columns], 0);
    let flat = rw.op("Reshape", &[x, &flat]);
    let swapped = rw.transpose(&flat, &[0, 2, 1]);
    let full = rw.concat(&[&lead, &columns, &rows], 0);
    rw.op("Reshape", &[&swapped, &full])
}
