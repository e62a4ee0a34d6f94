//! The section on decisions by a threshold.

use super::page::{section as framed, table};
use crate::view::{capital, verification};
use audit_report::record::Report;
use maud::{Markup, html};

/// The section; empty where no attack is about a threshold.
pub(super) fn section(report: &Report) -> Markup {
    let Some((said, tables)) = verification(report) else { return Markup::default() };
    let content = html! {
        .card { @for text in said { p { (capital(&text)) "." } } }
        @for (about, grid) in tables { .card { p { (capital(about)) "." } (table(&grid)) } }
    };
    framed("Whom does it accept?", "Decisions at a threshold, without attack and after the attacks.", content)
}
