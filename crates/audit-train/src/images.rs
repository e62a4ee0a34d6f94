//! Training images: class pairs out of a data set, as tensors.

use crate::dice::Dice;
use crate::net::Backbone;
use audit::data::{Dataset, Layout, Preparation, Split};
use audit::{Error, Result};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::OnceLock;
use tch::{Device, Tensor};

/// Decoded images are kept while they fit in so many bytes.
const KEEP: usize = 4 << 30;

/// Photographs are brought to this size, out of which the input's is cut.
const PHOTOGRAPH: usize = 256;

/// The images of a data set, drawn as pairs of one class.
pub struct TrainingImages {
    dataset: Dataset,
    prep: Preparation,
    /// Side of the net's input.
    side: usize,
    /// Items of each class that has any.
    classes: Vec<Vec<usize>>,
    kept: Vec<OnceLock<Vec<f32>>>,
    /// SHA-256 of the items' names, in hexadecimal, cut short.
    pub digest: String,
}

/// Images as a tensor, and their classes.
pub struct LabelledImages {
    /// Images [B, C, H, W] in [0, 1]; in a batch to train on, 2i and 2i + 1 share a class.
    pub images: Tensor,
    /// The class of each image, [B].
    pub labels: Vec<usize>,
}

impl TrainingImages {
    /// Lists what lies at `path`; without a split, `part` of a benchmark. Exit code 2 where a class has but one image.
    pub fn open(
        path: &Path,
        layout: Option<&str>,
        split: Option<Split>,
        part: Split,
        backbone: &Backbone,
    ) -> Result<TrainingImages> {
        // A path that isn't there is refused below, in the data set's own words.
        let found = layout.map_or_else(|| Layout::detect(path), Layout::find)?;
        let split = split.or((found.has_splits)(path).then_some(part));
        let dataset = Dataset::open(path, Some(found.name), split)?;
        Self::of(dataset, backbone)
    }

    /// The images of a data set that is open. Errors (exit code 2): a class has one image only.
    pub fn of(dataset: Dataset, backbone: &Backbone) -> Result<TrainingImages> {
        let mut classes = vec![Vec::new(); dataset.classes.len()];
        let mut hash = Sha256::new();
        for (index, item) in dataset.items.iter().enumerate() {
            classes[item.class].push(index);
            hash.update(item.id.as_bytes());
            hash.update([0]);
        }
        let single = classes.iter().zip(&dataset.classes).filter(|(items, _)| items.len() == 1);
        let single: Vec<&str> = single.map(|(_, name)| name.as_str()).collect();
        let count = if single.len() == 1 { "a class".into() } else { format!("{} classes", single.len()) };
        let more = if single.len() > 5 { format!(" and {} more", single.len() - 5) } else { String::new() };
        refuse_if!(
            !single.is_empty(),
            "data {}: {count} of one image: {}{more}. An anchor needs a positive: add images or remove the class",
            dataset.source,
            single[..single.len().min(5)].join(", ")
        );
        classes.retain(|items| !items.is_empty());
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
        let digest = hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect();
        let kept = (0..dataset.items.len()).map(|_| OnceLock::new()).collect();
        Ok(TrainingImages { dataset, prep, side, classes, kept, digest })
    }

    /// Number of images, at least four.
    pub fn count(&self) -> usize {
        self.dataset.items.len()
    }

    /// Number of classes that have images.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Whether so large a batch can be drawn, two images of each of different classes. Exit code 2 otherwise.
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

    /// `count` images, two of each of count/2 classes. Photographs are cut out anywhere and mirrored half the time. With an area, so
    /// large a share of the image or more is cut out, whatever it shows, and scaled to the input.
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

    /// The class of each image, as batches label it.
    pub fn labels(&self) -> Vec<usize> {
        let mut labels = vec![0; self.count()];
        for (class, items) in self.classes.iter().enumerate() {
            items.iter().for_each(|&item| labels[item] = class);
        }
        labels
    }

    /// Each anchor and, cut anew, any image of its class, perhaps the same one. Cuts are those of [`TrainingImages::draw`].
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

    /// The part of an image that is trained on.
    fn cut(&self, area: Option<f64>, dice: &mut Dice) -> Crop {
        match area {
            Some(least) => Crop::of_area(least, self.prep.height, self.mirrored(), dice),
            None => Crop::anywhere(self.side, self.prep.height, self.mirrored(), dice),
        }
    }

    /// At most `most` images of whole classes, classes spread evenly over the data; centres cut out.
    pub fn some(&self, most: usize, device: Device) -> Result<LabelledImages> {
        let fit = (most * self.classes.len() / self.count()).clamp(2, self.classes.len());
        let centre = (self.prep.height - self.side) / 2;
        let crop = Crop { top: centre, left: centre, size: [self.side; 2], mirror: false };
        let (mut chosen, mut labels) = (Vec::new(), Vec::new());
        for class in (0..fit).map(|i| i * self.classes.len() / fit) {
            // Of a class larger than all that is wanted, its share.
            for &item in self.classes[class].iter().take((most / fit).max(2)) {
                chosen.push((item, crop));
                labels.push(class);
            }
        }
        Ok(LabelledImages { images: self.tensor(&chosen, device)?, labels })
    }

    /// Whether images are mirrored: photographs, which are cut out of larger ones. A mirrored character is another one.
    fn mirrored(&self) -> bool {
        self.prep.height > self.side
    }

    fn tensor(&self, chosen: &[(usize, Crop)], device: Device) -> Result<Tensor> {
        let pixels: Vec<Vec<f32>> =
            chosen.par_iter().map(|&(item, crop)| self.crop(item, crop)).collect::<Result<_>>()?;
        let side = self.side as i64;
        let shape = [chosen.len() as i64, self.prep.channels as i64, side, side];
        Ok(Tensor::from_slice(&pixels.concat()).view(shape).to_device(device))
    }

    fn crop(&self, item: usize, crop: Crop) -> Result<Vec<f32>> {
        let whole = self.prep.height;
        let bytes = self.count() * self.prep.channels * whole * whole * 4;
        let decoded;
        let data: &[f32] = match self.kept[item].get() {
            Some(data) => data,
            None => {
                decoded = self.dataset.pixels(item, &self.prep)?.data;
                if bytes <= KEEP { self.kept[item].get_or_init(|| decoded) } else { &decoded }
            }
        };
        Ok(crop.out_of(data, whole, self.side))
    }
}

/// The part of an image that a net sees.
#[derive(Clone, Copy, Debug)]
pub struct Crop {
    top: usize,
    left: usize,
    /// Height and width.
    size: [usize; 2],
    mirror: bool,
}

impl Crop {
    /// A square of the net's input, anywhere in a square image.
    fn anywhere(side: usize, whole: usize, mirrored: bool, dice: &mut Dice) -> Crop {
        let rest = whole - side;
        let mut at = || if rest == 0 { 0 } else { dice.index(rest + 1) };
        let (top, left) = (at(), at());
        Crop { top, left, size: [side; 2], mirror: mirrored && dice.index(2) == 1 }
    }

    /// A rectangle of `least` to all of a square image's area, its sides as 3:4 to 4:3 (Szegedy et al. 2015; 0.6 in appendix A of
    /// Panum et al.), anywhere in it.
    pub fn of_area(least: f64, whole: usize, mirrored: bool, dice: &mut Dice) -> Crop {
        let length = whole as f64;
        let area = length * length * (least + (1.0 - least) * dice.unit());
        let ratio = (4.0f64 / 3.0).powf(2.0 * dice.unit() - 1.0);
        // The longer side ends at the image's; the other one then keeps the area.
        let height = (area * ratio).sqrt().clamp(area / length, length);
        let side = |x: f64| (x.round() as usize).clamp(1, whole);
        let size = [side(height), side(area / height)];
        let [top, left] = size.map(|s| dice.index(whole - s + 1));
        Crop { top, left, size, mirror: mirrored && dice.index(2) == 1 }
    }

    /// The part of `data` [C, whole, whole], scaled to [C, side, side] by bilinear interpolation between the centres of pixels.
    pub fn out_of(&self, data: &[f32], whole: usize, side: usize) -> Vec<f32> {
        if self.size == [whole; 2] && side == whole && !self.mirror {
            return data.to_vec();
        }
        // For each pixel along an axis, the two that it lies between and how near the second is.
        let axis = |start: usize, length: usize| {
            let of = move |i: usize| {
                let at =
                    ((i as f64 + 0.5) * length as f64 / side as f64 - 0.5).clamp(0.0, (length - 1) as f64);
                let first = at.floor() as usize;
                (start + first, start + (first + 1).min(length - 1), (at - first as f64) as f32)
            };
            (0..side).map(of).collect::<Vec<_>>()
        };
        let (rows, mut columns) = (axis(self.top, self.size[0]), axis(self.left, self.size[1]));
        if self.mirror {
            columns.reverse();
        }
        let mut out = Vec::with_capacity(data.len() / (whole * whole) * side * side);
        for channel in data.chunks_exact(whole * whole) {
            for &(y0, y1, dy) in &rows {
                let [above, below] = [y0, y1].map(|y| &channel[y * whole..(y + 1) * whole]);
                out.extend(columns.iter().map(|&(x0, x1, dx)| {
                    let between = |row: &[f32]| row[x0] * (1.0 - dx) + row[x1] * dx;
                    between(above) * (1.0 - dy) + between(below) * dy
                }));
            }
        }
        out
    }
}
