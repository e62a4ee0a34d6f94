//! Operators that compute with quantised integers, as the float operator between DequantizeLinear and
//! QuantizeLinear, which is their definition. They sum integers exactly and round once; so does the float
//! operator, apart from the last bits of its sum.

use super::{Attr, DType, Done, Expansion, Node, Rewrite, contrib, refs, standard};

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("QLinearConv", 10, conv),
    standard("QLinearMatMul", 10, matmul),
    contrib("DequantizeLinear", |rw, node| plain(rw, node, "DequantizeLinear")),
    contrib("DynamicQuantizeMatMul", dynamic_matmul),
    contrib("MatMulIntegerToFloat", matmul_to_float),
    contrib("NhwcMaxPool", |rw, node| {
        let (to, back) = channels_last(kernel_rank(node)?);
        let x = rw.transpose(&node.x(0)?, &to);
        let y = rw.push("MaxPool", &[&x], &plain_attributes(node));
        rw.finish(node, "Transpose", &[&y], &[("perm", back.into())])
    }),
    contrib("QGemm", gemm),
    contrib("QLinearAdd", |rw, node| binary(rw, node, "Add")),
    contrib("QLinearAveragePool", average_pool),
    contrib("QLinearConcat", concat),
    contrib("QLinearConv", conv).refuses("channels_last without kernel_shape"),
    contrib("QLinearGlobalAveragePool", global_average_pool),
    contrib("QLinearLeakyRelu", |rw, node| unary(rw, node, "LeakyRelu")),
    contrib("QLinearMul", |rw, node| binary(rw, node, "Mul")),
    contrib("QLinearSigmoid", |rw, node| unary(rw, node, "Sigmoid")),
    contrib("QLinearSoftmax", softmax),
    contrib("QLinearWhere", |rw, node| {
        let (a, b) = (rw.numbers(node, 1, 1)?, rw.numbers(node, 4, 1)?);
        let y = rw.op("Where", &[&node.x(0)?, &a, &b]);
        rw.finish_quantised(node, &y, 7)
    }),
    contrib("QuantizeLinear", |rw, node| plain(rw, node, "QuantizeLinear")),
];

impl Rewrite<'_> {
    /// The numbers behind input `i`; inputs `i` + 1 and `i` + 2 are its scale and zero point, or one per
    /// slice along `axis`.
    fn numbers(&mut self, node: &Node, i: usize, axis: i64) -> Result<String, String> {
        self.dequantised(&node.x(i)?, &node.x(i + 1)?, node.input(i + 2), axis)
    }
    pub(super) fn dequantised(
        &mut self,
        x: &str,
        scale: &str,
        zero: Option<&str>,
        axis: i64,
    ) -> Result<String, String> {
        let inputs: Vec<&str> = [x, scale].into_iter().chain(zero).collect();
        Ok(self.push("DequantizeLinear", &inputs, &[("axis", axis.into())]))
    }
    /// Quantises the value that replaces a node; inputs `i` and `i` + 1 are its scale and zero point.
    fn finish_quantised(&mut self, node: &Node, y: &str, i: usize) -> Done {
        let scale = node.x(i)?;
        let inputs: Vec<&str> = [y, &scale].into_iter().chain(node.input(i + 1)).collect();
        self.finish(node, "QuantizeLinear", &inputs, &[])
    }
    /// A bias in int32, in units of the product of two scales.
    fn bias(&mut self, bias: &str, scales: [&str; 2]) -> String {
        let float = self.cast(bias, DType::F32);
        let unit = self.op("Mul", &scales);
        self.op("Mul", &[&float, &unit])
    }
}

/// The attributes of a node, without those of the quantised form.
fn plain_attributes(node: &Node) -> Vec<(&str, Attr)> {
    let excluded = ["channels_last", "opset"];
    node.attrs
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()))
        .filter(|(name, _)| !excluded.contains(name))
        .collect()
}

/// The operator of the same name in the standard set.
fn plain(rw: &mut Rewrite, node: &Node, op: &str) -> Done {
    rw.finish(node, op, &refs(&node.inputs), &plain_attributes(node))
}

fn conv(rw: &mut Rewrite, node: &Node) -> Done {
    let (x, w) = (rw.numbers(node, 0, 1)?, rw.numbers(node, 3, 0)?);
    let bias = match node.input(8) {
        Some(bias) => Some(rw.bias(bias, [&node.x(1)?, &node.x(4)?])),
        None => None,
    };
    let last = match node.int("channels_last", 0) {
        0 => None,
        _ => Some(channels_last(kernel_rank(node)?)),
    };
    let x = last.as_ref().map_or(x.clone(), |(to, _)| rw.transpose(&x, to));
    let inputs: Vec<&str> = [x.as_str(), &w].into_iter().chain(bias.as_deref()).collect();
    let y = rw.push("Conv", &inputs, &plain_attributes(node));
    let y = last.map_or(y.clone(), |(_, back)| rw.transpose(&y, &back));
    rw.finish_quantised(node, &y, 6)
}

/// The rank of a pool's input, which is known if the node has kernel_shape.
fn kernel_rank(node: &Node) -> Result<usize, String> {
    let kernel = node.ints("kernel_shape").ok_or("has no kernel_shape, and its channels come last")?;
    Ok(kernel.len() + 2)
}

/// The permutations that move channels from the last place to the second, and back.
fn channels_last(rank: usize) -> (Vec<i64>, Vec<i64>) {
    let rank = rank as i64;
    let to = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    (to, [0].into_iter().chain(2..rank).chain([1]).collect())
}

fn average_pool(rw: &mut Rewrite, node: &Node) -> Done {
    if node.int("channels_last", 0) == 0 {
        return unary(rw, node, "AveragePool");
    }
    let (to, back) = channels_last(kernel_rank(node)?);
    let x = rw.numbers(node, 0, 1)?;
    let x = rw.transpose(&x, &to);
    let y = rw.push("AveragePool", &[&x], &plain_attributes(node));
    let y = rw.transpose(&y, &back);
    rw.finish_quantised(node, &y, 3)
}

fn global_average_pool(rw: &mut Rewrite, node: &Node) -> Done {
    if node.int("channels_last", 0) == 0 {
        return unary(rw, node, "GlobalAveragePool");
    }
    // The axes between batch and channels.
    let x = rw.numbers(node, 0, 1)?;
    let shape = rw.op("Shape", &[&x]);
    let rank = rw.op("Size", &[&shape]);
    let one = rw.int(1);
    let end = rw.op("Sub", &[&rank, &one]);
    let axes = rw.op("Range", &[&one, &end, &one]);
    let y = rw.op("ReduceMean", &[&x, &axes]);
    rw.finish_quantised(node, &y, 3)
}

fn matmul(rw: &mut Rewrite, node: &Node) -> Done {
    let (a, b) = (rw.numbers(node, 0, -2)?, rw.numbers(node, 3, -1)?);
    let y = rw.op("MatMul", &[&a, &b]);
    rw.finish_quantised(node, &y, 6)
}

fn binary(rw: &mut Rewrite, node: &Node, op: &str) -> Done {
    let (a, b) = (rw.numbers(node, 0, 1)?, rw.numbers(node, 3, 1)?);
    let y = rw.op(op, &[&a, &b]);
    rw.finish_quantised(node, &y, 6)
}

fn unary(rw: &mut Rewrite, node: &Node, op: &str) -> Done {
    let x = rw.numbers(node, 0, 1)?;
    let y = rw.push(op, &[&x], &plain_attributes(node));
    rw.finish_quantised(node, &y, 3)
}

/// Before opset 13, an axis stands for itself and all later ones.
fn softmax(rw: &mut Rewrite, node: &Node) -> Done {
    let axis = node.int("axis", -1);
    let x = rw.numbers(node, 0, 1)?;
    let y = if node.int("opset", 13) < 13 && axis != -1 {
        let shape = rw.op("Shape", &[&x]);
        let flat = rw.push("Flatten", &[&x], &[("axis", axis.into())]);
        let soft = rw.push("Softmax", &[&flat], &[("axis", (-1i64).into())]);
        rw.op("Reshape", &[&soft, &shape])
    } else {
        rw.push("Softmax", &[&x], &[("axis", axis.into())])
    };
    rw.finish_quantised(node, &y, 3)
}

fn concat(rw: &mut Rewrite, node: &Node) -> Done {
    let count = node.inputs.len().saturating_sub(2) / 3;
    let parts = (0..count).map(|k| rw.numbers(node, 2 + 3 * k, 1)).collect::<Result<Vec<_>, _>>()?;
    let y = rw.concat(&refs(&parts), node.int("axis", 1));
    rw.finish_quantised(node, &y, 0)
}

/// Float, if the output has no scale.
fn gemm(rw: &mut Rewrite, node: &Node) -> Done {
    let transposed = node.int("transB", 0) != 0;
    let (a, b) = (rw.numbers(node, 0, 1)?, rw.numbers(node, 3, if transposed { 0 } else { 1 })?);
    let bias = match node.input(6) {
        Some(bias) => {
            // Its unit has the factor alpha too.
            let bias = rw.bias(bias, [&node.x(1)?, &node.x(4)?]);
            Some(rw.scale(&bias, node.float("alpha", 1.0)))
        }
        None => None,
    };
    let product = rw.push("Gemm", &[&a, &b], &plain_attributes(node));
    let y = match bias {
        Some(bias) => rw.op("Add", &[&product, &bias]),
        None => product,
    };
    match node.input(7) {
        Some(_) => rw.finish_quantised(node, &y, 7),
        None => rw.finish(node, "Identity", &[&y], &[]),
    }
}

fn add_bias(rw: &mut Rewrite, node: &Node, y: &str, i: usize) -> Done {
    match node.input(i) {
        Some(bias) => rw.finish(node, "Add", &[y, bias], &[]),
        None => rw.finish(node, "Identity", &[y], &[]),
    }
}

/// Inputs are A, B, their scales, their zero points and a bias.
fn matmul_to_float(rw: &mut Rewrite, node: &Node) -> Done {
    let a = rw.dequantised(&node.x(0)?, &node.x(2)?, node.input(4), -2)?;
    let b = rw.dequantised(&node.x(1)?, &node.x(3)?, node.input(5), -1)?;
    let y = rw.op("MatMul", &[&a, &b]);
    add_bias(rw, node, &y, 6)
}

/// Inputs are A in float, B, its scale, its zero point and a bias. A is quantised by its extremes.
fn dynamic_matmul(rw: &mut Rewrite, node: &Node) -> Done {
    let [q, scale, zero] = [0; 3].map(|_| rw.name("dynamic"));
    let mut quantise = Node::new("DynamicQuantizeLinear", &[&node.x(0)?], "");
    quantise.outputs = vec![q.clone(), scale.clone(), zero.clone()];
    rw.nodes.push(quantise);
    let a = rw.dequantised(&q, &scale, Some(&zero), 1)?;
    let b = rw.dequantised(&node.x(1)?, &node.x(2)?, node.input(3), -1)?;
    let y = rw.op("MatMul", &[&a, &b]);
    add_bias(rw, node, &y, 4)
}
