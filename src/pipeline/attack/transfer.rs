//! Transfer attacks: trials run on the surrogate, and their images are measured on the audited model.

use super::{Surrogate, Work};
use crate::Result;
use crate::model::Model;
use crate::record::Outcome;
use crate::threat::{self, Event, Evidence, Passes, Room, Trial, Watch};
use std::ops::ControlFlow;

/// Trials on the surrogate between two measurements: enough to fill its batches, few enough to hold their
/// images.
const TOGETHER: usize = 512;

/// A finished trial, with its place among the trials of a chunk.
type Finished = (usize, Outcome, Evidence);

impl Work<'_> {
    /// Runs the trials at `places` on another model and measures the images on `model`. Losses and steps are
    /// those of the search, on the other model; measures are the audited model's, and ES:D is measured at the
    /// end.
    pub(super) fn transfer(
        &self,
        other: &mut Surrogate,
        model: &mut Model,
        places: &[usize],
        watch: &mut Watch,
    ) -> Result<()> {
        let Surrogate { model: other, context: others } = other;
        let (room, pixels) = (Room::of(other), other.pixels());
        let (mut before, mut spent) = (0, 0);
        for (chunk, some) in places.chunks(TOGETHER).enumerate() {
            let later = self.most_passes(places.iter().skip((chunk + 1) * TOGETHER).copied(), room);
            let trials: Vec<Trial> = some.iter().map(|&i| self.trials[i].clone()).collect();
            let mut made: Vec<Finished> = Vec::new();
            let (mut latest, mut now) = (0, spent);
            self.with_images(&trials, pixels, |images| {
                let mut collect = |event: Event| match event {
                    Event::Step { done, passes, at } => {
                        latest = done;
                        now = spent + passes.made;
                        let passes = Passes { made: now, left: passes.left + later };
                        watch(Event::Step { done: before + done, passes, at })
                    }
                    Event::Further(_) | Event::Broken(_) => ControlFlow::Continue(()),
                    Event::Done(i, outcome, evidence) => {
                        made.push((i, outcome.clone(), evidence.clone()));
                        ControlFlow::Continue(())
                    }
                };
                threat::run(other.workers(), others, images, &trials, self.plan, &mut collect).map(drop)
            })?;
            let whole = made.len() == trials.len();
            made.sort_by_key(|(i, ..)| *i);
            for (i, outcome, evidence) in self.measured(model, &trials, made)? {
                if watch(Event::Done(chunk * TOGETHER + i, &outcome, &evidence)).is_break() {
                    return Ok(());
                }
            }
            if !whole {
                return Ok(());
            }
            (before, spent) = (before + latest, now);
        }
        Ok(())
    }

    /// The `made` ones of `trials`, measured on `model`.
    fn measured(&self, model: &mut Model, trials: &[Trial], made: Vec<Finished>) -> Result<Vec<Finished>> {
        let form = self.plan.form;
        let own: Vec<Trial> = made.iter().map(|(i, ..)| trials[*i].clone()).collect();
        let images: Vec<Vec<f32>> = made.iter().map(|(.., evidence)| evidence.image.clone()).collect();
        let (_, points) = threat::losses(model.workers(), self.context, form, &own, &images)?;
        let points: Vec<Vec<f32>> = points.outer_iter().map(|point| point.to_vec()).collect();
        let clean = |t: &Trial| self.context.gallery.point(t.query);
        let states = |points: Vec<&[f32]>| {
            threat::measure_all(self.context, form, &own.iter().zip(points).collect::<Vec<_>>())
        };
        let first = states(own.iter().map(clean).collect());
        let last = states(points.iter().map(Vec::as_slice).collect());
        let measured = own.iter().zip(points).zip(first.into_iter().zip(last));
        let measured = made.into_iter().zip(measured);
        let measured = measured.map(|((i, outcome, evidence), ((trial, point), (before, after)))| {
            let shift = self.context.gallery.metric.distance(&point, clean(trial));
            let outcome = Outcome { before, after, shift, shift_before_last: shift, ..outcome };
            (i, outcome, Evidence { point, ..evidence })
        });
        Ok(measured.collect())
    }
}
