//! Operators that only change the shape, or the order of dimensions.

use crate::case::*;

pub fn samples() -> Vec<(&'static str, Sample)> {
    vec![
        entry("Concat", concat),
        entry("DepthToSpace", blocks("DepthToSpace")),
        entry("Expand", expand_to),
        entry("Flatten", flatten),
        entry("Reshape", with_ints("Reshape", "shape", reshape_to)),
        entry("SpaceToDepth", blocks("SpaceToDepth")),
        entry("Split", split),
        entry("Squeeze", squeeze),
        entry("Tile", with_ints("Tile", "repeats", |r, s| s.iter().map(|_| r.int(1, 3)).collect())),
        entry("Transpose", transpose),
        entry("Unsqueeze", unsqueeze),
    ]
}

fn with_ints(
    op: &'static str,
    name: &'static str,
    ints: fn(&mut Rng, &[i64]) -> Vec<i64>,
) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let rank = r.int(1, 4);
        let shape = r.shape(rank);
        let values = ints(r, &shape);
        Case::new(Node::new(op, &["x", name], "y")).normal(r, "x", &shape).ints(name, &values)
    }
}

fn reshape_to(r: &mut Rng, shape: &[i64]) -> Vec<i64> {
    match r.int(0, 2) {
        0 => vec![-1],
        1 => [shape, &[1]].concat(),
        _ => vec![0, -1],
    }
}

fn squeeze(r: &mut Rng) -> Case {
    let rank = r.int(1, 3);
    let mut shape = r.shape(rank);
    let at = r.int(0, rank);
    shape.insert(at as usize, 1);
    Case::new(Node::new("Squeeze", &["x", "axes"], "y")).normal(r, "x", &shape).ints("axes", &[at])
}

fn unsqueeze(r: &mut Rng) -> Case {
    let rank = r.int(0, 3);
    let shape = r.shape(rank);
    let at = r.int(-rank - 1, rank);
    Case::new(Node::new("Unsqueeze", &["x", "axes"], "y")).normal(r, "x", &shape).ints("axes", &[at])
}

fn transpose(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let shape = r.shape(rank);
    let mut perm: Vec<i64> = (0..rank).collect();
    r.shuffle(&mut perm);
    let mut node = Node::new("Transpose", &["x"], "y");
    if r.bool() {
        node = node.with("perm", perm);
    }
    Case::new(node).normal(r, "x", &shape)
}

fn concat(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let axis = r.int(-rank, rank - 1);
    let a = r.shape(rank);
    let mut b = a.clone();
    b[((axis + rank) % rank) as usize] = r.int(1, 4);
    let node = Node::new("Concat", &["a", "b", "a"], "y").with("axis", axis);
    Case::new(node).normal(r, "a", &a).normal(r, "b", &b)
}

fn split(r: &mut Rng) -> Case {
    let rank = r.int(1, 4);
    let axis = r.int(-rank, rank - 1);
    let even = r.bool();
    // An even split's last part may be smaller, but not empty.
    let sizes = if even { [2, 2, r.int(1, 2)] } else { [r.int(1, 3), r.int(1, 3), r.int(1, 3)] };
    let mut shape = r.shape(rank);
    shape[((axis + rank) % rank) as usize] = sizes.iter().sum();
    let mut node = Node::new("Split", &["x", "split"], "").with("axis", axis);
    node.outputs = vec!["y0".into(), "y1".into(), "y2".into()];
    if even {
        node.inputs.truncate(1);
        node = node.with("num_outputs", 3);
    }
    let mut case = Case::new(node).normal(r, "x", &shape);
    if r.bool() {
        // A part that nothing reads.
        case.graph.outputs.remove(1);
    }
    if even { case } else { case.ints("split", &sizes) }
}

fn blocks(op: &'static str) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let mut x = image(r);
        let b = r.int(1, 3);
        let mut node = Node::new(op, &["x"], "y").with("blocksize", b);
        if op == "DepthToSpace" {
            x[1] *= b * b;
            node = node.with("mode", r.pick(&["DCR", "CRD"]));
        } else {
            x[2] *= b;
            x[3] *= b;
        }
        Case::new(node).normal(r, "x", &x)
    }
}

fn expand_to(r: &mut Rng) -> Case {
    let rank = r.int(1, 3);
    let full = r.shape(rank);
    let x: Vec<i64> = full.iter().map(|&d| if r.bool() { 1 } else { d }).collect();
    let mut to = full;
    if r.bool() {
        to.insert(0, 2);
    }
    Case::new(Node::new("Expand", &["x", "to"], "y")).normal(r, "x", &x).ints("to", &to)
}

fn flatten(r: &mut Rng) -> Case {
    let shape = r.shape(4);
    Case::new(Node::new("Flatten", &["x"], "y").with("axis", r.int(0, 4))).normal(r, "x", &shape)
}
