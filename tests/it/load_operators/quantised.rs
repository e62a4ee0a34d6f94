//! Operators on integers.

use super::case::*;

pub const CASES: &[Row] = &[
    ("", "QLinearConv", q_conv),
    ("", "QLinearMatMul", q_matmul),
    (MS, "DequantizeLinear", q_pair),
    (MS, "DynamicQuantizeMatMul", q_dynamic),
    (MS, "MatMulIntegerToFloat", q_to_float),
    (MS, "NhwcMaxPool", nhwc_max_pool),
    (MS, "QAttention", q_attention),
    (MS, "QGemm", q_gemm),
    (MS, "QLinearAdd", |r| q_two(r, "QLinearAdd")),
    (MS, "QLinearAveragePool", |r| q_one(r, "QLinearAveragePool")),
    (MS, "QLinearConcat", q_concat),
    (MS, "QLinearConv", own_q_conv),
    (MS, "QLinearGlobalAveragePool", |r| q_one(r, "QLinearGlobalAveragePool")),
    (MS, "QLinearLeakyRelu", |r| q_one(r, "QLinearLeakyRelu")),
    (MS, "QLinearMul", |r| q_two(r, "QLinearMul")),
    (MS, "QLinearSigmoid", |r| q_one(r, "QLinearSigmoid")),
    (MS, "QLinearSoftmax", |r| q_one(r, "QLinearSoftmax")),
    (MS, "QLinearWhere", q_where),
    (MS, "QuantizeLinear", q_pair),
];

/// Quantises the inputs, applies an operator to integers and dequantises its result. `inputs` names the
/// operator's inputs, in order: x, a and b are the quantised inputs; s… and z… scales and zero points; the
/// others are constants of `case`. `float` says that the operator's result is float.
fn on_integers(r: &mut Rng, mut c: Case, quantised: &[(&str, &[i64])], float: bool) -> Case {
    let byte = |v: i64| Tensor { dtype: DType::U8, shape: vec![], bytes: vec![v as u8].into() };
    let op = c.graph.nodes.pop().unwrap();
    for (name, shape) in quantised {
        c = c.input(r, &format!("{name}_float"), shape);
        let (s, z) = (format!("s{name}"), format!("z{name}"));
        c.graph.nodes.push(Node::new("QuantizeLinear", &[&format!("{name}_float"), &s, &z], name));
        c = c.constant(&s, Tensor::f32(&[], &[0.013 + 0.02 * r.unit()])).constant(&z, byte(r.int(110, 140)));
    }
    c.graph.nodes.push(op);
    if float {
        return c;
    }
    // One step of rounding, if the sum lies between two integers.
    c.step = 0.02 + 0.03 * r.unit();
    let out = c.graph.nodes.last_mut().unwrap();
    out.outputs = vec!["q".into()];
    c.graph.nodes.push(Node::new("DequantizeLinear", &["q", "sy", "zy"], "y"));
    let step = c.step;
    c.constant("sy", Tensor::f32(&[], &[step])).constant("zy", byte(r.int(110, 140)))
}

fn weights_of_bytes(r: &mut Rng, shape: &[i64]) -> Tensor {
    let bytes = (0..shape.iter().product()).map(|_| r.int(0, 255) as u8).collect();
    Tensor { dtype: DType::U8, shape: shape.to_vec(), bytes }
}

/// Scale and zero point of constant weights w.
fn with_weights(r: &mut Rng, c: Case, shape: &[i64]) -> Case {
    let weights = weights_of_bytes(r, shape);
    let zero = Tensor { dtype: DType::U8, shape: vec![], bytes: vec![r.int(100, 150) as u8].into() };
    c.constant("w", weights).constant("sw", Tensor::f32(&[], &[0.004])).constant("zw", zero)
}

fn q_conv(r: &mut Rng) -> Case {
    let (n, channels, m) = (r.int(1, 2), r.int(1, 3), r.int(1, 3));
    let bias: Vec<i32> = (0..m).map(|_| r.int(-3000, 3000) as i32).collect();
    let c = case("", "QLinearConv", &["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "bias"], &["y"]);
    let c = with_weights(r, c, &[m, channels, 3, 3])
        .constant("bias", int32(&bias))
        .with("pads", vec![1, 1, 1, 1]);
    on_integers(r, c, &[("x", &[n, channels, 4, 5])], false)
}

/// ONNX Runtime's own form, for images with channels last.
fn own_q_conv(r: &mut Rng) -> Case {
    let (n, channels, m) = (r.int(1, 2), r.int(1, 3), r.int(1, 3));
    let last = r.bool();
    let x = if last { [n, 4, 5, channels] } else { [n, channels, 4, 5] };
    let c = case(MS, "QLinearConv", &["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"], &["y"]);
    let c = with_weights(r, c, &[m, channels, 3, 3])
        .with("kernel_shape", vec![3, 3])
        .with("pads", vec![1, 0, 1, 0])
        .with("channels_last", i64::from(last));
    on_integers(r, c, &[("x", &x)], false)
}

fn nhwc_max_pool(r: &mut Rng) -> Case {
    let shape = [r.int(1, 2), r.int(2, 5), r.int(2, 5), r.int(1, 3)];
    let mut c = case(MS, "NhwcMaxPool", &["x"], &["q"])
        .with("kernel_shape", vec![2, 2])
        .with("strides", vec![1, r.int(1, 2)]);
    c.graph.outputs[0].name = "y".into();
    let mut c = on_integers(r, c, &[("x", &shape)], true);
    c.graph.nodes.push(Node::new("DequantizeLinear", &["q", "sx", "zx"], "y"));
    c
}

fn q_matmul(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let c = case("", "QLinearMatMul", &["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"], &["y"]);
    let c = with_weights(r, c, &[k, n]);
    on_integers(r, c, &[("x", &[m, k])], false)
}

fn q_gemm(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let bias: Vec<i32> = (0..n).map(|_| r.int(-3000, 3000) as i32).collect();
    let c = case(MS, "QGemm", &["x", "sx", "zx", "w", "sw", "zw", "bias", "sy", "zy"], &["y"]);
    let c = with_weights(r, c, &[n, k])
        .constant("bias", int32(&bias))
        .with("transB", 1)
        .with("alpha", r.pick(&[1.0f32, 0.5]));
    on_integers(r, c, &[("x", &[m, k])], false)
}

fn q_two(r: &mut Rng, op: &'static str) -> Case {
    let shape = [r.int(1, 3), r.int(1, 5)];
    let c = case(MS, op, &["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], &["y"]);
    on_integers(r, c, &[("a", &shape), ("b", &shape)], false)
}

fn q_one(r: &mut Rng, op: &'static str) -> Case {
    let shape = [r.int(1, 2), r.int(2, 4), r.int(2, 5), r.int(2, 5)];
    let mut c = case(MS, op, &["x", "sx", "zx", "sy", "zy"], &["y"]);
    c = match op {
        "QLinearAveragePool" => c
            .with("kernel_shape", vec![2, 2])
            .with("strides", vec![1, 1])
            .with("channels_last", i64::from(r.bool())),
        "QLinearGlobalAveragePool" => c.with("channels_last", i64::from(r.bool())),
        "QLinearLeakyRelu" => c.with("alpha", 0.3f32),
        "QLinearSoftmax" if r.bool() => c.with("axis", r.int(1, 3)).with("opset", 12),
        "QLinearSoftmax" => c.with("axis", -1).with("opset", 13),
        _ => c,
    };
    on_integers(r, c, &[("x", &shape)], false)
}

fn q_concat(r: &mut Rng) -> Case {
    let (n, k) = (r.int(1, 3), r.int(1, 4));
    let c =
        case(MS, "QLinearConcat", &["sy", "zy", "a", "sa", "za", "b", "sb", "zb"], &["y"]).with("axis", 1);
    on_integers(r, c, &[("a", &[n, k, 2]), ("b", &[n, 3, 2])], false)
}

fn q_to_float(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let c = case(MS, "MatMulIntegerToFloat", &["x", "w", "sx", "sw", "zx", "zw", "bias"], &["y"]);
    let c = with_weights(r, c, &[k, n]).weights(r, "bias", &[n]);
    on_integers(r, c, &[("x", &[m, k])], true)
}

fn q_dynamic(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let c = case(MS, "DynamicQuantizeMatMul", &["x", "w", "sw", "zw", "bias"], &["y"]).input(r, "x", &[m, k]);
    with_weights(r, c, &[k, n]).weights(r, "bias", &[n])
}

/// The pair of com.microsoft with nothing in between.
fn q_pair(r: &mut Rng) -> Case {
    let shape = [r.int(1, 3), r.int(1, 5)];
    let mut c = case(MS, "QuantizeLinear", &["x", "s", "z"], &["q"]).input(r, "x", &shape);
    let mut back = Node::new("DequantizeLinear", &["q", "s", "z"], "y");
    back.domain = MS.into();
    c.graph.nodes.push(back);
    c.graph.outputs[0].name = "y".into();
    let zero = Tensor { dtype: DType::U16, shape: vec![], bytes: 30000u16.to_le_bytes().to_vec().into() };
    c.constant("s", Tensor::f32(&[], &[0.001])).constant("z", zero)
}

fn q_attention(r: &mut Rng) -> Case {
    let (b, s, width, n, size) = (r.int(1, 2), r.int(1, 4), r.int(1, 5), r.int(1, 3), r.int(1, 3));
    let c = case(MS, "QAttention", &["x", "w", "b", "sx", "sw", "", "zx", "zw"], &["y"])
        .weights(r, "b", &[3 * n * size])
        .with("num_heads", n);
    let c = c.when(r.bool(), |c| c.with("unidirectional", 1));
    let c = with_weights(r, c, &[width, 3 * n * size]);
    on_integers(r, c, &[("x", &[b, s, width])], true)
}

fn q_where(r: &mut Rng) -> Case {
    let shape = [r.int(1, 3), r.int(1, 5)];
    let seen: Vec<bool> = (0..shape[0] * shape[1]).map(|_| r.bool()).collect();
    let c = case(MS, "QLinearWhere", &["c", "a", "sa", "za", "b", "sb", "zb", "sy", "zy"], &["y"])
        .constant("c", bools(&shape, &seen));
    on_integers(r, c, &[("a", &shape), ("b", &shape)], false)
}
