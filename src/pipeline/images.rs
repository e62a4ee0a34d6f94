//! Images on their way to the model: the data set, the batch of the check at load, and the gallery of all
//! embeddings.

use crate::cache::embeddings::{self, EmbeddingRow, Saved};
use crate::data::embedded::{Embedded, Image};
use crate::data::vectors::Vectors;
use crate::data::{BUILTIN_SEED, Dataset, Item, ListedPair, Pixels, Preparation, Resize, Wanted};
use crate::files::hex;
use crate::model::Model;
use crate::model::card::Preprocessing;
use crate::progress::Phase;
use crate::record::{self, Finding, Found, Metric, Role, reason};
use crate::report::Destination;
use crate::request::{Images, Labels, Request};
use crate::space::Gallery;
use crate::{Error, Exit, Result, interrupt};
use ndarray::Array2;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// The data set that the request names, or the built-in one. Errors (exit code 4): no class has two images.
pub fn open(request: &Request) -> Result<Dataset> {
    let Images { data, layout, split, image_column, label_column, .. } = &request.images;
    let flags = [
        ("--layout", layout.is_some()),
        ("--split", split.is_some()),
        ("--image-column", image_column.is_some()),
        ("--label-column", label_column.is_some()),
    ];
    let classless = request.images.labels == Labels::None;
    let dataset = match data {
        Some(path) => {
            let wanted = Wanted {
                layout: layout.clone(),
                split: *split,
                image_column: image_column.clone(),
                label_column: label_column.clone(),
                classless,
            };
            Dataset::open_as(path, &wanted)?
        }
        None => {
            if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
                return Err(Error::usage(format!(
                    "{flag} is about images of your own: name them with --data, or leave it out"
                )));
            }
            let builtin = Dataset::builtin(BUILTIN_SEED);
            if classless { builtin.without_classes()? } else { builtin }
        }
    };
    if request.images.gallery.is_some() && !dataset.pairs.is_empty() {
        return Err(Error::usage(format!(
            "--gallery: {} lists pairs, and both images of a pair are needed. Leave --gallery out, or name a folder of images",
            dataset.source
        )));
    }
    let mut sizes = vec![0; dataset.classes.len()];
    dataset.items.iter().for_each(|item| sizes[item.class] += 1);
    if !dataset.classless && request.images.gallery.is_none() && sizes.iter().all(|&n| n < 2) {
        return Err(Error::empty(format!(
            "{}: no class has two images, so no query has an image of its class to find. Give classes of two images or more; or audit MODEL --labels \
             none asks instead whether attacks change what each image finds",
            dataset.source
        )));
    }
    Ok(dataset)
}

/// How images are prepared for the model's preprocessing.
pub fn preparation(p: &Preprocessing) -> Preparation {
    let resize = match (p.resize, p.resize_shorter) {
        (_, Some(side)) => Some(Resize::Shorter(side)),
        (exact, None) => exact.map(|[h, w]| Resize::Exact(h, w)),
    };
    let Preprocessing { crop, interpolation, .. } = *p;
    let whole_levels = p.integers.is_some();
    Preparation {
        resize,
        crop,
        interpolation,
        whole_levels,
        ..Preparation::new(p.channels, p.height, p.width)
    }
}

/// Images that the check at load looks at.
pub const CHECKED_IMAGES: usize = 8;

/// Images for the check at load, [B, P]: the first readable ones, spread over the data, in full batches; and
/// how many images the batches hold before the padding.
pub fn first_batch(dataset: &Dataset, model: &Model) -> Result<(Vec<f32>, usize)> {
    let prep = preparation(&model.info.preprocessing);
    let n = dataset.items.len();
    let count = CHECKED_IMAGES.min(n);
    let mut images = Vec::new();
    let mut found = 0;
    let mut failure = None;
    for i in spread(n, count) {
        match dataset.pixels(i, &prep) {
            Ok(p) => {
                images.extend(p.data);
                found += 1;
            }
            Err(e) => failure = Some(e),
        }
        if found == count {
            break;
        }
    }
    if let (0, Some(e)) = (found, failure) {
        return Err(Error::empty(format!(
            "{}: no image can be read. The error of the last one: {e}",
            dataset.source
        )));
    }
    images.resize(found.next_multiple_of(model.batch()) * model.pixels(), 0.5);
    Ok((images, found))
}

/// All places below `n`, the first `count` spread over the whole, so that they are of several classes.
fn spread(n: usize, count: usize) -> impl Iterator<Item = usize> {
    let stride = n / count.max(1);
    let blocks = (0..stride).flat_map(move |k| (0..count).map(move |block| block * stride + k));
    blocks.chain(stride * count..n)
}

/// Decodes and embeds every image, and reports problems of their classes. Images that can't be read are left
/// out of the data set, or end the audit.
pub fn embed(
    request: &Request,
    dataset: &mut Dataset,
    vectors: Option<Vectors>,
    model: &mut Model,
    metric: Metric,
) -> Result<(Gallery, record::Data, Option<Finding>)> {
    if let Some((path, vectors)) = request.images.gallery.as_ref().zip(vectors.as_ref()) {
        let name = path.display().to_string();
        if vectors.embeddings.ncols() != model.info.dim {
            return Err(Error::usage(format!(
                "{name} holds embeddings of {} dimensions, and the model's `{}` has {}. Embed the gallery with this \
                 model, or choose another --output",
                vectors.embeddings.ncols(),
                model.info.output,
                model.info.dim
            )));
        }
        dataset.search_in(&name, vectors)?;
    }
    let dim = model.info.dim;
    let mut gathered = Gathered::begin(dataset, vectors, dim);
    let given = gathered.readable.len();
    let prep = preparation(&model.info.preprocessing);
    match embeddings::find(request, &dataset.items[given..], model)? {
        Saved::Given(name, file) => {
            let rows = embeddings::rows(request, (&name, &file), (dataset, given), model, &prep)?;
            gathered.take_saved(request, dataset, file, rows)?;
        }
        Saved::Cached(path, file) => {
            let rows = match &file {
                Some(file) => {
                    embeddings::cached_rows(request, (&path, file), (dataset, given), model, &prep)?
                }
                None => None,
            };
            match file.zip(rows) {
                Some((file, rows)) => gathered.take_saved(request, dataset, file, rows)?,
                None => {
                    Destination::open("--cache", &path)?;
                    gathered.rest(request, dataset, model)?;
                    let values = gathered.embeddings[given * dim..].to_vec();
                    let saved = gathered.to_save(request, dataset, model, values).write(&path);
                    // The embeddings of this audit are there all the same.
                    if let Err(e) = saved {
                        request
                            .progress
                            .warn(&format!("--cache: {}. The embeddings are not cached", e.message));
                    }
                }
            }
        }
        Saved::Unasked => gathered.rest(request, dataset, model)?,
    }
    dataset.keep(|i| gathered.readable[i]);
    let finding = gathered.two_classes(dataset);
    let (gallery, data) = gathered.gallery(dataset, metric, dim)?;
    Ok((gallery, data, finding))
}

/// The embeddings of all images of a data set, in the form for a file.
pub fn embed_all(request: &Request, dataset: &Dataset, model: &mut Model) -> Result<Embedded> {
    let mut gathered = Gathered::begin(dataset, None, model.info.dim);
    gathered.rest(request, dataset, model)?;
    let values = std::mem::take(&mut gathered.embeddings);
    Ok(Embedded { part: request.run.partition, ..gathered.to_save(request, dataset, model, values) })
}

/// The embeddings so far.
struct Gathered {
    /// Number of leading items that came as embeddings.
    given: usize,
    /// Embeddings of the readable images, one after another.
    embeddings: Vec<f32>,
    /// Whether each image of the data set is readable.
    readable: Vec<bool>,
    /// Unreadable images: the id, and the reason.
    unreadable: Vec<(String, String)>,
    /// The hash of every image file that was read.
    digests: Vec<[u8; 32]>,
    /// The hash of the pixels of every image that was read.
    pixels: Vec<u64>,
    /// [`Item::modified`] of the images that are embedded, before they are read.
    modified: Vec<Option<i64>>,
    /// The hash of ids, classes and pixels.
    contents: Sha256,
}

impl Gathered {
    /// A gallery given as embeddings comes first, and is already done.
    fn begin(dataset: &Dataset, vectors: Option<Vectors>, dim: usize) -> Gathered {
        let n = dataset.items.len();
        let given = vectors.as_ref().map_or(0, |v| v.ids.len());
        let mut embeddings = vectors.map_or_else(Vec::new, |v| v.embeddings.into_raw_vec_and_offset().0);
        let mut contents = Sha256::new();
        for (item, point) in dataset.items[..given].iter().zip(embeddings.chunks(dim)) {
            contents.update(format!("{}\t{}\t", item.id, dataset.classes[item.class]));
            point.iter().for_each(|v| contents.update(v.to_le_bytes()));
        }
        embeddings.reserve_exact((n - given) * dim);
        let mut readable = vec![true; given];
        readable.reserve_exact(n - given);
        let (unreadable, digests, pixels, modified) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Gathered { given, embeddings, readable, unreadable, digests, pixels, modified, contents }
    }

    /// The part to save of the computed embeddings; `values` are these embeddings.
    fn to_save(&self, request: &Request, dataset: &Dataset, model: &Model, values: Vec<f32>) -> Embedded {
        let items = dataset.items.iter().zip(&self.readable).skip(self.given).zip(&self.modified);
        let read =
            items.filter(|((_, readable), _)| **readable).map(|((item, _), modified)| (item, *modified));
        let image = |(((item, modified), digest), pixels): (((&Item, _), &[u8; 32]), &u64)| Image {
            id: item.id.clone(),
            label: dataset.classes[item.class].clone(),
            camera: item.camera(),
            bytes: embeddings::bytes(item),
            modified,
            part: item.part(),
            digest: *digest,
            pixels: *pixels,
        };
        let images = read.zip(&self.digests).zip(&self.pixels).map(image).collect();
        let (made, dim) = (embeddings::made(request, model), model.info.dim);
        Embedded { made, part: None, dim, images, values, unreadable: self.unreadable.clone() }
    }

    /// Embeds the remaining images. They are decoded a few batches at a time, the next while the model
    /// computes the last: all cores are busy, and the gallery is never in memory as pixels.
    fn rest(&mut self, request: &Request, dataset: &Dataset, model: &mut Model) -> Result<()> {
        let n = dataset.items.len();
        let mut progress = Phase::new("gallery", n as u64, request.progress);
        let prep = preparation(&model.info.preprocessing);
        let batch = model.at_once();
        let (chunk, full) = (batch.max(64), batch * model.pixels());
        let mut waiting: Vec<f32> = Vec::new();
        let left = self.readable.len()..n;
        self.modified = dataset.items[left.clone()].par_iter().map(Item::modified).collect();
        std::thread::scope(|scope| -> Result<()> {
            let (sender, decoded) = std::sync::mpsc::sync_channel(1);
            scope.spawn(move || {
                for from in left.step_by(chunk) {
                    let range = from..n.min(from + chunk);
                    let hashed = |pixels: Pixels| (pixels.hash(), pixels);
                    let all: Vec<_> =
                        range.into_par_iter().map(|i| dataset.pixels(i, &prep).map(hashed)).collect();
                    // The receiver is gone if the audit has ended.
                    if sender.send(all).is_err() {
                        break;
                    }
                }
            });
            for all in decoded {
                for pixels in all {
                    self.take(request, dataset, pixels, &mut waiting)?;
                }
                let filled = waiting.len() / full * full;
                self.embeddings.extend(model.embed(&waiting[..filled])?.iter());
                waiting.drain(..filled);
                progress.set(self.readable.len() as u64, None);
                interrupt::check(" while images were embedded").map_err(interrupt::with_next_step)?;
            }
            Ok(())
        })?;
        if !waiting.is_empty() {
            self.embeddings.extend(model.embed(&waiting)?.iter());
        }
        progress.finish();
        Ok(())
    }

    /// Takes the next decoded image: its pixels wait to be embedded.
    fn take(
        &mut self,
        request: &Request,
        dataset: &Dataset,
        pixels: Result<(u64, Pixels)>,
        waiting: &mut Vec<f32>,
    ) -> Result<()> {
        let item = &dataset.items[self.readable.len()];
        match pixels {
            Ok((hash, p)) => {
                self.read(dataset, item, p.digest, hash);
                waiting.extend(p.data);
                Ok(())
            }
            Err(e) => self.left_out(request, item, e),
        }
    }

    /// Takes all remaining images from a file of embeddings.
    fn take_saved(
        &mut self,
        request: &Request,
        dataset: &Dataset,
        file: Embedded,
        rows: Vec<EmbeddingRow>,
    ) -> Result<()> {
        let mut order = Vec::with_capacity(rows.len());
        for row in rows {
            let item = &dataset.items[self.readable.len()];
            match row {
                EmbeddingRow::Embedded(at) => {
                    let Image { digest, pixels, .. } = file.images[at];
                    self.read(dataset, item, digest, pixels);
                    order.push(at);
                }
                EmbeddingRow::Unreadable(why) => self.left_out(request, item, Error::usage(why))?,
            }
        }
        if self.embeddings.is_empty() && order.iter().copied().eq(0..file.images.len()) {
            // A large gallery need not be in memory twice.
            self.embeddings = file.values;
        } else {
            order.into_iter().for_each(|at| self.embeddings.extend(file.row(at)));
        }
        Ok(())
    }

    fn read(&mut self, dataset: &Dataset, item: &Item, digest: [u8; 32], pixels: u64) {
        self.readable.push(true);
        self.pixels.push(pixels);
        self.contents.update(format!("{}\t{}\t", item.id, dataset.classes[item.class]));
        self.contents.update(digest);
        self.digests.push(digest);
    }

    fn left_out(&mut self, request: &Request, item: &Item, why: Error) -> Result<()> {
        // A fault of the machine is none of the image: on another day the gallery would be another.
        if request.images.strict || why.exit == Exit::Internal {
            return Err(why);
        }
        self.readable.push(false);
        self.unreadable.push((item.id.clone(), why.message));
        Ok(())
    }

    /// A finding of equal images in different classes. `dataset` has the images that can be read.
    fn two_classes(&self, dataset: &Dataset) -> Option<Finding> {
        if dataset.classless {
            return None;
        }
        let items = &dataset.items[self.given..];
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&i| (self.pixels[i], i));
        let alike = order.chunk_by(|&a, &b| self.pixels[a] == self.pixels[b]);
        let mixed = alike.filter(|alike| alike.iter().any(|&i| items[i].class != items[alike[0]].class));
        let mixed: Vec<&[usize]> = mixed.collect();
        let first = mixed.iter().min_by_key(|alike| alike[0])?;
        let other = first.iter().find(|&&i| items[i].class != items[first[0]].class)?;
        let named = |i: usize| format!("`{}` of class `{}`", items[i].id, dataset.classes[items[i].class]);
        let same = if self.digests[first[0]] == self.digests[*other] { "bytes" } else { "pixels" };
        Some(reason::TWO_CLASSES.finding(Found::warning(format!(
            "{} images are equal to one of another class, such as {} and {}, which have the same {same}",
            mixed.iter().map(|alike| alike.len()).sum::<usize>(),
            named(first[0]),
            named(*other)
        ))))
    }

    /// The gallery of the images left in `dataset`, and its description for reports.
    fn gallery(mut self, dataset: &Dataset, metric: Metric, dim: usize) -> Result<(Gallery, record::Data)> {
        let raw = Array2::from_shape_vec((dataset.items.len(), dim), self.embeddings)
            .map_err(|e| Error::internal(format!("embeddings: {e}")))?;
        let labels: Vec<usize> = dataset.items.iter().map(|i| i.class).collect();
        let ids: Vec<String> = dataset.items.iter().map(|i| i.id.clone()).collect();
        metric.check_lengths(&raw, &ids)?;
        let images = labels.len();
        let classes = if dataset.classless { 0 } else { labels.iter().collect::<BTreeSet<_>>().len() };
        let cameras: Vec<Option<u32>> = dataset.items.iter().map(Item::camera).collect();
        let roles = dataset.roles();
        // Who may rank whom. Folders of images don't state it, and keep their earlier hash.
        if roles.iter().any(|role| *role != Role::Both) || cameras.iter().any(Option::is_some) {
            for (role, camera) in roles.iter().zip(&cameras) {
                let camera = camera.map_or(String::new(), |camera| camera.to_string());
                self.contents.update(format!("{}\t{camera}\t", *role as u8));
            }
        }
        for ListedPair { probe, reference, same, group, fold } in &dataset.pairs {
            let group = group.as_deref().unwrap_or_default();
            let fold = fold.map_or(String::new(), |fold| format!("{fold}\t"));
            self.contents.update(format!("{probe}\t{reference}\t{same}\t{group}\t{fold}"));
        }
        let gallery = Gallery::new(metric, raw, labels, ids)?.with_roles(&roles, cameras)?;
        let data = record::Data {
            source: dataset.source.clone(),
            images,
            gallery: gallery.len(),
            queries: gallery.queries().len(),
            classes,
            sha256: hex(&self.contents.finalize()),
            unreadable: self.unreadable.into_iter().map(|(_, why)| why).collect(),
        };
        Ok((gallery, data))
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::settle_card;
    use super::*;
    use crate::data::{Photograph, Resampling, decode};
    use crate::model::card::{Card, preprocessing};
    use onnx_grad::graph::{DType, Value};
    use std::path::Path;

    /// tests/golden/exported has the images that transformers, timm and open_clip make by such files;
    /// research/golden/golden_exported.py wrote it. A shift by one pixel differs by 20 levels in the mean.
    #[test]
    fn images_are_prepared_as_by_the_library_of_the_file() {
        #[derive(serde::Deserialize)]
        struct Case {
            name: String,
            image: String,
            input: [i64; 2],
            mean: Vec<f32>,
            std: Vec<f32>,
            file: String,
            text: serde_json::Value,
        }
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let cases = std::fs::read(golden.join("exported/cases.json")).unwrap();
        let cases: Vec<Case> = serde_json::from_slice(&cases).unwrap();
        assert!(!cases.is_empty());
        for Case { name, image, input: [height, width], mean, std, file, text } in cases {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(file), text.to_string()).unwrap();
            let card = settle_card(Card::default(), None, &folder.path().join("model.onnx")).unwrap();
            let input = Value::new("x", DType::F32, &[1, 3, height, width]);
            let stated = preprocessing(&input, &card).unwrap();
            let (means, stds) = stated.mean_and_std();
            let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3);
            assert!(close(&means, &mean) && close(&stds, &std), "{name}: {means:?}, {stds:?}");

            let (prep, image) = (preparation(&stated), golden.join("pixels").join(image));
            let found = Pixels::read(&image, &prep).unwrap().data;
            let path = golden.join("exported").join(format!("{name}.png"));
            let expected = decode(&std::fs::read(&path).unwrap(), &path).unwrap().0.into_rgb8();
            let expected = (0..3).flat_map(|c| expected.pixels().map(move |p| f32::from(p.0[c]) / 255.0));
            let gaps: Vec<f32> = expected.zip(&found).map(|(a, b)| (a - b).abs() * 255.0).collect();
            // Pillow 13 resizes along the cheaper axis first, which changes single levels.
            let mean = gaps.iter().sum::<f32>() / gaps.len() as f32;
            assert!(gaps.len() == found.len() && mean < 1.0, "{name}: {mean} levels in the mean");

            // Attacked files become the same input.
            let photograph = Photograph::read(&image, 3).unwrap();
            let mut as_file = vec![f32::NAN; found.len()];
            let resampling = Resampling::new(&prep, photograph.shape).unwrap();
            resampling.apply(&photograph.data, &mut as_file).unwrap();
            assert_eq!(as_file, found, "{name}");
        }
    }

    /// If images can't be read, others take their places, each once.
    #[test]
    fn every_place_comes_once_and_the_first_ones_are_spread() {
        for n in 0..70 {
            let count = 8.min(n);
            let found: Vec<usize> = spread(n, count).collect();
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), n, "{found:?}");
            assert_eq!(found.len(), n);
        }
        assert_eq!(spread(80, 8).take(8).collect::<Vec<_>>(), [0, 10, 20, 30, 40, 50, 60, 70]);
    }
}
