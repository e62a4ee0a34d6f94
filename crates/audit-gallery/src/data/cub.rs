//! CUB-200-2011 (Wah et al. 2011): 11,788 images of 200 bird species.
//!
//! The split is that of the metric-learning papers, classes 1–100 (5,864 images) and 101–200 (5,924).
//! `train_test_split.txt` divides the images of every class, and is for classifiers.

use super::listing::{ListedImage, Listing, Rows, expect_root, root, zero_shot};
use super::{Dataset, Layout, Split, benchmark};
use audit_base::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::path::Path;

const FOLDER: &str = "CUB_200_2011";
const ABOUT: &str =
    "CUB_200_2011 with images.txt, image_class_labels.txt, classes.txt and images/<class>/<image>";

pub const LAYOUT: Layout =
    benchmark("cub-200-2011", ABOUT, |path| root(path, FOLDER, "image_class_labels.txt").is_some(), open);

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    let root = expect_root(path, FOLDER, "images.txt", ABOUT)?;
    let read = |name: &str| Rows::read(root.join(name), ABOUT);

    let classes = read("classes.txt")?;
    let mut names: HashMap<&str, &str> = HashMap::new();
    for row in classes.fields::<2>(0, "class name") {
        let (place, [class, name]) = row?;
        place.number("the class", class, 1)?;
        names.insert(class, name);
    }
    let labels = read("image_class_labels.txt")?;
    let mut class_of: HashMap<&str, (i64, &str)> = HashMap::new();
    for row in labels.fields::<2>(0, "image class") {
        let (place, [image, class]) = row?;
        let number = place.number("the class", class, 1)?;
        let name = names.get(class).ok_or_else(|| {
            place.wrong(format!("image {image} has class {class}, which classes.txt doesn't list"))
        })?;
        if class_of.insert(image, (number, name)).is_some() {
            return Err(place.wrong(format!("image {image} has a class already")));
        }
    }
    let images = read("images.txt")?;
    let (wanted, part) = zero_shot(split, 100);
    let mut listing = Listing::default();
    let mut pictured = HashSet::new();
    for row in images.fields::<2>(0, "image path") {
        let (place, [image, file]) = row?;
        let (number, name) = class_of
            .remove(image)
            .ok_or_else(|| place.wrong(format!("image_class_labels.txt gives no class for image {image}")))?;
        pictured.insert(name);
        if wanted(number) {
            listing.add(place, ListedImage::new(file, name, root.join("images").join(file)))?;
        }
    }
    if let Some((image, _)) = class_of.into_iter().min() {
        return Err(Error::usage(format!(
            "{}: image {image} has a class, but images.txt doesn't list it",
            root.join("image_class_labels.txt").display()
        )));
    }
    for row in classes.fields::<2>(0, "class name") {
        let (place, [_, name]) = row?;
        if !pictured.contains(name) {
            return Err(place.wrong(format!("class {name} has no image in images.txt")));
        }
    }
    listing.finish(&root, LAYOUT.name, part)
}
