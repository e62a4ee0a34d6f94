//! Operators that move values without computing: reshapes, transposes, joins, broadcasts.

use super::{Rule, exact};
use crate::grad::Cx;

type Done = Result<(), String>;

pub(super) const RULES: &[Rule] = &[
    exact("Concat", concat),
    exact("DepthToSpace", depth_to_space),
    exact("Expand", expand),
    exact("Flatten", reshape),
    exact("Reshape", reshape),
    exact("SpaceToDepth", space_to_depth),
    exact("Split", split),
    exact("Squeeze", reshape),
    exact("Tile", tile),
    exact("Transpose", transpose),
    exact("Unsqueeze", reshape),
];

fn reshape(cx: &mut Cx) -> Done {
    let (gy, shape) = (cx.gy(), cx.x_shape(0));
    let g = cx.reshape(&gy, shape);
    cx.give(0, g);
    Ok(())
}

fn transpose(cx: &mut Cx) -> Done {
    let rank = cx.x_shape(0).len();
    let reversed: Vec<i64> = (0..rank as i64).rev().collect();
    let perm = cx.node.ints("perm").unwrap_or(&reversed);
    let mut inverse = vec![0; rank];
    for (to, &from) in perm.iter().enumerate() {
        inverse[from as usize] = to as i64;
    }
    let gy = cx.gy();
    let g = cx.transpose(&gy, &inverse);
    cx.give(0, g);
    Ok(())
}

/// A possibly negative axis, counted from the front.
pub(super) fn axis(axis: i64, rank: usize) -> usize {
    (if axis < 0 { axis + rank as i64 } else { axis }) as usize
}

fn concat(cx: &mut Cx) -> Done {
    let at = axis(cx.node.int("axis", 0), cx.y_shape(0).len());
    let sizes: Vec<i64> = (0..cx.node.inputs.len()).map(|i| cx.x_shape(i)[at]).collect();
    let gy = cx.gy();
    let split = cx.ints(&sizes);
    let parts = cx.op_outputs("Split", &[&gy, &split], &[("axis", (at as i64).into())], sizes.len());
    for (i, part) in parts.into_iter().enumerate() {
        cx.give(i, part);
    }
    Ok(())
}

fn split(cx: &mut Cx) -> Done {
    let at = axis(cx.node.int("axis", 0), cx.x_shape(0).len());
    let parts: Vec<String> = (0..cx.node.outputs.len()).map(|i| cx.gy_of(i)).collect();
    let refs: Vec<&str> = parts.iter().map(String::as_str).collect();
    let g = cx.op_with("Concat", &refs, &[("axis", (at as i64).into())]);
    cx.give(0, g);
    Ok(())
}

fn expand(cx: &mut Cx) -> Done {
    let (gy, from, to) = (cx.gy(), cx.y_shape(0), cx.x_shape(0));
    let g = cx.unbroadcast(&gy, from, to);
    cx.give(0, g);
    Ok(())
}

/// Each axis of the output is (repeat, size): sum over the repeats.
fn tile(cx: &mut Cx) -> Done {
    let (x, y) = (cx.x_shape(0), cx.y_shape(0));
    let folded: Vec<i64> = x.iter().zip(y).flat_map(|(&x, &y)| [if x == 0 { 0 } else { y / x }, x]).collect();
    let axes: Vec<i64> = (0..x.len() as i64).map(|d| 2 * d).collect();
    let gy = cx.gy();
    let g = cx.reshape(&gy, &folded);
    let g = cx.reduce_sum(&g, &axes, false);
    cx.give(0, g);
    Ok(())
}

fn depth_to_space(cx: &mut Cx) -> Done {
    let b = cx.node.int("blocksize", 1);
    let (gy, mode) = (cx.gy(), cx.node.str("mode", "DCR"));
    if mode == "DCR" {
        let g = cx.op_with("SpaceToDepth", &[&gy], &[("blocksize", b.into())]);
        cx.give(0, g);
        return Ok(());
    }
    // CRD: input channels are (c, b, b), output pixels (h, b), (w, b).
    let (x, y) = (cx.x_shape(0), cx.y_shape(0));
    let g = cx.reshape(&gy, &[y[0], y[1], x[2], b, x[3], b]);
    let g = cx.transpose(&g, &[0, 1, 3, 5, 2, 4]);
    let g = cx.reshape(&g, x);
    cx.give(0, g);
    Ok(())
}

fn space_to_depth(cx: &mut Cx) -> Done {
    let b = cx.node.int("blocksize", 1);
    let gy = cx.gy();
    let g = cx.op_with("DepthToSpace", &[&gy], &[("blocksize", b.into())]);
    cx.give(0, g);
    Ok(())
}
