//! The page of published rows beside the user's own.

use super::page::{finding, section};
use audit_report::judge::published::{Beside, PaperTable};
use maud::{Markup, html};

/// The sections of the page, as HTML.
pub fn sections(beside: &Beside) -> String {
    let sections = html! {
        section.card { @for c in &beside.cautions { (finding("warned", "CAUTION", html! { (c) })) } }
        @for of in &beside.tables { (section(&of.title, "Your own rows come first.", table(of))) }
    };
    sections.into_string()
}

fn table(table: &PaperTable) -> Markup {
    let sources = table.sources();
    let number = |source: &str| sources.iter().position(|s| *s == source).map_or(0, |at| at + 1);
    html! {
        .card.scroll tabindex="0" role="region" aria-label=(table.title) { table {
            thead { tr { th { "Model" } @for name in &table.columns { th.n { (name) } } th.n { "Source" } } }
            tbody {
                @for row in &table.rows {
                    tr {
                        td { @if row.own { b { (row.name) } } @else { (row.name) } }
                        @for cell in &row.shown { td.n { (cell) } }
                        td.n.quiet { "[" (number(&row.source)) "]" }
                    }
                }
            }
        } }
        @for source in &sources { p.what { "[" (number(source)) "] " (source) } }
    }
}
