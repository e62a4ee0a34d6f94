//! Attention and rotary embeddings.

use super::case::*;

pub const CASES: &[Row] = &[
    ("", "Attention", attention),
    ("", "RotaryEmbedding", rotary),
    (MS, "Attention", packed_attention),
    (MS, "LinearAttention", linear_attention),
    (MS, "MultiHeadAttention", multi_head),
    (MS, "RotaryEmbedding", own_rotary),
];

fn attention(r: &mut Rng) -> Case {
    let (kv, each) = (r.int(1, 3), r.pick(&[1, 1, 2, 3]));
    let (b, s, size) = (r.int(1, 2), r.int(1, 6), r.int(1, 5));
    let (t, v_size) = (if r.bool() { s } else { r.int(1, 6) }, if r.bool() { size } else { r.int(1, 5) });
    let n = kv * each;
    let mask = r.int(0, 3);
    // Keys and values of earlier steps.
    let past = if r.bool() { r.int(1, 3) } else { 0 };
    let mut inputs = vec!["q", "k", "v", if mask > 0 { "mask" } else { "" }];
    if past > 0 {
        inputs.extend(["pk", "pv"]);
    }
    let outputs: &[&str] = match past {
        0 if r.bool() => &["y"],
        0 => &["y", "", "", "qk"],
        _ => &["y", "k2", "v2"],
    };
    let mut c = case("", "Attention", &inputs, outputs);
    c = if r.bool() {
        c.input(r, "q", &[b, s, n * size])
            .input(r, "k", &[b, t, kv * size])
            .input(r, "v", &[b, t, kv * v_size])
            .with("q_num_heads", n)
            .with("kv_num_heads", kv)
    } else {
        // Numbers of heads say nothing of four dimensions.
        let stated = r.pick(&[None, Some([0, 0]), Some([n, kv])]);
        let c = c.input(r, "q", &[b, n, s, size]).input(r, "k", &[b, kv, t, size]);
        let c = c.input(r, "v", &[b, kv, t, v_size]);
        match stated {
            Some([q, kv]) => c.with("q_num_heads", q).with("kv_num_heads", kv),
            None => c,
        }
    };
    if past > 0 {
        c = c.input(r, "pk", &[b, kv, past, size]).input(r, "pv", &[b, kv, past, v_size]);
    }
    let t = past + t;
    let shape = [b, n, s, t];
    let cut = r.int(0, 2) as usize;
    let mut shape: Vec<i64> = shape[cut..].to_vec();
    if shape.len() == 4 && r.bool() {
        shape[1] = 1;
    }
    let count = shape.iter().product::<i64>();
    c = match mask {
        1 => {
            // Every query sees at least its first key.
            let seen: Vec<bool> = (0..count).map(|i| i % t == 0 || r.bool()).collect();
            c.constant("mask", bools(&shape, &seen))
        }
        2 => c.input(r, "mask", &shape),
        3 => c.weights(r, "mask", &shape),
        _ => c,
    };
    c = c.when(r.bool(), |c| c.with("is_causal", 1));
    c = c.when(r.bool(), |c| c.with("scale", 0.1 + r.unit()));
    c.when(r.bool(), |c| c.with("softcap", 0.5 + 3.0 * r.unit()))
}

fn rotary(r: &mut Rng) -> Case {
    let (b, n, s, half) = (r.int(1, 2), r.int(1, 3), r.int(1, 4), r.int(1, 3));
    let positions = r.bool();
    let inputs: &[&str] = if positions { &["x", "cos", "sin", "at"] } else { &["x", "cos", "sin"] };
    let mut c = case("", "RotaryEmbedding", inputs, &["y"]);
    let flat = r.bool();
    let stated = if flat { Some(n) } else { r.pick(&[None, Some(0), Some(n), Some(n + 1)]) };
    // ONNX Runtime's kernel takes partial rotations only with the number of heads.
    let partial = stated == Some(n) && r.bool();
    let size = if partial { 2 * half + 2 } else { 2 * half };
    let shape = if flat { vec![b, s, n * size] } else { vec![b, n, s, size] };
    c = c.input(r, "x", &shape);
    if let Some(stated) = stated {
        c = c.with("num_heads", stated);
    }
    c = c.when(partial, |c| c.with("rotary_embedding_dim", 2 * half));
    c = c.when(r.bool(), |c| c.with("interleaved", 1));
    if positions {
        let at: Vec<i64> = (0..b * s).map(|_| r.int(0, 7)).collect();
        c = c.constant("at", Tensor::i64(&[b, s], &at));
        c.weights(r, "cos", &[8, half]).weights(r, "sin", &[8, half])
    } else {
        c.weights(r, "cos", &[b, s, half]).weights(r, "sin", &[b, s, half])
    }
}

/// int32 mask of keys "m" of `b` items, `s` queries and `t` keys, in one of its forms: a number of keys, that
/// and the first key, a value for each key, or for each query and key. Each query sees a key.
/// MultiHeadAttention has, instead of first keys, sums of lengths behind the numbers of keys, which the
/// kernel doesn't read.
fn key_mask(r: &mut Rng, c: Case, b: i64, s: i64, t: i64) -> Case {
    let ends: Vec<i32> = (0..b).map(|_| r.int(1, t) as i32).collect();
    let starts: Vec<i32> = ends.iter().map(|end| r.int(0, i64::from(*end) - 1) as i32).collect();
    let mut rows = |count: i64| -> Vec<i32> {
        let row = |r: &mut Rng| {
            let shown = r.int(0, t - 1);
            (0..t).map(|at| i32::from(at == shown || r.bool())).collect::<Vec<_>>()
        };
        (0..count).flat_map(|_| row(r)).collect()
    };
    let (keys, pairs) = (rows(b), rows(b * s));
    let (shape, values) = match r.int(0, 3) {
        0 => (vec![b], ends),
        1 if c.graph.nodes[0].op == "Attention" => (vec![2 * b], [ends, starts].concat()),
        1 => (vec![3 * b + 2], [ends, vec![0; 2 * b as usize + 2]].concat()),
        2 => (vec![b, t], keys),
        _ => (vec![b, s, t], pairs),
    };
    let mask = Tensor { shape, ..int32(&values) };
    c.constant("m", mask).when(r.bool(), |c| c.with("mask_filter_value", -5_000.0f32))
}

fn packed_attention(r: &mut Rng) -> Case {
    let (b, s, width, n, size) = (r.int(1, 2), r.int(1, 5), r.int(1, 6), r.int(1, 3), r.int(1, 4));
    // Keys and values of earlier steps, of which the kernel requires one size.
    let past = if r.bool() { r.int(1, 3) } else { 0 };
    let own_v = past == 0 && r.bool();
    let v = if own_v { r.int(1, 4) } else { size };
    // The kernel takes no bias beside a past.
    let (biased, masked) = (past == 0 && r.bool(), r.bool());
    let (mask, before) = (if masked { "m" } else { "" }, if past > 0 { "past" } else { "" });
    let inputs = ["x", "w", "b", mask, before, if biased { "bias" } else { "" }];
    let total = n * (2 * size + v);
    let outputs: &[&str] = if past > 0 { &["y", "present"] } else { &["y"] };
    let mut c = case(MS, "Attention", &inputs, outputs)
        .input(r, "x", &[b, s, width])
        .weights(r, "w", &[width, total])
        .weights(r, "b", &[total])
        .with("num_heads", n);
    c = c.when(own_v, |c| c.with("qkv_hidden_sizes", vec![n * size, n * size, n * v]));
    c = c.when(past > 0, |c| c.input(r, "past", &[2, b, n, past, size]));
    c = if masked { key_mask(r, c, b, s, past + s) } else { c };
    if biased {
        let shape = [if r.bool() { b } else { 1 }, if r.bool() { n } else { 1 }, s, past + s];
        c = c.input(r, "bias", &shape);
    }
    // If a mask leaves a query none of the keys up to its own, kernels differ.
    c = c.when(!masked && r.bool(), |c| c.with("unidirectional", 1));
    c.when(r.bool(), |c| c.with("scale", 0.1 + r.unit()))
}

fn multi_head(r: &mut Rng) -> Case {
    let (b, s, t, n, size, v) =
        (r.int(1, 2), r.int(1, 5), r.int(1, 5), r.int(1, 3), r.int(1, 4), r.int(1, 4));
    let (bias, added, masked) = (r.bool(), r.bool(), r.bool());
    let past = if r.bool() { r.int(1, 3) } else { 0 };
    let v = if past > 0 { size } else { v };
    let mut names = vec!["q", "k", "v", if bias { "b" } else { "" }, if masked { "m" } else { "" }];
    names.push(if added { "bias" } else { "" });
    names.extend(if past > 0 { vec!["pk", "pv"] } else { vec![] });
    let outputs: &[&str] = match r.int(0, 2) {
        _ if past > 0 => &["y", "k2", "v2"],
        0 => &["y", "", "", "qk"],
        _ => &["y"],
    };
    let mut c = case(MS, "MultiHeadAttention", &names, outputs)
        .input(r, "q", &[b, s, n * size])
        .input(r, "k", &[b, t, n * size])
        .input(r, "v", &[b, t, n * v])
        .with("num_heads", n);
    // The type of the scores isn't inferred.
    c.graph.outputs.iter_mut().for_each(|out| out.dtype = DType::F32);
    c = c.when(bias, |c| c.weights(r, "b", &[n * (2 * size + v)]));
    c = c.when(past > 0, |c| c.input(r, "pk", &[b, n, past, size]).input(r, "pv", &[b, n, past, v]));
    c = if masked { key_mask(r, c, b, s, past + t) } else { c };
    if added {
        let shape = [if r.bool() { b } else { 1 }, if r.bool() { n } else { 1 }, s, past + t];
        c = c.input(r, "bias", &shape);
    }
    // In the scores the kernel has the lowest float, and not −∞, for a key that isn't seen.
    let plain = s == t && !masked && outputs.len() < 4;
    c.when(plain && r.bool(), |c| c.with("unidirectional", 1))
}

fn linear_attention(r: &mut Rng) -> Case {
    let (b, t, heads, each) = (r.int(1, 2), r.int(1, 5), r.int(1, 2), r.int(1, 2));
    let (keys, values) = (r.int(1, 4), r.int(1, 4));
    let rule = r.pick(&["linear", "gated", "delta", "gated_delta"]);
    let past = r.bool();
    let (gated, delta) = (rule.starts_with("gated"), rule.ends_with("delta"));
    let given = |yes: bool, name: &'static str| if yes { name } else { "" };
    let names = ["q", "k", "v", given(past, "past"), given(gated, "g"), given(delta, "beta")];
    let scale = if r.bool() { 0.0 } else { 0.1 + r.unit() };
    let mut c = case(MS, "LinearAttention", &names, &["y", "state"])
        .input(r, "q", &[b, t, heads * each * keys])
        .input(r, "k", &[b, t, heads * keys])
        .input(r, "v", &[b, t, heads * values])
        .with("q_num_heads", heads * each)
        .with("kv_num_heads", heads)
        .with("update_rule", rule)
        .with("scale", scale);
    if past {
        c = c.input(r, "past", &[b, heads, keys, values]);
    }
    if gated {
        let width = if r.bool() { heads } else { heads * keys };
        c = c.input(r, "g", &[b, t, width]);
    }
    if delta {
        c = c.input(r, "beta", &[b, t, heads]);
    }
    c
}

fn own_rotary(r: &mut Rng) -> Case {
    let (b, n, s, half) = (r.int(1, 2), r.int(1, 3), r.int(1, 4), r.int(1, 3));
    let (flat, stated) = (r.bool(), r.bool());
    let partial = flat && stated && r.bool();
    let size = if partial { 2 * half + 2 } else { 2 * half };
    let shape = if flat { vec![b, s, n * size] } else { vec![b, n, s, size] };
    let at = match r.bool() {
        true => Tensor::i64(&[1], &[r.int(0, 4)]),
        false => Tensor::i64(&[b, s], &(0..b * s).map(|_| r.int(0, 7)).collect::<Vec<_>>()),
    };
    case(MS, "RotaryEmbedding", &["x", "at", "cos", "sin"], &["y"])
        .input(r, "x", &shape)
        .constant("at", at)
        .weights(r, "cos", &[8, half])
        .weights(r, "sin", &[8, half])
        .when(stated, |c| c.with("num_heads", n))
        .when(partial, |c| c.with("rotary_embedding_dim", 2 * half))
        .when(r.bool(), |c| c.with("interleaved", 1))
}

/// A query whose keys are all masked gives 0 in ONNX Runtime, with −∞ and with the lowest float32, which
/// transformers writes.
#[test]
fn a_query_without_keys_gives_zero() {
    crate::common::load_runtime();
    let r = &mut Rng::new(3);
    let rows = [[f32::MIN; 3], [f32::NEG_INFINITY; 3], [f32::MIN, 0.0, f32::MIN], [f32::MIN / 2.0; 3]];
    for causal in [0, 1] {
        let c = case("", "Attention", &["q", "k", "v", "mask"], &["y"])
            .input(r, "q", &[1, 2, 4, 5])
            .input(r, "k", &[1, 2, 3, 5])
            .input(r, "v", &[1, 2, 3, 2])
            .constant("mask", Tensor::f32(&[4, 3], rows.as_flattened()))
            .with("is_causal", causal);
        let expected = run(&c.graph, &c).remove(0);
        assert_eq!(expected[..4], [0.0; 4]);
        defined(&c, &expected);
    }
}

/// Queries, keys and values in one input, or keys and values, for which ONNX Runtime has no kernel on the
/// CPU: compared with its kernel for separate inputs.
#[test]
fn packed_heads_compute_what_separate_inputs_do() {
    crate::common::load_runtime();
    (0..super::CASES).for_each(|seed| packed_heads(&mut Rng::new(seed)));
}

fn packed_heads(r: &mut Rng) {
    let (b, s, n, size) = (r.int(1, 2), r.int(1, 4), r.int(1, 3), r.int(1, 4));
    let t = r.int(1, 4);
    let names = ["q", "k", "v"];
    let apart = |lengths: [i64; 3], r: &mut Rng| {
        let start = case(MS, "MultiHeadAttention", &names, &["y"]).with("num_heads", n);
        let given = names.iter().zip(lengths);
        given.fold(start, |c, (name, length)| c.input(r, name, &[b, length, n * size]))
    };
    // [batch, length, heads, parts, size]: the parts of each head lie side by side.
    let pack = |parts: &[Vec<f32>]| -> Vec<f32> {
        let heads = parts[0].len() / size as usize;
        let of_head = |head: usize| {
            parts.iter().flat_map(move |part| &part[head * size as usize..(head + 1) * size as usize])
        };
        (0..heads).flat_map(of_head).copied().collect()
    };
    let all = apart([s, s, s], r);
    let expected = run(&all.graph, &all).remove(0);
    let mut one = case(MS, "MultiHeadAttention", &["q"], &["y"]).with("num_heads", n);
    one = one.input(r, "q", &[b, s, n, 3, size]);
    one.points = vec![pack(&all.points)];
    defined(&one, &expected);

    let all = apart([s, t, t], r);
    let expected = run(&all.graph, &all).remove(0);
    let mut two = case(MS, "MultiHeadAttention", &["q", "k"], &["y"]).with("num_heads", n);
    two = two.input(r, "q", &[b, s, n * size]).input(r, "k", &[b, t, n, 2, size]);
    two.points = vec![all.points[0].clone(), pack(&all.points[1..])];
    defined(&two, &expected);
}
