//! Sizes beyond which a rule refuses.

use crate::case::*;
use crate::{common, differentiated};

/// The gradient of one frame or block of so many values needs the square of that many numbers.
#[test]
fn frames_and_blocks_of_more_than_4096_values_are_refused() {
    common::load_runtime();
    let frame = Case::new(Node::new("STFT", &["x", "step", "w"], "y"))
        .input("x", &[1, 4097, 1], vec![0.5; 4097])
        .constant("step", Tensor::i64(&[], &[1]))
        .constant("w", Tensor::f32(&[4097], &[1.0; 4097]));
    let block = Case::new(Node::new("Col2Im", &["x", "image", "block"], "y"))
        .input("x", &[1, 65 * 64, 1], vec![0.5; 65 * 64])
        .ints("image", &[65, 64])
        .ints("block", &[65, 64]);
    for (case, size) in [(frame, 4097), (block, 4160)] {
        let error = differentiated(&case, |_| vec![]).map(drop).unwrap_err();
        assert!(error.contains(&format!("a matrix of {size} x {size} numbers")), "{error}");
    }
}
