//! The page of a comparison.

use crate::Result;
use crate::judge::compare::{ComparedModel, ComparedValue, Comparison};
use crate::judge::crossed::Crossed;
use crate::report::html::page::{at, band, finding, scripted, section, table};
use crate::report::view::{
    ARROW, ROW_HEADS, agreement, capital, cells, compared, compared_first, compared_spread, interval_of,
    row_name, shown, transfer,
};
use maud::{Markup, html};

/// Renders a comparison as an HTML page.
pub fn render(comparison: &Comparison) -> Result<Vec<u8>> {
    let models = html! {
        .card.scroll tabindex="0" role="region" aria-label="models" { table {
            thead { tr { th { "Model" } @for (_, head) in compared_first(comparison) { th.n { (head) } } } }
            tbody {
                @for m in &comparison.models {
                    tr {
                        td title=(m.report) { b { (m.model) } @if m.base { " " span.quiet { "baseline" } } }
                        @for (quantity, _) in compared_first(comparison) {
                            @let (value, void) = compared(comparison, m, quantity);
                            td.n {
                                @if void { s { (value) } } @else { (value) }
                                @if let Some(spread) = compared_spread(m, quantity) { br; span.quiet { "95 % " (spread) } }
                            }
                        }
                    }
                }
            }
        } }
    };
    let base = comparison.models.iter().find(|m| m.base).map_or("", |m| m.model.as_str());
    let models = html! { p { b { (comparison.answer) "." } } (models) };
    let question = section("Which is the most robust?", "Higher is more robust.", models);
    let sections = html! {
        (question)
        @if !comparison.cautions.is_empty() {
            section.card { @for c in &comparison.cautions { (finding("warned", "CAUTION", html! { (c) })) } }
        }
        @for m in comparison.models.iter().filter(|m| !m.base) { (against(comparison, m, base)) }
        @if let Some(crossed) = &comparison.crossed { (together(crossed)) }
    };
    let lead = "Differences carry 95 % intervals, paired by query: of shares by Tango's score and the exact \
                sign test, of other numbers by a bootstrap in which both models get the same resamples.";
    let count = comparison.models.len();
    Ok(scripted("Comparison", &format!("{count} models"), lead, &sections.into_string()))
}

/// Attacks made on one model and measured on the other, how far both agree, and what they take.
fn together(crossed: &Crossed) -> Markup {
    let table = html! {
        .card { (table(&transfer(crossed, true))) }
        @for text in agreement(crossed) { p { (capital(&text)) "." } }
    };
    let lead =
        format!("{ARROW}. In brackets: the difference from attacks made on the measured model itself.");
    section("What do attacks on one do to the other?", &capital(&lead), table)
}

fn against(comparison: &Comparison, entry: &ComparedModel, base: &str) -> Markup {
    let (first, others) = shown(entry);
    let table = html! {
        (rows_of(comparison, &first))
        @if !others.is_empty() {
            details { summary { "Resistances, the worst classes and groups, and clean retrieval" } (rows_of(comparison, &others)) }
        }
    };
    let lead = "Right of the middle is better. Each line spans the range of its metric, from the largest possible loss to the largest \
                possible gain. The band is the 95 % interval of the difference; if it includes the middle, there is no significant \
                difference.";
    section(&format!("{} against {base}", entry.model), lead, table)
}

/// A table of some metrics.
fn rows_of(comparison: &Comparison, rows: &[&ComparedValue]) -> Markup {
    html! {
        .card { table.attacks.compared {
            thead { tr {
                th { "Metric" }
                th.plot { "worse ⟵ difference ⟶ better" }
                @for head in ROW_HEADS { th.n { (head) } }
                th { "result" }
            } }
            tbody {
                @for row in rows {
                    @let [value, base, change, _] = cells(comparison, row);
                    @let class = match row.direction { 1 => "pass", -1 => "failed", _ => "quiet" };
                    tr {
                        td.attack { b { (row_name(comparison, row)) } @if !row.metric.label.is_empty() { span { (row.metric.label) } } }
                        td.plot { (plot(row)) }
                        td.n data-name=(ROW_HEADS[0]) { @if row.void { s { (value) } } @else { b { (value) } } }
                        td.n data-name=(ROW_HEADS[1]) { (base) }
                        td.n data-name=(ROW_HEADS[2]) { span.(class) { (change) } }
                        td.n data-name=(ROW_HEADS[3]) { (interval_of(comparison, row)) }
                        td.(class).word title=[row.why.as_ref()] { (row.word.text()) }
                    }
                }
            }
        } }
    }
}

/// A difference on a scale from the largest possible loss (left) to the largest possible gain (right);
/// nothing if there is no such scale.
fn plot(row: &ComparedValue) -> Markup {
    // A length has no largest value.
    let Some(difference) = row.difference.filter(|_| row.norm.is_none()) else { return Markup::default() };
    let [low, high] = row.metric.range;
    let sign = if row.metric.lower_is_better { -1.0 } else { 1.0 };
    let place = |v: f64| (50.0 + 50.0 * sign * v / (high - low)).clamp(0.0, 100.0);
    let colour = match row.direction {
        1 => "good",
        -1 => "bad",
        _ => "faint",
    };
    html! {
        svg role="img" aria-label=(format!("difference {:.2}", difference.value)) {
            line x1="0" x2="100%" y1="15" y2="15" stroke="var(--track)" stroke-width="2" {}
            line x1="50%" x2="50%" y1="5" y2="25" stroke="var(--faint)" {}
            @if let Some((l, h)) = difference.interval { (band(place(l), place(h), "band")) }
            circle cx=(at(place(difference.value))) cy="15" r="5" fill=(format!("var(--{colour})")) {}
        }
    }
}
