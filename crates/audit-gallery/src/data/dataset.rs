//! A data set: classes, images in one order on every machine, and their pixels.

use super::item::{Item, Origin, Stored};
use super::preparation::{Pixels, Preparation};
use super::{Layout, Role, Split, Wanted, builtin, image, picture, png, vectors};
use audit_base::{Error, Result};
use rayon::prelude::*;
use std::path::Path;

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
        let mut dataset = Layout::list(path, wanted)?;
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
            Origin::File(Stored { path, part, .. }) => image::read(path, part, item.shown(path), prep)?,
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
            Origin::File(Stored { path, part, .. }) => Some(image::digest(path, part, item.shown(path))?),
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
            Origin::File(Stored { path, part, .. }) => image::read_uncut(path, part, item.shown(path), prep),
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
            self.items.iter_mut().for_each(|item| item.class += gallery.ids.len());
            let given = gallery.ids.iter().enumerate();
            let given = given.map(|(class, id)| Item {
                id: id.clone(),
                class,
                origin: Origin::Embedded { camera: None },
            });
            self.items.splice(0..0, given);
            self.classes.splice(0..0, gallery.ids.iter().cloned());
            self.source = format!("{} into {name}", self.source);
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
                    Origin::File(Stored { place: Some(place), .. }) => place.to_string(),
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
