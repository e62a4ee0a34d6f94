//! Cars-196 (Krause et al. 2013): 16,185 photographs of 196 models of cars, in either packaging. The split is
//! that of the metric-learning papers, classes 1–98 (8,054 images) and 99–196 (8,131), and not that of the
//! official folders.

use super::listing::{ListedImage, Listing, missing, root, zero_shot};
use super::mat::{self, Value};
use super::{Dataset, Layout, Split, benchmark};
use audit_base::{Error, Result, files};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const TOGETHER: &str = "cars_annos.mat";
const APART: &str = "devkit/cars_train_annos.mat";
const ABOUT: &str = "cars_annos.mat with car_ims, or devkit/cars_train_annos.mat and \
                     devkit/cars_test_annos_withlabels.mat with cars_train and cars_test";

pub const LAYOUT: Layout = benchmark(
    "cars-196",
    ABOUT,
    |path| [TOGETHER, APART].iter().any(|marker| find(path, marker).is_some()),
    open,
);

fn find(path: &Path, marker: &str) -> Option<PathBuf> {
    root(path, "stanford_cars", marker).or_else(|| root(path, "cars196", marker))
}

/// The variable `name` of a .mat file.
fn variable(path: &Path, name: &str) -> Result<Value> {
    let shown = path.display();
    if !path.exists() {
        return Err(missing(path, ABOUT));
    }
    let bytes = files::read(path, files::LARGE)
        .map_err(|reason| Error::usage(format!("can't read {shown}: {reason}")))?;
    let mut all =
        mat::read(&bytes).map_err(|reason| Error::usage(format!("can't read {shown}: {reason}")))?;
    all.remove(name).ok_or_else(|| {
        let found: Vec<_> = all.into_keys().collect();
        Error::usage(format!("{shown} has no variable `{name}`. Found are {}", found.join(", ")))
    })
}

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    let (wanted, part) = zero_shot(split, 98);
    let mut listing = Listing::default();
    let root = if let Some(root) = find(path, TOGETHER) {
        let names = names(variable(&root.join(TOGETHER), "class_names").ok());
        let all = Annotations { file: TOGETHER, field: "relative_im_path", folder: "" };
        all.read(&mut listing, &root, &wanted, &names)?;
        root
    } else if let Some(root) = find(path, APART) {
        let names = names(variable(&root.join("devkit/cars_meta.mat"), "class_names").ok());
        let labelled = ["devkit/cars_test_annos_withlabels.mat", "cars_test_annos_withlabels.mat"];
        let test = labelled.into_iter().find(|file| root.join(file).exists()).unwrap_or(labelled[0]);
        for (file, folder) in [(APART, "cars_train/"), (test, "cars_test/")] {
            Annotations { file, field: "fname", folder }.read(&mut listing, &root, &wanted, &names)?;
        }
        root
    } else {
        return Err(missing(&path.join(TOGETHER), ABOUT));
    };
    listing.finish(&root, LAYOUT.name, part)
}

/// Names of the classes, if a file has them.
fn names(found: Option<Value>) -> Vec<String> {
    match found {
        Some(Value::Cells(cells)) => {
            cells.iter().map(|cell| cell.text().unwrap_or_default().to_owned()).collect()
        }
        _ => Vec::new(),
    }
}

struct Annotations<'a> {
    file: &'a str,
    /// The field that names the image.
    field: &'a str,
    folder: &'a str,
}

impl Annotations<'_> {
    /// Adds the rows of `wanted` classes, which have `names`.
    fn read(
        &self,
        listing: &mut Listing,
        root: &Path,
        wanted: &impl Fn(i64) -> bool,
        names: &[String],
    ) -> Result<()> {
        let Annotations { file, field, folder } = *self;
        let path = root.join(file);
        let Value::Structs(rows) = variable(&path, "annotations")? else {
            return Err(Error::usage(format!("{}: `annotations` is no struct array", path.display())));
        };
        for (index, row) in rows.iter().enumerate() {
            let place = format!("{}, row {}", path.display(), index + 1);
            let lacks = |field: &str| {
                let found: Vec<_> = BTreeMap::keys(row).map(String::as_str).collect();
                Error::usage(format!("{place}: no usable field `{field}`. Found are {}", found.join(", ")))
            };
            let file = row.get(field).and_then(Value::text).ok_or_else(|| lacks(field))?;
            let class = row.get("class").and_then(Value::number).filter(|class| *class >= 1.0);
            let class = class.ok_or_else(|| lacks("class"))? as usize;
            if wanted(class as i64) {
                // Numbered, so that classes are in the benchmark's order and have different names.
                let name = names.get(class - 1).map_or(String::new(), |name| format!(" {name}"));
                let (id, class) = (format!("{folder}{file}"), format!("{class:03}{name}"));
                let path = root.join(folder).join(file);
                listing.add(place, ListedImage::new(id, class, path))?;
            }
        }
        Ok(())
    }
}
