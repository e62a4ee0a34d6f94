//! The top of the page: the verdict in words, and the next steps; further below, published models to compare
//! with.

use super::page::{folded, sentence, unbroken};
use crate::assessment::{Assessment, Standing, assess, references};
use crate::view::capital;
use audit_base::Result;
use audit_report::record::Report;
use maud::{Markup, html};

/// The columns beside published models.
const NAMES: [&str; 3] = ["clean R@1", "ARS", "R@1 under attack"];

pub(super) fn card(report: &Report) -> Result<Markup> {
    let Assessment { standing, headline, reasons, next } = assess(report)?;
    let class = match standing {
        Standing::Void | Standing::Falls => "fail",
        Standing::Open | Standing::Between => "open",
        Standing::Stands => "",
    };
    Ok(html! {
        section.card.banner.verdict.(class) {
            h2 { (sentence(&headline)) }
            @for reason in &reasons { p { (sentence(reason)) "." } }
            @if !next.is_empty() {
                h3 { "What to do next" }
                ol { @for (text, command) in &next { li { (sentence(text)) @if let Some(command) = command { code.line { (unbroken(command)) } } } } }
            }
        }
    })
}

/// The section on published models.
pub(super) fn published(report: &Report) -> Result<Markup> {
    // No published number is of images without classes.
    if !report.data.has_classes() {
        return Ok(Markup::default());
    }
    let (rows, note) = references(report)?;
    let table = html! {
        .card.published { table {
            thead { tr { th { "Model" } @for name in NAMES { th.n { (name) } } } }
            tbody {
                @for (i, (name, cells)) in rows.iter().enumerate() {
                    tr { td.own[i == 0] { (name) } @for (name, cell) in NAMES.iter().zip(cells) { td.n data-name=(name) { (cell) } } }
                }
            }
        } }
    };
    Ok(folded("Beside published models", &format!("{}.", capital(&note)), table))
}
