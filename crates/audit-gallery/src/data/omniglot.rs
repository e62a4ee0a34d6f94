//! Omniglot (Lake et al. 2015): `<alphabet>/<character>/<image>` in images_background (30 alphabets, 964
//! characters) and images_evaluation (20 and 659), twenty drawings of each character.

use super::folder::Contents;
use super::listing::{ListedImage, Listing, missing, named, of_split};
use super::{Dataset, Layout, Open, Split};
use audit_base::{Error, Result};
use std::path::Path;

const ABOUT: &str = "<alphabet>/<character>/<image>, in images_background to train and images_evaluation to test, or in PATH itself";

pub const LAYOUT: Layout = Layout {
    name: "omniglot",
    about: ABOUT,
    takes_file: false,
    stretched: true,
    detect: |path| {
        let below =
            |path: &Path| Contents::of(path).ok()?.folders.into_iter().next().map(|(_, folder)| folder);
        path.join("images_evaluation").is_dir()
            || below(path).and_then(|alphabet| below(&alphabet)).is_some_and(|character| {
                character.file_name().is_some_and(|name| name.to_string_lossy().starts_with("character"))
            })
    },
    has_splits: |path| path.join("images_background").is_dir(),
    open: Open::Split(open),
};

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    let folder = of_split(split, "images_background", "images_evaluation");
    let (root, part) = match path.join(folder) {
        inside if inside.is_dir() => (inside, named(split)),
        inside if split.is_some() => return Err(missing(&inside, ABOUT)),
        _ => (path.to_path_buf(), "all alphabets".into()),
    };
    let mut listing = Listing::default();
    for (alphabet, folder) in Contents::of(&root)?.folders {
        let inside = Contents::of(&folder)?;
        if inside.folders.is_empty() {
            return Err(Error::usage(format!(
                "{} holds no characters. Expected is {ABOUT}",
                folder.display()
            )));
        }
        for (character, folder) in inside.folders {
            let contents = Contents::of(&folder)?;
            listing.leaves_out(&format!("{alphabet}/{character}/"), &contents, true);
            let images = contents.images;
            if images.is_empty() {
                return Err(Error::empty(format!(
                    "{} holds no images. Expected is {ABOUT}",
                    folder.display()
                )));
            }
            for (file, path) in images {
                let class = format!("{alphabet}/{character}");
                listing.add(folder.display(), ListedImage::new(format!("{class}/{file}"), class, path))?;
            }
        }
    }
    listing.finish(&root, LAYOUT.name, part)
}
