//! Matrix products.

use super::{Done, Rule, exact, quantise, straight_through};
use crate::Tensor;
use crate::grad::Cx;

pub(super) const RULES: &[Rule] = &[
    exact("Det", det),
    exact("Gemm", gemm),
    exact("Inverse", inverse).of_microsoft(),
    exact("MatMul", matmul),
    straight_through("MatMulInteger", matmul_integer).but("a vector"),
];

/// The derivative of a determinant is the matrix of cofactors: signed determinants without row i and column
/// j. This also holds for singular matrices.
fn det(cx: &Cx) -> Done {
    let x = cx.x_shape(0);
    let (lead, n) = (x[..x.len() - 2].iter().product::<i64>(), x[x.len() - 1]);
    let gy = cx.reshape(&cx.gy(), &[lead, 1, 1]);
    if n == 1 {
        return cx.give_first(cx.reshape(&gy, x));
    }
    let others: Vec<i64> = (0..n).flat_map(|i| (0..n).filter(move |&j| j != i)).collect();
    let others = cx.constant(Tensor::i64(&[n, n - 1], &others));
    let rows =
        cx.op_with("Gather", &[&cx.reshape(&cx.x(0), &[lead, n, n]), &others], &[("axis", 1i64.into())]);
    let minors = cx.op_with("Gather", &[&rows, &others], &[("axis", 3i64.into())]);
    let minors = cx.op("Det", &[&cx.transpose(&minors, &[0, 1, 3, 2, 4])]);
    let sign = |i: i64| if (i / n + i % n) % 2 == 0 { 1.0 } else { -1.0 };
    let signs: Vec<f32> = (0..n * n).map(sign).collect();
    let cofactors = cx.mul(&minors, &cx.floats(&[n, n], &signs));
    cx.give_first(cx.reshape(&cx.mul(&cofactors, &gy), x))
}

/// −Yᵀ·Ȳ·Yᵀ for the inverse Y.
fn inverse(cx: &Cx) -> Done {
    let rank = cx.y_shape().len() as i64;
    let perm: Vec<i64> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    let across = cx.transpose(&cx.y(0), &perm);
    let product = cx.op("MatMul", &[&cx.op("MatMul", &[&across, &cx.gy()]), &across]);
    cx.give_first(cx.neg(&product))
}

/// Y = α·A'·B' + β·C, where A' and B' may be transposed.
fn gemm(cx: &Cx) -> Done {
    let (alpha, beta) = (cx.node.float("alpha", 1.0), cx.node.float("beta", 1.0));
    let (ta, tb) = (cx.node.int("transA", 0), cx.node.int("transB", 0));
    let (gy, a, b) = (cx.gy(), cx.x(0), cx.x(1));
    let product = |l: &str, r: &str, tl: i64, tr: i64| {
        cx.op_with("Gemm", &[l, r], &[("alpha", alpha.into()), ("transA", tl.into()), ("transB", tr.into())])
    };
    if cx.wants(0) {
        cx.give(0, if ta == 0 { product(&gy, &b, 0, 1 - tb) } else { product(&b, &gy, tb, 1) });
    }
    if cx.wants(1) {
        cx.give(1, if tb == 0 { product(&a, &gy, 1 - ta, 0) } else { product(&gy, &a, 1, ta) });
    }
    if cx.wants(2) {
        cx.give(2, cx.unbroadcast(&cx.scale(&gy, beta), cx.y_shape(), cx.x_shape(2)));
    }
    Ok(())
}

/// A product of integers minus their zero points: its gradient is that of the product of the numbers.
fn matmul_integer(cx: &Cx) -> Done {
    let (rows, columns) = (cx.x_shape(0).len(), cx.x_shape(1).len());
    if rows < 2 || columns < 2 {
        return Err("vectors are not covered, only matrices".into());
    }
    // One zero point per row of the first factor, and per column of the second.
    let number = |i: usize| quantise::centred(cx, i, i + 2, [rows - 2, columns - 1][i]);
    products(cx, &number)
}

/// numpy.matmul: batch dimensions broadcast; a vector is a row on the left, a column on the right.
fn matmul(cx: &Cx) -> Done {
    products(cx, &|i| cx.x(i))
}

/// Gives the factors of a matrix product their gradients. `number` returns a factor.
fn products(cx: &Cx, number: &dyn Fn(usize) -> String) -> Done {
    let (a_shape, b_shape) = (cx.x_shape(0), cx.x_shape(1));
    let (row, column) = (a_shape.len() == 1, b_shape.len() == 1);
    let a_full = if row { vec![1, a_shape[0]] } else { a_shape.to_vec() };
    let b_full = if column { vec![b_shape[0], 1] } else { b_shape.to_vec() };
    let rank = a_full.len().max(b_full.len());
    // The output as if both operands were matrices.
    let mut y_full = cx.y_shape().to_vec();
    if column {
        y_full.push(1);
    }
    if row {
        y_full.insert(y_full.len() - 1, 1);
    }
    let gy = cx.reshape_from(&cx.gy(), cx.y_shape(), &y_full);
    let swapped = |x: &str, rank: usize| {
        let mut perm: Vec<i64> = (0..rank as i64).collect();
        perm.swap(rank - 1, rank - 2);
        cx.transpose(x, &perm)
    };
    // Both gradients are matrix products, over all batches.
    let product = |l: &str, r: &str, sizes: [i64; 2], full: &[i64], own: &[i64]| {
        let g = cx.op("MatMul", &[l, r]);
        let g = cx.unbroadcast(&g, &[&y_full[..rank - 2], &sizes].concat(), full);
        cx.reshape_from(&g, full, own)
    };
    let (m, k) = (a_full[a_full.len() - 2], a_full[a_full.len() - 1]);
    if cx.wants(0) {
        let b = swapped(&cx.reshape_from(&number(1), b_shape, &b_full), b_full.len());
        cx.give(0, product(&gy, &b, [m, k], &a_full, a_shape));
    }
    if cx.wants(1) {
        let a = swapped(&cx.reshape_from(&number(0), a_shape, &a_full), a_full.len());
        cx.give(1, product(&a, &gy, [k, b_full[b_full.len() - 1]], &b_full, b_shape));
    }
    Ok(())
}
