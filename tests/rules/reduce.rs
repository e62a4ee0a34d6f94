//! Reductions.

use crate::case::*;

/// The sample cases.
pub fn samples() -> Vec<(&'static str, Sample)> {
    vec![
        entry("ReduceL1", reduce("ReduceL1", away_from_zero)),
        entry("ReduceL2", reduce("ReduceL2", positive)),
        entry("ReduceLogSum", reduce("ReduceLogSum", positive)),
        entry("ReduceLogSumExp", reduce("ReduceLogSumExp", normal)),
        entry("ReduceMax", reduce("ReduceMax", distinct)),
        entry("ReduceMean", reduce("ReduceMean", normal)),
        entry("ReduceMin", reduce("ReduceMin", distinct)),
        entry("ReduceProd", reduce("ReduceProd", with_zeros)),
        entry("ReduceSum", reduce("ReduceSum", normal)),
        entry("ReduceSumSquare", reduce("ReduceSumSquare", normal)),
    ]
}

fn reduce(op: &'static str, values: fn(&mut Rng, &[i64]) -> Vec<f32>) -> impl Fn(&mut Rng) -> Case {
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
