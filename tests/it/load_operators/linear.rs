//! Products and convolutions.

use super::case::*;

pub const CASES: &[Row] = &[
    (MS, "CDist", distances),
    (MS, "ConvTransposeWithDynamicPads", conv_transpose),
    (MS, "FusedConv", fused_conv),
    (MS, "FusedGemm", fused_gemm),
    (MS, "FusedMatMul", |r| fused_matmul(r, "FusedMatMul")),
    (MS, "TransposeMatMul", |r| fused_matmul(r, "TransposeMatMul")),
    (MS, "MatMulNBits", matmul_bits),
];

fn fused_conv(r: &mut Rng) -> Case {
    let (group, per_in, per_out) = (r.int(1, 2), r.int(1, 2), r.int(1, 2));
    let sum = r.bool();
    let stride = r.int(1, 2);
    let x = [2, group * per_in, 6, 7];
    let inputs: &[&str] = if sum { &["x", "w", "b", "z"] } else { &["x", "w"] };
    let mut c = case(MS, "FusedConv", inputs, &["y"])
        .input(r, "x", &x)
        .weights(r, "w", &[group * per_out, per_in, 3, 3])
        .with("group", group)
        .with("strides", vec![stride, stride])
        .with("pads", vec![1, 0, 1, 0]);
    if sum {
        let y = [2, group * per_out, (6 - 1) / stride + 1, (7 - 3) / stride + 1];
        c = c.weights(r, "b", &[group * per_out]).input(r, "z", &y);
    }
    activation(r, c, true)
}

fn activation(r: &mut Rng, c: Case, listed: bool) -> Case {
    let op = r.pick(&["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip"]);
    // The product's kernel has no Clip, and the convolution's no Selu.
    let op = if op == "Clip" && !listed { "Selu" } else { op };
    let (a, b) = (0.1 + 0.2 * r.unit(), 0.5 + 0.2 * r.unit());
    let c = c.with("activation", op);
    match (op, listed) {
        ("LeakyRelu", true) => c.with("activation_params", vec![a]),
        ("HardSigmoid" | "Clip", true) => c.with("activation_params", vec![a, b]),
        ("LeakyRelu", false) => c.with("activation_alpha", a),
        ("HardSigmoid", false) => c.with("activation_alpha", a).with("activation_beta", b),
        ("Selu", false) => c.with("activation_alpha", a).with("activation_gamma", b),
        _ => c,
    }
}

fn fused_gemm(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let c = case(MS, "FusedGemm", &["a", "b", "c"], &["y"])
        .input(r, "a", &[k, m])
        .weights(r, "b", &[k, n])
        .weights(r, "c", &[n])
        .with("transA", 1)
        .with("alpha", 0.5 + r.unit())
        .with("beta", 0.5 + r.unit());
    activation(r, c, false)
}

fn fused_matmul(r: &mut Rng, op: &'static str) -> Case {
    let lead: Vec<i64> = (0..r.int(0, 2)).map(|_| r.int(1, 3)).collect();
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let mut side = |[rows, columns]: [i64; 2]| {
        let older = op == "TransposeMatMul";
        let (across, first) = (r.bool(), !older && !lead.is_empty() && r.bool());
        let [rows, columns] = if across { [columns, rows] } else { [rows, columns] };
        let shape = match first {
            true => [&[rows], lead.as_slice(), &[columns]].concat(),
            false => [lead.as_slice(), &[rows, columns]].concat(),
        };
        (shape, i64::from(across), i64::from(first))
    };
    let ((a, ta, first_a), (b, tb, first_b)) = (side([m, k]), side([k, n]));
    let c = case(MS, op, &["a", "b"], &["y"]).input(r, "a", &a).input(r, "b", &b);
    let c = c.with("transA", ta).with("transB", tb);
    let c = c.when(first_a + first_b > 0, |c| c.with("transBatchA", first_a).with("transBatchB", first_b));
    c.with("alpha", if r.bool() { 1.0 } else { 0.3 })
}

fn matmul_bits(r: &mut Rng) -> Case {
    let (m, n, k, block) = (r.int(1, 3), r.int(1, 4), 4 * r.int(1, 20), r.pick(&[16, 32]));
    let bits = r.pick(&[2, 4, 8]);
    let (blocks, per_byte) = ((k + block - 1) / block, 8 / bits);
    let mut bytes = |count: i64| -> Vec<u8> { (0..count).map(|_| r.int(0, 255) as u8).collect() };
    let (weights, zeros) =
        (bytes(n * blocks * block / per_byte), bytes(n * ((blocks + per_byte - 1) / per_byte)));
    let tensor = |shape: Vec<i64>, bytes: Vec<u8>| Tensor { dtype: DType::U8, shape, bytes: bytes.into() };
    let zeros = tensor(vec![n, zeros.len() as i64 / n], zeros);
    // Columns in another order than the groups that share a scale; the kernel supports it for 4 bits and
    // whole blocks.
    let sorted = bits == 4 && k % block == 0 && r.bool();
    let groups: Vec<i32> = (0..k).map(|_| r.int(0, blocks - 1) as i32).collect();
    let (with_zeros, g) = (r.bool(), if sorted { "g" } else { "" });
    case(MS, "MatMulNBits", &["x", "w", "s", if with_zeros { "z" } else { "" }, g], &["y"])
        .input(r, "x", &[2, m, k])
        .constant("w", tensor(vec![n, blocks, block / per_byte], weights))
        .weights(r, "s", &[n, blocks])
        .when(with_zeros, |c| c.constant("z", zeros))
        .when(sorted, |c| c.constant("g", int32(&groups)))
        .with("K", k)
        .with("N", n)
        .with("bits", bits)
        .with("block_size", block)
}

fn distances(r: &mut Rng) -> Case {
    let (m, n, d) = (r.int(1, 4), r.int(1, 4), r.int(1, 5));
    case(MS, "CDist", &["a", "b"], &["y"])
        .input(r, "a", &[m, d])
        .input(r, "b", &[n, d])
        .with("metric", r.pick(&["euclidean", "sqeuclidean"]))
}

fn conv_transpose(r: &mut Rng) -> Case {
    let (n, c, m, stride) = (r.int(1, 2), r.int(1, 3), r.int(1, 3), r.int(1, 2));
    let pads: Vec<i64> = (0..4).map(|_| r.int(0, 1)).collect();
    case(MS, "ConvTransposeWithDynamicPads", &["x", "w", "pads", "b"], &["y"])
        .input(r, "x", &[n, c, 3, 4])
        .weights(r, "w", &[c, m, 3, 3])
        .weights(r, "b", &[m])
        .constant("pads", Tensor::ints(&pads))
        .with("strides", vec![stride, stride])
}
