//! The photographs that attacks on files change, each at its own size.

use crate::data::{Dataset, Item, Photograph, Preparation, Resampling};
use crate::judge::quantity::{ROBUST, ROBUST_TOP1};
use crate::model::inspect::fastest;
use crate::numbers::mean;
use crate::progress::{Mode, Phase};
use crate::record::{Role, Space};
use crate::report::terminal::wrap;
use crate::threat::{CleanImage, Plan, Trial};
use crate::{Error, Result, interrupt};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Headers of files that are read between two checks for an interrupt.
const HEADERS: usize = 256;

/// Photographs decoded at the same time, between two checks for an interrupt.
const TOGETHER: usize = 16;

/// How each photograph becomes the model's image.
pub struct Photographs {
    /// By item of the data set. Photographs of one shape share one value.
    resamplings: BTreeMap<usize, Arc<Resampling>>,
}

/// The queries of a data set, with their places in it.
fn queries(dataset: &Dataset) -> impl Iterator<Item = (usize, &Item)> {
    let items = dataset.items.iter().enumerate().zip(dataset.roles());
    items.filter(|(_, role)| *role != Role::Gallery).map(|(item, _)| item)
}

/// Refuses queries without a file of their own (exit code 2).
pub fn refuse_without_files(space: Space, dataset: &Dataset) -> Result<()> {
    let without = queries(dataset).find(|(_, item)| item.file().is_none());
    match without.map(|(_, item)| &item.id).filter(|_| space == Space::File) {
        None => Ok(()),
        Some(_) if dataset.is_generated() => Err(Error::usage(
            "--space file: generated images are no files. Write them with `audit images --out photos`, and add --data photos",
        )),
        Some(id) => Err(Error::usage(format!(
            "--space file: image `{id}` of {} is not in a file of its own. Save each image as a file, such as a PNG in a folder of its class",
            dataset.source
        ))),
    }
}

/// Pixels of the largest photograph that the file column of a ladder is searched for in, as a multiple of
/// those of the model's input. The resize of a larger one takes longer than a step of most models.
const LARGEST: usize = 20;

/// Whether the ladder's file column is searched for in the files of the queries: they are files, and some
/// have another size than the model's input. Says why not, if they are files and can't be attacked. Files
/// that can't be read are left to the gallery, which names them. Errors: an interrupt (exit code 130).
pub fn resized_files(plan: &Plan, dataset: &Dataset, prep: &Preparation, progress: Mode) -> Result<bool> {
    let files: Option<Vec<&Path>> = queries(dataset).map(|(_, item)| item.file()).collect();
    let has_file_column = plan.ladder.is_some() && plan.space == Space::Input && plan.ball.is_box;
    let Some(files) = files.filter(|_| has_file_column) else { return Ok(false) };
    let skipped = |why: &str| {
        let name = if dataset.classless { ROBUST_TOP1.label } else { ROBUST.label };
        progress.note(&wrap(&format!(
            "{name} as an 8-bit file is measured on images of the model's size instead of the files: {why}"
        )));
        Ok(false)
    };
    let mut phase = Phase::brief("files", progress);
    let mut shapes: BTreeMap<[usize; 3], &Path> = BTreeMap::new();
    for some in files.chunks(HEADERS) {
        let looked =
            some.par_iter().filter_map(|path| Some((Photograph::shape(path, prep.channels)?, *path)));
        for (shape, path) in looked.collect::<Vec<_>>() {
            match shape {
                Ok(shape) => shapes.entry(shape).or_insert(path),
                Err(e) => return skipped(&e.message),
            };
        }
        phase.beat();
        interrupt::check("").map_err(interrupt::with_next_step)?;
    }
    phase.finish();
    let mut resized = false;
    for (shape @ [_, height, width], path) in shapes {
        if height * width > LARGEST * prep.height * prep.width {
            return skipped(&format!(
                "{} has {width} × {height} pixels, more than {LARGEST} times the model's {} × {}, and attacks on it \
                 take long. --space file makes them",
                path.display(),
                prep.width,
                prep.height
            ));
        }
        // An image that can't be resized is refused by the gallery.
        resized |= Resampling::new(prep, shape).is_ok_and(|way| !way.is_identity());
    }
    match &plan.mask {
        Some(_) if resized => skipped(
            "the mask has the size of the model's images. With --space file a mask has the size of the photographs",
        ),
        _ => Ok(resized),
    }
}

impl Photographs {
    /// The photographs of the trials' queries; `None` if all attacks of the plan change the model's input.
    /// Errors: those of [`Photograph::read`] and [`Resampling::new`].
    pub fn of(
        plan: &Plan,
        dataset: &Dataset,
        prep: &Preparation,
        trials: &[Trial],
        progress: Mode,
    ) -> Result<Option<Photographs>> {
        let of_files = trials.iter().any(|trial| plan.in_files(trial.objective).is_some());
        if plan.space == Space::Input && !of_files {
            return Ok(None);
        }
        let queries: Vec<usize> =
            trials.iter().map(|trial| trial.query).collect::<BTreeSet<_>>().into_iter().collect();
        let mut phase = Phase::new("photographs", queries.len() as u64, progress);
        let mut by_shape: BTreeMap<[usize; 3], Arc<Resampling>> = BTreeMap::new();
        let mut resamplings = BTreeMap::new();
        for some in queries.chunks(TOGETHER) {
            let shape = |&query: &usize| Ok((query, read(dataset, query, prep)?.shape));
            for (query, shape) in some.par_iter().map(shape).collect::<Result<Vec<_>>>()? {
                let way = match by_shape.get(&shape) {
                    Some(way) => way.clone(),
                    None => {
                        let way = Resampling::new(prep, shape)
                            .map_err(|e| e.context(format!("image `{}`", dataset.items[query].id)))?
                            .through_jpeg(plan.jpeg);
                        by_shape.entry(shape).or_insert(Arc::new(way)).clone()
                    }
                };
                resamplings.insert(query, way);
            }
            phase.set(resamplings.len() as u64, None);
            interrupt::check("").map_err(interrupt::with_next_step)?;
        }
        phase.finish();
        let photographs = Photographs { resamplings };
        progress.note(&photographs.in_words());
        Ok(Some(photographs))
    }

    /// The photograph of an item, which is one of the trials' queries.
    pub fn image(&self, dataset: &Dataset, prep: &Preparation, item: usize) -> Result<CleanImage> {
        let photograph = read(dataset, item, prep)?;
        let resampling = self.resamplings.get(&item).filter(|way| way.shape() == photograph.shape);
        match resampling {
            Some(resampling) => {
                Ok(CleanImage { data: photograph.data, resampling: Some(resampling.clone()) })
            }
            None => Err(Error::usage(format!(
                "the file of `{}` changed while the audit ran. Run it again on files that stay as they are",
                dataset.items[item].id
            ))),
        }
    }

    /// Whether the model's input is another image than an item's photograph, which is one of the trials'
    /// queries.
    pub fn resized(&self, item: usize) -> bool {
        self.resamplings.get(&item).is_some_and(|way| !way.is_identity())
    }

    /// Values of each photograph.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        self.resamplings.values().map(|way| way.shape().iter().product())
    }

    /// Their number and sizes.
    fn in_words(&self) -> String {
        let area = |[_, height, width]: &[usize; 3]| (height * width, *height);
        let all = || self.resamplings.values().map(|way| way.shape());
        let size = |shape: Option<[usize; 3]>| {
            shape.map_or(String::new(), |[_, height, width]| format!("{width} × {height}"))
        };
        let [least, most] = [all().min_by_key(area), all().max_by_key(area)].map(size);
        let sizes = if least == most { least } else { format!("{least} to {most}") };
        format!("attacks on {} files of {sizes} pixels", self.resamplings.len())
    }
}

/// Photographs on which a step is timed.
const TIMED: usize = 3;

/// Seconds that a step on a photograph takes besides the model's time: the resize to its input, the gradient
/// back, and the move of all values. The mean over a few queries, with all cores busy. A photograph that
/// can't be read is left to [`Photographs::of`], which names it.
pub fn step_seconds(plan: &Plan, dataset: &Dataset, prep: &Preparation) -> f64 {
    let queries: Vec<usize> = queries(dataset).map(|(i, _)| i).collect();
    let some = queries.iter().step_by(queries.len().div_ceil(TIMED).max(1));
    let times: Vec<f64> = some.filter_map(|&query| timed(plan, dataset, query, prep).ok()).collect();
    mean(&times)
}

/// [`step_seconds`] of one photograph.
fn timed(plan: &Plan, dataset: &Dataset, query: usize, prep: &Preparation) -> Result<f64> {
    let photograph = read(dataset, query, prep)?;
    let resampling = Resampling::new(prep, photograph.shape)?.through_jpeg(plan.jpeg);
    let mut at_once: Vec<_> = (0..rayon::current_num_threads())
        .map(|_| {
            let input = vec![0.0; prep.channels * prep.height * prep.width];
            (photograph.data.clone(), vec![0.0; photograph.data.len()], input)
        })
        .collect();
    let seconds = fastest(|| {
        at_once.par_iter_mut().try_for_each(|(image, gradient, input)| {
            resampling.apply(image, input)?;
            resampling.pull_back(input, gradient);
            let moved = image.iter_mut().zip(&*gradient);
            moved.for_each(|(x, g)| *x = (*x + plan.alpha * g.signum()).clamp(0.0, 1.0));
            Ok(())
        })
    })?;
    Ok(seconds / at_once.len() as f64)
}

/// The photograph of an item.
fn read(dataset: &Dataset, item: usize, prep: &Preparation) -> Result<Photograph> {
    let of = &dataset.items[item];
    let path = of.file().ok_or_else(|| Error::internal(format!("image `{}` is no file", of.id)))?;
    Photograph::read(path, prep.channels)
}
