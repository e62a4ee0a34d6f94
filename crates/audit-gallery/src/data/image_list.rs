//! A list of images: one row per image. Reads open-metric-learning's lists unchanged, a `camera`, and a
//! `group` by which reports divide the queries.

use super::folder::Contents;
use super::listing::{ListedImage, Listing, image_of, is_list, missing, named, of_split};
use super::table::{Column, Form, Holds, Needed, Record, Table};
use super::{Dataset, Layout, Open, Part, Role, Split, Wanted, pairs, shards};
use audit_base::{Error, Result};
use std::path::{Path, PathBuf};

const ABOUT: &str = "a .csv, .tsv, .txt or .jsonl file with the columns path and label, and optionally id, split (train, or test or \
                     validation), is_query, is_gallery, camera, group; paths are relative to the file";

pub const LAYOUT: Layout = Layout {
    name: "csv",
    about: ABOUT,
    takes_file: true,
    stretched: false,
    detect: |path| is_list(path) && !pairs::is_pairs(path) && !shards::lists(path),
    // A list that can't be read is refused later, when it is opened.
    has_splits: |path| Table::read(path, &FORM, &[]).is_ok_and(|table| table.has("split")),
    open: Open::Columns(open),
};

/// The list of an image folder in the form of Hugging Face's `datasets`.
pub const METADATA: Layout = Layout {
    name: "imagefolder",
    about: METADATA_ABOUT,
    takes_file: false,
    stretched: false,
    detect: |path| metadata(path, None).is_some_and(|list| names_classes(&list)),
    has_splits: |path| path.join("train").is_dir(),
    open: Open::Columns(|path, wanted| match metadata(path, wanted.split) {
        Some(list) => {
            let split = wanted.split.filter(|_| list.parent() == Some(path));
            read(&list, &Wanted { split, ..wanted.clone() }, METADATA.name)
        }
        None => Err(missing(&path.join(METADATA_FILES[0]), METADATA_ABOUT)),
    }),
};

const METADATA_ABOUT: &str = "metadata.csv or metadata.jsonl with file_name and label, beside the images; in PATH, or in PATH/test and PATH/train";
const METADATA_FILES: [&str; 2] = ["metadata.csv", "metadata.jsonl"];

/// The list of a split: in its folder, otherwise in `path`.
fn metadata(path: &Path, split: Option<Split>) -> Option<PathBuf> {
    let folders = of_split(split, &["train", ""][..], &["test", "validation", ""][..]);
    let lists = |folder: &&str| METADATA_FILES.map(|list| path.join(folder).join(list));
    folders.iter().flat_map(lists).find(|list| list.is_file())
}

/// Whether the classes are in the list, and not in the names of folders beside it.
fn names_classes(list: &Path) -> bool {
    let folder = list.parent().unwrap_or(Path::new(""));
    let flat = Contents::of(folder).is_ok_and(|inside| !inside.images.is_empty());
    flat || Table::read(list, &FORM, &[]).is_ok_and(|table| table.names("label"))
}

/// Columns of open-metric-learning that would change the measures and aren't supported: an error unless
/// empty.
const UNSUPPORTED: [&str; 5] = ["sequence", "x_1", "x_2", "y_1", "y_2"];

const PATHS: [&str; 9] =
    ["image_path", "img_path", "file_path", "file_name", "file", "image", "img", "image_name", "image_file"];
pub const LABELS: [&str; 14] = [
    "labels",
    "class",
    "class_name",
    "class_label",
    "class_id",
    "identity",
    "person_id",
    "pid",
    "landmark_id",
    "product_id",
    "item_id",
    "vehicle_id",
    "individual_id",
    "target",
];

pub const FORM: Form = Form {
    columns: &[
        Column {
            also: &[&PATHS, &["id", "image_id", "img_id"]],
            holds: Holds::Image,
            flag: "--image-column",
            ..Column::required("path")
        },
        Column {
            also: &[&LABELS, &["category", "id"]],
            needed: Needed::ForClasses,
            flag: "--label-column",
            ..Column::required("label")
        },
        Column::optional("id"),
        Column::optional("split"),
        Column { holds: Holds::Flag, ..Column::optional("is_query") },
        Column { holds: Holds::Flag, ..Column::optional("is_gallery") },
        Column { also: &[&["camera_id", "cam_id", "cam"]], ..Column::optional("camera") },
        Column::optional("group"),
        Column::optional(UNSUPPORTED[0]),
        Column::optional(UNSUPPORTED[1]),
        Column::optional(UNSUPPORTED[2]),
        Column::optional(UNSUPPORTED[3]),
        Column::optional(UNSUPPORTED[4]),
    ],
    bare: &["path", "label"],
    about: ABOUT,
};

fn open(path: &Path, wanted: &Wanted) -> Result<Dataset> {
    if !path.is_file() {
        let what = if path.is_dir() { "a folder" } else { "a pipe or a device" };
        return Err(Error::usage(format!("{} is {what}. Expected is {ABOUT}", path.display())));
    }
    read(path, wanted, LAYOUT.name)
}

/// The images of a list; `layout` is its name in the report.
fn read(path: &Path, wanted: &Wanted, layout: &str) -> Result<Dataset> {
    let table = Table::read(path, &FORM, &wanted.columns())?;
    let split = wanted.split;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut listing = Listing::default();
    gather(&table, split, &mut listing, |record| {
        let (id, path) = image_of(folder, record.need("path")?);
        Ok((id, path, Part::Whole))
    })?;
    let part = if table.has("split") { named(split) } else { "all rows".into() };
    Ok(Dataset { notes: table.notes(), ..listing.finish(path, layout, part)? })
}

/// The split that a row names.
fn split_of(record: &Record) -> Result<Split> {
    match record.get("split").map(str::to_lowercase).as_deref() {
        Some("train" | "training") => Ok(Split::Train),
        Some("test" | "validation" | "val" | "valid") => Ok(Split::Test),
        Some(other) => {
            Err(record.wrong("split", &format!("expected train, test or validation, found `{other}`")))
        }
        None => Err(record.wrong("split", "is empty")),
    }
}

/// The role of a row, if rows have `roles`; else both.
fn role_of(record: &Record, roles: bool) -> Result<Role> {
    match (record.flag("is_query")?, record.flag("is_gallery")?) {
        _ if !roles => Ok(Role::Both),
        (true, true) => Ok(Role::Both),
        (true, false) => Ok(Role::Query),
        (false, true) => Ok(Role::Gallery),
        (false, false) => {
            Err(record.wrong("is_query", "the image is neither query nor gallery. Make it one of them"))
        }
    }
}

/// Lists the rows of a table that belong to a split. `image` returns for each row: its id, if the table has
/// no other, its file, and the part of the file.
pub fn gather(
    table: &Table,
    split: Option<Split>,
    listing: &mut Listing,
    mut image: impl FnMut(&Record) -> Result<(String, PathBuf, Part)>,
) -> Result<()> {
    let path = table.path();
    if let (Some(split), false) = (split, table.has("split")) {
        return Err(Error::usage(format!(
            "{} has no column `split`, which --split {split} asks for",
            path.display()
        )));
    }
    let (has_query, has_gallery) = (table.has("is_query"), table.has("is_gallery"));
    if has_query != has_gallery {
        return Err(Error::usage(format!(
            "{}: the columns is_query and is_gallery come together",
            path.display()
        )));
    }
    let wanted = split.unwrap_or(Split::Test);
    let lacks = table.lacks();
    for record in table.records() {
        let record = record?;
        if let Some(column) = UNSUPPORTED.iter().find(|column| record.get(column).is_some()) {
            return Err(record.wrong(
                column,
                "isn't supported: cut boxes out beforehand, give sequences as cameras, and leave this empty",
            ));
        }
        let own = if table.has("split") { split_of(&record)? } else { wanted };
        if own != wanted {
            continue;
        }
        let role = role_of(&record, has_query && own == Split::Test)?;
        let (id, path, part) = image(&record)?;
        let id = record.get("id").map_or(id, str::to_owned);
        let class = match &lacks {
            Some(what) => Err(what.clone()),
            None => record.need("label").map(str::to_owned).map_err(|e| e.message),
        };
        let row = ListedImage {
            class: class.unwrap_or_else(|what| listing.lacks_a_class(&id, what)),
            id,
            path,
            part,
            camera: record.camera()?,
            role,
            group: record.get("group").map(Into::into),
        };
        listing.add(record.place, row)?;
    }
    Ok(())
}
