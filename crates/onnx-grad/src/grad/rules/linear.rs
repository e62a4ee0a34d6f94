//! Matrix products.

use super::{Rule, exact};
use crate::grad::Cx;

type Done = Result<(), String>;

pub(super) const RULES: &[Rule] = &[exact("Gemm", gemm), exact("MatMul", matmul)];

/// Y = α·A'·B' + β·C, where A' and B' may be transposed.
fn gemm(cx: &mut Cx) -> Done {
    let (alpha, beta) = (cx.node.float("alpha", 1.0), cx.node.float("beta", 1.0));
    let (ta, tb) = (cx.node.int("transA", 0), cx.node.int("transB", 0));
    let (gy, a, b) = (cx.gy(), cx.x(0), cx.x(1));
    let product = |cx: &mut Cx, l: &str, r: &str, tl: i64, tr: i64| {
        cx.op_with("Gemm", &[l, r], &[("alpha", alpha.into()), ("transA", tl.into()), ("transB", tr.into())])
    };
    if cx.wants(0) {
        let g = if ta == 0 { product(cx, &gy, &b, 0, 1 - tb) } else { product(cx, &b, &gy, tb, 1) };
        cx.give(0, g);
    }
    if cx.wants(1) {
        let g = if tb == 0 { product(cx, &a, &gy, 1 - ta, 0) } else { product(cx, &gy, &a, 1, ta) };
        cx.give(1, g);
    }
    if cx.wants(2) {
        let (from, to) = (cx.y_shape(0), cx.x_shape(2));
        let g = cx.scale(&gy, beta);
        let g = cx.unbroadcast(&g, from, to);
        cx.give(2, g);
    }
    Ok(())
}

/// numpy.matmul: batch dimensions broadcast, vectors count as a row on the left, a column on the right.
fn matmul(cx: &mut Cx) -> Done {
    let (a_shape, b_shape) = (cx.x_shape(0), cx.x_shape(1));
    let row = a_shape.len() == 1;
    let column = b_shape.len() == 1;
    let a_full = if row { vec![1, a_shape[0]] } else { a_shape.to_vec() };
    let b_full = if column { vec![b_shape[0], 1] } else { b_shape.to_vec() };
    let (m, n) = (a_full[a_full.len() - 2], b_full[b_full.len() - 1]);
    let rank = a_full.len().max(b_full.len());
    // The output as if both operands were matrices.
    let mut y_full = cx.y_shape(0).to_vec();
    if column {
        y_full.push(1);
    }
    if row {
        y_full.insert(y_full.len() - 1, 1);
    }
    let gy = cx.gy();
    let gy = if row || column { cx.reshape(&gy, &y_full) } else { gy };
    let matrix = |cx: &mut Cx, x: &str, full: &[i64], vector: bool| {
        if vector { cx.reshape(x, full) } else { x.to_string() }
    };
    let swapped = |cx: &mut Cx, x: &str, rank: usize| {
        let mut perm: Vec<i64> = (0..rank as i64).collect();
        perm.swap(rank - 1, rank - 2);
        cx.transpose(x, &perm)
    };
    let batch = &y_full[..rank - 2];
    if cx.wants(0) {
        let b = matrix(cx, &cx.x(1), &b_full, column);
        let bt = swapped(cx, &b, b_full.len());
        let g = cx.op("MatMul", &[&gy, &bt]);
        let from = [batch, &[m, b_full[b_full.len() - 2]]].concat();
        let g = cx.unbroadcast(&g, &from, &a_full);
        let g = if row { cx.reshape(&g, a_shape) } else { g };
        cx.give(0, g);
    }
    if cx.wants(1) {
        let a = matrix(cx, &cx.x(0), &a_full, row);
        let at = swapped(cx, &a, a_full.len());
        let g = cx.op("MatMul", &[&at, &gy]);
        let from = [batch, &[a_full[a_full.len() - 1], n]].concat();
        let g = cx.unbroadcast(&g, &from, &b_full);
        let g = if column { cx.reshape(&g, b_shape) } else { g };
        cx.give(1, g);
    }
    Ok(())
}
