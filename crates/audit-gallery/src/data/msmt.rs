//! MSMT17 (Wei et al. 2018): lists of `<path> <identity>`; the third part of the file's name is the camera,
//! `0000_000_01_0303morning_0008_0.jpg`. Train: list_train and list_val (32,621 images of 1,041 people).
//! Test: list_query (11,659) and list_gallery (82,161).

use super::listing::{ListedImage, Listing, Rows, expect_root, missing, named, of_split, root};
use super::{Dataset, Layout, Role, Split, benchmark};
use audit_base::Result;
use std::path::Path;

const FOLDER: &str = "MSMT17_V1";
const ABOUT: &str = "list_train.txt, list_val.txt, list_query.txt and list_gallery.txt, with the images in train and \
                     test (or mask_train_v2 and mask_test_v2)";

pub const LAYOUT: Layout = benchmark(
    "msmt17",
    ABOUT,
    |path| root(path, FOLDER, "list_query.txt").is_some_and(|root| root.join("list_gallery.txt").is_file()),
    open,
);

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    let (lists, folders) = of_split(
        split,
        ([("list_train.txt", Role::Both), ("list_val.txt", Role::Both)], ["train", "mask_train_v2"]),
        ([("list_gallery.txt", Role::Gallery), ("list_query.txt", Role::Query)], ["test", "mask_test_v2"]),
    );
    let root = expect_root(path, FOLDER, lists[0].0, ABOUT)?;
    let images = folders.iter().map(|folder| root.join(folder)).find(|folder| folder.is_dir());
    let images = images.ok_or_else(|| missing(&root.join(folders[0]), ABOUT))?;
    let mut listing = Listing::default();
    for (list, role) in lists {
        let rows = Rows::read(root.join(list), ABOUT)?;
        for row in rows.fields::<2>(0, "path identity") {
            let (place, [file, identity]) = row?;
            let identity = place.number("the identity", identity, 0)?;
            let name = file.rsplit('/').next().unwrap_or(file);
            let camera = name.split('_').nth(2).and_then(|camera| camera.parse().ok()).ok_or_else(|| {
                place.wrong(format!(
                    "the name {name} gives no camera. Expected are names such as 0000_000_01_0303morning_0008_0.jpg"
                ))
            })?;
            let image = ListedImage::new(file, format!("{identity:04}"), images.join(file));
            listing.add(place, ListedImage { camera: Some(camera), role, ..image })?;
        }
    }
    listing.finish(&root, LAYOUT.name, named(split))
}
