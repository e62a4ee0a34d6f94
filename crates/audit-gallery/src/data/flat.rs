//! Images without classes: `PATH/<image>`.

use super::folder::Contents;
use super::listing::is_list;
use super::{Dataset, Item, Layout, Open, Origin};
use audit_base::{Error, Result};
use std::path::Path;

pub const LAYOUT: Layout = Layout {
    name: "flat",
    about: "images without classes directly in the folder, PATH/<image>",
    takes_file: false,
    stretched: false,
    detect,
    has_splits: |_| false,
    open: Open::Split(|path, split| match split {
        None => open(path),
        Some(split) => {
            Err(Error::usage(format!("{} has no parts: leave --split {split} out", path.display())))
        }
    }),
};

/// Whether there are images only, and no list that may have their classes.
fn detect(path: &Path) -> bool {
    let top = path.is_dir().then(|| Contents::of(path).ok()).flatten();
    top.is_some_and(|top| {
        !top.images.is_empty()
            && top.folders.is_empty()
            && !top.others.iter().any(|file| is_list(&path.join(file)))
    })
}

/// Lists the images of `root`, sorted by the bytes of their names.
fn open(root: &Path) -> Result<Dataset> {
    let Contents { folders, images, others } = Contents::of(root)?;
    if images.is_empty() {
        return Err(Error::empty(format!(
            "{} holds no images. Expected is {}",
            root.display(),
            LAYOUT.about
        )));
    }
    let item = |(class, (id, path))| Item { id, class, origin: Origin::file(path) };
    let items = images.into_iter().enumerate().map(item).collect();
    let left_out = folders.into_iter().map(|(name, _)| format!("{name}/")).chain(others).collect();
    Dataset { source: root.display().to_string(), items, left_out, ..Dataset::default() }.without_classes()
}
