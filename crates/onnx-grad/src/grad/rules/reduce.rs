//! Reductions over axes.

use super::{Done, Rule, exact, shape::axis};
use crate::grad::Cx;

const AXES: &str = "axes computed in the graph";

pub(super) const RULES: &[Rule] = &[
    exact("GlobalAveragePool", global_average),
    exact("GlobalMaxPool", global_max),
    exact("ReduceL1", l1).but(AXES),
    exact("ReduceL2", l2).but(AXES),
    exact("ReduceLogSum", log_sum).but(AXES),
    exact("ReduceLogSumExp", log_sum_exp).but(AXES),
    exact("ReduceMax", extreme).but(AXES),
    exact("ReduceMean", |cx| spread(cx, 1.0 / kept_shape(cx)?.1 as f32)).but(AXES),
    exact("ReduceMin", extreme).but(AXES),
    exact("ReduceProd", prod).but(AXES),
    exact("ReduceSum", |cx| spread(cx, 1.0)).but(AXES),
    exact("ReduceSumSquare", sum_square).but(AXES),
];

/// The shape of the output with reduced axes kept as 1, and the number of values that each output reduces.
fn kept_shape(cx: &Cx) -> Result<(Vec<i64>, i64), String> {
    let shape = cx.x_shape(0);
    let axes = match cx.const_ints(1)? {
        Some(axes) if !axes.is_empty() => axes,
        _ if cx.node.int("noop_with_empty_axes", 0) != 0 => vec![],
        _ => (0..shape.len() as i64).collect(),
    };
    let mut kept = shape.to_vec();
    let mut count = 1;
    for a in axes {
        let a = axis(a, shape.len());
        count *= kept[a];
        kept[a] = 1;
    }
    Ok((kept, count))
}

/// Output gradient and output, with reduced axes kept, so that they broadcast against the input.
fn gy_and_y(cx: &Cx) -> Result<(String, String), String> {
    let (kept, _) = kept_shape(cx)?;
    let full = |v: String| cx.reshape_from(&v, cx.y_shape(), &kept);
    Ok((full(cx.gy()), full(cx.y(0))))
}

fn spread(cx: &Cx, weight: f32) -> Done {
    let (kept, _) = kept_shape(cx)?;
    let g = cx.reshape_from(&cx.scale(&cx.gy(), weight), cx.y_shape(), &kept);
    cx.give_first(cx.expand(&g, cx.x_shape(0)))
}

fn global_average(cx: &Cx) -> Done {
    let count: i64 = cx.x_shape(0)[2..].iter().product();
    cx.give_first(cx.expand(&cx.scale(&cx.gy(), 1.0 / count as f32), cx.x_shape(0)))
}

/// The gradient is divided equally among the entries that attain the extreme, as in PyTorch's amax.
fn to_attaining(cx: &Cx, gy: &str, y: &str, axes: &[i64]) -> Done {
    let mask = cx.equal(&cx.x(0), y);
    let share = cx.div(gy, &cx.reduce_sum(&mask, axes, true));
    cx.give_first(cx.mul(&share, &mask))
}

/// The reduced axes of a size other than 1.
fn reduced_axes(cx: &Cx) -> Result<Vec<i64>, String> {
    let (kept, _) = kept_shape(cx)?;
    Ok((0..kept.len()).filter(|&d| kept[d] != cx.x_shape(0)[d]).map(|d| d as i64).collect())
}

fn extreme(cx: &Cx) -> Done {
    let axes = reduced_axes(cx)?;
    let (gy, y) = gy_and_y(cx)?;
    if axes.is_empty() { cx.give_first(gy) } else { to_attaining(cx, &gy, &y, &axes) }
}

fn global_max(cx: &Cx) -> Done {
    let axes: Vec<i64> = (2..cx.x_shape(0).len() as i64).collect();
    to_attaining(cx, &cx.gy(), &cx.y(0), &axes)
}

fn l1(cx: &Cx) -> Done {
    let (gy, _) = gy_and_y(cx)?;
    cx.give_first(cx.mul(&cx.op("Sign", &[&cx.x(0)]), &gy))
}

/// x/‖x‖, and 0 at ‖x‖ = 0 as in PyTorch.
fn l2(cx: &Cx) -> Done {
    let (gy, y) = gy_and_y(cx)?;
    let ratio = cx.div(&gy, &y);
    let ratio = cx.only_where(&cx.greater(&y, 0.0), &ratio);
    cx.give_first(cx.mul(&cx.x(0), &ratio))
}

fn sum_square(cx: &Cx) -> Done {
    let (gy, _) = gy_and_y(cx)?;
    cx.give_first(cx.mul(&cx.x(0), &cx.scale(&gy, 2.0)))
}

fn log_sum_exp(cx: &Cx) -> Done {
    let (gy, y) = gy_and_y(cx)?;
    let soft = cx.op("Exp", &[&cx.sub(&cx.x(0), &y)]);
    cx.give_first(cx.mul(&soft, &gy))
}

/// y = log Σ x: gy/Σ x.
fn log_sum(cx: &Cx) -> Done {
    let (gy, y) = gy_and_y(cx)?;
    let g = cx.div(&gy, &cx.op("Exp", &[&y]));
    cx.give_first(cx.expand(&g, cx.x_shape(0)))
}

/// The product of the other entries: the product of all nonzero entries, divided by the entry; 0 if another
/// entry is zero.
fn prod(cx: &Cx) -> Done {
    let axes = reduced_axes(cx)?;
    let (gy, _) = gy_and_y(cx)?;
    if axes.is_empty() {
        return cx.give_first(gy);
    }
    let (x, zero, one) = (cx.x(0), cx.scalar(0.0), cx.scalar(1.0));
    let is_zero = cx.op("Equal", &[&x, &zero]);
    let count = cx.one_where(&is_zero);
    let alone = cx.op("Equal", &[&cx.reduce_sum(&count, &axes, true), &count]);
    let filled = cx.op("Where", &[&is_zero, &one, &x]);
    let product = cx.op("ReduceProd", &[&filled, &cx.ints(&axes)]);
    let others = cx.div(&product, &filled);
    cx.give_first(cx.only_where(&alone, &cx.mul(&gy, &others)))
}
