//! The gallery of all embeddings: images are embedded, or their embeddings read from a file.

use super::images::preparation;
use crate::cache::embeddings::{self, EmbeddingRow, Saved};
use crate::data::embedded::{Embedded, Image};
use crate::data::vectors::Vectors;
use crate::data::{Dataset, Item, ListedPair, Pixels};
use crate::files::hex;
use crate::model::Model;
use crate::progress::Phase;
use crate::record::{self, Finding, Found, Metric, Role, reason};
use crate::report::Destination;
use crate::request::Request;
use crate::space::{Gallery, refuse_not_finite};
use crate::{Error, Exit, Result, interrupt};
use ndarray::{Array2, ArrayView1};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

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
    gathered.all(request, dataset, model)?;
    dataset.keep(|i| gathered.readable[i]);
    let finding = gathered.two_classes(dataset);
    let (gallery, data) = gathered.gallery(dataset, metric, dim)?;
    Ok((gallery, data, finding))
}

/// The embeddings of all images of a data set, in the form for a file. Errors: those of the model and the
/// images; an embedding is not finite (exit code 12).
pub fn embed_all(request: &Request, dataset: &Dataset, model: &mut Model) -> Result<Embedded> {
    let mut gathered = Gathered::begin(dataset, None, model.info.dim);
    gathered.rest(request, dataset, model)?;
    let values = std::mem::take(&mut gathered.embeddings);
    let embedded =
        Embedded { part: request.run.partition, ..gathered.to_save(request, dataset, model, values) };
    // An audit refuses them too, but perhaps on another machine and much later.
    let points = embedded.values.chunks_exact(embedded.dim).map(ArrayView1::from);
    refuse_not_finite(points, |i| embedded.images[i].id.as_str())?;
    Ok(embedded)
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

    /// Takes the remaining images from a file of embeddings, if one was requested, or embeds them.
    fn all(&mut self, request: &Request, dataset: &Dataset, model: &mut Model) -> Result<()> {
        let (given, from) = (self.given, self.embeddings.len());
        let prep = preparation(&model.info.preprocessing);
        let images = (dataset, given);
        let (path, found) = match embeddings::find(request, &dataset.items[given..], model)? {
            Saved::Unasked => return self.rest(request, dataset, model),
            Saved::Given(name, file) => {
                let rows = embeddings::rows(request, (&name, &file), images, model, &prep)?;
                return self.take_saved(request, dataset, file, rows);
            }
            Saved::Cached(path, found) => (path, found),
        };
        if let Some(file) = found
            && let Some(rows) = embeddings::cached_rows(request, (&path, &file), images, model, &prep)?
        {
            return self.take_saved(request, dataset, file, rows);
        }
        Destination::open("--cache", &path)?;
        self.rest(request, dataset, model)?;
        let values = self.embeddings[from..].to_vec();
        // The embeddings of this audit are there all the same.
        if let Err(e) = self.to_save(request, dataset, model, values).write(&path) {
            request.progress.warn(&format!("--cache: {}. The embeddings are not cached", e.message));
        }
        Ok(())
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
