//! Audits a model file from Rust, and writes a report as HTML and as JSON:
//!
//! ```text
//! cargo run --release --example audit_file -- models/hardened.onnx
//! ```

use audit::{Request, Result};

fn main() -> Result<()> {
    let model = std::env::args().nth(1).unwrap_or("models/plain.onnx".into());
    // The suite `smoke` on 24 of the images that the program generates; `.data("photos/")` takes images of
    // your own.
    let request = Request::model(&model)
        .suite("smoke")
        .max_queries(24)
        .report("target/audit_file.html")
        .report("target/audit_file.json");
    let report = audit::run(&request)?;

    if let Some(benign) = &report.benign {
        println!("{model}: clean R@1 {:.1} %", benign.r1);
    }
    match &report.scores.robust_r1 {
        Some(robust) => {
            let interval =
                robust.interval.map_or(String::new(), |(low, high)| format!(" (95 % {low:.1} – {high:.1})"));
            println!("robust R@1 {:.1} %{interval} of {} queries", robust.value, robust.queries);
        }
        None => println!("robust R@1 was not measured"),
    }
    for finding in &report.warnings {
        println!("{}: {}", finding.id, finding.text);
    }
    Ok(())
}
