//! Operators that move, choose or count values.

use super::case::*;

pub const CASES: &[Row] = &[
    ("", "Optional", optional),
    ("", "OptionalGetElement", optional),
    ("", "OptionalHasElement", optional),
    (MS, "ExpandDims", expand_dims),
    (MS, "GatherND", own_gather_nd),
    (MS, "GridSample", own_grid_sample),
    (MS, "Pad", own_pad),
    (MS, "Trilu", own_trilu),
    (MS, "UnfoldTensor", unfold),
];

/// x · (whether x is present), through an optional.
fn optional(r: &mut Rng) -> Case {
    let mut c = case("", "Optional", &["x"], &["o"]).input(r, "x", &[2, 3]).opset(21);
    c.graph.nodes.extend([
        Node::new("OptionalGetElement", &["o"], "value"),
        Node::new("OptionalHasElement", &["o"], "there"),
        Node::new("Cast", &["there"], "factor").with("to", i64::from(DType::F32.code())),
        Node::new("Mul", &["value", "factor"], "y"),
    ]);
    c.graph.outputs[0].name = "y".into();
    c
}

fn own_grid_sample(r: &mut Rng) -> Case {
    case(MS, "GridSample", &["x", "grid"], &["y"])
        .input(r, "x", &[2, 2, 4, 5])
        .input(r, "grid", &[2, 3, 2, 2])
        .with("mode", r.pick(&["bilinear", "nearest", "bicubic"]))
        .with("padding_mode", r.pick(&["zeros", "border", "reflection"]))
        .with("align_corners", r.int(0, 1))
}

fn own_trilu(r: &mut Rng) -> Case {
    case(MS, "Trilu", &["x"], &["y"]).input(r, "x", &[2, 3, 4]).with("upper", r.int(0, 1))
}

fn expand_dims(r: &mut Rng) -> Case {
    let axis = Tensor { shape: vec![], ..int32(&[r.int(-3, 2) as i32]) };
    case(MS, "ExpandDims", &["x", "axis"], &["y"]).input(r, "x", &[2, 3]).constant("axis", axis)
}

fn own_gather_nd(r: &mut Rng) -> Case {
    let at: Vec<i32> = (0..3).flat_map(|_| [r.int(0, 1) as i32, r.int(0, 3) as i32]).collect();
    let at = Tensor { shape: vec![3, 2], ..int32(&at) };
    case(MS, "GatherND", &["x", "at"], &["y"]).input(r, "x", &[2, 4, 3]).constant("at", at)
}

fn own_pad(r: &mut Rng) -> Case {
    let pads: Vec<i64> = (0..6).map(|_| r.int(0, 1)).collect();
    let mode = r.pick(&["constant", "edge", "reflect"]);
    let valued = mode == "constant" && r.bool();
    let inputs: &[&str] = if valued { &["x", "pads", "v"] } else { &["x", "pads"] };
    case(MS, "Pad", inputs, &["y"])
        .input(r, "x", &[2, 3, 4])
        .constant("pads", Tensor::ints(&pads))
        .when(valued, |c| c.constant("v", Tensor::f32(&[1], &[0.7])))
        .with("mode", mode)
}

fn unfold(r: &mut Rng) -> Case {
    case(MS, "UnfoldTensor", &["x"], &["y"])
        .input(r, "x", &[3, 5, 4])
        .with("dim", r.pick(&[-1i64, -2, 0, 1, 2]))
        .with("size", r.int(1, 3))
        .with("step", r.int(1, 2))
}
