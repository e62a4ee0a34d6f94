//! The table of operators, for `audit ops` and the documentation.

use onnx_grad::{NEWEST, OLDEST, expanded, rules};

const HEAD: &str = "# Operators

<!-- Written by `cargo run -- ops --markdown > docs/operators.md`; a test compares. -->

Operators that may lie between the image and the embedding. A model whose path has another one, or a form listed as
refused, is an error when it is loaded, which names the node. Operators off that path (on weights, shapes, positions)
may be any that ONNX Runtime runs.

";

const EXPANDED: &str = "
Written with other operators when the model is loaded (newer than the version that everything is brought to, or what
ONNX Runtime's own optimiser writes into the models that it saves), and differentiated as those. Upsample (7-9) becomes
Resize, and Scatter (9-10) ScatterElements.

";

/// Every operator with the opsets it is understood in, its class and what is refused; as Markdown or as text.
pub fn table(markdown: bool) -> String {
    let expands = |op: &str| expanded().any(|e| e.domain.is_empty() && e.op == op);
    let mut rules: Vec<_> = rules::all().filter(|rule| !expands(rule.op)).collect();
    rules.sort_by_key(|rule| rule.op);
    let opsets = |since: i64| format!("{}-{NEWEST}", since.max(OLDEST));
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
    let row = |op: &str, opsets: &str, class: &str, refused: &str| {
        if markdown {
            return format!("| {op} | {opsets} | {class} | {refused} |\n");
        }
        let refused = if refused.is_empty() { String::new() } else { format!("refused: {refused}") };
        format!("{op:<47} {opsets:<6} {class:<17} {refused}").trim_end().to_string() + "\n"
    };
    for rule in rules {
        text += &row(rule.op, &opsets(rule.since()), rule.class_name().0, rule.limits);
    }
    if markdown {
        text += EXPANDED;
        text += "| Operator | Opset | Class | Refused |\n|---|---|---|---|\n";
    }
    let mut expansions: Vec<_> = expanded().collect();
    expansions.sort_by_key(|e| (e.domain, e.op));
    for e in expansions {
        let (op, opsets) = match e.domain {
            "" => (e.op.to_string(), opsets(e.since)),
            domain => (format!("{domain}::{}", e.op), "1".to_string()),
        };
        text += &row(&op, &opsets, "expanded", e.refused);
    }
    text
}
