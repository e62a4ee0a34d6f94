//! Lists the operators of a model, how often each occurs, and its kind of gradient: `cargo run --example
//! operators -- model.onnx`. Older and fused operators are listed as the operators that they are rewritten
//! to.

use onnx_grad::{Graph, operators};
use std::collections::BTreeMap;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("expected the path of an .onnx file")?;
    let graph = Graph::load(Path::new(&file))?;
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for node in &graph.nodes {
        *counts.entry((&node.domain, &node.op)).or_default() += 1;
    }
    for ((domain, name), count) in counts {
        let known = operators::all().find(|operator| (operator.domain, operator.name) == (domain, name));
        let gradient = match &known {
            Some(operator) if operator.refused.is_empty() => format!("{:?}", operator.class),
            Some(operator) => format!("{:?}, except: {}", operator.class, operator.refused),
            None => "no rule: a graph is refused if a gradient passes this operator".to_string(),
        };
        println!("{count:6} {name:24} {gradient}");
    }
    Ok(())
}
