//! A CSV manifest: one row per image. It takes open-metric-learning's tables as they are, a `camera`, and a `group` by
//! which reports divide the queries.

use super::csv::CsvTable;
use super::listing::{ListedImage, Listing, named};
use super::{Dataset, Layout, Role, Split, pairs};
use audit_base::{Error, Result};
use std::path::Path;

const ABOUT: &str = "a .csv file with the columns path and label, and optionally id, split (train, or test or \
                     validation), is_query, is_gallery, camera, group, category; paths are relative to the file";

pub const LAYOUT: Layout = Layout {
    name: "csv",
    about: ABOUT,
    takes_file: true,
    stretched: false,
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

fn read(path: &Path) -> Result<CsvTable> {
    CsvTable::read(path, &["path", "label"], &[COLUMNS, UNSUPPORTED].concat(), ABOUT)
}

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    if !path.is_file() {
        let what = if path.is_dir() { "a folder" } else { "a pipe or a device" };
        return Err(Error::usage(format!("{} is {what}. Expected is {ABOUT}", path.display())));
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
        let row = ListedImage {
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
