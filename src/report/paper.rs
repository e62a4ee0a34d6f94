//! Published rows beside a user's own, for a terminal and as files.

use super::html::{self, page};
use super::{Destination, by_ending, escape};
use crate::judge::published::{Beside, Table};
use crate::{Error, Result};
use std::path::Path;

/// Renders the tables as a file.
type Render = fn(&Beside) -> Result<Vec<u8>>;

/// Formats, by the extension of the file name.
const FORMATS: &[(&str, Render)] = &[("html", in_html), ("json", json), ("md", markdown)];

/// Writes the tables to a file, in the format of its extension.
pub fn write(beside: &Beside, path: &Path) -> Result<()> {
    let at = by_ending(path, FORMATS.iter().map(|f| f.0))?;
    Destination::open("-o", path)?.write(&FORMATS[at].1(beside)?)
}

fn json(beside: &Beside) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(beside).map_err(|e| Error::internal(format!("the tables as JSON: {e}")))
}

/// The tables for a terminal. A row is marked with the number of its source, which is listed beneath.
pub fn render(beside: &Beside) -> String {
    let mut out = format!("published: {}\n", beside.protocol);
    for caution in &beside.cautions {
        out += &format!("caution: {caution}\n");
    }
    for table in &beside.tables {
        let sources = sources(table);
        let wide = table.rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0) + 1;
        out += &format!("\n{}\n{:wide$}", table.title, "");
        table.columns.iter().for_each(|name| out += &format!("{name:>6}"));
        out.push('\n');
        for row in &table.rows {
            out += &format!("{:wide$}", row.name);
            row.shown.iter().for_each(|cell| out += &format!("{cell:>6}"));
            let number = sources.iter().position(|s| *s == row.source).unwrap_or(0) + 1;
            out += &format!("  [{number}]{}\n", if row.own { " yours" } else { "" });
        }
        for (i, source) in sources.iter().enumerate() {
            out += &format!("[{}] {source}\n", i + 1);
        }
    }
    out
}

/// The sources of a table's rows, each once, in their order.
fn sources(table: &Table) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for row in &table.rows {
        if !all.contains(&row.source.as_str()) {
            all.push(&row.source);
        }
    }
    all
}

fn markdown(beside: &Beside) -> Result<Vec<u8>> {
    let mut out =
        format!("## Beside published rows\n\nPublished: {}\n\n", escape::markdown(&beside.protocol));
    for caution in &beside.cautions {
        out += &format!("> **Caution:** {}\n\n", escape::markdown(caution));
    }
    for table in &beside.tables {
        out += &format!(
            "### {}\n\n| | {} | source |\n",
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
    let lead = format!("Published: {}.", escape::markup(&beside.protocol));
    Ok(page("Beside published rows", &beside.data_set, &lead, &html::paper(beside)))
}
