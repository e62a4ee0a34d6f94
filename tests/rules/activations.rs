//! Recurrent operators with activations that their sample cases don't draw.

use crate::case::*;
use crate::{TOLERANCE, check, common};

#[test]
fn recurrent_operators_with_softplus() {
    common::load_runtime();
    let all: [(&str, i64, &[&str]); 3] = [
        ("RNN", 1, &["Softplus"]),
        ("GRU", 3, &["Sigmoid", "Softplus"]),
        ("LSTM", 4, &["Sigmoid", "Softplus", "Tanh"]),
    ];
    for (op, gates, names) in all {
        let mut r = Rng::new(gates as u64);
        let node = Node::new(op, &["x", "w", "r"], "y").with("hidden_size", 2).with("activations", names);
        let case = Case::new(node)
            .normal(&mut r, "x", &[3, 2, 2])
            .normal(&mut r, "w", &[1, 2 * gates, 2])
            .normal(&mut r, "r", &[1, 2 * gates, 2]);
        let errors = check(&case, &mut r).unwrap_or_else(|e| panic!("{op}: {e}"));
        assert!(errors.own < TOLERANCE, "{op}: {}", errors.own);
    }
}
