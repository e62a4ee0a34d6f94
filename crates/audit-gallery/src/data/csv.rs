//! CSV files with a header, as the layouts and lists of embeddings read them.

use super::listing::{Rows, SourceLine, trimmed};
use audit_base::{Error, Result};
use std::path::Path;

/// A CSV file with a header. Fields may be quoted; a row is one line.
pub struct CsvTable {
    rows: Rows,
    header: Vec<String>,
}

/// One row of a [`CsvTable`].
pub struct Record<'a> {
    /// Where it is.
    pub place: SourceLine<'a>,
    header: &'a [String],
    fields: Vec<String>,
}

impl CsvTable {
    /// Reads `path`. Its header must have every column of `required`, none twice and none beyond `known`.
    pub fn read(path: &Path, required: &[&str], known: &[&str], about: &str) -> Result<CsvTable> {
        let rows = Rows::read(path.to_path_buf(), about)?;
        let Some((place, line)) = rows.lines().next() else {
            return Err(Error::empty(format!("{} is empty. Expected is {about}", path.display())));
        };
        let header = split(place, line)?;
        for (at, name) in header.iter().enumerate() {
            let wrong = |what: &str| {
                place.wrong(format!("column {}, `{name}`: {what}. Known are {}", at + 1, known.join(", ")))
            };
            if !known.contains(&name.as_str()) {
                return Err(wrong("no such column"));
            }
            if header[..at].contains(name) {
                return Err(wrong("a second column of this name"));
            }
        }
        if let Some(missing) = required.iter().find(|name| !header.iter().any(|h| h == *name)) {
            return Err(place.wrong(format!(
                "the header lacks the column `{missing}`. Found are {}. Expected is {about}",
                header.join(", ")
            )));
        }
        Ok(CsvTable { header, rows })
    }

    /// Whether there is such a column.
    pub fn has(&self, column: &str) -> bool {
        self.header.iter().any(|name| name == column)
    }

    /// The rows below the header.
    pub fn records(&self) -> impl Iterator<Item = Result<Record<'_>>> {
        self.rows.lines().skip(1).map(|(place, line)| {
            let fields = split(place, line)?;
            if fields.len() != self.header.len() {
                return Err(place.wrong(format!(
                    "{} fields where the header has {} ({})",
                    fields.len(),
                    self.header.len(),
                    self.header.join(", ")
                )));
            }
            Ok(Record { place, header: &self.header, fields })
        })
    }
}

impl Record<'_> {
    /// The value of a column; `None` where the column is missing or the field empty.
    pub fn get(&self, column: &str) -> Option<&str> {
        let at = self.header.iter().position(|name| name == column)?;
        Some(self.fields[at].as_str()).filter(|value| !value.is_empty())
    }

    /// The same of a column that must be filled in.
    pub fn need(&self, column: &str) -> Result<&str> {
        self.get(column).ok_or_else(|| self.wrong(column, "is empty"))
    }

    /// An error about a field.
    pub fn wrong(&self, column: &str, what: &str) -> Error {
        let at = self.header.iter().position(|name| name == column).map_or(0, |at| at + 1);
        self.place.wrong(format!("column {at}, `{column}`: {what}"))
    }

    /// The camera, if there is one.
    pub fn camera(&self) -> Result<Option<u32>> {
        let parse = |text: &str| {
            let found = text.parse().map_err(|_| format!("expected a camera's number, found `{text}`"));
            found.map_err(|what| self.wrong("camera", &what))
        };
        self.get("camera").map(parse).transpose()
    }

    /// Whether a field says yes; an empty one says no.
    pub fn flag(&self, column: &str) -> Result<bool> {
        match self.get(column).map(str::to_ascii_lowercase).as_deref() {
            None | Some("false" | "0" | "0.0") => Ok(false),
            Some("true" | "1" | "1.0") => Ok(true),
            Some(other) => Err(self.wrong(column, &format!("expected true or false, found `{other}`"))),
        }
    }
}

/// The fields of a line.
fn split(place: SourceLine, line: &str) -> Result<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let field = fields.last_mut().expect("never empty");
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => field.extend(letters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => field.push(other),
        }
    }
    if quoted {
        return Err(place.wrong("a quotation mark is never closed. A row must be one line"));
    }
    Ok(fields.into_iter().map(|field| trimmed(&field).to_owned()).collect())
}
