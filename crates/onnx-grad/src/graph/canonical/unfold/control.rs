//! Loop and Scan: one copy of the body per step.

use super::super::functions::rename_all;
use super::{Done, Expansion, Node, Rewrite, When};
use crate::graph::canonical::standard;
use crate::graph::sane::MOST_NODES;
use crate::graph::{Attr, DType, Graph, Tensor};
use std::collections::HashMap;

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("Loop", 1, repeat)
        .refuses("a number of steps, or a condition, computed from the image")
        .when(When::Reached),
    standard("Scan", 9, scan),
];

/// Maximum distance, in nodes, of the constants that determine a loop's number of steps and its condition.
pub(super) const DEEPEST: usize = 64;

/// Advice for a loop that can't be unfolded.
const INSTEAD: &str = "Export the model with loops unrolled; as a last resort, --gradient estimate does without the gradient, \
                       slowly and less well";

fn body(node: &Node) -> Result<&Graph, String> {
    match node.attrs.get("body") {
        Some(Attr::Graph(body)) => Ok(body),
        _ => Err("has no body".into()),
    }
}

impl Rewrite<'_> {
    /// Appends a body with the given inputs; returns its outputs.
    fn step(&mut self, body: &Graph, inputs: &[String]) -> Result<Vec<String>, String> {
        if body.inputs.len() != inputs.len() {
            return Err(format!("its body takes {} inputs, expected {}", body.inputs.len(), inputs.len()));
        }
        if self.nodes.len() > MOST_NODES {
            return Err(format!("its steps are more than {MOST_NODES} nodes. {INSTEAD}"));
        }
        let prefix = self.name("step");
        let mut names: HashMap<&str, String> =
            body.inputs.iter().map(|v| v.name.as_str()).zip(inputs.iter().cloned()).collect();
        let made = body.nodes.iter().flat_map(|n| &n.outputs).chain(body.constants.keys());
        for name in made.filter(|name| !name.is_empty()) {
            names.entry(name).or_insert_with(|| format!("{prefix}/{name}"));
        }
        // Other names are values outside of the body.
        let rename = |name: &str| names.get(name).cloned().unwrap_or_else(|| name.to_string());
        for (name, t) in &body.constants {
            self.constants.insert(rename(name), t.clone());
        }
        for node in &body.nodes {
            let mut node = node.clone();
            // Names must differ, unless they are empty.
            if !node.name.is_empty() {
                node.name = format!("{prefix}/{}", node.name);
            }
            rename_all(&mut node, &rename);
            self.nodes.push(node);
        }
        Ok(body.outputs.iter().map(|out| rename(&out.name)).collect())
    }

    /// The value of an integer or boolean, if it is computed by a chain of at most `depth` nodes from
    /// constants or from values that were found before.
    pub(super) fn settled(&self, name: &str, depth: usize) -> Option<i64> {
        if let Some(t) = self.constants.get(name) {
            return t.to_i64s().filter(|values| values.len() == 1).map(|values| values[0]);
        }
        let known = self.settled.borrow().get(name).copied();
        known.unwrap_or_else(|| {
            let value = self.computed(name, depth);
            // Without it, each node that reads a value twice would double the time.
            if value.is_some() {
                self.settled.borrow_mut().insert(name.to_string(), value);
            }
            value
        })
    }

    /// Looks for the values that a loop carries, so that the search at its next step ends at them.
    fn settle(&self, carried: &[String]) {
        for name in carried {
            let value = self.settled(name, DEEPEST);
            self.settled.borrow_mut().insert(name.clone(), value);
        }
    }

    fn computed(&self, name: &str, depth: usize) -> Option<i64> {
        let maker = self.maker(name)?;
        let x = |i: usize| self.settled(maker.input(i)?, depth.checked_sub(1)?);
        let holds = |test: fn(i64, i64) -> bool| Some(i64::from(test(x(0)?, x(1)?)));
        match maker.op.as_str() {
            "Identity" | "Reshape" | "Squeeze" | "Unsqueeze" => x(0),
            "Cast" if maker.int("to", 0) == i64::from(DType::Bool.code()) => Some(i64::from(x(0)? != 0)),
            "Cast" => x(0),
            "Add" => x(0)?.checked_add(x(1)?),
            "Sub" => x(0)?.checked_sub(x(1)?),
            "Mul" => x(0)?.checked_mul(x(1)?),
            "And" => holds(|a, b| a != 0 && b != 0),
            "Or" => holds(|a, b| a != 0 || b != 0),
            "Xor" => holds(|a, b| (a != 0) != (b != 0)),
            "Not" => Some(i64::from(x(0)? == 0)),
            "Equal" => holds(|a, b| a == b),
            "Less" => holds(|a, b| a < b),
            "LessOrEqual" => holds(|a, b| a <= b),
            "Greater" => holds(|a, b| a > b),
            "GreaterOrEqual" => holds(|a, b| a >= b),
            _ => None,
        }
    }
}

/// Whether a loop's condition is always true: the body returns its own condition, or a constant.
fn always_true(body: &Graph, first: bool) -> Option<bool> {
    let mut name = body.outputs.first()?.name.as_str();
    while let Some(maker) = body.nodes.iter().find(|n| n.outputs.iter().any(|out| out == name)) {
        name = maker.input(0).filter(|_| maker.op == "Identity" || maker.op == "Cast")?;
    }
    match body.constants.get(name) {
        Some(t) => t.to_i64s()?.first().map(|v| *v != 0),
        None => (body.inputs.get(1)?.name == name).then_some(first),
    }
}

fn repeat(rw: &mut Rewrite, node: &Node) -> Done {
    let body = body(node)?;
    let undecided = || {
        format!(
            "its number of steps must be a constant, and its condition one that constants decide at every step. {INSTEAD}"
        )
    };
    let most = match node.input(0) {
        None => i64::MAX,
        Some(most) => rw.settled(most, DEEPEST).ok_or_else(undecided)?,
    };
    // Without an initial condition, the body's condition doesn't count.
    let (mut on, always) = match node.input(1) {
        None => (true, Some(true)),
        Some(condition) => {
            let first = rw.settled(condition, DEEPEST).ok_or_else(undecided)? != 0;
            (first, always_true(body, first))
        }
    };
    if on && most == i64::MAX && always == Some(true) {
        return Err(format!("nothing ends it. {INSTEAD}"));
    }
    let carried = node.inputs.len().saturating_sub(2);
    let mut state = node.inputs.get(2..).unwrap_or_default().to_vec();
    let condition = rw.constant(Tensor { dtype: DType::Bool, shape: vec![], bytes: vec![1].into() });
    let mut scanned: Vec<Vec<String>> = vec![vec![]; node.outputs.len().saturating_sub(carried)];
    rw.settle(&state);
    let mut i = 0;
    while on && i < most {
        // A body without nodes adds none, but takes time.
        if i >= MOST_NODES as i64 {
            return Err(format!("its steps are more than {MOST_NODES}. {INSTEAD}"));
        }
        let number = rw.int(i);
        let inputs = [&[number, condition.clone()], state.as_slice()].concat();
        let outputs = rw.step(body, &inputs)?;
        if outputs.len() < 1 + carried + scanned.len() {
            return Err(format!(
                "its body has {} outputs, expected {}",
                outputs.len(),
                1 + carried + scanned.len()
            ));
        }
        on = match always {
            Some(on) => on,
            None => rw.settled(&outputs[0], DEEPEST).ok_or_else(undecided)? != 0,
        };
        state = outputs[1..1 + carried].to_vec();
        rw.settle(&state);
        scanned.iter_mut().zip(&outputs[1 + carried..]).for_each(|(all, out)| all.push(out.clone()));
        i += 1;
    }
    for (i, value) in state.iter().enumerate() {
        rw.also(node, i, value);
    }
    for (i, parts) in scanned.iter().enumerate() {
        let Some(out) = node.output(carried + i) else { continue };
        if parts.is_empty() {
            return Err("it collects the values of no step, which is not covered".into());
        }
        rw.stack(parts, 0, out);
    }
    Ok(())
}

fn scan(rw: &mut Rewrite, node: &Node) -> Done {
    let body = body(node)?;
    let count = node.int("num_scan_inputs", 0) as usize;
    let carried =
        node.inputs.len().checked_sub(count).filter(|_| count > 0).ok_or("has no inputs to scan")?;
    let produced = node.outputs.len().saturating_sub(carried);
    let axis_of = |name: &str, i: usize| node.ints(name).and_then(|v| v.get(i).copied()).unwrap_or(0);
    let mut steps = None;
    let mut inputs: Vec<Vec<String>> = Vec::new();
    for i in 0..count {
        let x = node.x(carried + i)?;
        let shape = rw.shape(&x)?;
        let axis = axis_of("scan_input_axes", i);
        let axis = if axis < 0 { axis + shape.len() as i64 } else { axis };
        let size = *shape.get(axis as usize).ok_or("scans an axis that its input doesn't have")?;
        if size > MOST_NODES as i64 {
            return Err(format!("its steps are {size}, more than {MOST_NODES}. {INSTEAD}"));
        }
        if *steps.get_or_insert(size) != size {
            return Err("scans inputs of different lengths".into());
        }
        let mut parts = rw.slices(&x, axis, size);
        if axis_of("scan_input_directions", i) != 0 {
            parts.reverse();
        }
        inputs.push(parts);
    }
    let mut state = node.inputs[..carried].to_vec();
    let mut scanned: Vec<Vec<String>> = vec![vec![]; produced];
    for step in 0..steps.unwrap_or(0) as usize {
        let own = inputs.iter().map(|parts| parts[step].clone());
        let outputs = rw.step(body, &state.iter().cloned().chain(own).collect::<Vec<_>>())?;
        if outputs.len() < carried + produced {
            return Err(format!("its body has {} outputs, expected {}", outputs.len(), carried + produced));
        }
        state = outputs[..carried].to_vec();
        scanned.iter_mut().zip(&outputs[carried..]).for_each(|(all, out)| all.push(out.clone()));
    }
    for (i, value) in state.iter().enumerate() {
        rw.also(node, i, value);
    }
    for (i, mut parts) in scanned.into_iter().enumerate() {
        let Some(out) = node.output(carried + i) else { continue };
        let first = parts.first().ok_or("it collects the values of no step, which is not covered")?;
        let mut axis = axis_of("scan_output_axes", i);
        if axis < 0 {
            // Counted from the end of the stacked value. The body has the rank of a step's value.
            let value = body.outputs.get(carried + i).and_then(|v| v.shape.as_ref());
            let rank =
                value.ok_or_else(|| format!("the number of dimensions of {first} is not known"))?.len();
            axis += rank as i64 + 1;
        }
        if axis_of("scan_output_directions", i) != 0 {
            parts.reverse();
        }
        rw.stack(&parts, axis, out);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Types, Value};

    /// Number of steps of a loop over the image that also carries n ← n + `added` from `first`, while n <
    /// `limit`.
    fn steps(first: i64, added: &str, limit: i64) -> usize {
        let value = |name: &str, dtype: DType| Value::new(name, dtype, &[]);
        let nodes = vec![
            Node::new("Add", &["n", added], "next"),
            Node::new("Less", &["next", "limit"], "on"),
            Node::new("Tanh", &["s"], "bounded"),
        ];
        let mut body = Graph::new(nodes, Default::default());
        body.inputs = vec![
            value("k", DType::I64),
            value("go", DType::Bool),
            value("n", DType::I64),
            value("s", DType::F32),
        ];
        body.outputs =
            vec![value("on", DType::Bool), value("next", DType::I64), value("bounded", DType::F32)];
        let mut node =
            Node::new("Loop", &["", "start", "first", "x"], "").with("body", Attr::Graph(Box::new(body)));
        node.outputs = vec!["last".into(), "y".into()];
        let number = |value: i64| Tensor::i64(&[], &[value]);
        let constants = [
            ("start".to_string(), Tensor { dtype: DType::Bool, shape: vec![], bytes: vec![1].into() }),
            ("first".to_string(), number(first)),
            ("limit".to_string(), number(limit)),
            ("one".to_string(), number(1)),
        ];
        let mut graph = Graph::new(vec![node], constants.into());
        graph.inputs = vec![value("x", DType::F32)];
        graph.outputs = vec![value("y", DType::F32)];
        let unfolded = graph.unfold(&Types::new()).unwrap().unwrap();
        unfolded.nodes.iter().filter(|node| node.op == "Tanh").count()
    }

    #[test]
    fn a_number_that_counts_to_a_hundred_ends_a_loop() {
        assert_eq!(steps(0, "one", 100), 100);
    }

    /// Doubling: each step reads the number twice, so that 2⁶⁰ ways lead to the first.
    #[test]
    fn a_number_that_doubles_takes_no_longer() {
        assert_eq!(steps(1, "n", 1 << 60), 60);
    }
}
