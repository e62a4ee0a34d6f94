//! Resize is separable: along each axis it is a product with a matrix R, and its transpose a product with Rᵀ.
//! R is the operator applied to the identity, in any mode: a constant, computed when the session is built.

use super::{Done, Rule, exact, shape::axis};
use crate::grad::Cx;
use crate::{Attr, DType, Tensor};

pub(super) const RULES: &[Rule] = &[exact("Resize", resize)
    .but("sizes, scales or roi computed in the graph; keep_aspect_ratio_policy where it rounds a size up; an axis of more than 4096 pixels")];

/// How one axis is resized.
struct Along {
    axis: usize,
    scale: Option<f32>,
    /// Start and end of the region of interest.
    roi: Option<[f32; 2]>,
}

/// The axes that change, and how.
fn plan(cx: &Cx) -> Result<Vec<Along>, String> {
    let (x, y) = (cx.x_shape(0), cx.y_shape());
    let axes: Vec<usize> = match cx.node.ints("axes") {
        Some(axes) => axes.iter().map(|&a| axis(a, x.len())).collect(),
        None => (0..x.len()).collect(),
    };
    let floats = |i: usize, what: &str| match cx.node.input(i) {
        None => Ok(None),
        Some(_) if cx.x_shape(i) == [0] => Ok(None),
        Some(_) => {
            cx.const_f32s(i).map(Some).ok_or(format!("{what} must be constant and are computed in the graph"))
        }
    };
    let mut scales = floats(2, "its scales")?;
    let crops = cx.node.str("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize";
    let roi = if crops { floats(1, "its region of interest (roi)")? } else { None };
    if cx.node.str("keep_aspect_ratio_policy", "stretch") != "stretch" && scales.is_none() {
        // One scale for all axes, the smallest or the largest; sizes are rounded to it.
        let sizes = cx.const_ints(3)?.ok_or("has neither sizes nor scales")?;
        let each = axes.iter().zip(&sizes).map(|(&a, &size)| size as f32 / x[a] as f32);
        let larger = cx.node.str("keep_aspect_ratio_policy", "") == "not_smaller";
        let common = if larger { each.fold(0.0, f32::max) } else { each.fold(f32::INFINITY, f32::min) };
        if let Some(&a) = axes.iter().find(|&&a| (x[a] as f32 * common).floor() as i64 != y[a]) {
            return Err(format!(
                "keep_aspect_ratio_policy that rounds the size of axis {a} up is not covered"
            ));
        }
        scales = Some(vec![common; axes.len()]);
    }
    let along = |(k, &axis): (usize, &usize)| Along {
        axis,
        scale: scales.as_ref().map(|s| s[k]),
        roi: roi.as_ref().map(|r| [r[k], r[axes.len() + k]]),
    };
    let changes = |a: &Along| {
        x[a.axis] != y[a.axis] || a.scale.is_some_and(|s| s != 1.0) || a.roi.is_some_and(|r| r != [0.0, 1.0])
    };
    Ok(axes.iter().enumerate().map(along).filter(changes).collect())
}

/// Whether nearest neighbours are plain repeats: integer factors, and rounding that gives each pixel its own
/// block.
fn repeats(cx: &Cx, plan: &[Along]) -> bool {
    let (x, y) = (cx.x_shape(0), cx.y_shape());
    let whole = plan.iter().all(|a| {
        y[a.axis] % x[a.axis] == 0
            && a.scale.is_none_or(|s| s == (y[a.axis] / x[a.axis]) as f32)
            && a.roi.is_none()
    });
    let rounding = cx.node.str("nearest_mode", "round_prefer_floor");
    let aligned = match cx.node.str("coordinate_transformation_mode", "half_pixel") {
        "asymmetric" => rounding == "floor",
        "half_pixel" => rounding.starts_with("round"),
        _ => false,
    };
    cx.node.str("mode", "nearest") == "nearest" && whole && aligned
}

/// R of one axis, (input size, output size): one row for each row of the identity, as channels.
fn matrix(cx: &Cx, along: &Along, n: i64, m: i64) -> Result<String, String> {
    let rows = cx.identity_f32(&[1, n, 1, n], n)?;
    let constant = |v: &[f32]| cx.constant(Tensor::f32(&[v.len() as i64], v));
    let roi = match along.roi {
        Some([start, end]) => constant(&[0.0, 0.0, 0.0, start, 1.0, 1.0, 1.0, end]),
        None => String::new(),
    };
    let (scales, sizes) = match along.scale {
        Some(scale) => (constant(&[1.0, 1.0, 1.0, scale]), String::new()),
        None => (String::new(), cx.ints(&[1, n, 1, m])),
    };
    let mut inputs = vec![rows.as_str(), &roi, &scales];
    if !sizes.is_empty() {
        inputs.push(&sizes);
    }
    let dropped = ["axes", "keep_aspect_ratio_policy", "extrapolation_value"];
    let attrs = cx.node.attrs.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let attrs: Vec<(&str, Attr)> = attrs.filter(|(name, _)| !dropped.contains(name)).collect();
    let r = cx.reshape(&cx.op_with("Resize", &inputs, &attrs), &[n, m]);
    Ok(cx.cast(&r, DType::F32, cx.gy_type()))
}

fn resize(cx: &Cx) -> Done {
    let plan = plan(cx)?;
    let (x, y) = (cx.x_shape(0), cx.y_shape());
    let mut g = cx.gy();
    if repeats(cx, &plan) {
        let blocks: Vec<i64> = x.iter().zip(y).flat_map(|(&x, &y)| [x, y / x]).collect();
        let axes: Vec<i64> = plan.iter().map(|a| 2 * a.axis as i64 + 1).collect();
        let g = cx.reshape(&g, &blocks);
        let g = cx.reduce_sum(&g, &axes, true);
        return cx.give_first(cx.reshape(&g, x));
    }
    let mut shape = y.to_vec();
    for along in plan.iter().rev() {
        let (a, n, m) = (along.axis, x[along.axis], y[along.axis]);
        let r = matrix(cx, along, n, m)?;
        let (before, after) = (shape[..a].iter().product(), shape[a + 1..].iter().product());
        if after == 1 {
            let transposed = cx.transpose(&r, &[1, 0]);
            g = cx.op("MatMul", &[&cx.reshape(&g, &[before, m]), &transposed]);
        } else {
            g = cx.op("MatMul", &[&r, &cx.reshape(&g, &[before, m, after])]);
        }
        shape[a] = n;
    }
    cx.give_first(cx.reshape(&g, x))
}
