//! Converts a float32 graph to float16: chooses the nodes that compute in float16, and inserts casts.
//!
//! Arithmetic (`HEAVY`) is in float16. Other nodes follow their inputs: they compute in float16 if one of
//! them is float16, otherwise in float32, so that preprocessing, statistics and cotangents before the first
//! product keep their precision. [`FULL`] stays in float32 whatever its inputs, each row with its reason. So
//! does a node with a constant that float16 can't represent: weights beyond ±65504, or an ε below its normal
//! numbers, which would become infinite or imprecise. Nothing is saturated: an overflow becomes infinite, and
//! is detected.

use crate::{Attr, DType, Graph, Node, Tensor, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The operators that take the time, and that ONNX Runtime accumulates in float32.
const HEAVY: &[&str] = &["Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"];

/// Operators that stay in float32, and why.
pub const FULL: &[(&str, &[&str])] = &[
    (
        "sums over many values lose their last digits or overflow",
        &["CumSum", "ReduceL1", "ReduceLogSum", "ReduceMean", "ReduceProd", "ReduceSum"],
    ),
    (
        "squares overflow above 256 and vanish below 0.0002",
        &[
            "GlobalLpPool",
            "GroupNormalization",
            "InstanceNormalization",
            "LRN",
            "LpNormalization",
            "LpPool",
            "MeanVarianceNormalization",
            "Pow",
            "RMSNormalization",
            "ReduceL2",
            "ReduceSumSquare",
        ],
    ),
    ("overflows above 11", &["Exp", "ReduceLogSumExp"]),
    ("statistics of channels that hardly vary are too small", &["BatchNormalization"]),
    (
        "what is rounded to integers must be rounded as the model does",
        &[
            "Cast",
            "ConvInteger",
            "DequantizeLinear",
            "DynamicQuantizeLinear",
            "MatMulInteger",
            "QuantizeLinear",
        ],
    ),
    ("takes some inputs in float32 only", &["Resize", "Upsample"]),
    (
        "has no float16 kernel on the CPU",
        &[
            "AffineGrid",
            "DFT",
            "DeformConv",
            "Det",
            "GridSample",
            "MaxUnpool",
            "ReverseSequence",
            "RoiAlign",
            "STFT",
        ],
    ),
    ("makes its values itself", &["ConstantOfShape", "RandomNormal", "RandomUniform", "Range"]),
];

/// Operators without a float16 kernel on the CPU if they add; on CUDA their order of summation isn't fixed.
const SCATTERS: [&str; 2] = ["ScatterElements", "ScatterND"];

/// The largest finite float16.
const LARGEST: f32 = 65504.0;
/// The smallest float16 with full precision, 2⁻¹⁴.
const NORMAL: f32 = 6.103_515_6e-5;

/// The result of [`Graph::narrow`].
#[derive(Debug)]
pub struct Narrowed {
    /// The graph. Values in float16 have other names ([`half_name`]).
    pub graph: Graph,
    /// Outputs in float16, by their former names.
    pub halved: BTreeSet<String>,
}

/// The name of a value's float16 form.
pub fn half_name(value: &str) -> String {
    format!("half/{value}")
}

impl Graph {
    /// The graph in float16. `types`: the element type of every value. Inputs in `halved` are float16, under
    /// [`half_name`]; others are unchanged. Outputs computed in float16 are float16, under such a name,
    /// except those in `exact`, which keep name and type. Without float16 `kernels`, nodes compute in float32
    /// and their inputs and outputs are rounded to float16: the result of a kernel with float32 sums.
    pub fn narrow(
        &self,
        types: &HashMap<String, DType>,
        halved: &BTreeSet<String>,
        exact: &[&str],
        kernels: bool,
    ) -> Narrowed {
        let mut n = Narrowing {
            graph: self,
            types,
            kernels,
            nodes: Vec::with_capacity(2 * self.nodes.len()),
            constants: BTreeMap::new(),
            native: HashMap::new(),
            cast: HashSet::new(),
            fixed: HashSet::new(),
        };
        let mut inputs = self.inputs.clone();
        for input in &mut inputs {
            let half = input.dtype == DType::F32 && halved.contains(&input.name);
            n.native.insert(input.name.clone(), half);
            if half {
                (input.name, input.dtype) = (half_name(&input.name), DType::F16);
            }
        }
        self.nodes.iter().for_each(|node| n.node(node));
        let mut given = BTreeSet::new();
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for out in &self.outputs {
            let half = n.native.get(&out.name).copied().unwrap_or(false);
            if half && !exact.contains(&out.name.as_str()) {
                outputs.push(Value { name: half_name(&out.name), dtype: DType::F16, ..out.clone() });
                given.insert(out.name.clone());
            } else {
                n.form(&out.name, false);
                outputs.push(out.clone());
            }
        }
        let (nodes, constants) = (n.nodes, n.constants);
        let mut graph = Graph { nodes, constants, inputs, outputs, ..self.clone() };
        graph.prune();
        Narrowed { graph, halved: given }
    }
}

struct Narrowing<'a> {
    graph: &'a Graph,
    types: &'a HashMap<String, DType>,
    kernels: bool,
    nodes: Vec<Node>,
    constants: BTreeMap<String, Tensor>,
    /// Value → whether it is computed in float16.
    native: HashMap<String, bool>,
    /// Names of casts of values.
    cast: HashSet<String>,
    /// Values that depend on constants only.
    fixed: HashSet<&'a str>,
}

impl<'a> Narrowing<'a> {
    fn node(&mut self, node: &'a Node) {
        let constant = |name: &String, n: &Self| {
            name.is_empty() || n.graph.constants.contains_key(name) || n.fixed.contains(name.as_str())
        };
        if node.inputs.iter().all(|i| constant(i, self)) {
            self.fixed.extend(node.outputs.iter().map(String::as_str));
        }
        let half = self.in_half(node);
        if let Some((rising, at)) = threshold(node).filter(|_| half && self.kernels) {
            return self.step(node, rising, at);
        }
        let mut made = node.clone();
        if let Some((_, at)) = threshold(node).filter(|_| half) {
            // The values compared with the bound are rounded, and so is the bound to which they were clipped.
            let rounded = Tensor::f32(&[], &[at]).to_half().and_then(|t| t.to_f32s()).map_or(at, |v| v[0]);
            made.attrs.insert("beta".into(), Attr::Float(-node.float("alpha", 0.2) * rounded));
        }
        for name in made.inputs.iter_mut().filter(|name| !name.is_empty()) {
            *name = match half && self.is_float(name) {
                true if self.kernels => self.form(name, true),
                true => self.rounded(name),
                false => self.form(name, false),
            };
        }
        node.captured().iter().for_each(|name| drop(self.form(name, false)));
        let mut casts = Vec::new();
        for (i, name) in made.outputs.iter_mut().enumerate().filter(|(_, name)| !name.is_empty()) {
            // Mean and deviation are float32 in either case.
            let statistics = node.op == "LayerNormalization" && i > 0;
            let half = half && !statistics && self.is_float(name);
            self.native.insert(name.clone(), half);
            if half {
                let rounded = half_name(name);
                *name =
                    if self.kernels { rounded } else { cast(&format!("exact/{name}"), &rounded, &mut casts) };
            }
        }
        self.nodes.push(made);
        self.nodes.extend(casts);
    }

    /// A step in float16, where the slope of its HardSigmoid would be infinite: 1 beyond the threshold `at`,
    /// else 0.
    fn step(&mut self, node: &Node, rising: bool, at: f32) {
        let (x, y) = (self.form(&node.inputs[0], true), half_name(&node.outputs[0]));
        let beyond = if rising && at == 0.0 {
            x
        } else {
            let (name, beyond) = (half_name(&format!("threshold/{at}")), format!("{y}/beyond"));
            if let Some(t) = Tensor::f32(&[], &[at]).to_half() {
                self.constants.insert(name.clone(), t);
            }
            let inputs = if rising { [&x, &name] } else { [&name, &x] };
            self.nodes.push(Node::new("Sub", &inputs.map(String::as_str), &beyond));
            beyond
        };
        let sign = format!("{y}/sign");
        self.nodes.push(Node::new("Sign", &[&beyond], &sign));
        self.nodes.push(Node::new("Relu", &[&sign], &y));
        self.native.insert(node.outputs[0].clone(), true);
    }

    /// A value rounded to float16, as float32.
    fn rounded(&mut self, name: &str) -> String {
        let output = format!("rounded/{name}");
        if let Some(t) = self.graph.constants.get(name) {
            if !self.constants.contains_key(&output) {
                let values = t.to_half().and_then(|t| t.to_f32s()).unwrap_or_default();
                self.constants.insert(output.clone(), Tensor::f32(&t.shape, &values));
            }
        } else if self.cast.insert(output.clone()) {
            let half = self.form(name, true);
            self.nodes.push(Node::new("Cast", &[&half], &output).with("to", DType::F32));
        }
        output
    }

    fn is_float(&self, name: &str) -> bool {
        self.types.get(name) == Some(&DType::F32)
    }

    fn in_half(&self, node: &Node) -> bool {
        let named = |name: &&String| !name.is_empty();
        let op = node.op.as_str();
        let full = !node.domain.is_empty()
            || FULL.iter().any(|(_, ops)| ops.contains(&op))
            || (SCATTERS.contains(&op) && node.str("reduction", "none") != "none")
            || (op == "Mul" && node.inputs[0] == node.inputs[1]);
        // Doubles, and values that aren't tensors, such as sequences.
        let other = |name: &String| self.types.get(name).is_none_or(|t| t.is_float() && *t != DType::F32);
        if full
            || !node.captured().is_empty()
            || node.inputs.iter().chain(&node.outputs).filter(named).any(other)
        {
            return false;
        }
        let floats: Vec<&String> =
            node.inputs.iter().filter(named).filter(|name| self.is_float(name)).collect();
        let outside_float16 = |name: &&&String| self.graph.constants.get(**name).is_some_and(|t| !fits(t));
        if floats.iter().any(|name| outside_float16(&name)) {
            return false;
        }
        let computed = |name: &&&String| {
            !self.graph.constants.contains_key(**name) && !self.fixed.contains(name.as_str())
        };
        match HEAVY.contains(&op) {
            true => floats.iter().any(|name| computed(&name)),
            false => floats.iter().any(|name| self.native.get(*name) == Some(&true)),
        }
    }

    /// The name of a value in float16 or float32; adds its cast if missing.
    fn form(&mut self, name: &str, half: bool) -> String {
        let form_name = if half { half_name(name) } else { name.to_string() };
        if let Some(t) = self.graph.constants.get(name) {
            if !self.constants.contains_key(&form_name) {
                let form = if half { t.to_half() } else { Some(t.clone()) };
                self.constants.insert(form_name.clone(), form.unwrap_or_else(|| t.clone()));
            }
            return form_name;
        }
        let native = self.native.get(name).copied().unwrap_or(false);
        if native != half && self.cast.insert(form_name.clone()) {
            let (from, to) =
                if half { (name.to_string(), DType::F16) } else { (half_name(name), DType::F32) };
            self.nodes.push(Node::new("Cast", &[&from], &form_name).with("to", to));
        }
        form_name
    }
}

/// The direction and threshold of a step, if the node is a HardSigmoid steeper than float16 can represent:
/// true if it rises.
fn threshold(node: &Node) -> Option<(bool, f32)> {
    let (alpha, beta) = (node.float("alpha", 0.2), node.float("beta", 0.5));
    (node.op == "HardSigmoid" && alpha.abs() > LARGEST).then(|| (alpha > 0.0, -beta / alpha))
}

/// Adds the cast of a float32 value to float16; returns its name.
fn cast(from: &str, to: &str, nodes: &mut Vec<Node>) -> String {
    nodes.push(Node::new("Cast", &[from], to).with("to", DType::F16));
    from.to_string()
}

/// Whether float16 can represent a constant: no finite value is too large, and not all are too small.
fn fits(t: &Tensor) -> bool {
    let finite = t.to_f32s().unwrap_or_default().into_iter().filter(|v| v.is_finite());
    let largest = finite.fold(0.0f32, |m, v| m.max(v.abs()));
    largest == 0.0 || (NORMAL..=LARGEST).contains(&largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types as a runtime reports them.
    fn typed(graph: &Graph, more: &[(&str, DType)]) -> HashMap<String, DType> {
        let made = graph.nodes.iter().flat_map(|n| &n.outputs).chain(graph.inputs.iter().map(|i| &i.name));
        let mut types: HashMap<String, DType> = made.map(|name| (name.clone(), DType::F32)).collect();
        types.extend(graph.constants.iter().map(|(name, t)| (name.clone(), t.dtype)));
        types.extend(more.iter().map(|(name, t)| (name.to_string(), *t)));
        types
    }

    fn graph(nodes: Vec<Node>, constants: &[(&str, f32)]) -> Graph {
        let tensor = |v: f32| Tensor::f32(&[1, 1], &[v]);
        let mut g = Graph::new(nodes, constants.iter().map(|(n, v)| (n.to_string(), tensor(*v))).collect());
        g.inputs = vec![Value::new("x", DType::F32, &[1, 1])];
        g.outputs = vec![Value::new("y", DType::F32, &[1, 1])];
        g
    }

    fn listed(g: &Graph) -> Vec<String> {
        g.nodes.iter().map(|n| format!("{}={}({})", n.outputs.join(","), n.op, n.inputs.join(","))).collect()
    }

    /// Expected by hand, from the rules above.
    #[test]
    fn nodes_follow_their_inputs() {
        let g = graph(
            vec![
                Node::new("Sub", &["x", "mean"], "a"),
                Node::new("MatMul", &["a", "w"], "b"),
                Node::new("Relu", &["b"], "c"),
                Node::new("Mul", &["c", "c"], "d"),
                Node::new("Add", &["d", "eps"], "e"),
                Node::new("Div", &["c", "e"], "y"),
            ],
            &[("mean", 0.5), ("w", 2.0), ("eps", 1e-6)],
        );
        let types = typed(&g, &[]);
        let narrowed = g.narrow(&types, &BTreeSet::new(), &["y"], true);
        assert_eq!(
            listed(&narrowed.graph),
            [
                "a=Sub(x,mean)",
                "half/a=Cast(a)",
                "half/b=MatMul(half/a,half/w)",
                "half/c=Relu(half/b)",
                "c=Cast(half/c)",
                "d=Mul(c,c)",
                "e=Add(d,eps)",
                "half/e=Cast(e)",
                "half/y=Div(half/c,half/e)",
                "y=Cast(half/y)",
            ]
        );
        assert!(narrowed.halved.is_empty());
        let constants: Vec<(&str, DType)> =
            narrowed.graph.constants.iter().map(|(n, t)| (n.as_str(), t.dtype)).collect();
        assert_eq!(constants, [("eps", DType::F32), ("half/w", DType::F16), ("mean", DType::F32)]);
        // An output that needn't be exact is float16.
        let handed = g.narrow(&types, &BTreeSet::new(), &[], true);
        assert_eq!(handed.graph.outputs, [Value::new("half/y", DType::F16, &[1, 1])]);
        assert!(handed.halved.contains("y"));
        // Nodes after a float16 input compute in float16.
        let taken = g.narrow(&types, &["x".to_string()].into(), &[], true);
        assert_eq!(taken.graph.inputs, [Value::new("half/x", DType::F16, &[1, 1])]);
        assert_eq!(listed(&taken.graph)[0], "half/a=Sub(half/x,half/mean)");
    }

    #[test]
    fn without_kernels_values_are_rounded_around_float32() {
        let g = graph(
            vec![Node::new("MatMul", &["x", "w"], "a"), Node::new("Relu", &["a"], "y")],
            &[("w", 1.0 + 1e-6)],
        );
        let narrowed = g.narrow(&typed(&g, &[]), &BTreeSet::new(), &[], false).graph;
        assert_eq!(
            listed(&narrowed),
            [
                "half/x=Cast(x)",
                "rounded/x=Cast(half/x)",
                "exact/a=MatMul(rounded/x,rounded/w)",
                "half/a=Cast(exact/a)",
                "rounded/a=Cast(half/a)",
                "exact/y=Relu(rounded/a)",
                "half/y=Cast(exact/y)",
            ]
        );
        assert_eq!(narrowed.constants["rounded/w"].to_f32s(), Some(vec![1.0]));
    }

    /// The slope of the gradient's masks.
    #[test]
    fn steps_are_taken_without_their_slope() {
        let steep = 2f32.powi(120);
        let step = |x: &str, y: &str, alpha: f32, beta: f32| {
            Node::new("HardSigmoid", &[x], y).with("alpha", alpha).with("beta", beta)
        };
        let nodes = vec![
            Node::new("MatMul", &["x", "w"], "a"),
            step("a", "b", steep, 0.0),
            step("b", "c", -steep, 6.0 * steep),
            step("c", "y", 0.2, 0.5),
        ];
        let g = graph(nodes, &[("w", 1.0)]);
        let narrowed = g.narrow(&typed(&g, &[]), &BTreeSet::new(), &[], true).graph;
        assert_eq!(
            listed(&narrowed)[2..],
            [
                "half/b/sign=Sign(half/a)",
                "half/b=Relu(half/b/sign)",
                "half/c/beyond=Sub(half/threshold/6,half/b)",
                "half/c/sign=Sign(half/c/beyond)",
                "half/c=Relu(half/c/sign)",
                "half/y=HardSigmoid(half/c)",
            ]
        );
        assert_eq!(narrowed.constants["half/threshold/6"].to_f32s(), Some(vec![6.0]));
    }

    #[test]
    fn constants_that_float16_does_not_hold_keep_their_node_in_float32() {
        for (w, held) in [
            (65504.0, true),
            (65536.0, false),
            (-7e4, false),
            (f32::NEG_INFINITY, true),
            (0.0, true),
            (6.2e-5, true),
            (6.0e-5, false),
        ] {
            let g = graph(vec![Node::new("MatMul", &["x", "w"], "y")], &[("w", w)]);
            let ops = listed(&g.narrow(&typed(&g, &[]), &BTreeSet::new(), &["y"], true).graph);
            assert_eq!(ops.len() == 3, held, "{w}: {ops:?}");
        }
    }

    #[test]
    fn integers_and_masks_are_left_alone() {
        let g = graph(
            vec![
                Node::new("MatMul", &["x", "w"], "a"),
                Node::new("Greater", &["a", "w"], "mask"),
                Node::new("Where", &["mask", "a", "w"], "y"),
            ],
            &[("w", 1.0)],
        );
        let narrowed = g.narrow(&typed(&g, &[("mask", DType::Bool)]), &BTreeSet::new(), &["y"], true);
        assert_eq!(
            listed(&narrowed.graph)[2..4],
            ["mask=Greater(half/a,half/w)", "half/y=Where(mask,half/a,half/w)"]
        );
    }
}
