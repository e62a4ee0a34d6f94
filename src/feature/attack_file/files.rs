//! The files that `audit attack` writes.

use super::FileAttack;
use crate::files;
use crate::pipeline::settings;
use crate::report::{Destination, by_extension};
use crate::request::Request;
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// The extension of a page.
const PAGE: &str = "html";

/// The files that will be written.
pub(super) struct Files {
    image: Option<Destination>,
    pub page: Option<Destination>,
}

impl FileAttack {
    /// The image to write.
    pub fn image(&self) -> Option<&Path> {
        self.files.iter().map(PathBuf::as_path).find(|file| !is_page(file))
    }

    /// The page to write.
    pub fn page(&self) -> Option<&Path> {
        self.files.iter().map(PathBuf::as_path).find(|file| is_page(file))
    }
}

fn is_page(file: &Path) -> bool {
    by_extension(file, [PAGE].into_iter()).is_ok()
}

impl Files {
    /// Tries them. Errors (exit code 2): another extension than that of the image and of a page, two of a
    /// kind, a folder that is missing; those of [`refuse_inputs`].
    pub fn open(request: &Request, attack: &FileAttack) -> Result<Files> {
        let (format, extensions) = match attack.jpeg {
            None => ("a PNG", &["png"][..]),
            Some(_) => ("a JPEG with --jpeg", &["jpg", "jpeg"][..]),
        };
        for (at, file) in attack.files.iter().enumerate() {
            if !is_page(file) && by_extension(file, extensions.iter().copied()).is_err() {
                let as_jpeg =
                    attack.jpeg.is_none() && by_extension(file, ["jpg", "jpeg"].into_iter()).is_ok();
                let jpeg = if as_jpeg { "; or add --jpeg 90" } else { "" };
                return Err(Error::usage(format!(
                    "-o {}: the attacked file is {format}. Name a file that ends in .{}, or in .{PAGE} for a page{jpeg}",
                    file.display(),
                    extensions[0]
                )));
            }
            if let Some(other) = attack.files[..at].iter().find(|other| is_page(other) == is_page(file)) {
                return Err(Error::usage(format!(
                    "-o {} and -o {}: one image and one page are written. Leave one of the two out",
                    other.display(),
                    file.display()
                )));
            }
        }
        let open = |file: Option<&Path>| file.map(|file| Destination::open("-o", file)).transpose();
        let files = Files { image: open(attack.image())?, page: open(attack.page())? };
        refuse_inputs(request, attack)?;
        Ok(files)
    }

    /// Writes the image, and the page if there is one.
    pub fn write(self, image: &[u8], page: Option<&[u8]>) -> Result<()> {
        if let Some(file) = self.image {
            file.write(image)?;
        }
        if let Some((file, page)) = self.page.zip(page) {
            file.write(page)?;
        }
        Ok(())
    }
}

/// Refuses to write over a file that is read, such as the photograph, or into the folder of the gallery,
/// where the file would be one of its images. Errors: exit code 2.
fn refuse_inputs(request: &Request, attack: &FileAttack) -> Result<()> {
    let comparison = attack.wish.comparison();
    let mut inputs = vec![("the photograph", attack.photograph.as_path())];
    inputs.extend(comparison.as_ref().map(|comparison| ("the reference", comparison.reference)));
    inputs.extend(settings::inputs(request));
    let outputs: Vec<_> = attack.files.iter().map(|file| ("-o", file.as_path())).collect();
    settings::refuse_inputs(&inputs, &outputs)?;
    let Some(file) = attack.image() else { return Ok(()) };
    let shown = file.display();
    match request.images.around(files::folder_of(file)) {
        Some(data) => Err(Error::usage(format!(
            "-o {shown}: it would lie in the gallery, {}, and be one of its images. Name a file elsewhere",
            data.display()
        ))),
        None => Ok(()),
    }
}
