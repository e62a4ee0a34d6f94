//! The report as a bill of materials for a model: CycloneDX 1.6, with the numbers as the model card's
//! quantitative analysis.

use super::catalogues::references;
use super::view::{bound_in_norm, stepping};
use audit_base::Result;
use audit_report::judge::quantity::Quantity;
use audit_report::judge::row::State;
use audit_report::judge::strong::Contradictions;
use audit_report::record::{Report, Severity, number_of_queries};
use serde_json::{Value, json};

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let model = &report.model;
    let sha256 = |content: &str| json!([{ "alg": "SHA-256", "content": content }]);
    let found = report.warnings.iter().filter(|w| w.severity > Severity::Info);
    let limitations: Vec<String> = found.map(|w| format!("{}: {}", w.id, w.text)).collect();
    let mut properties = vec![
        property("suite", &format!("{} ({} form)", report.suite.name, report.suite.form)),
        property("perturbation", &format!("at most {}", bound_in_norm(&report.suite))),
        property("search", &stepping(report)),
        property("queries", &report.suite.queries_in_words()),
        property("runtime", &report.tool.in_words()),
    ];
    if let (Some(net), Some(bytes)) = (&model.net_sha256, model.bytes) {
        properties.push(property("net_sha256", net));
        properties.push(property("bytes", &bytes.to_string()));
    }
    properties.extend(references(report).map(|r| property("reference", &r.line())));
    let mut component = json!({
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": report.model_name(),
        "hashes": sha256(&model.sha256),
        "modelCard": {
            "modelParameters": {
                "task": "image retrieval",
                "datasets": [{ "ref": "data" }],
                "inputs": model.inputs.iter().map(|input| json!({ "format": input })).collect::<Vec<_>>(),
                "outputs": [{ "format": format!("{} [{}]", model.output, model.dim) }]
            },
            "quantitativeAnalysis": { "performanceMetrics": metrics(report) },
            "considerations": { "technicalLimitations": limitations },
            "properties": properties
        }
    });
    if let Some(licence) = &model.licence {
        component["licenses"] = json!([{ "license": { "name": licence } }]);
    }
    let data = json!({
        "type": "data",
        "bom-ref": "data",
        "name": report.data.source,
        "hashes": sha256(&report.data.sha256),
        "description": format!("{} images of {}", report.data.images, report.data.in_classes())
    });
    let tool = json!({ "type": "application", "name": report.tool.name, "version": report.tool.version });
    super::json::pretty(&json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "tools": { "components": [tool] }, "component": component },
        "components": [data],
        "dependencies": [{ "ref": "model", "dependsOn": ["data"] }]
    }))
}

fn property(name: &str, value: &str) -> Value {
    json!({ "name": format!("audit:{name}"), "value": value })
}

/// Every number. Its slice says what takes it back.
fn metrics(report: &Report) -> Vec<Value> {
    let known = Contradictions::of(report);
    let row = |quantity: &'static Quantity| {
        let row = quantity.row(report).as_length();
        // A score that is withheld has no value here, and says why.
        let mut metric = match row.state {
            State::NotMeasured => return None,
            State::Withheld => json!({ "type": quantity.name }),
            State::Measured => json!({ "type": quantity.name, "value": row.number() }),
        };
        if let Some((low, high)) = row.interval {
            metric["confidenceInterval"] =
                json!({ "lowerBound": row.shown(low), "upperBound": row.shown(high) });
        }
        let mark = row.mark(&known).map(|mark| format!("; {}", mark.text())).unwrap_or_default();
        let at = row.budget.map(|budget| format!("; ε {budget}"));
        let at = at.or(row.norm.map(|norm| format!("; {norm}"))).unwrap_or_default();
        let why = row.why.map(|why| format!(": {why}")).unwrap_or_default();
        metric["slice"] = format!("{}{at}{mark}{why}", number_of_queries(row.queries)).into();
        Some(metric)
    };
    Quantity::of(report).filter_map(row).collect()
}
