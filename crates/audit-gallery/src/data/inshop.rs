//! In-shop clothes retrieval of DeepFashion (Liu et al. 2016): 25,882 training images of 3,997 items; 14,218
//! test queries and a disjoint gallery of 12,612, of 3,985 items.

use super::listing::{ListedImage, Listing, Rows, expect_root, missing, named, root};
use super::{Dataset, Layout, Role, Split, benchmark};
use audit_base::Result;
use std::path::Path;

const FOLDER: &str = "In-shop Clothes Retrieval Benchmark";
const LIST: &str = "Eval/list_eval_partition.txt";
const ABOUT: &str =
    "In-shop Clothes Retrieval Benchmark with Eval/list_eval_partition.txt and img/<WOMEN|MEN>/.../<image>";
const HEADER: &str = "image_name item_id evaluation_status";

pub const LAYOUT: Layout = benchmark("in-shop", ABOUT, |path| root(path, FOLDER, LIST).is_some(), open);

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    let root = expect_root(path, FOLDER, LIST, ABOUT)?;
    // The archive of the images unpacks to `img`, often inside `Img`.
    let images = ["img", "Img/img"].into_iter().find(|folder| root.join(folder).is_dir());
    let images = images
        .ok_or_else(|| missing(&root.join("img"), &format!("img.zip to be unpacked there: {ABOUT}")))?;
    let images = root.join(images.trim_end_matches("img"));
    let rows = Rows::read(root.join(LIST), ABOUT)?;
    let [(first, count), (second, header)] = rows.first()?;
    let count = first.number("the number of rows", count, 0)?;
    second.expect_header(header, HEADER)?;
    let train = split == Some(Split::Train);
    let mut listing = Listing::default();
    let mut found = 0;
    for row in rows.fields::<3>(2, HEADER) {
        let (place, [file, item, status]) = row?;
        found += 1;
        let role = match status {
            "train" if train => Role::Both,
            "query" if !train => Role::Query,
            "gallery" if !train => Role::Gallery,
            "train" | "query" | "gallery" => continue,
            _ => return Err(place.wrong(format!("expected train, query or gallery, found `{status}`"))),
        };
        listing.add(place, ListedImage { role, ..ListedImage::new(file, item, images.join(file)) })?;
    }
    if found != count {
        return Err(
            first.wrong(format!("{count} rows are announced, and {found} follow: the file is partial"))
        );
    }
    listing.finish(&root, LAYOUT.name, named(split))
}
