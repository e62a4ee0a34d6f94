//! Retrieval by folders: `query/<class>/<image>` and `gallery/<class>/<image>`, as code for re-identification
//! rewrites benchmarks. If file names begin like those of the benchmarks, they give the camera, and the class
//! of images outside of class folders.

use super::folder::Contents;
use super::listing::{ListedImage, Listing, missing, named, of_split};
use super::reid;
use super::{Dataset, Layout, Open, Role, Split};
use audit_base::{Error, Result};
use std::path::{Path, PathBuf};

const ABOUT: &str = "the folders query and gallery, each with one folder per class, PATH/query/<class>/<image>; they may lie one folder deeper, \
                     such as in PATH/pytorch";

pub const LAYOUT: Layout = Layout {
    name: "query-gallery",
    about: ABOUT,
    takes_file: false,
    stretched: false,
    detect: |path| !reid::is_benchmark(path) && root(path).is_some(),
    has_splits: |path| root(path).is_some_and(|root| root.join(TRAIN).is_dir()),
    open: Open::Split(open),
};

const QUERY: &str = "query";
const GALLERY: &str = "gallery";
const TRAIN: &str = "train";

/// `path` or a folder in it, whichever has both folders.
fn root(path: &Path) -> Option<PathBuf> {
    let holds = |folder: &Path| folder.join(QUERY).is_dir() && folder.join(GALLERY).is_dir();
    if holds(path) {
        return Some(path.into());
    }
    Contents::of(path).ok()?.folders.into_iter().map(|(_, folder)| folder).find(|folder| holds(folder))
}

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    let root = root(path).ok_or_else(|| missing(&path.join(QUERY), ABOUT))?;
    let test = vec![(GALLERY, Role::Gallery), (QUERY, Role::Query)];
    let parts = of_split(split, vec![(TRAIN, Role::Both)], test);
    let mut listing = Listing::default();
    for (part, role) in &parts {
        let folder = root.join(part);
        if !folder.is_dir() {
            return Err(missing(&folder, ABOUT));
        }
        let contents = Contents::of(&folder)?;
        listing.leaves_out(&format!("{part}/"), &contents, false);
        let Contents { folders, images, .. } = contents;
        let add = |listing: &mut Listing, id: String, class: Option<String>, path: PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let known = reid::parse(name);
            if known.is_some_and(|(identity, _)| identity == reid::JUNK) {
                return Ok(());
            }
            let class = class.or_else(|| Some(format!("{:04}", known?.0))).ok_or_else(|| {
                Error::usage(format!(
                    "image {} lies in no folder of a class, and its name gives no identity and camera as 0002_c1s1_000451_03.jpg \
                     does. Expected is {ABOUT}",
                    path.display()
                ))
            })?;
            let camera = known.map(|(_, camera)| camera);
            let row = ListedImage { camera, role: *role, ..ListedImage::new(id, class, path) };
            listing.add(folder.display(), row)
        };
        for (file, path) in images {
            add(&mut listing, format!("{part}/{file}"), None, path)?;
        }
        for (class, inside) in folders {
            let contents = Contents::of(&inside)?;
            listing.leaves_out(&format!("{part}/{class}/"), &contents, true);
            for (file, path) in contents.images {
                add(&mut listing, format!("{part}/{class}/{file}"), Some(class.clone()), path)?;
            }
        }
    }
    let read = |folder: &str| parts.iter().any(|(part, _)| *part == folder);
    let others = Contents::of(&root)?.folders.into_iter().map(|(name, _)| name).filter(|name| !read(name));
    let others: Vec<String> = others.collect();
    let note = format!("{}: folders that are not read: {}", root.display(), others.join(", "));
    let notes = if others.is_empty() { Vec::new() } else { vec![note] };
    Ok(Dataset { notes, ..listing.finish(&root, LAYOUT.name, named(split))? })
}
