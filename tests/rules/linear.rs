//! Products of matrices, and sums of products.

use crate::case::*;

pub fn samples() -> Vec<(&'static str, Sample)> {
    vec![
        entry("Det", det),
        entry("Einsum", einsum),
        entry("Gemm", gemm),
        entry("Inverse", inverse),
        entry("MatMul", matmul),
    ]
}

fn det(r: &mut Rng) -> Case {
    let n = r.int(1, 4);
    let lead = r.pick(&[&[][..], &[2], &[2, 3]]);
    let shape = [lead, &[n, n]].concat();
    // Also singular: a row of zeros.
    let singular = r.int(0, 3) == 0;
    let mut values = normal(r, &shape);
    if singular {
        values[..n as usize].fill(0.0);
    }
    Case::new(Node::new("Det", &["x"], "y")).input("x", &shape, values)
}

/// Diagonals are large, so that no matrix is nearly singular.
fn inverse(r: &mut Rng) -> Case {
    let n = r.int(1, 4);
    let lead = r.pick(&[&[][..], &[2], &[2, 3]]);
    let shape = [lead, &[n, n]].concat();
    let diagonal = |i: usize| if (i % (n * n) as usize).is_multiple_of((n + 1) as usize) { 4.0 } else { 0.0 };
    let values = normal(r, &shape).iter().enumerate().map(|(i, v)| v / 2.0 + diagonal(i)).collect();
    let mut node = Node::new("Inverse", &["x"], "y");
    node.domain = "com.microsoft".into();
    let mut case = Case::new(node).input("x", &shape, values);
    case.graph.opsets.insert("com.microsoft".into(), 1);
    case
}

fn gemm(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 5), r.int(1, 5), r.int(1, 5));
    let (ta, tb) = (r.int(0, 1), r.int(0, 1));
    let a = if ta == 1 { [k, m] } else { [m, k] };
    let b = if tb == 1 { [n, k] } else { [k, n] };
    let c: Vec<i64> = r.pick(&[&[][..], &[1], &[0], &[1, 0], &[0, 1], &[0, 0]]).to_vec();
    // 0 stands for "the full size here".
    let c: Vec<i64> =
        c.iter().enumerate().map(|(i, &d)| if d == 1 { 1 } else { [m, n][i + 2 - c.len()] }).collect();
    let with_c = r.bool();
    let inputs: &[&str] = if with_c { &["a", "b", "c"] } else { &["a", "b"] };
    let node = Node::new("Gemm", inputs, "y")
        .with("alpha", 0.5 + r.unit())
        .with("beta", 0.5 + r.unit())
        .with("transA", ta)
        .with("transB", tb);
    let case = Case::new(node).normal(r, "a", &a).normal(r, "b", &b);
    if with_c { case.normal(r, "c", &c) } else { case }
}

fn matmul(r: &mut Rng) -> Case {
    let (m, k, n) = (r.int(1, 4), r.int(1, 4), r.int(1, 4));
    let (batch_a, batch_b) = if r.bool() { broadcast_pair(r) } else { (vec![], vec![]) };
    let a = if r.int(0, 4) == 0 { vec![k] } else { [batch_a, vec![m, k]].concat() };
    let b = if r.int(0, 4) == 0 { vec![k] } else { [batch_b, vec![k, n]].concat() };
    Case::new(Node::new("MatMul", &["a", "b"], "y")).normal(r, "a", &a).normal(r, "b", &b)
}

fn einsum(r: &mut Rng) -> Case {
    let equations: [&[&str]; 3] = [
        &["bkn,bcn->bkc", "bhwc,hkc->bhwk", "bhwc,wkc->bhwk", "BGHID,BGHJD->BGHIJ", "BGHIJ,BGHJD->BGHID"],
        &["ij,jk", "ba , bc", "ij->ji", "ij->i", "ij->", "i,j->ij", "i,i->", "ij,jk,kl->il", "ijk,il,jl->kl"],
        &[
            "...ij,...jk->...ik",
            "...i,...i",
            "i...,ij->j...",
            "ii->i",
            "ii",
            "iij,jk->ik",
            "bii,bi->bi",
            ",ij->ij",
            "ij,kl->il",
        ],
    ];
    let equation = r.pick(&equations.concat());
    let left = equation.split("->").next().unwrap().replace(' ', "");
    let sizes: Vec<i64> = (0..128).map(|_| r.int(1, 3)).collect();
    let around: Vec<i64> = vec![r.int(1, 3); r.int(0, 2) as usize];
    let names = ["a", "b", "c"];
    let terms: Vec<&str> = left.split(',').collect();
    let node = Node::new("Einsum", &names[..terms.len()], "y").with("equation", equation);
    let mut case = Case::new(node);
    for (term, name) in terms.iter().zip(names) {
        let mut shape: Vec<i64> = vec![];
        // Ellipses broadcast. (With different lengths they crash the runtime, 1.31.)
        let dots: Vec<i64> = around.iter().map(|&d| if r.bool() { 1 } else { d }).collect();
        for part in term.replace("...", ".").chars() {
            match part {
                '.' => shape.extend(&dots),
                c => shape.push(sizes[c as usize]),
            }
        }
        let values = normal(r, &shape);
        case = case.input(name, &shape, values);
    }
    case
}
