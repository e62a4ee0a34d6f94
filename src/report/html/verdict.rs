//! The top of the page: the verdict in words, published models to read it against, and what to do next.

use super::page::{sentence, unbroken};
use crate::Result;
use crate::record::Report;
use crate::report::assessment::{Assessment, Standing, assess, references};
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
    let (rows, note) = references(report)?;
    Ok(html! {
        section.card.banner.verdict.(class) {
            h2 { (sentence(&headline)) }
            @for reason in &reasons { p { (sentence(reason)) "." } }
            .columns {
                div {
                    h3 { "Beside published models" }
                    table {
                        thead { tr { th {} @for name in NAMES { th.n { (name) } } } }
                        tbody {
                            @for (i, (name, cells)) in rows.iter().enumerate() {
                                tr { td.own[i == 0] { (name) } @for (name, cell) in NAMES.iter().zip(cells) { td.n data-name=(name) { (cell) } } }
                            }
                        }
                    }
                    p.note { (sentence(&note)) "." }
                }
                div {
                    h3 { "What to do next" }
                    ol { @for (text, command) in &next { li { (sentence(text)) @if let Some(command) = command { code { (unbroken(command)) } } } } }
                }
            }
        }
    })
}
