//! RoiAlign: averages, or the largest values, of samples in the bins of regions.

use super::neighbours::{Near, Outside, linear};
use super::{Samples, component};
use crate::grad::Cx;
use crate::grad::rules::Done;
use crate::graph::refs;
use crate::{DType, Tensor};

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

impl Samples<'_, '_, '_> {
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
pub(super) fn roi_align(cx: &Cx) -> Done {
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
