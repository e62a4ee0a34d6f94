//! The section on natural corruptions: what queries find under them, the ε of attacks that cost as much, and
//! how they look.

use super::examples::image;
use super::page::{section as framed, table};
use crate::view::{capital, corrupted, corruptions};
use audit_report::record::{CorruptedPictures, Report};
use maud::{Markup, html};

/// The section; empty where the suite has no corruptions.
pub(super) fn section(report: &Report) -> Markup {
    let (Some(found), Some(words)) = (&report.corruptions, corruptions(report)) else {
        return Markup::default();
    };
    let lead = "Benign robustness: what the queries find when they are noisy, blurred or turned, without an attacker. It is no part of ERS or \
                ARS. Columns are strengths; brackets hold 95 % intervals over queries.";
    let pictures = report.examples.as_ref().and_then(|examples| examples.corrupted.as_ref());
    let content = html! {
        .card { p { (capital(&words)) "." } }
        details.card open {
            summary { "R@1 and mAP in %, and the ε of attacks that lower R@1 as much" }
            (table(&corrupted(found, true)))
        }
        @if let Some(pictures) = pictures { (shown(pictures)) }
    };
    framed("What do natural corruptions cost?", lead, content)
}

/// A query under all corruptions.
fn shown(pictures: &CorruptedPictures) -> Markup {
    html! {
        .card {
            p { "The query " b { (pictures.query) } " as it is, and under each corruption at strengths 1 to 5:" }
            .trio.strengths { figure { (image(&pictures.clean, "clean")) figcaption { "clean" } } }
            @for row in &pictures.rows {
                .trio.strengths {
                    @for (i, picture) in row.pictures.iter().enumerate() {
                        @let caption = format!("{} {}", row.corruption, i + 1);
                        figure { (image(picture, &caption)) figcaption { (caption) } }
                    }
                }
            }
        }
    }
}
