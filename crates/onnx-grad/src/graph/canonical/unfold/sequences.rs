//! Sequences of tensors: lists of values, as exporters write them for `chunk`, `tensor_split` and Python
//! lists.
//!
//! A node that makes a sequence stays, and its elements are added as values. A node that reads a sequence
//! with known elements is rewritten without it. If positions or lengths are unknown, everything stays.

use super::control::DEEPEST;
use super::{Done, Expansion, Node, Rewrite, When, refs};
use crate::graph::canonical::standard;
use crate::graph::sane::MOST_NODES;

const POSITION: &str = "a position computed from the image";

/// Maximum number of elements of all sequences together. A node that inserts an element makes a sequence of
/// its own, so a list of n elements counts as n²/2.
const MOST_ELEMENTS: usize = 20 * MOST_NODES;

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("ConcatFromSequence", 11, join).when(When::Always),
    standard("SequenceAt", 11, element).refuses(POSITION).when(When::Always),
    standard("SequenceConstruct", 11, |rw, node| make(rw, node, |_, node| Ok(Some(node.inputs.clone()))))
        .when(When::Always),
    standard("SequenceEmpty", 11, |rw, node| make(rw, node, |_, _| Ok(Some(Vec::new())))).when(When::Always),
    standard("SequenceErase", 11, |rw, node| make(rw, node, erased)).refuses(POSITION).when(When::Always),
    standard("SequenceInsert", 11, |rw, node| make(rw, node, inserted)).refuses(POSITION).when(When::Always),
    standard("SequenceLength", 11, length).when(When::Always),
    standard("SplitToSequence", 11, |rw, node| make(rw, node, split))
        .refuses("lengths computed from the image")
        .when(When::Always),
];

impl Rewrite<'_> {
    /// The elements of the sequence that is input `i`.
    fn elements(&self, node: &Node, i: usize) -> Option<Vec<String>> {
        self.sequences.get(node.input(i)?).cloned()
    }

    /// A copy of a sequence has the same elements.
    pub(super) fn follow(&mut self, node: &Node) -> Done {
        match (node.op.as_str(), self.elements(node, 0), node.output(0)) {
            ("Identity", Some(elements), Some(out)) => self.register(out, elements),
            _ => Ok(()),
        }
    }

    /// Registers the elements of a sequence. Error: there are too many.
    fn register(&mut self, sequence: &str, elements: Vec<String>) -> Done {
        self.elements += elements.len();
        if self.elements > MOST_ELEMENTS {
            return Err(format!(
                "makes a sequence with which all sequences have more than {MOST_ELEMENTS} elements together. Export the model with \
                 torch.stack or torch.cat of fewer tensors"
            ));
        }
        self.sequences.insert(sequence.to_string(), elements);
        Ok(())
    }

    /// The position among `count` elements that input `i` gives; `None` if unknown. Error: out of range.
    fn place(&self, node: &Node, i: usize, count: usize) -> Result<Option<usize>, String> {
        let Some(position) = self.settled(&node.x(i)?, DEEPEST) else { return Ok(None) };
        let place = if position < 0 { position + count as i64 } else { position };
        match usize::try_from(place).ok().filter(|place| *place < count) {
            Some(place) => Ok(Some(place)),
            None => Err(format!("names position {position} of {count}")),
        }
    }
}

type Elements = Result<Option<Vec<String>>, String>;

/// Appends a node that makes a sequence, and registers its elements.
fn make(rw: &mut Rewrite, node: &Node, elements: fn(&mut Rewrite, &Node) -> Elements) -> Done {
    if let (Some(elements), Some(out)) = (elements(rw, node)?, node.output(0)) {
        rw.register(out, elements)?;
    }
    rw.nodes.push(node.clone());
    Ok(())
}

fn inserted(rw: &mut Rewrite, node: &Node) -> Elements {
    let Some(mut elements) = rw.elements(node, 0) else { return Ok(None) };
    let end = elements.len() as i64;
    let position = match node.input(2) {
        Some(name) => rw.settled(name, DEEPEST),
        None => Some(end),
    };
    let Some(position) = position else { return Ok(None) };
    let place = if position < 0 { position + end } else { position };
    if !(0..=end).contains(&place) {
        return Err(format!("inserts at position {position} of {end}"));
    }
    elements.insert(place as usize, node.x(1)?);
    Ok(Some(elements))
}

fn erased(rw: &mut Rewrite, node: &Node) -> Elements {
    let Some(mut elements) = rw.elements(node, 0) else { return Ok(None) };
    let place = match node.input(1) {
        Some(_) => rw.place(node, 1, elements.len())?,
        None => Some(elements.len().checked_sub(1).ok_or("erases from an empty sequence")?),
    };
    Ok(place.map(|place| {
        elements.remove(place);
        elements
    }))
}

fn element(rw: &mut Rewrite, node: &Node) -> Done {
    let elements = rw.elements(node, 0);
    let place = match &elements {
        Some(elements) => rw.place(node, 1, elements.len())?,
        None => None,
    };
    match elements.zip(place) {
        Some((elements, place)) => rw.finish(node, "Identity", &[&elements[place]], &[]),
        None => {
            rw.nodes.push(node.clone());
            Ok(())
        }
    }
}

fn length(rw: &mut Rewrite, node: &Node) -> Done {
    match rw.elements(node, 0) {
        Some(elements) => {
            let count = rw.int(elements.len() as i64);
            rw.finish(node, "Identity", &[&count], &[])
        }
        None => {
            rw.nodes.push(node.clone());
            Ok(())
        }
    }
}

fn join(rw: &mut Rewrite, node: &Node) -> Done {
    let axis = node.int("axis", 0);
    match (rw.elements(node, 0), node.output(0)) {
        (Some(elements), _) if elements.is_empty() => Err("joins an empty sequence".into()),
        (Some(elements), Some(out)) if node.int("new_axis", 0) != 0 => {
            rw.stack(&elements, axis, out);
            Ok(())
        }
        (Some(elements), _) => rw.finish(node, "Concat", &refs(&elements), &[("axis", axis.into())]),
        (None, _) => {
            rw.nodes.push(node.clone());
            Ok(())
        }
    }
}

/// The parts of a tensor: of given lengths, of one length, or single ones, without the axis if `keepdims` is
/// 0.
fn split(rw: &mut Rewrite, node: &Node) -> Elements {
    let (x, axis) = (node.x(0)?, node.int("axis", 0));
    let size = || -> Option<i64> {
        let shape = rw.shape(&x).ok()?;
        let at = if axis < 0 { axis + shape.len() as i64 } else { axis };
        shape.get(usize::try_from(at).ok()?).copied()
    };
    let stated = match node.input(1) {
        Some(name) => {
            let Some(t) = rw.constants.get(name) else { return Ok(None) };
            Some((t.shape.is_empty(), t.to_i64s().ok_or("has lengths that are no integers")?))
        }
        None => None,
    };
    // The length of all parts; the last one may be shorter.
    let each = match &stated {
        None => Some(1),
        Some((true, each)) => each.first().copied().filter(|each| *each > 0),
        Some(_) => None,
    };
    let lengths = match (stated, each.zip(size())) {
        (Some((false, lengths)), _) => Some(lengths),
        (_, Some((each, size))) if size / each > MOST_NODES as i64 => {
            return Err(format!("makes {} parts, more than {MOST_NODES}", size / each));
        }
        (_, Some((each, size))) => {
            Some((0..size).step_by(each as usize).map(|at| each.min(size - at)).collect())
        }
        _ => None,
    };
    let Some(lengths) = lengths.filter(|lengths| !lengths.is_empty()) else { return Ok(None) };
    let mut parts = rw.split(&x, &lengths, axis);
    if node.input(1).is_none() && node.int("keepdims", 1) == 0 {
        let axis = rw.ints(&[axis]);
        parts = parts.iter().map(|part| rw.op("Squeeze", &[part, &axis])).collect();
    }
    Ok(Some(parts))
}

#[cfg(test)]
mod tests {
    use crate::graph::{DType, Graph, Node, Types, Value};

    /// A list of n elements, inserted one by one.
    fn inserted(count: usize) -> Result<Option<Graph>, String> {
        let mut nodes = vec![Node::new("SequenceEmpty", &[], "s0")];
        let insert = |i: usize| Node::new("SequenceInsert", &[&format!("s{i}"), "x"], &format!("s{}", i + 1));
        nodes.extend((0..count).map(insert));
        nodes.push(Node::new("ConcatFromSequence", &[&format!("s{count}")], "y"));
        let mut graph = Graph::new(nodes, Default::default());
        graph.inputs = vec![Value::new("x", DType::F32, &[1])];
        graph.outputs = vec![Value::new("y", DType::F32, &[count as i64])];
        graph.unfold(&Types::new())
    }

    /// 1,000 elements are 500,000 of all sequences together, and 2,500 are 3 million.
    #[test]
    fn a_list_that_grows_too_long_is_refused() {
        let graph = inserted(1000).unwrap().unwrap();
        assert_eq!(graph.nodes.last().unwrap().inputs, vec!["x"; 1000]);
        let error = inserted(2500).unwrap_err();
        assert!(error.starts_with("SequenceInsert \"s") && error.contains("2000000 elements"), "{error}");
    }
}
