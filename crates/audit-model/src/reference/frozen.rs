//! A quantised model with its rounding held still.

use onnx_grad::Graph;
use onnx_grad::graph::{DType, Node, Tensor, Value};
use std::collections::HashSet;

/// The probe and the frozen graph of [`super::Smooth::Frozen`], and the names of what is held. `None` if the
/// rounding can't be held still.
pub fn freeze(graph: &Graph, input: &str) -> Option<([Graph; 2], Vec<String>)> {
    let mut freezing = Freezing::new(graph);
    // Values that depend on the image.
    let mut moving: HashSet<&str> = [input].into();
    for node in &graph.nodes {
        let on_path = node.inputs.iter().any(|x| moving.contains(x.as_str()));
        if on_path {
            moving.extend(node.outputs.iter().map(String::as_str).filter(|name| !name.is_empty()));
        }
        freezing.node(node, on_path)?;
    }
    Some(freezing.finish())
}

/// The two graphs of [`super::Smooth::Frozen`], node by node.
struct Freezing<'g> {
    graph: &'g Graph,
    probe: Graph,
    frozen: Graph,
    roundings: Vec<String>,
    choices: Vec<String>,
    /// Values that are made of dequantised ones, of which many are equal to each other or to a bound. Shapes
    /// are not.
    behind: HashSet<&'g str>,
}

impl<'g> Freezing<'g> {
    fn new(graph: &'g Graph) -> Freezing<'g> {
        let (mut probe, mut frozen) = (graph.clone(), graph.clone());
        probe.nodes.clear();
        frozen.nodes.clear();
        Freezing { graph, probe, frozen, roundings: vec![], choices: vec![], behind: HashSet::new() }
    }

    /// Adds a node of the model. `on_path`: whether it reads what depends on the image. `None` if its
    /// rounding can't be held still.
    fn node(&mut self, node: &'g Node, on_path: bool) -> Option<()> {
        let reads = node.inputs.iter().any(|x| self.behind.contains(x.as_str()));
        self.probe.nodes.push(node.clone());
        match node.op.as_str() {
            "QuantizeLinear" if on_path => self.quantiser(node)?,
            "DequantizeLinear" if on_path => self.dequantiser(node)?,
            "DynamicQuantizeLinear" if on_path => return None,
            "MaxPool" if on_path => self.max_pool(node),
            "GlobalMaxPool" | "ReduceMax" | "ReduceMin" if on_path && reads => self.extreme(node),
            "Relu" | "LeakyRelu" | "PRelu" if on_path => self.rectifier(node),
            "Clip" if on_path && reads => self.clip(node),
            "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Equal" if on_path && reads => {
                self.comparison(node);
            }
            "Concat" | "Pad" if on_path => self.joined(node),
            _ => self.frozen.nodes.push(node.clone()),
        }
        let ends = ["QuantizeLinear", "Shape", "Size"].contains(&node.op.as_str());
        if on_path && (node.op == "DequantizeLinear" || (reads && !ends)) {
            self.behind.extend(node.outputs.iter().map(String::as_str).filter(|name| !name.is_empty()));
        }
        Some(())
    }

    fn quantiser(&mut self, node: &Node) -> Option<()> {
        let q = Quantiser::of(self.graph, node)?;
        let (x, y) = (&node.inputs[0], &node.outputs[0]);
        let name = |part: &str| part_of(y, part);
        let real = [
            Node::new("Div", &[x, &name("scale")], &name("scaled")),
            Node::new("Add", &[&name("scaled"), &name("zero")], &name("moved")),
            Node::new("Clip", &[&name("moved"), &name("low"), &name("high")], &name("real")),
        ];
        let constants = [("scale", q.scale), ("zero", q.zero), ("low", q.low - 0.5), ("high", q.high + 0.5)];
        for g in [&mut self.probe, &mut self.frozen] {
            g.nodes.extend(real.iter().cloned());
            g.constants.extend(constants.map(|(part, v)| (name(part), Tensor::f32(&[], &[v]))));
        }
        let rounding = Node::new("Sub", &[&name("float"), &name("real")], &name("rounding"));
        self.probe.nodes.extend([float(y, &name("float")), rounding]);
        self.frozen.nodes.push(Node::new("Add", &[&name("real"), &name("rounding")], y));
        self.roundings.push(name("rounding"));
        Some(())
    }

    fn dequantiser(&mut self, node: &Node) -> Option<()> {
        let q = Quantiser::of(self.graph, node)?;
        let (x, y) = (&node.inputs[0], &node.outputs[0]);
        let name = |part: &str| part_of(y, part);
        self.frozen.constants.insert(name("scale"), Tensor::f32(&[], &[q.scale]));
        self.frozen.constants.insert(name("zero"), Tensor::f32(&[], &[q.zero]));
        self.frozen.nodes.push(Node::new("Sub", &[x, &name("zero")], &name("moved")));
        self.frozen.nodes.push(Node::new("Mul", &[&name("moved"), &name("scale")], y));
        Some(())
    }

    /// Quantised values are often equal, and where two are the largest no difference quotient is the gradient
    /// of either: the choice is held still too.
    fn max_pool(&mut self, node: &Node) {
        let (x, y) = (&node.inputs[0], &node.outputs[0]);
        let name = |part: &str| part_of(y, part);
        let chosen = node.output(1).map_or_else(|| name("chosen"), str::to_string);
        if let Some(pool) = self.probe.nodes.last_mut() {
            pool.outputs.resize(2, String::new());
            pool.outputs[1].clone_from(&chosen);
        }
        self.frozen.constants.insert(name("line"), Tensor::ints(&[-1]));
        self.frozen.nodes.push(Node::new("Reshape", &[x, &name("line")], &name("flat")));
        self.frozen.nodes.push(Node::new("Gather", &[&name("flat"), &chosen], y));
        self.choices.push(chosen);
    }

    /// Where several quantised values of a whole map are the largest, the gradient is shared among them, as
    /// PyTorch's amax does. Their weights are held still: the result is the mean of the values times these.
    fn extreme(&mut self, node: &Node) {
        let (x, y) = (&node.inputs[0], &node.outputs[0]);
        let name = |part: &str| part_of(y, part);
        let pool = node.op == "GlobalMaxPool";
        let like = |op: &str, x: &str, y: &str| {
            let mut other =
                Node { op: op.into(), name: String::new(), outputs: vec![y.into()], ..node.clone() };
            other.inputs[0] = x.into();
            other
        };
        let mean = |x: &str, y: &str| like(if pool { "GlobalAveragePool" } else { "ReduceMean" }, x, y);
        // A pool keeps the dimensions anyway.
        let kept = |node: Node| if pool { node } else { node.with("keepdims", 1i64) };
        let seen = float(x, &name("seen"));
        self.probe.nodes.extend([
            seen.clone(),
            kept(like(&node.op, &name("seen"), &name("most"))),
            Node::new("Equal", &[&name("seen"), &name("most")], &name("attains")),
            float(&name("attains"), &name("mask")),
            kept(mean(&name("mask"), &name("share"))),
            Node::new("Div", &[&name("mask"), &name("share")], &name("weights")),
        ]);
        self.frozen.nodes.extend([
            seen,
            Node::new("Mul", &[&name("seen"), &name("weights")], &name("weighted")),
            mean(&name("weighted"), &name("extreme")),
            Node::new("CastLike", &[&name("extreme"), x], y),
        ]);
        self.roundings.push(name("weights"));
    }

    /// Quantised values are often exactly 0, where a rectifier has no derivative and a central difference is
    /// the mean of both slopes: the side that each value is on is held still too.
    fn rectifier(&mut self, node: &Node) {
        let (x, y) = (&node.inputs[0], &node.outputs[0]);
        let name = |part: &str| part_of(y, part);
        let number = |v: f32| Tensor::f32(&[], &[v]);
        let seen = float(x, &name("seen"));
        self.probe.constants.insert(name("nothing"), number(0.0));
        self.probe.nodes.extend([
            seen.clone(),
            Node::new("Greater", &[&name("seen"), &name("nothing")], &name("positive")),
            float(&name("positive"), &name("above")),
        ]);
        self.roundings.push(name("above"));
        match (node.op.as_str(), node.input(1)) {
            ("PRelu", Some(slope)) => self.frozen.nodes.push(float(slope, &name("slope"))),
            (op, _) => {
                let alpha = if op == "LeakyRelu" { node.float("alpha", 0.01) } else { 0.0 };
                self.frozen.constants.insert(name("slope"), number(alpha));
            }
        }
        self.frozen.constants.insert(name("one"), number(1.0));
        self.frozen.nodes.extend([
            seen,
            Node::new("Sub", &[&name("one"), &name("above")], &name("below")),
            Node::new("Mul", &[&name("below"), &name("slope")], &name("lean")),
            Node::new("Add", &[&name("above"), &name("lean")], &name("factor")),
            Node::new("Mul", &[&name("seen"), &name("factor")], &name("bent")),
            Node::new("CastLike", &[&name("bent"), x], y),
        ]);
    }

    /// Quantised values are often exactly at a bound too: which values lie within the bounds is held still,
    /// and what the others become.
    fn clip(&mut self, node: &Node) {
        let (x, y) = (&node.inputs[0], &node.outputs[0]);
        let name = |part: &str| part_of(y, part);
        let compare = |i: usize, op: &str, part: &str| Some(Node::new(op, &[x, node.input(i)?], &name(part)));
        let (over, under) = (compare(1, "Greater", "over"), compare(2, "Less", "under"));
        let both = Node::new("And", &[&name("over"), &name("under")], &name("both"));
        let within = match (over, under) {
            (None, None) => return self.frozen.nodes.push(node.clone()),
            (Some(over), Some(under)) => vec![over, under, both],
            (one, other) => one.into_iter().chain(other).collect(),
        };
        let decides = within.last().map(|node| node.outputs[0].clone()).unwrap_or_default();
        let passed =
            [float(x, &name("seen")), Node::new("Mul", &[&name("seen"), &name("inside")], &name("passed"))];
        self.probe.nodes.extend(within);
        self.probe.nodes.push(float(&decides, &name("inside")));
        self.probe.nodes.extend(passed.clone());
        self.probe.nodes.extend([
            float(y, &name("float")),
            Node::new("Sub", &[&name("float"), &name("passed")], &name("rest")),
        ]);
        self.frozen.nodes.extend(passed);
        self.frozen.nodes.extend([
            Node::new("Add", &[&name("passed"), &name("rest")], &name("clipped")),
            Node::new("CastLike", &[&name("clipped"), x], y),
        ]);
        self.roundings.extend([name("inside"), name("rest")]);
    }

    /// Near the point, a quantised value that is equal to a threshold does not change. In the frozen graph it
    /// moves to both sides: what a comparison decides is held still too.
    fn comparison(&mut self, node: &Node) {
        let y = &node.outputs[0];
        let decided = part_of(y, "decided");
        self.probe.nodes.push(float(y, &decided));
        self.frozen.nodes.push(Node::new("Cast", &[&decided], y).with("to", DType::Bool));
        self.roundings.push(decided);
    }

    /// Quantised values are floats in the frozen graph, so quantised constants beside them are too.
    fn joined(&mut self, node: &Node) {
        let mut node = node.clone();
        for input in &mut node.inputs {
            let beside = self.graph.constants.get(&*input).filter(|t| t.dtype.quantised_range().is_some());
            if let Some((t, values)) = beside.and_then(|t| Some((t, t.to_i64s()?))) {
                let values: Vec<f32> = values.into_iter().map(|v| v as f32).collect();
                let name = part_of(input, "float");
                self.frozen.constants.insert(name.clone(), Tensor::f32(&t.shape, &values));
                *input = name;
            }
        }
        self.frozen.nodes.push(node);
    }

    fn finish(self) -> ([Graph; 2], Vec<String>) {
        let Freezing { mut probe, mut frozen, roundings, choices, .. } = self;
        let values = |names: &[String], dtype: DType| -> Vec<Value> {
            names.iter().map(|name| Value { name: name.clone(), dtype, shape: None }).collect()
        };
        frozen.inputs.extend(values(&roundings, DType::F32));
        frozen.inputs.extend(values(&choices, DType::I64));
        let held = [roundings, choices].concat();
        probe.outputs = values(&held, DType::Other(0));
        ([probe, frozen], held)
    }
}

/// A value in float32, the type of all that is held but choices.
fn float(x: &str, y: &str) -> Node {
    Node::new("Cast", &[x], y).with("to", DType::F32)
}

/// The name of a value that belongs to value `of`.
fn part_of(of: &str, part: &str) -> String {
    format!("audit/{part}-of/{of}")
}

/// A quantiser with one scale for the whole tensor.
struct Quantiser {
    scale: f32,
    zero: f32,
    low: f32,
    high: f32,
}

impl Quantiser {
    fn of(graph: &Graph, node: &Node) -> Option<Quantiser> {
        let scale = graph.constants.get(node.input(1)?)?.to_f32s()?;
        let zero = match node.input(2) {
            Some(name) => Some(graph.constants.get(name)?),
            None => None,
        };
        let stated = node.int("output_dtype", 0);
        let dtype = match zero {
            Some(zero) => zero.dtype,
            None if stated != 0 => DType::from_code(stated as i32),
            None => DType::U8,
        };
        let (low, high) = dtype.quantised_range().unwrap_or((f32::MIN, f32::MAX));
        let zero = match zero {
            Some(z) => z.to_i64s()?,
            None => vec![0],
        };
        match (&scale[..], &zero[..]) {
            (&[scale], &[zero]) => Some(Quantiser { scale, zero: zero as f32, low, high }),
            _ => None,
        }
    }
}
