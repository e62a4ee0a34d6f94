//! The section on the strong search: what each of its members did, and what it cost.

use super::page::folded;
use crate::headline::{StrongSummary, for_others, for_recall};
use audit_report::record::Report;
use maud::{Markup, html};

/// The section; empty if no strong search ran.
pub(super) fn section(report: &Report) -> Markup {
    let (recall, others) = (for_recall(report), for_others(report));
    if recall.is_none() && others.is_empty() {
        return Markup::default();
    }
    let lead = "The strong search is an ensemble: members run one after another on the queries that are still correct. The worst image that any of \
                them found counts, as measured by the model's own forward pass.";
    let content = html! {
        @if let Some(search) = &recall { .card { p { (summary(search)) } (table(search)) } }
        @if !others.is_empty() {
            details.card {
                summary { "The other attacks, member by member" }
                p { "The best image of a trial counts, whether it reached the attacker's goal or not." }
                @for search in &others { h3 { (search.attack) } (table(search)) }
            }
        }
    };
    folded("Which attacks decided it?", lead, content)
}

/// The result in a sentence.
fn summary(search: &StrongSummary) -> String {
    format!(
        "Of the queries that are correct without an attack, {} of {} fail under attack; {} image steps.",
        search.broken(),
        search.trials,
        search.steps()
    )
}

fn table(search: &StrongSummary) -> Markup {
    html! {
        .scroll tabindex="0" role="region" aria-label="members of the strong search" { table {
            thead { tr {
                th { "Member" }
                th.n { "attacked" }
                th.n { "broken" }
                th.n { "counts" }
                th.n { "image steps" }
            } }
            tbody {
                // Members that found nothing are in the JSON.
                @for m in search.members.iter().filter(|m| m.broken + m.counts > 0) {
                    tr {
                        td.attack { b { (m.name) } span { (m.about) } }
                        td.n { (m.queries) }
                        td.n { (m.broken) }
                        td.n { b { (m.counts) } }
                        td.n { (m.steps) }
                    }
                }
            }
        } }
    }
}
