//! Saved embeddings: found, compared with the images and the model, and written for later runs.

use crate::choice::Choice;
use crate::data::embedded::{Embedded, stale};
use crate::data::{Dataset, Item, Preparation};
use crate::files::{self, hex};
use crate::model::{Model, runtime};
use crate::progress::Phase;
use crate::random::Random;
use crate::record::Properties;
use crate::request::{Gradient, Request};
use crate::{Error, Exit, Result, interrupt};
use ndarray::ArrayView1;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// Number of images with saved embeddings that are embedded again.
const LOOK: usize = 64;
/// Accepted difference between an embedding and the saved one, as a share of its length. Other processors
/// differ by a hundredth of that.
const TOLERANCE: f64 = 1e-3;

/// Source and destination of embeddings.
pub enum Saved {
    /// The file of `--gallery-cache`, and its name.
    Given(String, Embedded),
    /// The place in the folder of `--cache`, and the file that is there.
    Cached(PathBuf, Option<Embedded>),
    /// No file was requested.
    Unasked,
}

/// Refuses a folder of `--cache` that can't be made or written to, or whose files would be images of the next
/// audit (exit code 2). A folder with files may be read-only, as it may have the embeddings.
pub fn settle(request: &Request) -> Result<()> {
    let Some(folder) = &request.run.cache else { return Ok(()) };
    let refused = |why: String| Err(Error::usage(format!("--cache {}: {why}", folder.display())));
    // The existing part of its path.
    let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    if !there.is_dir() {
        return refused(format!("can't make the folder: {} is a file. Choose another", there.display()));
    }
    // Hidden folders are no part of the images.
    let hidden = |part: Component| part.as_os_str().to_string_lossy().starts_with('.');
    let hidden = folder.components().any(|part| matches!(part, Component::Normal(_)) && hidden(part));
    if !hidden && let Some(data) = request.images.around(there) {
        return refused(format!(
            "it lies in {}, and the next audit would list its files among the images. Name a folder elsewhere",
            data.display()
        ));
    }
    if folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Ok(());
    }
    match files::partial(&there.join("embeddings")) {
        Ok(_) => Ok(()),
        Err(e) => refused(format!("can't write there: {e}. Choose another")),
    }
}

/// The file of `--gallery-cache`, or the file in the folder of `--cache` for these images and this model.
/// Errors (exit code 2): the given file can't be read, or was made with other settings; the folder can't be
/// made.
pub fn find(request: &Request, items: &[Item], model: &Model) -> Result<Saved> {
    if let Some(path) = &request.run.gallery_cache {
        let name = path.display().to_string();
        return Ok(Saved::Given(name, read(request, path, model)?));
    }
    let Some(folder) = &request.run.cache else { return Ok(Saved::Unasked) };
    std::fs::create_dir_all(folder)
        .map_err(|e| Error::usage(format!("--cache {}: can't make the folder: {e}", folder.display())))?;
    let path = folder.join(format!("{}.parquet", key(request, items, model)));
    let file = match path.exists() {
        true => read(request, &path, model).inspect_err(|e| note_miss(request, e)).ok(),
        false => None,
    };
    Ok(Saved::Cached(path, file))
}

fn read(request: &Request, path: &Path, model: &Model) -> Result<Embedded> {
    let embedded = Embedded::read(path)?;
    embedded.refuse_other(&path.display().to_string(), &made(request, model))?;
    Ok(embedded)
}

/// Says why a file in the folder of `--cache` is not used. It is replaced.
fn note_miss(request: &Request, why: &Error) {
    // The user need not remove the file.
    let why = why.message.split(". Remove the file").next().unwrap_or_default();
    request.progress.note(&format!("--cache: {why}. All images are embedded again"));
}

/// [`rows`] of a file in the folder of `--cache`; `None` if the file is stale.
pub fn cached_rows(
    request: &Request,
    (path, saved): (&Path, &Embedded),
    images: (&Dataset, usize),
    model: &mut Model,
    prep: &Preparation,
) -> Result<Option<Vec<EmbeddingRow>>> {
    match rows(request, (&path.display().to_string(), saved), images, model, prep) {
        Err(e) if e.exit == Exit::Usage => {
            note_miss(request, &e);
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// The settings that this audit's embeddings depend on, besides the images.
pub fn made(request: &Request, model: &Model) -> Properties {
    let info = &model.info;
    let pooling = info.pooling.map_or("none", Choice::name).to_string();
    let all = [
        ("version of audit", env!("CARGO_PKG_VERSION").to_string()),
        ("runtime", format!("ONNX Runtime {}", runtime::version())),
        (
            "execution provider",
            model.options().provider.to_string().split(':').next().unwrap_or_default().into(),
        ),
        ("TensorFloat-32", if request.compute.fast_math { "allowed" } else { "off" }.into()),
        // A graph that also returns values for its gradient is optimised differently, and rounds differently.
        ("gradient", if request.reading.gradient == Gradient::Exact { "exact" } else { "estimated" }.into()),
        // Earlier versions decoded the remaining part of such files.
        ("files that are cut off", "refused".into()),
        ("batch", model.batch().to_string()),
        ("model's SHA-256", info.identity.sha256.clone()),
        ("model's output", format!("{} of {}", info.output, info.dim)),
        ("pooling", pooling),
        ("preprocessing", serde_json::to_string(&info.preprocessing).unwrap_or_default()),
    ];
    all.into_iter().collect()
}

/// A name for the embeddings of these images, from the path, time and size of their files, and from the part
/// of a file that each image is.
fn key(request: &Request, items: &[Item], model: &Model) -> String {
    let mut hash = Sha256::new();
    hash.update(serde_json::to_string(&made(request, model)).unwrap_or_default());
    let place = request.images.data.as_ref().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    hash.update(place.map_or("built in".into(), |path| path.display().to_string()));
    let files: Vec<String> = items.par_iter().map(|item| described(item).unwrap_or_default()).collect();
    for (item, file) in items.iter().zip(files) {
        hash.update(format!("\n{}\t{}\t{file}", item.id, item.class));
        if let Some(part) = item.part() {
            hash.update(format!("\t{part}"));
        }
    }
    hex(&hash.finalize())[..32].to_owned()
}

fn described(item: &Item) -> Option<String> {
    let file = std::fs::metadata(item.source()?).ok()?;
    let changed = file.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(format!("{} {}", file.len(), changed.as_nanos()))
}

/// Size of the file that holds only this image, in bytes.
pub fn bytes(item: &Item) -> Option<u64> {
    Some(std::fs::metadata(item.file()?).ok()?.len())
}

/// The saved result of an image.
pub enum EmbeddingRow {
    /// The row of its embedding.
    Embedded(usize),
    /// The reason why the image could not be read.
    Unreadable(String),
}

/// The rows of `items`, the images of `dataset` from its item `from` on. Errors (exit code 2): the file has
/// other images, an image has changed, or an embedding of a sample differs from the saved one.
pub fn rows(
    request: &Request,
    (name, saved): (&str, &Embedded),
    (dataset, from): (&Dataset, usize),
    model: &mut Model,
    prep: &Preparation,
) -> Result<Vec<EmbeddingRow>> {
    let items = &dataset.items[from..];
    let unreadable = &saved.unreadable;
    let unreadable: HashMap<&str, &str> =
        unreadable.iter().map(|(id, why)| (id.as_str(), why.as_str())).collect();
    let row = |(item, known): (&Item, Option<usize>)| match known {
        Some(at) => Some(EmbeddingRow::Embedded(at)),
        None => unreadable.get(item.id.as_str()).map(|why| EmbeddingRow::Unreadable(why.to_string())),
    };
    let known = saved.rows(items.par_iter().map(|item| item.id.as_str()));
    let all: Vec<Option<EmbeddingRow>> = items.iter().zip(known).map(row).collect();
    if let Some(at) = all.iter().position(Option::is_none) {
        let lacking = all.iter().filter(|row| row.is_none()).count();
        let id = &items[at].id;
        return Err(stale(
            name,
            &format!("it lacks {lacking} of the {} images, such as `{id}`", items.len()),
        ));
    }
    let held = saved.images.len() + unreadable.len();
    if held != items.len() {
        let more = held - items.len();
        return Err(stale(name, &format!("it holds {more} images that the data set doesn't have")));
    }
    let rows: Vec<EmbeddingRow> = all.into_iter().flatten().collect();
    let other = items.par_iter().zip(&rows).find_map_first(|(item, row)| {
        let EmbeddingRow::Embedded(at) = row else { return None };
        let (image, class) = (&saved.images[*at], &dataset.classes[item.class]);
        match image {
            _ if image.label != *class && !dataset.classless => {
                Some(format!("`{}` has class `{}` there, and `{class}` here", item.id, image.label))
            }
            _ if image.part.is_none() && item.part().is_some() => Some(format!(
                "it doesn't say which part of its file `{}` is, as files of earlier versions don't",
                item.id
            )),
            _ if image.part != item.part() => {
                Some(format!("`{}` is another part of its file than when its embedding was made", item.id))
            }
            _ if image.bytes != bytes(item) => {
                Some(format!("the file of `{}` has changed since its embedding was made", item.id))
            }
            _ => None,
        }
    });
    if let Some(why) = other {
        return Err(stale(name, &why));
    }
    refuse_changed(request, (name, saved, &rows), (dataset, from))?;
    look_again(request, (name, saved, &rows), (dataset, from), model, prep)?;
    Ok(rows)
}

/// Images that are hashed between two looks at signals.
const HASHED: usize = 1024;

/// Refuses a file if an image is not the one that was embedded. A file is hashed unless it was last changed
/// at the time that is saved with its embedding; its size was compared already.
fn refuse_changed(
    request: &Request,
    (name, saved, rows): (&str, &Embedded, &[EmbeddingRow]),
    (dataset, from): (&Dataset, usize),
) -> Result<()> {
    let mut phase = Phase::brief("gallery", request.progress);
    let changed = |at: usize| -> Result<()> {
        let EmbeddingRow::Embedded(row) = rows[at] else { return Ok(()) };
        let (image, item) = (&saved.images[row], &dataset.items[from + at]);
        if image.modified.is_some() && image.modified == item.modified() {
            return Ok(());
        }
        let digest = dataset.digest(from + at);
        match digest.map_err(|e| e.context(format!("{name} has the embedding of `{}`", item.id)))? {
            Some(digest) if digest != image.digest => Err(changed_since(name, &item.id)),
            _ => Ok(()),
        }
    };
    for first in (0..rows.len()).step_by(HASHED) {
        (first..rows.len().min(first + HASHED)).into_par_iter().try_for_each(changed)?;
        interrupt::check(" while images were compared").map_err(interrupt::with_next_step)?;
        phase.beat();
    }
    phase.finish();
    Ok(())
}

fn changed_since(name: &str, id: &str) -> Error {
    stale(name, &format!("the image `{id}` has changed since its embedding was made"))
}

/// How an embedding that the model gives now differs from the saved one, in words; `None` if it agrees. Two
/// that are not finite agree: the gallery refuses them, and names the image.
fn difference(found: ArrayView1<f32>, saved: &[f32]) -> Option<String> {
    let all_finite = [found.iter().all(|v| v.is_finite()), saved.iter().all(|v| v.is_finite())];
    match all_finite {
        [false, true] => return Some("is finite there, and the model gives NaN or infinity now".into()),
        [true, false] => return Some("has NaN or infinity there, and is finite now".into()),
        [false, false] => return None,
        [true, true] => {}
    }
    let length = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let apart = length(&mut found.iter().zip(saved).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let own = length(&mut found.iter().map(|v| f64::from(*v)));
    (apart > TOLERANCE * own)
        .then(|| format!("is {:.2} % from what the model gives now", 100.0 * apart / own))
}

/// Embeds a sample again. Each part of a run has another sample.
fn look_again(
    request: &Request,
    (name, saved, rows): (&str, &Embedded, &[EmbeddingRow]),
    (dataset, from): (&Dataset, usize),
    model: &mut Model,
    prep: &Preparation,
) -> Result<()> {
    let part = request.run.partition.map_or(String::new(), |part| part.to_string());
    let mut random = Random::keyed(&[b"stored embeddings", &request.seed.to_le_bytes(), part.as_bytes()]);
    let mut left: Vec<usize> = (0..rows.len()).collect();
    let sample: Vec<usize> =
        (0..LOOK.min(rows.len())).map(|_| left.swap_remove(random.index(left.len()))).collect();
    let phase = Phase::new("gallery", sample.len() as u64, request.progress);
    let mut pixels = Vec::new();
    let mut expected: Vec<(&str, &[f32])> = Vec::new();
    for at in sample {
        let id = dataset.items[from + at].id.as_str();
        match (&rows[at], dataset.pixels(from + at, prep)) {
            (&EmbeddingRow::Embedded(row), Ok(found)) => {
                if found.digest != saved.images[row].digest {
                    return Err(changed_since(name, id));
                }
                pixels.extend(found.data);
                expected.push((id, saved.row(row)));
            }
            (EmbeddingRow::Embedded(_), Err(e)) => {
                return Err(e.context(format!("{name} has the embedding of `{id}`")));
            }
            (EmbeddingRow::Unreadable(_), Ok(_)) => {
                return Err(stale(
                    name,
                    &format!("`{id}` could not be read when it was made, and can be read now"),
                ));
            }
            (EmbeddingRow::Unreadable(_), Err(_)) => {}
        }
    }
    let found = model.embed(&pixels)?;
    for ((id, saved), found) in expected.iter().zip(found.rows()) {
        if let Some(how) = difference(found, saved) {
            return Err(stale(name, &format!("the embedding of `{id}` {how}")));
        }
    }
    phase.finish();
    request.progress.note(&format!(
        "gallery: {} embeddings from {name}; {} of them were computed again and agree",
        rows.len(),
        expected.len()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::difference;
    use ndarray::aview1;

    /// Comparisons with NaN are false, and infinity is within any tolerance of itself.
    #[test]
    fn an_embedding_that_is_no_longer_finite_differs() {
        let says = |found: &[f32], saved: &[f32]| difference(aview1(found), saved).unwrap_or_default();
        assert_eq!(says(&[3.0, 4.0], &[3.0, 4.0]), "");
        assert_eq!(says(&[3.0, 4.0], &[3.0, 4.001]), "");
        assert_eq!(says(&[3.0, 4.0], &[3.0, 4.5]), "is 10.00 % from what the model gives now");
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(says(&[3.0, bad], &[3.0, bad]), "");
            assert!(says(&[3.0, bad], &[3.0, 4.0]).contains("NaN or infinity now"), "{bad}");
            assert!(says(&[3.0, 4.0], &[3.0, bad]).contains("finite now"), "{bad}");
        }
    }
}
