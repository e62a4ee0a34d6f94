//! The table of operators, for `audit ops` and the documentation.

use onnx_grad::operators::{self, Class, NEWEST, OLDEST, Operator};

const HEAD: &str = "# Operators

<!-- Written by `cargo run -- ops --markdown > docs/operators.md`; a test compares. -->

These operators may lie on the path from the image to the embedding. Loading a model fails if this path has another operator, or
a form that is listed as refused; the error names the node. Off this path (on weights, shapes, positions) a model may have any operator
that ONNX Runtime runs.

";

const EXPANDED: &str = "
The operators below are newer than opset 21, to which all models are converted, or compute with quantised integers, or ONNX Runtime's
optimiser writes them into the models that it saves. When a model is loaded, they are expanded into other operators, and those are differentiated. Upsample (7-9) becomes Resize,
and Scatter (9-10) becomes ScatterElements.

";

/// Every operator with the opsets it is understood in, its class and what is refused; as Markdown or as text.
pub fn table(markdown: bool) -> String {
    let (mut expanded, mut ruled): (Vec<Operator>, Vec<Operator>) =
        operators::all().partition(|o| o.class == Class::Expanded);
    ruled.retain(|o| !expanded.iter().any(|e| e.domain == o.domain && e.name == o.name));
    ruled.sort_by_key(|o| o.name);
    expanded.sort_by_key(|e| (e.domain, e.name));
    let opsets = |since: i64| format!("{}-{NEWEST}", since.max(OLDEST));
    let mut text = String::new();
    if markdown {
        text += HEAD;
        let mut classes: Vec<_> = ruled.iter().map(|o| class_name(o.class)).collect();
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
    let named = |o: &Operator| match o.domain {
        "" => (o.name.to_string(), opsets(o.since)),
        domain => (format!("{domain}::{}", o.name), "1".to_string()),
    };
    for o in ruled {
        let (op, opsets) = named(&o);
        text += &row(&op, &opsets, class_name(o.class).0, o.refused);
    }
    if markdown {
        text += EXPANDED;
        text += "| Operator | Opset | Class | Refused |\n|---|---|---|---|\n";
    }
    for e in expanded {
        let (op, opsets) = named(&e);
        text += &row(&op, &opsets, class_name(e.class).0, e.refused);
    }
    text
}

/// The class of an operator's gradient in a word; `None` where it has none.
pub fn class_of(name: &str) -> Option<&'static str> {
    operators::all().find(|o| o.name == name && o.class != Class::Expanded).map(|o| class_name(o.class).0)
}

/// A class in a word, and what that means.
fn class_name(class: Class) -> (&'static str, &'static str) {
    match class {
        Class::Exact => ("exact", "the operator's derivative, and at kinks the value that PyTorch takes"),
        Class::StraightThrough => {
            ("straight-through", "the derivative without the rounding. The report names the nodes")
        }
        Class::Discrete => ("discrete", "passes no gradient on"),
        Class::Flat => ("flat", "the derivative is zero almost everywhere. The report names the nodes"),
        Class::Unfolded => (
            "unfolded",
            "its steps are written one behind the other when the model is loaded, and those are differentiated",
        ),
        Class::Expanded => ("expanded", "written with other operators when the model is loaded"),
    }
}
