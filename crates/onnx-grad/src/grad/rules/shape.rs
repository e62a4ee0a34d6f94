//! Operators that move values without computing: reshapes, transposes, joins, broadcasts.

use super::{Done, Rule, exact};
use crate::grad::Cx;
use crate::graph::refs;

pub(super) const RULES: &[Rule] = &[
    exact("Concat", concat),
    exact("DepthToSpace", depth_to_space),
    exact("Expand", |cx| cx.give_first(cx.unbroadcast(&cx.gy(), cx.y_shape(), cx.x_shape(0)))),
    exact("Flatten", reshape),
    exact("Reshape", reshape),
    exact("SpaceToDepth", |cx| in_blocks(cx, "DepthToSpace")),
    exact("Split", split),
    exact("Squeeze", reshape),
    exact("Tile", tile),
    exact("Transpose", transpose),
    exact("Unsqueeze", reshape),
];

fn reshape(cx: &Cx) -> Done {
    cx.give_first(cx.reshape(&cx.gy(), cx.x_shape(0)))
}

fn transpose(cx: &Cx) -> Done {
    let reversed: Vec<i64> = (0..cx.x_shape(0).len() as i64).rev().collect();
    cx.give_first(cx.untranspose(&cx.gy(), cx.node.ints("perm").unwrap_or(&reversed)))
}

/// A possibly negative axis, counted from the front.
pub(super) fn axis(axis: i64, rank: usize) -> usize {
    (if axis < 0 { axis + rank as i64 } else { axis }) as usize
}

/// The axis of input 0 that attribute `axis` names, counted from the front.
pub(super) fn axis_of(cx: &Cx, default: i64) -> usize {
    axis(cx.node.int("axis", default), cx.x_shape(0).len())
}

fn concat(cx: &Cx) -> Done {
    let at = axis_of(cx, 0);
    let sizes: Vec<i64> = (0..cx.node.inputs.len()).map(|i| cx.x_shape(i)[at]).collect();
    let axis = [("axis", (at as i64).into())];
    let parts = cx.op_outputs("Split", &[&cx.gy(), &cx.ints(&sizes)], &axis, sizes.len());
    parts.into_iter().enumerate().for_each(|(i, part)| cx.give(i, part));
    Ok(())
}

fn split(cx: &Cx) -> Done {
    let parts: Vec<String> = (0..cx.node.outputs.len()).map(|i| cx.gy_of(i)).collect();
    cx.give_first(cx.op_with("Concat", &refs(&parts), &[("axis", (axis_of(cx, 0) as i64).into())]))
}

/// Each axis of the output is (repeat, size): sums over the repeats.
fn tile(cx: &Cx) -> Done {
    let (x, y) = (cx.x_shape(0), cx.y_shape());
    let folded: Vec<i64> = x.iter().zip(y).flat_map(|(&x, &y)| [if x == 0 { 0 } else { y / x }, x]).collect();
    let axes: Vec<i64> = (0..x.len() as i64).map(|d| 2 * d).collect();
    cx.give_first(cx.reduce_sum(&cx.reshape(&cx.gy(), &folded), &axes, false))
}

fn depth_to_space(cx: &Cx) -> Done {
    if cx.node.str("mode", "DCR") == "DCR" {
        return in_blocks(cx, "SpaceToDepth");
    }
    // CRD: input channels are (c, b, b), output pixels (h, b), (w, b).
    let (b, x, y) = (cx.node.int("blocksize", 1), cx.x_shape(0), cx.y_shape());
    let g = cx.reshape(&cx.gy(), &[y[0], y[1], x[2], b, x[3], b]);
    cx.give_first(cx.reshape(&cx.transpose(&g, &[0, 1, 3, 5, 2, 4]), x))
}

/// Gives input 0 the output gradient after `op`, with the node's own block size.
fn in_blocks(cx: &Cx, op: &str) -> Done {
    let blocks = cx.node.int("blocksize", 1);
    cx.give_first(cx.op_with(op, &[&cx.gy()], &[("blocksize", blocks.into())]))
}
