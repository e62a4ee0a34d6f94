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

/// One net for batches of one, and another for the batches of the audit. A large constant in every embedding
/// makes their difference less than 2 % of the largest value, which is accepted of rounding.
#[test]
fn another_net_in_batches_of_one_is_not_rounding() {
    let temp = Temp::new();
    let graph = |alone: &str| {
        let mut nodes = rounded("image", "three", "nothing");
        nodes.extend([
            Node::new("Mul", &["nothing", "none"], "still"),
            Node::new("Add", &["image", "still"], "seen"),
            Node::new("Shape", &["image"], "size").with("end", 1i64),
            Node::new("Equal", &["size", alone], "single"),
            Node::new("Cast", &["single"], "first").with("to", i64::from(DType::F32.code())),
            Node::new("Sub", &["whole", "first"], "second"),
        ]);
        nodes.extend([trunk("seen", "a", "a/"), trunk("seen", "b", "b/")].concat());
        nodes.extend([
            Node::new("Mul", &["a", "first"], "of_one"),
            Node::new("Mul", &["b", "second"], "of_more"),
            Node::new("Add", &["of_one", "of_more"], "e"),
            Node::new("Add", &["e", "large"], "embedding"),
        ]);
        let weights = trunk_weights(trunk_weights(Weights::new(1), "a/", 1), "b/", 1);
        let weights =
            weights.floats("three", &[], &[3.0]).floats("none", &[], &[0.0]).floats("whole", &[], &[1.0]);
        let mut large = [0.0; DIM as usize];
        large[0] = 300.0;
        quantised(nodes, weights.floats("large", &[DIM], &large).ints("one", &[1]).ints("never", &[0]))
    };
    let size = found(&mut model(&temp, "two.onnx", &graph("one")), "batch-size");
    assert_eq!(size.severity, Severity::Error, "{}", size.found);
    says(&size.found, &["in batches of 1", "Rounding does not explain"]);
    let size = found(&mut model(&temp, "one.onnx", &graph("never")), "batch-size");
    assert_eq!(size.state, State::Passed, "{}", size.found);
}
