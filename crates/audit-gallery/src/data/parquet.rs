//! Parquet files with images and their classes, as Hugging Face's `datasets` writes them. The images stay in
//! the files: a row group is decoded when one of its images is read.

use super::image_list::{FORM, gather};
use super::listing::{Listing, named};
use super::shards::{self, Shards};
use super::table::Table;
use super::{Dataset, Layout, Open, Part, Wanted};
use crate::columns::{ParquetTable, RowGroups};
use audit_base::Result;
use std::path::Path;
use std::sync::Arc;

const ABOUT: &str = "a .parquet file, a folder of them, or a list of them, with the files of images in a column such as image, and a column label; and \
                     optionally the other columns of csv";

pub const LAYOUT: Layout = Layout {
    name: "parquet",
    about: ABOUT,
    takes_file: true,
    stretched: false,
    detect: |path| Shards::are_at(path, EXTENSION),
    has_splits: |path| {
        let first = || shards::files(path, EXTENSION).first().is_some_and(|file| has_split(file));
        Shards::have_splits(path, EXTENSION) || first()
    },
    open: Open::Columns(open),
};

const EXTENSION: &str = shards::PARQUET;
/// The column of images.
const PATH: &str = "path";
/// Key under which `datasets` describes the columns.
const FEATURES: &str = "huggingface";

fn open(path: &Path, wanted: &Wanted) -> Result<Dataset> {
    // The names of files state the split, or a column does.
    let by_files = Shards::have_splits(path, EXTENSION);
    let shards = Shards::of(path, EXTENSION, wanted.split.filter(|_| by_files))
        .ok_or_else(|| Shards::missing(path, EXTENSION, wanted.split, ABOUT))?;
    let mut listing = Listing::default();
    let (mut notes, mut by_rows) = (shards.notes.clone(), false);
    let cache = Arc::default();
    for (file, name) in shards.taken.iter().zip(&shards.names) {
        let of_file =
            list(file, name, wanted, by_files, &mut listing, &cache).map_err(|e| shards.wrong(e))?;
        by_rows |= of_file.has("split");
        notes.extend(of_file.notes());
    }
    let part = if by_rows { named(wanted.split) } else { shards.part };
    Ok(Dataset { notes, ..listing.finish(path, LAYOUT.name, part)? })
}

/// Whether a column states the split of each row. A file that can't be read is refused when it is opened.
fn has_split(file: &Path) -> bool {
    let names = ParquetTable::open(file, ABOUT);
    names.is_ok_and(|table| table.names().iter().any(|name| name.eq_ignore_ascii_case("split")))
}

/// Lists the images of a file, and returns its rows. `shown` is its name in ids. `by_files` says that the
/// names of files state the split. `cache` has row groups of all files of the data set.
fn list(
    path: &Path,
    shown: &str,
    wanted: &Wanted,
    by_files: bool,
    listing: &mut Listing,
    cache: &Arc<RowGroups>,
) -> Result<Table> {
    let file = ParquetTable::open(path, ABOUT)?;
    let images = images(&file, wanted.image_column.as_deref())?;
    let values = Arc::new(file.column(&images, cache));
    let empty = file.empty(&values)?;
    let column = images.split('.').next().unwrap_or(&images);
    let header: Vec<String> = file.names().into_iter().map(str::to_owned).collect();
    // Images are in this column, even if another one has paths.
    let columns: Vec<(&'static str, &str)> = std::iter::once((PATH, column)).chain(wanted.label()).collect();
    let table = Table::of_columns(path, header, &FORM, &columns, |name| {
        if name == column {
            return Ok((1..=values.rows()).map(|row| format!("{shown}/{row:06}")).collect());
        }
        let known = class_names(&file, name);
        let text = |(row, text): (usize, Option<String>)| {
            let text = text.unwrap_or_default();
            let number = text.parse::<i64>().ok().filter(|_| !known.is_empty());
            match number.map(usize::try_from) {
                None => Ok(text),
                // `datasets` writes -1 if a label isn't known, as in test parts of benchmarks.
                Some(Err(_)) => Ok(String::new()),
                Some(Ok(at)) => known.get(at).cloned().ok_or_else(|| {
                    file.wrong(format!(
                        "row {}: column `{name}` is {at}, and the file names the classes 0 to {}",
                        row + 1,
                        known.len() - 1
                    ))
                }),
            }
        };
        file.texts(name)?.into_iter().enumerate().map(text).collect()
    })?;
    let split = wanted.split.filter(|_| !by_files || table.has("split"));
    gather(&table, split, listing, |record| {
        let row = record.place.line - 1;
        if empty.binary_search(&row).is_ok() {
            return Err(record
                .place
                .wrong(format!("column `{images}` is empty. Write the files of the images into it")));
        }
        Ok((record.need(PATH)?.to_owned(), path.into(), Part::Value(values.clone(), row)))
    })?;
    Ok(table)
}

/// The column of images: the one that the user names, or the one whose values are bytes.
fn images(file: &ParquetTable, named: Option<&str>) -> Result<String> {
    let all = file.of_bytes();
    let is = |column: &String, name: &str| column == name || column.split('.').next() == Some(name);
    if let Some(name) = named {
        return all.iter().find(|column| is(column, name)).cloned().ok_or_else(|| {
            let found = if all.is_empty() { file.names() } else { all.iter().map(String::as_str).collect() };
            file.wrong(format!(
                "no column `{name}` holds the bytes of images. Found are {}",
                found.join(", ")
            ))
        });
    }
    match &all[..] {
        [] => Err(file.wrong(format!(
            "no column holds the bytes of images. Found are {}. A gallery of embeddings is given as --gallery",
            file.names().join(", ")
        ))),
        [only] => Ok(only.clone()),
        _ => {
            let usual = all.iter().find(|column| is(column, "image"));
            usual.cloned().ok_or_else(|| {
                file.wrong(format!(
                    "the columns {} may all be images. Say which: --image-column {}",
                    all.join(", "),
                    all[0].split('.').next().unwrap_or_default()
                ))
            })
        }
    }
}

/// The names of `datasets` for the numbers in a column.
fn class_names(file: &ParquetTable, column: &str) -> Vec<String> {
    let features: Option<serde_json::Value> =
        file.note(FEATURES).and_then(|text| serde_json::from_str(text).ok());
    let names = features.map(|all| all["info"]["features"][column]["names"].clone());
    names.and_then(|names| serde_json::from_value(names).ok()).unwrap_or_default()
}
