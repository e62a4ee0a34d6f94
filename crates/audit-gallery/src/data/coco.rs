//! COCO's annotation files (Lin et al. 2014): every annotated box is an image of its category, cropped from
//! its file.

use super::listing::{LISTS, ListedImage, Listing, image_of};
use super::{Dataset, Layout, Open, Part, Split, shards};
use audit_base::{Error, Result, files};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const ABOUT: &str = "a .json file in COCO's form, with images, annotations and categories: every box is cut out as an image of its category; without \
                     boxes, files are taken whole";

pub const LAYOUT: Layout = Layout {
    name: "coco",
    about: ABOUT,
    takes_file: true,
    stretched: false,
    detect: |path| path.is_file() && path.extension().is_some_and(|own| own.eq_ignore_ascii_case("json")),
    has_splits: |_| false,
    open: Open::Split(open),
};

#[derive(Deserialize)]
struct Coco {
    images: Vec<Image>,
    annotations: Vec<Annotation>,
    categories: Vec<Category>,
}

// Identifiers are numbers or texts.
#[derive(Deserialize)]
struct Image {
    id: Value,
    file_name: String,
}

#[derive(Deserialize)]
struct Annotation {
    id: Option<Value>,
    image_id: Value,
    category_id: Value,
    /// Left, top, width, height.
    bbox: Option<Vec<f64>>,
    /// 1 if the box is around many objects.
    #[serde(default)]
    iscrowd: u8,
}

#[derive(Deserialize)]
struct Category {
    id: Value,
    name: String,
}

/// Names by identifier. Error (exit code 2): two of them have the same.
fn by_id<'c>(
    path: &Path,
    what: &str,
    all: impl Iterator<Item = (&'c Value, &'c str)>,
) -> Result<HashMap<String, &'c str>> {
    let mut found = HashMap::new();
    for (id, name) in all {
        match found.insert(id.to_string(), name) {
            Some(other) if other != name => {
                return Err(Error::usage(format!(
                    "{}: two {what} have the id {id}, `{other}` and `{name}`. Give each an id of its own",
                    path.display()
                )));
            }
            _ => (),
        }
    }
    Ok(found)
}

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    let shown = path.display();
    if let Some(split) = split {
        return Err(Error::usage(format!(
            "COCO has a file for each split: leave --split {split} out, and name the file of the split"
        )));
    }
    let unreadable =
        |reason: &dyn std::fmt::Display| Error::usage(format!("{shown}: {reason}. Expected is {ABOUT}"));
    let bytes = files::read(path, files::LARGE).map_err(|reason| unreadable(&reason))?;
    let Coco { images, annotations, categories } =
        serde_json::from_slice(&bytes).map_err(|reason| refusal(path, &bytes, &reason))?;
    let files = by_id(path, "images", images.iter().map(|image| (&image.id, image.file_name.as_str())))?;
    let names = by_id(path, "categories", categories.iter().map(|of| (&of.id, of.name.as_str())))?;
    let folder = folder(path, images.first().map_or("", |image| &image.file_name));
    let mut listing = Listing::default();
    let mut left_out = 0;
    for (at, annotation) in annotations.iter().enumerate() {
        let number = annotation.id.as_ref().map_or_else(|| at.to_string(), Value::to_string);
        let place = format!("{shown}, annotation {number}");
        let find = |all: &HashMap<String, &str>, id: &Value, what: &str| {
            let name = all.get(&id.to_string()).map(|name| name.to_string());
            name.ok_or_else(|| {
                Error::usage(format!("{place}: {what} {id} is not in the file. Remove the annotation"))
            })
        };
        let file = find(&files, &annotation.image_id, "image")?;
        let class = find(&names, &annotation.category_id, "category")?;
        let (name, path) = image_of(&folder, &file);
        let (id, part) = match annotation.bbox.as_deref() {
            None | Some([]) => (name, Part::Whole),
            Some(&[left, top, width, height]) => {
                if annotation.iscrowd != 0 || width <= 0.0 || height <= 0.0 {
                    left_out += 1;
                    continue;
                }
                // Every pixel that the box touches. The cast makes negative edges 0.
                let edges = [left.floor(), top.floor(), (left + width).ceil(), (top + height).ceil()];
                (format!("{name}#{number}"), Part::Box(edges.map(|edge| edge as u32)))
            }
            Some(other) => {
                return Err(Error::usage(format!(
                    "{place}: bbox has {} numbers. Expected are 4: left, top, width, height",
                    other.len()
                )));
            }
        };
        listing.add(place, ListedImage { part, ..ListedImage::new(id, class, path) })?;
    }
    let note = format!("{shown}: {left_out} annotations of crowds or without an area are not read");
    let notes = if left_out == 0 { Vec::new() } else { vec![note] };
    Ok(Dataset { notes, ..listing.finish(path, LAYOUT.name, "all annotations")? })
}

/// Why a file is not a COCO annotation file: its keys, and the supported ones.
fn refusal(path: &Path, bytes: &[u8], reason: &serde_json::Error) -> Error {
    const KEYS: [&str; 3] = ["images", "annotations", "categories"];
    let shown = path.display();
    let keys = |object: &Map<String, Value>| match object.len() {
        0 => "no keys".to_string(),
        n => {
            let first: Vec<String> = object.keys().take(5).map(|key| format!("`{key}`")).collect();
            format!("the keys {}{}", first.join(", "), if n > 5 { " …" } else { "" })
        }
    };
    let lines = || serde_json::Deserializer::from_slice(bytes).into_iter::<Map<String, Value>>();
    let lines_name = path.with_extension("jsonl");
    let lines_name = lines_name.display();
    let found = match serde_json::from_slice(bytes) {
        Ok(Value::Object(object)) if KEYS.iter().all(|key| object.contains_key(*key)) => {
            return Error::usage(format!("{shown}: {reason}. Expected is {ABOUT}"));
        }
        Ok(Value::Object(object)) => {
            let missing: Vec<String> = (KEYS.iter().filter(|key| !object.contains_key(**key)))
                .map(|key| format!("`{key}`"))
                .collect();
            format!("it holds an object with {}, without {}", keys(&object), missing.join(", "))
        }
        Ok(Value::Array(rows)) => match rows.first() {
            Some(Value::Object(row)) => format!(
                "it holds an array of objects with {}. One object a line is read: jq -c '.[]' {shown} > {lines_name}",
                keys(row)
            ),
            _ => "it holds an array without objects".into(),
        },
        Ok(_) => "it holds a single value".into(),
        Err(_) if lines().take(2).filter(|line| line.is_ok()).count() == 2 => {
            format!("it holds an object on each line. Such a list is read as .jsonl: mv {shown} {lines_name}")
        }
        Err(e) => format!("it is not JSON: {e}"),
    };
    Error::usage(format!(
        "{shown} does not list images in COCO's form: {found}. Lists of images are .{}, .{} or .json in COCO's form, with `images`, \
         `annotations` and `categories`",
        LISTS.join(", ."),
        shards::PARQUET
    ))
}

/// The folder of the images, found by the first of them: beside the list or near its folder, as with COCO's
/// `annotations/instances_val2017.json`, whose images are in `val2017`.
fn folder(list: &Path, first: &str) -> PathBuf {
    let beside = list.parent().unwrap_or(Path::new(""));
    let stem = list.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let split = stem.rsplit('_').next().unwrap_or_default();
    let near = ["", "images", split, "..", "../images"].map(|name| beside.join(name));
    let near = near.into_iter().chain([beside.join("..").join(split), beside.join("../images").join(split)]);
    let mut near = near.filter(|folder| image_of(folder, first).1.is_file());
    near.next().unwrap_or_else(|| beside.into())
}
