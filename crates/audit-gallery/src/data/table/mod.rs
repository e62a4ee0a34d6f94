//! The rows and columns of lists of images, lists of pairs, and ids beside an array: CSV with any of the
//! usual separators, lists without a header, JSON Lines.
//!
//! Unambiguous tables are read. If a table could mean two things, the error names its columns.

mod columns;

pub use columns::{Column, Form, Holds, Named, Needed};

use super::format::Format;
use super::listing::{Rows, SourceLine, trimmed};
use audit_base::error::is_typo;
use audit_base::{Error, Result};
use columns::{Columns, is_unnamed, plain};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The rows and columns of a list.
pub struct Table {
    path: PathBuf,
    body: Body,
    columns: Columns,
}

/// The rows of a table.
enum Body {
    /// One row per line, but for line breaks within quotation marks. If the table is `bare`, the first line
    /// is a row too.
    Lines { rows: Rows, separator: Separator, bare: bool },
    /// The fields of each row.
    Fields(Vec<Vec<String>>),
}

pub struct Record<'a> {
    pub place: SourceLine<'a>,
    columns: &'a Columns,
    fields: Vec<String>,
}

/// How the fields of a line are separated.
#[derive(Clone, Copy)]
enum Separator {
    /// This character, outside of quotation marks.
    Letter(char),
    /// Blanks; only the last field contains none.
    Blanks,
    /// Keys: a line is a JSON object.
    Json,
}

/// The next step for a row with too many fields.
const QUOTED: &str = ". Put fields that contain the separator in quotation marks";

/// Blanks are last: they fit any list without another separator.
const SEPARATORS: [Separator; 4] =
    [Separator::Letter(','), Separator::Letter(';'), Separator::Letter('\t'), Separator::Blanks];

impl Table {
    /// Reads `path`. Errors: it has another form (exit code 2), or is empty (exit code 4).
    pub fn read(path: &Path, form: &Form, named: Named) -> Result<Table> {
        let rows = Rows::read(path.to_path_buf(), form.about)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let Some((place, line)) = rows.lines().next() else {
            return Err(Error::empty(format!("{} is empty. Expected is {}", path.display(), form.about)));
        };
        let (separator, bare, columns) = match line.starts_with('{') {
            true => {
                let columns =
                    Columns::from_header(keys(&rows)?, form, named).map_err(|what| place.wrong(what))?;
                (Separator::Json, false, columns)
            }
            false => detect_form(place, line, folder, form, named)?,
        };
        let bare = bare || matches!(separator, Separator::Json);
        Table { path: path.into(), body: Body::Lines { rows, separator, bare }, columns }.checked(form)
    }

    /// The table of columns in `path`. Matched columns are loaded, by their names. Error (exit code 2): it
    /// has another form.
    pub fn of_columns(
        path: &Path,
        header: Vec<String>,
        form: &Form,
        named: Named,
        mut load: impl FnMut(&str) -> Result<Vec<String>>,
    ) -> Result<Table> {
        let wrong = |what| Error::usage(format!("{}: {what}", path.display()));
        let columns = Columns::from_header(header, form, named).map_err(wrong)?;
        let mut rows: Vec<Vec<String>> = Vec::new();
        for &(_, at) in &columns.places {
            let texts = load(&columns.header[at])?;
            rows.resize(rows.len().max(texts.len()), vec![String::new(); columns.header.len()]);
            rows.iter_mut().zip(texts).for_each(|(row, text)| row[at] = text);
        }
        Table { path: path.into(), body: Body::Fields(rows), columns }.checked(form)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the column exists.
    pub fn has(&self, column: &str) -> bool {
        self.columns.place(column).is_some()
    }

    /// Whether the column exists under one of its usual names.
    pub fn names(&self, column: &str) -> bool {
        self.has(column) && !self.columns.guessed.contains(&column)
    }

    /// Why the table gives no classes, with its file, if so.
    pub fn lacks(&self) -> Option<String> {
        let what = self.columns.lacks.as_ref()?;
        Some(match &self.body {
            Body::Lines { .. } => format!("{}, line 1: {what}", self.path.display()),
            Body::Fields(_) => format!("{}: {what}", self.path.display()),
        })
    }

    /// Notes for the user: columns that were ignored, and those with unusual names.
    pub fn notes(&self) -> Vec<String> {
        let Columns { header, guessed, .. } = &self.columns;
        let mut notes: Vec<String> = (guessed.iter())
            .filter_map(|name| {
                Some(format!("the column `{}` was taken for `{name}`", header[self.columns.place(name)?]))
            })
            .collect();
        let free = self.unread();
        if !free.is_empty() {
            notes.push(format!("columns that are not read: {}", free.join(", ")));
        }
        let path = self.path.display();
        notes.iter_mut().for_each(|note| *note = format!("{path}: {note}"));
        notes
    }

    /// Ignored columns, without those that have no name.
    pub fn unread(&self) -> Vec<&str> {
        let free = (0..self.columns.header.len()).filter(|&at| self.columns.is_free(at));
        free.map(|at| self.columns.header[at].as_str()).filter(|name| !is_unnamed(name)).collect()
    }

    /// Refuses an ignored column with nearly the name of a missing one: it would change the measures.
    fn checked(self, form: &Form) -> Result<Table> {
        let optional = form.columns.iter().filter(|c| c.needed == Needed::No && !self.has(c.name));
        let missing: Vec<&str> = optional.map(|column| column.name).filter(|name| name.len() > 4).collect();
        for name in self.unread() {
            if let Some(known) = missing.iter().find(|known| is_typo(&name.to_lowercase(), known)) {
                return Err(Error::usage(format!(
                    "{}: no column `{name}` is known (did you mean `{known}`?). Rename it, or remove it",
                    self.path.display()
                )));
            }
        }
        Ok(self)
    }

    /// The rows below the header.
    pub fn records(&self) -> Box<dyn Iterator<Item = Result<Record<'_>>> + '_> {
        let header = &self.columns.header;
        let record = |place, fields| Record { place, columns: &self.columns, fields };
        match &self.body {
            Body::Fields(rows) => Box::new(rows.iter().enumerate().map(move |(at, fields)| {
                let place = SourceLine { path: &self.path, word: "row", line: at + 1 };
                Ok(record(place, fields.clone()))
            })),
            Body::Lines { rows, separator, bare } => {
                let lines: Box<dyn Iterator<Item = (SourceLine<'_>, &str)> + '_> = match separator {
                    Separator::Letter(mark) => Box::new(rows.quoted(*mark)),
                    Separator::Blanks | Separator::Json => Box::new(rows.lines()),
                };
                Box::new(lines.skip(usize::from(!bare)).map(move |(place, line)| {
                    let mut fields = match separator {
                        Separator::Json => values(place, line, header)?,
                        _ => split(place, line, *separator, header.len())?,
                    };
                    // Spreadsheets fill shorter rows with separators.
                    while fields.len() > header.len() && fields.last().is_some_and(String::is_empty) {
                        fields.pop();
                    }
                    if fields.len() != header.len() {
                        return Err(place.wrong(format!(
                            "expected {} fields ({}), found {}{}",
                            header.len(),
                            header.join(", "),
                            fields.len(),
                            if fields.len() > header.len() { QUOTED } else { "" }
                        )));
                    }
                    Ok(record(place, fields))
                }))
            }
        }
    }
}

/// The separator of a table that begins with `line`, whether this line is a row, and the columns.
fn detect_form(
    place: SourceLine,
    line: &str,
    folder: &Path,
    form: &Form,
    named: Named,
) -> Result<(Separator, bool, Columns)> {
    let mut fitting = Vec::new();
    // The failure of the separator with the most fields.
    let mut failure: Option<(usize, String)> = None;
    for separator in SEPARATORS {
        if matches!(separator, Separator::Blanks) && !fitting.is_empty() {
            break;
        }
        let fields = split(place, line, separator, form.bare.len())?;
        let count = fields.len();
        // A line without separators is one field under each of them.
        if count == 1 && !fitting.is_empty() {
            continue;
        }
        if let (Some(names), []) = (bare_columns(&fields, folder, form), named) {
            let names = names.iter().map(|name| name.to_string()).collect();
            let columns = Columns::from_header(names, form, &[]).map_err(|what| place.wrong(what))?;
            fitting.push((separator, true, columns));
            continue;
        }
        match Columns::from_header(header(line, separator, fields), form, named) {
            Ok(columns) => fitting.push((separator, false, columns)),
            Err(what) if failure.as_ref().is_none_or(|(most, _)| count > *most) => {
                failure = Some((count, what));
            }
            Err(_) => {}
        }
    }
    let only = if fitting.len() == 1 { fitting.pop() } else { None };
    only.ok_or_else(|| match (fitting.len(), failure) {
        (0, Some((_, what))) => place.wrong(what),
        _ => place.wrong(format!("`{line}` can be split in two ways. Separate columns by commas alone")),
    })
}

/// The names in a header line; `fields` are its fields as a row. Names don't contain blanks if blanks
/// separate.
fn header(line: &str, separator: Separator, fields: Vec<String>) -> Vec<String> {
    match separator {
        Separator::Blanks => line.split_whitespace().map(str::to_owned).collect(),
        _ => fields,
    }
}

/// The columns of a row of a list without a header. The last ones may be missing if only classes need them.
fn bare_columns(fields: &[String], folder: &Path, form: &Form) -> Option<&'static [&'static str]> {
    let holds = |(name, field): (&&str, &String)| {
        let column = form.columns.iter().find(|column| column.name == *name);
        match column.map_or(Holds::Text, |column| column.holds) {
            Holds::Image => is_image(field) || folder.join(field).is_file(),
            Holds::Text => !field.is_empty(),
            Holds::Flag => parse_flag(field).is_some(),
        }
    };
    let (names, left) = form.bare.split_at_checked(fields.len())?;
    let spared = |name: &&str| {
        form.columns.iter().any(|column| column.name == *name && column.needed == Needed::ForClasses)
    };
    (!names.is_empty() && left.iter().all(spared) && names.iter().zip(fields).all(holds)).then_some(names)
}

/// Whether a text ends with an image's extension.
pub fn is_image(text: &str) -> bool {
    Format::by_extension(Path::new(text)).is_some()
}

/// Whether the first line of a table names one of these columns of `form`, or is a row of a list without a
/// header.
pub fn begins(line: &str, folder: &Path, form: &Form, columns: &[&str]) -> bool {
    let place = SourceLine { path: folder, word: "line", line: 1 };
    SEPARATORS.into_iter().any(|separator| {
        let Ok(fields) = split(place, line, separator, form.bare.len()) else { return false };
        let bare = bare_columns(&fields, folder, form).is_some();
        let header = header(line, separator, fields);
        let named = |name: &str| {
            let column = form.columns.iter().find(|column| column.name == name);
            let own = [name];
            let also = column.iter().flat_map(|column| column.also).copied();
            let mut names = std::iter::once(&own[..]).chain(also).flatten();
            names.any(|name| header.iter().any(|field| plain(field) == plain(name)))
        };
        bare || columns.iter().any(|name| named(name))
    })
}

impl Record<'_> {
    /// The value of a column; `None` if the column is missing or the field empty.
    pub fn get(&self, column: &str) -> Option<&str> {
        let at = self.columns.place(column)?;
        Some(self.fields[at].as_str()).filter(|value| !value.is_empty())
    }

    /// The value of a column that must not be empty.
    pub fn need(&self, column: &str) -> Result<&str> {
        self.get(column).ok_or_else(|| self.wrong(column, "is empty"))
    }

    /// An error about a field.
    pub fn wrong(&self, column: &str, what: &str) -> Error {
        let at = self.columns.place(column).unwrap_or(0);
        self.place.wrong(format!("column {}, `{}`: {what}", at + 1, self.columns.header[at]))
    }

    pub fn camera(&self) -> Result<Option<u32>> {
        let parse = |text: &str| {
            let found = text.parse().map_err(|_| format!("expected a camera's number, found `{text}`"));
            found.map_err(|what| self.wrong("camera", &what))
        };
        self.get("camera").map(parse).transpose()
    }

    /// Whether a field says yes; an empty one says no.
    pub fn flag(&self, column: &str) -> Result<bool> {
        let Some(text) = self.get(column) else { return Ok(false) };
        parse_flag(text).ok_or_else(|| self.wrong(column, &format!("expected true or false, found `{text}`")))
    }
}

/// The meaning of a word for yes or no.
fn parse_flag(word: &str) -> Option<bool> {
    const YES: [&str; 8] = ["true", "1", "1.0", "yes", "y", "same", "genuine", "positive"];
    const NO: [&str; 9] = ["false", "0", "0.0", "-1", "no", "n", "different", "impostor", "negative"];
    let is = |known: &[&str]| known.iter().any(|known| known.eq_ignore_ascii_case(word));
    if is(&YES) { Some(true) } else { is(&NO).then_some(false) }
}

/// The fields of a line. If blanks separate `count` fields, the first one takes the rest: paths may have
/// blanks, labels may not.
fn split(place: SourceLine, line: &str, separator: Separator, count: usize) -> Result<Vec<String>> {
    let Separator::Letter(mark) = separator else {
        let (mut rest, mut fields) = (line, Vec::new());
        while let (true, Some((before, last))) = (fields.len() + 1 < count, rest.rsplit_once([' ', '\t'])) {
            fields.push(last.to_owned());
            rest = trimmed(before);
        }
        fields.push(rest.to_owned());
        fields.reverse();
        return Ok(fields);
    };
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let field = fields.last_mut().expect("never empty");
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => field.extend(letters.next()),
            '"' => quoted = !quoted,
            other if other == mark && !quoted => fields.push(String::new()),
            other => field.push(other),
        }
    }
    if quoted {
        return Err(place.wrong("a quotation mark is never closed"));
    }
    Ok(fields.into_iter().map(|field| trimmed(&field).to_owned()).collect())
}

/// The texts, numbers and flags of a JSON object, by their columns of `form`. Error: several match one
/// column.
pub fn scalars(
    mut object: serde_json::Map<String, serde_json::Value>,
    form: &Form,
    named: Named,
) -> std::result::Result<BTreeMap<&'static str, String>, String> {
    object.retain(|_, value| !value.is_object() && !value.is_array() && !value.is_null());
    let columns = Columns::from_header(object.keys().cloned().collect(), form, named)?;
    let value = |at: usize| plain_text(&object[&columns.header[at]]);
    Ok(columns.places.iter().map(|&(name, at)| (name, value(at))).filter(|(_, v)| !v.is_empty()).collect())
}

/// A JSON value as a field of a table.
fn plain_text(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => trimmed(text).to_owned(),
        other => other.to_string(),
    }
}

/// A line of JSON Lines.
fn object(place: SourceLine, line: &str) -> Result<serde_json::Map<String, serde_json::Value>> {
    let read = serde_json::from_str(line);
    read.map_err(|e| place.wrong(format!("expected a JSON object with the values of a row: {e}")))
}

/// The keys of all rows with text, numbers, or flags. Boxes and other lists in a row are not columns.
fn keys(rows: &Rows) -> Result<Vec<String>> {
    let mut keys = BTreeSet::new();
    for (place, line) in rows.lines() {
        let fields = object(place, line)?.into_iter();
        keys.extend(fields.filter(|(_, value)| !value.is_object() && !value.is_array()).map(|(key, _)| key));
    }
    Ok(keys.into_iter().collect())
}

/// The values of a row; empty if missing.
fn values(place: SourceLine, line: &str, keys: &[String]) -> Result<Vec<String>> {
    let object = object(place, line)?;
    let value = |key: &String| object.get(key).map_or(String::new(), plain_text);
    Ok(keys.iter().map(value).collect())
}
