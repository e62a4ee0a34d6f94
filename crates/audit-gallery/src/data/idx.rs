//! MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017): IDX files, plain or gzipped. 60,000
//! training and 10,000 test images of the same ten classes.

use super::listing::{missing, named, of_split};
use super::{Dataset, Item, Layout, Origin, Pixels, Preparation, Split, benchmark, image};
use audit_base::{Error, Result, files};
use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ABOUT: &str = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and \
                     t10k-labels-idx1-ubyte, each with or without .gz, in PATH, PATH/raw or PATH/MNIST/raw";

pub const LAYOUT: Layout =
    benchmark("mnist", ABOUT, |path| find(path, "t10k", "images-idx3").is_some(), open);

/// Grey images of equal size.
#[derive(Debug)]
pub struct IdxImages {
    path: PathBuf,
    height: usize,
    width: usize,
    bytes: Vec<u8>,
}

impl IdxImages {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The grey levels of image `index`.
    fn levels(&self, index: usize) -> &[u8] {
        let area = self.height * self.width;
        &self.bytes[index * area..][..area]
    }

    /// [`Pixels::digest`] of image `index`.
    pub fn digest(&self, index: usize) -> [u8; 32] {
        Sha256::digest(self.levels(index)).into()
    }

    /// The pixels of image `index`.
    pub fn read(&self, index: usize, prep: &Preparation) -> Result<Pixels> {
        let bytes = self.levels(index);
        let shown = || format!("{}, image {index}", self.path.display());
        let grey = ::image::GrayImage::from_raw(self.width as u32, self.height as u32, bytes.to_vec())
            .ok_or_else(|| {
                Error::internal(format!("{}: no {}×{} image", shown(), self.height, self.width))
            })?;
        let data = image::prepare(grey.into(), prep).map_err(|e| e.context(shown()))?;
        Ok(Pixels { data, digest: self.digest(index) })
    }
}

fn find(path: &Path, part: &str, what: &str) -> Option<PathBuf> {
    let folders = ["", "raw", "MNIST/raw", "FashionMNIST/raw"].map(|folder| path.join(folder));
    let (name, dotted) =
        (format!("{part}-{what}-ubyte"), format!("{part}-{}-ubyte", what.replace("-idx", ".idx")));
    let names = [name.clone(), format!("{name}.gz"), dotted.clone(), format!("{dotted}.gz")];
    folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name))).find(|path| path.is_file())
}

/// The dimensions that a header states.
fn sizes(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.chunks_exact(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize)
}

/// The number of values of these dimensions; `None` if it is too large.
fn stated(bytes: &[u8]) -> Option<usize> {
    sizes(bytes).try_fold(1usize, |all, size| all.checked_mul(size))
}

/// An IDX file of bytes: its dimensions and its values.
fn read(path: &Path, dimensions: usize) -> Result<(Vec<usize>, Vec<u8>)> {
    let shown = path.display();
    let unreadable = |reason| Error::usage(format!("can't read {shown}: {reason}. Download it again"));
    let mut bytes = files::read(path, files::LARGE).map_err(unreadable)?;
    let magic = [0, 0, 8, dimensions as u8];
    let head = 4 + 4 * dimensions;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let (mut inflated, mut from) = (Vec::new(), GzDecoder::new(&bytes[..]));
        from.by_ref().take(head as u64).read_to_end(&mut inflated).map_err(unreadable)?;
        // One byte more than stated tells that there are more.
        let stated = if inflated.len() == head { stated(&inflated[4..]) } else { None };
        let most = stated.map_or(0, |stated| stated as u64).saturating_add(1).min(files::LARGE);
        from.take(most).read_to_end(&mut inflated).map_err(unreadable)?;
        bytes = inflated;
    }
    if bytes.len() < head || bytes[..4] != magic {
        let found: Vec<u8> = bytes.iter().take(4).copied().collect();
        return Err(Error::usage(format!(
            "{shown} is no IDX file of bytes in {dimensions} dimension(s): expected it to start with {magic:?}, found \
             {found:?}"
        )));
    }
    let sizes: Vec<usize> = sizes(&bytes[4..head]).collect();
    let expected = stated(&bytes[4..head]);
    let values = bytes.split_off(head);
    if expected != Some(values.len()) {
        return Err(Error::usage(format!(
            "{shown}: the header states dimensions {sizes:?}, but {} bytes follow. Download the file again",
            values.len()
        )));
    }
    Ok((sizes, values))
}

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    let part = of_split(split, "train", "t10k");
    let expect = |what: &str| {
        find(path, part, what).ok_or_else(|| missing(&path.join(format!("{part}-{what}-ubyte")), ABOUT))
    };
    let (images_path, labels_path) = (expect("images-idx3")?, expect("labels-idx1")?);
    let (sizes, bytes) = read(&images_path, 3)?;
    let (_, labels) = read(&labels_path, 1)?;
    if sizes[0] != labels.len() {
        return Err(Error::usage(format!(
            "{} holds {} images and {} holds {} labels. Both files must be of one data set",
            images_path.display(),
            sizes[0],
            labels_path.display(),
            labels.len()
        )));
    }
    if labels.is_empty() || sizes[1] == 0 || sizes[2] == 0 {
        return Err(Error::empty(format!("{} holds no images", images_path.display())));
    }
    let mut known: Vec<u8> = labels.clone();
    known.sort_unstable();
    known.dedup();
    let file = Arc::new(IdxImages { path: images_path, height: sizes[1], width: sizes[2], bytes });
    let mut items: Vec<Item> = labels
        .iter()
        .enumerate()
        .map(|(index, label)| Item {
            id: format!("{label}/{index:05}"),
            class: known.partition_point(|k| k < label),
            origin: Origin::Packed { file: file.clone(), index },
        })
        .collect();
    items.sort_by_key(|item| item.class);
    let source = format!("{} ({}, {})", path.display(), LAYOUT.name, named(split));
    Ok(Dataset { source, classes: known.iter().map(u8::to_string).collect(), items, ..Dataset::default() })
}
