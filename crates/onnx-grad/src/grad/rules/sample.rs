//! Operators that read an image between its pixels, at positions that the model computes.
//!
//! A sample is a sum of a few pixels (taps), each times the product of one weight per axis. The pixels'
//! gradient is scattered with these weights. The positions' gradient needs the slopes of the weights: at
//! integer positions, where interpolation has a kink, it is the slope above, as in PyTorch. If values outside
//! are those of the border or of a mirror, it is 0 at the centres of the outer pixels, as in PyTorch too.

use super::{Done, Rule, exact};
use crate::grad::Cx;
use crate::graph::refs;
use crate::{DType, Tensor};

pub(super) const RULES: &[Rule] = &[
    exact("AffineGrid", affine_grid)
        .but("a size computed in the graph; an axis of one position with align_corners"),
    exact("DeformConv", deform_conv),
    exact("GridSample", grid_sample).but("more than 16,777,216 pixels in a channel"),
    exact("RoiAlign", roi_align)
        .but("sampling_ratio=0 where the regions are computed, or with more than 4096 samples in a bin; the gradient of the regions"),
];

/// The values outside of the image.
#[derive(Clone, Copy, PartialEq)]
enum Outside {
    Zeros,
    /// The nearest pixel of the border.
    Border,
    /// The image, mirrored at the outer pixels' centres or at their edges.
    Mirrored {
        at_centres: bool,
    },
}

/// A neighbour of a position along one axis: its place (an integer, as float), its weight and the weight's
/// slope with respect to the position; `None` for 1 and for 0.
struct Near {
    place: String,
    weight: Option<String>,
    slope: Option<String>,
}

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

/// The nearest neighbour; halves are rounded to even.
fn nearest(cx: &Cx, position: &str) -> Vec<Near> {
    vec![Near { place: cx.op("Round", &[position]), weight: None, slope: None }]
}

/// The neighbours on both sides, weighted by distance.
fn linear(cx: &Cx, position: &str) -> Vec<Near> {
    let low = cx.op("Floor", &[position]);
    let part = cx.sub(position, &low);
    let one = cx.scalar(1.0);
    let rest = cx.sub(&one, &part);
    let high = cx.add(&low, &one);
    vec![
        Near { place: low, weight: Some(rest), slope: Some(cx.scalar(-1.0)) },
        Near { place: high, weight: Some(part), slope: Some(one) },
    ]
}

/// Two neighbours on each side: Keys' cubic convolution with a = −3/4 (IEEE TASSP 29, 1981, equation 15).
fn cubic(cx: &Cx, position: &str) -> Vec<Near> {
    const A: f32 = -0.75;
    let low = cx.op("Floor", &[position]);
    let part = cx.sub(position, &low);
    // c0 + d·(c1 + d·(c2 + d·c3))
    let polynomial = |d: &str, c: [f32; 4]| {
        let mut value = cx.scalar(c[3]);
        for c in c[..3].iter().rev() {
            value = cx.add(&cx.mul(&value, d), &cx.scalar(*c));
        }
        value
    };
    let far = ([-4.0 * A, 8.0 * A, -5.0 * A, A], [8.0 * A, -10.0 * A, 3.0 * A, 0.0]);
    let close = ([1.0, 0.0, -(A + 3.0), A + 2.0], [0.0, -2.0 * (A + 3.0), 3.0 * (A + 2.0), 0.0]);
    (-1i8..=2)
        .map(|step| {
            let place = cx.add(&low, &cx.scalar(f32::from(step)));
            // For the neighbours above, the distance falls as the position rises.
            let above = step > 0;
            let distance = if above {
                cx.sub(&cx.scalar(f32::from(step)), &part)
            } else {
                cx.sub(&part, &cx.scalar(f32::from(step)))
            };
            let (weight, slope) = if matches!(step, -1 | 2) { far } else { close };
            let slope = polynomial(&distance, slope);
            Near {
                place,
                weight: Some(polynomial(&distance, weight)),
                slope: Some(if above { cx.neg(&slope) } else { slope }),
            }
        })
        .collect()
}

/// A place or a position, mirrored into the axis, and whether it rises with its argument: 1 or 0. `None` for
/// a single pixel that is mirrored at its centre.
fn mirror(cx: &Cx, at: &str, size: i64, at_centres: bool) -> Option<[String; 2]> {
    let (start, period) =
        if at_centres { (0.0, 2.0 * (size as f32 - 1.0)) } else { (-0.5, 2.0 * size as f32) };
    if period == 0.0 {
        return None;
    }
    let from = cx.sub(at, &cx.scalar(start));
    let turns = cx.op("Floor", &[&cx.scale(&from, 1.0 / period)]);
    let phase = cx.sub(&from, &cx.scale(&turns, period));
    // Forwards up to the middle of the period, then back.
    let back = cx.sub(&cx.scalar(period), &phase);
    let rises = cx.one_where(&cx.op("Less", &[&phase, &back]));
    Some([cx.add(&cx.op("Min", &[&phase, &back]), &cx.scalar(start)), rises])
}

/// [`linear`] for values outside that are not 0: the position is first moved into the image. The slopes are
/// those of PyTorch's `clip_coordinates_set_grad` and `reflect_coordinates_set_grad`.
fn linear_within(cx: &Cx, position: &str, size: i64, outside: Outside) -> Vec<Near> {
    let mirrored = match outside {
        Outside::Mirrored { at_centres } => mirror(cx, position, size, at_centres),
        _ => None,
    };
    let (position, rises) = match mirrored {
        Some([position, rises]) => (position, Some(rises)),
        None => (position.to_string(), None),
    };
    let last = size as f32 - 1.0;
    let inside = cx.op("And", &[&cx.greater(&position, 0.0), &cx.less(&position, last)]);
    let mut turn = cx.one_where(&inside);
    if let Some(rises) = rises {
        turn = cx.mul(&turn, &cx.sub(&cx.scale(&rises, 2.0), &cx.scalar(1.0)));
    }
    let clipped = cx.op("Clip", &[&position, &cx.scalar(0.0), &cx.scalar(last)]);
    let turned = |near: Near| Near { slope: near.slope.map(|slope| cx.mul(&slope, &turn)), ..near };
    linear(cx, &clipped).into_iter().map(turned).collect()
}

/// The place within the axis, and whether it was inside: 1 or 0, `None` if values outside count.
fn clamp_place(cx: &Cx, place: &str, size: i64, outside: Outside) -> (String, Option<String>) {
    let last = size as f32 - 1.0;
    let clipped = |place: &str| cx.op("Clip", &[place, &cx.scalar(0.0), &cx.scalar(last)]);
    match outside {
        Outside::Zeros => {
            let low = cx.op("GreaterOrEqual", &[place, &cx.scalar(0.0)]);
            let high = cx.op("LessOrEqual", &[place, &cx.scalar(last)]);
            let inside = cx.one_where(&cx.op("And", &[&low, &high]));
            (clipped(place), Some(inside))
        }
        Outside::Border => (clipped(place), None),
        Outside::Mirrored { at_centres } => {
            let within = mirror(cx, place, size, at_centres).map(|[within, _]| cx.op("Round", &[&within]));
            (clipped(within.as_deref().unwrap_or(place)), None)
        }
    }
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

    /// The gradient of the images [B, C, pixels], from that of the largest weighted pixel of each bin, [R, C,
    /// bins, 1]. The samples are those of RoiAlign, by region; `inside` [R, 1, P] is 0 if a sample lies
    /// outside of the image or doesn't exist, and `never` is a very negative number in the second case.
    fn largest(&self, g: &str, inside: &str, never: &str) -> String {
        let cx = self.cx;
        let images = cx.op_with("Gather", &[&cx.x(0), &cx.x(2)], &[("axis", 0i64.into())]);
        let bins = cx.node.int("output_height", 1) * cx.node.int("output_width", 1);
        let each = self.points / bins;
        let by_bin = [self.batch, self.channels, bins, each];
        let parts = self.parts(&self.flat(&images)).into_iter();
        let parts: Vec<String> =
            parts.map(|part| cx.reshape(&cx.add(&cx.mul(&part, inside), never), &by_bin)).collect();
        let all = cx.op_with("Concat", &refs(&parts), &[("axis", 3i64.into())]);
        let chosen = cx.op_with("ArgMax", &[&all], &[("axis", 3i64.into()), ("keepdims", 1i64.into())]);
        let places: Vec<i64> = (0..each * parts.len() as i64).collect();
        let places = cx.constant(Tensor::i64(&[1, 1, 1, places.len() as i64], &places));
        let g = cx.mul(g, &cx.equal(&chosen, &places));
        let sizes = cx.ints(&vec![each; parts.len()]);
        let by_tap = cx.op_outputs("Split", &[&g, &sizes], &[("axis", 3i64.into())], parts.len());
        let whole = [self.batch, self.channels, self.points];
        let by_tap: Vec<String> = by_tap.iter().map(|g| cx.mul(&cx.reshape(g, &whole), inside)).collect();
        self.pixels_by_tap(&by_tap)
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

/// Maximum number of samples of a bin of RoiAlign along each axis, if it follows from the region's size.
const MOST_SAMPLES: i64 = 4096;

/// The bins of RoiAlign's regions.
struct Bins {
    /// Bins of a region along each axis.
    size: [i64; 2],
    /// Samples of a bin along each axis, by region.
    each: Vec<[i64; 2]>,
    /// The largest of these numbers, which all regions get: surplus samples have weight 0.
    most: [i64; 2],
}

impl Bins {
    fn of(cx: &Cx) -> Result<Bins, String> {
        let size = [cx.node.int("output_height", 1), cx.node.int("output_width", 1)];
        let ratio = cx.node.int("sampling_ratio", 0);
        let each: Vec<[i64; 2]> = if ratio > 0 {
            vec![[ratio; 2]; cx.x_shape(1)[0] as usize]
        } else {
            let known =
                cx.const_f32s(1).ok_or("sampling_ratio=0 is not covered where the regions are computed")?;
            let (scale, least) = (spatial_scale(cx), if half_pixel(cx) { f32::MIN } else { 1.0 });
            let count = |r: &[f32], axis: usize| {
                let span = (r[3 - axis] * scale - r[1 - axis] * scale).max(least);
                match (span / size[axis] as f32).ceil() as i64 {
                    n if n > MOST_SAMPLES => {
                        Err(format!("a region with more than {MOST_SAMPLES} samples in a bin is not covered"))
                    }
                    // A region without extent has no samples, and its bins are 0.
                    n => Ok(n.max(0)),
                }
            };
            known.chunks(4).map(|r| Ok([count(r, 0)?, count(r, 1)?])).collect::<Result<_, String>>()?
        };
        let most = [0, 1].map(|axis| each.iter().map(|n| n[axis]).max().unwrap_or(1).max(1));
        Ok(Bins { size, each, most })
    }

    fn per_region(&self) -> i64 {
        self.size[0] * self.size[1]
    }

    /// Samples of a bin.
    fn samples(&self) -> i64 {
        self.most[0] * self.most[1]
    }

    /// Samples of a region.
    fn points(&self) -> i64 {
        self.per_region() * self.samples()
    }

    /// The place of a bin, and of a sample in it, along each axis.
    fn places(&self, point: i64) -> ([i64; 2], [i64; 2]) {
        let (bin, sample) = (point / self.samples(), point % self.samples());
        ([bin / self.size[1], bin % self.size[1]], [sample / self.most[1], sample % self.most[1]])
    }

    /// One value for each sample, [R, 1, P], from the samples of a bin in its region and its index there.
    fn floats(&self, cx: &Cx, value: impl Fn(&[i64; 2], i64) -> f32) -> String {
        let mut values = Vec::with_capacity(self.each.len() * self.points() as usize);
        for n in &self.each {
            values.extend((0..self.points()).map(|point| value(n, point)));
        }
        cx.floats(&[self.each.len() as i64, 1, self.points()], &values)
    }

    /// Positions as fractions of the region, [R, 1, P].
    fn fractions(&self, cx: &Cx, axis: usize) -> String {
        self.floats(cx, |n, point| {
            let (bin, sample) = self.places(point);
            (bin[axis] as f32 + (sample[axis] as f32 + 0.5) / n[axis].max(1) as f32) / self.size[axis] as f32
        })
    }

    /// `value` for samples that exist, else `other`; [R, 1, P].
    fn of_each(&self, cx: &Cx, value: impl Fn(&[i64; 2]) -> f32, other: f32) -> String {
        self.floats(cx, |n, point| {
            let (_, sample) = self.places(point);
            if sample[0] < n[0] && sample[1] < n[1] { value(n) } else { other }
        })
    }
}

fn half_pixel(cx: &Cx) -> bool {
    cx.node.str("coordinate_transformation_mode", "half_pixel") == "half_pixel"
}

fn spatial_scale(cx: &Cx) -> f32 {
    cx.node.float("spatial_scale", 1.0)
}

/// The neighbours of the samples of RoiAlign, by axis, and whether the samples are inside of the image along
/// it: 1 or 0, [R, 1, P].
fn in_regions(cx: &Cx, bins: &Bins) -> (Vec<Vec<Near>>, Vec<String>) {
    let (x, regions, half) = (cx.x_shape(0), cx.x_shape(1)[0], half_pixel(cx));
    let rois = cx.reshape(&cx.x_as_float(1), &[regions, 1, 4]);
    let corner = |at: i64| {
        let scaled = cx.scale(&component(cx, &rois, at, [regions, 1]), spatial_scale(cx));
        cx.sub(&scaled, &cx.scalar(if half { 0.5 } else { 0.0 }))
    };
    let along = |axis: usize| {
        let (from, to) = (corner(1 - axis as i64), corner(3 - axis as i64));
        let mut span = cx.sub(&to, &from);
        if !half {
            span = cx.op("Max", &[&span, &cx.scalar(1.0)]);
        }
        let position = cx.add(&from, &cx.mul(&span, &bins.fractions(cx, axis)));
        // More than one pixel outside of the image, samples are 0; nearer, the border counts.
        let low = cx.op("GreaterOrEqual", &[&position, &cx.scalar(-1.0)]);
        let high = cx.op("LessOrEqual", &[&position, &cx.scalar(x[2 + axis] as f32)]);
        let inside = cx.one_where(&cx.op("And", &[&low, &high]));
        let last = cx.scalar(x[2 + axis] as f32 - 1.0);
        (linear(cx, &cx.op("Clip", &[&position, &cx.scalar(0.0), &last])), inside)
    };
    [0, 1].map(along).into_iter().unzip()
}

/// Averages of samples in the bins of regions [R, 4] (x1, y1, x2, y2); `batch_indices` names the image of
/// each. With mode=max a bin has the largest of its samples' four weighted pixels, and not the largest
/// sample: this is ONNX's definition.
fn roi_align(cx: &Cx) -> Done {
    let largest = match cx.node.str("mode", "avg") {
        "avg" => false,
        "max" => true,
        other => return Err(format!("mode={other} is not known")),
    };
    if cx.wants(1) {
        return Err("the gradient of the regions is not covered".into());
    }
    let (x, regions) = (cx.x_shape(0), cx.x_shape(1)[0]);
    let bins = Bins::of(cx)?;
    let (near, inside) = in_regions(cx, &bins);
    let points = bins.points();
    let samples = Samples::new(cx, [regions, x[1], points], &x[2..], near, Outside::Border)?;
    let inside = cx.mul(&inside[0], &inside[1]);
    let g = cx.reshape(&cx.gy(), &[regions, x[1], bins.per_region(), 1]);
    let g = if largest {
        let counts = cx.mul(&inside, &bins.of_each(cx, |_| 1.0, 0.0));
        samples.largest(&g, &counts, &bins.of_each(cx, |_| 0.0, f32::MIN))
    } else {
        let share = cx.mul(&bins.of_each(cx, |n| 1.0 / (n[0] * n[1]) as f32, 0.0), &inside);
        let g = cx.expand(&g, &[regions, x[1], bins.per_region(), bins.samples()]);
        samples.pixels(&cx.mul(&cx.reshape(&g, &[regions, x[1], points]), &share))
    };
    let index = cx.reshape(&cx.cast(&cx.x(2), cx.x_type(2), DType::I64), &[regions, 1]);
    let pixels = x[2] * x[3];
    let g = cx.scatter_add("ScatterND", &[x[0], x[1], pixels], &index, &g, &[]);
    cx.give_first(cx.reshape(&g, x))
}
