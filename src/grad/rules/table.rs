//! The table of operators, for `audit ops` and the documentation.

use crate::onnx::OLDEST;

const HEAD: &str = "# Operators

<!-- Written by `cargo run -- ops --markdown > docs/operators.md`; a test compares. -->

Operators that may lie between the image and the embedding. A model whose path has another one, or a form listed as
refused, is an error when it is loaded, which names the node. Operators off that path (on weights, shapes, positions)
may be any that ONNX Runtime runs.

";

/// Every operator with the opsets it is understood from, its class and what is refused; as Markdown or as text.
pub fn table(markdown: bool) -> String {
    let mut rules: Vec<_> = super::all().collect();
    rules.sort_by_key(|rule| rule.op);
    let mut text = String::new();
    if markdown {
        text += HEAD;
        let mut classes: Vec<_> = rules.iter().map(|rule| rule.class_name()).collect();
        classes.sort_unstable();
        classes.dedup();
        for (name, meaning) in classes {
            text += &format!("- **{name}**: {meaning}.\n");
        }
        text += "\n| Operator | Opset | Class | Refused |\n|---|---|---|---|\n";
    }
    for rule in rules {
        let (op, class, limits) = (rule.op, rule.class_name().0, rule.limits);
        let since = format!("{}+", rule.since().max(OLDEST));
        let row = if markdown {
            format!("| {op} | {since} | {class} | {limits} |\n")
        } else {
            let refused = if limits.is_empty() { String::new() } else { format!("refused: {limits}") };
            format!("{:<27} {:<5} {:<17} {}", op, since, class, refused).trim_end().to_string() + "\n"
        };
        text += &row;
    }
    text
}
