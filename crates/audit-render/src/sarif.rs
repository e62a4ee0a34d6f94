//! SARIF 2.1.0 for code scanning. It contains failed checks and findings, and no passed checks. The first
//! numbers are properties of the run.

use super::catalogues::references;
use super::headline::headlines;
use super::view::capital;
use audit_base::Result;
use audit_base::files::hex;
use audit_report::judge::quantity::Quantity;
use audit_report::record::reason::REASONS;
use audit_report::record::{CheckResult, GateCheck, Report, Severity, source};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let mut rules: Vec<Value> = Vec::new();
    let mut results: Vec<Value> = Vec::new();
    let tags: Vec<String> = references(report).map(|r| r.tag()).collect();
    let mut add = |id: String, about: About, level: &str, text: &str| {
        let at = rules.iter().position(|r| r["id"] == id.as_str()).unwrap_or_else(|| {
            let mut rule = about.rule(&id);
            rule["properties"] = json!({ "tags": tags });
            rules.push(rule);
            rules.len() - 1
        });
        // The fingerprint is the same in all runs and on all machines, so that code scanning recognises an
        // alert. It therefore contains no numbers.
        let fingerprint = Sha256::digest(format!("{}\n{id}", report.model_name()));
        results.push(json!({
            "ruleId": id,
            "ruleIndex": at,
            "level": level,
            "message": { "text": unlinked(&format!("{}: {text}", report.model_name())) },
            "locations": [{
                "physicalLocation": {
                    "artifactLocation": { "uri": uri(&report.model.path) },
                    "region": { "startLine": 1 }
                }
            }],
            "partialFingerprints": { "auditFinding/v1": hex(&fingerprint) }
        }));
    };
    for c in report.gate.iter().flat_map(|g| &g.checks) {
        let level = match c.result {
            CheckResult::Pass => continue,
            CheckResult::Warn => "warning",
            CheckResult::Fail => "error",
        };
        let id = format!("gate/{}/{}", c.metric, c.kind.name());
        add(id, About::check(c)?, level, &format!("{} {}", c.metric, c.text));
    }
    for w in report.warnings.iter().filter(|w| w.severity > Severity::Info) {
        let level = if report.fails_by(w) { "error" } else { "warning" };
        add(format!("trust/{}", w.id), About::reason(&w.id), level, &w.text);
    }
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": report.tool.name,
                "version": report.tool.version,
                "rules": rules
            } },
            "results": results,
            "properties": properties(report)
        }]
    });
    super::json::pretty(&log)
}

/// Description of a rule.
struct About {
    short: String,
    /// The question, and the advice.
    help: String,
    /// The page of this program's documentation, in its repository.
    page: &'static str,
    /// Address of the text that defines what the rule is about.
    source: &'static str,
}

impl About {
    /// Of a check of the gate. Error: no quantity has its name.
    fn check(check: &GateCheck) -> Result<About> {
        let (metric, kind) = (&check.metric, check.kind.name());
        Ok(About {
            short: format!("the gate's {kind} of {metric}"),
            help: format!(
                "A gate demands something of the metric `{metric}` of a model, and this demand is not met. Look at what changed in the \
                 model; a demand that is wrong stands in the suite's gate section or in the flags of the audit"
            ),
            page: "docs/ci.md#the-gate",
            source: Quantity::find(metric)?.source,
        })
    }

    /// Of a reason to distrust.
    fn reason(id: &str) -> About {
        let row = REASONS.iter().find(|reason| reason.id == id);
        let help =
            row.map_or("A reason to distrust that only a later version knows".into(), |reason| match reason
                .advice
            {
                "" => reason.asks.to_string(),
                advice => format!("{} If not: {advice}", reason.asks),
            });
        About {
            short: format!("reason to distrust: {id}"),
            help,
            page: "docs/trust.md",
            source: row.map_or(source::EVALUATING, |reason| reason.source),
        }
    }

    /// The rule. SARIF wants a whole address as its URI: it is that of the source.
    fn rule(&self, id: &str) -> Value {
        let About { short, help, page, source } = self;
        let end = if help.ends_with(['.', '?']) { "" } else { "." };
        let help = format!("{help}{end} See {page}.");
        json!({
            "id": id,
            "name": id.split(['/', '-', '_', '.']).map(capital).collect::<String>(),
            "shortDescription": { "text": short },
            "fullDescription": { "text": help },
            "help": { "text": help, "markdown": help },
            "helpUri": source
        })
    }
}

/// The first numbers, by the names that gates know them by, and the gate's note.
fn properties(report: &Report) -> Value {
    let mut bag = json!({});
    if let Some(caveat) = report.caveat() {
        bag["caveat"] = caveat.into();
    }
    for f in headlines(report) {
        let unit = |value| f.row.in_shown_unit(value);
        bag[f.row.quantity.name] = json!({
            "name": f.label,
            "value": f.row.value.map(unit),
            "above": f.row.is_above(),
            "interval": f.row.interval.map(|(low, high)| (unit(low), unit(high))),
            "queries": f.row.queries,
            "text": f.line()
        });
    }
    if let Some(note) = report.gate.as_ref().and_then(|gate| gate.note.as_ref()) {
        bag["gate.note"] = note.as_str().into();
    }
    bag
}

/// A message without links. In SARIF `[text](address)` is one in plain text too (2.1.0, section 3.11.6), and
/// a name of a model or of an image may look like it.
fn unlinked(text: &str) -> String {
    text.replace("](", "] (")
}

/// A relative URI. Code scanning places alerts in the repository, so a path outside of it cannot be used.
fn uri(path: &str) -> String {
    let plain = path.replace('\\', "/");
    let plain = plain.strip_prefix("./").unwrap_or(&plain);
    let outside = plain.starts_with('/') || plain.contains(':') || plain.split('/').any(|part| part == "..");
    let inside = if outside { plain.rsplit('/').next().unwrap_or(plain) } else { plain };
    let mut out = String::new();
    for b in inside.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => out.push(b as char),
            b => out += &format!("%{b:02X}"),
        }
    }
    out
}
