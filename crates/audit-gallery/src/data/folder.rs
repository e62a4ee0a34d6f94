//! Class folders: `PATH/<class>/<image>`, as in torchvision's ImageFolder.

use super::format::{self, Format};
use super::listing::is_list;
use super::{Dataset, Item, Layout, Open, Origin};
use audit_base::{Error, Result};
use std::path::{Path, PathBuf};

const ABOUT: &str = "one sub-folder per class, with the images of the class in it, PATH/<class>/<image>";

pub const LAYOUT: Layout = Layout {
    name: "folder",
    about: ABOUT,
    takes_file: false,
    stretched: false,
    detect: |_| false,
    has_splits: |_| false,
    open: Open::Split(|path, split| match split {
        None => open(path),
        Some(split) if path.join(split.to_string()).is_dir() => open(&path.join(split.to_string())),
        Some(split) => Err(Error::usage(format!(
            "{} has no folder `{split}`, which --split {split} asks for. Expected is PATH/{split}/<class>/<image>",
            path.display()
        ))),
    }),
};

/// Lists the class folders of `root`. Classes and files are sorted by the bytes of their names.
fn open(root: &Path) -> Result<Dataset> {
    let shown = root.display();
    let top = Contents::of(root)?;
    if let Some((stray, _)) = top.images.first() {
        let list = top.others.iter().find(|other| is_list(&root.join(other)));
        let list = list.map_or("images.csv", String::as_str);
        let flat = if top.folders.is_empty() { "; --layout flat audits them without classes" } else { "" };
        return Err(Error::usage(format!(
            "image {stray} lies directly in {shown}. Expected is {ABOUT}. Move the images into class folders, or name a list of them: \
             --data {}, with the columns path and label{flat}",
            root.join(list).display()
        )));
    }
    if top.folders.is_empty() {
        let only =
            top.others.first().map_or(String::new(), |other| format!(", but other files such as {other}"));
        return Err(Error::empty(format!(
            "{shown} holds no images{only}. Expected is {ABOUT}; images without classes lie in PATH itself"
        )));
    }
    // If images for training lie beside, these are the ones to audit on.
    let held_out = top.folders.iter().find(|(name, _)| HELD_OUT.contains(&name.to_lowercase().as_str()));
    let held_out = held_out.map(|(_, folder)| folder.clone());
    let source = shown.to_string();
    let mut dataset = Dataset { source, ..Dataset::default() };
    for (class, folder) in top.folders {
        let inside = Contents::of(&folder)?;
        let shown = folder.display();
        if inside.images.is_empty() {
            return Err(match inside.folders.first() {
                Some(_) => Error::usage(format!(
                    "{shown} holds folders instead of images. Expected is {ABOUT}. If these folders are the classes, \
                     name the folder that holds them: --data {}",
                    held_out.as_ref().unwrap_or(&folder).display()
                )),
                None => Error::empty(format!(
                    "class folder {shown} holds no images ({}){}. Remove the folder or add images",
                    format::extensions().join(", "),
                    inside.others.first().map_or(String::new(), |other| {
                        let unread = format::unread(inside.others.iter().map(String::as_str));
                        format!(
                            ", but other files such as {other}{}",
                            unread.map_or(String::new(), |why| format!(". {why}"))
                        )
                    })
                )),
            });
        }
        let index = dataset.classes.len();
        let folders = inside.folders.iter().map(|(name, _)| format!("{class}/{name}/"));
        dataset.left_out.extend(folders.chain(inside.others.iter().map(|file| format!("{class}/{file}"))));
        dataset.items.extend(inside.images.into_iter().map(|(file, path)| Item {
            id: format!("{class}/{file}"),
            class: index,
            origin: Origin::file(path),
        }));
        dataset.classes.push(class);
    }
    Ok(dataset)
}

/// Names of folders that hold the images a model wasn't trained on.
const HELD_OUT: [&str; 4] = ["test", "val", "valid", "validation"];

/// What systems write beside images: metadata in archives made on a Mac, thumbnails and settings of Windows.
const SYSTEM: [&str; 3] = ["__MACOSX", "Thumbs.db", "desktop.ini"];

/// Contents of a folder, sorted by name, without hidden entries and those of systems.
pub struct Contents {
    pub folders: Vec<(String, PathBuf)>,
    pub images: Vec<(String, PathBuf)>,
    /// Files whose extension is not that of an image.
    pub others: Vec<String>,
}

impl Contents {
    pub fn of(folder: &Path) -> Result<Contents> {
        let unreadable = |reason| Error::usage(format!("can't list {}: {reason}", folder.display()));
        let mut listing = Contents { folders: Vec::new(), images: Vec::new(), others: Vec::new() };
        for entry in std::fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let name = path.file_name().unwrap_or_default();
            if name.as_encoded_bytes().starts_with(b".") || SYSTEM.iter().any(|own| name == *own) {
                continue;
            }
            let is_image = Format::by_extension(&path).is_some_and(Format::is_read);
            // Follows symbolic links; a dangling one counts as a file and fails when it is read.
            let list = match path.is_dir() {
                true => &mut listing.folders,
                false if is_image => &mut listing.images,
                false => {
                    listing.others.push(name.to_string_lossy().into_owned());
                    continue;
                }
            };
            // Ids are in reports and are compared between machines, so they must be text.
            let name = name.to_str().ok_or_else(|| {
                Error::usage(format!("the name of {} is not valid UTF-8. Rename it", path.display()))
            })?;
            list.push((name.to_owned(), path));
        }
        listing.folders.sort();
        listing.images.sort();
        listing.others.sort();
        Ok(listing)
    }
}
