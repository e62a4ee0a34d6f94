//! Images that `audit embed` can't read: how many, which and why.

use crate::common::{models, run, words};

#[test]
fn the_first_unreadable_images_are_named_with_the_reason() {
    let dir = models::stage(2, 4);
    let embed = || run(&dir, words("embed model.onnx --data data -o e.parquet -q")).ended(0);
    assert_eq!(embed().out, "e.parquet: 8 embeddings of 8 numbers\n");
    let named = |number: usize| format!("data/class00/x{number}.png");
    for number in 0..7 {
        dir.write(&named(number), "");
    }
    let why = "the file is empty (0 bytes). Copy it again from its source, or remove it";
    let each: Vec<String> =
        (0..5).map(|number| format!("can't decode image {}: {why}", named(number))).collect();
    let expected = format!(
        "e.parquet: 8 embeddings of 8 numbers; 7 images can't be read and were left out: {}; and 2 more\n",
        each.join("; ")
    );
    assert_eq!(embed().out, expected);
}
