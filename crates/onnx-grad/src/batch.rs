//! Combines the graphs for two batch sizes into one graph for any batch size.
//!
//! A graph made for a fixed batch has the batch size in its constants. A constant that differs between the
//! two graphs depends on the batch size, and is replaced by nodes that compute it from the shape of an input.
//! Three kinds of constants are supported, for a batch of N:
//!
//! - integers k·N + c, such as the target of a Reshape or an Expand;
//! - a tensor that repeats along one axis for each entry of the batch, such as a class token;
//! - integers that rise along one axis with the entry, such as row numbers.
//!
//! Two batch sizes prove nothing about a third: run the result at others.

use crate::{DType, Dim, Error, Graph, Node, Result, Tensor, Value};
use std::collections::HashMap;

/// Name of the batch dimension in the shapes of inputs and outputs.
pub const NAME: &str = "batch";

/// The graph for any batch size. `graphs` is one graph made in the same way for two sizes `batches`; the
/// batch is the first dimension of `input`. Choose two primes that are no dimension of the model: a rule may
/// mistake a dimension for the batch if they are equal, and the graphs then differ.
///
/// Error: the first node at which the graphs differ in an unsupported way.
pub fn free(graphs: [&Graph; 2], batches: [i64; 2], input: &str) -> Result<Graph> {
    let [a, b] = graphs;
    let mut freeing = Freeing {
        batches,
        input,
        renamed: HashMap::new(),
        computed: HashMap::new(),
        size: None,
        prefix: a.free_prefix("batch"),
        nodes: vec![],
        constants: vec![],
    };
    let values = |a: &[Value], b: &[Value]| {
        let pairs = a.iter().zip(b).map(|(a, b)| value(a, b, batches));
        if a.len() == b.len() { pairs.collect::<Option<Vec<_>>>() } else { None }
    };
    let differ = |what: &str| Error::Model(format!("the graphs of two batches differ in their {what}"));
    let inputs = values(&a.inputs, &b.inputs).ok_or_else(|| differ("inputs"))?;
    let outputs = values(&a.outputs, &b.outputs).ok_or_else(|| differ("outputs"))?;
    if a.nodes.len() != b.nodes.len() {
        return Err(differ(&format!("nodes: {} and {}", a.nodes.len(), b.nodes.len())));
    }
    freeing.renamed.extend(a.inputs.iter().map(|i| (i.name.as_str(), i.name.as_str())));
    let mut nodes = Vec::with_capacity(a.nodes.len());
    for pair in a.nodes.iter().zip(&b.nodes) {
        nodes.push(freeing.node(pair, graphs).map_err(|why| {
            Error::Model(format!("{}: {why} (batches of {} and {})", pair.0.label(), batches[0], batches[1]))
        })?);
    }
    let mut graph = Graph { inputs, outputs, ..a.clone() };
    graph.nodes = freeing.nodes;
    graph.nodes.extend(nodes);
    graph.constants.extend(freeing.constants);
    graph.prune();
    Ok(graph)
}

/// An input or output with a free batch; `None` if the two values differ in anything else.
fn value(a: &Value, b: &Value, batches: [i64; 2]) -> Option<Value> {
    let free = |(a, b): (&Dim, &Dim)| match (a, b) {
        (Dim::Known(a), Dim::Known(b)) if [*a, *b] == batches => Some(Dim::Free(NAME.into())),
        (a, b) => (a == b).then(|| a.clone()),
    };
    let shape = match (&a.shape, &b.shape) {
        (Some(a), Some(b)) if a.len() == b.len() => Some(a.iter().zip(b).map(free).collect::<Option<_>>()?),
        (None, None) => None,
        _ => return None,
    };
    (a.name == b.name && a.dtype == b.dtype).then(|| Value { shape, ..a.clone() })
}

struct Freeing<'a> {
    batches: [i64; 2],
    input: &'a str,
    /// Name of a value in the first graph → its name in the second.
    renamed: HashMap<&'a str, &'a str>,
    /// Names of a constant in both graphs → the value that replaces it.
    computed: HashMap<[&'a str; 2], String>,
    /// The batch size, a scalar, if a node has needed it.
    size: Option<String>,
    /// Prefix of the names of new values.
    prefix: String,
    /// Nodes that compute values from the batch size.
    nodes: Vec<Node>,
    constants: Vec<(String, Tensor)>,
}

impl<'a> Freeing<'a> {
    fn node(
        &mut self,
        (a, b): (&'a Node, &'a Node),
        graphs: [&'a Graph; 2],
    ) -> std::result::Result<Node, String> {
        let alike = a.op == b.op
            && a.domain == b.domain
            && a.attrs == b.attrs
            && a.inputs.len() == b.inputs.len()
            && a.outputs.len() == b.outputs.len();
        if !alike {
            return Err(format!("is {} for another batch, or has other attributes there", b.label()));
        }
        let mut node = a.clone();
        for (name, (a, b)) in node.inputs.iter_mut().zip(a.inputs.iter().zip(&b.inputs)) {
            match (graphs[0].constants.get(a), graphs[1].constants.get(b)) {
                (Some(x), Some(y)) if x == y => {}
                (Some(x), Some(y)) => *name = self.value([a, b], [x, y])?,
                (None, None) if a.is_empty() && b.is_empty() => {}
                (None, None) if self.renamed.get(a.as_str()) == Some(&b.as_str()) => {}
                _ => return Err(format!("reads {b:?} in place of {a:?} for another batch")),
            }
        }
        let same = |name: &str| match graphs.map(|g| g.constants.get(name)) {
            [None, None] => self.renamed.get(name) == Some(&name),
            [x, y] => x == y,
        };
        if let Some(name) = a.captured().into_iter().rfind(|name| !same(name)) {
            return Err(format!("its branch reads {name:?}, which depends on the batch"));
        }
        self.renamed.extend(a.outputs.iter().map(String::as_str).zip(b.outputs.iter().map(String::as_str)));
        Ok(node)
    }

    /// The value that replaces a constant that depends on the batch.
    fn value(&mut self, names: [&'a str; 2], pair: [&Tensor; 2]) -> std::result::Result<String, String> {
        if let Some(name) = self.computed.get(&names) {
            return Ok(name.clone());
        }
        let replacement = match pair[0].shape == pair[1].shape {
            true => self.linear(pair),
            false => self.along_an_axis(pair),
        };
        let name = replacement.ok_or_else(|| {
            format!(
                "its constant {:?} of shape {:?} depends on the batch in a way that is not covered",
                names[0], pair[0].shape
            )
        })?;
        self.computed.insert(names, name.clone());
        Ok(name)
    }

    /// Integers k·N + c.
    fn linear(&mut self, pair: [&Tensor; 2]) -> Option<String> {
        let [dtype, other] = pair.map(|t| t.dtype);
        let [a, b] = [pair[0].to_i64s()?, pair[1].to_i64s()?];
        let between = self.batches[1] - self.batches[0];
        let slope =
            |(a, b): (&i64, &i64)| b.checked_sub(*a).filter(|d| d % between == 0).map(|d| d / between);
        let slopes = a.iter().zip(&b).map(slope).collect::<Option<Vec<i64>>>()?;
        let offsets: Vec<i64> = a.iter().zip(&slopes).map(|(a, k)| a - k * self.batches[0]).collect();
        if dtype != other || ![DType::I64, DType::I32].contains(&dtype) {
            return None;
        }
        let value = self.scaled(&pair[0].shape, &slopes, &offsets);
        Some(self.cast(value, dtype))
    }

    /// A tensor that repeats, or rises, along one axis with each entry of the batch.
    fn along_an_axis(&mut self, pair: [&Tensor; 2]) -> Option<String> {
        let [a, b] = pair;
        let differs: Vec<usize> =
            (0..a.shape.len().min(b.shape.len())).filter(|&i| a.shape[i] != b.shape[i]).collect();
        let [axis] = differs[..] else { return None };
        let rows = a.shape[axis] / self.batches[0];
        let proportional = pair.iter().zip(self.batches).all(|(t, n)| t.shape[axis] == rows * n);
        if a.dtype != b.dtype || a.shape.len() != b.shape.len() || rows == 0 || !proportional {
            return None;
        }
        let first = entries(a, axis, rows).next()?;
        let rank = a.shape.len();
        let along: Vec<i64> = (0..rank).map(|i| i64::from(i == axis)).collect();
        if pair.iter().all(|t| entries(t, axis, rows).all(|entry| entry == first)) {
            let others: Vec<i64> = along.iter().map(|on| 1 - on).collect();
            let repeats = self.scaled(&[rank as i64], &along, &others);
            let first = self.constant(first);
            return Some(self.push("Tile", &[&first, &repeats]));
        }
        let base = first.to_i64s()?;
        let second = entries(a, axis, rows).nth(1)?.to_i64s()?;
        let steps = second.iter().zip(&base).map(|(s, b)| s.checked_sub(*b)).collect::<Option<Vec<i64>>>()?;
        let rises = |t: &Tensor| {
            entries(t, axis, rows).zip(0..).all(|(entry, i)| {
                let expected = base.iter().zip(&steps).map(|(b, s)| b + i * s);
                entry.to_i64s().is_some_and(|found| found.into_iter().eq(expected))
            })
        };
        if rows != 1 || ![DType::I64, DType::I32].contains(&a.dtype) || !pair.into_iter().all(rises) {
            return None;
        }
        let size = self.size();
        let [zero, one] = [0, 1].map(|v| self.constant(Tensor::i64(&[], &[v])));
        let count = self.push("Range", &[&zero, &size, &one]);
        let column: Vec<i64> = along.iter().map(|on| 1 - 2 * on).collect();
        let column = self.constant(Tensor::ints(&column));
        let count = self.push("Reshape", &[&count, &column]);
        let [steps, base] = [steps, base].map(|v| self.constant(Tensor::i64(&first.shape, &v)));
        let risen = self.push("Mul", &[&count, &steps]);
        let value = self.push("Add", &[&risen, &base]);
        Some(self.cast(value, a.dtype))
    }

    /// slopes · N + offsets, int64.
    fn scaled(&mut self, shape: &[i64], slopes: &[i64], offsets: &[i64]) -> String {
        let size = self.size();
        let slopes = self.constant(Tensor::i64(shape, slopes));
        let scaled = self.push("Mul", &[&size, &slopes]);
        if offsets.iter().all(|c| *c == 0) {
            return scaled;
        }
        let offsets = self.constant(Tensor::i64(shape, offsets));
        self.push("Add", &[&scaled, &offsets])
    }

    /// The batch size, a scalar.
    fn size(&mut self) -> String {
        if let Some(size) = &self.size {
            return size.clone();
        }
        let shape = self.push_with("Shape", &[self.input], Some(("end", 1)));
        let size = self.push("Squeeze", &[&shape]);
        self.size.insert(size).clone()
    }

    fn cast(&mut self, value: String, to: DType) -> String {
        if to == DType::I64 {
            return value;
        }
        self.push_with("Cast", &[&value], Some(("to", to.code() as i64)))
    }

    fn push(&mut self, op: &str, inputs: &[&str]) -> String {
        self.push_with(op, inputs, None)
    }

    fn push_with(&mut self, op: &str, inputs: &[&str], attr: Option<(&str, i64)>) -> String {
        let out = format!("{}{op}_{}", self.prefix, self.nodes.len());
        let node = Node::new(op, inputs, &out);
        self.nodes.push(attr.into_iter().fold(node, |node, (name, value)| node.with(name, value)));
        out
    }

    fn constant(&mut self, t: Tensor) -> String {
        if let Some((name, _)) = self.constants.iter().find(|(_, c)| c == &t) {
            return name.clone();
        }
        let name = format!("{}const_{}", self.prefix, self.constants.len());
        self.constants.push((name.clone(), t));
        name
    }
}

/// The part of `t` for each entry of the batch, which has `rows` rows of `axis`.
fn entries(t: &Tensor, axis: usize, rows: i64) -> impl Iterator<Item = Tensor> {
    let inner = t.shape[axis + 1..].iter().product::<i64>() as usize * t.dtype.size().unwrap_or(0);
    let (each, outer) = (rows as usize * inner, t.shape[axis] as usize * inner);
    let mut shape = t.shape.clone();
    shape[axis] = rows;
    (0..outer / each.max(1)).map(move |i| {
        let parts = t.bytes.chunks_exact(outer).flat_map(|part| &part[i * each..(i + 1) * each]);
        Tensor { dtype: t.dtype, shape: shape.clone(), bytes: parts.copied().collect() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Types, differentiate};

    /// y = (x reshaped by entry, plus one token per entry) · w + row numbers, for a batch of n.
    fn graph(n: i64, token: impl Fn(i64) -> f32) -> Graph {
        let nodes = vec![
            Node::new("Reshape", &["x", "rows"], "r"),
            Node::new("Add", &["r", "token"], "s"),
            Node::new("MatMul", &["s", "w"], "m"),
            Node::new("Cast", &["count"], "c").with("to", 1),
            Node::new("Add", &["m", "c"], "y"),
        ];
        let tokens: Vec<f32> = (0..n).flat_map(|i| [token(i), 2.0]).collect();
        let constants = [
            ("rows", Tensor::ints(&[3 * n, 2])),
            ("token", Tensor::f32(&[3 * n, 2], &tokens.repeat(3))),
            ("w", Tensor::f32(&[2, 1], &[3.0, 4.0])),
            ("count", Tensor::i64(&[3 * n, 1], &vec![5; 3 * n as usize])),
        ];
        let mut g = Graph::new(nodes, constants.map(|(name, t)| (name.to_string(), t)).into());
        g.inputs = vec![Value::new("x", DType::F32, &[n, 6])];
        g.outputs = vec![Value { name: "y".into(), dtype: DType::F32, shape: None }];
        g
    }

    #[test]
    fn what_scales_with_the_batch_is_computed() {
        let graphs = [graph(11, |_| 1.0), graph(13, |_| 1.0)];
        let free = free([&graphs[0], &graphs[1]], [11, 13], "x").unwrap();
        assert_eq!(free.inputs[0].shape_text(), "[batch, 6]");
        let ops: Vec<&str> = free.nodes.iter().map(|n| n.op.as_str()).collect();
        let computed = ["Shape", "Squeeze", "Mul", "Add", "Mul", "Add", "Tile", "Mul", "Add", "Tile"];
        assert_eq!(ops, [&computed[..], &["Reshape", "Add", "MatMul", "Cast", "Add"]].concat());
        assert!(!free.constants.contains_key("rows") && free.constants.contains_key("w"));
    }

    /// A file that `audit grad` wrote has such names.
    #[test]
    fn names_of_the_graph_are_not_given_again() {
        let graphs = [11, 13].map(|n| {
            let mut g = graph(n, |_| 1.0);
            g.nodes[2].inputs[1] = "batch/const_0".into();
            let w = g.constants.remove("w").unwrap();
            g.constants.insert("batch/const_0".into(), w);
            g
        });
        let free = free([&graphs[0], &graphs[1]], [11, 13], "x").unwrap();
        assert_eq!(free.constants["batch/const_0"].to_f32s(), Some(vec![3.0, 4.0]));
    }

    #[test]
    fn other_differences_are_refused_with_the_node() {
        let token = |i: i64| i as f32;
        let graphs = [graph(11, token), graph(13, token)];
        let why = free([&graphs[0], &graphs[1]], [11, 13], "x").unwrap_err().to_string();
        assert!(why.contains("Add \"s\"") && why.contains("\"token\""), "{why}");
    }

    /// Graphs of gradients contain the batch too: in the sums of a bias, in the Expand of a mean.
    #[test]
    fn gradients_are_freed() {
        let graph = |n: i64| {
            let nodes = vec![Node::new("ReduceMean", &["x", "axes"], "y").with("keepdims", 0)];
            let mut g = Graph::new(nodes, [("axes".to_string(), Tensor::ints(&[1]))].into());
            g.inputs = vec![Value::new("x", DType::F32, &[n, 4])];
            g.outputs = vec![Value::new("y", DType::F32, &[n])];
            let f32s = |name: &str, shape: &[i64]| (name.to_string(), (DType::F32, shape.to_vec()));
            let types: Types =
                [f32s("x", &[n, 4]), f32s("y", &[n]), ("axes".to_string(), (DType::I64, vec![1]))].into();
            differentiate(&g, &types, &["x"], crate::Pass::Exact, crate::Processor::Cpu).unwrap().join()
        };
        let free = free([&graph(11), &graph(13)], [11, 13], "x").unwrap();
        let shapes: Vec<String> = free
            .inputs
            .iter()
            .chain(&free.outputs)
            .map(|v| format!("{} {}", v.name, v.shape_text()))
            .collect();
        assert_eq!(shapes, ["x [batch, 4]", "cotangent/y [batch]", "y [batch]", "gradient/x [batch, 4]"]);
        assert!(free.nodes.iter().any(|n| n.op == "Shape"));
    }
}
