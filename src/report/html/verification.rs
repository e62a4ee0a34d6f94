//! The section on decisions by a threshold.

use super::page::section as framed;
use crate::record::Report;
use crate::report::shown::{capital, verification};
use maud::{Markup, html};

/// The section; empty where no attack is about a threshold.
pub(super) fn section(report: &Report) -> Markup {
    let Some((said, tables)) = verification(report) else { return Markup::default() };
    let content = html! {
        .card { @for text in said { p { (capital(&text)) "." } } }
        @for rows in tables {
            .card {
                p { (capital(rows.about)) "." }
                .scroll { table {
                    thead { tr { @for (i, name) in rows.header.iter().enumerate() { th.n[i >= rows.words] { (name) } } } }
                    tbody { @for row in &rows.rows { tr {
                        @for (i, cell) in row.iter().enumerate() { td.n[i >= rows.words] { (cell) } }
                    } } }
                } }
            }
        }
    };
    framed("Whom does it accept?", "Decisions at a threshold, without attack and after the attacks.", content)
}
