//! Rotary position embeddings.

use super::attention::has_heads;
use super::{DType, Done, Expansion, Node, Rewrite, contrib, standard};

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("RotaryEmbedding", 23, rotary),
    contrib("RotaryEmbedding", own_rotary).refuses("is_packed_batching; scale"),
];

/// Rotates pairs of values by angles that grow with the position.
fn rotary(rw: &mut Rewrite, node: &Node) -> Done {
    let given = node.x(0)?;
    let (same, one, all) = (rw.ints(&[0]), rw.ints(&[1]), rw.ints(&[-1]));
    // [batch, heads, length, size], or [batch, length, heads, size] from three dimensions, which need the
    // number of heads.
    let stated = node.int("num_heads", 0);
    let apart = (stated != 0).then(|| has_heads(rw, &given));
    let x = match &apart {
        Some(apart) => {
            let (third, heads) = (rw.dim(&given, 2), rw.ints(&[stated]));
            let inner = rw.op("Where", &[apart, &third, &heads]);
            let shape = rw.concat(&[&same, &same, &inner, &all], 0);
            rw.op("Reshape", &[&given, &shape])
        }
        None => given.clone(),
    };
    let mut angles = |i: usize| -> Result<String, String> {
        let mut cache = node.x(i)?;
        if let Some(position) = node.input(3) {
            cache = rw.push("Gather", &[&cache, position], &[("axis", 0i64.into())]);
        }
        let Some(apart) = &apart else { return Ok(rw.op("Unsqueeze", &[&cache, &one])) };
        let length = rw.dim(&cache, 1);
        let place = [rw.op("Where", &[apart, &one, &length]), rw.op("Where", &[apart, &length, &one])];
        let shape = rw.concat(&[&same, &place[0], &place[1], &all], 0);
        Ok(rw.op("Reshape", &[&cache, &shape]))
    };
    let (cos, sin) = (angles(1)?, angles(2)?);
    turn(rw, node, [&given, &x, &cos, &sin])
}

/// com.microsoft's form: positions are the second input, [batch, length] or a single first position. The
/// input has three or four dimensions, whether or not the number of heads is given.
fn own_rotary(rw: &mut Rewrite, node: &Node) -> Done {
    node.only("is_packed_batching", 0)?;
    if node.float("scale", 1.0) != 1.0 {
        return Err(format!("scale = {} is not covered, only 1", node.float("scale", 1.0)));
    }
    let (given, positions, caches) = (node.x(0)?, node.x(1)?, [node.x(2)?, node.x(3)?]);
    let (one, all) = (rw.ints(&[1]), rw.ints(&[-1]));
    let split = has_heads(rw, &given);
    let [batch, second, third] = [0, 1, 2].map(|i| rw.dim(&given, i));
    let half = rw.dim(&caches[0], -1);
    // [batch, heads, length, size], or [batch, length, heads, size] from three dimensions.
    let length = rw.op("Where", &[&split, &third, &second]);
    let (heads, size) = match node.int("num_heads", 0) {
        n if n > 0 => (rw.ints(&[n]), all.clone()),
        _ => (all.clone(), rw.op("Add", &[&half, &half])),
    };
    let inner = rw.op("Where", &[&split, &third, &heads]);
    let last = rw.op("Where", &[&split, &all, &size]);
    let apart = rw.concat(&[&batch, &second, &inner, &last], 0);
    let x = rw.op("Reshape", &[&given, &apart]);
    // Counted from the first position, if only that is given.
    let count = rw.op("Size", &[&positions]);
    let count = rw.reshape(&count, &[1]);
    let first = rw.op("Equal", &[&count, &one]);
    let columns = rw.op("Where", &[&first, &one, &length]);
    let rows = rw.concat(&[&all, &columns], 0);
    let positions = rw.cast(&positions, DType::I64);
    let positions = rw.op("Reshape", &[&positions, &rows]);
    let (counted, counts) = (rw.counted(&length, 1, &[-1]), rw.cast(&first, DType::I64));
    let counted = rw.op("Mul", &[&counted, &counts]);
    let positions = rw.op("Add", &[&positions, &counted]);
    let place = [rw.op("Where", &[&split, &one, &length]), rw.op("Where", &[&split, &length, &one])];
    let wide = rw.concat(&[&all, &place[0], &place[1], &half], 0);
    let [cos, sin] = caches.map(|cache| {
        let rows = rw.push("Gather", &[&cache, &positions], &[("axis", 0i64.into())]);
        rw.op("Reshape", &[&rows, &wide])
    });
    turn(rw, node, [&given, &x, &cos, &sin])
}

/// Rotates the pairs of x; the result has the shape of the node's input.
fn turn(rw: &mut Rewrite, node: &Node, [given, x, cos, sin]: [&str; 4]) -> Done {
    let (zero, one, two) = (rw.ints(&[0]), rw.ints(&[1]), rw.ints(&[2]));
    let half = rw.dim(cos, -1);
    let turned = rw.op("Add", &[&half, &half]);
    let interleaved = node.int("interleaved", 0) != 0;
    let (first, second) = if interleaved {
        let axis = rw.ints(&[-1]);
        (rw.op("Slice", &[x, &zero, &turned, &axis, &two]), rw.op("Slice", &[x, &one, &turned, &axis, &two]))
    } else {
        (rw.slice_last(x, &zero, &half), rw.slice_last(x, &half, &turned))
    };
    let mut product = |a: &str, b: &str| rw.op("Mul", &[a, b]);
    let (fc, ss, fs, sc) =
        (product(&first, cos), product(&second, sin), product(&first, sin), product(&second, cos));
    let real = rw.op("Sub", &[&fc, &ss]);
    let imaginary = rw.op("Add", &[&fs, &sc]);
    let mut y = if interleaved {
        let axis = rw.ints(&[-1]);
        let pair = [rw.op("Unsqueeze", &[&real, &axis]), rw.op("Unsqueeze", &[&imaginary, &axis])];
        let pairs = rw.concat(&[&pair[0], &pair[1]], -1);
        rw.reshape(&pairs, &[0, 0, 0, -1])
    } else {
        rw.concat(&[&real, &imaginary], -1)
    };
    if node.int("rotary_embedding_dim", 0) != 0 {
        let end = rw.ints(&[i64::MAX]);
        let rest = rw.slice_last(x, &turned, &end);
        y = rw.concat(&[&y, &rest], -1);
    }
    let shape = rw.op("Shape", &[given]);
    rw.finish(node, "Reshape", &[&y, &shape], &[])
}
