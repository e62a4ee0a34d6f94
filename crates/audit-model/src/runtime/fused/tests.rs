//! Each operator against those of ONNX Runtime that it replaces.

use super::super::{Input, Optimise, Options, Provider, Session, infer, load};
use super::*;
use onnx_grad::graph::{Tensor, Value};
use onnx_grad::{Pass, Processor};

/// Channels that fill no last block of 8 or 16.
const C: i64 = 20;
const SHAPE: [i64; 4] = [2, C, 30, 30];

fn value(name: &str, shape: &[i64]) -> Value {
    Value::new(name, DType::F32, shape)
}

/// A graph of inputs a and b, one value for each channel and for each image, and the number 1.5.
fn graph(nodes: Vec<Node>, outputs: &[&str]) -> Graph {
    let constants = [
        ("number".into(), Tensor::f32(&[], &[1.5])),
        ("places".into(), Tensor::ints(&[2, 3])),
        ("ones".into(), Tensor::f32(&[C, 1, 1, 1], &[1.0; C as usize])),
        ("row".into(), Tensor::f32(&[1, C, 1, 1], &numbers(5, C as usize))),
        ("bias".into(), Tensor::f32(&[C, 1, 1], &numbers(6, C as usize))),
    ];
    let mut graph = Graph::new(nodes, constants.into());
    graph.inputs = vec![value("a", &SHAPE), value("b", &SHAPE)];
    graph.inputs.extend([value("channel", &[2, C, 1, 1]), value("image", &[2, 1, 1, 1])]);
    graph.outputs = outputs.iter().map(|name| Value { shape: None, ..value(name, &[]) }).collect();
    graph.opsets.insert(crate::specialise::BLOCKED.into(), 1);
    graph.prune();
    graph.prune_inputs();
    graph
}

/// A graph from these inputs to y.
fn graph_of(nodes: Vec<Node>, inputs: &[(&str, &[i64])]) -> Graph {
    let mut graph = graph(nodes, &["y"]);
    graph.inputs = inputs.iter().map(|(name, shape)| value(name, shape)).collect();
    graph
}

/// The graph with chains; `None` if ONNX Runtime is not here.
fn fused(mut graph: Graph) -> Option<Graph> {
    if load(None, None).is_err() {
        println!("skipped: no ONNX Runtime here; `cargo xtask setup` fetches it");
        return None;
    }
    let types = infer(&graph).unwrap();
    fuse(&mut graph, types).unwrap();
    Some(graph)
}

fn operators(graph: &Graph) -> Vec<&str> {
    graph.nodes.iter().map(|node| node.op.as_str()).collect()
}

/// Numbers of all sizes and signs.
fn numbers(seed: u32, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32
    };
    (0..count).map(|_| (next() - 0.5) * 10f32.powf(8.0 * next() - 4.0)).collect()
}

/// Two lists of numbers, and all pairs of some that are special.
fn pairs() -> [Vec<f32>; 2] {
    const SPECIAL: [f32; 8] =
        [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40, -1e-40, f32::MAX];
    let count = SHAPE.iter().product::<i64>() as usize;
    let [mut a, mut b] = [1, 2].map(|seed| numbers(seed, count));
    for i in 0..SPECIAL.len() * SPECIAL.len() {
        (a[i], b[i]) = (SPECIAL[i % SPECIAL.len()], SPECIAL[i / SPECIAL.len()]);
    }
    [a, b]
}

/// What a graph makes of `a` and `b`.
fn run(graph: &Graph, [a, b]: [&[f32]; 2]) -> Vec<f32> {
    let ([channel, image], options) =
        ([numbers(3, 2 * C as usize), numbers(4, 2)], Options { provider: Provider::Cpu, threads: 1 });
    let all = [("a", a), ("b", b), ("channel", &channel), ("image", &image)];
    let mut session = Session::new(graph, options, Optimise::Off).unwrap();
    let shapes: Vec<Vec<i64>> =
        graph.inputs.iter().map(|input| super::super::fixed_shape(input).unwrap()).collect();
    let values = |name: &str| all.iter().find(|(known, _)| *known == name).unwrap().1;
    let feed: Vec<(&str, Input)> = graph
        .inputs
        .iter()
        .zip(&shapes)
        .map(|(input, shape)| (input.name.as_str(), Input::Host(shape, values(&input.name))))
        .collect();
    let held = session.run(&feed, &["y"]).unwrap().remove(0);
    held.floats().unwrap().1.to_vec()
}

/// Whether the graph and the one with chains, whose operators are `expected`, give the same bits.
/// Expected: ONNX Runtime's own operators.
fn equal(nodes: Vec<Node>, expected: &[&str]) {
    let alone = graph(nodes, &["y"]);
    let Some(chain) = fused(alone.clone()) else { return };
    assert_eq!(operators(&chain), expected, "{:?}", operators(&alone));
    let [a, b] = pairs();
    let [expected, found] = [&alone, &chain].map(|graph| run(graph, [&a, &b]));
    let differ = |(x, y): (&f32, &f32)| x.to_bits() != y.to_bits() && !(x.is_nan() && y.is_nan());
    assert_eq!(expected.len(), found.len());
    let places: Vec<usize> = (0..found.len()).filter(|&i| differ((&expected[i], &found[i]))).collect();
    let first = places.first().map(|&i| (a.get(i), b.get(i), expected[i], found[i]));
    let (count, names) = (places.len(), operators(&alone));
    assert!(places.is_empty(), "{names:?}: {count} values differ, first (a, b, expected, found): {first:?}");
}

#[test]
fn chains_equal_their_operators_to_the_last_bit() {
    let clipped =
        |alpha: f32, beta: f32| Node::new("HardSigmoid", &["a"], "h").with("alpha", alpha).with("beta", beta);
    let nodes = vec![
        clipped(-1.0, 1.0),
        Node::new("Mul", &["h", "b"], "m"),
        Node::new("Sub", &["number", "m"], "s"),
        Node::new("ThresholdedRelu", &["s"], "t").with("alpha", -1.5f32),
        Node::new("Neg", &["t"], "n"),
        Node::new("Add", &["n", "a"], "p"),
        Node::new("Div", &["p", "b"], "y"),
    ];
    equal(nodes, &[CHAIN]);
    for [alpha, beta] in [[-1.0, 1.0], [1.0, 0.0], [0.2, 0.5], [1.0 / 6.0, 0.5], [2f32.powi(120), 0.0]] {
        equal(vec![clipped(alpha, beta), Node::new("Neg", &["h"], "y")], &[CHAIN]);
    }
    for op in ["HardSigmoid", "ThresholdedRelu", "Sign"] {
        equal(vec![Node::new(op, &["a"], "t"), Node::new("Neg", &["t"], "y")], &[CHAIN]);
    }
    for op in ["Add", "Sub", "Mul", "Div", "Max", "Min"] {
        let tensors = [["a", "b"], ["b", "b"], ["a", "number"], ["number", "a"]];
        let channelwise = [["a", "channel"], ["image", "a"], ["a", "row"], ["bias", "a"]];
        for operands in tensors.iter().chain(&channelwise) {
            equal(vec![Node::new(op, operands, "m"), Node::new("Neg", &["m"], "y")], &[CHAIN]);
        }
    }
}

fn reorder(op: &str, from: &str, to: &str) -> Node {
    let node = Node::new(op, &[from], to).in_domain(crate::specialise::BLOCKED);
    if op == "ReorderOutput" { node.with("channels", SHAPE[1]) } else { node }
}

/// Nodes that read a and b out of blocks.
fn out_of_blocks(nodes: impl IntoIterator<Item = Node>) -> Vec<Node> {
    let mut all: Vec<Node> = ["a", "b"]
        .iter()
        .flat_map(|name| {
            let (blocks, out) = (format!("{name}/in"), format!("{name}/out"));
            [reorder("ReorderInput", name, &blocks), reorder("ReorderOutput", &blocks, &out)]
        })
        .collect();
    all.extend(nodes);
    all
}

/// Whether ONNX Runtime is here and has blocks on this machine.
fn has_blocks() -> bool {
    load(None, None).is_ok() && blocks::width().is_ok_and(|width| WIDTHS.contains(&width))
}

#[test]
fn operators_move_into_blocks() {
    if !has_blocks() {
        println!("skipped: no ONNX Runtime with a blocked layout here");
        return;
    }
    let gated = || [Node::new("Mul", &["a/out", "channel"], "m"), Node::new("Add", &["m", "b/out"], "p")];
    let back = || [reorder("ReorderInput", "p", "p/in"), reorder("ReorderOutput", "p/in", "y")];
    let moved = ["ReorderInput", "ReorderInput", CHAIN, "ReorderOutput"];
    equal(out_of_blocks(gated().into_iter().chain(back())), &moved);
    let all = [
        Node::new("Mul", &["a/out", "row"], "m"),
        Node::new("Sub", &["bias", "m"], "n"),
        Node::new("Max", &["n", "image"], "o"),
        Node::new("Add", &["o", "b/out"], "p"),
    ];
    equal(out_of_blocks(all.into_iter().chain(back())), &moved);
    // One operator with operands of two layouts is a chain too.
    let one = [Node::new("Mul", &["channel", "a/out"], "p")];
    equal(out_of_blocks(one.into_iter().chain(back())), &["ReorderInput", CHAIN, "ReorderOutput"]);
    // What is read in both layouts is made in blocks.
    let both =
        [Node::new("Sub", &["p", "image"], "q"), Node::new("Concat", &["p", "q"], "r").with("axis", 1)];
    let both = gated().into_iter().chain(both).chain([
        reorder("ReorderInput", "q", "q/in"),
        reorder("ReorderOutput", "q/in", "q/out"),
        Node::new("Concat", &["q/out", "r"], "y").with("axis", 1i64),
    ]);
    let kinds = [
        ["ReorderInput", "ReorderInput", CHAIN].as_slice(),
        &["ReorderOutput", CHAIN, "ReorderOutput", "Concat", "ReorderOutput", "Concat"],
    ];
    equal(out_of_blocks(both), &kinds.concat());
    // A move that saves no change of layout: others read a outside of blocks.
    let idle = [
        Node::new("Mul", &["a/out", "channel"], "m"),
        Node::new("Concat", &["m", "a/out"], "y").with("axis", 1),
    ];
    equal(out_of_blocks(idle), &["ReorderInput", "ReorderOutput", "Mul", "Concat"]);
    // An operand is brought into blocks instead of the result.
    let outside = [
        Node::new("Tanh", &["b"], "t"),
        Node::new("Neg", &["a/out"], "n"),
        Node::new("Mul", &["n", "t"], "p"),
    ];
    let kinds = ["ReorderInput", "Tanh", "ReorderInput", CHAIN, "ReorderOutput"];
    equal(out_of_blocks(outside.into_iter().chain(back())), &kinds);
    let most = Node::new("Max", &["a/out", "number"], "m");
    let mut spread = Node::new("ConvTranspose", &["m", "ones"], "p").with("group", C);
    spread = spread.with("strides", vec![2i64, 3]).with("kernel_shape", vec![1i64, 1]);
    let kinds = ["ReorderInput", "Max", "Spread", "ReorderOutput"];
    equal(out_of_blocks([most, spread].into_iter().chain(back())), &kinds);
}

/// Values of channels that fill no block would be left out.
#[test]
fn channels_that_fill_no_block_are_not_spread() {
    if load(None, None).is_err() {
        println!("skipped: no ONNX Runtime here; `cargo xtask setup` fetches it");
        return;
    }
    let a = vec![1.0; SHAPE.iter().product::<i64>() as usize];
    let spread = |width: i64| {
        let node = Node::new("Spread", &["a"], "y").with("strides", vec![2i64, 3]).with("width", width);
        let node = node.in_domain(DOMAIN);
        let mut graph = graph(vec![node], &["y"]);
        graph.opsets.insert(DOMAIN.into(), 1);
        let options = Options { provider: Provider::Cpu, threads: 1 };
        let mut session = Session::new(&graph, options, Optimise::Off).unwrap();
        let held = session.run(&[("a", Input::Host(&SHAPE, &a))], &["y"])?;
        Ok::<_, Error>(held[0].floats().unwrap().1.len())
    };
    assert_eq!(spread(4).unwrap(), 2 * C as usize * 59 * 88);
    assert!(spread(8).is_err());
}

/// Channels that fill up a block are multiplied by zeros later, and 0 · NaN is NaN.
#[test]
fn quotients_stay_out_of_blocks_that_channels_do_not_fill() {
    if !has_blocks() {
        println!("skipped: no ONNX Runtime with a blocked layout here");
        return;
    }
    let nodes = [Node::new("Div", &["a/out", "b/out"], "p"), reorder("ReorderInput", "p", "p/in")];
    let graph =
        graph(out_of_blocks(nodes.into_iter().chain([reorder("ReorderOutput", "p/in", "y")])), &["y"]);
    assert_eq!(operators(&fused(graph.clone()).unwrap()), operators(&graph));
    // A quotient of values of the channels is large enough for a chain, but in none with whole tensors.
    let (channels, whole) = ([128, 132, 1, 1], [128, 132, 2, 2]);
    let mut input = reorder("ReorderInput", "x", "x/in");
    let mut nodes = vec![input.clone(), reorder("ReorderOutput", "x/in", "x/out")];
    nodes.extend([Node::new("Div", &["u", "v"], "g"), Node::new("Mul", &["x/out", "g"], "p")]);
    input = reorder("ReorderInput", "p", "p/in");
    nodes.extend([input, reorder("ReorderOutput", "p/in", "y")]);
    for node in nodes.iter_mut().filter(|node| node.op == "ReorderOutput") {
        node.attrs.insert("channels".into(), 132i64.into());
    }
    let mut wide = graph_of(nodes, &[("x", &whole), ("u", &channels), ("v", &channels)]);
    let types = infer(&wide).unwrap();
    fuse(&mut wide, types).unwrap();
    assert_eq!(operators(&wide), ["ReorderInput", "Div", CHAIN, "ReorderOutput"]);
}

/// Expected: sums of the products in float64.
#[test]
fn a_chain_can_end_in_a_sum_over_places() {
    if !has_blocks() {
        println!("skipped: no ONNX Runtime with a blocked layout here");
        return;
    }
    let count = SHAPE.iter().product::<i64>() as usize;
    let [a, b] = [5, 6].map(|seed| numbers(seed, count));
    let places = (SHAPE[2] * SHAPE[3]) as usize;
    let products: Vec<f64> = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).collect();
    let sum = || Node::new("ReduceSum", &["m", "places"], "y");
    let nodes = out_of_blocks([Node::new("Mul", &["a/out", "b/out"], "m"), sum()]);
    let chain = fused(graph(nodes, &["y"])).unwrap();
    assert_eq!(operators(&chain), ["ReorderInput", "ReorderInput", CHAIN]);
    let found = run(&chain, [&a, &b]);
    assert_eq!(found.len(), 2 * C as usize);
    for (found, products) in found.iter().zip(products.chunks_exact(places)) {
        let size: f64 = products.iter().map(|v| v.abs()).sum();
        let expected: f64 = products.iter().sum();
        assert!((f64::from(*found) - expected).abs() < 1e-6 * size, "{found} {expected} of {size}");
    }
    let usual = vec![Node::new("Mul", &["a", "b"], "m"), sum()];
    assert_eq!(operators(&fused(graph(usual, &["y"])).unwrap()), ["Mul", "ReduceSum"]);
    let alone = out_of_blocks([Node::new("ReduceSum", &["a/out", "places"], "y")]);
    assert_eq!(operators(&fused(graph(alone, &["y"])).unwrap()), ["ReorderInput", CHAIN]);
}

/// Expected: ONNX Runtime's operators. The sigmoid that follows from Swish has other last digits.
#[test]
fn swish_is_one_operator_and_its_derivative_one_chain() {
    let nodes = vec![
        Node::new("Sigmoid", &["a"], "s"),
        Node::new("HardSigmoid", &["s"], "rest").with("alpha", -1.0f32).with("beta", 1.0f32),
        Node::new("Mul", &["s", "a"], "swish"),
        Node::new("Mul", &["swish", "rest"], "m"),
        Node::new("Add", &["s", "m"], "slope"),
        Node::new("Mul", &["b", "slope"], "p"),
        Node::new("Concat", &["swish", "p"], "y").with("axis", 1i64),
    ];
    let alone = graph(nodes.clone(), &["y"]);
    let Some(chain) = fused(alone.clone()) else { return };
    assert_eq!(operators(&chain), ["QuickGelu", CHAIN, "Concat"]);
    let count = SHAPE.iter().product::<i64>() as usize;
    let [mut a, b] = [7, 8].map(|seed| numbers(seed, count));
    a[..8].copy_from_slice(&[0.0, -0.0, 1e-40, -1e-40, 1e-30, -1e-29, 200.0, -200.0]);
    let [expected, found] = [&alone, &chain].map(|graph| run(graph, [&a, &b]));
    assert_eq!(expected.len(), found.len());
    let half = count / 2;
    for (i, (expected, found)) in expected.iter().zip(&found).enumerate() {
        let place = i % count;
        let (swish, at) = (place < half, place % half + i / count * half);
        let scale = if swish { 0.0 } else { (1.0 + a[at].abs()) * b[at].abs() };
        assert!((expected - found).abs() <= 2e-7 * scale, "{i}: a {} b {}: {expected} {found}", a[at], b[at]);
    }
    // Where an output or the embedding needs the sigmoid, it stays.
    let mut read = nodes.clone();
    read[6] = Node::new("Concat", &["s", "p"], "y").with("axis", 1i64);
    assert_eq!(operators(&fused(graph(read, &["y"])).unwrap()), ["Sigmoid", CHAIN, "Concat"]);
    let mut forward = nodes;
    forward.push(Node::new("Add", &["p", "swish"], crate::EMBEDDING));
    let kept = ["Sigmoid", "Mul", CHAIN, "Concat", "Add"];
    assert_eq!(operators(&fused(graph(forward, &["y", crate::EMBEDDING])).unwrap()), kept);
}

/// The gradient of an inverted residual block with squeeze and excitation, Swish and a stride
/// (EfficientNet), whose result has so many channels: joined, and as it runs. `op` applies the
/// excitation.
fn squeeze_and_excitation(op: &str, channels: i64) -> [Graph; 2] {
    const C: i64 = 40;
    let conv = |x: &str, w: &str, y: &str, group: i64, stride: i64, pad: i64| {
        let node = Node::new("Conv", &[x, w], y).with("group", group).with("strides", vec![stride; 2]);
        node.with("pads", vec![pad; 4])
    };
    let swish = |x: &str, s: &str, y: &str| [Node::new("Sigmoid", &[x], s), Node::new("Mul", &[x, s], y)];
    let nodes = [
        vec![conv("image", "stem", "c1", 1, 1, 1)],
        swish("c1", "s1", "m1").into(),
        vec![conv("m1", "depthwise", "c2", C, 2, 1)],
        swish("c2", "s2", "m2").into(),
        vec![Node::new("GlobalAveragePool", &["m2"], "p"), conv("p", "reduce", "r", 1, 1, 0)],
        swish("r", "s3", "m3").into(),
        vec![conv("m3", "expand", "e", 1, 1, 0), Node::new("Sigmoid", &["e"], "gate")],
        vec![Node::new(op, &["m2", "gate"], "gated"), conv("gated", "project", "c3", 1, 1, 0)],
        vec![Node::new("Relu", &["c3"], "relu"), conv("relu", "last", "c4", 1, 1, 0)],
        vec![Node::new("GlobalAveragePool", &["c4"], "q"), Node::new("Flatten", &["q"], "embedding")],
    ];
    let shapes: [(&str, [i64; 4]); 6] = [
        ("stem", [C, 3, 3, 3]),
        ("depthwise", [C, 1, 3, 3]),
        ("reduce", [8, C, 1, 1]),
        ("expand", [C, 8, 1, 1]),
        ("project", [channels, C, 1, 1]),
        ("last", [4, channels, 1, 1]),
    ];
    let weights = shapes.iter().zip(10..).map(|((name, shape), seed)| {
        let count = shape.iter().product::<i64>();
        let scale = 1.0 / ((count / shape[0]) as f32).sqrt();
        (name.to_string(), Tensor::f32(shape, &usual(seed, count as usize, scale)))
    });
    let mut net = Graph::new(nodes.concat(), weights.collect());
    net.inputs = vec![value("image", &[2, 3, 64, 64])];
    net.outputs = vec![value("embedding", &[2, 4])];
    let types = infer(&net).unwrap();
    let g = onnx_grad::differentiate(&net, &types, &["image"], Pass::Exact, Processor::Cpu).unwrap();
    let names = [g.cotangents[0].clone(), g.gradients[0].clone()];
    let mut joined = g.join();
    joined.rename(&names[0], "cotangent");
    joined.rename(&names[1], "gradient");
    let mut fused = super::super::optimised(&joined).unwrap();
    let types = super::super::infer_statically(&fused).unwrap();
    fuse(&mut fused, types).unwrap();
    [joined, fused]
}

/// Numbers of both signs whose size is about `scale`.
fn usual(seed: u32, count: usize, scale: f32) -> Vec<f32> {
    numbers(seed, count).iter().map(|v| scale * v.signum() * v.abs().powf(0.1)).collect()
}

/// Results are equal but for the rounding of Swish's derivative and of sums. Expected: ONNX Runtime
/// without optimisation. It brings tensors of 18 channels out of blocks, but not into them. It adds one
/// value for each channel in blocks, in five dimensions.
#[test]
fn the_gradient_of_squeeze_and_excitation() {
    if load(None, None).is_err() {
        println!("skipped: no ONNX Runtime here; `cargo xtask setup` fetches it");
        return;
    }
    let image = usual(20, 2 * 3 * 64 * 64, 1.0);
    let cotangent = [1.0, -0.5, 0.25, 2.0, -1.0, 0.5, 1.0, 0.125];
    let feed =
        [("image", Input::Host(&[2, 3, 64, 64], &image)), ("cotangent", Input::Host(&[2, 4], &cotangent))];
    for (op, channels) in [("Mul", 16), ("Mul", 18), ("Add", 16)] {
        let graphs = squeeze_and_excitation(op, channels);
        let count = |op: &str| operators(&graphs[1]).iter().filter(|own| **own == op).count();
        if op == "Mul" && has_blocks() {
            let counts = if channels == 16 { [0, 1] } else { [1, 0] };
            assert_eq!([count("ReduceSum"), count("Spread")], counts, "{channels}");
            assert!(graphs[1].nodes.iter().any(|node| node.int("width", 0) > 1 && node.op == CHAIN));
        }
        assert_eq!(count("QuickGelu"), 2);
        let options = Options { provider: Provider::Cpu, threads: 1 };
        let [expected, found] = [&graphs[0], &graphs[1]].map(|graph| {
            let mut session = Session::new(graph, options, Optimise::Off).unwrap();
            let held = session.run(&feed, &["embedding", "gradient"]).unwrap();
            held.iter().map(|held| held.floats().unwrap().1.to_vec()).collect::<Vec<_>>()
        });
        for (expected, found) in expected.iter().zip(&found) {
            let size = expected.iter().fold(0.0, |size: f32, v| size.max(v.abs()));
            assert!(size > 1e-4, "{size}");
            for (expected, found) in expected.iter().zip(found) {
                assert!((expected - found).abs() < 1e-5 * size, "{expected} {found} of {size}");
            }
        }
    }
}

/// By hand: of 15 operators, the first three are a chain of their own.
#[test]
fn a_long_chain_is_cut() {
    let name = |i: usize| if i == 15 { "y".to_string() } else { format!("v{i}") };
    let node = |i: usize| Node::new("Add", &[&name(i - 1), "b"], &name(i));
    let mut nodes = vec![Node::new("Neg", &["a"], &name(1))];
    nodes.extend((2..=15).map(node));
    let Some(cut) = fused(graph(nodes, &["y"])) else { return };
    assert_eq!(operators(&cut), [CHAIN, CHAIN]);
}

/// By hand: the derivative of a gate is one chain, whichever of its values the forward pass reads too.
#[test]
fn a_value_belongs_to_the_chain_of_its_readers() {
    let nodes = || {
        vec![
            Node::new("Tanh", &["a"], "s"),
            Node::new("HardSigmoid", &["s"], "rest").with("alpha", -1.0f32).with("beta", 1.0f32),
            Node::new("Mul", &["a", "rest"], "m"),
            Node::new("Add", &["s", "m"], "slope"),
            Node::new("Mul", &["b", "slope"], "y"),
        ]
    };
    let Some(chain) = fused(graph(nodes(), &["y"])) else { return };
    assert_eq!(operators(&chain), ["Tanh", CHAIN]);
    let Some(cut) = fused(graph(nodes(), &["y", "m"])) else { return };
    assert_eq!(operators(&cut), ["Tanh", CHAIN, CHAIN], "a chain ends at an output");
    let mut two = nodes();
    two.push(Node::new("Tanh", &["m"], "z"));
    let Some(cut) = fused(graph(two, &["y", "z"])) else { return };
    assert_eq!(operators(&cut), ["Tanh", CHAIN, CHAIN, "Tanh"], "a chain ends at another reader");
}

/// By hand.
#[test]
fn small_tensors_stay() {
    let mut small = graph(vec![Node::new("Neg", &["a"], "m"), Node::new("Add", &["m", "b"], "y")], &["y"]);
    for value in &mut small.inputs {
        *value = Value::new(value.name.clone(), DType::F32, &[2, 4, 30, 30]);
    }
    let Some(small) = fused(small) else { return };
    assert_eq!(operators(&small), ["Neg", "Add"]);
}
