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
mod dataset;
pub mod embedded;
mod flat;
mod folder;
mod format;
mod idx;
mod image;
mod image_list;
mod inshop;
mod item;
mod listing;
mod mat;
mod msmt;
mod omniglot;
mod options;
mod pairs;
mod parquet;
mod partition;
mod photograph;
mod preparation;
mod properties;
mod query_gallery;
mod reid;
mod room;
mod shards;
mod sop;
mod table;
mod tar;
pub mod vectors;

use audit_base::choice::Choice;
use audit_base::error::unknown;
use audit_base::{Error, Result};
pub use dataset::{Dataset, ListedPair};
pub use format::unread;
pub use image::{decode, jpeg, picture, png};
pub use item::Item;
use item::{Origin, Part, Stored};
pub use options::{Axes, Channels, Crop, Interpolation, Role};
pub use partition::Partition;
pub use photograph::{
    GREY_LEVEL, Photograph, QUALITIES, Resampling, file_of, file_value, grey_level, resized,
};
pub use preparation::{Pixels, Preparation, Resize};
pub use properties::Properties;
use serde::{Deserialize, Serialize};
use std::path::Path;

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

audit_base::shown_by_name!(Split);

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

    /// The images at `path` in the layout that is wanted, or in the detected one. It doesn't refuse images
    /// without a class.
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
}
