//! Operators that compute with quantised integers inside: as the float operator between DequantizeLinear and QuantizeLinear, which
//! is what they stand for. They add up integers exactly and round once; so does the float operator, apart from the last bits of
//! its sum.

use super::{Attr, DType, Done, Expansion, Node, Rewrite, contrib, standard};

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("QLinearConv", 10, conv),
    standard("QLinearMatMul", 10, matmul),
    contrib("DequantizeLinear", |rw, node| plain(rw, node, "DequantizeLinear")),
    contrib("DynamicQuantizeMatMul", dynamic_matmul),
    contrib("MatMulIntegerToFloat", matmul_to_float),
    contrib("QGemm", gemm),
    contrib("QLinearAdd", |rw, node| of_two(rw, node, "Add")),
    contrib("QLinearAveragePool", |rw, node| of_one(rw, node, "AveragePool")).refuses("channels_last"),
    contrib("QLinearConcat", concat),
    contrib("QLinearGlobalAveragePool", |rw, node| of_one(rw, node, "GlobalAveragePool"))
        .refuses("channels_last"),
    contrib("QLinearLeakyRelu", |rw, node| of_one(rw, node, "LeakyRelu")),
    contrib("QLinearMul", |rw, node| of_two(rw, node, "Mul")),
    contrib("QLinearSigmoid", |rw, node| of_one(rw, node, "Sigmoid")),
    contrib("QLinearSoftmax", softmax)
        .refuses("the form of opset 12 and older along another axis than the last"),
    contrib("QLinearWhere", |rw, node| {
        let (a, b) = (rw.numbers(node, 1, 1)?, rw.numbers(node, 4, 1)?);
        let y = rw.op("Where", &[&node.x(0)?, &a, &b]);
        rw.finish_quantised(node, &y, 7)
    }),
    contrib("QuantizeLinear", |rw, node| plain(rw, node, "QuantizeLinear")),
];

impl Rewrite<'_> {
    /// The numbers behind input `i`, whose scale and zero point are inputs `i` + 1 and `i` + 2. `axis`: along which there may be
    /// one for each slice.
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
    /// Quantises what takes the place of a node; its scale and zero point are inputs `i` and `i` + 1.
    fn finish_quantised(&mut self, node: &Node, y: &str, i: usize) -> Done {
        let scale = node.x(i)?;
        let inputs: Vec<&str> = [y, &scale].into_iter().chain(node.input(i + 1)).collect();
        self.finish(node, "QuantizeLinear", &inputs, &[])
    }
    /// A bias in int32, in units of the product of two scales.
    fn bias(&mut self, bias: &str, scales: [&str; 2]) -> String {
        let float = self.push("Cast", &[bias], &[("to", (DType::F32.code() as i64).into())]);
        let unit = self.op("Mul", &scales);
        self.op("Mul", &[&float, &unit])
    }
}

/// The attributes of a node, those of the quantised form left out.
fn kept(node: &Node) -> Vec<(&str, Attr)> {
    let own = ["channels_last", "opset"];
    node.attrs
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()))
        .filter(|(name, _)| !own.contains(name))
        .collect()
}

/// The operator of the same name in the standard set.
fn plain(rw: &mut Rewrite, node: &Node, op: &str) -> Done {
    let inputs: Vec<&str> = node.inputs.iter().map(String::as_str).collect();
    rw.finish(node, op, &inputs, &kept(node))
}

fn conv(rw: &mut Rewrite, node: &Node) -> Done {
    let (x, w) = (rw.numbers(node, 0, 1)?, rw.numbers(node, 3, 0)?);
    let bias = node.input(8).map(str::to_string);
    let bias = match bias {
        Some(bias) => Some(rw.bias(&bias, [&node.x(1)?, &node.x(4)?])),
        None => None,
    };
    let inputs: Vec<&str> = [x.as_str(), &w].into_iter().chain(bias.as_deref()).collect();
    let y = rw.push("Conv", &inputs, &kept(node));
    rw.finish_quantised(node, &y, 6)
}

fn matmul(rw: &mut Rewrite, node: &Node) -> Done {
    let (a, b) = (rw.numbers(node, 0, -2)?, rw.numbers(node, 3, -1)?);
    let y = rw.op("MatMul", &[&a, &b]);
    rw.finish_quantised(node, &y, 6)
}

fn of_two(rw: &mut Rewrite, node: &Node, op: &str) -> Done {
    let (a, b) = (rw.numbers(node, 0, 1)?, rw.numbers(node, 3, 1)?);
    let y = rw.op(op, &[&a, &b]);
    rw.finish_quantised(node, &y, 6)
}

fn of_one(rw: &mut Rewrite, node: &Node, op: &str) -> Done {
    node.only("channels_last", 0)?;
    let x = rw.numbers(node, 0, 1)?;
    let y = rw.push(op, &[&x], &kept(node));
    rw.finish_quantised(node, &y, 3)
}

/// Before opset 13 an axis stands for itself and all behind it.
fn softmax(rw: &mut Rewrite, node: &Node) -> Done {
    let axis = node.int("axis", -1);
    if node.int("opset", 13) < 13 && axis != -1 {
        return Err("the form of opset 12 and older along another axis than the last is not covered".into());
    }
    let x = rw.numbers(node, 0, 1)?;
    let y = rw.push("Softmax", &[&x], &[("axis", axis.into())]);
    rw.finish_quantised(node, &y, 3)
}

fn concat(rw: &mut Rewrite, node: &Node) -> Done {
    let count = node.inputs.len().saturating_sub(2) / 3;
    let parts = (0..count).map(|k| rw.numbers(node, 2 + 3 * k, 1)).collect::<Result<Vec<_>, _>>()?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let y = rw.concat(&parts, node.int("axis", 1));
    rw.finish_quantised(node, &y, 0)
}

/// Float where it has no scale of the output.
fn gemm(rw: &mut Rewrite, node: &Node) -> Done {
    let transposed = node.int("transB", 0) != 0;
    let (a, b) = (rw.numbers(node, 0, 1)?, rw.numbers(node, 3, if transposed { 0 } else { 1 })?);
    let bias = match node.input(6).map(str::to_string) {
        Some(bias) => Some(rw.bias(&bias, [&node.x(1)?, &node.x(4)?])),
        None => None,
    };
    let product = rw.push("Gemm", &[&a, &b], &kept(node));
    let y = match bias {
        Some(bias) => rw.op("Add", &[&product, &bias]),
        None => product,
    };
    if node.input(7).is_none() {
        return rw.finish(node, "Identity", &[&y], &[]);
    }
    rw.finish_quantised(node, &y, 7)
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

/// Inputs are A in float, B, its scale, its zero point and a bias: A is quantised by its extremes.
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
