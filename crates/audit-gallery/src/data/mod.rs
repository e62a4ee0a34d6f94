//! Images for an audit: classes, identities, and pixels in the form that the model needs.
//!
//! Each layout of images on disk has one file here and one row in [`LAYOUTS`]. It makes a [`Dataset`], and no
//! other code depends on the layout. [`Dataset::builtin`] needs no files.
//!
//! Layouts of published benchmarks use the splits on which their papers evaluate. In metric learning, no
//! class is in both the train and the test split; MNIST has the same ten classes in both.

mod builtin;
mod cars;
mod coco;
mod cub;
pub mod embedded;
mod flat;
mod folder;
mod format;
mod idx;
mod image;
mod image_list;
mod inshop;
mod listing;
mod mat;
mod msmt;
mod omniglot;
mod options;
mod pairs;
mod parquet;
mod partition;
mod photograph;
mod properties;
mod query_gallery;
mod reid;
mod room;
mod shards;
mod sop;
mod table;
mod tar;
pub mod vectors;

use crate::columns::BytesColumn;
use audit_base::choice::Choice;
use audit_base::error::unknown;
use audit_base::{Error, Result};
pub use format::unread;
pub use image::{decode, jpeg, picture, png};
pub use options::{Axes, Channels, Crop, Interpolation, Role};
pub use partition::Partition;
pub use photograph::{
    GREY_LEVEL, Photograph, QUALITIES, Resampling, file_of, file_value, grey_level, resized,
};
pub use properties::Properties;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Seed of the images of an audit without data. Compare scores only at equal seeds.
pub const BUILTIN_SEED: u64 = 0;

/// What the source of generated images is called, with their seed and number.
pub const BUILTIN_SOURCE: &str = "built-in characters";

/// A layout of labelled images on disk.
pub struct Layout {
    /// Name on the command line.
    pub name: &'static str,
    /// Places of the images and source of their classes, for the user.
    pub about: &'static str,
    /// Whether the path may be a file, and not only a folder.
    takes_file: bool,
    /// Whether the evaluation code of its papers stretches images to the input's size, instead of keeping
    /// their aspect ratio.
    stretched: bool,
    /// Whether a path looks like this layout, by the names of a few files.
    detect: fn(&Path) -> bool,
    /// Whether a path has separate images for training and evaluation.
    pub has_splits: fn(&Path) -> bool,
    open: Open,
}

/// Lists the images of a layout.
#[derive(Clone, Copy)]
enum Open {
    /// By split; `None`: the one on which papers evaluate.
    Split(fn(&Path, Option<Split>) -> Result<Dataset>),
    /// By the columns of a list, which may be named.
    Columns(fn(&Path, &Wanted) -> Result<Dataset>),
}

/// The layout of a benchmark's archive: a folder with a split, whose papers stretch images.
const fn benchmark(
    name: &'static str,
    about: &'static str,
    detect: fn(&Path) -> bool,
    open: fn(&Path, Option<Split>) -> Result<Dataset>,
) -> Layout {
    let open = Open::Split(open);
    Layout { name, about, takes_file: false, stretched: true, detect, has_splits: |_| true, open }
}

/// Options for reading images.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Name of the layout; `None`: detected.
    pub layout: Option<String>,
    /// Split; `None`: the one on which papers evaluate.
    pub split: Option<Split>,
    /// Column of the images in a list or in Parquet files; `None`: by its usual names.
    pub image_column: Option<String>,
    /// Column of the classes; `None`: by its usual names.
    pub label_column: Option<String>,
    /// Whether each image is a separate class, whatever the data say.
    pub classless: bool,
}

impl Wanted {
    /// The columns that the user names.
    fn columns(&self) -> Vec<(&'static str, &str)> {
        let image = self.image_column.iter().map(|name| ("path", name.as_str()));
        image.chain(self.label()).collect()
    }

    fn label(&self) -> Vec<(&'static str, &str)> {
        self.label_column.iter().map(|name| ("label", name.as_str())).collect()
    }
}

/// Every layout. `folder` is last: it is the fallback if no other fits.
pub const LAYOUTS: &[Layout] = &[
    cub::LAYOUT,
    cars::LAYOUT,
    sop::LAYOUT,
    inshop::LAYOUT,
    reid::MARKET,
    reid::DUKE,
    reid::VERI,
    msmt::LAYOUT,
    query_gallery::LAYOUT,
    omniglot::LAYOUT,
    idx::LAYOUT,
    pairs::LAYOUT,
    tar::LAYOUT,
    parquet::LAYOUT,
    coco::LAYOUT,
    image_list::METADATA,
    image_list::LAYOUT,
    flat::LAYOUT,
    folder::LAYOUT,
];

/// A split of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Images for training.
    Train,
    /// Images for evaluation.
    Test,
}

impl Choice for Split {
    const ALL: &'static [(Split, &'static str, &'static str)] = &[
        (Split::Train, "train", "What models are trained on"),
        (Split::Test, "test", "What they are evaluated on"),
    ];
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The form of pixels that a model needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparation {
    /// 1 for grey, 3 for RGB.
    pub channels: usize,
    /// Height of the model's input.
    pub height: usize,
    /// Width of the model's input.
    pub width: usize,
    /// Size before a centre crop of `height`×`width`. `None`: resized to `height`×`width`, without a crop.
    pub resize: Option<Resize>,
    /// Where the centre crop begins.
    pub crop: Crop,
    /// Interpolation between pixels.
    pub interpolation: Interpolation,
    /// Whether pixels are rounded to whole grey levels, for a model with an integer input: those of images of
    /// more than 8 bits, and those between pixels.
    pub whole_levels: bool,
}

/// The size of an image before the centre crop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// This (height, width), whatever the image's aspect ratio.
    Exact(usize, usize),
    /// Length of the shorter side, with the aspect ratio kept.
    Shorter(usize),
}

/// An image, or an embedding without pixels.
#[derive(Clone, Debug)]
pub struct Item {
    /// Name within the data set, `class/file` or the path in a list: unique, and the same on every machine.
    pub id: String,
    /// Index into [`Dataset::classes`].
    pub class: usize,
    origin: Origin,
}

/// The source of an item's pixels, and properties from its list.
#[derive(Clone, Debug)]
enum Origin {
    File(PathBuf),
    /// A file in a list.
    Listed {
        path: PathBuf,
        part: Part,
        camera: Option<u32>,
        role: Role,
        group: Option<Box<str>>,
        /// Position in its list, for messages: file and line.
        place: Box<str>,
    },
    /// Image `index` of a file that holds many.
    Packed {
        file: Arc<idx::IdxImages>,
        index: usize,
    },
    Generated {
        seed: u64,
        sample: usize,
    },
    /// An embedding without pixels.
    Embedded {
        camera: Option<u32>,
    },
}

/// The part of a file that is an image.
#[derive(Clone, Debug)]
enum Part {
    /// The whole file.
    Whole,
    /// A file in an archive: its first byte and its length.
    Bytes { from: u64, length: u64 },
    /// The value of a Parquet column in a row, counted from 0.
    Value(Arc<BytesColumn>, usize),
    /// A box in the decoded image: left, top, right, bottom, in pixels; right and bottom are exclusive.
    Box([u32; 4]),
}

impl Item {
    /// Role in its layout.
    pub fn role(&self) -> Role {
        match self.origin {
            Origin::Listed { role, .. } => role,
            Origin::Embedded { .. } => Role::Gallery,
            _ => Role::Both,
        }
    }

    /// Whether it has pixels, and not only an embedding.
    pub fn has_pixels(&self) -> bool {
        !matches!(self.origin, Origin::Embedded { .. })
    }

    /// Its file, if no other image is in it.
    pub fn file(&self) -> Option<&Path> {
        match &self.origin {
            Origin::File(path) | Origin::Listed { path, part: Part::Whole, .. } => Some(path),
            _ => None,
        }
    }

    /// Its name in messages, if its pixels are in the file `path`.
    fn shown(&self, path: &Path) -> String {
        match self.file() {
            Some(_) => path.display().to_string(),
            None => format!("`{}` in {}", self.id, path.display()),
        }
    }

    /// The file of its pixels, which may have other images too.
    pub fn source(&self) -> Option<&Path> {
        match &self.origin {
            Origin::File(path) | Origin::Listed { path, .. } => Some(path),
            Origin::Packed { file, .. } => Some(file.path()),
            Origin::Generated { .. } | Origin::Embedded { .. } => None,
        }
    }

    /// Time of the last change of [`Item::source`], in nanoseconds since 1970.
    pub fn modified(&self) -> Option<i64> {
        let time = std::fs::metadata(self.source()?).ok()?.modified().ok()?;
        i64::try_from(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos()).ok()
    }

    /// The part of its file that is this image, in words; `None` for a whole file, and without a file.
    pub fn part(&self) -> Option<String> {
        match &self.origin {
            Origin::Listed { part: Part::Bytes { from, length }, .. } => {
                Some(format!("{length} bytes from {from}"))
            }
            Origin::Listed { part: Part::Value(column, row), .. } => {
                Some(format!("row {row} of {}", column.name()))
            }
            Origin::Listed { part: Part::Box(edges), .. } => Some(format!("box {edges:?}")),
            Origin::Packed { index, .. } => Some(format!("image {index}")),
            _ => None,
        }
    }

    /// Its group of queries in its list, such as a site or a camera.
    pub fn group(&self) -> Option<&str> {
        match &self.origin {
            Origin::Listed { group, .. } => group.as_deref(),
            _ => None,
        }
    }

    /// The camera of the image. A query never ranks images of its class from its own camera.
    pub fn camera(&self) -> Option<u32> {
        match self.origin {
            Origin::Listed { camera, .. } | Origin::Embedded { camera } => camera,
            _ => None,
        }
    }
}

/// Labelled images, in the same order on every machine.
#[derive(Clone, Debug, Default)]
pub struct Dataset {
    /// Source of the images, for the report: the folder as given, or the generator and its seed.
    pub source: String,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// The images, by class and id; images that are queries only are last.
    pub items: Vec<Item>,
    /// Files and folders without the extension of an image, as `class/file`.
    pub left_out: Vec<String>,
    /// Data that were not used, or were interpreted without being stated: one sentence each.
    pub notes: Vec<String>,
    /// Pairs for verification, if the images are pairs. Some of their images may have been removed from the
    /// items.
    pub pairs: Vec<ListedPair>,
    /// Whether the images have no classes. Each is then a separate class with the name of the image.
    pub classless: bool,
    /// Why some image has no class, if one has none.
    pub unlabelled: Option<String>,
    /// Whether images are stretched to a model's input if nothing states how to resize them: as in
    /// benchmarks.
    pub stretched: bool,
}

/// Ids of two images, and whether they have one identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPair {
    /// The image to be accepted.
    pub probe: String,
    /// The image with which it is compared.
    pub reference: String,
    /// Whether both have one identity (a genuine pair). The others are impostor pairs.
    pub same: bool,
    /// Group in the list.
    pub group: Option<String>,
    /// Fold in the list, from 0.
    pub fold: Option<usize>,
}

/// An image, prepared for a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Pixels {
    /// channels × height × width values in [0, 1], in RGB order.
    pub data: Vec<f32>,
    /// SHA-256 of the file's bytes, or of the generated 8-bit pixels.
    pub digest: [u8; 32],
}

impl Pixels {
    /// The pixels of an image file. Errors (exit code 2): it can't be read or decoded, or `prep` is
    /// impossible.
    pub fn read(path: &Path, prep: &Preparation) -> Result<Pixels> {
        prep.check()?;
        Ok(image::read(path, &Part::Whole, path.display(), prep)?.settled(prep))
    }

    /// Rounded to whole grey levels, if the model needs them.
    fn settled(mut self, prep: &Preparation) -> Pixels {
        if prep.whole_levels {
            self.data.iter_mut().for_each(|v| *v = file_value(*v));
        }
        self
    }

    /// The first 8 bytes of a SHA-256 of the values: equal for equal images, whatever their files.
    pub fn hash(&self) -> u64 {
        let mut hash = Sha256::new();
        let mut bytes = [0; 4096];
        for values in self.data.chunks(bytes.len() / 4) {
            let (places, _) = bytes.as_chunks_mut();
            for (place, value) in places.iter_mut().zip(values) {
                *place = value.to_le_bytes();
            }
            hash.update(&bytes[..4 * values.len()]);
        }
        let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = hash.finalize().into();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl Dataset {
    /// The images at `path` in the named layout, or in the detected one. Split `None`: the one on which
    /// papers evaluate.
    ///
    /// Lists the images only: one that can't be decoded fails when its pixels are read. `generated:CxN` gives
    /// C classes of N generated images each ([`Dataset::generated`]). Errors: `path` doesn't fit the layout
    /// (exit code 2), or has no images (exit code 4).
    pub fn open(path: &Path, layout: Option<&str>, split: Option<Split>) -> Result<Dataset> {
        Self::open_as(path, &Wanted { layout: layout.map(str::to_owned), split, ..Wanted::default() })
    }

    /// [`Dataset::open`] with all options.
    pub fn open_as(path: &Path, wanted: &Wanted) -> Result<Dataset> {
        let mut dataset = Self::list(path, wanted)?;
        if wanted.classless {
            return dataset.without_classes();
        }
        match dataset.unlabelled.take() {
            Some(why) => Err(Error::usage(format!(
                "{why}. If the images have no classes, audit MODEL --labels none asks whether attacks change what each of them finds"
            ))),
            None => Ok(dataset),
        }
    }

    fn list(path: &Path, wanted: &Wanted) -> Result<Dataset> {
        let named = wanted.image_column.as_ref().map(|name| format!("--image-column {name}"));
        let named = named.or(wanted.label_column.as_ref().map(|name| format!("--label-column {name}")));
        let no_columns = |what: &str| {
            let Some(flag) = &named else { return Ok(()) };
            let others = LAYOUTS.iter().filter(|layout| matches!(layout.open, Open::Columns(_)));
            Err(Error::usage(format!(
                "{flag}: {what} no columns. Leave it out, or name the layout that the images have: --layout {}",
                others.map(|layout| layout.name).collect::<Vec<_>>().join(" or ")
            )))
        };
        if let Some(generated) = builtin::named(path, wanted.layout.as_deref(), wanted.split) {
            no_columns("generated images have")?;
            return generated;
        }
        let shown = path.display();
        if let Err(reason) = std::fs::metadata(path) {
            return Err(Error::usage(format!("data {shown}: {reason}. Give the folder of the images")));
        }
        let layout = match &wanted.layout {
            Some(name) => Layout::find(name)?,
            None => Layout::detect(path)?,
        };
        if !layout.takes_file && !path.is_dir() {
            let about = layout.about;
            let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
            return Err(Error::usage(match extension.to_str().unwrap_or_default() {
                extension @ ("zip" | "gz" | "tgz" | "zst" | "xz" | "7z" | "rar") => {
                    format!("data {shown} is a {extension} archive. Unpack it and give the folder: {about}")
                }
                _ => format!("data {shown} is a file. Expected is a folder: {about}"),
            }));
        }
        let dataset = match layout.open {
            Open::Split(open) => {
                no_columns(&format!("{shown} is of layout {}, which has", layout.name))?;
                open(path, wanted.split)?
            }
            Open::Columns(open) => open(path, wanted)?,
        };
        Ok(Dataset { stretched: layout.stretched, ..dataset })
    }

    /// The built-in image set: 48 classes of 20 generated handwritten characters. The same seed gives the
    /// same pixels on every machine; another seed gives other classes.
    pub fn builtin(seed: u64) -> Dataset {
        Self::generated(seed, 48, 20)
    }

    /// [`Dataset::builtin`] with any number of classes and of images per class.
    pub fn generated(seed: u64, classes: usize, samples: usize) -> Dataset {
        builtin::list(seed, classes, samples)
    }

    /// The pixels of item `index`, decoded or generated.
    ///
    /// Errors (exit code 2): the file can't be read or decoded, or `prep` is impossible.
    ///
    /// # Panics
    /// If `index` is not below `items.len()`.
    pub fn pixels(&self, index: usize, prep: &Preparation) -> Result<Pixels> {
        prep.check()?;
        let item = &self.items[index];
        let pixels = match &item.origin {
            Origin::File(path) => image::read(path, &Part::Whole, item.shown(path), prep)?,
            Origin::Listed { path, part, .. } => image::read(path, part, item.shown(path), prep)?,
            Origin::Packed { file, index } => file.read(*index, prep)?,
            Origin::Embedded { .. } => {
                return Err(Error::usage(format!(
                    "`{}` is known by its embedding alone: it has no pixels",
                    item.id
                )));
            }
            &Origin::Generated { seed, sample } => builtin::pixels(seed, item.class, sample, prep),
        };
        Ok(pixels.settled(prep))
    }

    /// [`Pixels::digest`] of item `index`, which is not decoded; `None` without a file. Error (exit code 2):
    /// the file can't be read.
    pub fn digest(&self, index: usize) -> Result<Option<[u8; 32]>> {
        let item = &self.items[index];
        Ok(match &item.origin {
            Origin::File(path) => Some(image::digest(path, &Part::Whole, item.shown(path))?),
            Origin::Listed { path, part, .. } => Some(image::digest(path, part, item.shown(path))?),
            Origin::Packed { file, index } => Some(file.digest(*index)),
            Origin::Generated { .. } | Origin::Embedded { .. } => None,
        })
    }

    /// The image resized as in `prep`, without the crop, and its height and width. Images without a file of
    /// their own are those of [`Dataset::pixels`].
    pub fn uncut(&self, index: usize, prep: &Preparation) -> Result<(Vec<f32>, [usize; 2])> {
        prep.check()?;
        let item = &self.items[index];
        match &item.origin {
            Origin::File(path) => image::read_uncut(path, &Part::Whole, item.shown(path), prep),
            Origin::Listed { path, part, .. } => image::read_uncut(path, part, item.shown(path), prep),
            _ => Ok((self.pixels(index, prep)?.data, [prep.height, prep.width])),
        }
    }

    /// The same images without classes. Error (exit code 2): they are pairs, which depend on identities.
    pub fn without_classes(mut self) -> Result<Dataset> {
        if !self.pairs.is_empty() {
            return Err(Error::usage(format!(
                "--labels none: {} lists pairs, which say who is who. Leave it out, or name a folder of images",
                self.source
            )));
        }
        self.classes = self.items.iter().map(|item| item.id.clone()).collect();
        self.items.iter_mut().enumerate().for_each(|(i, item)| item.class = i);
        self.classless = true;
        Ok(self)
    }

    /// Makes every image a query into a gallery of embeddings, whose items come first, row by row.
    ///
    /// Error (exit code 2): the class of a query is not in the gallery; `name` names the gallery in the
    /// error.
    pub fn search_in(&mut self, name: &str, gallery: &vectors::Vectors) -> Result<()> {
        if self.classless {
            let given = gallery.ids.iter().enumerate();
            let mut items: Vec<Item> = given
                .map(|(class, id)| Item { id: id.clone(), class, origin: Origin::Embedded { camera: None } })
                .collect();
            items.extend(
                self.items.drain(..).map(|item| Item { class: item.class + gallery.ids.len(), ..item }),
            );
            self.classes.splice(0..0, gallery.ids.iter().cloned());
            self.source = format!("{} into {name}", self.source);
            self.items = items;
            return Ok(());
        }
        let mut classes = gallery.labels.clone();
        classes.sort_unstable();
        classes.dedup();
        let class = |label: &String| classes.binary_search(label).ok();
        let some = classes.iter().take(3).map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let more = match classes.len().saturating_sub(3) {
            0 => String::new(),
            more => format!(" and {more} others"),
        };
        let mut items: Vec<Item> = (gallery.ids.iter().zip(&gallery.labels).zip(&gallery.cameras))
            .filter_map(|((id, label), &camera)| {
                Some(Item { id: id.clone(), class: class(label)?, origin: Origin::Embedded { camera } })
            })
            .collect();
        for Item { id, class: index, origin } in self.items.drain(..) {
            let label = &self.classes[index];
            let class = class(label).ok_or_else(|| {
                let place = match &origin {
                    Origin::Listed { place, .. } => place.to_string(),
                    _ => self.source.clone(),
                };
                Error::usage(format!(
                    "{place}: query `{id}` has class `{label}`, of which {name} holds no embedding. Its classes are {some}{more}. \
                     Add embeddings of it to the gallery, or remove the query"
                ))
            })?;
            items.push(Item { id, class, origin });
        }
        self.source = format!("{} into {name}", self.source);
        (self.items, self.classes) = (items, classes);
        Ok(())
    }

    /// The role of each item: [`Item::role`]; if the gallery is a file of embeddings, all images are queries.
    pub fn roles(&self) -> Vec<Role> {
        let apart = !self.items.iter().all(Item::has_pixels);
        let role = |item: &Item| if apart && item.has_pixels() { Role::Query } else { item.role() };
        self.items.iter().map(role).collect()
    }

    /// Whether its images are generated, so that scores don't compare with published ones.
    pub fn is_generated(&self) -> bool {
        self.items.iter().any(|item| matches!(item.origin, Origin::Generated { .. }))
    }

    /// Removes every item for whose index `wanted` is false. Class indices don't change, even if a class has
    /// no item left.
    pub fn keep(&mut self, wanted: impl Fn(usize) -> bool) {
        let mut index = 0;
        self.items.retain(|_| {
            index += 1;
            wanted(index - 1)
        });
    }

    /// Writes the images as 8-bit PNG files in class folders below `dir`, and returns their number.
    /// [`Dataset::open`] of `dir` then gives the same items in the same order, with ids that end with `.png`.
    ///
    /// Errors: `dir` is not empty (exit code 2); a file can't be written (exit code 1).
    pub fn export(&self, dir: &Path, prep: &Preparation) -> Result<usize> {
        let unwritable = |path: &Path, reason: &dyn std::fmt::Display| {
            Error::internal(format!("can't write {}: {reason}", path.display()))
        };
        prep.check()?;
        // Files of an earlier export would become part of the data set.
        if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Error::usage(format!("{} is not empty. Name a new folder", dir.display())));
        }
        for class in &self.classes {
            let folder = dir.join(class);
            std::fs::create_dir_all(&folder).map_err(|reason| unwritable(&folder, &reason))?;
        }
        (0..self.items.len()).into_par_iter().try_for_each(|index| {
            let pixels = self.pixels(index, prep)?;
            let id = &self.items[index].id;
            let path = dir.join(if id.ends_with(".png") { id.clone() } else { format!("{id}.png") });
            let png = png(&picture(&pixels.data, [prep.channels, prep.height, prep.width]))
                .map_err(|reason| unwritable(&path, &reason))?;
            std::fs::write(&path, png).map_err(|reason| unwritable(&path, &reason))
        })?;
        Ok(self.items.len())
    }
}

impl Layout {
    /// The layout called `name`.
    pub fn find(name: &str) -> Result<&'static Layout> {
        let layout = LAYOUTS.iter().find(|row| row.name == name);
        layout.ok_or_else(|| unknown("layout", name, LAYOUTS.iter().map(|row| row.name)))
    }

    /// The only layout that `path` looks like; class folders if it looks like none.
    pub fn detect(path: &Path) -> Result<&'static Layout> {
        let fitting: Vec<_> = LAYOUTS.iter().filter(|row| (row.detect)(path)).collect();
        match fitting[..] {
            [] => Ok(&folder::LAYOUT),
            [one] => Ok(one),
            _ => {
                let names: Vec<_> = fitting.iter().map(|row| row.name).collect();
                Err(Error::usage(format!(
                    "{} may be any of {}. Name one with --layout",
                    path.display(),
                    names.join(", ")
                )))
            }
        }
    }
}

impl Preparation {
    /// Resizes to this size, without a crop.
    pub fn new(channels: usize, height: usize, width: usize) -> Preparation {
        let (crop, interpolation) = (Crop::default(), Interpolation::default());
        Preparation { channels, height, width, resize: None, crop, interpolation, whole_levels: false }
    }

    /// The size to which an image of this (height, width) is resized.
    fn resized(&self, (height, width): (usize, usize)) -> (usize, usize) {
        match self.resize {
            None => (self.height, self.width),
            Some(Resize::Exact(rows, columns)) => (rows, columns),
            // Rounded down, as in torchvision.
            Some(Resize::Shorter(side)) if height <= width => (side, (side * width / height)),
            Some(Resize::Shorter(side)) => (side * height / width, side),
        }
    }

    /// Refuses sizes that no image can have.
    fn check(&self) -> Result<()> {
        let Preparation { channels, height, width, .. } = *self;
        if channels != 1 && channels != 3 {
            return Err(Error::usage(format!(
                "the model takes images of {channels} channels, but images have 1 (grey) or 3 (RGB)"
            )));
        }
        // A square image has the smallest size that [`Resize::Shorter`] gives.
        let (rows, columns) = self.resized((1, 1));
        if height == 0 || width == 0 || rows < height || columns < width {
            return Err(Error::usage(format!(
                "can't cut {height}×{width} pixels from an image resized to {rows}×{columns}. \
                 Sizes must be positive, and the resized image must be no smaller than the cut"
            )));
        }
        Ok(())
    }
}
