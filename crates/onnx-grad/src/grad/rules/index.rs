//! Operators that pick values by position: slices, gathers, scatters, pads, top k.
//!
//! Positions have no gradient. If they are constant, the transpose of picking is picking too: the source of
//! every value is known, so its gradient is gathered, which is faster than scattering and has a fixed order
//! of summation.

use super::{
    Done, Rule, exact,
    shape::{axis, axis_of},
};
use crate::grad::Cx;
use crate::{Attr, DType, Tensor};
use std::collections::HashSet;

pub(super) const RULES: &[Rule] = &[
    exact("Compress", compress).but("a condition computed in the graph"),
    exact("CumSum", same_sum_backwards),
    exact("Gather", gather),
    exact("GatherElements", gather_elements),
    exact("GatherND", gather_nd),
    exact("OneHot", one_hot),
    exact("Pad", pad).but("pads or axes computed in the graph; mode=wrap that crops"),
    exact("ReverseSequence", reverse_sequence),
    exact("ScatterElements", |cx| {
        scattered(cx, "GatherElements", &[("axis", (axis_of(cx, 0) as i64).into())])
    }),
    exact("ScatterND", |cx| scattered(cx, "GatherND", &[])),
    exact("Slice", slice).but("bounds, axes or steps computed in the graph"),
    exact("TopK", top_k),
    exact("Trilu", trilu),
];

/// Maximum number of picks of one position at which a sum of gathers is faster than a scatter.
const MOST_GATHERS: usize = 4;
/// Maximum number of positions for gathers: beyond it, lists of picks would take several times the memory of
/// the value.
const MOST_POSITIONS: i64 = 1 << 24;

/// The transpose of `y = x[.., picks, ..]` along axis `at` (of `size` in x): sums gy over each position's
/// picks.
fn unpick(cx: &Cx, gy: &str, at: usize, picks: &[i64], size: i64, y_shape: &[i64]) -> String {
    let scattered = || {
        let index = cx.constant(Tensor::i64(&[picks.len() as i64, 1], picks));
        scatter(cx, gy, at, &index, size, y_shape)
    };
    if size > MOST_POSITIONS {
        return scattered();
    }
    let mut sources: Vec<Vec<i64>> = vec![vec![]; size as usize];
    for (k, &p) in picks.iter().enumerate() {
        sources[p as usize].push(k as i64);
    }
    let most = sources.iter().map(Vec::len).max().unwrap_or(0);
    if most > MOST_GATHERS {
        return scattered();
    }
    // A further row, of zeros, for positions that were picked less often, or never.
    let mut pad_after = vec![0; y_shape.len()];
    pad_after[at] = 1;
    let padded = cx.pad(gy, &vec![0; y_shape.len()], &pad_after);
    let mut sum: Option<String> = None;
    for round in 0..most.max(1) {
        let full = sources.iter().all(|s| s.len() > round);
        let index: Vec<i64> =
            sources.iter().map(|s| s.get(round).copied().unwrap_or(picks.len() as i64)).collect();
        let from = if full { gy } else { &padded };
        let part = cx.op_with("Gather", &[from, &cx.ints(&index)], &[("axis", (at as i64).into())]);
        sum = Some(match sum {
            Some(s) => cx.add(&s, &part),
            None => part,
        });
    }
    sum.unwrap_or(padded)
}

/// [`unpick`] by an adding scatter along the first axis; `index` has the picks as a column.
fn scatter(cx: &Cx, gy: &str, at: usize, index: &str, size: i64, y_shape: &[i64]) -> String {
    let mut perm: Vec<i64> = (0..y_shape.len() as i64).collect();
    perm[..=at].rotate_right(1);
    let mut shape: Vec<i64> = perm.iter().map(|&p| y_shape[p as usize]).collect();
    shape[0] = size;
    let summed = cx.scatter_add("ScatterND", &shape, index, &cx.transpose(gy, &perm), &[]);
    cx.untranspose(&summed, &perm)
}

fn gather(cx: &Cx) -> Done {
    let x = cx.x_shape(0);
    let axis = axis_of(cx, 0);
    let size = x[axis];
    if cx.const_tensor(1).is_none() {
        let count = cx.x_shape(1).iter().product();
        let index = cx.cast(&cx.x(1), cx.x_type(1), DType::I64);
        let index = cx.reshape(&index, &[count, 1]);
        let flat = [&x[..axis], &[count], &x[axis + 1..]].concat();
        let gy = cx.reshape(&cx.gy(), &flat);
        return cx.give_first(scatter(cx, &gy, axis, &index, size, &flat));
    }
    let picks = cx.const_ints(1)?.ok_or("has no indices")?;
    let picks: Vec<i64> = picks.into_iter().map(|p| if p < 0 { p + size } else { p }).collect();
    if picks.iter().any(|&p| p < 0 || p >= size) {
        return Err(format!("has an index outside of its axis of size {size}"));
    }
    // One axis of picks, whatever the rank of the indices.
    let flat: Vec<i64> = [&x[..axis], &[picks.len() as i64], &x[axis + 1..]].concat();
    let gy = cx.reshape_from(&cx.gy(), cx.y_shape(), &flat);
    let g = if let [only] = picks[..] {
        cx.place(&gy, x.len(), axis, [only, 1, size])
    } else {
        unpick(cx, &gy, axis, &picks, size, &flat)
    };
    cx.give_first(g)
}

fn slice(cx: &Cx) -> Done {
    let x = cx.x_shape(0);
    let starts = cx.const_ints(1)?.ok_or("has no starts")?;
    let axes = cx.const_ints(3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = cx.const_ints(4)?.unwrap_or_else(|| vec![1; starts.len()]);
    let (mut before, mut after) = (vec![0; x.len()], vec![0; x.len()]);
    let mut shape = cx.y_shape().to_vec();
    let mut g = cx.gy();
    for (k, &a) in axes.iter().enumerate() {
        let at = axis(a, x.len());
        let (size, step) = (x[at], steps[k]);
        let from_end = |v: i64| if v < 0 { v.saturating_add(size) } else { v };
        // Clamped as in the specification of Slice; a negative step may end before position 0.
        let start = from_end(starts[k]).clamp(0, if step > 0 { size } else { size - 1 });
        if step == 1 {
            before[at] = start;
            after[at] = size - start - shape[at];
            continue;
        }
        let picks: Vec<i64> = (0..shape[at]).map(|i| start + i * step).collect();
        g = unpick(cx, &g, at, &picks, size, &shape);
        shape[at] = size;
    }
    let cut: Vec<usize> = (0..x.len()).filter(|&at| before[at] + after[at] > 0).collect();
    cx.give_first(match cut[..] {
        [at] => cx.place(&g, x.len(), at, [before[at], shape[at], x[at]]),
        _ => cx.pad(&g, &before, &after),
    })
}

fn pad(cx: &Cx) -> Done {
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
        let inner = cx.pad(&g, &minus(&before), &minus(&after));
        if cx.wants(2) {
            // The gradient of all values that are padding.
            let all: Vec<i64> = (0..rank as i64).collect();
            let rest = cx.sub(&cx.reduce_sum(&g, &all, false), &cx.reduce_sum(&inner, &all, false));
            cx.give(2, cx.reshape(&rest, cx.x_shape(2)));
        }
        return cx.give_first(inner);
    }
    // The other modes copy border values, axis by axis.
    let mut shape = cx.y_shape().to_vec();
    for at in 0..rank {
        if before[at] == 0 && after[at] == 0 {
            continue;
        }
        let size = x[at];
        if mode == "wrap" && before[at].min(after[at]) < 0 {
            return Err("mode=wrap that crops is not covered".into());
        }
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
    cx.give_first(g)
}

fn gather_elements(cx: &Cx) -> Done {
    let axis = [("axis", (axis_of(cx, 0) as i64).into())];
    cx.give_first(cx.scatter_add("ScatterElements", cx.x_shape(0), &cx.x(1), &cx.gy(), &axis))
}

fn gather_nd(cx: &Cx) -> Done {
    let batch = cx.node.int("batch_dims", 0) as usize;
    let index_shape = cx.x_shape(1);
    let index = if batch == 0 {
        cx.x(1)
    } else {
        // ScatterND has no batch_dims: the coordinates of the batch precede the others.
        let lead = &index_shape[..index_shape.len() - 1];
        let count: i64 = lead.iter().product();
        let within: i64 = lead[batch..].iter().product();
        let mut coordinates = Vec::new();
        for i in 0..count {
            let mut rest = i / within;
            let mut row = vec![0; batch];
            for d in (0..batch).rev() {
                row[d] = rest % lead[d];
                rest /= lead[d];
            }
            coordinates.extend(row);
        }
        let coordinates = cx.constant(Tensor::i64(&[lead, &[batch as i64]].concat(), &coordinates));
        cx.op_with("Concat", &[&coordinates, &cx.x(1)], &[("axis", Attr::Int(-1))])
    };
    cx.give_first(cx.scatter_add("ScatterND", cx.x_shape(0), &index, &cx.gy(), &[]))
}

/// y = data with updates written at the indices, or combined with the data there. Other positions keep data's
/// gradient; each update has the gradient of its position.
fn scattered(cx: &Cx, gather: &str, attrs: &[(&str, Attr)]) -> Done {
    let (index, updates, gy) = (cx.x(1), cx.x(2), cx.gy());
    let (op, shape) = (cx.node.op.as_str(), cx.x_shape(0));
    let gathered = |v: &str| cx.op_with(gather, &[v, &index], attrs);
    match cx.node.str("reduction", "none") {
        "none" => {
            let nothing = cx.zeros(cx.x_shape(2));
            cx.give(0, cx.op_with(op, &[&gy, &index, &nothing], attrs));
            if cx.wants(2) {
                let picked = gathered(&gy);
                cx.give(2, if once(cx) { picked } else { cx.mul(&picked, &last(cx, op, gather, attrs)) });
            }
        }
        "add" => {
            if cx.wants(2) {
                cx.give(2, gathered(&gy));
            }
            cx.give(0, gy);
        }
        "mul" => {
            if cx.wants(2) {
                cx.give(2, cx.mul(&gathered(&gy), &other_factors(cx, op, gather, attrs)));
            }
            let ones = cx.filled(1.0, shape);
            let attrs = [attrs, &[("reduction", "mul".into())]].concat();
            cx.give(0, cx.mul(&gy, &cx.op_with(op, &[&ones, &index, &updates], &attrs)));
        }
        "max" | "min" => {
            // Divided equally among all that attain the extreme, as in PyTorch's scatter_reduce.
            let y = cx.y(0);
            let kept = cx.equal(&cx.x(0), &y);
            let chosen = cx.equal(&updates, &gathered(&y));
            let count = cx.scatter_add(op, shape, &index, &chosen, attrs);
            let share = cx.div(&gy, &cx.add(&count, &kept));
            cx.give(0, cx.mul(&share, &kept));
            if cx.wants(2) {
                cx.give(2, cx.mul(&gathered(&share), &chosen));
            }
        }
        other => return Err(format!("reduction={other} is not known")),
    }
    Ok(())
}

/// Whether the positions of a scatter are constant, and none occurs twice.
fn once(cx: &Cx) -> bool {
    let Some(index) = cx.const_tensor(1).and_then(Tensor::to_i64s) else { return false };
    let (x, of) = (cx.x_shape(0), cx.x_shape(1));
    let mut seen = HashSet::new();
    if cx.node.op == "ScatterND" {
        let depth = of[of.len() - 1] as usize;
        let from_start = |(&i, &size): (&i64, &i64)| if i < 0 { i + size } else { i };
        let mut rows = index.chunks(depth.max(1));
        return rows.all(|row| seen.insert(row.iter().zip(x).map(from_start).collect::<Vec<_>>()));
    }
    let at = axis_of(cx, 0);
    let inner: i64 = of[at + 1..].iter().product();
    // The place of a value in the updates, without its axis, and its position along the axis.
    (0..).zip(index).all(|(k, i)| {
        let i = if i < 0 { i + x[at] } else { i };
        seen.insert(vec![k / (inner * of[at]), k % inner, i])
    })
}

/// For each update of a scatter: 1 if it is the last one at its position, else 0. ONNX leaves open which of
/// several updates remains; in ONNX Runtime it is the last. torch.onnx.export writes such scatters for
/// index_add, and for index_put with repeated positions.
fn last(cx: &Cx, op: &str, gather: &str, attrs: &[(&str, Attr)]) -> String {
    let (x, of, updates) = (cx.x_shape(0), cx.x_shape(1), cx.x_shape(2));
    let numbers = |shape: &[i64], axis: i64| {
        let ones = cx.expand(&cx.constant(Tensor::i64(&[], &[1])), shape);
        cx.op("CumSum", &[&ones, &cx.constant(Tensor::i64(&[], &[axis]))])
    };
    let nothing = |shape: &[i64]| cx.expand(&cx.constant(Tensor::i64(&[], &[0])), shape);
    if op == "ScatterElements" {
        let own = numbers(updates, axis_of(cx, 0) as i64);
        let written = cx.op_with(op, &[&nothing(x), &cx.x(1), &own], attrs);
        return cx.equal(&cx.op_with(gather, &[&written, &cx.x(1)], attrs), &own);
    }
    let depth = of[of.len() - 1];
    let rows: i64 = of[..of.len() - 1].iter().product();
    let (index, own) = (cx.reshape(&cx.x(1), &[rows, depth]), numbers(&[rows], 0));
    let written = cx.op(op, &[&nothing(&x[..depth as usize]), &index, &own]);
    let kept = cx.equal(&cx.op(gather, &[&written, &index]), &own);
    let mut slices = of[..of.len() - 1].to_vec();
    slices.resize(updates.len(), 1);
    cx.reshape(&kept, &slices)
}

/// For each update of a scatter that multiplies: the product of all other factors at its position.
fn other_factors(cx: &Cx, op: &str, gather: &str, attrs: &[(&str, Attr)]) -> String {
    let (x, index, updates) = (cx.x(0), cx.x(1), cx.x(2));
    let (zero, one) = (cx.scalar(0.0), cx.scalar(1.0));
    // The product of all nonzero factors, and the number of zeros.
    let without_zeros = |v: &str| cx.op("Where", &[&cx.op("Equal", &[v, &zero]), &one, v]);
    let multiply = [attrs, &[("reduction", "mul".into())]].concat();
    let filled = without_zeros(&updates);
    let product = cx.op_with(op, &[&without_zeros(&x), &index, &filled], &multiply);
    let own = cx.equal(&updates, &zero);
    let count = cx.add(&cx.equal(&x, &zero), &cx.scatter_add(op, cx.x_shape(0), &index, &own, attrs));
    let gathered = |v: &str| cx.op_with(gather, &[v, &index], attrs);
    let alone = cx.op("Equal", &[&gathered(&count), &own]);
    cx.only_where(&alone, &cx.div(&gathered(&product), &filled))
}

/// The values at which the condition is true, along an axis or of the flattened input.
fn compress(cx: &Cx) -> Done {
    let x = cx.x_shape(0);
    let condition = cx.const_ints(1)?.ok_or("has no condition")?;
    // ONNX Runtime ignores what a condition has beyond the end of its axis.
    let picks = |size: i64| -> Vec<i64> {
        (0..size.min(condition.len() as i64)).filter(|&i| condition[i as usize] != 0).collect()
    };
    if !cx.node.attrs.contains_key("axis") {
        let size = x.iter().product();
        let picks = picks(size);
        let g = unpick(cx, &cx.gy(), 0, &picks, size, &[picks.len() as i64]);
        return cx.give_first(cx.reshape(&g, x));
    }
    let at = axis_of(cx, 0);
    cx.give_first(unpick(cx, &cx.gy(), at, &picks(x[at]), x[at], cx.y_shape()))
}

/// Values are two numbers, off and on: each has the gradients of the places that have it.
fn one_hot(cx: &Cx) -> Done {
    let gy = cx.gy();
    if !cx.wants(2) {
        return Ok(());
    }
    let marks = cx.floats(&[2], &[0.0, 1.0]);
    let axis = [("axis", cx.node.int("axis", -1).into())];
    let on = cx.op_with("OneHot", &[&cx.x(0), &cx.x(1), &marks], &axis);
    let all: Vec<i64> = (0..cx.y_shape().len() as i64).collect();
    let on = cx.reduce_sum(&cx.mul(&gy, &on), &all, false);
    let off = cx.sub(&cx.reduce_sum(&gy, &all, false), &on);
    let parts = [cx.reshape(&off, &[1]), cx.reshape(&on, &[1])];
    cx.give(2, cx.op_with("Concat", &[&parts[0], &parts[1]], &[("axis", 0i64.into())]));
    Ok(())
}

/// Reversing twice is the identity.
fn reverse_sequence(cx: &Cx) -> Done {
    let attrs = [
        ("batch_axis", cx.node.int("batch_axis", 1).into()),
        ("time_axis", cx.node.int("time_axis", 0).into()),
    ];
    cx.give_first(cx.op_with("ReverseSequence", &[&cx.gy(), &cx.x(1)], &attrs))
}

/// The positions of the values are the operator's second output.
fn top_k(cx: &Cx) -> Done {
    let zeros = cx.zeros(cx.x_shape(0));
    let axis = [("axis", (axis_of(cx, -1) as i64).into())];
    cx.give_first(cx.op_with("ScatterElements", &[&zeros, &cx.y(1), &cx.gy()], &axis))
}

/// A value is in every later sum, so its gradient is the cumulative sum from the other end.
fn same_sum_backwards(cx: &Cx) -> Done {
    let (exclusive, reverse) = (cx.node.int("exclusive", 0), cx.node.int("reverse", 0));
    let attrs = [("exclusive", exclusive.into()), ("reverse", (1 - reverse).into())];
    cx.give_first(cx.op_with("CumSum", &[&cx.gy(), &cx.x(1)], &attrs))
}

fn trilu(cx: &Cx) -> Done {
    let gy = cx.gy();
    let inputs: Vec<&str> = [gy.as_str()].into_iter().chain(cx.node.input(1)).collect();
    cx.give_first(cx.op_with("Trilu", &inputs, &[("upper", cx.node.int("upper", 1).into())]))
}
