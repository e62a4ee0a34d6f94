//! ONNX Runtime's own forms of standard operators, and products with packed weights.

use super::{Attr, DType, Done, Expansion, Node, Rewrite, Tensor, contrib};

pub(super) const EXPANSIONS: &[Expansion] = &[
    contrib("ExpandDims", |rw, node| {
        let axis = rw.reshape(&node.x(1)?, &[-1]);
        let axis = rw.push("Cast", &[&axis], &[("to", (DType::I64.code() as i64).into())]);
        rw.finish(node, "Unsqueeze", &[&node.x(0)?, &axis], &[])
    }),
    contrib("GridSample", grid_sample),
    contrib("MatMulNBits", matmul_bits)
        .refuses("weights, scales or zero points computed in the graph; g_idx; other bits than 4 and 8"),
    contrib("Trilu", |rw, node| {
        let inputs: Vec<&str> = node.inputs.iter().map(String::as_str).collect();
        rw.finish(node, "Trilu", &inputs, &[("upper", node.int("upper", 1).into())])
    }),
];

fn grid_sample(rw: &mut Rewrite, node: &Node) -> Done {
    let mode = match node.str("mode", "bilinear") {
        "bilinear" => "linear",
        "bicubic" => "cubic",
        other => other,
    };
    let attrs: [(&str, Attr); 3] = [
        ("mode", mode.into()),
        ("padding_mode", node.str("padding_mode", "zeros").into()),
        ("align_corners", node.int("align_corners", 0).into()),
    ];
    rw.finish(node, "GridSample", &[&node.x(0)?, &node.x(1)?], &attrs)
}

/// A · Wᵀ, where W [N, K] is packed in blocks along K, each with a scale and a zero point.
fn matmul_bits(rw: &mut Rewrite, node: &Node) -> Done {
    node.without_inputs(&[(4, "g_idx")])?;
    let (n, k) = (node.int("N", 0), node.int("K", 0));
    let (bits, block) = (node.int("bits", 4), node.int("block_size", 0));
    if !matches!(bits, 4 | 8) || n <= 0 || k <= 0 || block <= 0 || n.saturating_mul(k) > 1 << 32 {
        return Err(format!(
            "bits = {bits}, block_size = {block}, N = {n}, K = {k} are not covered, only 4 and 8 bits"
        ));
    }
    let constant = |i: usize, what: &str| match node.input(i) {
        None => Ok(None),
        Some(name) => match rw.constants.get(name) {
            Some(t) => Ok(Some(t.clone())),
            None => Err(format!("its {what} must be constant and are computed in the graph")),
        },
    };
    let weights = constant(1, "weights")?.ok_or("has no weights")?;
    let scales = constant(2, "scales")?.ok_or("has no scales")?;
    let zeros = constant(3, "zero points")?;
    let (blocks, per_byte) = ((k + block - 1) / block, 8 / bits);
    let row = (blocks * per_block(block, per_byte)) as usize;
    let scales = scales.to_f32s().ok_or("its scales are no floats")?;
    if weights.bytes.len() != n as usize * row || scales.len() != (n * blocks) as usize {
        return Err(format!(
            "holds {} bytes of weights and {} scales, which don't fit N, K and block_size",
            weights.bytes.len(),
            scales.len()
        ));
    }
    let value = |bytes: &[u8], i: i64| {
        let byte = bytes.get((i / per_byte) as usize).copied().unwrap_or(0);
        f32::from(if bits == 8 { byte } else { byte >> (4 * (i % 2)) & 15 })
    };
    let zero_row = ((blocks + per_byte - 1) / per_byte) as usize;
    let zero = |of: i64, at: i64| match &zeros {
        None => (1 << (bits - 1)) as f32,
        Some(zeros) => match zeros.to_f32s() {
            Some(floats) => floats.get((of * blocks + at) as usize).copied().unwrap_or(0.0),
            None => value(&zeros.bytes[(of as usize * zero_row).min(zeros.bytes.len())..], at),
        },
    };
    // As K rows of N, for MatMul.
    let mut dense = vec![0.0f32; (n * k) as usize];
    for of in 0..n {
        for at in 0..blocks {
            let (scale, zero) = (scales[(of * blocks + at) as usize], zero(of, at));
            let bytes = &weights.bytes[of as usize * row + (at * per_block(block, per_byte)) as usize..];
            for i in 0..block.min(k - at * block) {
                dense[((at * block + i) * n + of) as usize] = (value(bytes, i) - zero) * scale;
            }
        }
    }
    let dense = rw.constant(Tensor::f32(&[k, n], &dense));
    let a = node.x(0)?;
    match node.input(5) {
        None => rw.finish(node, "MatMul", &[&a, &dense], &[]),
        Some(bias) => {
            let product = rw.op("MatMul", &[&a, &dense]);
            rw.finish(node, "Add", &[&product, bias], &[])
        }
    }
}

/// Bytes of a block.
fn per_block(block: i64, per_byte: i64) -> i64 {
    (block + per_byte - 1) / per_byte
}
