//! Pooling over windows.

use super::conv::{SAME, Window};
use super::{Done, Rule, exact};
use crate::grad::Cx;
use crate::graph::refs;
use crate::{Attr, DType};

pub(super) const RULES: &[Rule] = &[
    exact("AveragePool", average_pool).but(SAME),
    exact("GlobalLpPool", global_lp_pool),
    exact("LpPool", lp_pool).but(SAME),
    exact("MaxPool", max_pool)
        .but("storage_order=1 of a window of more than 32 places or a larger stride; auto_pad=SAME_* with dilations")
        .leaning(max_pool_of_softened)
        .bending(),
    exact("MaxUnpool", max_unpool).but("positions that repeat"),
];

fn max_pool(cx: &Cx) -> Done {
    // After a Relu, a maximum of 0 has no gradient. The mask is here, because the pool has fewer values.
    if behind_relu(cx) {
        return to_maxima(cx, cx.mul(&cx.gy(), &cx.positive(&cx.y(0))));
    }
    to_maxima(cx, cx.gy())
}

/// If a softened Relu passes a gradient at 0 too, the pool must not mask it.
fn max_pool_of_softened(cx: &Cx) -> Done {
    if !behind_relu(cx) {
        cx.own();
    }
    to_maxima(cx, cx.gy())
}

fn behind_relu(cx: &Cx) -> bool {
    cx.maker(0).is_some_and(|maker| maker.op == "Relu" && maker.domain.is_empty())
}

/// Sends each output's gradient to the position that the forward pool chose (its second output, as an index
/// into the flattened tensor).
fn to_maxima(cx: &Cx, gy: String) -> Done {
    let (x, y) = (cx.x_shape(0), cx.y_shape());
    let window = Window::of_pool(cx)?;
    // Windows that don't overlap never choose the same position, and a plain scatter is faster than an adding
    // one.
    let apart = (0..window.kernel.len()).all(|d| window.extent(d) <= window.strides[d]);
    if let Some(g) = compared(cx, &window, x, y, &gy) {
        return cx.give_first(cx.reshape(&g, x));
    }
    if cx.node.int("storage_order", 0) != 0 {
        return Err(
            "storage_order=1 of a window of more than 32 places, or a stride of more, is not covered".into(),
        );
    }
    let indices = cx.extra_output(1, DType::I64, y);
    let size = [x.iter().product()];
    let indices = cx.reshape(&indices, &[-1]);
    let flat = cx.reshape(&gy, &[-1]);
    let axis = [("axis", Attr::Int(0))];
    let g = if apart {
        cx.op_with("ScatterElements", &[&cx.zeros(&size), &indices, &flat], &axis)
    } else {
        cx.scatter_add("ScatterElements", &size, &indices, &flat, &axis)
    };
    cx.give_first(cx.reshape(&g, x))
}

/// The indices are places in the flattened output.
fn max_unpool(cx: &Cx) -> Done {
    let (flat, index) = (cx.reshape(&cx.gy(), &[-1]), cx.reshape(&cx.x(1), &[-1]));
    let g = cx.op_with("GatherElements", &[&flat, &index], &[("axis", Attr::Int(0))]);
    cx.give_first(cx.reshape(&g, cx.x_shape(0)))
}

/// Maximum sum of a kernel's sides, and maximum stride, at which [`compared`] is used: it makes a few nodes
/// for each.
const FEW: i64 = 32;

/// [`to_maxima`] without the positions from the forward pool: it finds the first value of each window that
/// equals the maximum, as the pool does. The first in reading order is the first in the first row that has
/// the maximum, so it works axis by axis, and each axis is a pool of lines.
///
/// ONNX Runtime's pools with positions compare value by value; pools without positions, and passes over whole
/// tensors, use vector registers. 3×3 at stride 2 on 2×64×112×112 takes 10 ms forward and back with
/// positions, and 5 ms here (1.31, CPU, one thread); 2×2 on 32×16×28×28 takes 1.7 and 0.6 ms. On a GPU
/// positions are faster (docs/cuda.md), but among equal maxima the GPU's kernel chooses another one than the
/// CPU's. This function also has a fixed order of summation, which a scatter on a GPU doesn't have.
fn compared(cx: &Cx, window: &Window, x: &[i64], y: &[i64], gy: &str) -> Option<String> {
    let float = matches!(cx.x_type(0), DType::F32 | DType::F64);
    let large = window.kernel.iter().sum::<i64>() > FEW || window.strides.iter().any(|&s| s > FEW);
    if !float || large || window.before.iter().any(|&p| p < 0) {
        return None;
    }
    let axes: Vec<usize> =
        (0..window.kernel.len()).filter(|&d| window.kernel[d] > 1 || window.strides[d] > 1).collect();
    let (mut values, mut shape) = (cx.x(0), x.to_vec());
    let mut lines = Vec::with_capacity(axes.len());
    for (left, &d) in axes.iter().enumerate().rev() {
        let line = Line::new(window, d, &shape, y[2 + d]);
        let seen = line.window_values(cx, &values);
        shape[2 + d] = y[2 + d];
        values = match (left, seen.as_slice()) {
            (0, _) => cx.y(0),
            (_, [one]) => one.clone(),
            (_, several) => cx.op("Max", &refs(several)),
        };
        lines.push((line, seen, values.clone()));
    }
    let mut g = gy.to_string();
    for (line, seen, greatest) in lines.into_iter().rev() {
        g = line.give_back(cx, &seen, &greatest, &g);
    }
    Some(g)
}

/// Windows along one axis of a tensor of shape [lead, size, inner].
struct Line {
    lead: i64,
    size: i64,
    inner: i64,
    /// Number of windows.
    count: i64,
    stride: i64,
    /// For each place of a window: which of the `stride` interleaved parts of the axis it is in, and its
    /// offset from the window's index there.
    places: Vec<(usize, i64)>,
}

impl Line {
    fn new(window: &Window, d: usize, shape: &[i64], count: i64) -> Line {
        let stride = window.strides[d];
        let place = |k: i64| {
            let at = k * window.dilations[d] - window.before[d];
            (at.rem_euclid(stride) as usize, at.div_euclid(stride))
        };
        Line {
            lead: shape[..2 + d].iter().product(),
            size: shape[2 + d],
            inner: shape[3 + d..].iter().product(),
            count,
            stride,
            places: (0..window.kernel[d]).map(place).collect(),
        }
    }

    /// Length of a part.
    fn part(&self) -> i64 {
        (self.size + self.stride - 1) / self.stride
    }

    /// The tensor's shape with `size` along the axis. Without a last axis of 1: ONNX Runtime's Pad copies
    /// whole last axes (1.31, CPU: 50 times slower).
    fn shape(&self, size: i64) -> Vec<i64> {
        if self.inner == 1 { vec![self.lead, size] } else { vec![self.lead, size, self.inner] }
    }

    /// Pads or crops the axis.
    fn pad(&self, cx: &Cx, a: &str, value: f32, before: i64, after: i64) -> String {
        let whole = |p: i64| if self.inner == 1 { vec![0, p] } else { vec![0, p, 0] };
        cx.pad_with(a, value, &whole(before), &whole(after))
    }

    /// The values at each place of all windows; −∞ outside the input.
    fn window_values(&self, cx: &Cx, values: &str) -> Vec<String> {
        let (part, stride) = (self.part(), self.stride);
        let values = cx.reshape(values, &self.shape(self.size));
        let values = self.pad(cx, &values, f32::NEG_INFINITY, 0, part * stride - self.size);
        let mut parts = vec![values];
        if stride > 1 {
            let n = stride as usize;
            // Single values need two operators: Transpose and Split are faster than Split alone.
            let (values, shape, each) = if self.inner == 1 {
                let places = cx.reshape(&parts[0], &[self.lead, part, stride]);
                (cx.transpose(&places, &[0, 2, 1]), [self.lead, stride * part], part)
            } else {
                (parts.remove(0), [self.lead * part, stride * self.inner], self.inner)
            };
            let values = cx.reshape(&values, &shape);
            let sizes = cx.ints(&vec![each; n]);
            parts = cx.op_outputs("Split", &[&values, &sizes], &[("axis", 1i64.into())], n);
            parts = parts.iter().map(|p| cx.reshape(p, &self.shape(part))).collect();
        }
        let place = |&(of, ahead): &(usize, i64)| {
            self.pad(cx, &parts[of], f32::NEG_INFINITY, -ahead, self.count + ahead - part)
        };
        self.places.iter().map(place).collect()
    }

    /// Gives each window's gradient to the first of its places that equals the window's maximum. The last
    /// place takes it if no other does.
    fn give_back(&self, cx: &Cx, seen: &[String], greatest: &str, g: &str) -> String {
        let (part, stride) = (self.part(), self.stride);
        let greatest = cx.reshape(greatest, &self.shape(self.count));
        let mut left = cx.reshape(g, &self.shape(self.count));
        let mut parts: Vec<Option<String>> = vec![None; stride as usize];
        for (k, (seen, &(of, ahead))) in seen.iter().zip(&self.places).enumerate() {
            let mine = if k + 1 == self.places.len() {
                left.clone()
            } else {
                let rest = cx.mul(&left, &cx.positive(&cx.sub(&greatest, seen)));
                let mine = cx.sub(&left, &rest);
                left = rest;
                mine
            };
            let mine = self.pad(cx, &mine, 0.0, ahead, part - self.count - ahead);
            parts[of] = Some(match parts[of].take() {
                Some(others) => cx.add(&others, &mine),
                None => mine,
            });
        }
        let flat = |own: Option<String>| {
            let own = own.unwrap_or_else(|| cx.zeros(&self.shape(part)));
            cx.reshape(&own, &[self.lead * part, self.inner])
        };
        let whole: Vec<String> = parts.into_iter().map(flat).collect();
        let whole = match whole.as_slice() {
            [one] => one.clone(),
            several => cx.op_with("Concat", &refs(several), &[("axis", 1i64.into())]),
        };
        let whole = cx.reshape(&whole, &self.shape(part * stride));
        self.pad(cx, &whole, 0.0, 0, self.size - part * stride)
    }
}

/// Spreads each output's gradient, divided by the number of values averaged, over its window.
fn average_pool(cx: &Cx) -> Done {
    let (x, y) = (cx.x_shape(0), cx.y_shape());
    let window = Window::of_pool(cx)?;
    let n = window.kernel.len();
    let include_pad = cx.node.int("count_include_pad", 0) != 0;
    let same = cx.node.str("auto_pad", "NOTSET").starts_with("SAME");
    let stated = cx.node.ints("pads").filter(|_| cx.node.str("auto_pad", "NOTSET") != "VALID");
    // Number of values that one output averages, per axis: inside the input, or inside input and padding. Of
    // a window that extends beyond the padding (ceil_mode), only the values within count.
    let counts: Vec<Vec<f32>> = (0..n)
        .map(|d| {
            let size = x[2 + d];
            let total = |o: i64| {
                let start = o * window.strides[d] - window.before[d];
                let reach = window.extent(d);
                let after = if same {
                    ((y[2 + d] - 1) * window.strides[d] + reach - window.before[d] - size).max(0)
                } else {
                    stated.map_or(0, |p| p[n + d])
                };
                let (low, high) = if include_pad { (i64::MIN, size + after) } else { (0, size) };
                let inside = |k: &i64| {
                    let at = start + k * window.dilations[d];
                    at >= low && at < high
                };
                (0..window.kernel[d]).filter(inside).count().max(1) as f32
            };
            (0..y[2 + d]).map(total).collect()
        })
        .collect();
    let mut inverse = vec![1.0f32];
    for axis in &counts {
        inverse = inverse.iter().flat_map(|a| axis.iter().map(move |c| a / c)).collect();
    }
    let scaled = if inverse.windows(2).all(|w| w[0] == w[1]) {
        cx.scale(&cx.gy(), inverse[0])
    } else {
        cx.mul(&cx.gy(), &cx.floats(&[&[1, 1], &y[2..]].concat(), &inverse))
    };
    cx.give_first(spread(cx, &window, &scaled))
}

/// Adds each output's value to all of its window. All channels are equal, so they are images of one channel:
/// one product instead of one per group.
fn spread(cx: &Cx, window: &Window, values: &str) -> String {
    let (x, y) = (cx.x_shape(0), cx.y_shape());
    let flat = cx.reshape(values, &[&[y[0] * y[1], 1], &y[2..]].concat());
    let ones = cx.filled(1.0, &[&[1, 1], window.kernel.as_slice()].concat());
    let g = window.transpose(cx, &flat, &ones, 1, &x[2..], &y[2..]);
    cx.reshape(&g, x)
}

/// y = (Σ |x|ᵖ)^(1/p): gy·y^(1−p), 0 if y is 0. The other factor is x·|x|^(p−2).
fn over_norm(cx: &Cx, p: i64) -> String {
    let (gy, y) = (cx.gy(), cx.y(0));
    if p == 1 {
        return gy;
    }
    let g = cx.mul(&gy, &cx.power(&y, 1.0 - p as f32));
    cx.only_where(&cx.greater(&y, 0.0), &g)
}

/// Gives input 0 `g`·x·|x|^(p−2).
fn times_slope(cx: &Cx, g: &str, p: i64) -> Done {
    let x = cx.x(0);
    if p == 2 {
        return cx.give_first(cx.mul(g, &x));
    }
    let sign = cx.op("Sign", &[&x]);
    let power = cx.power(&cx.op("Abs", &[&x]), p as f32 - 1.0);
    cx.give_first(cx.mul(g, &cx.mul(&sign, &power)))
}

fn global_lp_pool(cx: &Cx) -> Done {
    let p = cx.node.int("p", 2);
    times_slope(cx, &over_norm(cx, p), p)
}

fn lp_pool(cx: &Cx) -> Done {
    let p = cx.node.int("p", 2);
    let window = Window::of_pool(cx)?;
    times_slope(cx, &spread(cx, &window, &over_norm(cx, p)), p)
}
