//! docs/reference-training.md follows from the program.

#[path = "../../examples/training_reference.rs"]
mod training_reference;

#[test]
fn the_reference_is_what_the_trainer_says() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference-training.md");
    let (kept, now) = (std::fs::read_to_string(page).unwrap(), training_reference::page());
    let differs = kept.lines().zip(now.lines()).enumerate().find(|(_, (a, b))| a != b);
    assert!(
        kept == now,
        "docs/reference-training.md is not what the trainer says (line, kept, now): {differs:?}. Write it anew with `cargo run -p \
         audit-train --example training_reference > docs/reference-training.md`"
    );
}
