//! The layout that all HTML pages share.

use crate::view::{Grid, capital};
use audit_base::visible::is_obeyed;
use audit_report::record::{Data, ModelRecord, Severity};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

/// The only script of a page. It sorts tables, enlarges pictures, and unfolds sections for printing; the page
/// is complete without it.
const SCRIPT: &str = include_str!("page.js");

/// Content security policy of a page: only its own script runs, if it has one, whatever a name in the page
/// contains, and nothing is loaded.
fn policy(script: Option<&str>) -> String {
    let hash = |script| format!("script-src 'sha256-{}'; ", STANDARD.encode(Sha256::digest(script)));
    let script = script.map_or(String::new(), hash);
    format!("default-src 'none'; {script}style-src 'unsafe-inline'; img-src data:")
}

/// A complete page around sections of HTML. `lead` and `sections` are HTML; the other texts are plain.
pub fn page(eyebrow: &str, name: &str, lead: &str, sections: &str) -> Vec<u8> {
    complete(eyebrow, name, lead, sections, None)
}

/// [`page`] with the script.
pub fn scripted(eyebrow: &str, name: &str, lead: &str, sections: &str) -> Vec<u8> {
    complete(eyebrow, name, lead, sections, Some(SCRIPT))
}

fn complete(eyebrow: &str, name: &str, lead: &str, sections: &str, script: Option<&str>) -> Vec<u8> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy(script));
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (eyebrow) ": " (name) }
                link rel="icon" href="data:,";
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                header { p.eyebrow { (eyebrow) } h1 { (name) } p.lead { (PreEscaped(lead)) } }
                main { (PreEscaped(sections)) }
                footer { "Made by audit " (env!("CARGO_PKG_VERSION")) "." }
                @if let Some(script) = script { script { (PreEscaped(script)) } }
            }
        }
    };
    // File names may contain control characters, which HTML does not allow, and such as turn the text around.
    let sound = |c: char| if is_obeyed(c) && c != '\n' && c != '\t' { ' ' } else { c };
    page.into_string().chars().map(sound).collect::<String>().into_bytes()
}

/// A section of a page.
pub fn section(title: &str, lead: &str, content: Markup) -> Markup {
    html! { section { h2 { (title) } p.lead { (lead) } (content) } }
}

/// A section that is folded until a click opens it.
pub fn folded(title: &str, lead: &str, content: Markup) -> Markup {
    html! { section { details.fold { summary { h2 { (title) } } p.lead { (lead) } (content) } } }
}

/// The section on how it was measured: model, images if there are any, and then `rows`.
pub fn conditions(m: &ModelRecord, d: Option<&Data>, rows: Vec<(&str, Markup)>, lead: &str) -> Markup {
    let subject = [
        (
            "Model",
            html! { (m.file_in_words()) @for (name, hash) in m.hashes() { br; code { (name) " " (hash) } } },
        ),
        ("Embedding", html! { (m.dim) " values from " (m.output) ", compared by " (m.metric) }),
        ("Preprocessing", html! { (m.preprocessing.words()) }),
    ];
    let images = |d: &Data| html! { (d.source) ": " (d.images) " images, " (d.in_classes()) br; code { "sha256 " (d.sha256) } };
    let rows = subject.into_iter().chain(d.map(|d| ("Data", images(d)))).chain(rows);
    let list = html! { .card { dl { @for (name, value) in rows { dt { (name) } dd.num { (value) } } } } };
    folded("How was it measured?", lead, list)
}

/// A table, as part of a card. Rows that are set back are in grey. A wide table scrolls, by the keyboard too,
/// and for screen readers it has a name.
pub fn table(grid: &Grid) -> Markup {
    let head = |i: usize, name: &str| if grid.is_text(i) { capital(name) } else { name.into() };
    let name = format!("table of {}", grid.head.join(", "));
    html! {
        .scroll tabindex="0" role="region" aria-label=(name) { table {
            thead { tr { @for (i, name) in grid.head.iter().enumerate() { th.n[!grid.is_text(i)] { (head(i, name)) } } } }
            tbody { @for (number, row) in grid.rows.iter().enumerate() {
                tr.quiet[grid.is_quiet(number)] { @for (i, cell) in row.iter().enumerate() {
                    td.n[!grid.is_text(i)] { @if i == 0 && grid.is_text(i) { b { (cell) } } @else { (cell) } }
                } }
            } }
        } }
    }
}

/// A finding: its severity as a coloured word, and its text.
pub fn finding(class: &str, word: &str, text: Markup) -> Markup {
    html! { .finding { span.tag.(class) { (word) } p { (text) } } }
}

/// The finding of a check: `word` says what its severity is called.
pub fn check_finding(severity: Severity, word: &str, text: Markup) -> Markup {
    let class = match severity {
        Severity::Error => "failed",
        Severity::Warning => "warned",
        Severity::Info | Severity::Ok => "quiet",
    };
    finding(class, &word.to_uppercase(), text)
}

/// A sentence in which `backticks` enclose code.
pub fn sentence(text: &str) -> Markup {
    let text = capital(text);
    let parts: Vec<&str> = text.split('`').collect();
    // With an odd number of backticks, none encloses code.
    if parts.len().is_multiple_of(2) {
        return unbroken(&text);
    }
    html! {
        @for (i, part) in parts.iter().enumerate() {
            @if i % 2 == 0 { (unbroken(part)) } @else { code { (unbroken(part)) } }
        }
    }
}

/// A text whose flags stay on one line: browsers break lines after each hyphen of `--max-queries`.
pub fn unbroken(text: &str) -> Markup {
    html! {
        @for (i, word) in text.split(' ').enumerate() {
            @if i > 0 { " " }
            @if word.contains("--") { span.flag { (word) } } @else { (word) }
        }
    }
}

/// A position on a line, formatted for SVG.
pub fn at(share: f64) -> String {
    format!("{share:.2}%")
}

/// An interval on a line, from one share to the other, at least wide enough to be visible.
pub fn band(a: f64, b: f64, colour: &str) -> Markup {
    let (low, high) = (a.min(b), a.max(b));
    html! {
        rect x=(at(low)) width=(at((high - low).max(0.3))) y="10" height="10" rx="3" fill=(format!("var(--{colour})")) {}
    }
}

/// A curve of at least two points (0 to 1, 0 to 100), and what stands beneath its left end, its middle and
/// its right end.
pub fn line(name: &str, points: &[(f64, f64)], text: &[String; 3]) -> Markup {
    let at = |(x, y): &(f64, f64)| {
        format!("{:.1},{:.1}", 300.0 * x.clamp(0.0, 1.0), 43.0 - 0.42 * y.clamp(0.0, 100.0))
    };
    let points: Vec<String> = points.iter().map(at).collect();
    let [left, middle, right] = text;
    html! {
        svg.loss role="img" aria-label=(format!("{name}: {left}, {middle}, {right}")) {
            svg viewBox="0 0 300 44" width="100%" height="70%" preserveAspectRatio="none" {
                line x1="0" x2="300" y1="43" y2="43" stroke="var(--line)" vector-effect="non-scaling-stroke" {}
                polyline points=(points.join(" ")) fill="none" stroke="var(--accent)" stroke-width="2"
                    vector-effect="non-scaling-stroke" {}
            }
            text x="0" y="94%" { (left) }
            text x="50%" y="94%" text-anchor="middle" { (middle) }
            text x="100%" y="94%" text-anchor="end" { (right) }
        }
    }
}
