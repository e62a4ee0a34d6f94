//! ONNX Runtime's own forms of standard operators, and products with packed weights.

use super::versions::grid_mode;
use super::{Attr, DAMAGED, DType, Done, Expansion, Node, Rewrite, Tensor, contrib, refs};

pub(super) const EXPANSIONS: &[Expansion] = &[
    contrib("CDist", distances),
    contrib("ConvTransposeWithDynamicPads", conv_transpose).refuses("pads computed in the graph"),
    contrib("ExpandDims", |rw, node| {
        let axis = rw.reshape(&node.x(1)?, &[-1]);
        let axis = rw.cast(&axis, DType::I64);
        rw.finish(node, "Unsqueeze", &[&node.x(0)?, &axis], &[])
    }),
    contrib("GatherND", |rw, node| {
        let at = rw.cast(&node.x(1)?, DType::I64);
        rw.finish(node, "GatherND", &[&node.x(0)?, &at], &[])
    }),
    contrib("GridSample", grid_sample),
    contrib("MatMulNBits", matmul_bits)
        .refuses("weights, scales, zero points or g_idx computed in the graph; other bits than 2, 4 and 8"),
    contrib("Pad", |rw, node| {
        let mut inputs = vec![node.x(0)?, rw.reshape(&node.x(1)?, &[-1])];
        if let Some(value) = node.input(2) {
            inputs.push(rw.reshape(value, &[]));
        }
        rw.finish(node, "Pad", &refs(&inputs), &[("mode", node.str("mode", "constant").into())])
    }),
    contrib("Trilu", |rw, node| {
        rw.finish(node, "Trilu", &refs(&node.inputs), &[("upper", node.int("upper", 1).into())])
    }),
    contrib("UnfoldTensor", unfold),
];

/// Distances between all rows of two matrices.
fn distances(rw: &mut Rewrite, node: &Node) -> Done {
    let (zero, one, two) = (rw.ints(&[0]), rw.ints(&[1]), rw.ints(&[2]));
    let rows = rw.op("Unsqueeze", &[&node.x(0)?, &one]);
    let columns = rw.op("Unsqueeze", &[&node.x(1)?, &zero]);
    let apart = rw.op("Sub", &[&rows, &columns]);
    let op = match node.str("metric", "sqeuclidean") {
        "euclidean" => "ReduceL2",
        "sqeuclidean" => "ReduceSumSquare",
        other => return Err(format!("metric={other} is not known")),
    };
    rw.finish(node, op, &[&apart, &two], &[("keepdims", 0i64.into())])
}

/// Its third input is the pads.
fn conv_transpose(rw: &mut Rewrite, node: &Node) -> Done {
    let mut attrs: Vec<(&str, Attr)> = node.attrs.iter().map(|(k, v)| (k.as_str(), v.clone())).collect();
    if let Some(pads) = node.input(2) {
        let pads = rw.constants.get(pads).and_then(Tensor::to_i64s);
        let pads = pads.ok_or("its pads must be constant and are computed in the graph")?;
        attrs.push(("pads", pads.into()));
    }
    let (x, w) = (node.x(0)?, node.x(1)?);
    let inputs: Vec<&str> = [x.as_str(), &w].into_iter().chain(node.input(3)).collect();
    rw.finish(node, "ConvTranspose", &inputs, &attrs)
}

/// Windows of `size` values along an axis, `step` apart, as a new last axis.
fn unfold(rw: &mut Rewrite, node: &Node) -> Done {
    let (dim, size, step) = (node.int("dim", -1), node.int("size", 0), node.int("step", 1));
    if size < 1 || step < 1 {
        return Err(format!("size is {size} and step {step}, expected 1 or more. {DAMAGED}"));
    }
    let x = node.x(0)?;
    let axis = rw.ints(&[dim]);
    let [before, length, after] = rw.around(&x, &axis);
    let folded = rw.concat(&[&before, &length, &after], 0);
    let folded = rw.op("Reshape", &[&x, &folded]);
    // 0, step, … while a window fits.
    let less = rw.ints(&[size - 1]);
    let end = rw.op("Sub", &[&length, &less]);
    let starts = rw.counted(&end, step, &[-1, 1]);
    let within = rw.constant(Tensor::i64(&[1, size], &(0..size).collect::<Vec<_>>()));
    let places = rw.op("Add", &[&starts, &within]);
    let windows = rw.push("Gather", &[&folded, &places], &[("axis", 1i64.into())]);
    let windows = rw.transpose(&windows, &[0, 1, 3, 2]);
    let count = rw.dim(&starts, 0);
    let (front, width) = (rw.dims(&x, 0, Some(dim)), rw.ints(&[size]));
    let back = match dim {
        -1 => rw.ints(&[]),
        _ => rw.dims(&x, dim + 1, None),
    };
    let shape = rw.concat(&[&front, &count, &back, &width], 0);
    rw.finish(node, "Reshape", &[&windows, &shape], &[])
}

fn grid_sample(rw: &mut Rewrite, node: &Node) -> Done {
    let attrs: [(&str, Attr); 3] = [
        ("mode", grid_mode(node).into()),
        ("padding_mode", node.str("padding_mode", "zeros").into()),
        ("align_corners", node.int("align_corners", 0).into()),
    ];
    rw.finish(node, "GridSample", &[&node.x(0)?, &node.x(1)?], &attrs)
}

/// A · Wᵀ, where W [N, K] is packed in blocks along K, each with a scale and a zero point.
fn matmul_bits(rw: &mut Rewrite, node: &Node) -> Done {
    let dense = unpacked(rw, node)?;
    let dense = rw.constant(dense);
    let a = node.x(0)?;
    match node.input(5) {
        None => rw.finish(node, "MatMul", &[&a, &dense], &[]),
        Some(bias) => {
            let product = rw.op("MatMul", &[&a, &dense]);
            rw.finish(node, "Add", &[&product, bias], &[])
        }
    }
}

/// The packed weights Wᵀ as a matrix [K, N]. Errors: the inputs that hold them are computed in the graph, or
/// don't fit each other.
fn unpacked(rw: &Rewrite, node: &Node) -> Result<Tensor, String> {
    let (n, k) = (node.int("N", 0), node.int("K", 0));
    let (bits, block) = (node.int("bits", 4), node.int("block_size", 0));
    if !matches!(bits, 2 | 4 | 8) || n <= 0 || k <= 0 || block <= 0 || n.saturating_mul(k) > 1 << 32 {
        return Err(format!(
            "bits = {bits}, block_size = {block}, N = {n}, K = {k} are not covered, only 2, 4 and 8 bits"
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
    let groups = constant(4, "groups (g_idx)")?.and_then(|t| t.to_i64s());
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
    if groups.as_ref().is_some_and(|g| g.len() < k as usize || g.iter().any(|at| !(0..blocks).contains(at))) {
        return Err(format!("its groups (g_idx) must be {k} numbers from 0 to {}", blocks - 1));
    }
    let value = |bytes: &[u8], i: i64| {
        let byte = bytes.get((i / per_byte) as usize).copied().unwrap_or(0);
        f32::from(byte >> (bits * (i % per_byte)) & (u8::MAX >> (8 - bits)))
    };
    let zero_row = ((blocks + per_byte - 1) / per_byte) as usize;
    let zero = |of: i64, at: i64| match &zeros {
        None => (1 << (bits - 1)) as f32,
        Some(zeros) => match zeros.to_f32s() {
            Some(floats) => floats.get((of * blocks + at) as usize).copied().unwrap_or(0.0),
            None => value(&zeros.bytes[(of as usize * zero_row).min(zeros.bytes.len())..], at),
        },
    };
    let mut dense = vec![0.0f32; (n * k) as usize];
    for of in 0..n {
        for at in 0..blocks {
            let bytes = &weights.bytes[of as usize * row + (at * per_block(block, per_byte)) as usize..];
            for i in 0..block.min(k - at * block) {
                let column = at * block + i;
                // If columns were sorted before packing, `groups` has the index of their scale.
                let group = groups.as_ref().map_or(at, |groups| groups[column as usize]);
                let (scale, zero) = (scales[(of * blocks + group) as usize], zero(of, group));
                dense[(column * n + of) as usize] = (value(bytes, i) - zero) * scale;
            }
        }
    }
    Ok(Tensor::f32(&[k, n], &dense))
}

/// Bytes of a block.
fn per_block(block: i64, per_byte: i64) -> i64 {
    (block + per_byte - 1) / per_byte
}
