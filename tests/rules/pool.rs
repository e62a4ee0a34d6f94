//! Pooling, over windows and over all positions.

use crate::case::*;
use crate::{common, differentiated};

pub fn samples() -> Vec<(&'static str, Sample)> {
    vec![
        entry("AveragePool", pool("AveragePool")),
        entry("GlobalAveragePool", global("GlobalAveragePool")),
        entry("GlobalLpPool", global("GlobalLpPool")),
        entry("GlobalMaxPool", global("GlobalMaxPool")),
        entry("LpPool", pool("LpPool")),
        entry("MaxPool", pool("MaxPool")),
        entry("MaxUnpool", max_unpool),
    ]
}

fn max_unpool(r: &mut Rng) -> Case {
    let x = [r.int(1, 2), r.int(1, 3), r.int(1, 3), r.int(1, 3)];
    let (channel, whole) = (4 * x[2] * x[3], 4 * size(&x) as i64);
    // Each value at some position of its own channel, no two at one position.
    let mut at = Vec::new();
    for start in (0..whole).step_by(channel as usize) {
        let mut places: Vec<i64> = (start..start + channel).collect();
        r.shuffle(&mut places);
        at.extend(&places[..(channel / 4) as usize]);
    }
    let node =
        Node::new("MaxUnpool", &["x", "i"], "y").with("kernel_shape", vec![2, 2]).with("strides", vec![2, 2]);
    Case::new(node).normal(r, "x", &x).indices(r, "i", &x, &at)
}

fn pool(op: &'static str) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let dims = r.pick(&[1usize, 2, 2, 3]);
        let kernel: Vec<i64> = (0..dims).map(|_| r.int(1, 3)).collect();
        let dilations: Vec<i64> = (0..dims).map(|_| r.int(1, 2)).collect();
        let strides: Vec<i64> = (0..dims).map(|_| r.int(1, 5)).collect();
        let extra = if dims == 3 { 3 } else { 7 };
        let space: Vec<i64> =
            (0..dims).map(|d| (kernel[d] - 1) * dilations[d] + 1 + r.int(0, extra)).collect();
        if op == "MaxPool" && dims == 2 && r.bool() {
            // Windows that tile the image.
            let x = [2, 3, kernel[0] * r.int(1, 4), kernel[1] * r.int(1, 4)];
            let node =
                Node::new(op, &["x"], "y").with("kernel_shape", kernel.clone()).with("strides", kernel);
            return Case::new(node).input("x", &x, distinct(r, &x));
        }
        let x = [&[2, 3], space.as_slice()].concat();
        let mut node =
            Node::new(op, &["x"], "y").with("kernel_shape", kernel.clone()).with("strides", strides.clone());
        if r.int(0, 4) == 0 {
            let mode = r.pick(&["SAME_UPPER", "SAME_LOWER", "VALID"]);
            node = node.with("auto_pad", mode);
            if mode == "VALID" {
                node = node.with("ceil_mode", r.int(0, 1));
            }
            // Windows with gaps between them: ONNX Runtime runs no such MaxPool by itself.
            if op == "MaxPool" {
                let no_gaps: Vec<i64> = strides.iter().zip(&kernel).map(|(s, k)| *s.min(k)).collect();
                node = node.with("strides", no_gaps);
            }
        } else {
            let pads: Vec<i64> = (0..2 * dims).map(|i| r.int(0, kernel[i % dims] / 2)).collect();
            node = node.with("ceil_mode", r.int(0, 1)).with("dilations", dilations);
            if r.int(0, 2) > 0 {
                node = node.with("pads", pads);
            }
        }
        if op == "LpPool" {
            node = node.with("p", r.int(1, 3));
        }
        if op == "AveragePool" {
            node = node.with("count_include_pad", r.int(0, 1));
        }
        let values = if op == "LpPool" { away(r, &x, &[0.0]) } else { distinct(r, &x) };
        Case::new(node).input("x", &x, values)
    }
}

fn global(op: &'static str) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let x = image(r);
        let mut node = Node::new(op, &["x"], "y");
        if op == "GlobalLpPool" {
            node = node.with("p", r.int(1, 3));
            return Case::new(node).input("x", &x, away(r, &x, &[0.0]));
        }
        Case::new(node).input("x", &x, distinct(r, &x))
    }
}

/// If several values of a window are largest, all of the gradient goes to the first of them in reading order,
/// as in PyTorch (`max_pool2d`) and in ONNX Runtime's own index output. The expected values come from a loop
/// over the windows. Behind a Relu, with or without another reader of its values, a maximum of 0 gets none.
#[test]
fn of_equal_values_a_max_pool_chooses_the_first() {
    common::load_runtime();
    let mut r = Rng::new(5);
    for _ in 0..60 {
        let mut two = |low, high| [r.int(low, high), r.int(low, high)];
        let (kernel, strides, dilations) = (two(1, 4), two(1, 3), two(1, 2));
        let (pads, more) = (two(0, 1), two(0, 7));
        let pads = [0, 1].map(|d| pads[d].min(kernel[d] - 1));
        let reach = [0, 1].map(|d| (kernel[d] - 1) * dilations[d] + 1);
        let [h, w] = [0, 1].map(|d| reach[d] + more[d]);
        let counts = [0, 1].map(|d| ([h, w][d] + 2 * pads[d] - reach[d]) / strides[d] + 1);
        let x: Vec<f32> = (0..2 * h * w).map(|_| r.int(-1, 1) as f32).collect();
        let ct: Vec<f32> = (0..2 * counts[0] * counts[1]).map(|i| 1.0 + i as f32).collect();
        let pool = Node::new("MaxPool", &["x"], "y")
            .with("kernel_shape", kernel.to_vec())
            .with("strides", strides.to_vec())
            .with("dilations", dilations.to_vec())
            .with("pads", [pads, pads].concat());
        let (relu, read_elsewhere) = (r.bool(), r.bool());
        let mut case = Case::new(pool).input("x", &[1, 2, h, w], x.clone());
        if relu {
            case.graph.nodes[0].inputs[0] = "on".into();
            case.graph.nodes.insert(0, Node::new("Relu", &["x"], "on"));
        }
        let elsewhere = relu && read_elsewhere;
        if elsewhere {
            case.graph.nodes.push(Node::new("Neg", &["on"], "z"));
            case.graph.outputs.push(Value { name: "z".into(), dtype: DType::Other(0), shape: None });
        }

        let on = |v: f32| if relu && v <= 0.0 { 0.0 } else { 1.0 };
        let seen = |at: usize| on(x[at]) * x[at];
        let mut expected = vec![0.0f32; x.len()];
        for (o, ct) in ct.iter().enumerate() {
            let o = o as i64;
            let [plane, row, column] =
                [o / (counts[0] * counts[1]), o / counts[1] % counts[0], o % counts[1]];
            let place = |k: i64, number: i64, d: usize| number * strides[d] + k * dilations[d] - pads[d];
            let window = (0..kernel[0]).flat_map(|i| (0..kernel[1]).map(move |j| (i, j)));
            let inside = window.map(|(i, j)| (place(i, row, 0), place(j, column, 1)));
            let inside = inside.filter(|&(i, j)| (0..h).contains(&i) && (0..w).contains(&j));
            let at = inside.map(|(i, j)| ((plane * h + i) * w + j) as usize);
            let first = at.reduce(|best, at| if seen(at) > seen(best) { at } else { best }).unwrap();
            expected[first] += ct * on(x[first]);
        }
        if elsewhere {
            expected.iter_mut().zip(&x).for_each(|(e, &x)| *e -= on(x));
        }
        let cotangents = if elsewhere { vec![ct, vec![1.0; x.len()]] } else { vec![ct] };
        let (_, _, gradients) = differentiated(&case, |_| cotangents).unwrap();
        let said = format!("{kernel:?} {strides:?} {dilations:?} {pads:?} of {h} x {w}, {relu} {elsewhere}");
        assert_eq!(gradients, [expected], "{said}");
    }
}
