//! The section on what attacked queries find, and on the smallest perturbations.

use super::page::{line, section as framed, table};
use crate::view::{capital, retrieval, smallest, smallest_words};
use audit_report::record::{Report, Smallest, size};
use maud::{Markup, html};

/// The section; empty where no attack moves queries.
pub(super) fn section(report: &Report) -> Markup {
    let Some(found) = retrieval(report) else { return Markup::default() };
    let lead = "Retrieval of the attacked queries in the clean gallery, in per cent, and without an attack. NMI \
                compares their classes with the clusters of the clean gallery that they fall in: an attack that moves a \
                whole class into another cluster hardly lowers it.";
    let content = html! {
        @if let Some(found) = &report.smallest { .card { p { (capital(&smallest(found))) "." } (curve(found)) } }
        details.card {
            summary { "R@1, mAP, mAP@R, mAP@C and NMI after each attack" }
            (table(&found))
        }
    };
    framed("What do attacked queries find?", lead, content)
}

/// R@1, or what else is left, against ε: a step at each size that is enough for a query, drawn at the curve's
/// points, up to where it falls no more.
fn curve(found: &Smallest) -> Markup {
    let end = found.curve.iter().position(|p| found.curve.last().is_some_and(|last| p.r1 <= last.r1));
    let most =
        end.map_or(0.0, |end| found.curve[end.max(1).min(found.curve.len() - 1)].eps).max(f64::MIN_POSITIVE);
    let shown = found.curve.iter().filter(|p| p.eps <= most);
    let points: Vec<(f64, f64)> = shown.map(|p| (p.eps / most, p.r1)).collect();
    let left = smallest_words(found).left;
    let title = format!("{} by ε", capital(left));
    line(
        &title,
        &points,
        &["ε 0".into(), format!("{}, 0 to 100 %", capital(left)), size(&found.norm, most, 2)],
    )
}
