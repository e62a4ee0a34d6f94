//! HTML: one page, one file, no network and no script. It answers in this order: how robust, can I trust it, where is
//! it weak, show me, how was it measured.

mod compare;
mod examples;

pub use compare::render as comparison;

use super::escape::markup as escape;
use super::{Attack, Report, Score, digits, measures};
use crate::Result;
use crate::attack::ATTACKS;
use crate::check::Severity;
use crate::gate::{CheckResult, Kind};

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let s = &report.suite;
    let lead = format!(
        "{} attacked on {} images of {} classes ({}). Suite {}, {} form.",
        escape(&s.asked()),
        report.data.images,
        report.data.classes,
        escape(&report.data.source),
        escape(&s.name),
        escape(&s.form)
    );
    let sections =
        [robustness(report), trust(report), weaknesses(report), examples::section(report), measured(report)];
    Ok(page("Robustness audit", report.model_name(), &lead, &sections.concat()))
}

/// A whole page around sections of HTML; the title and the name are text.
pub fn page(eyebrow: &str, name: &str, lead: &str, sections: &str) -> Vec<u8> {
    let name = escape(name);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{eyebrow}: {name}</title>\n<link rel=\"icon\" \
         href=\"data:,\">\n<style>\n{}</style></head>\n<body>\n<header><p class=\"eyebrow\">{eyebrow}</p><h1>{name}</h1>\
         <p class=\"lead\">{lead}</p></header>\n<main>\n{sections}</main>\n<footer>Made by audit {}.</footer>\n</body>\
         </html>\n",
        include_str!("style.css"),
        env!("CARGO_PKG_VERSION")
    )
    .into_bytes()
}

/// How robust.
fn robustness(report: &Report) -> String {
    let mut out = String::new();
    if let Some(alarm) = report.alarm() {
        out +=
            &format!("<section class=\"card banner fail\"><strong>{}</strong></section>\n", escape(&alarm));
    }
    if let Some(gate) = &report.gate {
        let class = if gate.exit().is_some() { " fail" } else { "" };
        let rows: String = gate
            .checks
            .iter()
            .map(|c| {
                let class = match c.result {
                    CheckResult::Pass => "pass",
                    CheckResult::Warn => "warned",
                    CheckResult::Fail => "failed",
                };
                format!(
                    "<tr><td><span class=\"tag {class}\">{}</span></td><td><b>{}</b></td><td class=\"num\">{}</td></tr>",
                    c.result.word(),
                    escape(&c.metric),
                    escape(&c.text)
                )
            })
            .collect();
        let against =
            gate.baseline.as_ref().map_or(String::new(), |b| format!(" Baseline: {}.", escape(&b.model)));
        out += &format!(
            "<section class=\"card banner{class}\"><strong>{}</strong>{against}<table><tbody>{rows}</tbody></table>\
             </section>\n",
            escape(&capital(&gate.headline()))
        );
    }
    let baseline = |metric: &str| {
        let mut drops = report.gate.iter().flat_map(|g| &g.checks).filter(|c| c.kind == Kind::Drop);
        drops.find(|c| c.metric == metric).and_then(|c| c.baseline)
    };
    let score = |name: &str,
                 long: &str,
                 about: String,
                 value: f64,
                 interval: Option<(f64, f64)>,
                 metric: &str| {
        let said = interval.map_or(String::new(), |(l, h)| format!("95 % interval {l:.1} – {h:.1}"));
        let base = baseline(metric);
        let against = base.map_or(String::new(), |b| {
            format!("{}baseline {b:.1}", if said.is_empty() { "" } else { " · " })
        });
        format!(
            "<div class=\"card score\"><div class=\"name\">{long}</div><div class=\"value\" title=\"{name}\">{value:.1}\
             </div><div class=\"interval\">{said}{against}</div>{}<p class=\"about\">{about}</p></div>",
            scale(value, interval, base)
        )
    };
    let mut cards = String::new();
    if let Some(Score { value, interval, table, .. }) = &report.scores.ars {
        let table = table.map_or(String::new(), |t| format!(" As published tables print it: {t:.1}."));
        let about =
            format!("How much of what eight attacks try is withstood, relative to the clean start.{table}");
        cards += &score("ARS", "ARS, adversarial resistance", about, *value, *interval, "ars");
    }
    if let Some(Score { value, interval, .. }) = &report.scores.ers {
        let about = "Mean of ten after-attack results. A collapsed model can score high: read it with R@1.";
        cards += &score("ERS", "ERS, empirical robustness", about.into(), *value, *interval, "ers");
    }
    let b = &report.benign;
    let about = format!(
        "Retrieval that nobody attacks. R@2 {:.1}, mAP {:.1}, mAP@R {:.1}{}.",
        b.r2,
        b.map,
        b.map_at_r,
        b.nmi.map_or(String::new(), |v| format!(", NMI {v:.1}"))
    );
    cards += &score("R@1", "R@1 without attack, %", about, b.r1, None, "benign.r1");
    let notes: String =
        report.scores.notes.iter().map(|n| format!("<p>{}</p>", escape(&capital(n)))).collect();
    out + &format!(
        "<section><h2>How robust is it?</h2><p class=\"lead\">0 to 100; higher is more robust.</p>{notes}<div \
         class=\"scores\">{cards}</div></section>\n"
    )
}

/// A score on 0–100: its interval as a band, the baseline as a tick.
fn scale(value: f64, interval: Option<(f64, f64)>, baseline: Option<f64>) -> String {
    let at = |v: f64| v.clamp(0.0, 100.0);
    let band = interval.map_or(String::new(), |(l, h)| {
        let (x, w) = (at(l), at(h) - at(l));
        format!("<rect x=\"{x:.2}%\" width=\"{w:.2}%\" y=\"4\" height=\"10\" rx=\"3\" fill=\"var(--band)\"/>")
    });
    let tick = baseline.map_or(String::new(), |b| {
        let x = at(b);
        format!("<line x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"18\" stroke=\"var(--soft)\" stroke-width=\"2\" stroke-dasharray=\"3 2\"/>")
    });
    let x = at(value);
    format!(
        "<svg class=\"scale\" role=\"img\" aria-label=\"{value:.1} of 100\"><rect width=\"100%\" y=\"7\" height=\"4\" \
         rx=\"2\" fill=\"var(--track)\"/>{band}{tick}<circle cx=\"{x:.2}%\" cy=\"9\" r=\"6\" fill=\"var(--accent)\" \
         stroke=\"var(--card)\" stroke-width=\"2\"/><text x=\"0\" y=\"32\">0</text><text x=\"50%\" y=\"32\" \
         text-anchor=\"middle\">50</text><text x=\"100%\" y=\"32\" text-anchor=\"end\">100</text></svg>"
    )
}

/// Can I trust it.
fn trust(report: &Report) -> String {
    let finding = |class: &str, word: &str, text: String| {
        format!("<div class=\"finding\"><span class=\"tag {class}\">{word}</span><p>{text}</p></div>")
    };
    let mut gravest: Vec<_> = report.warnings.iter().collect();
    gravest.sort_by_key(|w| std::cmp::Reverse(w.severity));
    let mut rows: String = gravest
        .into_iter()
        .map(|w| {
            let (class, word) = match w.severity {
                Severity::Error => ("failed", "ERROR"),
                Severity::Warning => ("warned", "WARNING"),
                Severity::Info | Severity::Ok => ("quiet", "NOTE"),
            };
            finding(class, word, format!("{} <code>{}</code>", spans(&capital(&w.text)), escape(&w.id)))
        })
        .collect();
    let g = &report.model.gradient_check;
    let embedding = g.embedding_error.map(|e| {
        format!("Embeddings agree with the untouched model in ONNX Runtime to {e:.0e} of the largest value. ")
    });
    let gradient = g.gradient_error.map(|e| {
        format!(
            "The gradient agrees with finite differences to {:.2} % (median of {} directional derivatives).",
            100.0 * e,
            g.directions
        )
    });
    let refuted = report.errors().any(|w| ["parity", "gradient"].contains(&w.id.as_str()));
    if !refuted && (embedding.is_some() || gradient.is_some()) {
        rows += &finding(
            "pass",
            "CHECKED",
            embedding.unwrap_or_default() + gradient.as_deref().unwrap_or("The gradient was not checked."),
        );
    }
    let lead = match report.warnings.iter().filter(|w| w.severity > Severity::Info).count() {
        _ if report.errors().next().is_some() => {
            "No: what is found here leaves the numbers without a meaning."
        }
        0 => "Nothing found that casts doubt on the numbers.",
        1 => "One reason to be careful with the numbers.",
        _ => "Some reasons to be careful with the numbers.",
    };
    format!(
        "<section><h2>Can I trust it?</h2><p class=\"lead\">{lead}</p><div class=\"card\">{rows}</div></section>\n"
    )
}

/// Where it is weak.
fn weaknesses(report: &Report) -> String {
    let mut rows: Vec<&Attack> = report.attacks.iter().collect();
    let withstood = |a: &Attack| a.resistance.per_trial.or(a.ers_term).unwrap_or(f64::INFINITY);
    rows.sort_by(|a, b| withstood(a).total_cmp(&withstood(b)));
    let rows: String = rows.into_iter().map(row).collect();
    format!(
        "<section><h2>Where is it weak?</h2><p class=\"lead\">Weakest first: by resistance, or by its contribution to ERS \
         where there is none. Each line runs from what the attacker wants on the left to the opposite on the right.</p>\
         <div class=\"card\"><div class=\"legend\"><span><svg><circle cx=\"17\" cy=\"7\" r=\"5\" fill=\"var(--card)\" \
         stroke=\"var(--soft)\" stroke-width=\"2\"/></svg>before the attack</span><span><svg><rect y=\"2\" width=\"34\" \
         height=\"10\" rx=\"3\" fill=\"var(--bad-band)\"/><circle cx=\"17\" cy=\"7\" r=\"5\" fill=\"var(--bad)\"/></svg>after \
         it, with 95 % interval</span></div><table class=\"attacks\"><thead><tr><th>Attack</th><th class=\"plot\">Attacker \
         succeeds ⟵</th><th class=\"n\">before</th><th class=\"n\">after</th><th class=\"n\">resistance</th></tr></thead>\
         <tbody>{rows}</tbody></table></div></section>\n"
    )
}

fn row(a: &Attack) -> String {
    // Shares of the way from the attacker's goal (0) to the opposite end (100).
    let place = |v: f64| {
        let share = match a.code.as_str() {
            "CA-" | "QA-" => 100.0 - v,
            "TMA" => 100.0 * (1.0 - v) / 2.0,
            "ES:D" => 100.0 * (1.0 - v / 2.0),
            _ => v,
        };
        share.clamp(0.0, 100.0)
    };
    let before = if a.code == "ES:D" { Some(0.0) } else { a.before };
    let mut svg = String::from(
        "<line x1=\"0\" x2=\"100%\" y1=\"15\" y2=\"15\" stroke=\"var(--track)\" stroke-width=\"2\"/><line x1=\"0\" x2=\"0\" y1=\"8\" \
         y2=\"22\" stroke=\"var(--faint)\" stroke-width=\"2\"/>",
    );
    if let Some((l, h)) = a.after_interval {
        let (l, h) = (place(l).min(place(h)), place(l).max(place(h)));
        svg += &format!(
            "<rect x=\"{l:.2}%\" width=\"{:.2}%\" y=\"10\" height=\"10\" rx=\"3\" fill=\"var(--bad-band)\"/>",
            (h - l).max(0.3)
        );
    }
    if let Some((b, after)) = before.zip(a.after) {
        svg += &format!(
            "<line x1=\"{:.2}%\" x2=\"{:.2}%\" y1=\"15\" y2=\"15\" stroke=\"var(--bad)\" stroke-width=\"1.5\"/>",
            place(b),
            place(after)
        );
    }
    if let Some(b) = before {
        svg += &format!(
            "<circle cx=\"{:.2}%\" cy=\"15\" r=\"5\" fill=\"var(--card)\" stroke=\"var(--soft)\" stroke-width=\"2\"/>",
            place(b)
        );
    }
    if let Some(after) = a.after {
        svg += &format!("<circle cx=\"{:.2}%\" cy=\"15\" r=\"5.5\" fill=\"var(--bad)\"/>", place(after));
    }
    let digits = digits(&a.code);
    let number = |v: Option<f64>| v.map_or("–".into(), |v| format!("{v:.digits$}"));
    let (code, about) = (escape(&a.code), escape(about(&a.code)));
    let skipped = if a.skipped > 0 { format!(" · {} skipped", a.skipped) } else { String::new() };
    format!(
        "<tr><td class=\"attack\" title=\"{about}\"><b>{code}</b><span>{}{skipped}</span></td><td class=\"plot\"><svg \
         role=\"img\" aria-label=\"{code}: {} before, {} after\">{svg}</svg></td><td class=\"n\" data-name=\"before\">{}</td>\
         <td class=\"n\" data-name=\"after\"><b>{}</b></td><td class=\"n\" data-name=\"resistance\">{}</td></tr>",
        measures(&a.code),
        number(before),
        number(a.after),
        number(before),
        number(a.after),
        a.resistance.per_trial.map_or("–".into(), |v| format!("{v:.1} %"))
    )
}

/// What an attack does, in a sentence.
fn about(code: &str) -> &'static str {
    let attack = code.split(':').next().unwrap_or(code);
    ATTACKS.iter().find(|a| a.code == attack).map_or("", |a| a.about)
}

/// How it was measured.
fn measured(report: &Report) -> String {
    let (s, m, t) = (&report.suite, &report.model, &report.timing);
    let p = &m.preprocessing;
    let mut rows: Vec<(&str, String)> = vec![
        ("Model", format!("{}<br><code>sha256 {}</code>", escape(&m.path), escape(&m.sha256))),
        (
            "Embedding",
            format!("{} values from {}, compared by {}", m.dim, escape(&m.output), escape(&m.metric)),
        ),
        ("Preprocessing", p.words()),
        (
            "Data",
            format!(
                "{}: {} images, {} classes<br><code>sha256 {}</code>",
                escape(&report.data.source),
                report.data.images,
                report.data.classes,
                escape(&report.data.sha256)
            ),
        ),
        (
            "Budget",
            format!(
                "{}: ε {:.5} ({:.1}/255), {}{}, {} random start{}",
                escape(&s.protocol),
                s.eps,
                s.eps * 255.0,
                s.stepping(),
                s.in_half(),
                s.restarts,
                if s.restarts == 1 { "" } else { "s" }
            ),
        ),
        ("Definitions", format!("{} form", escape(&s.form))),
        ("Seed", report.seed.to_string()),
        (
            "Tool",
            format!(
                "{} {}, {} on {}",
                escape(&report.tool.name),
                escape(&report.tool.version),
                escape(&report.tool.runtime),
                escape(&report.tool.machine())
            ),
        ),
        (
            "Time",
            format!(
                "{:.0} s, of which attacks {:.0} s; {} images per model run",
                t.total_s, t.attacks_s, t.batch
            ),
        ),
    ];
    for (name, text) in [("Licence", &m.licence), ("Source", &m.source)] {
        rows.extend(text.as_ref().map(|t| (name, escape(t))));
    }
    rows.extend(report.command.as_ref().map(|c| ("Command", format!("<code>{}</code>", escape(c)))));
    let rows: String =
        rows.into_iter().map(|(k, v)| format!("<dt>{k}</dt><dd class=\"num\">{v}</dd>")).collect();
    format!(
        "<section><h2>How was it measured?</h2><p class=\"lead\">Intervals: bootstrap over queries, the same resamples for \
             all attacks.</p><div class=\"card\"><dl>{rows}</dl></div></section>\n"
    )
}

/// Text in which `backticks` enclose code.
fn spans(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // An odd one encloses nothing.
    if parts.len().is_multiple_of(2) {
        return escape(text);
    }
    let span = |(i, part): (usize, &&str)| match i % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    };
    parts.iter().enumerate().map(span).collect()
}

/// With its first letter upper case.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    // An ε stays one.
    chars.next().map_or(String::new(), |c| std::iter::once(c.to_ascii_uppercase()).chain(chars).collect())
}
