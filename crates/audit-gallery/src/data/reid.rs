//! Re-identification by file name, `<identity>_c<camera>…jpg`: Market-1501 (Zheng et al. 2015), DukeMTMC-reID
//! (Ristani et al. 2016) and VeRi-776 (Liu et al. 2016).
//!
//! Identity −1 is junk, which is ignored. Identity 0 is a distractor: it stays in the gallery and matches no
//! query.

use super::folder::Contents;
use super::listing::{ListedImage, Listing, missing, named, of_split, root};
use super::{Dataset, Layout, Role, Split, benchmark};
use audit_base::{Error, Result};
use std::path::Path;

/// The folders of a benchmark: train, queries, gallery.
type Folders = [&'static str; 3];

const PERSONS: Folders = ["bounding_box_train", "query", "bounding_box_test"];
const VEHICLES: Folders = ["image_train", "image_query", "image_test"];
const MARKET_FOLDER: &str = "Market-1501-v15.09.15";
const DUKE_FOLDER: &str = "DukeMTMC-reID";

pub const MARKET: Layout = benchmark(
    "market-1501",
    "bounding_box_train, query and bounding_box_test with images such as 0002_c1s1_000451_03.jpg",
    |path| like(path, MARKET_FOLDER, PERSONS).is_some_and(|sequences| sequences),
    |path, split| open(path, split, &MARKET, MARKET_FOLDER, PERSONS),
);

pub const DUKE: Layout = benchmark(
    "dukemtmc-reid",
    "bounding_box_train, query and bounding_box_test with images such as 0001_c2_f0046182.jpg",
    |path| like(path, DUKE_FOLDER, PERSONS).is_some_and(|sequences| !sequences),
    |path, split| open(path, split, &DUKE, DUKE_FOLDER, PERSONS),
);

pub const VERI: Layout = benchmark(
    "veri-776",
    "image_train, image_query and image_test with images such as 0001_c001_00016450_0.jpg",
    |path| like(path, "VeRi", VEHICLES).is_some(),
    |path, split| open(path, split, &VERI, "VeRi", VEHICLES),
);

/// Whether the queries' names have a sequence after the camera, as Market's do and Duke's don't; `None`
/// without the folders.
fn like(path: &Path, name: &str, folders: Folders) -> Option<bool> {
    let root = root(path, name, folders[1]).filter(|root| root.join(folders[2]).is_dir())?;
    let mut names = std::fs::read_dir(root.join(folders[1])).ok()?.flatten().map(|entry| entry.file_name());
    let parts = names.find_map(|name| {
        let name = name.to_str()?.to_owned();
        parse(&name).map(|_| name)
    })?;
    Some(parts.split('_').nth(1)?.contains('s'))
}

/// Whether a path looks like one of these benchmarks.
pub fn is_benchmark(path: &Path) -> bool {
    [MARKET, DUKE, VERI].iter().any(|layout| (layout.detect)(path))
}

/// The identity of images without a person.
pub const JUNK: i64 = -1;

/// Identity and camera of an image, by its file name.
pub fn parse(name: &str) -> Option<(i64, u32)> {
    let (identity, rest) = name.split_once("_c")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((identity.parse().ok().filter(|&identity| identity >= JUNK)?, rest[..digits].parse().ok()?))
}

fn open(
    path: &Path,
    split: Option<Split>,
    layout: &'static Layout,
    name: &str,
    [train, query, gallery]: Folders,
) -> Result<Dataset> {
    let test = vec![(gallery, Role::Gallery), (query, Role::Query)];
    let parts = of_split(split, vec![(train, Role::Both)], test);
    let root = root(path, name, parts[0].0).unwrap_or_else(|| path.to_path_buf());
    let mut listing = Listing::default();
    for (folder, role) in parts {
        let inside = root.join(folder);
        if !inside.is_dir() {
            return Err(missing(&inside, layout.about));
        }
        let contents = Contents::of(&inside)?;
        listing.leaves_out(&format!("{folder}/"), &contents, true);
        for (file, path) in contents.images {
            let (identity, camera) = parse(&file).ok_or_else(|| {
                Error::usage(format!(
                    "{}: the name gives no identity and camera. Expected is {}",
                    path.display(),
                    layout.about
                ))
            })?;
            if identity == JUNK {
                continue;
            }
            let image = ListedImage::new(format!("{folder}/{file}"), format!("{identity:04}"), path);
            listing.add(inside.display(), ListedImage { camera: Some(camera), role, ..image })?;
        }
    }
    listing.finish(&root, layout.name, named(split))
}
