//! Stanford Online Products (Song et al. 2016): 120,053 photographs of 22,634 products. The split is by
//! product: train 59,551 images of 11,318, test 60,502 of 11,316.

use super::listing::{ListedImage, Listing, Rows, expect_root, named, of_split, root};
use super::{Dataset, Layout, Split, benchmark};
use audit_base::Result;
use std::path::Path;

const FOLDER: &str = "Stanford_Online_Products";
const ABOUT: &str =
    "Stanford_Online_Products with Ebay_train.txt, Ebay_test.txt and <category>_final/<image>";
const HEADER: &str = "image_id class_id super_class_id path";

pub const LAYOUT: Layout =
    benchmark("sop", ABOUT, |path| root(path, FOLDER, "Ebay_test.txt").is_some(), open);

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    let list = of_split(split, "Ebay_train.txt", "Ebay_test.txt");
    let root = expect_root(path, FOLDER, list, ABOUT)?;
    let rows = Rows::read(root.join(list), ABOUT)?;
    let [(place, header)] = rows.first()?;
    place.expect_header(header, HEADER)?;
    let mut listing = Listing::default();
    for row in rows.fields::<4>(1, HEADER) {
        let (place, [_, class, _, file]) = row?;
        let number = place.number("class_id", class, 1)?;
        listing.add(place, ListedImage::new(file, format!("{number:05}"), root.join(file)))?;
    }
    listing.finish(&root, LAYOUT.name, named(split))
}
