//! Choices by ArgMax, ArgMin and Equal, written in operators that softened passes have a slope for.
//!
//! Quantisers of vectors compute the distances to their centres and pick the centre at the position of the
//! smallest. A position has no slope in any pass. The same row is a one-hot vector times the table, and the
//! Hardmax that makes this vector has a softened slope ([`Pass::Softened`](crate::Pass)). Equal has none
//! either; no value is above its maximum, so that values equal to it are those that aren't below.

use crate::{DType, Graph, Node, Tensor, Types};
use std::collections::HashMap;

impl Graph {
    /// Replaces nodes, with the same results:
    ///
    /// - Gather and GatherND that pick rows of a constant table of finite numbers at positions of ArgMax or
    ///   ArgMin, or at these plus a constant for each part of a product quantiser, by a product of the table
    ///   and Hardmax;
    /// - one-hot vectors of such positions (OneHot, Equal with 0, 1, 2, …, or ScatterElements of ones into
    ///   zeros) by Hardmax;
    /// - Equal of values and their ReduceMax or ReduceMin, by GreaterOrEqual or LessOrEqual.
    ///
    /// Adds the new values to `types`, which covers every value.
    pub fn write_in_softer_operators(&mut self, types: &mut Types) {
        let found = View::new(self, types).all(&self.free_prefix("choice"));
        if found.is_empty() {
            return;
        }
        for (index, written) in found.into_iter().rev() {
            self.nodes.splice(index..=index, written.nodes);
            self.constants.extend(written.constants);
            types.extend(written.types);
        }
        self.prune();
    }
}

/// The nodes that take the place of one, with their constants and the types of their values.
#[derive(Default)]
struct Written {
    /// Prefix of the names of values.
    prefix: String,
    nodes: Vec<Node>,
    constants: Vec<(String, Tensor)>,
    types: Vec<(String, (DType, Vec<i64>))>,
}

impl Written {
    /// Names the output of a node and appends it; returns the name.
    fn push(&mut self, mut node: Node, dtype: DType, shape: &[i64]) -> String {
        let name = format!("{}/{}", self.prefix, self.types.len());
        self.types.push((name.clone(), (dtype, shape.to_vec())));
        node.outputs = vec![name.clone()];
        self.nodes.push(node);
        name
    }

    fn constant(&mut self, tensor: Tensor) -> String {
        let name = format!("{}/{}", self.prefix, self.types.len());
        self.types.push((name.clone(), (tensor.dtype, tensor.shape.clone())));
        self.constants.push((name.clone(), tensor));
        name
    }

    /// Reshapes floats; returns `value` if the shapes are equal.
    fn reshape(&mut self, value: String, from: &[i64], to: &[i64]) -> String {
        if from == to {
            return value;
        }
        let shape = self.constant(Tensor::ints(to));
        self.push(Node::new("Reshape", &[&value, &shape], ""), DType::F32, to)
    }

    /// Gives the output of the last node the name `output`.
    fn ending_in(mut self, output: &str) -> Written {
        if let Some(last) = self.nodes.last_mut() {
            last.outputs = vec![output.to_string()];
        }
        self
    }
}

/// Positions that ArgMax or ArgMin chooses.
struct Choice<'a> {
    chooser: &'a Node,
    /// The number of positions to choose from.
    count: i64,
    /// A constant that is added to the positions, and the shape of the sum.
    offset: Option<(&'a Tensor, &'a [i64])>,
}

/// A graph, with the node that makes each value.
struct View<'a> {
    graph: &'a Graph,
    types: &'a Types,
    makers: HashMap<&'a str, &'a Node>,
}

impl<'a> View<'a> {
    fn new(graph: &'a Graph, types: &'a Types) -> View<'a> {
        let made = |node: &'a Node| node.outputs.iter().map(move |out| (out.as_str(), node));
        View { graph, types, makers: graph.nodes.iter().flat_map(made).collect() }
    }

    /// The node that makes a value, if it is a standard operator.
    fn maker(&self, value: &str) -> Option<&'a Node> {
        self.makers.get(value).copied().filter(|node| node.domain.is_empty())
    }

    fn constant(&self, value: &str) -> Option<&'a Tensor> {
        self.graph.constants.get(value)
    }

    fn dtype(&self, value: &str) -> Option<DType> {
        Some(self.types.get(value)?.0)
    }

    fn shape(&self, value: &str) -> Option<&'a [i64]> {
        Some(&self.types.get(value)?.1)
    }

    /// The nodes to replace, by index. The names of new values begin with `prefix`.
    fn all(&self, prefix: &str) -> Vec<(usize, Written)> {
        let mut found = Vec::new();
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let Some(output) = node.output(0) else { continue };
            let mut written = Written { prefix: format!("{prefix}{output}"), ..Written::default() };
            if self.write(node, &mut written).is_some() {
                found.push((index, written.ending_in(output)));
            }
        }
        found
    }

    /// Writes a node in other operators. `None`: it stays as it is.
    fn write(&self, node: &'a Node, written: &mut Written) -> Option<()> {
        match node.op.as_str() {
            _ if !node.domain.is_empty() => None,
            "Gather" | "GatherND" => self.picked(node, written),
            "OneHot" => self.one_hot(node, written),
            "ScatterElements" => self.scattered(node, written),
            "Equal" => self.counted(node, written).or_else(|| self.extreme(node, written)),
            _ => None,
        }
    }

    /// The choice that a value is, in any shape that keeps the order of its positions.
    fn choice(&self, mut value: &'a str) -> Option<Choice<'a>> {
        let mut offset = None;
        loop {
            let node = self.maker(value)?;
            let x = node.input(0)?;
            match node.op.as_str() {
                "Flatten" | "Identity" | "Reshape" | "Squeeze" | "Unsqueeze" => value = x,
                "Cast" if matches!(self.dtype(value)?, DType::I64 | DType::I32) => value = x,
                "Add" if offset.is_none() => {
                    let terms = [(x, node.input(1)?), (node.input(1)?, x)];
                    let (positions, constant) =
                        terms.into_iter().find_map(|(at, plus)| Some((at, self.constant(plus)?)))?;
                    let shape = self.shape(value)?;
                    if self.shape(positions)? != shape {
                        return None;
                    }
                    offset = Some((constant, shape));
                    value = positions;
                }
                // Hardmax takes the first of equal values.
                "ArgMax" | "ArgMin"
                    if node.int("select_last_index", 0) == 0 && self.dtype(x)? == DType::F32 =>
                {
                    let shape = self.shape(x)?;
                    let count = *shape.get(self.axis(node)?)?;
                    return Some(Choice { chooser: node, count, offset });
                }
                _ => return None,
            }
        }
    }

    /// The axis along which ArgMax or ArgMin chooses.
    fn axis(&self, chooser: &Node) -> Option<usize> {
        let axis = chooser.int("axis", 0);
        let rank = self.shape(chooser.input(0)?)?.len() as i64;
        usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()
    }

    /// One-hot vectors along the last axis, one for each position of a choice in their order; their shape.
    fn hardmax(&self, choice: &Choice, written: &mut Written) -> Option<(String, Vec<i64>)> {
        let scores = choice.chooser.input(0)?;
        let (mut value, mut shape) = (scores.to_string(), self.shape(scores)?.to_vec());
        let axis = self.axis(choice.chooser)?;
        if axis + 1 < shape.len() {
            let mut perm: Vec<i64> = (0..shape.len() as i64).collect();
            perm[axis..].rotate_left(1);
            shape[axis..].rotate_left(1);
            let moved = Node::new("Transpose", &[&value], "").with("perm", perm);
            value = written.push(moved, DType::F32, &shape);
        }
        if choice.chooser.op == "ArgMin" {
            value = written.push(Node::new("Neg", &[&value], ""), DType::F32, &shape);
        }
        let hardmax = Node::new("Hardmax", &[&value], "").with("axis", -1i64);
        Some((written.push(hardmax, DType::F32, &shape), shape))
    }

    /// Rows of a constant table, at a choice.
    fn picked(&self, node: &'a Node, written: &mut Written) -> Option<()> {
        let (table, at) = (node.input(0)?, node.input(1)?);
        let rows = self.constant(table).filter(|rows| rows.dtype == DType::F32)?;
        // GatherND with one coordinate is Gather along the first axis, and with two the same in the table
        // whose first two axes are one.
        let coordinates = match node.op.as_str() {
            "Gather" if node.int("axis", 0) == 0 => 1,
            "GatherND" if node.int("batch_dims", 0) == 0 => *self.shape(at)?.last()?,
            _ => return None,
        };
        let (choice, starts, shape) = match coordinates {
            1 => {
                let choice = self.choice(at)?;
                let (starts, shape) = match choice.offset {
                    Some((offset, shape)) => (Tensor::i64(&offset.shape, &offset.to_i64s()?), shape.to_vec()),
                    None => (Tensor::i64(&[], &[0]), vec![]),
                };
                (choice, starts, shape)
            }
            2 => {
                let pair = self.maker(at).filter(|pair| pair.op == "Concat" && pair.inputs.len() == 2)?;
                let (part, within) = (self.constant(pair.input(0)?)?, pair.input(1)?);
                let choice = self.choice(within).filter(|choice| choice.offset.is_none())?;
                let last = part.shape.len() as i64 - 1;
                let fits = [-1, last].contains(&pair.int("axis", 0))
                    && part.shape.last() == Some(&1)
                    && rows.shape.get(1) == Some(&choice.count);
                let start = |part: i64| part.checked_mul(choice.count);
                let starts: Vec<i64> = part.to_i64s()?.into_iter().map(start).collect::<Option<_>>()?;
                fits.then_some((choice, Tensor::i64(&part.shape, &starts), self.shape(within)?.to_vec()))?
            }
            _ => return None,
        };
        let (lead, width) = rows.shape.split_at_checked(coordinates as usize)?;
        let (all, width) = (lead.iter().product::<i64>(), width.iter().product::<i64>());
        let starts = without_repeats(&starts)?;
        let each = starts.to_i64s()?;
        let (first, count) = (*each.first()?, choice.count);
        let end = count.checked_mul(each.len() as i64)?.checked_add(first)?;
        // The parts lie in the table one after another. So their rows are shared with it and not copied, and
        // a choice is multiplied by the rows of its part, not by all.
        let in_order = (0..).zip(&each).all(|(part, start): (i64, _)| *start == first + part * count);
        if !in_order || first < 0 || end > all {
            return None;
        }
        let byte = |row: i64| (row * width) as usize * size_of::<f32>();
        let bytes = rows.bytes.slice(byte(first)..byte(end));
        let used = Tensor { dtype: DType::F32, shape: vec![end - first, width], bytes };
        // In a product, 0 · ∞ of the rows that are not chosen is NaN.
        if used.to_f32s()?.iter().any(|v| !v.is_finite()) {
            return None;
        }
        let (mut value, mut own) = self.hardmax(&choice, written)?;
        let mut block = starts.shape.clone();
        if !block.is_empty() {
            let full = [&shape[..], &[1, count]].concat();
            value = written.reshape(value, &own, &full);
            own = full;
        }
        block.extend([count, width]);
        let table = if rows.shape == block {
            table.to_string()
        } else {
            written.constant(Tensor { shape: block, ..used })
        };
        *own.last_mut()? = width;
        value = written.push(Node::new("MatMul", &[&value, &table], ""), DType::F32, &own);
        written.reshape(value, &own, self.shape(node.output(0)?)?);
        Some(())
    }

    /// OneHot of a choice, with the values 0 and 1.
    fn one_hot(&self, node: &'a Node, written: &mut Written) -> Option<()> {
        let [positions, depth, values] = [0, 1, 2].map(|i| node.input(i));
        let (choice, values) = (self.choice(positions?)?, self.constant(values?)?);
        let marks = values.to_f32s() == Some(vec![0.0, 1.0]) || values.to_i64s() == Some(vec![0, 1]);
        let axis = node.int("axis", -1);
        let rank = self.shape(node.output(0)?)?.len() as i64;
        let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
        (marks && self.graph.const_ints(depth?)? == [choice.count]).then_some(())?;
        self.marked(node, &choice, axis, written)
    }

    /// Equal of a choice and 0, 1, 2, …, as PyTorch writes one_hot.
    fn counted(&self, node: &'a Node, written: &mut Written) -> Option<()> {
        let (a, b) = (node.input(0)?, node.input(1)?);
        let (positions, numbers) =
            [(a, b), (b, a)].into_iter().find_map(|(at, n)| Some((at, self.constant(n)?)))?;
        let choice = self.choice(positions)?;
        let fits = self.shape(positions)?.last() == Some(&1)
            && numbers.shape.last() == Some(&choice.count)
            && numbers.to_i64s()? == (0..choice.count).collect::<Vec<i64>>();
        let axis = self.shape(node.output(0)?)?.len().checked_sub(1)?;
        fits.then(|| self.marked(node, &choice, axis, written))?
    }

    /// Zeros with ones at a choice.
    fn scattered(&self, node: &'a Node, written: &mut Written) -> Option<()> {
        let [zeros, positions, ones] = [0, 1, 2].map(|i| node.input(i));
        let (zeros, ones) = (self.constant(zeros?)?, self.constant(ones?)?);
        let choice = self.choice(positions?)?;
        let (axis, rank) = (node.int("axis", 0), zeros.shape.len() as i64);
        let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
        let mut each = zeros.shape.clone();
        *each.get_mut(axis)? = 1;
        let all = |t: &Tensor, value: f32| t.to_f32s().is_some_and(|own| own.iter().all(|v| *v == value));
        let fits = self.shape(positions?)? == each
            && node.str("reduction", "none") == "none"
            && all(zeros, 0.0)
            && all(ones, 1.0);
        fits.then(|| self.marked(node, &choice, axis, written))?
    }

    /// A choice as one-hot vectors along an axis of a node's output, in its type.
    fn marked(&self, node: &'a Node, choice: &Choice, axis: usize, written: &mut Written) -> Option<()> {
        let out = node.output(0)?;
        let (dtype, shape) = self.types.get(out)?;
        if choice.offset.is_some() || shape.get(axis) != Some(&choice.count) {
            return None;
        }
        let (value, own) = self.hardmax(choice, written)?;
        let mut last = shape.clone();
        last[axis..].rotate_left(1);
        let mut value = written.reshape(value, &own, &last);
        if axis + 1 < shape.len() {
            let mut perm: Vec<i64> = (0..shape.len() as i64).collect();
            perm[axis..].rotate_right(1);
            let moved = Node::new("Transpose", &[&value], "").with("perm", perm);
            value = written.push(moved, DType::F32, shape);
        }
        if *dtype != DType::F32 {
            written.push(Node::new("Cast", &[&value], "").with("to", *dtype), *dtype, shape);
        }
        Some(())
    }

    /// Equal of values and their maximum or minimum, which is expanded along the axes that it is taken over.
    fn extreme(&self, node: &'a Node, written: &mut Written) -> Option<()> {
        let (a, b) = (node.input(0)?, node.input(1)?);
        let found = |(x, most): (&'a str, &'a str)| {
            let mut reduce = self.maker(most)?;
            while matches!(reduce.op.as_str(), "Reshape" | "Unsqueeze") {
                reduce = self.maker(reduce.input(0)?)?;
            }
            let shape = self.shape(x)?;
            let mut axes = reduce.input(1).map_or(Some(vec![]), |axes| self.graph.const_ints(axes))?;
            if axes.is_empty() && reduce.int("noop_with_empty_axes", 0) == 0 {
                axes.extend(0..shape.len() as i64);
            }
            let mut kept = shape.to_vec();
            for axis in axes {
                let axis = if axis < 0 { axis + shape.len() as i64 } else { axis };
                *kept.get_mut(usize::try_from(axis).ok()?)? = 1;
            }
            let op = match reduce.op.as_str() {
                "ReduceMax" => "GreaterOrEqual",
                "ReduceMin" => "LessOrEqual",
                _ => return None,
            };
            let fits = reduce.input(0) == Some(x)
                && kept != shape
                && self.shape(most)? == kept
                && self.dtype(x)? == DType::F32;
            fits.then_some((op, x, reduce, kept))
        };
        let (op, x, reduce, kept) = [(a, b), (b, a)].into_iter().find_map(found)?;
        // The rule looks for an input that is made by ReduceMax or ReduceMin.
        let mut most = reduce.output(0)?.to_string();
        if self.shape(&most)? != kept {
            let again = Node { name: String::new(), ..reduce.clone() }.with("keepdims", 1i64);
            most = written.push(again, DType::F32, &kept);
        }
        let (dtype, shape) = self.types.get(node.output(0)?)?;
        let compared = Node { op: op.into(), inputs: vec![x.to_string(), most], ..node.clone() };
        written.push(compared, *dtype, shape);
        Some(())
    }
}

/// Integers without the leading axes along which they repeat, such as that of a batch.
fn without_repeats(tensor: &Tensor) -> Option<Tensor> {
    let (mut values, mut shape) = (tensor.to_i64s()?, &tensor.shape[..]);
    while let [_, rest @ ..] = shape {
        let own = rest.iter().product::<i64>() as usize;
        if own == 0 || values.chunks(own).any(|part| *part != values[..own]) {
            break;
        }
        values.truncate(own);
        shape = rest;
    }
    Some(Tensor::i64(shape, &values))
}
