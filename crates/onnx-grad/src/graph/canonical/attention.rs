//! Attention in its different layouts.

use super::{DAMAGED, DType, Done, Expansion, Node, Rewrite, contrib, standard};

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("Attention", 23, attention).refuses("float64; left_window_size and right_window_size"),
    contrib("Attention", |rw, node| {
        let product = rw.op("MatMul", &[&node.x(0)?, &node.x(1)?]);
        packed(rw, node, product, node.input(2), Places { mask: 3, past: 4, length: 6, bias: Some(5) })
    })
    .refuses("past and present in one buffer; do_rotary"),
    contrib("MultiHeadAttention", multi_head)
        .refuses("keys and values of four dimensions; past and present in one buffer; cache_indirection"),
    contrib("QAttention", quantised).refuses("do_rotary"),
];

/// Options of an attention between queries and values.
#[derive(Default)]
struct Core {
    /// Factor of the scores; `None`: 1/√(head size).
    scale: Option<f32>,
    /// Smooth bound of the scores; 0: none.
    softcap: f32,
    /// Added to the scores.
    bias: Option<String>,
    /// Whether query i attends to keys up to i only.
    causal: bool,
    /// Number of keys to the left and right of its own that each query attends to.
    windows: [Option<i64>; 2],
    /// Position of the first query among the keys, if not 0: int64, in a shape that broadcasts with the
    /// scores.
    offset: Option<String>,
    /// Number of valid keys, in a shape that broadcasts with the scores.
    keys: Option<String>,
    /// Whether a query without keys gives 0 instead of NaN.
    zeros: bool,
}

/// The scores at each stage.
struct Scores {
    plain: String,
    bounded: String,
    biased: String,
    weights: String,
}

impl Core {
    /// True where a query attends to a key, by position only; `None` if all do.
    fn visible(&self, rw: &mut Rewrite, scores: &str) -> Option<String> {
        let (queries, all_keys) = (rw.dim(scores, -2), rw.dim(scores, -1));
        let mut own = rw.counted(&queries, 1, &[-1, 1]);
        if let Some(offset) = &self.offset {
            own = rw.op("Add", &[&own, offset]);
        }
        let key = rw.counted(&all_keys, 1, &[1, -1]);
        let mut all: Option<String> = None;
        let mut and = |rw: &mut Rewrite, seen: String| {
            all = Some(match all.take() {
                Some(others) => rw.op("And", &[&others, &seen]),
                None => seen,
            });
        };
        if self.causal {
            let seen = rw.op("GreaterOrEqual", &[&own, &key]);
            and(rw, seen);
        }
        for (i, (sum, compare)) in [("Sub", "GreaterOrEqual"), ("Add", "LessOrEqual")].into_iter().enumerate()
        {
            if let Some(width) = self.windows[i] {
                let width = rw.ints(&[width]);
                let bound = rw.op(sum, &[&own, &width]);
                let seen = rw.op(compare, &[&key, &bound]);
                and(rw, seen);
            }
        }
        if let Some(keys) = &self.keys {
            let seen = rw.op("Less", &[&key, keys]);
            and(rw, seen);
        }
        all
    }
}

/// softmax(q kᵀ · scale + bias) v, all [batch, heads, length, size]. Returns the result and the scores.
fn attend(rw: &mut Rewrite, q: &str, k: &str, v: &str, core: &Core) -> (String, Scores) {
    let scale = match core.scale {
        Some(scale) => rw.scalar(scale),
        None => rw.inverse_root(q),
    };
    let q = rw.op("Mul", &[q, &scale]);
    let across = rw.transpose(k, &[0, 1, 3, 2]);
    let plain = rw.op("MatMul", &[&q, &across]);
    let mut scores = plain.clone();
    if core.softcap != 0.0 {
        let small = rw.scale(&scores, 1.0 / core.softcap);
        let bounded = rw.op("Tanh", &[&small]);
        scores = rw.scale(&bounded, core.softcap);
    }
    let bounded = scores.clone();
    let mut bias = core.bias.clone();
    if core.causal || core.windows.iter().any(Option::is_some) || core.keys.is_some() {
        let seen = core.visible(rw, &scores).map(|seen| bias_of(rw, &seen));
        bias = match (bias, seen) {
            (Some(bias), Some(seen)) => Some(rw.op("Add", &[&bias, &seen])),
            (bias, seen) => bias.or(seen),
        };
    }
    let biased = bias.as_ref().map_or_else(|| scores.clone(), |bias| rw.op("Add", &[&scores, bias]));
    let softmax = |rw: &mut Rewrite, x: &str| rw.push("Softmax", &[x], &[("axis", (-1i64).into())]);
    let weights = match bias.filter(|_| core.zeros) {
        None => softmax(rw, &biased),
        Some(bias) => {
            // Whether a query has no keys depends on the bias, which is mostly a constant.
            // The lowest float32 masks a key as −∞ does.
            let (last, lowest, zero) = (rw.ints(&[-1]), rw.scalar(f32::MIN), rw.scalar(0.0));
            let most = rw.op("ReduceMax", &[&bias, &last]);
            let blind = rw.op("LessOrEqual", &[&most, &lowest]);
            let finite = rw.op("Where", &[&blind, &zero, &bias]);
            let safe = rw.op("Add", &[&scores, &finite]);
            let weights = softmax(rw, &safe);
            rw.op("Where", &[&blind, &zero, &weights])
        }
    };
    (rw.op("MatMul", &[&weights, v]), Scores { plain, bounded, biased, weights })
}

/// 0 if the mask is true, else −∞.
fn bias_of(rw: &mut Rewrite, mask: &str) -> String {
    let (zero, never) = (rw.scalar(0.0), rw.scalar(f32::NEG_INFINITY));
    rw.op("Where", &[mask, &zero, &never])
}

/// [`split_heads`] that refuses a value that has heads already, [batch, heads, length, size]: the shape
/// doesn't fit, so ONNX Runtime refuses the graph.
fn split_heads_of_three(rw: &mut Rewrite, x: &str, heads: i64) -> String {
    let (lead, width, heads) = (rw.dims(x, 0, Some(2)), rw.dim(x, 2), rw.ints(&[heads]));
    let size = rw.op("Div", &[&width, &heads]);
    let shape = rw.concat(&[&lead, &heads, &size], 0);
    let apart = rw.op("Reshape", &[x, &shape]);
    rw.transpose(&apart, &[0, 2, 1, 3])
}

/// [batch, length, heads · size] → [batch, heads, length, size]
fn split_heads(rw: &mut Rewrite, x: &str, heads: i64) -> String {
    let apart = rw.reshape(x, &[0, 0, heads, -1]);
    rw.transpose(&apart, &[0, 2, 1, 3])
}

/// [batch, heads, length, size] → [batch, length, heads · size], as the first output of `node`.
fn join_heads(rw: &mut Rewrite, node: &Node, y: &str) -> Done {
    let together = rw.transpose(y, &[0, 2, 1, 3]);
    let shape = rw.ints(&[0, 0, -1]);
    rw.finish(node, "Reshape", &[&together, &shape], &[])
}

/// Whether a value has four dimensions, so that its heads are apart: a list of one. Known once shapes are;
/// what depends on it folds away then.
pub(super) fn has_heads(rw: &mut Rewrite, x: &str) -> String {
    let shape = rw.op("Shape", &[x]);
    let (rank, four) = (rw.op("Shape", &[&shape]), rw.ints(&[4]));
    rw.op("Equal", &[&rank, &four])
}

/// [batch, a · b · size], in any dimensions → [batch, b, a, size]; if `apart`, all values keep their order.
fn exchanged(rw: &mut Rewrite, x: &str, [a, b]: [&str; 2], apart: &str) -> String {
    let (same, one, all) = (rw.ints(&[0]), rw.ints(&[1]), rw.ints(&[-1]));
    let both = rw.op("Mul", &[a, b]);
    let (first, second) = (rw.op("Where", &[apart, &one, a]), rw.op("Where", &[apart, &both, b]));
    let shape = rw.concat(&[&same, &first, &second, &all], 0);
    let x = rw.op("Reshape", &[x, &shape]);
    rw.transpose(&x, &[0, 2, 1, 3])
}

/// [batch, length, heads · size], or [batch, heads, length, size] if `apart` → [batch, heads, length, size]
fn heads_in_front(rw: &mut Rewrite, x: &str, heads: i64, apart: &str) -> String {
    let (same, all, stated) = (rw.ints(&[0]), rw.ints(&[-1]), rw.ints(&[heads]));
    let (a, third) = (rw.dim(x, 1), rw.dim(x, 2));
    let b = rw.op("Where", &[apart, &third, &stated]);
    let turned = exchanged(rw, x, [&a, &b], apart);
    let (heads, length) = (rw.op("Where", &[apart, &a, &b]), rw.op("Where", &[apart, &b, &a]));
    let shape = rw.concat(&[&same, &heads, &length, &all], 0);
    rw.op("Reshape", &[&turned, &shape])
}

/// The inverse of [`heads_in_front`], as the first output of `node`; `like` has its dimensions but the last.
fn heads_as(rw: &mut Rewrite, node: &Node, y: &str, like: &str, apart: &str) -> Done {
    let (a, b) = (rw.dim(y, 1), rw.dim(y, 2));
    let turned = exchanged(rw, y, [&a, &b], apart);
    let (same, inner, all) = (rw.ints(&[0]), rw.dims(like, 1, Some(-1)), rw.ints(&[-1]));
    let shape = rw.concat(&[&same, &inner, &all], 0);
    rw.finish(node, "Reshape", &[&turned, &shape], &[])
}

fn heads(node: &Node, attr: &str) -> Result<i64, String> {
    match node.int(attr, 0) {
        n if n > 0 => Ok(n),
        n => Err(format!("{attr} is {n}, expected 1 or more. {DAMAGED}")),
    }
}

/// Puts the keys and values of earlier steps, inputs `past` and `past` + 1, in front of the new ones, and
/// makes all of them outputs 1 and 2. Returns the length of the past.
fn with_past(rw: &mut Rewrite, node: &Node, past: usize, new: [&mut String; 2]) -> Option<String> {
    let mut length = None;
    for (i, x) in new.into_iter().enumerate() {
        if let Some(earlier) = node.input(past + i) {
            length = Some(rw.dim(earlier, 2));
            *x = rw.concat(&[earlier, x], 2);
        }
        rw.also(node, 1 + i, x);
    }
    length
}

/// Attention of versions 23 to 28.
fn attention(rw: &mut Rewrite, node: &Node) -> Done {
    let given = node.x(0)?;
    let (mut q, mut k, mut v) = (given.clone(), node.x(1)?, node.x(2)?);
    // Inputs of three dimensions need the numbers of heads; of others they say nothing, nor does 0.
    let apart = (node.int("q_num_heads", 0) != 0).then(|| has_heads(rw, &given));
    let mut grouped = true;
    if let Some(apart) = &apart {
        let (nq, nk) = (heads(node, "q_num_heads")?, heads(node, "kv_num_heads")?);
        q = heads_in_front(rw, &q, nq, apart);
        k = heads_in_front(rw, &k, nk, apart);
        v = heads_in_front(rw, &v, nk, apart);
        grouped = nq != nk;
    }
    let mut offset = with_past(rw, node, 4, [&mut k, &mut v]);
    let keys = node.input(6).map(|keys| {
        let keys = rw.cast(keys, DType::I64);
        rw.reshape(&keys, &[-1, 1, 1, 1])
    });
    if let (None, Some(keys)) = (&offset, &keys) {
        let queries = rw.dim(&q, 2);
        offset = Some(rw.op("Sub", &[keys, &queries]));
    }
    if grouped {
        // Several queries may share a key. If none do, this folds to nothing.
        let (nq, nk) = (rw.dim(&q, 1), rw.dim(&k, 1));
        let each = rw.op("Div", &[&nq, &nk]);
        k = repeat(rw, &k, &each);
        v = repeat(rw, &v, &each);
    }
    let bias = node.input(3).map(|mask| whole_mask(rw, mask, &k));
    let window = |name: &str| Some(node.int(name, -1)).filter(|width| *width >= 0);
    let windows = [window("left_window_size"), window("right_window_size")];
    let core = Core {
        scale: node.given_float("scale"),
        softcap: node.float("softcap", 0.0),
        causal: node.int("is_causal", 0) != 0,
        windows,
        // Otherwise every query attends at least to its own key.
        zeros: bias.is_some() || keys.is_some() || offset.is_some() || windows.iter().any(Option::is_some),
        bias,
        offset,
        keys,
    };
    let (y, scores) = attend(rw, &q, &k, &v, &core);
    let shown = match node.int("qk_matmul_output_mode", 0) {
        0 => &scores.plain,
        1 => &scores.bounded,
        2 => &scores.biased,
        3 => &scores.weights,
        other => return Err(format!("qk_matmul_output_mode = {other} is not known")),
    };
    rw.also(node, 3, shown);
    match apart {
        Some(apart) => heads_as(rw, node, &y, &given, &apart),
        None => rw.finish(node, "Identity", &[&y], &[]),
    }
}

/// A mask as numbers to add to the scores. It may be shorter than the keys `k`: the other keys are masked.
fn whole_mask(rw: &mut Rewrite, mask: &str, k: &str) -> String {
    let bias = match rw.dtype(mask) {
        Some(DType::Bool) => bias_of(rw, mask),
        _ => mask.to_string(),
    };
    let (all, named, zero, last) = (rw.dim(k, 2), rw.dim(&bias, -1), rw.ints(&[0]), rw.ints(&[-1]));
    let missing = rw.op("Sub", &[&all, &named]);
    let pads = rw.concat(&[&zero, &missing], 0);
    let never = rw.scalar(f32::NEG_INFINITY);
    rw.op("Pad", &[&bias, &pads, &never, &last])
}

/// [batch, n, length, size] → [batch, n · each, length, size]: every head `each` times in a row.
fn repeat(rw: &mut Rewrite, x: &str, each: &str) -> String {
    let (batch, rest, n) = (rw.dim(x, 0), rw.dims(x, 2, None), rw.dim(x, 1));
    let axis = rw.ints(&[2]);
    let apart = rw.op("Unsqueeze", &[x, &axis]);
    let one = rw.ints(&[1]);
    let wide = rw.concat(&[&one, &one, each, &one, &one], 0);
    let spread = rw.op("Expand", &[&apart, &wide]);
    let total = rw.op("Mul", &[&n, each]);
    let shape = rw.concat(&[&batch, &total, &rest], 0);
    rw.op("Reshape", &[&spread, &shape])
}

/// com.microsoft's QAttention: the product is that of the numbers behind the integers.
fn quantised(rw: &mut Rewrite, node: &Node) -> Done {
    let x = rw.dequantised(&node.x(0)?, &node.x(3)?, node.input(6), 1)?;
    let w = rw.dequantised(&node.x(1)?, &node.x(4)?, node.input(7), -1)?;
    let product = rw.op("MatMul", &[&x, &w]);
    packed(rw, node, product, node.input(2), Places { mask: 5, past: 8, length: usize::MAX, bias: None })
}

/// Indices of the inputs of com.microsoft's Attention and QAttention that have the same meaning.
struct Places {
    mask: usize,
    past: usize,
    /// Length of the past, if it shares a buffer with the present.
    length: usize,
    bias: Option<usize>,
}

/// com.microsoft's Attention: one product computes queries, keys and values.
fn packed(rw: &mut Rewrite, node: &Node, product: String, bias: Option<&str>, places: Places) -> Done {
    node.without_inputs(&[(places.length, "past_sequence_length")])?;
    node.only("past_present_share_buffer", 0)?;
    node.only("do_rotary", 0)?;
    let n = heads(node, "num_heads")?;
    let mut all = product;
    if let Some(bias) = bias {
        all = rw.op("Add", &[&all, bias]);
    }
    let parts: Vec<String> = (0..3).map(|_| rw.name("qkv")).collect();
    let mut split = Node::new("Split", &[&all], "").with("axis", -1);
    match node.ints("qkv_hidden_sizes") {
        Some(sizes) if !sizes.is_empty() => split.inputs.push(rw.ints(sizes)),
        _ => split = split.with("num_outputs", 3),
    }
    split.outputs = parts.clone();
    rw.nodes.push(split);
    let [q, mut k, mut v] = [0, 1, 2].map(|i| split_heads(rw, &parts[i], n));
    let mut offset = None;
    if let Some(past) = node.input(places.past) {
        // Keys and values of earlier steps come first.
        let (keys, values) = (rw.entry(past, 0, 0), rw.entry(past, 1, 0));
        offset = Some(rw.dim(&keys, 2));
        (k, v) = (rw.concat(&[&keys, &k], 2), rw.concat(&[&values, &v], 2));
    }
    if let Some(present) = node.output(1) {
        let first = rw.ints(&[0]);
        let [keys, values] = [&k, &v].map(|x| rw.op("Unsqueeze", &[x, &first]));
        rw.nodes.push(Node::new("Concat", &[&keys, &values], present).with("axis", 0));
    }
    let mut core =
        contrib_core(rw, node, places.bias.and_then(|i| node.input(i)), node.input(places.mask), &k);
    core.offset = offset;
    let (y, _) = attend(rw, &q, &k, &v, &core);
    join_heads(rw, node, &y)
}

/// Options of com.microsoft's operators. `k`: all keys, [batch, heads, length, size].
fn contrib_core(rw: &mut Rewrite, node: &Node, bias: Option<&str>, mask: Option<&str>, k: &str) -> Core {
    let masked = mask.map(|mask| {
        let seen = unmasked(rw, mask, k);
        let (zero, hidden) = (rw.scalar(0.0), rw.scalar(node.float("mask_filter_value", -10_000.0)));
        rw.op("Where", &[&seen, &zero, &hidden])
    });
    let bias = match (bias, masked) {
        (Some(bias), Some(masked)) => Some(rw.op("Add", &[bias, &masked])),
        (bias, masked) => masked.or(bias.map(str::to_string)),
    };
    Core {
        scale: Some(node.float("scale", 0.0)).filter(|s| *s != 0.0),
        bias,
        causal: node.int("unidirectional", 0) != 0,
        ..Core::default()
    }
}

/// Where com.microsoft's masks of keys are true, in a shape that broadcasts with the scores. For a batch of
/// B, S queries and T keys, a mask has one of these forms: [B], the number of keys of each entry; [2·B],
/// these numbers and each entry's first key; [3·B + 2], both and the cumulative sums of a packed batch; [B,
/// T] or [B, S, T], above 0 for valid keys. The form is known once shapes are, so all are written here, and
/// all but one fold away.
fn unmasked(rw: &mut Rewrite, mask: &str, k: &str) -> String {
    let (zero, one, two) = (rw.ints(&[0]), rw.ints(&[1]), rw.ints(&[2]));
    let mask = rw.cast(mask, DType::I64);
    let shape = rw.op("Shape", &[&mask]);
    let rank = rw.op("Shape", &[&shape]);
    let counts = rw.op("Equal", &[&rank, &one]);
    let flat = rw.reshape(&mask, &[-1]);
    let size = rw.dim(&flat, 0);
    let (batch, keys) = (rw.dim(k, 0), rw.dim(k, 2));
    // From numbers of keys. Without first keys, the slice is empty and is padded with 0.
    let twice = rw.op("Mul", &[&batch, &two]);
    let both = rw.op("Equal", &[&size, &twice]);
    let until = rw.op("Where", &[&both, &twice, &batch]);
    let (ends, starts) = (rw.op("Slice", &[&flat, &zero, &batch]), rw.op("Slice", &[&flat, &batch, &until]));
    let missing = rw.op("Sub", &[&twice, &until]);
    let pads = rw.concat(&[&zero, &missing], 0);
    let starts = rw.op("Pad", &[&starts, &pads]);
    let [ends, starts] = [ends, starts].map(|x| rw.reshape(&x, &[-1, 1, 1, 1]));
    let key = rw.counted(&keys, 1, &[1, 1, 1, -1]);
    let (before, from) = (rw.op("Less", &[&key, &ends]), rw.op("GreaterOrEqual", &[&key, &starts]));
    let within = rw.op("And", &[&before, &from]);
    // From a value per key. If the mask has numbers of keys instead, this reads a mask of one row per entry,
    // without effect.
    let cells = rw.op("Mul", &[&batch, &keys]);
    let queries = rw.op("Div", &[&size, &cells]);
    let rows = rw.op("Where", &[&counts, &one, &queries]);
    let wide = rw.concat(&[&batch, &one, &rows, &keys], 0);
    let first = rw.op("Where", &[&counts, &one, &size]);
    let cells = rw.op("Slice", &[&flat, &zero, &first]);
    let shape = rw.op("Where", &[&counts, &one, &wide]);
    let cells = rw.op("Reshape", &[&cells, &shape]);
    let shown = rw.op("Greater", &[&cells, &zero]);
    let values = rw.op("Not", &[&counts]);
    let (of_counts, of_values) = (rw.op("And", &[&counts, &within]), rw.op("And", &[&values, &shown]));
    rw.op("Or", &[&of_counts, &of_values])
}

fn multi_head(rw: &mut Rewrite, node: &Node) -> Done {
    node.without_inputs(&[(8, "past_sequence_length"), (9, "cache_indirection")])?;
    let n = heads(node, "num_heads")?;
    let mut inputs = match [node.input(1), node.input(2)] {
        [Some(k), Some(v)] => [node.x(0)?, k.to_string(), v.to_string()],
        [Some(both), None] => {
            let [k, v] = interleaved(rw, both, n);
            [node.x(0)?, k, v]
        }
        [None, None] => interleaved(rw, &node.x(0)?, n),
        [None, Some(_)] => return Err("has values and no keys".into()),
    };
    if let Some(bias) = node.input(3) {
        // One bias for all three, concatenated.
        let mut from = rw.ints(&[0]);
        for x in &mut inputs {
            let width = rw.dim(x, -1);
            let to = rw.op("Add", &[&from, &width]);
            let part = rw.slice_last(bias, &from, &to);
            *x = rw.op("Add", &[x, &part]);
            from = to;
        }
    }
    let [q, mut k, mut v] = inputs.map(|x| split_heads_of_three(rw, &x, n));
    let offset = with_past(rw, node, 6, [&mut k, &mut v]);
    let mut core = contrib_core(rw, node, node.input(5), node.input(4), &k);
    core.offset = offset;
    let (y, scores) = attend(rw, &q, &k, &v, &core);
    rw.also(node, 3, &scores.biased);
    join_heads(rw, node, &y)
}

/// Separates N packed values, [batch, length, heads, N, size], into N of [batch, length, heads · size].
fn interleaved<const N: usize>(rw: &mut Rewrite, x: &str, heads: i64) -> [String; N] {
    let apart = rw.reshape(x, &[0, 0, heads, N as i64, -1]);
    std::array::from_fn(|i| {
        let one = rw.entry(&apart, i as i64, 3);
        rw.reshape(&one, &[0, 0, -1])
    })
}
