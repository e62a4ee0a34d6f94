//! Convolutions, and the windows that convolutions and average pools share.

use super::{Done, Rule, exact, quantise, straight_through};
use crate::grad::{Cx, Processor};
use crate::graph::refs;
use crate::{Attr, Node, Tensor};

pub(super) const RULES: &[Rule] = &[
    exact("Col2Im", col2im).but("blocks of more than 4096 values"),
    exact("Conv", conv).but(SAME),
    straight_through("ConvInteger", conv_integer)
        .but("weights computed from the image; auto_pad=SAME_* with dilations"),
    exact("ConvTranspose", conv_transpose),
];

pub(super) const SAME: &str = "auto_pad=SAME_* with dilations";

/// How a window slides, by spatial axis.
#[derive(Clone)]
pub(super) struct Window {
    pub kernel: Vec<i64>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    pub before: Vec<i64>,
}

impl Window {
    /// From the attributes of a Conv or pool and the shapes, with `auto_pad` resolved.
    pub fn of(node: &Node, kernel: &[i64], x: &[i64]) -> Result<Window, String> {
        let n = kernel.len();
        let (strides, dilations) =
            (node.ints_or("strides", &vec![1; n]), node.ints_or("dilations", &vec![1; n]));
        let before = match node.str("auto_pad", "NOTSET") {
            "NOTSET" | "" => node.ints_or("pads", &vec![0; n])[..n].to_vec(),
            "VALID" => vec![0; n],
            // ONNX Runtime pads dilated kernels in its own way (measured, 1.31).
            "SAME_UPPER" | "SAME_LOWER" if dilations.iter().any(|&d| d != 1) => {
                return Err(format!("{SAME} is not covered"));
            }
            same @ ("SAME_UPPER" | "SAME_LOWER") => (0..n)
                .map(|d| {
                    let out = (x[d] + strides[d] - 1) / strides[d];
                    let total = (out - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - x[d];
                    let lower = i64::from(same == "SAME_LOWER");
                    // Negative if the stride exceeds the kernel. ONNX Runtime then crops, one less in
                    // convolutions than in pools (measured, 1.31).
                    let less = i64::from(total < 0 && node.op.starts_with("Conv"));
                    (total + lower + less) / 2
                })
                .collect(),
            other => return Err(format!("auto_pad={other} is not known")),
        };
        Ok(Window { kernel: kernel.to_vec(), strides, dilations, before })
    }

    /// The window of a pool.
    pub fn of_pool(cx: &Cx) -> Result<Window, String> {
        let kernel = cx.node.ints("kernel_shape").ok_or("has no kernel_shape")?;
        Window::of(cx.node, kernel, &cx.x_shape(0)[2..])
    }

    /// Extent along an axis, including gaps.
    pub fn extent(&self, d: usize) -> i64 {
        (self.kernel[d] - 1) * self.dilations[d] + 1
    }

    /// Whether this window at stride 1 has unequal pads at the two ends of an axis.
    fn is_uneven(&self, x: &[i64], y: &[i64]) -> bool {
        (0..self.kernel.len()).any(|d| y[d] - 1 + self.extent(d) - x[d] != 2 * self.before[d])
    }

    /// The transpose of sliding this window over `x`: a ConvTranspose from `y` to `x` (spatial sizes).
    pub fn transpose(&self, cx: &Cx, gy: &str, weights: &str, group: i64, x: &[i64], y: &[i64]) -> String {
        let n = self.kernel.len();
        let (mut before, mut skipped) = (vec![0; n], vec![0; n]);
        let (mut after, mut extra) = (vec![0; n], vec![0; n]);
        for d in 0..n {
            before[d] = self.before[d].max(0);
            skipped[d] = (-self.before[d]).max(0);
            // ConvTranspose may reach beyond the end of the input, which is cropped, or end before it if the
            // stride left a rest, which is filled with zeros.
            let reach = (y[d] - 1) * self.strides[d] + self.extent(d) - self.before[d];
            after[d] = (reach - x[d]).max(0);
            extra[d] = (x[d] - reach).max(0);
        }
        // The output padding of ConvTranspose must be less than the stride; a Pad adds the rest.
        let mut within: Vec<i64> = (0..n).map(|d| extra[d].min(self.strides[d] - 1)).collect();
        let left = within.clone();
        // CUDA's kernel needs equal pads at both ends: a larger pad at the end with as much output padding
        // gives the same result.
        let more: Vec<i64> = (0..n).map(|d| before[d] - after[d]).collect();
        if (0..n).all(|d| more[d] >= 0 && within[d] + more[d] < self.strides[d]) {
            (0..n).for_each(|d| within[d] += more[d]);
            after.copy_from_slice(&before);
        }
        let mut attrs: Vec<(&str, Attr)> = vec![
            ("kernel_shape", self.kernel.as_slice().into()),
            ("strides", self.strides.as_slice().into()),
            ("dilations", self.dilations.as_slice().into()),
            ("pads", [before.as_slice(), &after].concat().into()),
            ("group", group.into()),
        ];
        if within.iter().any(|&e| e > 0) {
            attrs.push(("output_padding", within.as_slice().into()));
        }
        let g = cx.op_with("ConvTranspose", &[gy, weights], &attrs);
        let rest: Vec<i64> = (0..n).map(|d| extra[d] - left[d]).collect();
        pad_spatial(cx, &g, &skipped, &rest)
    }

    /// Makes the window fit exactly `counts` times into an input (spatial sizes `sizes`): the input, cropped
    /// if padding would be negative; its spatial sizes after that; the remaining pads.
    fn fit(&self, cx: &Cx, input: &str, sizes: &[i64], counts: &[i64]) -> (String, Vec<i64>, Vec<i64>) {
        let n = self.kernel.len();
        let after: Vec<i64> = (0..n)
            .map(|d| (counts[d] - 1) * self.strides[d] + self.extent(d) - self.before[d] - sizes[d])
            .collect();
        let part = |v: &[i64], f: fn(i64, i64) -> i64| -> Vec<i64> { v.iter().map(|&p| f(p, 0)).collect() };
        let padded = [part(&self.before, i64::max), part(&after, i64::max)];
        let cropped = [part(&self.before, i64::min), part(&after, i64::min)];
        if cropped.iter().flatten().all(|&p| p == 0) {
            return (input.to_string(), sizes.to_vec(), padded.concat());
        }
        // Padded before it is cropped, because a window may lie entirely in the padding.
        let mut input = input.to_string();
        for [front, back] in [&padded, &cropped] {
            input = pad_spatial(cx, &input, front, back);
        }
        let sizes = (0..n).map(|d| sizes[d] + self.before[d] + after[d]).collect();
        (input, sizes, vec![0; 2 * n])
    }

    /// Slides the window over an input: the Conv of which [`Window::transpose`] is the transpose.
    fn slide(
        &self,
        cx: &Cx,
        input: &str,
        weights: &str,
        group: i64,
        sizes: &[i64],
        counts: &[i64],
    ) -> String {
        let (input, _, pads) = self.fit(cx, input, sizes, counts);
        cx.op_with("Conv", &[&input, weights], &attrs(&self.strides, &self.dilations, pads, group))
    }

    /// The transpose of this window at stride 1, as a Conv with the weights [`turned`]: from `y` to `x`
    /// (spatial sizes).
    fn dense(&self, cx: &Cx, gy: &str, turned: &str, group: i64, y: &[i64], x: &[i64]) -> String {
        let before = (0..self.kernel.len()).map(|d| self.extent(d) - 1 - self.before[d]).collect();
        let strides = vec![1; self.kernel.len()];
        Window { before, strides, ..self.clone() }.slide(cx, gy, turned, group, y, x)
    }

    /// Gradient of the weights, (M, C/group, kernel): `input` (N, C, …) convolved with the output's gradient
    /// `g` (N, M, …) over the batch, with stride and dilation exchanged. Groups stay groups.
    fn weights(&self, cx: &Cx, input: &str, g: &str, group: i64, x: &[i64], y: &[i64]) -> String {
        let (n, c) = (x[0], x[1] / group);
        let (input, sizes, pads) = self.fit(cx, input, &x[2..], &y[2..]);
        let spatial: Vec<i64> = (2..x.len() as i64).collect();
        let swap = [&[1, 0], spatial.as_slice()].concat();
        let input = cx.reshape(&input, &[&[n, group, c], sizes.as_slice()].concat());
        let after: Vec<i64> = spatial.iter().map(|d| d + 1).collect();
        let input = cx.transpose(&input, &[&[2, 1, 0], after.as_slice()].concat());
        let input = cx.reshape(&input, &[&[c, group * n], sizes.as_slice()].concat());
        let g = cx.transpose(g, &swap);
        let w = cx.op_with("Conv", &[&input, &g], &attrs(&self.dilations, &self.strides, pads, group));
        cx.transpose(&w, &swap)
    }
}

/// Attributes of a Conv.
fn attrs(strides: &[i64], dilations: &[i64], pads: Vec<i64>, group: i64) -> [(&'static str, Attr); 4] {
    let (strides, dilations) = (strides.into(), dilations.into());
    [("strides", strides), ("dilations", dilations), ("pads", pads.into()), ("group", group.into())]
}

/// Pads, or crops, the spatial axes of (N, C, …).
fn pad_spatial(cx: &Cx, input: &str, before: &[i64], after: &[i64]) -> String {
    cx.pad(input, &[&[0, 0], before].concat(), &[&[0, 0], after].concat())
}

/// Gives the bias its gradient: the sum over all positions of its channel.
fn bias(cx: &Cx, gy: &str) {
    if cx.wants(2) {
        let axes: Vec<i64> = (0..cx.y_shape().len() as i64).filter(|&d| d != 1).collect();
        cx.give(2, cx.reduce_sum(gy, &axes, false));
    }
}

/// Half a block of channels in ONNX Runtime's blocked layout. The rest of a block is filled with zeros.
const BLOCK: i64 = 8;
/// A whole block. Each group has its own blocks.
const WHOLE: i64 = 2 * BLOCK;

/// The kernels of the Conv that is the transpose of a Conv at stride 1: rotated by 180 degrees, with input
/// and output channels exchanged within each group. `None` if ConvTranspose is faster.
///
/// ONNX Runtime has direct kernels for Conv in blocks of channels; for ConvTranspose it multiplies a matrix
/// per group and sums its columns. Measured (1.31, one thread, batch 8): if channels fill the blocks, 10 to
/// 28 % less time for kernels of 3×3, a few per cent for 1×1; depthwise two to ten times less; with half a
/// block unused about the same alone, and less in a chain, which stays in blocks (a step of MobileNetV3 7 %);
/// in all other cases up to fifteen times more. Groups that fill whole blocks take 42 % less, and groups of
/// half a block 25 % more (2 images), because Conv leaves the blocks for them (a step of RegNetY-400MF 4 %).
/// On a GPU, groups of 8 and depthwise Convs take half of ConvTranspose's time in float32.
fn turned(weights: &Tensor, group: i64, processor: Processor) -> Option<Tensor> {
    let size = weights.dtype.size()?;
    let (m, c) = (weights.shape[0] / group, weights.shape[1]);
    let kernel = weights.shape[2..].iter().product::<i64>() as usize * size;
    let depthwise = m == 1 && c == 1;
    let filled = match processor {
        Processor::Gpu => 1,
        Processor::Cpu if group == 1 => BLOCK,
        Processor::Cpu => WHOLE,
    };
    if kernel == 0 || !(depthwise || (m % filled == 0 && c % filled == 0)) {
        return None;
    }
    let mut bytes = vec![0; weights.bytes.len()];
    let places = (0..group).flat_map(|g| (0..c).flat_map(move |to| (0..m).map(move |from| (g, to, from))));
    for ((g, to, from), rotated) in places.zip(bytes.chunks_exact_mut(kernel)) {
        let start = (((g * m + from) * c + to) as usize) * kernel;
        let values = weights.bytes[start..start + kernel].rchunks_exact(size);
        rotated.chunks_exact_mut(size).zip(values).for_each(|(place, value)| place.copy_from_slice(value));
    }
    let shape = [&[group * c, m], &weights.shape[2..]].concat();
    Some(Tensor { dtype: weights.dtype, shape, bytes: bytes.into() })
}

/// Maximum output size (places) at which [`phases`] is faster for a large kernel at stride 2.
const SMALL: i64 = 64;

/// The transpose of a 2-d Conv at stride 2 by phases: a Conv at stride 1 that computes the four pixels (row,
/// column) of each 2×2 block as channels, for [`woven`]. Returns its kernels (2·2·C, M, k, k) and pads.
/// `None` if ConvTranspose is faster.
///
/// About a quarter of the kernels' values are zeros, and weaving costs a pass. Measured (1.31, one thread): a
/// third less time for 5×5 in 7×7 places, 32 images of 16 channels, where the matrix of one image is too
/// small; more for 3×3, for larger images and few channels.
fn phases(window: &Window, weights: &Tensor, x: &[i64], y: &[i64]) -> Option<(Tensor, Vec<i64>)> {
    let (m, c) = (weights.shape[0], weights.shape[1]);
    let halves = x.iter().zip(y).all(|(x, y)| *x == 2 * y);
    let plain = window.strides == [2, 2] && window.dilations == [1, 1] && halves;
    let large = window.kernel.iter().all(|&k| k >= 5) && y.iter().product::<i64>() <= SMALL;
    if !plain || !large || m % BLOCK != 0 || c % BLOCK != 0 {
        return None;
    }
    // The pixel 2i + a is under tap t of the window at i + (a + before − t) / 2.
    let taps = |d: usize| {
        let all = (0..2).flat_map(move |a| (0..window.kernel[d]).map(move |t| (a, t)));
        let at = move |(a, t): (i64, i64)| {
            let twice = a + window.before[d] - t;
            (twice % 2 == 0).then_some((a, t, twice / 2))
        };
        all.filter_map(at).collect::<Vec<_>>()
    };
    let (rows, columns) = (taps(0), taps(1));
    let reach = |taps: &[(i64, i64, i64)]| {
        let offsets = taps.iter().map(|&(_, _, o)| o);
        Some((-offsets.clone().min()?, offsets.max()?)).filter(|&(before, after)| before >= 0 && after >= 0)
    };
    let ([top, bottom], [left, right]) = (reach(&rows)?.into(), reach(&columns)?.into());
    let (height, width) = (top + bottom + 1, left + right + 1);
    let size = weights.dtype.size()?;
    let mut bytes = vec![0; (4 * c * m * height * width) as usize * size];
    for (to, from) in (0..c).flat_map(|to| (0..m).map(move |from| (to, from))) {
        for &(a, t, row) in &rows {
            for &(b, u, column) in &columns {
                let kernel = ((a * 2 + b) * c + to) * m + from;
                let into = ((kernel * height + row + top) * width + column + left) as usize * size;
                let source =
                    (((from * c + to) * window.kernel[0] + t) * window.kernel[1] + u) as usize * size;
                bytes[into..into + size].copy_from_slice(&weights.bytes[source..source + size]);
            }
        }
    }
    let kernels = Tensor { dtype: weights.dtype, shape: vec![4 * c, m, height, width], bytes: bytes.into() };
    Some((kernels, vec![top, left, bottom, right]))
}

/// Images of shape `to` (N, C, 2·H, 2·W) from the pixels of their 2×2 blocks (N, 2·2·C, H, W): joins columns,
/// then rows.
///
/// This is DepthToSpace, whose kernel moves values one by one. Measured (1.31, one thread): three joins take
/// half of its time.
fn woven(cx: &Cx, pixels: &str, to: &[i64]) -> String {
    let channels = [("axis", 1i64.into())];
    let phases = cx.op_outputs("Split", &[pixels, &cx.ints(&[to[1]; 4])], &channels, 4);
    let joined = |parts: &[String], each: i64| {
        let lines: Vec<String> = parts.iter().map(|part| cx.reshape(part, &[-1, each])).collect();
        cx.op_with("Concat", &refs(&lines), &channels)
    };
    let rows: Vec<String> = phases.chunks(2).map(|pair| joined(pair, 1)).collect();
    cx.reshape(&joined(&rows, to[3]), to)
}

/// The transpose of a depthwise Conv at stride 2: zeros between the output's pixels, then a Conv at stride 1,
/// as in [`turned`].
///
/// Three quarters of the products are with zeros. It is still much faster, because ConvTranspose multiplies a
/// matrix of one row for each channel. Measured (1.31, one thread, 2 images): 3×3 1.1 to 1.7 times, 5×5 2.5
/// to 3.5, 7×7 3.3 to 5.3.
fn spread(cx: &Cx, window: &Window, gy: &str, weights: &Tensor, x: &[i64], y: &[i64]) -> Option<String> {
    let channels = weights.shape[0];
    let depthwise = weights.shape[1] == 1 && y[1] == channels && x[1] == channels;
    if !depthwise || window.strides != [2, 2] || window.kernel == [1, 1] || channels % BLOCK != 0 {
        return None;
    }
    let turned = turned(weights, channels, cx.processor())?;
    let one = cx.floats(&[channels, 1, 1, 1], &vec![1.0; channels as usize]);
    let point = Window { kernel: vec![1, 1], dilations: vec![1, 1], before: vec![0, 0], ..window.clone() };
    let sizes: Vec<i64> = y[2..].iter().map(|&y| 2 * (y - 1) + 1).collect();
    let spread = point.transpose(cx, gy, &one, channels, &sizes, &y[2..]);
    Some(window.dense(cx, &spread, &cx.constant(turned), channels, &sizes, &x[2..]))
}

fn conv(cx: &Cx) -> Done {
    let (x, w, y) = (cx.x_shape(0), cx.x_shape(1), cx.y_shape());
    let window = Window::of(cx.node, &w[2..], &x[2..])?;
    let group = cx.node.int("group", 1);
    let gy = cx.gy();
    if cx.wants(0) {
        let one_by_one = window.strides.iter().all(|&s| s == 1);
        let known = cx.const_tensor(1);
        // cuDNN has faster algorithms for the transpose of a Conv with larger kernels and no groups (3×3 of
        // 64 channels at 56×56: 0.6 times the time in float32), and slower ones for other Convs:
        // docs/cuda.md. CUDA's ConvTranspose needs equal pads at both ends.
        let transposes = cx.processor() == Processor::Gpu
            && group == 1
            && window.kernel.iter().any(|&k| k > 1)
            && !(one_by_one && window.is_uneven(&x[2..], &y[2..]));
        let known = known.filter(|_| !transposes);
        let g = if let Some(weights) =
            known.filter(|_| one_by_one).and_then(|w| turned(w, group, cx.processor()))
        {
            window.dense(cx, &gy, &cx.constant(weights), group, &y[2..], &x[2..])
        } else if let Some(g) = known.and_then(|weights| spread(cx, &window, &gy, weights, x, y)) {
            g
        } else if let Some((kernels, pads)) =
            known.filter(|_| group == 1).and_then(|w| phases(&window, w, &x[2..], &y[2..]))
        {
            woven(cx, &cx.op_with("Conv", &[&gy, &cx.constant(kernels)], &[("pads", pads.into())]), x)
        } else {
            window.transpose(cx, &gy, &cx.x(1), group, &x[2..], &y[2..])
        };
        cx.give(0, g);
    }
    if cx.wants(1) {
        cx.give(1, window.weights(cx, &cx.x(0), &gy, group, x, y));
    }
    bias(cx, &gy);
    Ok(())
}

/// A Conv of integers minus their zero points: its gradient is that of the Conv of the numbers.
fn conv_integer(cx: &Cx) -> Done {
    if cx.wants(1) {
        return Err("weights computed from the image are not covered".into());
    }
    let (x, w, y) = (cx.x_shape(0), cx.x_shape(1), cx.y_shape());
    let window = Window::of(cx.node, &w[2..], &x[2..])?;
    let weights = quantise::centred(cx, 1, 3, 0);
    cx.give_first(window.transpose(cx, &cx.gy(), &weights, cx.node.int("group", 1), &x[2..], &y[2..]))
}

/// The transpose of a Conv: input and output change places.
fn conv_transpose(cx: &Cx) -> Done {
    let (x, w, y) = (cx.x_shape(0), cx.x_shape(1), cx.y_shape());
    let (node, n) = (cx.node, w.len() - 2);
    let list = |name: &str, default: i64| node.ints_or(name, &vec![default; n]);
    let mut window = Window {
        kernel: w[2..].to_vec(),
        strides: list("strides", 1),
        dilations: list("dilations", 1),
        before: list("pads", 0)[..n].to_vec(),
    };
    let auto_pad = node.str("auto_pad", "NOTSET");
    // A stated output_shape goes before auto_pad=VALID.
    if auto_pad.starts_with("SAME") || node.attrs.contains_key("output_shape") {
        let extra = list("output_padding", 0);
        for d in 0..n {
            let full = (x[2 + d] - 1) * window.strides[d] + extra[d] + window.extent(d);
            // The end of a larger output has only the bias.
            let total = (full - y[2 + d]).max(0);
            // The larger half of an odd total is in front, except with SAME_UPPER.
            window.before[d] = (total + i64::from(auto_pad != "SAME_UPPER")) / 2;
        }
    } else if auto_pad == "VALID" {
        window.before = vec![0; n];
    }
    let group = node.int("group", 1);
    let gy = cx.gy();
    if cx.wants(0) {
        cx.give(0, window.slide(cx, &gy, &cx.x(1), group, &y[2..], &x[2..]));
    }
    if cx.wants(1) {
        cx.give(1, window.weights(cx, &gy, &cx.x(0), group, y, x));
    }
    bias(cx, &gy);
    Ok(())
}

/// Sums blocks (N, C·K, L) into images (N, C, …). The transpose reads each block's pixels: a Conv with K
/// kernels of one pixel each.
fn col2im(cx: &Cx) -> Done {
    let y = cx.y_shape();
    let block = cx.const_ints(2)?.ok_or("has no block_shape")?;
    let n = block.len();
    let list = |name: &str, default: i64, n: usize| cx.node.ints_or(name, &vec![default; n]);
    let pads = list("pads", 0, 2 * n);
    let window = Window {
        kernel: block.clone(),
        strides: list("strides", 1, n),
        dilations: list("dilations", 1, n),
        before: pads[..n].to_vec(),
    };
    let counts: Vec<i64> = (0..n)
        .map(|d| (y[2 + d] + pads[d] + pads[n + d] - window.extent(d)) / window.strides[d] + 1)
        .collect();
    let kernels: i64 = block.iter().product();
    let picks = cx.identity(&[&[kernels, 1], block.as_slice()].concat(), kernels)?;
    let planes = cx.reshape(&cx.gy(), &[&[y[0] * y[1], 1], &y[2..]].concat());
    let g = window.slide(cx, &planes, &picks, 1, &y[2..], &counts);
    cx.give_first(cx.reshape(&g, cx.x_shape(0)))
}
