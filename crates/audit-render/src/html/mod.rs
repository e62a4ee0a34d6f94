//! The report as HTML: one page in one file, without network access. It is complete without its script. The
//! verdict in words comes first, with the next steps. The sections answer these questions in order: how
//! robust is the model, what does an attack look like, can I trust the result, where is the model weak, which
//! classes and queries fall first, what do natural corruptions cost, whom does it accept. The others are
//! folded: published models, how far attacks get, what attacked queries find, which attacks decided it, more
//! examples, how it was measured.

mod curves;
pub mod examples;
pub mod page;
mod retrieval;
mod strong;
mod verdict;
mod weakest;

pub use page::page;

use super::headline::{Headline, headlines, scored};
use super::sections::SECTIONS;
use super::view::{
    about, about_ladder, bound, capital, crafted, dashed, ladder, measures, not_run, numbers, stepping,
    strong_sample, under_attack,
};
use audit_base::Result;
use audit_report::facts::is_robust_term;
use audit_report::facts::term::Term;
use audit_report::judge::quantity::Quantity;
use audit_report::judge::row::{AttackRow, DASH, alarm, masked};
use audit_report::record::{Attack, CheckResult, GateCheckKind, Report, Severity, State, Verdict, reason};
use maud::{Markup, html};
use page::{at, band, check_finding, conditions, finding, scripted, section, sentence};

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let s = &report.suite;
    let lead = html! {
        (report.data.images) " images, " (report.data.in_classes()) " (" (report.data.source) "). Attacked: " (s.queries_in_words())
        ". Suite " (s.name) ", " (s.form) " form" (report.timing.day()) "."
    };
    let measured_beside = SECTIONS.iter().filter_map(|section| section.page);
    let sections = html! {
        (alarms(report)) (verdict::card(report)?) (robustness(report)) (examples::one(report)) (trust(report)) (weaknesses(report))
        (weakest::section(report)) @for page in measured_beside { (page(report)) } (verdict::published(report)?)
        (curves::section(report)) (retrieval::section(report)) (strong::section(report)) (examples::section(report)) (measured(report))
    };
    Ok(scripted("Robustness audit", report.model_name(), &lead.into_string(), &sections.into_string()))
}

/// How the attacks were limited, so that the numbers are not read as those of white-box attacks. Stands above
/// everything else.
fn alarms(report: &Report) -> Markup {
    html! {
        @if let Some(alarm) = alarm(report) { section.card.banner.fail { strong { (alarm) } } }
        @if let Some(caveat) = report.caveat() { section.card.banner { strong { (sentence(&caveat)) "." } } }
    }
}

fn robustness(report: &Report) -> Markup {
    let first = headlines(report);
    let own = if scored(&first) { Vec::new() } else { under_attack(report) };
    let lead = match own.is_empty() {
        true => "Higher is more robust.",
        // Of wrong decisions, for example, lower is.
        false => "First what the attacks change. Of the numbers below it, higher is more robust.",
    };
    let cards = html! {
        @for note in &report.scores.notes { p { (sentence(note)) } }
        @for text in &own { p { b { (sentence(text)) "." } } }
        .scores { @for first in &first { (score(report, first)) } }
        @if let Some((rungs, chart)) = ladder(report).zip(curves::ladder(report)) {
            .card.rungs {
                (chart)
                @if let Some(files) = dashed(report) { p.note { "Dashed: " (files) "." } }
                details { summary { "All numbers" } p { (sentence(&about_ladder(report))) "." } (page::table(&rungs)) }
            }
        }
    };
    html! {
        @if let Some(gate) = &report.gate { (banner(gate)) }
        (section("How robust is it?", lead, cards))
    }
}

/// The result of the gate.
fn banner(gate: &Verdict) -> Markup {
    html! {
        section.card.banner.gate.fail[gate.exit().is_some()] {
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
            @if let Some(note) = &gate.note { p.note { "Note: " (note) "." } }
        }
    }
}

/// A number on its scale from 0 to 100, with its interval as a band and the baseline as a tick.
fn score(report: &Report, first: &Headline) -> Markup {
    let mut drops = report.gate.iter().flat_map(|g| &g.checks).filter(|c| c.kind == GateCheckKind::Drop);
    let row = &first.row;
    let check = drops.find(|c| c.metric == row.quantity.name && !c.withheld);
    let base = check.and_then(|c| c.baseline);
    let above = if check.is_some_and(|c| c.baseline_above) { "above " } else { "" };
    let baseline = base.map(|b| format!("baseline {above}{}", row.shown(b)));
    let details: Vec<String> = first.queries().into_iter().chain(baseline).collect();
    // A number stays with its unit.
    let remark = |text: &str| format!("{}. ", capital(text).replace(" %", "\u{a0}%"));
    html! {
        .card.score.void[row.void] {
            .name { (first.label) @if let Some(mark) = first.mark() { " " span.mark { (mark) } } }
            .value title=(first.label) { @if row.void { s { (row.number()) } } @else { (row.number()) } }
            .interval { (details.join(" · ")) br; (first.spread().unwrap_or_default()) }
            @if let (Some(value), [_, 100.0]) = (row.value, row.quantity.range) { (scale(value, row.interval, base)) }
            @if !first.remarks.is_empty() {
                p.remark.failed[first.mark.is_some()] { @for r in first.advised() { (remark(&r)) } }
            }
            p.about { (first.meaning) }
        }
    }
}

fn scale(value: f64, interval: Option<(f64, f64)>, base: Option<f64>) -> Markup {
    let share = |v: f64| v.clamp(0.0, 100.0);
    let x = at(share(value));
    html! {
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
    }
}

fn trust(report: &Report) -> Markup {
    let mut gravest: Vec<_> = report.warnings.iter().collect();
    gravest.sort_by_key(|w| std::cmp::Reverse(w.severity));
    let g = &report.model.gradient_check;
    let embedding = g.embedding_error.map(|e| {
        match e {
            0.0 => "Embeddings are exactly those of the untouched model in ONNX Runtime. ".to_string(),
            _ => format!(
                "Embeddings differ from those of the untouched model in ONNX Runtime by at most {e:.0e} of the largest value. "
            ),
        }
    });
    let gradient = g.gradient_error.map(|e| {
        format!(
            "The gradient agrees with finite differences to {:.2} % (median of {} directional derivatives).",
            100.0 * e,
            g.directions
        )
    });
    let refuted = report.errors().any(|w| reason::PARITY.made(w) || reason::GRADIENT.made(w));
    let gaps = report.warnings.iter().any(|w| w.state == State::NotChecked);
    let lead = match report.warnings.iter().filter(|w| w.severity > Severity::Info).count() {
        _ if masked(report) && report.errors().count() == 1 => {
            "No: the model masks its gradient, so that scores of attacks along it are invalid. Read robust R@1."
        }
        _ if report.errors().next().is_some() => "No: the findings below invalidate the numbers.",
        0 if gaps => "No check that ran casts doubt on the numbers. Some checks did not run.",
        0 => "Nothing found that casts doubt on the numbers.",
        1 => "One reason to be careful with the numbers.",
        _ => "Some reasons to be careful with the numbers.",
    };
    let rows = html! {
        .card {
            @for w in gravest {
                (check_finding(w.severity, w.word(), html! { (sentence(&w.text)) " " code { (w.id) } }))
            }
            @if !refuted && (embedding.is_some() || gradient.is_some()) {
                @let gradient = gradient.as_deref().unwrap_or("The gradient was not checked.");
                (finding("pass", "CHECKED", html! { (embedding.unwrap_or_default()) (gradient) }))
            }
        }
    };
    section("Can I trust it?", lead, rows)
}

/// The section on weaknesses; empty if robust R@1, which stands above, is all that was attacked.
fn weaknesses(report: &Report) -> Markup {
    let mut rows: Vec<&Attack> = report.attacks.iter().collect();
    if report.attacks.iter().all(|row| is_robust_term(&row.code)) {
        return Markup::default();
    }
    let withstood = |a: &Attack| numbers(report, a).resistance.or(a.ers_term).unwrap_or(f64::INFINITY);
    rows.sort_by(|a, b| withstood(a).total_cmp(&withstood(b)));
    let table = html! {
        .card {
            .legend {
                span {
                    svg { circle cx="17" cy="7" r="5" fill="var(--card)" stroke="var(--soft)" stroke-width="2" {} }
                    "without an attack"
                }
                span {
                    svg {
                        rect y="2" width="34" height="10" rx="3" fill="var(--bad-band)" {}
                        circle cx="17" cy="7" r="5" fill="var(--bad)" {}
                    }
                    "under attack, with 95 % interval"
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
                tbody { @for a in rows { (row(report, a)) } }
            }
        }
    };
    let lead = "Weakest first: by resistance or, without one, by the term of ERS. Each line runs from the attacker's goal on the left to the opposite on the right.";
    section("Where is it weak?", lead, table)
}

fn row(report: &Report, a: &Attack) -> Markup {
    let term = Term::find(&a.code);
    // The position from 0, the attacker's goal, to 100, the opposite end.
    let place = |v: f64| term.map_or(v, |t| t.standing(v)).clamp(0.0, 100.0);
    // The line of a term without a meaningful value before the attack starts at the attacker's worst value.
    let before = a.before.or_else(|| a.after.and(term).map(Term::untouched));
    let found = numbers(report, a);
    let (shown_before, shown_after) = (found.number(a.before), found.cell());
    let AttackRow { after: measured, interval, resistance, .. } = found;
    html! {
        tr {
            td.attack title=(about(&a.code)) {
                b { (a.code) }
                @let not_run = not_run(a);
                span { (measures(report, a)) @if not_run > 0 { " · " (not_run) " could not be run" } }
            }
            td.plot {
                svg role="img" aria-label=(format!("{}: {shown_before} before, {shown_after} after", a.code)) {
                    line x1="0" x2="100%" y1="15" y2="15" stroke="var(--track)" stroke-width="2" {}
                    line x1="0" x2="0" y1="8" y2="22" stroke="var(--faint)" stroke-width="2" {}
                    @if let Some((l, h)) = interval { (band(place(l), place(h), "bad-band")) }
                    @if let Some((b, after)) = before.zip(measured) {
                        line x1=(at(place(b))) x2=(at(place(after))) y1="15" y2="15" stroke="var(--bad)" stroke-width="1.5" {}
                    }
                    @if let Some(b) = before {
                        circle cx=(at(place(b))) cy="15" r="5" fill="var(--card)" stroke="var(--soft)" stroke-width="2" {}
                    }
                    @if let Some(after) = measured { circle cx=(at(place(after))) cy="15" r="5.5" fill="var(--bad)" {} }
                }
            }
            td.n data-name="before" { (shown_before) }
            td.n data-name="after" { b { (shown_after) } }
            td.n data-name="resistance" { (resistance.map_or(DASH.into(), |v| format!("{v:.1} %"))) }
        }
    }
}

/// The section on the method.
fn measured(report: &Report) -> Markup {
    let (s, m, t) = (&report.suite, &report.model, &report.timing);
    let mut rows: Vec<(&str, Markup)> = vec![
        ("Budget", html! { (s.protocol) ": ε " (bound(s)) ", " (stepping(report)) }),
        ("Definitions", html! { (s.form) " form" }),
        ("Seed", html! { (report.seed) }),
        ("Tool", html! { (report.tool.in_words()) }),
        (
            "Time",
            html! {
                @if !t.began.is_empty() { "began " (t.began.replace(['T', 'Z'], " ")) "UTC; " }
                (format!("{:.0} s, of which attacks {:.0} s; {} images per model run", t.total_s, t.attacks_s, t.batch))
            },
        ),
    ];
    for (name, text) in [("Licence", &m.licence), ("Source", &m.source)] {
        rows.extend(text.as_ref().map(|text| (name, html! { (text) })));
    }
    if let Some(sample) = strong_sample(report) {
        rows.insert(1, ("Strong search", html! { (Quantity::robust(report).label) " " (sample) }));
    }
    for text in crafted(report) {
        rows.insert(1, ("Crafted", html! { (capital(&text)) "." }));
    }
    rows.extend(report.command.as_ref().map(|c| ("Command", html! { code { (c) } })));
    let of = if report.data.has_classes() { "of these classes" } else { "like these" };
    let lead = format!(
        "95 % intervals are for new queries {of}. Shares of queries: Wilson. The weakest classes and groups: \
         Clopper and Pearson. All others: bootstrap over queries, the same resamples for all attacks, unless \
         the text beside them says otherwise."
    );
    conditions(m, Some(&report.data), rows, &lead)
}
