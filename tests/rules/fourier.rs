//! Discrete Fourier transforms.

use crate::case::*;

pub fn samples() -> Vec<(&'static str, Sample)> {
    vec![entry("DFT", dft), entry("STFT", stft)]
}

fn dft(r: &mut Rng) -> Case {
    let (size, axis) = (r.int(2, 9), r.pick(&[1i64, -2, 2]));
    let (inverse, onesided) = r.pick(&[(0, 0), (0, 0), (1, 0), (0, 1)]);
    let mut shape = vec![2, 3, 3, if onesided == 1 || r.bool() { 1 } else { 2 }];
    let rank = shape.len() as i64;
    shape[((axis + rank) % rank) as usize] = size;
    let node = Node::new("DFT", &["x", "n", "axis"], "y").with("inverse", inverse).with("onesided", onesided);
    let length = size + r.int(-1, 2);
    let mut case = Case::new(node).normal(r, "x", &shape).constant("axis", Tensor::i64(&[], &[axis]));
    if r.bool() {
        return case.constant("n", Tensor::i64(&[], &[length]));
    }
    case.graph.nodes[0].inputs[1] = String::new();
    case
}

fn stft(r: &mut Rng) -> Case {
    let (length, step) = (r.int(2, 8), r.int(1, 4));
    let shape = [r.int(1, 2), length + r.int(0, 12), 1];
    let node = Node::new("STFT", &["x", "step", "w"], "y").with("onesided", r.int(0, 1));
    Case::new(node).normal(r, "x", &shape).constant("step", Tensor::i64(&[], &[step])).maybe(
        r,
        "w",
        &[length],
        positive,
    )
}
