//! A CSV manifest: one row per image. It takes open-metric-learning's tables as they are, a `camera`, and a `group` by
//! which reports divide the queries.

use super::listing::{Listing, Place, Row, Rows, named, trimmed};
use super::{Dataset, Layout, Role, Split, pairs};
use crate::{Error, Result};
use std::path::Path;

const ABOUT: &str = "a .csv file with the columns path and label, and optionally id, split (train, or test or \
                     validation), is_query, is_gallery, camera, group, category; paths are relative to the file";

pub const LAYOUT: Layout = Layout {
    name: "csv",
    about: ABOUT,
    detect: |path| {
        let csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        path.is_file() && csv && !pairs::is_table(path)
    },
    // A list that can't be read is refused when it is opened.
    has_splits: |path| read(path).is_ok_and(|table| table.has("split")),
    open,
};

/// Columns that a manifest may have.
const COLUMNS: &[&str] =
    &["path", "label", "id", "split", "is_query", "is_gallery", "camera", "group", "category"];
/// Columns of open-metric-learning that change what is measured and that we don't follow: empty, or an error.
const UNSUPPORTED: &[&str] = &["sequence", "x_1", "x_2", "y_1", "y_2"];

/// A CSV file with a header. Fields may be quoted; a row is one line.
pub struct Table {
    rows: Rows,
    header: Vec<String>,
}

/// One row of a [`Table`].
pub struct Record<'a> {
    /// Where it is.
    pub place: Place<'a>,
    header: &'a [String],
    fields: Vec<String>,
}

impl Table {
    /// Reads `path`. Its header must have every column of `required`, none twice and none beyond `known`.
    pub fn read(path: &Path, required: &[&str], known: &[&str], about: &str) -> Result<Table> {
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
        Ok(Table { header, rows })
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
fn split(place: Place, line: &str) -> Result<Vec<String>> {
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

fn read(path: &Path) -> Result<Table> {
    Table::read(path, &["path", "label"], &[COLUMNS, UNSUPPORTED].concat(), ABOUT)
}

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    if !path.is_file() {
        return Err(Error::usage(format!("{} is a folder. Expected is {ABOUT}", path.display())));
    }
    let table = read(path)?;
    if let (Some(split), false) = (split, table.has("split")) {
        return Err(Error::usage(format!(
            "{} has no column `split`, which --split {split} asks for",
            path.display()
        )));
    }
    let (has_query, has_gallery) = (table.has("is_query"), table.has("is_gallery"));
    if has_query != has_gallery {
        return Err(Error::usage(format!(
            "{}, line 1: the columns is_query and is_gallery come together",
            path.display()
        )));
    }
    let wanted = split.unwrap_or(Split::Test);
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut listing = Listing::default();
    for record in table.records() {
        let record = record?;
        if let Some(column) = UNSUPPORTED.iter().find(|column| record.get(column).is_some()) {
            return Err(record.wrong(
                column,
                "isn't supported: cut boxes out beforehand, give sequences as cameras, and leave this empty",
            ));
        }
        let part = match record.get("split") {
            _ if !table.has("split") => wanted,
            Some("train") => Split::Train,
            Some("test" | "validation" | "val") => Split::Test,
            Some(other) => {
                return Err(
                    record.wrong("split", &format!("expected train, test or validation, found `{other}`"))
                );
            }
            None => return Err(record.wrong("split", "is empty")),
        };
        if part != wanted {
            continue;
        }
        let role = match (record.flag("is_query")?, record.flag("is_gallery")?) {
            _ if !has_query || part == Split::Train => Role::Both,
            (true, true) => Role::Both,
            (true, false) => Role::Query,
            (false, true) => Role::Gallery,
            (false, false) => {
                return Err(
                    record.wrong("is_query", "the image is neither query nor gallery. Make it one of them")
                );
            }
        };
        let file = record.need("path")?;
        let row = Row {
            id: record.get("id").unwrap_or(file).into(),
            class: record.need("label")?.into(),
            path: folder.join(file),
            camera: record.camera()?,
            role,
            group: record.get("group").map(Into::into),
        };
        listing.add(record.place, row)?;
    }
    listing.finish(path, LAYOUT.name, if table.has("split") { named(split) } else { "all rows".into() })
}
