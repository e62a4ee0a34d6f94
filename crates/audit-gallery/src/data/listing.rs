//! Code that layouts with list files share: reading lists, and making a [`Dataset`] of their rows.

use super::folder::Contents;
use super::{Dataset, Item, Origin, Part, Role, Split, Stored};
use audit_base::error::shortened;
use audit_base::{Error, Result, files};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Display;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// `path` or its folder `name`, whichever contains `marker`.
pub fn root(path: &Path, name: &str, marker: &str) -> Option<PathBuf> {
    [path.to_path_buf(), path.join(name)].into_iter().find(|root| root.join(marker).exists())
}

/// [`root`], or an error that says what was expected.
pub fn expect_root(path: &Path, name: &str, marker: &str, about: &str) -> Result<PathBuf> {
    root(path, name, marker).ok_or_else(|| missing(&path.join(marker), about))
}

/// The error if `path` is missing: what was expected, and what its folder contains instead.
pub fn missing(path: &Path, about: &str) -> Error {
    const SHOWN: usize = 8;
    let folder = path.ancestors().skip(1).find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    names.sort();
    let found = if names.is_empty() { "nothing".into() } else { shortened(&names, SHOWN) };
    Error::usage(format!(
        "{} is missing. Expected is {about}. Found {found} in {}",
        path.display(),
        folder.display()
    ))
}

/// The lines of a text file.
pub struct Rows {
    path: PathBuf,
    text: String,
}

impl Rows {
    /// Reads `path`; `about` describes the layout to the user.
    pub fn read(path: PathBuf, about: &str) -> Result<Rows> {
        match files::read(&path, files::LARGE) {
            Err(_) if !path.exists() => Err(missing(&path, about)),
            Err(reason) => {
                Err(Error::usage(format!("can't read {}: {reason}. Expected is {about}", path.display())))
            }
            Ok(bytes) => match text(bytes) {
                Ok(text) => Ok(Rows { path, text }),
                Err((line, what)) => Err(Error::usage(format!(
                    "{}, line {line}: not {what} text. Save the list as UTF-8",
                    path.display()
                ))),
            },
        }
    }

    /// Non-empty lines and their positions.
    pub fn lines(&self) -> impl Iterator<Item = (SourceLine<'_>, &str)> {
        let numbered = self.text.lines().enumerate().map(|(at, line)| (self.place(at + 1), trimmed(line)));
        numbered.filter(|(_, line)| !line.is_empty())
    }

    /// Non-empty rows of fields that `mark` separates, and their positions. A row goes on as long as a field
    /// that begins with a quotation mark does: names of files may contain line breaks.
    pub fn quoted(&self, mark: char) -> impl Iterator<Item = (SourceLine<'_>, &str)> {
        let (mut rest, mut line) = (self.text.as_str(), 1);
        let rows = std::iter::from_fn(move || {
            // Whether a quotation mark here would open a field, or go on with one as a doubled mark.
            let (mut open, mut opens) = (false, true);
            let end = rest.bytes().position(|byte| {
                match byte {
                    b'"' if open => (open, opens) = (false, true),
                    b'"' => open = opens,
                    b' ' => {}
                    other => opens = other == mark as u8,
                }
                byte == b'\n' && !open
            });
            let (row, after) = rest.split_at(end.map_or(rest.len(), |at| at + 1));
            let place = self.place(line);
            line += row.matches('\n').count();
            rest = after;
            (!row.is_empty()).then(|| (place, trimmed(row.strip_suffix('\n').unwrap_or(row))))
        });
        rows.filter(|(_, row)| !row.is_empty())
    }

    /// Lines of exactly `N` fields, split at white space, after the first `skip`; `fields` names them.
    pub fn fields<const N: usize>(
        &self,
        skip: usize,
        fields: &str,
    ) -> impl Iterator<Item = Result<(SourceLine<'_>, [&str; N])>> {
        self.lines().skip(skip).map(move |(place, line)| {
            let found: Vec<&str> = line.split_whitespace().collect();
            let count = found.len();
            match <[&str; N]>::try_from(found) {
                Ok(found) => Ok((place, found)),
                Err(_) => {
                    Err(place
                        .wrong(format!("expected {N} fields, `{fields}`, and found {count} in `{line}`")))
                }
            }
        })
    }

    /// The first `N` non-empty lines. Error: there are fewer.
    pub fn first<const N: usize>(&self) -> Result<[(SourceLine<'_>, &str); N]> {
        let lines: Vec<_> = self.lines().take(N).collect();
        lines.try_into().map_err(|_| Error::usage(format!("{} is empty", self.path.display())))
    }

    fn place(&self, line: usize) -> SourceLine<'_> {
        SourceLine { path: &self.path, word: "line", line }
    }
}

/// Decodes a file: UTF-8, or UTF-16 with a byte order mark, as written by Windows and Excel. Error: the first
/// invalid line, and the encoding at the beginning of the file.
fn text(bytes: Vec<u8>) -> std::result::Result<String, (usize, &'static str)> {
    let wide: fn([u8; 2]) -> u16 = match bytes[..] {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => {
            let line = |before: &[u8]| 1 + before.iter().filter(|&&byte| byte == b'\n').count();
            let text = String::from_utf8(bytes)
                .map_err(|wrong| (line(&wrong.as_bytes()[..wrong.utf8_error().valid_up_to()]), "UTF-8"))?;
            return Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text));
        }
    };
    let pairs = bytes[2..].chunks_exact(2).map(|pair| wide([pair[0], pair[1]]));
    let mut text = String::with_capacity(bytes.len() / 2);
    for letter in char::decode_utf16(pairs) {
        text.push(letter.map_err(|_| (text.lines().count().max(1), "UTF-16"))?);
    }
    match bytes.len() % 2 {
        0 => Ok(text),
        _ => Err((text.lines().count().max(1), "UTF-16")),
    }
}

/// Extensions of files that list images.
pub const LISTS: [&str; 5] = ["csv", "tsv", "txt", "lst", "jsonl"];

/// The first non-empty lines of a file that may list images, by its extension; empty for other files, and for
/// files that can't be read.
pub fn first_lines(path: &Path) -> Vec<String> {
    const READ: u64 = 1 << 16;
    let mut bytes = Vec::new();
    if let (true, Ok(file)) = (is_list(path), files::open(path)) {
        _ = file.take(READ).read_to_end(&mut bytes);
    }
    if bytes.len() as u64 == READ {
        // The last line is incomplete, and may end within a character.
        let end = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
        bytes.truncate(end + end % 2);
    }
    let text = text(bytes).unwrap_or_default();
    text.lines().map(trimmed).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Whether a file may list images, by its extension.
pub fn is_list(path: &Path) -> bool {
    path.is_file()
        && path.extension().is_some_and(|own| LISTS.iter().any(|list| own.eq_ignore_ascii_case(list)))
}

/// The image that a list names, and its name with slashes: lists from Windows have backslashes.
pub fn image_of(folder: &Path, name: &str) -> (String, PathBuf) {
    let path = folder.join(name);
    match name.contains('\\') && (cfg!(windows) || !path.exists()) {
        true => {
            let name = name.replace('\\', "/");
            let path = folder.join(&name);
            (name, path)
        }
        false => (name.into(), path),
    }
}

/// The text without surrounding blanks. Other white space, such as a line separator (U+2028), may distinguish
/// two labels.
pub fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\r'])
}

/// A line of a file, for messages.
#[derive(Clone, Copy)]
pub struct SourceLine<'a> {
    pub path: &'a Path,
    /// Name of the unit: `line`, or `row` in a file without lines.
    pub word: &'static str,
    /// Number, from 1.
    pub line: usize,
}

impl SourceLine<'_> {
    pub fn wrong(self, what: impl Display) -> Error {
        Error::usage(format!("{self}: {what}"))
    }

    /// Refuses a line that differs from the header. Both are split at white space.
    pub fn expect_header(self, found: &str, header: &str) -> Result<()> {
        match found.split_whitespace().eq(header.split(' ')) {
            true => Ok(()),
            false => Err(self.wrong(format!("expected the header `{header}`, found `{found}`"))),
        }
    }

    /// A number that is at least `least`.
    pub fn number(self, what: &str, text: &str, least: i64) -> Result<i64> {
        text.parse().ok().filter(|&n| n >= least).ok_or_else(|| {
            self.wrong(format!("{what} must be a whole number of at least {least}, found `{text}`"))
        })
    }
}

impl Display for SourceLine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} {}", self.path.display(), self.word, self.line)
    }
}

pub struct ListedImage {
    /// Unique name.
    pub id: String,
    pub class: String,
    pub path: PathBuf,
    pub part: Part,
    /// See [`Item::camera`].
    pub camera: Option<u32>,
    /// See [`Item::role`].
    pub role: Role,
    /// See [`Item::group`].
    pub group: Option<String>,
}

/// What to do about a listed file that is missing. The list often lacks its extension or one of its folders.
fn next_step(path: &Path) -> String {
    /// The folder of the file, and the one above.
    const LEVELS: usize = 2;
    let inside = |folder: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let name = path.file_name().unwrap_or_default();
    let longer = path.parent().into_iter().flat_map(inside);
    let longer = longer.filter(|other| other.file_stem() == Some(name) && other.is_file());
    if let Some(found) = longer.min() {
        return format!("There is {}: write the extension into the list", found.display());
    }
    let deeper = path.ancestors().skip(1).take(LEVELS).flat_map(|above| {
        let rest = path.strip_prefix(above).unwrap_or(path);
        inside(above).into_iter().map(|folder| folder.join(rest)).filter(|other| other.is_file()).min()
    });
    let higher = path.ancestors().skip(2).take(LEVELS).map(|above| above.join(name));
    match deeper.chain(higher.filter(|other| other.is_file())).next() {
        Some(found) => format!("There is {}: paths in a list begin at the list's folder", found.display()),
        None => "Unpack the data set completely, or remove the row".into(),
    }
}

impl ListedImage {
    /// A whole file without camera and group, which is a query and in the gallery.
    pub fn new(id: impl Into<String>, class: impl Into<String>, path: PathBuf) -> ListedImage {
        let (id, class, part, role) = (id.into(), class.into(), Part::Whole, Role::Both);
        ListedImage { id, class, path, part, camera: None, role, group: None }
    }
}

/// The names in a folder, or why it can't be listed. A folder that is missing has none.
type Names = std::result::Result<HashSet<std::ffi::OsString>, String>;

/// Collects the rows of lists.
#[derive(Default)]
pub struct Listing {
    rows: Vec<(String, ListedImage)>,
    folders: HashMap<PathBuf, Names>,
    seen: HashMap<String, usize>,
    /// Why the first image without a class has none.
    lacks: Option<String>,
    /// See [`Dataset::left_out`].
    left_out: Vec<String>,
}

impl Listing {
    /// A separate class for an image without one in the list; [`Dataset::open`] refuses it with the reason
    /// `why`.
    pub fn lacks_a_class(&mut self, id: &str, why: String) -> String {
        self.lacks.get_or_insert(why);
        id.to_owned()
    }

    /// Notes what a folder contains besides images; `inside` is its name and a slash. `folders` says whether
    /// folders in it are not read either.
    pub fn leaves_out(&mut self, inside: &str, contents: &Contents, folders: bool) {
        let folders = contents.folders.iter().filter(|_| folders).map(|(name, _)| format!("{name}/"));
        let others = contents.others.iter().cloned().chain(folders);
        self.left_out.extend(others.map(|name| format!("{inside}{name}")));
    }

    /// Adds an image listed at `place`. Refuses duplicate names and missing files.
    pub fn add(&mut self, place: impl Display, row: ListedImage) -> Result<()> {
        let place = place.to_string();
        if let Some(&first) = self.seen.get(&row.id) {
            return Err(Error::usage(format!(
                "{place}: `{}` was listed before, at {}. Names must be unique",
                row.id, self.rows[first].0
            )));
        }
        // Reads each folder once instead of checking each file: lists have up to 100,000 files, often on a
        // network.
        let folder = row.path.parent().unwrap_or(Path::new("")).to_path_buf();
        let there = self.folders.entry(folder).or_insert_with_key(|folder| match std::fs::read_dir(folder) {
            Ok(entries) => Ok(entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect()),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Ok(HashSet::new())
            }
            Err(e) => Err(format!("can't list {}: {e}", folder.display())),
        });
        let there = there.as_ref().map_err(|why| Error::usage(format!("{place}: {why}")))?;
        if !row.path.file_name().is_some_and(|name| there.contains(name)) {
            return Err(Error::usage(format!(
                "{place}: image {} is listed, but missing. {}",
                row.path.display(),
                next_step(&row.path)
            )));
        }
        self.seen.insert(row.id.clone(), self.rows.len());
        self.rows.push((place, row));
        Ok(())
    }

    /// The data set of the rows, in any order. Classes are sorted by name, images of a class by id. `root`
    /// and `part` describe the data set in the report.
    ///
    /// Errors: no rows (exit code 4); the class of a query has nothing in the gallery (exit code 2).
    pub fn finish(self, root: &Path, layout: &str, part: impl Display) -> Result<Dataset> {
        let shown = root.display();
        if self.rows.is_empty() {
            return Err(Error::empty(format!(
                "{shown} lists no images (layout {layout}, {part}). Check what it has, or state another --layout or --split"
            )));
        }
        let mut classes: BTreeMap<String, usize> = BTreeMap::new();
        self.rows.iter().for_each(|(_, row)| _ = classes.insert(row.class.clone(), 0));
        classes.values_mut().enumerate().for_each(|(index, class)| *class = index);
        let gallery_classes: HashSet<&str> = self
            .rows
            .iter()
            .filter(|(_, row)| row.role != Role::Query)
            .map(|(_, row)| row.class.as_str())
            .collect();
        let lost = self.rows.iter().find(|(_, row)| !gallery_classes.contains(row.class.as_str()));
        if let (Some((place, row)), None) = (lost, &self.lacks) {
            return Err(Error::usage(format!(
                "{place}: query `{}` has class `{}`, of which the gallery holds no image. Add one, or remove the query",
                row.id, row.class
            )));
        }
        if self.rows.iter().all(|(_, row)| row.role == Role::Gallery) {
            return Err(Error::empty(format!(
                "{shown} ({layout}) lists a gallery and no queries in the {part}"
            )));
        }
        let mut items: Vec<Item> = self
            .rows
            .into_iter()
            .map(|(place, ListedImage { id, class, path, part, camera, role, group })| Item {
                id,
                class: classes[&class],
                origin: Origin::File(Stored {
                    path,
                    part,
                    camera,
                    role,
                    group: group.map(Into::into),
                    place: Some(place.into()),
                }),
            })
            .collect();
        // Independent of the order of rows, because ties are broken by an item's index.
        items.sort_by(|a, b| {
            let key = |item: &Item| (item.role() == Role::Query, item.class);
            key(a).cmp(&key(b)).then_with(|| a.id.cmp(&b.id))
        });
        let source = format!("{shown} ({layout}, {part})");
        let classes = classes.into_keys().collect();
        Ok(Dataset {
            source,
            classes,
            items,
            unlabelled: self.lacks,
            left_out: self.left_out,
            ..Dataset::default()
        })
    }
}

/// Zero-shot split by class number: train up to `last`, test above.
pub fn zero_shot(split: Option<Split>, last: i64) -> (impl Fn(i64) -> bool, String) {
    let split = split.unwrap_or(Split::Test);
    let part = match split {
        Split::Train => format!("train split, classes 1 to {last}"),
        Split::Test => format!("test split, classes from {}", last + 1),
    };
    (move |class| (class <= last) == (split == Split::Train), part)
}

/// The value for a split; without one, that for the test split, on which papers evaluate.
pub fn of_split<T>(split: Option<Split>, train: T, test: T) -> T {
    if split == Some(Split::Train) { train } else { test }
}

/// The name of a split in a report.
pub fn named(split: Option<Split>) -> String {
    format!("{} split", split.unwrap_or(Split::Test))
}
