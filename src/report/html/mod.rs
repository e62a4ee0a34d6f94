//! The report as HTML: one page in one file, without network access or scripts. The sections answer these questions in
//! order: how robust is the model, can I trust the result, where is the model weak, what do attacks look like, how was
//! it measured.

mod compare;
mod examples;
mod page;

pub use compare::render as comparison;
pub use page::page;

use super::shown::{about, bound, measures, number, stepping};
use crate::Result;
use crate::judge::quantity::{ARS, ERS, Quantity, R1};
use crate::record::{Attack, CheckResult, Kind, Report, Score, Severity, Verdict, reason};
use crate::threat::term::Term;
use maud::{Markup, html};
use page::{at, band, finding, section, sentence};

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let s = &report.suite;
    let lead = html! {
        (s.asked()) " attacked on " (report.data.images) " images of " (report.data.classes) " classes ("
        (report.data.source) "). Suite " (s.name) ", " (s.form) " form."
    };
    let sections = html! {
        (robustness(report)) (trust(report)) (weaknesses(report)) (examples::section(report)) (measured(report))
    };
    Ok(page("Robustness audit", report.model_name(), &lead.into_string(), &sections.into_string()))
}

/// The section on robustness.
fn robustness(report: &Report) -> Markup {
    let b = &report.benign;
    let nmi = b.nmi.map_or(String::new(), |v| format!(", NMI {v:.1}"));
    let retrieval = format!(
        "Retrieval that nobody attacks. R@2 {:.1}, mAP {:.1}, mAP@R {:.1}{nmi}.",
        b.r2, b.map, b.map_at_r
    );
    let cards = html! {
        @for note in &report.scores.notes { p { (sentence(note)) } }
        .scores {
            @if let Some(Score { table, .. }) = &report.scores.ars {
                @let table = table.map_or(String::new(), |t| format!(" As published tables print it: {t:.1}."));
                (score(report, ARS, "ARS", "ARS, adversarial resistance",
                    &format!("How much of what eight attacks try is withstood, relative to the clean start.{table}")))
            }
            @if report.scores.ers.is_some() {
                (score(report, ERS, "ERS", "ERS, empirical robustness",
                    "Mean of ten after-attack results. A collapsed model can score high: read it with R@1."))
            }
            (score(report, R1, "R@1", "R@1 without attack, %", &retrieval))
        }
    };
    html! {
        @if let Some(alarm) = report.alarm() { section.card.banner.fail { strong { (alarm) } } }
        @if let Some(gate) = &report.gate { (banner(gate)) }
        (section("How robust is it?", "0 to 100; higher is more robust.", cards))
    }
}

/// The result of the gate.
fn banner(gate: &Verdict) -> Markup {
    html! {
        section.card.banner.fail[gate.exit().is_some()] {
            strong { (sentence(&gate.headline())) }
            @if let Some(b) = &gate.baseline { " Baseline: " (b.model) "." }
            table { tbody {
                @for c in &gate.checks {
                    @let class = match c.result {
                        CheckResult::Pass => "pass",
                        CheckResult::Warn => "warned",
                        CheckResult::Fail => "failed",
                    };
                    tr { td { span.tag.(class) { (c.result.word()) } } td { b { (c.metric) } } td.num { (c.text) } }
                }
            } }
        }
    }
}

/// A number on its scale from 0 to 100, with its interval as a band and the baseline as a tick.
fn score(report: &Report, of: Quantity, name: &str, long: &str, about: &str) -> Markup {
    let Some(value) = of.value(report) else { return Markup::default() };
    let interval = of.interval(report);
    let mut drops = report.gate.iter().flat_map(|g| &g.checks).filter(|c| c.kind == Kind::Drop);
    let base = drops.find(|c| c.metric == of.name()).and_then(|c| c.baseline);
    let said = interval.map(|(l, h)| format!("95 % interval {l:.1} – {h:.1}"));
    let said: Vec<String> = said.into_iter().chain(base.map(|b| format!("baseline {b:.1}"))).collect();
    let share = |v: f64| v.clamp(0.0, 100.0);
    let x = at(share(value));
    html! {
        .card.score {
            .name { (long) }
            .value title=(name) { (format!("{value:.1}")) }
            .interval { (said.join(" · ")) }
            svg.scale role="img" aria-label=(format!("{value:.1} of 100")) {
                rect width="100%" y="7" height="4" rx="2" fill="var(--track)" {}
                @if let Some((l, h)) = interval {
                    rect x=(at(share(l))) width=(at(share(h) - share(l))) y="4" height="10" rx="3" fill="var(--band)" {}
                }
                @if let Some(x) = base.map(|b| at(share(b))) {
                    line x1=(x) x2=(x) y1="0" y2="18" stroke="var(--soft)" stroke-width="2" stroke-dasharray="3 2" {}
                }
                circle cx=(x) cy="9" r="6" fill="var(--accent)" stroke="var(--card)" stroke-width="2" {}
                text x="0" y="32" { "0" }
                text x="50%" y="32" text-anchor="middle" { "50" }
                text x="100%" y="32" text-anchor="end" { "100" }
            }
            p.about { (about) }
        }
    }
}

/// The section on trust.
fn trust(report: &Report) -> Markup {
    let mut gravest: Vec<_> = report.warnings.iter().collect();
    gravest.sort_by_key(|w| std::cmp::Reverse(w.severity));
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
    let refuted = report.errors().any(|w| reason::PARITY.made(w) || reason::GRADIENT.made(w));
    let lead = match report.warnings.iter().filter(|w| w.severity > Severity::Info).count() {
        _ if report.errors().next().is_some() => {
            "No: what is found here leaves the numbers without a meaning."
        }
        0 => "Nothing found that casts doubt on the numbers.",
        1 => "One reason to be careful with the numbers.",
        _ => "Some reasons to be careful with the numbers.",
    };
    let rows = html! {
        .card {
            @for w in gravest {
                @let (class, word) = match w.severity {
                    Severity::Error => ("failed", "ERROR"),
                    Severity::Warning => ("warned", "WARNING"),
                    Severity::Info | Severity::Ok => ("quiet", "NOTE"),
                };
                (finding(class, word, html! { (sentence(&w.text)) " " code { (w.id) } }))
            }
            @if !refuted && (embedding.is_some() || gradient.is_some()) {
                @let gradient = gradient.as_deref().unwrap_or("The gradient was not checked.");
                (finding("pass", "CHECKED", html! { (embedding.unwrap_or_default()) (gradient) }))
            }
        }
    };
    section("Can I trust it?", lead, rows)
}

/// The section on weaknesses.
fn weaknesses(report: &Report) -> Markup {
    let mut rows: Vec<&Attack> = report.attacks.iter().collect();
    let withstood = |a: &Attack| a.resistance.per_trial.or(a.ers_term).unwrap_or(f64::INFINITY);
    rows.sort_by(|a, b| withstood(a).total_cmp(&withstood(b)));
    let table = html! {
        .card {
            .legend {
                span {
                    svg { circle cx="17" cy="7" r="5" fill="var(--card)" stroke="var(--soft)" stroke-width="2" {} }
                    "before the attack"
                }
                span {
                    svg {
                        rect y="2" width="34" height="10" rx="3" fill="var(--bad-band)" {}
                        circle cx="17" cy="7" r="5" fill="var(--bad)" {}
                    }
                    "after it, with 95 % interval"
                }
            }
            table.attacks {
                thead { tr {
                    th { "Attack" }
                    th.plot { "Attacker succeeds ⟵" }
                    th.n { "before" }
                    th.n { "after" }
                    th.n { "resistance" }
                } }
                tbody { @for a in rows { (row(a)) } }
            }
        }
    };
    let lead = "Weakest first: by resistance, or by its contribution to ERS where there is none. Each line runs from what \
                the attacker wants on the left to the opposite on the right.";
    section("Where is it weak?", lead, table)
}

fn row(a: &Attack) -> Markup {
    let term = Term::find(&a.code);
    // The position from 0, the attacker's goal, to 100, the opposite end.
    let place = |v: f64| term.map_or(v, |t| t.standing(v)).clamp(0.0, 100.0);
    // A term without a meaningful value before the attack starts at the attacker's worst value.
    let before = a.before.or_else(|| a.after.and(term).map(Term::untouched));
    let (shown_before, shown_after) = (number(a, before), number(a, a.after));
    html! {
        tr {
            td.attack title=(about(&a.code)) {
                b { (a.code) }
                span { (measures(a)) @if a.skipped > 0 { " · " (a.skipped) " skipped" } }
            }
            td.plot {
                svg role="img" aria-label=(format!("{}: {shown_before} before, {shown_after} after", a.code)) {
                    line x1="0" x2="100%" y1="15" y2="15" stroke="var(--track)" stroke-width="2" {}
                    line x1="0" x2="0" y1="8" y2="22" stroke="var(--faint)" stroke-width="2" {}
                    @if let Some((l, h)) = a.after_interval { (band(place(l), place(h), "bad-band")) }
                    @if let Some((b, after)) = before.zip(a.after) {
                        line x1=(at(place(b))) x2=(at(place(after))) y1="15" y2="15" stroke="var(--bad)" stroke-width="1.5" {}
                    }
                    @if let Some(b) = before {
                        circle cx=(at(place(b))) cy="15" r="5" fill="var(--card)" stroke="var(--soft)" stroke-width="2" {}
                    }
                    @if let Some(after) = a.after { circle cx=(at(place(after))) cy="15" r="5.5" fill="var(--bad)" {} }
                }
            }
            td.n data-name="before" { (shown_before) }
            td.n data-name="after" { b { (shown_after) } }
            td.n data-name="resistance" { (a.resistance.per_trial.map_or("–".into(), |v| format!("{v:.1} %"))) }
        }
    }
}

/// The section on the method.
fn measured(report: &Report) -> Markup {
    let (s, m, t, d) = (&report.suite, &report.model, &report.timing, &report.data);
    let starts = if s.restarts == 1 { "start" } else { "starts" };
    let mut rows: Vec<(&str, Markup)> = vec![
        ("Model", html! { (m.path) br; code { "sha256 " (m.sha256) } }),
        ("Embedding", html! { (m.dim) " values from " (m.output) ", compared by " (m.metric) }),
        ("Preprocessing", html! { (m.preprocessing.words()) }),
        (
            "Data",
            html! { (d.source) ": " (d.images) " images, " (d.classes) " classes" br; code { "sha256 " (d.sha256) } },
        ),
        (
            "Budget",
            html! {
                (s.protocol) ": ε " (bound(s)) ", "
                (stepping(s)) (s.in_half()) ", " (s.restarts) " random " (starts)
            },
        ),
        ("Definitions", html! { (s.form) " form" }),
        ("Seed", html! { (report.seed) }),
        ("Tool", html! { (report.tool.in_words()) }),
        (
            "Time",
            html! {
                (format!("{:.0} s, of which attacks {:.0} s; {} images per model run", t.total_s, t.attacks_s, t.batch))
            },
        ),
    ];
    for (name, text) in [("Licence", &m.licence), ("Source", &m.source)] {
        rows.extend(text.as_ref().map(|text| (name, html! { (text) })));
    }
    rows.extend(report.command.as_ref().map(|c| ("Command", html! { code { (c) } })));
    let list = html! {
        .card { dl { @for (name, value) in rows { dt { (name) } dd.num { (value) } } } }
    };
    let lead = "Intervals: bootstrap over queries, the same resamples for all attacks.";
    section("How was it measured?", lead, list)
}
