//! Images on their way to the model: the data set, the batch of the check at load, and the gallery of all embeddings.

use super::attacks::interrupted;
use crate::cli::Run;
use crate::data::vectors::Vectors;
use crate::data::{BUILTIN_SEED, Dataset, Item, Preparation, Resize};
use crate::model::card::Preprocessing;
use crate::model::{Model, hex};
use crate::progress::Phase;
use crate::record::{self, Metric, Role};
use crate::space::Gallery;
use crate::{Error, Result};
use ndarray::Array2;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

/// The data set that the flags name, or the built-in one. Errors (exit code 4): no class has two images.
pub fn open(flags: &Run) -> Result<Dataset> {
    if flags.data.is_none() && (flags.layout.is_some() || flags.split.is_some()) {
        let flag = if flags.layout.is_some() { "--layout" } else { "--split" };
        return Err(Error::usage(format!(
            "{flag} is about images of your own: name them with --data, or leave it out"
        )));
    }
    let dataset = match &flags.data {
        Some(path) => Dataset::open(path, flags.layout.as_deref(), flags.split)?,
        None => Dataset::builtin(BUILTIN_SEED),
    };
    let mut sizes = vec![0; dataset.classes.len()];
    dataset.items.iter().for_each(|item| sizes[item.class] += 1);
    if flags.gallery.is_none() && sizes.iter().all(|&n| n < 2) {
        return Err(Error::empty(format!(
            "{}: no class has two images, so no query has anything to find. Retrieval needs classes of at least 2",
            dataset.source
        )));
    }
    Ok(dataset)
}

/// How images are made into what the model's preprocessing takes.
pub fn preparation(p: &Preprocessing) -> Preparation {
    let resize = match (p.resize, p.resize_shorter) {
        (_, Some(side)) => Some(Resize::Shorter(side)),
        (exact, None) => exact.map(|[h, w]| Resize::Exact(h, w)),
    };
    let interpolation = p.interpolation;
    Preparation { resize, interpolation, ..Preparation::new(p.channels, p.height, p.width) }
}

/// Images for the check at load, [B, P]: the first that can be read, spread over the data, in full batches; and how many are
/// real.
pub fn first_batch(dataset: &Dataset, model: &Model) -> Result<(Vec<f32>, usize)> {
    const MOST: usize = 8;
    let prep = preparation(&model.info.preprocessing);
    let n = dataset.items.len();
    let count = MOST.min(n);
    let mut images = Vec::new();
    let mut found = 0;
    let mut failure = None;
    // A stride through the whole set, so that the check sees several classes.
    for i in (0..n).map(|k| (k % count) * (n / count) + k / count).filter(|&i| i < n) {
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
        return Err(Error::empty(format!("{}: no image can be read; the last one: {e}", dataset.source)));
    }
    images.resize(found.next_multiple_of(model.batch()) * model.pixels(), 0.5);
    Ok((images, found))
}

/// Decodes and embeds every image. Those that can't be read are left out of the data set, or end the audit.
pub fn embed(
    flags: &Run,
    dataset: &mut Dataset,
    vectors: Option<Vectors>,
    model: &mut Model,
    metric: Metric,
) -> Result<(Gallery, record::Data)> {
    if let Some((path, vectors)) = flags.gallery.as_ref().zip(vectors.as_ref()) {
        let name = path.display().to_string();
        if vectors.embeddings.ncols() != model.info.dim {
            return Err(Error::usage(format!(
                "{name} holds embeddings of {} dimensions, and the model's `{}` has {}; embed the gallery with this \
                 model, or choose another --output",
                vectors.embeddings.ncols(),
                model.info.output,
                model.info.dim
            )));
        }
        dataset.search_in(&name, vectors)?;
    }
    let prep = preparation(&model.info.preprocessing);
    let n = dataset.items.len();
    let mut progress = Phase::new("gallery", n as u64, flags.mode());
    let mut readable = vec![false; n];
    let mut unreadable = Vec::new();
    let mut contents = Sha256::new();
    // A gallery given as embeddings comes first.
    let given = vectors.as_ref().map_or(0, |v| v.ids.len());
    let mut embeddings = vectors.map_or_else(Vec::new, |v| v.embeddings.into_raw_vec_and_offset().0);
    for (item, point) in dataset.items[..given].iter().zip(embeddings.chunks(model.info.dim)) {
        contents.update(format!("{}\t{}\t", item.id, dataset.classes[item.class]));
        point.iter().for_each(|v| contents.update(v.to_le_bytes()));
    }
    readable[..given].fill(true);
    embeddings.reserve_exact((n - given) * model.info.dim);
    let mut waiting: Vec<f32> = Vec::new();
    let batch = model.at_once();
    let full = batch * model.pixels();
    let mut flush = |waiting: &mut Vec<f32>, all: bool| -> Result<()> {
        while waiting.len() >= full || (all && !waiting.is_empty()) {
            let rest = waiting.split_off(full.min(waiting.len()));
            embeddings.extend(model.embed(waiting)?.iter());
            *waiting = rest;
        }
        Ok(())
    };
    // Decoded a few batches at a time, the next while the model is at work on the last: all cores busy, the gallery
    // never in memory as pixels.
    let chunk = batch.max(64);
    let images: &Dataset = dataset;
    std::thread::scope(|scope| -> Result<()> {
        let (sender, decoded) = std::sync::mpsc::sync_channel(1);
        let prep = &prep;
        scope.spawn(move || {
            for from in (given..n).step_by(chunk) {
                let range = from..n.min(from + chunk);
                let all: Vec<Result<_>> = range.into_par_iter().map(|i| images.pixels(i, prep)).collect();
                if sender.send((from, all)).is_err() {
                    break; // the audit ended
                }
            }
        });
        for (from, all) in decoded {
            let to = from + all.len();
            for (item, (i, pixels)) in images.items[from..].iter().zip((from..).zip(all)) {
                match pixels {
                    Ok(p) => {
                        readable[i] = true;
                        contents.update(format!("{}\t{}\t", item.id, images.classes[item.class]));
                        contents.update(p.digest);
                        waiting.extend(p.data);
                    }
                    Err(e) if flags.strict_data => return Err(e),
                    Err(e) => unreadable.push(e.message),
                }
            }
            flush(&mut waiting, false)?;
            progress.set(to as u64, None);
            interrupted(" before the attacks; the same command begins again")?;
        }
        Ok(())
    })?;
    flush(&mut waiting, true)?;
    progress.finish();
    dataset.keep(|i| readable[i]);
    let raw = Array2::from_shape_vec((dataset.items.len(), model.info.dim), embeddings)
        .map_err(|e| Error::internal(format!("embeddings: {e}")))?;
    let labels: Vec<usize> = dataset.items.iter().map(|i| i.class).collect();
    let ids = dataset.items.iter().map(|i| i.id.clone()).collect();
    let classes = labels.iter().collect::<std::collections::BTreeSet<_>>().len();
    let cameras: Vec<Option<u32>> = dataset.items.iter().map(Item::camera).collect();
    let roles = dataset.roles();
    // Who may find whom. Folders of images say nothing of it, and keep the sum that they had.
    if roles.iter().any(|role| *role != Role::Both) || cameras.iter().any(Option::is_some) {
        for (role, camera) in roles.iter().zip(&cameras) {
            let camera = camera.map_or(String::new(), |camera| camera.to_string());
            contents.update(format!("{}\t{camera}\t", *role as u8));
        }
    }
    let images = labels.len();
    let gallery = Gallery::new(metric, raw, labels, ids)?.with_roles(&roles, cameras)?;
    let data = record::Data {
        source: dataset.source.clone(),
        images,
        gallery: gallery.len(),
        queries: gallery.queries().len(),
        classes,
        sha256: hex(&contents.finalize()),
        unreadable,
    };
    Ok((gallery, data))
}
