//! Reductions.

use crate::case::*;

pub fn samples() -> Vec<(&'static str, Sample)> {
    let values: [(Values, &[&str]); 5] = [
        (away_from_zero, &["ReduceL1"]),
        (positive, &["ReduceL2", "ReduceLogSum"]),
        (normal, &["ReduceLogSumExp", "ReduceMean", "ReduceSum", "ReduceSumSquare"]),
        (distinct, &["ReduceMax", "ReduceMin"]),
        (with_zeros, &["ReduceProd"]),
    ];
    values.iter().flat_map(|&(of, ops)| ops.iter().map(move |op| entry(op, reduce(op, of)))).collect()
}

fn reduce(op: &'static str, values: Values) -> impl Fn(&mut Rng) -> Case {
    move |r| {
        let rank = r.int(1, 4);
        let shape = r.shape(rank);
        let keep = r.int(0, 1);
        let axes: Vec<i64> =
            (0..rank).filter_map(|d| r.pick(&[None, None, Some(d), Some(d - rank)])).collect();
        let inputs: &[&str] = if axes.is_empty() { &["x"] } else { &["x", "axes"] };
        let case = Case::new(Node::new(op, inputs, "y").with("keepdims", keep)).input(
            "x",
            &shape,
            values(r, &shape),
        );
        if axes.is_empty() { case } else { case.ints("axes", &axes) }
    }
}
