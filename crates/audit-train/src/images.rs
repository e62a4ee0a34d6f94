//! Training images: pairs of one class from a data set, as tensors.

use crate::dice::Dice;
use crate::net::Backbone;
use crate::settings::PhotographSize;
use audit::data::{Dataset, Layout, Preparation, Resize, Split, decode, unread};
use audit::error::shortened;
use audit::files::hex;
use audit::model::memory::Bytes;
use audit::{Error, Result};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tch::{Device, Tensor};

/// Default size of the cache of decoded images, in bytes.
const CACHE: u64 = 4 << 30;

/// Images up to this side may be characters. Those of Omniglot have 105 pixels.
const SMALL: usize = 128;

/// Images decoded between two steps of the progress.
const DECODED: usize = 256;

/// Size of photographs before the crop, in pixels.
const PHOTOGRAPH: usize = 256;

/// The images of a data set, for random pairs of one class.
pub struct TrainingImages {
    dataset: Dataset,
    prep: Preparation,
    /// Side of the net's input, in pixels.
    side: usize,
    /// Items of each class that isn't empty.
    classes: Vec<Vec<usize>>,
    /// Whether photographs keep their aspect ratio: then their shorter side has [`PHOTOGRAPH`] pixels.
    shorter: bool,
    cache: Vec<OnceLock<Decoded>>,
    /// Limit of the cache and its free part, in bytes.
    limit: u64,
    room: AtomicU64,
    /// SHA-256 of the items' names, classes and lengths, in hexadecimal, shortened.
    pub digest: String,
}

/// A decoded image, and its height and width.
struct Decoded {
    size: [usize; 2],
    values: Values,
}

/// Values in [0, 1]; for an 8-bit image its grey levels.
enum Values {
    Levels(Vec<u8>),
    Exact(Vec<f32>),
}

impl Decoded {
    fn of(values: Vec<f32>, size: [usize; 2]) -> Decoded {
        let level = |value: &f32| (value * 255.0).round() as u8;
        let whole = values.iter().all(|value| f32::from(level(value)) / 255.0 == *value);
        let values = match whole {
            true => Values::Levels(values.iter().map(level).collect()),
            false => Values::Exact(values),
        };
        Decoded { size, values }
    }

    fn bytes(&self) -> u64 {
        match &self.values {
            Values::Levels(levels) => levels.len() as u64,
            Values::Exact(values) => 4 * values.len() as u64,
        }
    }

    fn values(&self) -> Cow<'_, [f32]> {
        match &self.values {
            Values::Levels(levels) => levels.iter().map(|&level| f32::from(level) / 255.0).collect(),
            Values::Exact(values) => Cow::Borrowed(values),
        }
    }
}

/// Images as a tensor, and their classes.
pub struct LabelledImages {
    /// Images [B, C, H, W] in [0, 1]; in a batch to train on, 2i and 2i + 1 share a class.
    pub images: Tensor,
    /// Class of each image, `[B]`.
    pub labels: Vec<usize>,
}

/// The layout of the images at `path` and their split. By default that is `part`, if the layout has splits.
pub fn layout_and_split(
    path: &Path,
    layout: Option<&str>,
    split: Option<Split>,
    part: Split,
) -> Result<(&'static Layout, Option<Split>)> {
    let layout = layout.map_or_else(|| Layout::detect(path), Layout::find)?;
    Ok((layout, split.or((layout.has_splits)(path).then_some(part))))
}

impl TrainingImages {
    /// Lists the images at `path`; the default split is `part`.
    pub fn open(
        path: &Path,
        layout: Option<&str>,
        split: Option<Split>,
        part: Split,
        backbone: &Backbone,
    ) -> Result<TrainingImages> {
        // A missing path is refused below, with the data set's error.
        let (layout, split) = layout_and_split(path, layout, split, part)?;
        let dataset = Dataset::open(path, Some(layout.name), split)?;
        Self::of(dataset, backbone)
    }

    /// The images of an open data set. Errors: no class has two images (exit code 2), or there is one class
    /// alone (4).
    pub fn of(dataset: Dataset, backbone: &Backbone) -> Result<TrainingImages> {
        let mut classes = vec![Vec::new(); dataset.classes.len()];
        for (index, item) in dataset.items.iter().enumerate() {
            classes[item.class].push(index);
        }
        classes.retain(|items| !items.is_empty());
        refuse_if!(
            !classes.is_empty() && classes.iter().all(|items| items.len() == 1),
            "data {}: no class has two images, so that no image has another one to be found",
            dataset.source
        );
        if classes.len() < 2 {
            return Err(Error::empty(format!(
                "data {}: {} class with images; a negative needs a second",
                dataset.source,
                classes.len()
            )));
        }
        let (channels, side) = (backbone.input.0 as usize, backbone.input.1 as usize);
        let whole = if backbone.photograph { PHOTOGRAPH } else { side };
        let prep = Preparation::new(channels, whole, whole);
        let digest = digest(&dataset);
        let cache = (0..dataset.items.len()).map(|_| OnceLock::new()).collect();
        let room = AtomicU64::new(CACHE);
        Ok(TrainingImages { dataset, prep, side, classes, shorter: false, cache, limit: CACHE, room, digest })
    }

    /// Checks that every class has two images. Otherwise exit code 2.
    pub fn refuse_lone(&self) -> Result<()> {
        let lone = self.classes.iter().filter(|items| items.len() == 1);
        let class = |items: &Vec<usize>| self.dataset.classes[self.dataset.items[items[0]].class].as_str();
        let lone: Vec<&str> = lone.map(class).collect();
        let count = if lone.len() == 1 { "a class".into() } else { format!("{} classes", lone.len()) };
        refuse_if!(
            !lone.is_empty(),
            "data {}: {count} of one image: {}. An anchor needs a positive: add images or remove the class",
            self.dataset.source,
            shortened(&lone, 5)
        );
        Ok(())
    }

    /// With photographs resized as in `resize`, and decoded images cached up to `limit` bytes.
    pub fn decoded(mut self, resize: PhotographSize, limit: u64) -> TrainingImages {
        self.shorter = resize == PhotographSize::Shorter;
        self.prep.resize = self.shorter.then_some(Resize::Shorter(self.prep.height));
        (self.limit, self.room) = (limit, AtomicU64::new(limit));
        self
    }

    /// A note for the user if 8-bit images don't fit into the cache.
    pub fn beyond_cache(&self) -> Option<String> {
        // Images that keep their aspect ratio are usually wider than high, by about a third.
        let pixels = (self.prep.height * self.prep.width * self.prep.channels * self.count()) as u64;
        let bytes = if self.shorter { pixels * 4 / 3 } else { pixels };
        (bytes > self.limit).then(|| {
            format!(
                "{} decoded images take about {}, and the cache holds {}: the others are decoded anew for each batch. --image-cache SIZE \
                 states another limit",
                self.count(),
                Bytes(bytes),
                Bytes(self.limit)
            )
        })
    }

    /// Notes for the user on files and data that are not used, as in an audit of the same images.
    pub fn notes(&self) -> Vec<String> {
        let Dataset { source, left_out, notes, .. } = &self.dataset;
        let mut all = vec![];
        if !left_out.is_empty() {
            let why =
                unread(left_out.iter().map(String::as_str)).map_or(String::new(), |why| format!(". {why}"));
            all.push(format!(
                "{} files or folders beside the images were left out: {}{why}",
                left_out.len(),
                shortened(left_out, 5)
            ));
        }
        all.extend(notes.iter().cloned());
        all.into_iter().map(|note| format!("data {source}: {note}")).collect()
    }

    /// A note for the user if the net is one for small images, and the first image is a photograph.
    pub fn too_large(&self) -> Option<String> {
        let path = self.dataset.items.first()?.file()?;
        let image = decode(&std::fs::read(path).ok()?, path).ok()?.0;
        let (width, height) = (image.width(), image.height());
        (self.side < SMALL && width.min(height) as usize > SMALL).then(|| {
            format!(
                "{} has {width} × {height} pixels, and the net takes grey images of {} pixels. For photographs give --backbone \
                 resnet18 --pretrained FILE",
                path.display(),
                self.side
            )
        })
    }

    /// Number of images, at least four.
    pub fn count(&self) -> usize {
        self.dataset.items.len()
    }

    /// Number of classes with images.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Checks that a batch can have two images of each of `batch`/2 classes. Otherwise exit code 2.
    pub fn allow(&self, batch: usize) -> Result<()> {
        let (wanted, held) = (batch / 2, self.classes.len());
        refuse_if!(
            wanted > held,
            "--batch {batch} takes two images of each of {wanted} classes, and the data holds {held} classes in {} images; \
             give at most --batch {}",
            self.count(),
            2 * held
        );
        Ok(())
    }

    /// `count` images, two of each of count/2 classes. Photographs are cropped at random and mirrored half
    /// the time. With an area, any image is cropped to at least this share, and scaled to the input.
    pub fn draw(
        &self,
        count: usize,
        area: Option<f64>,
        dice: &mut Dice,
        device: Device,
    ) -> Result<LabelledImages> {
        let mut chosen = Vec::with_capacity(count);
        let mut labels = Vec::with_capacity(count);
        for class in dice.choose(self.classes.len(), count / 2) {
            let items = &self.classes[class];
            for two in dice.choose(items.len(), 2) {
                chosen.push((items[two], self.cut(area, dice)));
                labels.push(class);
            }
        }
        Ok(LabelledImages { images: self.tensor(&chosen, device)?, labels })
    }

    /// Class of each image, as labelled in batches.
    pub fn labels(&self) -> Vec<usize> {
        let mut labels = vec![0; self.count()];
        for (class, items) in self.classes.iter().enumerate() {
            items.iter().for_each(|&item| labels[item] = class);
        }
        labels
    }

    /// Each anchor and, with another crop, a random image of its class, possibly the same one. Crops as in
    /// [`TrainingImages::draw`].
    pub fn pairs(
        &self,
        anchors: &[usize],
        labels: &[usize],
        area: Option<f64>,
        dice: &mut Dice,
        device: Device,
    ) -> Result<LabelledImages> {
        let mut chosen = Vec::with_capacity(2 * anchors.len());
        for &anchor in anchors {
            let class = &self.classes[labels[anchor]];
            let positive = class[dice.index(class.len())];
            chosen.extend([anchor, positive].map(|item| (item, self.cut(area, dice))));
        }
        let labels = chosen.iter().map(|&(item, _)| labels[item]).collect();
        Ok(LabelledImages { images: self.tensor(&chosen, device)?, labels })
    }

    /// The crop of an image for training.
    fn cut(&self, area: Option<f64>, dice: &mut Dice) -> Cut {
        let whole = [self.prep.height; 2];
        match (self.shorter, area) {
            // The size of such an image is not known yet.
            (true, _) => Cut::Drawn(area, dice.random().bits()),
            (false, Some(least)) => Cut::Of(Crop::of_area(least, whole, self.mirrored(), dice)),
            (false, None) => Cut::Of(Crop::anywhere(self.side, whole, self.mirrored(), dice)),
        }
    }

    /// At most `most` images of whole classes, evenly distributed over the data, then of classes of one
    /// image, which only others can be compared with; centre crops.
    pub fn some(&self, most: usize, device: Device) -> Result<LabelledImages> {
        let (lone, several): (Vec<usize>, Vec<usize>) =
            (0..self.classes.len()).partition(|&class| self.classes[class].len() == 1);
        let images = self.count() - lone.len();
        let fit = (most * several.len() / images).clamp(several.len().min(2), several.len());
        let (mut chosen, mut labels) = (Vec::new(), Vec::new());
        for class in (0..fit).map(|i| several[i * several.len() / fit]) {
            // A class larger than its share is cut to it.
            for &item in self.classes[class].iter().take((most / fit).max(2)) {
                chosen.push((item, Cut::Centre));
                labels.push(class);
            }
        }
        let room = most.saturating_sub(chosen.len()).max(usize::from(fit == 1));
        for &class in lone.iter().take(room) {
            chosen.push((self.classes[class][0], Cut::Centre));
            labels.push(class);
        }
        Ok(LabelledImages { images: self.tensor(&chosen, device)?, labels })
    }

    /// Decodes every image, and so fills the cache; `on_image` gets the number of decoded ones. Error (exit
    /// code 2): an image can't be read. A training would meet it in its middle.
    pub fn decode(&self, mut on_image: impl FnMut(u64)) -> Result<()> {
        let all: Vec<usize> = (0..self.count()).collect();
        for (i, some) in all.chunks(DECODED).enumerate() {
            some.par_iter().try_for_each(|&item| self.part(item, &Cut::Centre).map(drop)).map_err(|e| {
                let message = format!("{}. Replace the image, or remove it from the data", e.message);
                Error { message, ..e }
            })?;
            on_image((i * DECODED + some.len()) as u64);
        }
        Ok(())
    }

    /// Whether images are mirrored: photographs only, which are crops. A mirrored character is another one.
    fn mirrored(&self) -> bool {
        self.prep.height > self.side
    }

    fn tensor(&self, chosen: &[(usize, Cut)], device: Device) -> Result<Tensor> {
        let pixels: Vec<Vec<f32>> =
            chosen.par_iter().map(|(item, cut)| self.part(*item, cut)).collect::<Result<_>>()?;
        let side = self.side as i64;
        let shape = [chosen.len() as i64, self.prep.channels as i64, side, side];
        Ok(Tensor::from_slice(&pixels.concat()).view(shape).to_device(device))
    }

    fn part(&self, item: usize, cut: &Cut) -> Result<Vec<f32>> {
        let decoded;
        let image = match self.cache[item].get() {
            Some(image) => image,
            None => {
                let (values, size) = match self.shorter {
                    true => self.dataset.uncut(item, &self.prep)?,
                    false => (self.dataset.pixels(item, &self.prep)?.data, [self.prep.height; 2]),
                };
                decoded = Decoded::of(values, size);
                let bytes = decoded.bytes();
                let fits = |room: u64| room.checked_sub(bytes);
                match self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
                    Ok(_) => {
                        let mut stored = false;
                        let image = self.cache[item].get_or_init(|| {
                            stored = true;
                            decoded
                        });
                        if !stored {
                            // Another thread has decoded the same image meanwhile.
                            self.room.fetch_add(bytes, Ordering::Relaxed);
                        }
                        image
                    }
                    Err(_) => &decoded,
                }
            }
        };
        let crop = match cut {
            Cut::Of(crop) => *crop,
            Cut::Centre => Crop::centre(self.side, image.size),
            Cut::Drawn(area, seed) => {
                let mut dice = Dice::new(*seed, "cut", 0);
                match area {
                    Some(least) => Crop::of_area(*least, image.size, self.mirrored(), &mut dice),
                    None => Crop::anywhere(self.side, image.size, self.mirrored(), &mut dice),
                }
            }
        };
        Ok(crop.out_of(&image.values(), image.size, self.side))
    }
}

/// See [`TrainingImages::digest`].
fn digest(dataset: &Dataset) -> String {
    let mut hash = Sha256::new();
    // Many images may be in one file.
    let mut last: (Option<&Path>, u64) = (None, 0);
    for item in &dataset.items {
        let source = item.source();
        if source != last.0 {
            let file = source.and_then(|path| std::fs::metadata(path).ok());
            last = (source, file.map_or(0, |file| file.len()));
        }
        let (class, part) = (&dataset.classes[item.class], item.part().unwrap_or_default());
        for text in [&item.id, class, &last.1.to_string(), &part] {
            hash.update(text.as_bytes());
            hash.update([0]);
        }
    }
    hex(&hash.finalize()[..8])
}

/// Choice of a crop.
enum Cut {
    /// This crop, of an image whose size is known.
    Of(Crop),
    /// The centre.
    Centre,
    /// A random crop with this share of the area and this seed, once the image's size is known.
    Drawn(Option<f64>, u64),
}

/// The part of an image that is the net's input.
#[derive(Clone, Copy, Debug)]
pub struct Crop {
    top: usize,
    left: usize,
    /// Height and width.
    size: [usize; 2],
    mirror: bool,
}

impl Crop {
    /// The centre of an image, as cropped by `audit`.
    fn centre(side: usize, whole: [usize; 2]) -> Crop {
        // Half of the rest, rounded to even, as in torchvision's CenterCrop.
        let [top, left] = whole.map(|length| (length - side) / 2 + usize::from((length - side) % 4 == 3));
        Crop { top, left, size: [side; 2], mirror: false }
    }

    /// A square of the size of the net's input, anywhere in an image.
    fn anywhere(side: usize, whole: [usize; 2], mirrored: bool, dice: &mut Dice) -> Crop {
        let [top, left] = whole.map(|length| if length == side { 0 } else { dice.index(length - side + 1) });
        Crop { top, left, size: [side; 2], mirror: mirrored && dice.index(2) == 1 }
    }

    /// A rectangle with `least` to all of an image's area and an aspect ratio of 3:4 to 4:3 (Szegedy et al.
    /// 2015; 0.6 in appendix A of Panum et al.), anywhere in it.
    pub fn of_area(least: f64, whole: [usize; 2], mirrored: bool, dice: &mut Dice) -> Crop {
        let [rows, columns] = whole.map(|length| length as f64);
        let area = rows * columns * (least + (1.0 - least) * dice.unit());
        let ratio = (4.0f64 / 3.0).powf(2.0 * dice.unit() - 1.0);
        // The longer side is limited by the image's; the other one then keeps the area.
        let height = (area * ratio).sqrt().clamp(area / columns, rows);
        let side = |x: f64, most: usize| (x.round() as usize).clamp(1, most);
        let size = [side(height, whole[0]), side(area / height, whole[1])];
        let [top, left] = [0, 1].map(|axis| dice.index(whole[axis] - size[axis] + 1));
        Crop { top, left, size, mirror: mirrored && dice.index(2) == 1 }
    }

    /// The crop of `data` [C, height, width] (`whole`: height and width), scaled to [C, side, side] by
    /// bilinear interpolation between the centres of pixels.
    pub fn out_of(&self, data: &[f32], whole: [usize; 2], side: usize) -> Vec<f32> {
        if self.size == whole && whole == [side; 2] && !self.mirror {
            return data.to_vec();
        }
        // For each pixel along an axis, its two neighbours and the weight of the second.
        let axis = |start: usize, length: usize| {
            let source_of = move |i: usize| {
                let at =
                    ((i as f64 + 0.5) * length as f64 / side as f64 - 0.5).clamp(0.0, (length - 1) as f64);
                let first = at.floor() as usize;
                (start + first, start + (first + 1).min(length - 1), (at - first as f64) as f32)
            };
            (0..side).map(source_of).collect::<Vec<_>>()
        };
        let (rows, mut columns) = (axis(self.top, self.size[0]), axis(self.left, self.size[1]));
        if self.mirror {
            columns.reverse();
        }
        let mut out = Vec::with_capacity(data.len() / (whole[0] * whole[1]) * side * side);
        for channel in data.chunks_exact(whole[0] * whole[1]) {
            for &(y0, y1, dy) in &rows {
                let [above, below] = [y0, y1].map(|y| &channel[y * whole[1]..(y + 1) * whole[1]]);
                out.extend(columns.iter().map(|&(x0, x1, dx)| {
                    let between = |row: &[f32]| row[x0] * (1.0 - dx) + row[x1] * dx;
                    between(above) * (1.0 - dy) + between(below) * dy
                }));
            }
        }
        out
    }
}
