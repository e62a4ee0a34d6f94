//! Operators that pick values by position: slices, gathers, pads.
//!
//! Positions are constants here, so the transpose of picking is picking as well: where the source of every value
//! is known, its gradient is gathered, which is faster than scattering and has a fixed order of summation.

use super::{Rule, exact, shape::axis};
use crate::grad::Cx;

type Done = Result<(), String>;

pub(super) const RULES: &[Rule] = &[exact("Gather", gather), exact("Pad", pad), exact("Slice", slice)];

/// Above this many picks of one position, scattering beats adding up gathers.
const MOST_GATHERS: usize = 4;

/// The transpose of `y = x[.., picks, ..]` along `at` (size `size` in x): sums gy over each position's picks.
fn unpick(cx: &mut Cx, gy: &str, at: usize, picks: &[i64], size: i64, y_shape: &[i64]) -> String {
    let mut sources: Vec<Vec<i64>> = vec![vec![]; size as usize];
    for (k, &p) in picks.iter().enumerate() {
        sources[p as usize].push(k as i64);
    }
    let most = sources.iter().map(Vec::len).max().unwrap_or(0);
    if most > MOST_GATHERS {
        return scatter(cx, gy, at, picks, size, y_shape);
    }
    // One more row, of zeros, for the positions that nobody picked (or not that often).
    let mut pad_after = vec![0; y_shape.len()];
    pad_after[at] = 1;
    let padded = cx.pad(gy, &vec![0; y_shape.len()], &pad_after);
    let mut sum: Option<String> = None;
    for round in 0..most.max(1) {
        let full = sources.iter().all(|s| s.len() > round);
        let index: Vec<i64> =
            sources.iter().map(|s| s.get(round).copied().unwrap_or(picks.len() as i64)).collect();
        let index = cx.ints(&index);
        let from = if full { gy } else { &padded };
        let part = cx.op_with("Gather", &[from, &index], &[("axis", (at as i64).into())]);
        sum = Some(match sum {
            Some(s) => cx.add(&s, &part),
            None => part,
        });
    }
    sum.unwrap_or(padded)
}

/// [`unpick`] by an adding scatter along the first axis.
fn scatter(cx: &mut Cx, gy: &str, at: usize, picks: &[i64], size: i64, y_shape: &[i64]) -> String {
    let rank = y_shape.len();
    let mut perm: Vec<i64> = (0..rank as i64).collect();
    perm.remove(at);
    perm.insert(0, at as i64);
    let mut shape: Vec<i64> = perm.iter().map(|&p| y_shape[p as usize]).collect();
    shape[0] = size;
    let zeros = cx.zeros(&shape);
    let index = cx.int_tensor(&[picks.len() as i64, 1], picks);
    let front = cx.transpose(gy, &perm);
    let summed = cx.op_with("ScatterND", &[&zeros, &index, &front], &[("reduction", "add".into())]);
    let mut back = vec![0; rank];
    for (to, &from) in perm.iter().enumerate() {
        back[from as usize] = to as i64;
    }
    cx.transpose(&summed, &back)
}

fn gather(cx: &mut Cx) -> Done {
    let x = cx.x_shape(0);
    let at = axis(cx.node.int("axis", 0), x.len());
    let size = x[at];
    let picks: Vec<i64> = cx
        .const_ints(1)?
        .ok_or("has no indices")?
        .into_iter()
        .map(|p| if p < 0 { p + size } else { p })
        .collect();
    if picks.iter().any(|&p| p < 0 || p >= size) {
        return Err(format!("has an index outside of its axis of size {size}"));
    }
    // Whatever the rank of the indices, one axis of picks.
    let flat: Vec<i64> = [&x[..at], &[picks.len() as i64], &x[at + 1..]].concat();
    let gy = cx.gy();
    let gy = if flat == cx.y_shape(0) { gy } else { cx.reshape(&gy, &flat) };
    let g = if let [only] = picks[..] {
        let (mut before, mut after) = (vec![0; x.len()], vec![0; x.len()]);
        (before[at], after[at]) = (only, size - 1 - only);
        cx.pad(&gy, &before, &after)
    } else {
        unpick(cx, &gy, at, &picks, size, &flat)
    };
    cx.give(0, g);
    Ok(())
}

fn slice(cx: &mut Cx) -> Done {
    let x = cx.x_shape(0);
    let starts = cx.const_ints(1)?.ok_or("has no starts")?;
    let axes = cx.const_ints(3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = cx.const_ints(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    let (mut before, mut after) = (vec![0; x.len()], vec![0; x.len()]);
    let mut shape = cx.y_shape(0).to_vec();
    let mut g = cx.gy();
    for (k, &a) in axes.iter().enumerate() {
        let at = axis(a, x.len());
        let (size, step) = (x[at], steps[k]);
        let from_end = |v: i64| if v < 0 { v.saturating_add(size) } else { v };
        // Clamped as the specification of Slice says; a negative step may end before position 0.
        let start = if step > 0 {
            from_end(starts[k]).clamp(0, size)
        } else {
            from_end(starts[k]).clamp(0, size - 1)
        };
        if step == 1 {
            before[at] = start;
            after[at] = size - start - shape[at];
            continue;
        }
        let picks: Vec<i64> = (0..shape[at]).map(|i| start + i * step).collect();
        g = unpick(cx, &g, at, &picks, size, &shape);
        shape[at] = size;
    }
    let g = cx.pad(&g, &before, &after);
    cx.give(0, g);
    Ok(())
}

fn pad(cx: &mut Cx) -> Done {
    let x = cx.x_shape(0);
    let rank = x.len();
    let pads = cx.const_ints(1)?.ok_or("has no pads")?;
    let axes = cx.const_ints(3)?.unwrap_or_else(|| (0..rank as i64).collect());
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    for (k, &a) in axes.iter().enumerate() {
        before[axis(a, rank)] = pads[k];
        after[axis(a, rank)] = pads[axes.len() + k];
    }
    let mode = cx.node.str("mode", "constant");
    let mut g = cx.gy();
    if mode == "constant" {
        let minus = |v: &[i64]| v.iter().map(|p| -p).collect::<Vec<i64>>();
        let g = cx.pad(&g, &minus(&before), &minus(&after));
        cx.give(0, g);
        return Ok(());
    }
    // The other modes pick border values, axis by axis.
    let mut shape = cx.y_shape(0).to_vec();
    for at in 0..rank {
        if before[at] == 0 && after[at] == 0 {
            continue;
        }
        let size = x[at];
        let picks: Result<Vec<i64>, String> = (-before[at]..size + after[at])
            .map(|p| match mode {
                "edge" => Ok(p.clamp(0, size - 1)),
                "wrap" => Ok(p.rem_euclid(size)),
                "reflect" if size == 1 => Ok(0),
                "reflect" => {
                    let p = p.rem_euclid(2 * size - 2);
                    Ok(if p < size { p } else { 2 * size - 2 - p })
                }
                other => Err(format!("mode={other} is not known")),
            })
            .collect();
        g = unpick(cx, &g, at, &picks?, size, &shape);
        shape[at] = size;
    }
    cx.give(0, g);
    Ok(())
}
