//! Models with several outputs of one vector for each image: the command that a refusal suggests names the
//! features, not the class scores computed from them, and not the smaller of two heads.

use crate::common::models::{self, DIM, Weights, free, grey, trunk, trunk_weights, value};
use crate::common::{run, words};
use onnx_grad::Graph;
use onnx_grad::graph::Node;

/// Two outputs in this order. `rest` makes them from the features, "feat".
fn two(outputs: [&str; 2], rest: Vec<Node>) -> Graph {
    let weights = trunk_weights(Weights::new(1), "", 1);
    let weights = weights.normal("w3", &[DIM, DIM], 0.3).normal("w4", &[DIM, DIM], 0.3);
    let weights = weights.normal("w5", &[DIM, 3], 0.3);
    let mut graph = grey([trunk("image", "feat", ""), rest].concat(), weights);
    // The output called "few" has three values.
    graph.outputs = outputs.map(|name| value(name, free(), &[if name == "few" { 3 } else { DIM }])).into();
    graph
}

#[test]
fn features_come_before_class_scores() {
    let product = |from: &str, weights: &str, to: &str| Node::new("MatMul", &[from, weights], to);
    let dir = models::stage(2, 2);
    for (graph, expected) in [
        // Whatever the order and the names are.
        (two(["feat", "logits"], vec![product("feat", "w3", "logits")]), "feat"),
        (two(["logits", "feat"], vec![product("feat", "w3", "logits")]), "feat"),
        (two(["feat", "y"], vec![product("feat", "w3", "y")]), "feat"),
        // Neither is computed from the other.
        (two(["z", "scores"], vec![product("feat", "w3", "z"), product("feat", "w4", "scores")]), "z"),
        (
            two(
                ["z", "y"],
                vec![
                    product("feat", "w3", "z"),
                    product("feat", "w4", "x"),
                    Node::new("Softmax", &["x"], "y").with("axis", 1i64),
                ],
            ),
            "z",
        ),
        // A head with fewer values, such as that of ten attributes.
        (two(["z", "few"], vec![product("feat", "w3", "z"), product("feat", "w5", "few")]), "z"),
        (two(["few", "z"], vec![product("feat", "w3", "z"), product("feat", "w5", "few")]), "z"),
        // Nothing tells them apart.
        (two(["y", "z"], vec![product("feat", "w3", "y"), product("feat", "w4", "z")]), "z"),
    ] {
        dir.write("model.onnx", graph.encode());
        let err = run(&dir, words("model.onnx -q --data data")).ended(3).err;
        let fixes: Vec<&str> = err.lines().filter(|line| line.starts_with("fix: ")).collect();
        assert_eq!(fixes, [format!("fix: audit model.onnx -q --data data --output {expected}")]);
        let inspected = run(&dir, ["inspect", "model.onnx", "--json"]).ended(3).out;
        let inspected: serde_json::Value = serde_json::from_str(&inspected).unwrap();
        let next = inspected["next"][0].as_str().unwrap();
        assert!(next.starts_with(&format!("audit model.onnx --output {expected} ")), "{next}");
    }
}
