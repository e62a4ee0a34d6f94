//! The layout that all HTML pages share.

use crate::report::shown::capital;
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A complete page around sections of HTML. `lead` and `sections` are HTML; the other texts are plain.
pub fn page(eyebrow: &str, name: &str, lead: &str, sections: &str) -> Vec<u8> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (eyebrow) ": " (name) }
                link rel="icon" href="data:,";
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                header { p.eyebrow { (eyebrow) } h1 { (name) } p.lead { (PreEscaped(lead)) } }
                main { (PreEscaped(sections)) }
                footer { "Made by audit " (env!("CARGO_PKG_VERSION")) "." }
            }
        }
    };
    // File names may contain control characters, which HTML does not allow.
    let sound = |c: char| if c.is_control() && c != '\n' && c != '\t' { ' ' } else { c };
    page.into_string().chars().map(sound).collect::<String>().into_bytes()
}

/// A section of a page.
pub(super) fn section(title: &str, lead: &str, content: Markup) -> Markup {
    html! { section { h2 { (title) } p.lead { (lead) } (content) } }
}

/// A finding: its severity as a coloured word, and its text.
pub(super) fn finding(class: &str, word: &str, text: Markup) -> Markup {
    html! { .finding { span.tag.(class) { (word) } p { (text) } } }
}

/// A sentence in which `backticks` enclose code.
pub(super) fn sentence(text: &str) -> Markup {
    let text = capital(text);
    let parts: Vec<&str> = text.split('`').collect();
    // With an odd number of backticks, none encloses code.
    if parts.len().is_multiple_of(2) {
        return html! { (text) };
    }
    html! {
        @for (i, part) in parts.iter().enumerate() {
            @if i % 2 == 0 { (part) } @else { code { (part) } }
        }
    }
}

/// A position on a line, formatted for SVG.
pub(super) fn at(share: f64) -> String {
    format!("{share:.2}%")
}

/// An interval on a line, from one share to the other, at least wide enough to be visible.
pub(super) fn band(a: f64, b: f64, colour: &str) -> Markup {
    let (low, high) = (a.min(b), a.max(b));
    html! {
        rect x=(at(low)) width=(at((high - low).max(0.3))) y="10" height="10" rx="3" fill=(format!("var(--{colour})")) {}
    }
}
