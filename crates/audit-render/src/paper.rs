//! Published rows beside a user's own, for a terminal and as files.

use super::html::page::{self, finding, page, section};
use super::json::pretty;
use super::terminal::{self, Paint, wrap};
use super::view::Grid;
use super::{Output, Rendering, escape};
use audit_base::Result;
use audit_report::judge::published::{Beside, PaperRow, PaperTable};
use maud::html;
use std::path::Path;

/// Formats, by the extension of the file name.
const FORMATS: &[Rendering<Beside>] = &[("html", in_html), ("json", pretty), ("md", markdown)];

/// Writes the tables to a file, in the format of its extension.
pub fn write(beside: &Beside, path: &Path) -> Result<()> {
    Output::open(path, FORMATS)?.write(beside)
}

/// A table as every format shows it, and the sources of its rows. The last column has their numbers.
fn shown(table: &PaperTable) -> (Grid, Vec<String>) {
    let sources = table.sources();
    let row = |row: &PaperRow| {
        let number = sources.iter().position(|s| *s == row.source).unwrap_or(0) + 1;
        let from = format!("[{number}]{}", if row.own { " yours" } else { "" });
        [vec![row.name.clone()], row.shown.clone(), vec![from]].concat()
    };
    let columns = table.columns.iter().map(String::as_str);
    let head: Vec<&str> = ["model"].into_iter().chain(columns).chain(["source"]).collect();
    let grid = Grid::new(&head, &[0], table.rows.iter().map(row));
    (grid, sources.iter().enumerate().map(|(i, source)| format!("[{}] {source}", i + 1)).collect())
}

/// The tables for a terminal.
pub fn render(beside: &Beside) -> String {
    let mut out = wrap(&format!("published: {}", beside.protocol_in_words())) + "\n";
    for caution in &beside.cautions {
        out += &(wrap(&format!("caution: {caution}")) + "\n");
    }
    for table in &beside.tables {
        let (grid, sources) = shown(table);
        let drawn = terminal::table(&grid, terminal::width(), Paint::detect());
        out += &format!("\n{}\n{drawn}\n", wrap(&table.title));
        sources.iter().for_each(|source| out += &(wrap(source) + "\n"));
    }
    out
}

fn markdown(beside: &Beside) -> Result<Vec<u8>> {
    let mut out = format!(
        "## Beside published rows\n\nPublished: {}\n\n",
        escape::markdown(&beside.protocol_in_words())
    );
    for caution in &beside.cautions {
        out += &format!("> **Caution:** {}\n\n", escape::markdown(caution));
    }
    for table in &beside.tables {
        let (grid, sources) = shown(table);
        let drawn = super::markdown::table(&grid);
        out += &format!("### {}\n\n{drawn}\n", escape::markdown(&table.title));
        out.extend(sources.iter().map(|source| escape::markdown(source) + "\n\n"));
    }
    Ok(out.into_bytes())
}

fn in_html(beside: &Beside) -> Result<Vec<u8>> {
    let lead = format!("Published: {}.", escape::markup(&beside.protocol_in_words()));
    let table = |table: &PaperTable| {
        let (grid, sources) = shown(table);
        let content = html! {
            .card { (page::table(&grid)) }
            @for source in &sources { p.what { (source) } }
        };
        section(&table.title, "Your own rows come first.", content)
    };
    let sections = html! {
        section.card { @for c in &beside.cautions { (finding("warned", "CAUTION", html! { (c) })) } }
        @for of in &beside.tables { (table(of)) }
    };
    Ok(page("Beside published rows", &beside.data_set, &lead, &sections.into_string()))
}
