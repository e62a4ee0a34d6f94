//! Reductions over axes.

use super::{Rule, exact, shape::axis};
use crate::grad::Cx;

type Done = Result<(), String>;

const AXES: &str = "axes computed in the graph";

pub(super) const RULES: &[Rule] = &[
    exact("GlobalAveragePool", global_average),
    exact("GlobalMaxPool", global_max),
    exact("ReduceL1", l1).but(AXES),
    exact("ReduceL2", l2).but(AXES),
    exact("ReduceLogSum", log_sum).but(AXES),
    exact("ReduceLogSumExp", log_sum_exp).but(AXES),
    exact("ReduceMax", extreme).but(AXES),
    exact("ReduceMean", mean).but(AXES),
    exact("ReduceMin", extreme).but(AXES),
    exact("ReduceProd", prod).but(AXES),
    exact("ReduceSum", sum).but(AXES),
    exact("ReduceSumSquare", sum_square).but(AXES),
];

/// The shape of the output with reduced axes kept as 1, and how many values each output stands for.
fn kept(cx: &Cx) -> Result<(Vec<i64>, i64), String> {
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

/// Output gradient, and output, with reduced axes kept so that they broadcast against the input.
fn gy_and_y(cx: &mut Cx) -> Result<(String, String), String> {
    let (kept, _) = kept(cx)?;
    let (gy, y) = (cx.gy(), cx.y(0));
    if kept == cx.y_shape(0) {
        return Ok((gy, y));
    }
    Ok((cx.reshape(&gy, &kept), cx.reshape(&y, &kept)))
}

fn spread(cx: &mut Cx, weight: f32) -> Done {
    let (kept, _) = kept(cx)?;
    let (gy, shape) = (cx.gy(), cx.x_shape(0));
    let g = cx.scale(&gy, weight);
    let g = if kept == cx.y_shape(0) { g } else { cx.reshape(&g, &kept) };
    let g = cx.expand(&g, shape);
    cx.give(0, g);
    Ok(())
}

fn sum(cx: &mut Cx) -> Done {
    spread(cx, 1.0)
}

fn mean(cx: &mut Cx) -> Done {
    let (_, count) = kept(cx)?;
    spread(cx, 1.0 / count as f32)
}

fn global_average(cx: &mut Cx) -> Done {
    let shape = cx.x_shape(0);
    let count: i64 = shape[2..].iter().product();
    let gy = cx.gy();
    let g = cx.scale(&gy, 1.0 / count as f32);
    let g = cx.expand(&g, shape);
    cx.give(0, g);
    Ok(())
}

/// The gradient goes to the entries that attain the extreme, in equal parts as in PyTorch's amax.
fn to_attaining(cx: &mut Cx, gy: &str, y: &str, axes: &[i64]) -> Done {
    let like = cx.x_type(0).code() as i64;
    let equal = cx.op("Equal", &[&cx.x(0), y]);
    let mask = cx.op_with("Cast", &[&equal], &[("to", like.into())]);
    let count = cx.reduce_sum(&mask, axes, true);
    let share = cx.div(gy, &count);
    let g = cx.mul(&share, &mask);
    cx.give(0, g);
    Ok(())
}

/// The axes that are more than a change of shape to reduce.
fn reduced(cx: &Cx) -> Result<Vec<i64>, String> {
    let (kept, _) = kept(cx)?;
    Ok((0..kept.len()).filter(|&d| kept[d] != cx.x_shape(0)[d]).map(|d| d as i64).collect())
}

fn extreme(cx: &mut Cx) -> Done {
    let axes = reduced(cx)?;
    let (gy, y) = gy_and_y(cx)?;
    if axes.is_empty() {
        cx.give(0, gy);
        return Ok(());
    }
    to_attaining(cx, &gy, &y, &axes)
}

fn global_max(cx: &mut Cx) -> Done {
    let axes: Vec<i64> = (2..cx.x_shape(0).len() as i64).collect();
    let (gy, y) = (cx.gy(), cx.y(0));
    to_attaining(cx, &gy, &y, &axes)
}

fn l1(cx: &mut Cx) -> Done {
    let (gy, _) = gy_and_y(cx)?;
    let sign = cx.op("Sign", &[&cx.x(0)]);
    let g = cx.mul(&sign, &gy);
    cx.give(0, g);
    Ok(())
}

/// x/‖x‖, and 0 at ‖x‖ = 0 as in PyTorch.
fn l2(cx: &mut Cx) -> Done {
    let (gy, y) = gy_and_y(cx)?;
    let ratio = cx.div(&gy, &y);
    let positive = cx.greater(&y, 0.0);
    let ratio = cx.only_where(&positive, &ratio);
    let g = cx.mul(&cx.x(0), &ratio);
    cx.give(0, g);
    Ok(())
}

fn sum_square(cx: &mut Cx) -> Done {
    let (gy, _) = gy_and_y(cx)?;
    let twice = cx.scale(&gy, 2.0);
    let g = cx.mul(&cx.x(0), &twice);
    cx.give(0, g);
    Ok(())
}

fn log_sum_exp(cx: &mut Cx) -> Done {
    let (gy, y) = gy_and_y(cx)?;
    let shifted = cx.sub(&cx.x(0), &y);
    let soft = cx.op("Exp", &[&shifted]);
    let g = cx.mul(&soft, &gy);
    cx.give(0, g);
    Ok(())
}

/// y = log Σ x: gy/Σ x.
fn log_sum(cx: &mut Cx) -> Done {
    let (gy, y) = gy_and_y(cx)?;
    let sum = cx.op("Exp", &[&y]);
    let g = cx.div(&gy, &sum);
    let shape = cx.x_shape(0);
    let g = cx.expand(&g, shape);
    cx.give(0, g);
    Ok(())
}

/// The product of the other entries: that of all but zeros, over the entry itself; 0 if another one is zero.
fn prod(cx: &mut Cx) -> Done {
    let axes = reduced(cx)?;
    let (gy, _) = gy_and_y(cx)?;
    if axes.is_empty() {
        cx.give(0, gy);
        return Ok(());
    }
    let (x, like) = (cx.x(0), cx.x_type(0).code() as i64);
    let (zero, one) = (cx.scalar(0.0), cx.scalar(1.0));
    let is_zero = cx.op("Equal", &[&x, &zero]);
    let count = cx.op_with("Cast", &[&is_zero], &[("to", like.into())]);
    let zeros = cx.reduce_sum(&count, &axes, true);
    let alone = cx.op("Equal", &[&zeros, &count]);
    let filled = cx.op("Where", &[&is_zero, &one, &x]);
    let axes = cx.ints(&axes);
    let product = cx.op("ReduceProd", &[&filled, &axes]);
    let others = cx.div(&product, &filled);
    let g = cx.mul(&gy, &others);
    let g = cx.only_where(&alone, &g);
    cx.give(0, g);
    Ok(())
}
