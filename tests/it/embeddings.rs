//! `audit embed` of images without classes, and what `audit merge` refuses of embeddings.

use crate::common::{Temp, bundled, lasting_text, run, words};
use audit::data::{BUILTIN_SEED, Dataset, Preparation};

/// The bundled model, and generated images of 3 classes.
fn stage() -> Temp {
    let dir = Temp::new();
    std::fs::copy(bundled("plain.onnx"), dir.join("model.onnx")).unwrap();
    Dataset::generated(BUILTIN_SEED, 3, 4).export(&dir.join("data"), &Preparation::new(1, 28, 28)).unwrap();
    dir
}

#[test]
fn embeddings_without_classes_are_read_by_audits_without_classes_only() {
    let dir = stage();
    run(&dir, words("embed model.onnx --data data --labels none -o none.parquet -q")).ended(0);
    let audit = |more: &str| {
        let line = format!("model.onnx --data data --max-queries 2 --no-cache -q {more}");
        run(&dir, words(&line))
    };
    audit("--labels none --gallery-cache none.parquet -o stored.json").ended(0);
    audit("--labels none -o own.json").ended(0);
    assert_eq!(lasting_text(&dir, "stored.json"), lasting_text(&dir, "own.json"));
    audit("--gallery-cache none.parquet").ended(2);
}

/// Embeddings have no trials.
#[test]
fn trials_of_embeddings_are_refused() {
    let dir = stage();
    for part in 1..=2 {
        let line = format!("embed model.onnx --data data --partition hash:{part}/2 -o {part}.parquet -q");
        run(&dir, words(&line)).ended(0);
    }
    run(&dir, words("merge 1.parquet 2.parquet -o whole.parquet --trials-out trials.json")).ended(2);
    assert!(!dir.join("whole.parquet").exists() && !dir.join("trials.json").exists());
    run(&dir, words("merge 1.parquet 2.parquet -o whole.parquet")).ended(0);
}
