//! Operators that move, pick or add up values by position.

use crate::case::*;

pub fn samples() -> Vec<(&'static str, Sample)> {
    vec![
        entry("Compress", compress),
        entry("CumSum", cum_sum),
        entry("Gather", gather),
        entry("GatherElements", gather_elements),
        entry("GatherND", gather_nd),
        entry("OneHot", one_hot),
        entry("Pad", pad),
        entry("ReverseSequence", reverse_sequence),
        entry("ScatterElements", scatter_elements),
        entry("ScatterND", scatter_nd),
        entry("Slice", slice),
        entry("TopK", top_k),
        entry("Trilu", trilu),
    ]
}

fn slice(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape: Vec<i64> = (0..rank).map(|_| r.int(3, 8)).collect();
    let axes: Vec<i64> = (0..rank).filter(|_| r.bool()).collect();
    let axes = if axes.is_empty() { vec![rank - 1] } else { axes };
    let (mut starts, mut ends, mut steps) = (vec![], vec![], vec![]);
    for &a in &axes {
        let size = shape[a as usize];
        let step = r.pick(&[1, 1, 2, 3, -1, -2]);
        let low = r.int(0, size - 2);
        if step > 0 {
            starts.push(if r.bool() { low } else { low - size });
            ends.push(r.pick(&[size, i64::MAX, -1, size - 1]));
        } else {
            starts.push(r.pick(&[size - 1, -1, i64::MAX, size - 2]));
            ends.push(r.pick(&[0, i64::MIN]));
        }
        steps.push(step);
    }
    Case::new(Node::new("Slice", &["x", "starts", "ends", "axes", "steps"], "y"))
        .normal(r, "x", &shape)
        .ints("starts", &starts)
        .ints("ends", &ends)
        .ints("axes", &axes)
        .ints("steps", &steps)
}

fn gather(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let axis = r.int(-rank, rank - 1);
    let size = shape[((axis + rank) % rank) as usize];
    let of: Vec<i64> = match r.int(0, 3) {
        0 => vec![],
        1 => vec![r.int(1, 4)],
        2 => vec![r.int(1, 3), r.int(1, 3)],
        // More picks of one position than are gathered one by one.
        _ => vec![8 * size],
    };
    let indices: Vec<i64> = (0..self::size(&of)).map(|_| r.int(-size, size - 1)).collect();
    Case::new(Node::new("Gather", &["x", "i"], "y").with("axis", axis))
        .normal(r, "x", &shape)
        .indices(r, "i", &of, &indices)
}

fn gather_elements(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let axis = r.int(-rank, rank - 1);
    let at = ((axis + rank) % rank) as usize;
    let of: Vec<i64> = (0..shape.len()).map(|d| r.int(1, if d == at { 6 } else { shape[d] })).collect();
    let indices: Vec<i64> = (0..size(&of)).map(|_| r.int(-shape[at], shape[at] - 1)).collect();
    Case::new(Node::new("GatherElements", &["x", "i"], "y").with("axis", axis))
        .normal(r, "x", &shape)
        .indices(r, "i", &of, &indices)
}

/// `count` index rows into the first axes of `shape`, different ones if `unique`.
fn rows(r: &mut Rng, shape: &[i64], count: usize, unique: bool) -> Vec<i64> {
    let mut all: Vec<Vec<i64>> = vec![vec![]];
    for &size in shape {
        all = all.iter().flat_map(|row| (0..size).map(|i| [row.as_slice(), &[i]].concat())).collect();
    }
    r.shuffle(&mut all);
    (0..count)
        .flat_map(|k| all[if unique { k } else { r.int(0, all.len() as i64 - 1) as usize }].clone())
        .collect()
}

fn gather_nd(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let batch = r.int(0, rank - 1) as usize;
    let depth = r.int(1, rank - batch as i64) as usize;
    let mut of = shape[..batch].to_vec();
    if batch == 0 || r.bool() {
        of.push(r.int(1, 4));
    }
    let indices = rows(r, &shape[batch..batch + depth], size(&of), false);
    of.push(depth as i64);
    Case::new(Node::new("GatherND", &["x", "i"], "y").with("batch_dims", batch as i64))
        .normal(r, "x", &shape)
        .indices(r, "i", &of, &indices)
}

/// Data and updates, all values different for max and min.
fn scattered(r: &mut Rng, node: Node, shape: &[i64], indices: (&[i64], Vec<i64>), of: &[i64]) -> Case {
    let reduction = node.str("reduction", "none").to_string();
    let all = distinct(r, &[(size(shape) + size(of)) as i64]);
    let (data, updates) = all.split_at(size(shape));
    let case = Case::new(node).input("x", shape, data.to_vec()).indices(r, "i", indices.0, &indices.1);
    if reduction == "mul" {
        return case.maybe(r, "u", of, |r, of| if r.bool() { normal(r, of) } else { with_zeros(r, of) });
    }
    case.input("u", of, updates.to_vec())
}

fn scatter_elements(r: &mut Rng) -> Case {
    let rank = r.int(1, 3);
    let shape = r.shape(rank);
    let axis = r.int(-rank, rank - 1);
    let at = ((axis + rank) % rank) as usize;
    let reduction = r.pick(&["none", "add", "mul", "max", "min"]);
    let mut of: Vec<i64> = shape.iter().map(|&d| r.int(1, d)).collect();
    // Without reduction every position occurs at most once: along the axis, a part of one permutation.
    let mut order: Vec<i64> = (0..shape[at]).collect();
    r.shuffle(&mut order);
    if reduction != "none" {
        of[at] = r.int(1, 5);
    }
    let inner: usize = size(&of[at + 1..]);
    let index = |k: usize, r: &mut Rng| match reduction {
        "none" => order[k / inner % of[at] as usize],
        _ => r.int(-shape[at], shape[at] - 1),
    };
    let indices: Vec<i64> = (0..size(&of)).map(|k| index(k, r)).collect();
    let node =
        Node::new("ScatterElements", &["x", "i", "u"], "y").with("axis", axis).with("reduction", reduction);
    scattered(r, node, &shape, (&of, indices), &of)
}

fn scatter_nd(r: &mut Rng) -> Case {
    let rank = r.int(1, 3);
    let shape = r.shape(rank);
    let depth = r.int(1, rank) as usize;
    let reduction = r.pick(&["none", "add", "mul", "max", "min"]);
    let most = if reduction == "none" { size(&shape[..depth]) as i64 } else { 5 };
    let count = r.int(1, most);
    let indices = rows(r, &shape[..depth], count as usize, reduction == "none");
    let of = [&[count], &shape[depth..]].concat();
    let node = Node::new("ScatterND", &["x", "i", "u"], "y").with("reduction", reduction);
    scattered(r, node, &shape, (&[count, depth as i64], indices), &of)
}

fn top_k(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let axis = r.int(-rank, rank - 1);
    let k = r.int(1, shape[((axis + rank) % rank) as usize]);
    let mut node = Node::new("TopK", &["x", "k"], "").with("axis", axis).with("largest", r.int(0, 1));
    node.outputs = vec!["y".into(), "i".into()];
    let mut case = Case::new(node).input("x", &shape, distinct(r, &shape)).ints("k", &[k]);
    case.graph.outputs.truncate(1);
    case
}

fn cum_sum(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let node =
        Node::new("CumSum", &["x", "axis"], "y").with("exclusive", r.int(0, 1)).with("reverse", r.int(0, 1));
    let axis = Tensor::i64(&[], &[r.int(-rank, rank - 1)]);
    Case::new(node).normal(r, "x", &shape).constant("axis", axis)
}

fn trilu(r: &mut Rng) -> Case {
    let rank = r.int(2, 4);
    let shape = r.shape(rank);
    let node = Node::new("Trilu", &["x", "k"], "y").with("upper", r.int(0, 1));
    let mut case = Case::new(node).normal(r, "x", &shape);
    if r.bool() {
        return case.constant("k", Tensor::i64(&[], &[r.int(-3, 3)]));
    }
    case.graph.nodes[0].inputs.truncate(1);
    case
}

fn pad(r: &mut Rng) -> Case {
    let rank = r.int(2, 4);
    let shape: Vec<i64> = (0..rank).map(|_| r.int(3, 6)).collect();
    let mode = r.pick(&["constant", "reflect", "edge", "wrap"]);
    let low = if mode == "constant" { -1 } else { 0 };
    let pads: Vec<i64> = (0..2 * rank).map(|_| if r.bool() { r.int(low, 2) } else { 0 }).collect();
    let with_value = mode == "constant" && r.bool();
    let inputs: &[&str] = if with_value { &["x", "pads", "v"] } else { &["x", "pads"] };
    let case = Case::new(Node::new("Pad", inputs, "y").with("mode", mode))
        .normal(r, "x", &shape)
        .ints("pads", &pads);
    if with_value { case.normal(r, "v", &[]) } else { case }
}

fn compress(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let axis = r.int(-rank, rank - 1);
    let flat = r.bool();
    let size = if flat { size(&shape) as i64 } else { shape[((axis + rank) % rank) as usize] };
    // The condition may be shorter than its axis, or longer: ONNX Runtime ignores the rest.
    let mut condition: Vec<u8> = (0..r.int(1, size + 2)).map(|_| r.int(0, 1) as u8).collect();
    condition[0] = 1;
    let node = Node::new("Compress", &["x", "c"], "y");
    let node = if flat { node } else { node.with("axis", axis) };
    let condition =
        Tensor { dtype: DType::Bool, shape: vec![condition.len() as i64], bytes: condition.into() };
    Case::new(node).normal(r, "x", &shape).constant("c", condition)
}

fn one_hot(r: &mut Rng) -> Case {
    let of = r.shape(2);
    let at: Vec<i64> = (0..size(&of)).map(|_| r.int(-4, 3)).collect();
    Case::new(Node::new("OneHot", &["at", "depth", "values"], "y").with("axis", r.int(-1, 2)))
        .indices(r, "at", &of, &at)
        .ints("depth", &[4])
        .normal(r, "values", &[2])
}

fn reverse_sequence(r: &mut Rng) -> Case {
    let shape = r.shape(3);
    let (batch, time) = r.pick(&[(0, 1), (1, 0)]);
    let lengths: Vec<i64> = (0..shape[batch]).map(|_| r.int(1, shape[time])).collect();
    let node = Node::new("ReverseSequence", &["x", "n"], "y")
        .with("batch_axis", batch as i64)
        .with("time_axis", time as i64);
    Case::new(node).normal(r, "x", &shape).constant("n", Tensor::ints(&lengths))
}
