//! Published rows beside a user's own, for a terminal and as files.

use super::html::{self, page};
use super::json::pretty;
use super::terminal::{self, Paint, wrap};
use super::view::Grid;
use super::{Destination, by_extension, escape};
use audit_base::Result;
use audit_report::judge::published::{Beside, PaperRow};
use std::path::Path;

/// Renders the tables as a file.
type Render = fn(&Beside) -> Result<Vec<u8>>;

/// Formats, by the extension of the file name.
const FORMATS: &[(&str, Render)] = &[("html", in_html), ("json", pretty), ("md", markdown)];

/// Writes the tables to a file, in the format of its extension.
pub fn write(beside: &Beside, path: &Path) -> Result<()> {
    let at = by_extension(path, FORMATS.iter().map(|f| f.0))?;
    Destination::open("-o", path)?.write(&FORMATS[at].1(beside)?)
}

/// The tables for a terminal. A row is marked with the number of its source, which is listed beneath.
pub fn render(beside: &Beside) -> String {
    let mut out = wrap(&format!("published: {}", beside.protocol_in_words())) + "\n";
    for caution in &beside.cautions {
        out += &(wrap(&format!("caution: {caution}")) + "\n");
    }
    for table in &beside.tables {
        let sources = table.sources();
        let row = |row: &PaperRow| {
            let number = sources.iter().position(|s| *s == row.source).unwrap_or(0) + 1;
            let from = format!("[{number}]{}", if row.own { " yours" } else { "" });
            [vec![row.name.clone()], row.shown.clone(), vec![from]].concat()
        };
        let columns = table.columns.iter().map(String::as_str);
        let head: Vec<&str> = ["model"].into_iter().chain(columns).chain(["source"]).collect();
        let grid = Grid::new(&head, &[0], table.rows.iter().map(row));
        out += &format!(
            "\n{}\n{}\n",
            wrap(&table.title),
            terminal::table(&grid, terminal::width(), Paint::detect())
        );
        for (i, source) in sources.iter().enumerate() {
            out += &(wrap(&format!("[{}] {source}", i + 1)) + "\n");
        }
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
        out += &format!(
            "### {}\n\n| model | {} | source |\n",
            escape::markdown(&table.title),
            table.columns.join(" | ")
        );
        out += &format!("|---|{}---|\n", "--:|".repeat(table.columns.len()));
        for row in &table.rows {
            let name = escape::markdown(&row.name);
            let name = if row.own { format!("**{name}**") } else { name };
            out += &format!("| {name} | {} | {} |\n", row.shown.join(" | "), escape::markdown(&row.source));
        }
        out.push('\n');
    }
    Ok(out.into_bytes())
}

fn in_html(beside: &Beside) -> Result<Vec<u8>> {
    let lead = format!("Published: {}.", escape::markup(&beside.protocol_in_words()));
    Ok(page("Beside published rows", &beside.data_set, &lead, &html::paper(beside)))
}
