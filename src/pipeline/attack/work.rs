//! Trials and the images that they change.

use super::{Attacks, Recorder, finished};
use crate::Result;
use crate::data::{Dataset, Preparation};
use crate::model::{Differentiable, Model};
use crate::pipeline::cost::Speed;
use crate::pipeline::photographs::Photographs;
use crate::progress::{Mode, Phase};
use crate::record::{Outcome, Space};
use crate::threat::{
    self, AttackContext, CleanImage, ImageSource, Others, Plan, QueryFiles, Strong, Trial, Watch,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::OnceLock;

/// Maximum size of all decoded queries, in bytes, for keeping them from one attack to the next.
const MAX_DECODED_BYTES: usize = 64 << 20;

/// Trials and their images.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The images.
    pub dataset: &'a Dataset,
    /// How they become pixels.
    pub prep: &'a Preparation,
    /// The audited model's embeddings of them.
    pub context: &'a AttackContext,
    /// The trials of this process.
    pub trials: &'a [Trial],
    /// How each is run.
    pub plan: &'a Plan,
    /// The queries' photographs, if some attack changes them; `None` if all change the model's input.
    pub photographs: Option<&'a Photographs>,
    /// Speed of the audited model; `None` if the time of the attacks is not shown.
    pub speed: Option<Speed>,
}

impl Work<'_> {
    /// Runs the trials on a model, where no trial is ever saved, and returns their outcomes.
    pub fn run(self, model: &mut Model, phase: &'static str, mode: Mode) -> Result<Vec<Outcome>> {
        let mut phase = Phase::new(phase, 0, mode);
        let mut attacks = Attacks { work: self, model, surrogate: None };
        let mut recorder = Recorder { journal: &mut None, collector: None, attacked: None };
        let mut outcomes: Vec<Option<Outcome>> = vec![None; self.trials.len()];
        attacks.rest(&mut recorder, &mut outcomes, false, &mut phase)?;
        phase.finish();
        finished(outcomes)
    }

    /// Outcomes among `known` that belong to trials of this run, by place.
    pub fn of_known(&self, known: &[Outcome]) -> Vec<(usize, Outcome)> {
        let key = |o: &Outcome| (o.attack.clone(), o.query.clone(), o.targets.clone());
        let known: HashMap<_, &Outcome> = known.iter().map(|o| (key(o), o)).collect();
        let id = |i: usize| self.context.gallery.ids[i].clone();
        let of = |t: &Trial| {
            (t.objective.code.to_string(), id(t.query), t.targets.iter().map(|&i| id(i)).collect::<Vec<_>>())
        };
        let trials = self.trials.iter().enumerate();
        trials.filter_map(|(place, trial)| Some((place, (*known.get(&of(trial))?).clone()))).collect()
    }

    /// Runs the plan's search on the trials at `places`.
    pub(super) fn search(
        &self,
        workers: Vec<&mut dyn Differentiable>,
        places: &[usize],
        watch: &mut Watch,
    ) -> Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let trials: Vec<Trial> = places.iter().map(|&i| self.trials[i].clone()).collect();
        let pixels = workers.first().map_or(0, |worker| worker.pixels());
        self.with_images(&trials, pixels, |images| {
            threat::run(workers, self.context, images, &trials, self.plan, watch).map(drop)
        })
    }

    /// Calls `work` with the strong search on the trials at `places`, if there are any.
    pub(super) fn with_strong(
        &self,
        shape: [usize; 3],
        places: &[usize],
        work: impl FnOnce(&Strong) -> Result<()>,
    ) -> Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        let trials: Vec<Trial> = places.iter().map(|&i| self.trials[i].clone()).collect();
        let pixels = shape.iter().product();
        self.with_images(&trials, pixels, |images| {
            let effort = self.plan.effort.unwrap_or(1);
            let Work { context, plan, photographs, .. } = *self;
            let inputs = |i: usize| Ok(self.dataset.pixels(i, self.prep)?.data.into());
            let others = Others { images: &inputs, shape };
            let in_files = plan.space == Space::File;
            let largest = photographs.and_then(|all| all.sizes().max()).unwrap_or(pixels);
            let own = if in_files { largest } else { pixels };
            let strong =
                Strong { context, images, trials: &trials, plan, effort, others, largest: own, files: None };
            let Some(photographs) = photographs.filter(|_| !in_files) else { return work(&strong) };
            self.with_photographs(photographs, &trials, |images| {
                let resized = |i: usize| photographs.resized(i);
                // Without a measurement: a step on a photograph of a megapixel takes hardly longer.
                let weight = self.speed.map_or(1.0, |speed| 1.0 + speed.photograph_s / speed.step_s);
                work(&Strong {
                    files: Some(QueryFiles { images, resized: &resized, largest, weight }),
                    ..strong
                })
            })
        })
    }

    /// Calls `work` with the clean images of the trials' queries, as attacks change them.
    pub(super) fn with_images(
        &self,
        trials: &[Trial],
        pixels: usize,
        work: impl FnOnce(&ImageSource) -> Result<()>,
    ) -> Result<()> {
        match self.photographs.filter(|_| self.plan.space == Space::File) {
            Some(photographs) => self.with_photographs(photographs, trials, work),
            None => {
                let decode = |i: usize| self.dataset.pixels(i, self.prep).map(|p| p.data.into());
                let queries: BTreeSet<usize> = trials.iter().map(|trial| trial.query).collect();
                decoded_once(&decode, queries.len() * pixels, queries, work)
            }
        }
    }

    /// Calls `work` with the photographs of the trials' queries.
    fn with_photographs(
        &self,
        photographs: &Photographs,
        trials: &[Trial],
        work: impl FnOnce(&ImageSource) -> Result<()>,
    ) -> Result<()> {
        let decode = |i: usize| photographs.image(self.dataset, self.prep, i);
        let queries = trials.iter().map(|trial| trial.query).collect();
        decoded_once(&decode, photographs.sizes().sum(), queries, work)
    }
}

/// Calls `work` with images of `values` values in all. Every attack asks for the same queries: if they fit
/// into memory, each is decoded once.
fn decoded_once(
    decode: &ImageSource,
    values: usize,
    queries: BTreeSet<usize>,
    work: impl FnOnce(&ImageSource) -> Result<()>,
) -> Result<()> {
    let fit = values * size_of::<f32>() <= MAX_DECODED_BYTES;
    let decoded: HashMap<usize, OnceLock<CleanImage>> =
        queries.into_iter().filter(|_| fit).map(|i| (i, OnceLock::new())).collect();
    let images = |i: usize| match decoded.get(&i) {
        None => decode(i),
        Some(image) => match image.get() {
            Some(image) => Ok(image.clone()),
            None => {
                let new = decode(i)?;
                // Another worker may have decoded the same image meanwhile.
                let _ = image.set(new.clone());
                Ok(new)
            }
        },
    };
    work(&images)
}
