//! Operators without a kernel in ONNX Runtime, compared with their definition, which is written out here.

use super::case::*;

/// An operator, and what compares a random case of it.
pub type Definition = (&'static str, fn(&mut Rng));

pub const DEFINED: &[Definition] = &[
    ("CausalConvWithState", causal_conv),
    ("CumProd", cum_prod),
    ("SwiGLU", swiglu),
    ("TensorScatter", tensor_scatter),
];

fn causal_conv(r: &mut Rng) {
    let [batch, channels, length, kernel] = [r.int(1, 2), r.int(1, 3), r.int(1, 5), r.int(1, 4)];
    let (state, silu) = (kernel > 1 && r.bool(), r.bool());
    let inputs: &[&str] = if state { &["x", "w", "b", "s"] } else { &["x", "w", "b"] };
    let mut c = case("", "CausalConvWithState", inputs, &["y"])
        .opset(27)
        .input(r, "x", &[batch, channels, length])
        .weights(r, "w", &[channels, 1, kernel])
        .weights(r, "b", &[channels])
        .when(silu, |c| c.with("activation", "silu"));
    if state {
        c = c.input(r, "s", &[batch, channels, kernel - 1]);
    }
    let (w, b) = (c.graph.constants["w"].to_f32s().unwrap(), c.graph.constants["b"].to_f32s().unwrap());
    let mut expected = vec![];
    for (row, t) in (0..batch * channels).flat_map(|row| (0..length).map(move |t| (row, t))) {
        let channel = row % channels;
        let mut y = b[channel as usize];
        for k in 0..kernel {
            let at = t + k - (kernel - 1);
            let x = match (at >= 0, state) {
                (true, _) => c.points[0][(row * length + at) as usize],
                (false, true) => c.points[1][(row * (kernel - 1) + at + kernel - 1) as usize],
                (false, false) => 0.0,
            };
            y += w[(channel * kernel + k) as usize] * x;
        }
        expected.push(if silu { y / (1.0 + (-y).exp()) } else { y });
    }
    defined(&c, &expected);
}

fn cum_prod(r: &mut Rng) {
    let [a, n, b] = [r.int(1, 3), r.int(1, 4), r.int(1, 3)];
    let (exclusive, reverse) = (r.bool(), r.bool());
    let axis = Tensor::i64(&[], &[r.pick(&[1, -2])]);
    let c = case("", "CumProd", &["x", "axis"], &["y"])
        .opset(26)
        .input(r, "x", &[a, n, b])
        .constant("axis", axis);
    let c = c.with("exclusive", i64::from(exclusive)).with("reverse", i64::from(reverse));
    let mut expected = vec![0.0; c.points[0].len()];
    for (i, k) in (0..a).flat_map(|i| (0..b).map(move |k| (i, k))) {
        let place = |j: i64| ((i * n + j) * b + k) as usize;
        let mut product = 1.0;
        for step in 0..n {
            let at = place(if reverse { n - 1 - step } else { step });
            let next = product * c.points[0][at];
            expected[at] = if exclusive { product } else { next };
            product = next;
        }
    }
    defined(&c, &expected);
}

fn swiglu(r: &mut Rng) {
    let (shape, alpha) = ([r.int(1, 3), r.int(1, 5)], 0.5 + r.unit());
    let c = case("", "SwiGLU", &["a", "b"], &["y"])
        .opset(28)
        .input(r, "a", &shape)
        .input(r, "b", &shape)
        .with("alpha", alpha);
    let both = c.points[0].iter().zip(&c.points[1]);
    let expected: Vec<f32> = both.map(|(a, b)| a / (1.0 + (-alpha * a).exp()) * b).collect();
    defined(&c, &expected);
}

fn tensor_scatter(r: &mut Rng) {
    let [batch, heads, most, size] = [r.int(1, 3), r.int(1, 2), r.int(3, 6), r.int(1, 3)];
    let (rows, circular) = (r.int(1, 3), r.bool());
    let from: Vec<i64> =
        (0..batch).map(|_| r.int(0, if circular { most - 1 } else { most - rows })).collect();
    let c = case("", "TensorScatter", &["x", "u", "at"], &["y"])
        .opset(24)
        .input(r, "x", &[batch, heads, most, size])
        .input(r, "u", &[batch, heads, rows, size])
        .constant("at", Tensor::ints(&from))
        .when(circular, |c| c.with("mode", "circular"))
        .when(r.bool(), |c| c.with("axis", 2));
    let mut expected = c.points[0].clone();
    for (i, v) in c.points[1].iter().enumerate() {
        let i = i as i64;
        let (lead, row, k) = (i / (rows * size), i / size % rows, i % size);
        let at = (from[(lead / heads) as usize] + row) % most;
        expected[((lead * most + at) * size + k) as usize] = *v;
    }
    defined(&c, &expected);
}
