//! Quantised models that hide behind what is accepted of rounding: with slopes in their gradient that they
//! don't have, or with another net for batches of one.

use crate::common::models::{DIM, SIDE, Weights, grey, trunk, trunk_weights};
use crate::common::{CPU, Rng, Temp, load_runtime, says};
use audit::check;
use audit::model::Model;
use audit::model::card::Card;
use audit::record::{Finding, Severity, State};
use onnx_grad::Graph;
use onnx_grad::graph::{DType, Node, Tensor};

/// Images of the check at load.
const IMAGES: usize = 8;

/// A net with quantisers whose zero point is 0.
fn quantised(nodes: Vec<Node>, weights: Weights) -> Graph {
    let mut graph = grey(nodes, weights);
    graph.constants.insert("zero".into(), Tensor { dtype: DType::U8, shape: vec![], bytes: vec![0].into() });
    graph
}

/// `to` is `from`, rounded to multiples of a scale.
fn rounded(from: &str, scale: &str, to: &str) -> Vec<Node> {
    let levels = format!("{to}/levels");
    vec![
        Node::new("QuantizeLinear", &[from, scale, "zero"], &levels),
        Node::new("DequantizeLinear", &[&levels, scale, "zero"], to),
    ]
}

fn model(temp: &Temp, name: &str, graph: &Graph) -> Model {
    load_runtime();
    let card = Card { mean: Some(vec![0.0]), std: Some(vec![1.0]), ..Card::default() };
    Model::open(&temp.write(name, graph.encode()), &card, CPU, Some(IMAGES)).unwrap()
}

fn pixels() -> Vec<f32> {
    Rng::new(4).units(IMAGES * (SIDE * SIDE) as usize)
}

/// What a check at load finds.
fn found(model: &mut Model, check: &str) -> Finding {
    let measured = check::load::measure(model, &pixels(), IMAGES, &mut |_, _| {}).unwrap();
    check::at_load(&measured).into_iter().find(|f| f.check == check).unwrap()
}

/// Nodes that add to the embedding "e" what a dense layer makes of "nothing", which is always 0.
fn beside(nothing: Vec<Node>) -> Graph {
    let dense = [
        Node::new("Flatten", &["nothing"], "flat"),
        Node::new("MatMul", &["flat", "false"], "added"),
        Node::new("Add", &["e", "added"], "embedding"),
    ];
    let weights = trunk_weights(Weights::new(1), "", 1).normal("false", &[SIDE * SIDE, DIM], 3.0);
    let weights = weights.floats("three", &[], &[3.0]).floats("fine", &[], &[1.0 / 128.0]);
    quantised(
        [trunk("image", "e", ""), nothing, dense.to_vec()].concat(),
        weights.floats("levels", &[], &[128.0]),
    )
}

/// The gradient goes straight through rounding, which gives these nodes a slope of 1. They add nothing to any
/// embedding, as ONNX Runtime confirms, but nearly all of the gradient. Finite differences with the rounding
/// held have the same slope. `plain.onnx` with such nodes had an ARS of 100 at 8/255, and 63.5 without them.
#[test]
fn slopes_of_quantisers_that_the_model_does_not_have_are_found() {
    let temp = Temp::new();
    // A third at most, which is rounded to 0.
    let coarse = beside(rounded("image", "three", "nothing"));
    // Round of the same values has no slope. The scale is a power of two, so that both round alike.
    let mut same = rounded("image", "fine", "whole");
    same.extend([
        Node::new("Mul", &["image", "levels"], "grey"),
        Node::new("Round", &["grey"], "levelled"),
        Node::new("Div", &["levelled", "levels"], "flatly"),
        Node::new("Sub", &["whole", "flatly"], "nothing"),
    ]);
    let bare = quantised(trunk("image", "embedding", ""), trunk_weights(Weights::new(1), "", 1));
    let expected = model(&temp, "bare.onnx", &bare).embed(&pixels()).unwrap();
    for (name, graph) in [("coarse.onnx", coarse), ("same.onnx", beside(same))] {
        let mut model = model(&temp, name, &graph);
        assert_eq!(model.embed(&pixels()).unwrap(), expected, "{name}");
        let gradient = found(&mut model, "gradient");
        assert_eq!(gradient.severity, Severity::Error, "{name}: {}", gradient.found);
        says(&gradient.found, &["straight through rounding", "of the predicted change"]);
    }
    // The same net behind a quantiser that rounds what it sees.
    let nodes = [rounded("image", "fine", "seen"), trunk("seen", "embedding", "")].concat();
    let weights = trunk_weights(Weights::new(1), "", 1).floats("fine", &[], &[1.0 / 128.0]);
    let gradient = found(&mut model(&temp, "honest.onnx", &quantised(nodes, weights)), "gradient");
    assert_eq!(gradient.state, State::Passed, "{}", gradient.found);
}

/// Two nets on the image, "a" and "b": the first if `choice` makes a "first" of 1, and the second if it makes
/// one of 0. A large constant in every embedding makes their difference less than 2 % of the largest value,
/// which is accepted of rounding. A quantiser that changes nothing makes it a quantised model.
fn either(choice: Vec<Node>) -> Graph {
    let mut nodes = rounded("image", "three", "nothing");
    nodes.extend([
        Node::new("Mul", &["nothing", "none"], "still"),
        Node::new("Add", &["image", "still"], "seen"),
    ]);
    nodes.extend([choice, trunk("seen", "a", "a/"), trunk("seen", "b", "b/")].concat());
    nodes.extend([
        Node::new("Sub", &["whole", "first"], "second"),
        Node::new("Mul", &["a", "first"], "of_first"),
        Node::new("Mul", &["b", "second"], "of_second"),
        Node::new("Add", &["of_first", "of_second"], "e"),
        Node::new("Add", &["e", "large"], "embedding"),
    ]);
    let weights = trunk_weights(trunk_weights(Weights::new(1), "a/", 1), "b/", 1);
    let numbers = [("three", 3.0), ("none", 0.0), ("whole", 1.0), ("two", 2.0), ("below", -0.9)];
    let weights = numbers.iter().fold(weights, |all, (name, number)| all.floats(name, &[], &[*number]));
    let mut large = [0.0; DIM as usize];
    large[0] = 300.0;
    let weights = weights.floats("large", &[DIM], &large).ints("one", &[1]).ints("never", &[0]);
    quantised(nodes, weights.ints("edges", &[0, 0, 1, 1, 0, 0, 1, 1]).ints("axes", &[1, 2, 3]))
}

/// Nodes that make 1 in batches of as many images as `size` says, and 0 in others.
fn in_batches(size: &str, to: &str) -> Vec<Node> {
    vec![
        Node::new("Shape", &["image"], "size").with("end", 1i64),
        Node::new("Equal", &["size", size], "equal"),
        Node::new("Cast", &["equal"], to).with("to", i64::from(DType::F32.code())),
    ]
}

/// Nodes that make 1 with ONNX Runtime's default options, and 0 without its optimiser. ONNX Runtime 1.31
/// takes a Pad with zeros for the padding of a pool behind it, which is −∞: the largest value is then −1 or
/// less, and 0 otherwise.
fn optimised(to: &str) -> Vec<Node> {
    vec![
        Node::new("Sub", &["image", "two"], "negative"),
        Node::new("Pad", &["negative", "edges"], "padded"),
        Node::new("MaxPool", &["padded"], "pooled").with("kernel_shape", vec![3i64, 3]),
        Node::new("ReduceMax", &["pooled", "axes"], "largest").with("keepdims", 0i64),
        Node::new("Unsqueeze", &["largest", "one"], "column"),
        Node::new("Less", &["column", "below"], "less"),
        Node::new("Cast", &["less"], to).with("to", i64::from(DType::F32.code())),
    ]
}

#[test]
fn another_net_in_batches_of_one_is_not_rounding() {
    let temp = Temp::new();
    let size = found(&mut model(&temp, "two.onnx", &either(in_batches("one", "first"))), "batch-size");
    assert_eq!(size.severity, Severity::Error, "{}", size.found);
    says(&size.found, &["in batches of 1", "Rounding does not explain"]);
    for check in ["batch-size", "parity", "runtime-optimiser"] {
        let found = found(&mut model(&temp, "one.onnx", &either(in_batches("never", "first"))), check);
        assert_eq!(found.state, State::Passed, "{check}: {}", found.found);
    }
}

/// Users run another net than the audit.
#[test]
fn another_net_under_the_runtimes_optimiser_is_not_rounding() {
    let temp = Temp::new();
    let graph = either(optimised("first"));
    let optimiser = found(&mut model(&temp, "optimised.onnx", &graph), "runtime-optimiser");
    assert_eq!(optimiser.severity, Severity::Warning, "{}", optimiser.found);
    says(&optimiser.found, &["with its default options", "Rounding does not explain"]);
}

/// Users who give it one image run another net than the audit. In the audit's batches the optimiser changes
/// nothing, and without the optimiser the batch changes nothing.
#[test]
fn another_net_for_single_images_under_the_optimiser_is_found() {
    let both = Node::new("Mul", &["default", "single"], "first");
    let choice = [optimised("default"), in_batches("one", "single"), vec![both]].concat();
    let temp = Temp::new();
    let mut model = model(&temp, "single.onnx", &either(choice));
    assert_eq!(found(&mut model, "runtime-optimiser").state, State::Passed);
    let size = found(&mut model, "batch-size");
    assert_eq!(size.severity, Severity::Error, "{}", size.found);
}
