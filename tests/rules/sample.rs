//! Operators that read an image between its pixels.

use crate::case::*;
use crate::{common, differentiated};

pub fn samples() -> Vec<(&'static str, Sample)> {
    vec![
        entry("AffineGrid", affine_grid),
        entry("DeformConv", deform_conv),
        entry("GridSample", grid_sample),
        entry("RoiAlign", roi_align),
    ]
}

fn affine_grid(r: &mut Rng) -> Case {
    let axes = r.int(2, 3);
    let n = r.int(1, 3);
    let size: Vec<i64> = [n, 2].into_iter().chain((0..axes).map(|_| r.int(2, 4))).collect();
    Case::new(Node::new("AffineGrid", &["x", "size"], "y").with("align_corners", r.int(0, 1)))
        .normal(r, "x", &[n, axes, axes + 1])
        .ints("size", &size)
}

/// A position between pixels `low` and `high`, away from whole numbers and from halves, where neighbours
/// change.
fn place(r: &mut Rng, low: i64, high: i64) -> f32 {
    let part = 0.15 + 0.2 * r.unit();
    r.int(low, high - 1) as f32 + if r.bool() { part } else { part + 0.5 }
}

fn grid_sample(r: &mut Rng) -> Case {
    let axes = r.pick(&[2usize, 2, 2, 3]);
    let mode =
        if axes == 2 { r.pick(&["linear", "nearest", "cubic"]) } else { r.pick(&["linear", "nearest"]) };
    let aligned = r.int(0, 1);
    let space: Vec<i64> = (0..axes).map(|_| r.int(2, 5)).collect();
    let (n, c) = (r.int(1, 2), r.int(1, 3));
    let out: Vec<i64> = (0..axes).map(|_| r.int(1, 3)).collect();
    let mut grid = Vec::new();
    for _ in 0..n * out.iter().product::<i64>() {
        // The last axis comes first.
        for &size in space.iter().rev() {
            let at = place(r, -2, size + 2);
            let half = (size - aligned) as f32 / 2.0;
            grid.push((at - (size as f32 - 1.0) / 2.0) / half);
        }
    }
    let node = Node::new("GridSample", &["x", "grid"], "y")
        .with("mode", mode)
        .with("padding_mode", r.pick(&["zeros", "border", "reflection"]))
        .with("align_corners", aligned);
    let of = [&[n], out.as_slice(), &[axes as i64]].concat();
    Case::new(node).normal(r, "x", &[&[n, c], space.as_slice()].concat()).input("grid", &of, grid)
}

fn deform_conv(r: &mut Rng) -> Case {
    let (n, group, offsets) = (r.int(1, 2), r.int(1, 2), r.int(1, 2));
    let (c, m) = (2 * group * offsets, group * r.int(1, 2));
    let kernel = [r.int(1, 3), r.int(1, 2)];
    let (strides, dilations) = ([r.int(1, 2), r.int(1, 2)], [r.int(1, 2), 1]);
    let pads = [r.int(0, 1), r.int(0, 1), r.int(0, 1), r.int(0, 1)];
    let space = [r.int(5, 7), r.int(4, 6)];
    let out: Vec<i64> = (0..2)
        .map(|d| (space[d] + pads[d] + pads[2 + d] - (kernel[d] - 1) * dilations[d] - 1) / strides[d] + 1)
        .collect();
    let places = kernel[0] * kernel[1];
    let moved = [n, offsets * places * 2, out[0], out[1]];
    let values: Vec<f32> = (0..size(&moved)).map(|_| place(r, -2, 2)).collect();
    let node = Node::new("DeformConv", &["x", "w", "moved", "b", "mask"], "y")
        .with("group", group)
        .with("offset_group", offsets)
        .with("strides", strides.to_vec())
        .with("dilations", dilations.to_vec())
        .with("pads", pads.to_vec())
        .with("kernel_shape", kernel.to_vec());
    let case = Case::new(node)
        .normal(r, "x", &[n, c, space[0], space[1]])
        .maybe(r, "w", &[m, c / group, kernel[0], kernel[1]], normal)
        .input("moved", &moved, values)
        .maybe(r, "b", &[m], normal);
    let mask = [n, offsets * places, out[0], out[1]];
    case.maybe(r, "mask", &mask, positive)
}

fn roi_align(r: &mut Rng) -> Case {
    let x = [2, 2, r.int(3, 6), r.int(3, 6)];
    // The largest of many values has a kink at every tie: few values, far apart.
    let largest = r.int(0, 3) == 0;
    let most = if largest { 1 } else { 3 };
    let count = r.int(1, most);
    let mut regions = Vec::new();
    for _ in 0..count {
        let (left, top) = (8.0 * r.unit() - 3.0, 8.0 * r.unit() - 3.0);
        // Some regions have no extent. ONNX Runtime counts no samples of one with less.
        let extent = |r: &mut Rng| if r.int(0, 5) == 0 { 0.0 } else { 6.0 * r.unit() };
        regions.extend([left, top, left + extent(r), top + extent(r)]);
    }
    let images: Vec<i64> = (0..count).map(|_| r.int(0, 1)).collect();
    let node = Node::new("RoiAlign", &["x", "r", "b"], "y")
        .with("mode", if largest { "max" } else { "avg" })
        .with("output_height", r.int(1, most))
        .with("output_width", r.int(1, most))
        .with("sampling_ratio", r.int(0, 3))
        .with("spatial_scale", r.pick(&[1.0f32, 0.5]))
        .with("coordinate_transformation_mode", r.pick(&["half_pixel", "output_half_pixel"]));
    let pixels: Vec<f32> = match largest {
        true => distinct(r, &x).into_iter().map(|v| 10.0 * v).collect(),
        false => normal(r, &x),
    };
    Case::new(node)
        .input("x", &x, pixels)
        .constant("r", Tensor::f32(&[count, 4], &regions))
        .constant("b", Tensor::i64(&[count], &images))
}

/// At and beyond the centres of the outer pixels. The expected values are those of PyTorch 2.11:
/// `grid_sample` of the image arange(16)^1.5 at these positions, with the cotangent 1 to 7.
#[test]
fn positions_at_the_border_have_the_gradient_that_pytorch_gives_them() {
    common::load_runtime();
    let image: Vec<f32> = (0..16).map(|i| (i as f32).powf(1.5)).collect();
    let grid = vec![-1.0, -1.0, 1.0, 1.0, -0.2, -1.0, -1.0, 0.2, 0.5, -0.3, 1.5, -1.8, -3.0, 0.25];
    let cotangent: Vec<f32> = (1..=7).map(|c| c as f32).collect();
    // At the first two positions it is 0.
    let cases: [(&str, i64, [[f32; 2]; 5]); 4] = [
        ("border", 1, [[8.228, 0.0], [0.0, 87.764], [29.064, 128.888], [0.0, 0.0], [0.0, 153.588]]),
        ("border", 0, [[10.971, 0.0], [0.0, 117.019], [36.778, 125.963], [0.0, 0.0], [0.0, 265.185]]),
        (
            "reflection",
            1,
            [[8.228, 0.0], [0.0, 87.764], [29.064, 128.888], [-36.276, -154.665], [0.0, 188.607]],
        ),
        (
            "reflection",
            0,
            [[10.971, 0.0], [0.0, 117.019], [36.778, 125.963], [-47.124, -209.331], [0.0, 302.566]],
        ),
    ];
    for (padding, aligned, expected) in cases {
        let node = Node::new("GridSample", &["x", "grid"], "y")
            .with("mode", "linear")
            .with("padding_mode", padding)
            .with("align_corners", aligned);
        let case = Case::new(node).constant("x", Tensor::f32(&[1, 1, 4, 4], &image));
        let case = case.input("grid", &[1, 1, 7, 2], grid.clone());
        let (_, _, gradients) = differentiated(&case, |_| vec![cotangent.clone()]).unwrap();
        let expected = [[[0.0; 2]; 2].as_flattened(), expected.as_flattened()].concat();
        let close = gradients[0].iter().zip(&expected).all(|(a, b)| (a - b).abs() < 2e-3);
        assert!(close, "{padding}, {aligned}: {:?}, {expected:?} expected", gradients[0]);
    }
}
