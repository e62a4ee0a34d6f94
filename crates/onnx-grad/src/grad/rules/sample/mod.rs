//! Operators that read an image between its pixels, at positions that the model computes.
//!
//! A sample is a sum of a few pixels (taps), each times the product of one weight per axis. The pixels'
//! gradient is scattered with these weights. The positions' gradient needs the slopes of the weights: at
//! integer positions, where interpolation has a kink, it is the slope above, as in PyTorch. If values outside
//! are those of the border or of a mirror, it is 0 at the centres of the outer pixels, as in PyTorch too.

mod neighbours;
mod regions;

use super::{Done, Rule, exact};
use crate::grad::Cx;
use crate::graph::refs;
use crate::{DType, Tensor};
use neighbours::{Near, Outside, clamp_place, cubic, linear, linear_within, nearest};
use regions::roi_align;

pub(super) const RULES: &[Rule] = &[
    exact("AffineGrid", affine_grid)
        .but("a size computed in the graph; an axis of one position with align_corners"),
    exact("DeformConv", deform_conv),
    exact("GridSample", grid_sample).but("more than 16,777,216 pixels in a channel"),
    exact("RoiAlign", roi_align)
        .but("sampling_ratio=0 where the regions are computed, or with more than 4096 samples in a bin; the gradient of the regions"),
];

/// Weight and slope along an axis, as in [`Near`].
type Along = (Option<String>, Option<String>);

/// A pixel of each sample. All values are [B, 1, P].
struct Tap {
    /// Place in the flattened image, int64.
    index: String,
    /// 1 inside the image and 0 outside; `None` if no sample is outside.
    inside: Option<String>,
    /// Weights and slopes, by axis.
    near: Vec<Along>,
}

/// Samples of images [B, C, sizes…], P per image.
struct Samples<'c, 'a, 't> {
    cx: &'c Cx<'a, 't>,
    batch: i64,
    channels: i64,
    sizes: Vec<i64>,
    points: i64,
    taps: Vec<Tap>,
}

/// The product of factors; `None` if there are none.
fn product(cx: &Cx, factors: impl IntoIterator<Item = String>) -> Option<String> {
    factors.into_iter().reduce(|a, b| cx.mul(&a, &b))
}

impl<'c, 'a, 't> Samples<'c, 'a, 't> {
    /// `near`: the neighbours, by axis.
    fn new(
        cx: &'c Cx<'a, 't>,
        [batch, channels, points]: [i64; 3],
        sizes: &[i64],
        near: Vec<Vec<Near>>,
        outside: Outside,
    ) -> Result<Self, String> {
        // Places are float32.
        if sizes.iter().product::<i64>() > 1 << 24 {
            return Err("more than 16,777,216 pixels in a channel are not covered".into());
        }
        let mut taps: Vec<(Option<String>, Option<String>, Vec<Along>)> = vec![(None, None, vec![])];
        for (&size, near) in sizes.iter().zip(near) {
            let near: Vec<_> = near
                .into_iter()
                .map(|n| (clamp_place(cx, &n.place, size, outside), n.weight, n.slope))
                .collect();
            let mut next = Vec::with_capacity(taps.len() * near.len());
            for (index, inside, parts) in &taps {
                for ((place, there), weight, slope) in &near {
                    let index = match index {
                        Some(index) => cx.add(&cx.scale(index, size as f32), place),
                        None => place.clone(),
                    };
                    let inside = product(cx, inside.iter().chain(there).cloned());
                    let mut parts = parts.clone();
                    parts.push((weight.clone(), slope.clone()));
                    next.push((Some(index), inside, parts));
                }
            }
            taps = next;
        }
        let whole = |index: Option<String>| cx.cast(&index.unwrap_or_default(), cx.gy_type(), DType::I64);
        let taps =
            taps.into_iter().map(|(index, inside, near)| Tap { index: whole(index), inside, near }).collect();
        Ok(Samples { cx, batch, channels, sizes: sizes.to_vec(), points, taps })
    }

    /// A tap's index for every channel, [B, C, P].
    fn index(&self, tap: &Tap) -> String {
        self.cx.expand(&tap.index, &[self.batch, self.channels, self.points])
    }

    /// A tap's weight, without the factor of the axis `without`.
    fn weight(&self, tap: &Tap, without: Option<usize>) -> Option<String> {
        let along = tap.near.iter().enumerate().filter(|(axis, _)| Some(*axis) != without);
        product(self.cx, along.filter_map(|(_, near)| near.0.clone()).chain(tap.inside.clone()))
    }

    /// The images as [B, C, pixels].
    fn flat(&self, images: &str) -> String {
        self.cx.reshape(images, &[self.batch, self.channels, self.sizes.iter().product()])
    }

    /// The contribution of each tap to the samples, [B, C, P]. `flat`: images [B, C, pixels].
    fn parts(&self, flat: &str) -> Vec<String> {
        let cx = self.cx;
        let one = |tap: &Tap| {
            let pixel = cx.op_with("GatherElements", &[flat, &self.index(tap)], &[("axis", 2i64.into())]);
            self.weight(tap, None).map_or(pixel.clone(), |weight| cx.mul(&pixel, &weight))
        };
        self.taps.iter().map(one).collect()
    }

    /// The samples, [B, C, P]. `flat`: images [B, C, pixels].
    fn values(&self, flat: &str) -> String {
        let cx = self.cx;
        let parts = self.parts(flat);
        if parts.len() == 1 { parts[0].clone() } else { cx.op("Sum", &refs(&parts)) }
    }

    /// The gradient of the images [B, C, pixels], from that of the samples.
    fn pixels(&self, g: &str) -> String {
        self.pixels_by_tap(&vec![g.to_string(); self.taps.len()])
    }

    /// [`Samples::pixels`], with a separate gradient for each tap.
    fn pixels_by_tap(&self, g: &[String]) -> String {
        let cx = self.cx;
        let share =
            |(tap, g): (&Tap, &String)| self.weight(tap, None).map_or(g.clone(), |weight| cx.mul(g, &weight));
        let index: Vec<String> = self.taps.iter().map(|tap| self.index(tap)).collect();
        let shares: Vec<String> = self.taps.iter().zip(g).map(share).collect();
        let join = |parts: &[String]| match parts {
            [one] => one.clone(),
            several => cx.op_with("Concat", &refs(several), &[("axis", 2i64.into())]),
        };
        let shape = [self.batch, self.channels, self.sizes.iter().product()];
        cx.scatter_add("ScatterElements", &shape, &join(&index), &join(&shares), &[("axis", 2i64.into())])
    }

    /// The gradient of the positions along each axis, [B, 1, P], from that of the samples.
    fn positions(&self, flat: &str, g: &str) -> Vec<String> {
        let cx = self.cx;
        let mut sums: Vec<Vec<String>> = vec![vec![]; self.sizes.len()];
        for tap in self.taps.iter().filter(|tap| tap.near.iter().any(|near| near.1.is_some())) {
            let pixel = cx.op_with("GatherElements", &[flat, &self.index(tap)], &[("axis", 2i64.into())]);
            let along = cx.reduce_sum(&cx.mul(g, &pixel), &[1], true);
            for (axis, sum) in sums.iter_mut().enumerate() {
                let Some(slope) = &tap.near[axis].1 else { continue };
                let factors = [Some(along.clone()), Some(slope.clone()), self.weight(tap, Some(axis))];
                sum.extend(product(cx, factors.into_iter().flatten()));
            }
        }
        let total = |parts: Vec<String>| match parts.len() {
            0 => cx.zeros(&[self.batch, 1, self.points]),
            1 => parts[0].clone(),
            _ => cx.op("Sum", &refs(&parts)),
        };
        sums.into_iter().map(total).collect()
    }
}

/// Component `at` of positions [B, P, n], as [B, 1, P].
fn component(cx: &Cx, positions: &str, at: i64, [batch, points]: [i64; 2]) -> String {
    let index = cx.constant(Tensor::i64(&[], &[at]));
    cx.reshape(&cx.op_with("Gather", &[positions, &index], &[("axis", 2i64.into())]), &[batch, 1, points])
}

/// Samples x [N, C, sizes…] at grid [N, sizes of the output…, axes]. Its components are in [−1, 1], the last
/// axis first.
fn grid_sample(cx: &Cx) -> Done {
    let (x, grid) = (cx.x_shape(0), cx.x_shape(1));
    let (sizes, points) = (&x[2..], grid[1..grid.len() - 1].iter().product::<i64>());
    let axes = sizes.len() as i64;
    let at_centres = cx.node.int("align_corners", 0) != 0;
    let outside = match cx.node.str("padding_mode", "zeros") {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Mirrored { at_centres },
        other => return Err(format!("padding_mode={other} is not known")),
    };
    let neighbours: fn(&Cx, &str, i64, Outside) -> Vec<Near> = match cx.node.str("mode", "linear") {
        "linear" if outside == Outside::Zeros => |cx, position, _, _| linear(cx, position),
        "linear" => linear_within,
        "nearest" => |cx, position, _, _| nearest(cx, position),
        "cubic" => |cx, position, _, _| cubic(cx, position),
        other => return Err(format!("mode={other} is not known")),
    };
    // ±1 are the centres of the outer pixels, or their edges.
    let factor = |size: i64| (size - i64::from(at_centres)) as f32 / 2.0;
    let positions = cx.reshape(&cx.x_as_float(1), &[x[0], points, axes]);
    let near = sizes.iter().enumerate().map(|(axis, &size)| {
        let own = component(cx, &positions, axes - 1 - axis as i64, [x[0], points]);
        let position = cx.add(&cx.scale(&own, factor(size)), &cx.scalar((size as f32 - 1.0) / 2.0));
        neighbours(cx, &position, size, outside)
    });
    let samples = Samples::new(cx, [x[0], x[1], points], sizes, near.collect(), outside)?;
    let g = cx.reshape(&cx.gy(), &[x[0], x[1], points]);
    if cx.wants(0) {
        cx.give(0, cx.reshape(&samples.pixels(&g), x));
    }
    if cx.wants(1) {
        let along = samples.positions(&samples.flat(&cx.x(0)), &g);
        let scaled = along
            .iter()
            .zip(sizes)
            .rev()
            .map(|(g, &size)| cx.reshape(&cx.scale(g, factor(size)), &[x[0], points, 1]));
        let all: Vec<String> = scaled.collect();
        let all = cx.op_with("Concat", &refs(&all), &[("axis", 2i64.into())]);
        cx.give(1, cx.cast(&cx.reshape(&all, grid), cx.gy_type(), cx.gx_type(1)));
    }
    Ok(())
}

/// grid = base · thetaᵀ, where each row of base is a position (the last axis first) and 1.
fn affine_grid(cx: &Cx) -> Done {
    let size = cx.const_ints(1)?.ok_or("has no size")?;
    let (sizes, axes) = (&size[2..], size.len() as i64 - 2);
    let at_centres = cx.node.int("align_corners", 0) != 0;
    if at_centres && sizes.contains(&1) {
        return Err("an axis of one position with align_corners is not covered".into());
    }
    let along = |size: i64, i: i64| match at_centres {
        true => 2.0 * i as f32 / (size - 1) as f32 - 1.0,
        false => (2 * i + 1) as f32 / size as f32 - 1.0,
    };
    let points = sizes.iter().product::<i64>();
    let mut base = Vec::with_capacity((points * (axes + 1)) as usize);
    for point in 0..points {
        let mut rest = point;
        for &size in sizes.iter().rev() {
            base.push(along(size, rest % size));
            rest /= size;
        }
        base.push(1.0);
    }
    let g = cx.transpose(&cx.reshape(&cx.gy(), &[size[0], points, axes]), &[0, 2, 1]);
    cx.give_first(cx.op("MatMul", &[&g, &cx.floats(&[points, axes + 1], &base)]))
}

/// A convolution whose kernel has shifted places (offsets) and a mask at every output: the product of the
/// weights and samples [N, C, K, outputs]. Values outside of the image are 0.
fn deform_conv(cx: &Cx) -> Done {
    let (x, w, y) = (cx.x_shape(0), cx.x_shape(1), cx.y_shape());
    let axes = w.len() - 2;
    let list = |name: &str, default: i64, n: usize| cx.node.ints_or(name, &vec![default; n]);
    let (strides, dilations, pads) =
        (list("strides", 1, axes), list("dilations", 1, axes), list("pads", 0, 2 * axes));
    let (group, offsets) = (cx.node.int("group", 1), cx.node.int("offset_group", 1));
    let (kernel, outputs) = (&w[2..], &y[2..]);
    let (places, per_place) = (kernel.iter().product::<i64>(), outputs.iter().product::<i64>());
    let (n, points) = (x[0] * offsets, places * per_place);
    // Offsets are [N, groups, K, axes, outputs…].
    let moved = cx.reshape(&cx.x(2), &[n, places, axes as i64, per_place]);
    let moved = cx.reshape(&cx.transpose(&moved, &[0, 1, 3, 2]), &[n, points, axes as i64]);
    let place = |mut flat: i64, sizes: &[i64], axis: usize| {
        for &size in sizes[axis + 1..].iter().rev() {
            flat /= size;
        }
        flat % sizes[axis]
    };
    let near = (0..axes).map(|axis| {
        let at = |i: i64| {
            let (k, o) = (place(i / per_place, kernel, axis), place(i % per_place, outputs, axis));
            (o * strides[axis] - pads[axis] + k * dilations[axis]) as f32
        };
        let fixed: Vec<f32> = (0..points).map(at).collect();
        let own = component(cx, &moved, axis as i64, [n, points]);
        linear(cx, &cx.add(&own, &cx.floats(&[1, 1, points], &fixed)))
    });
    let samples = Samples::new(cx, [n, x[1] / offsets, points], &x[2..], near.collect(), Outside::Zeros)?;
    let mask = cx.node.input(4).map(|mask| cx.reshape(mask, &[n, 1, points]));
    let masked = |v: &str| mask.as_ref().map_or(v.to_string(), |mask| cx.mul(v, mask));
    // Columns are [N, group, channels of a group · K, outputs].
    let (rows, kernels) = (x[1] / group * places, w[0] / group);
    let gy = cx.gy();
    let own = cx.reshape(&gy, &[x[0], group, kernels, per_place]);
    let weights = cx.reshape(&cx.x(1), &[1, group, kernels, rows]);
    let columns = cx.op("MatMul", &[&cx.transpose(&weights, &[0, 1, 3, 2]), &own]);
    let g = cx.reshape(&columns, &[n, x[1] / offsets, points]);
    let gain = masked(&g);
    if cx.wants(0) {
        cx.give(0, cx.reshape(&samples.pixels(&gain), x));
    }
    let flat = samples.flat(&cx.x(0));
    if cx.wants(1) {
        let columns = cx.reshape(&masked(&samples.values(&flat)), &[x[0], group, rows, per_place]);
        let product = cx.op("MatMul", &[&own, &cx.transpose(&columns, &[0, 1, 3, 2])]);
        cx.give(1, cx.reshape(&cx.reduce_sum(&product, &[0], false), w));
    }
    if cx.wants(2) {
        let along: Vec<String> = samples
            .positions(&flat, &gain)
            .iter()
            .map(|g| cx.reshape(g, &[n, places, 1, per_place]))
            .collect();
        let all = cx.op_with("Concat", &refs(&along), &[("axis", 2i64.into())]);
        cx.give(2, cx.reshape(&all, cx.x_shape(2)));
    }
    if cx.wants(3) {
        let others: Vec<i64> = (0..y.len() as i64).filter(|&d| d != 1).collect();
        cx.give(3, cx.reduce_sum(&gy, &others, false));
    }
    if cx.wants(4) {
        let along = cx.reduce_sum(&cx.mul(&g, &samples.values(&flat)), &[1], true);
        cx.give(4, cx.reshape(&along, cx.x_shape(4)));
    }
    Ok(())
}
