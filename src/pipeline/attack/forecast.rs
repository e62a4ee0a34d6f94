//! The amount of work of trials: what is expected before they run, and what was done.

use super::{Attacks, Work};
use crate::Result;
use crate::model::Model;
use crate::pipeline::cost::foreseen;
use crate::progress::Announcement;
use crate::record::{Outcome, Space};
use crate::threat::{Forecast, Objective, Plan, Room};
use std::collections::BTreeMap;

/// What trials take, as far as it is known before they run.
pub(super) struct Expected {
    /// The number of correct queries, if it is known.
    pub correct: Option<usize>,
    /// Forward passes of all workers.
    pub passes: usize,
    /// What people are told, once the gallery is known; `None` if nobody is told, or if no smallest
    /// perturbation is searched for.
    pub plan: Option<Announcement>,
}

impl Attacks<'_> {
    /// What the trials at `places` take.
    pub(super) fn expected(&mut self, places: &[usize]) -> Result<Expected> {
        let Attacks { work, model, surrogate } = self;
        if surrogate.is_none()
            && let Some(speed) = work.speed
            && let Some(forecast) = work.forecast(model, places)?
        {
            let plan = foreseen(&forecast, speed, work.plan);
            let passes = match work.plan.space {
                // A pass on a photograph counts as several.
                Space::Input => (plan.seconds / speed.of_passes(1)).ceil() as usize,
                Space::File => forecast.usual[0],
            };
            return Ok(Expected { correct: Some(forecast.correct), passes, plan: Some(plan) });
        }
        let room = Room::of(surrogate.as_ref().map_or(&**model, |other| &*other.model));
        let usual = |objective: &Objective, count: usize| work.plan.usual_passes(objective, count, room);
        let passes = work.sum_of_attacks(places.iter().copied(), usual);
        Ok(Expected { correct: None, passes, plan: None })
    }
}

impl Work<'_> {
    /// What the trials at `places` take by the gradients at some of them; `None` if no smallest perturbation
    /// is searched for.
    pub fn forecast(&self, model: &mut Model, places: &[usize]) -> Result<Option<Forecast>> {
        let ends = |&at: &usize| self.plan.ladder_of(self.trials[at].objective).is_none();
        if model.graphs.estimated || places.iter().any(ends) {
            return Ok(None);
        }
        let mut forecast = None;
        self.with_strong(model.shape(), places, |strong| {
            forecast = strong.forecast(model.workers())?;
            Ok(())
        })?;
        Ok(forecast)
    }

    /// Upper bound on the forward passes of the trials at `places`.
    pub(super) fn most_passes(&self, places: impl Iterator<Item = usize>, room: Room) -> usize {
        self.sum_of_attacks(places, |objective, count| self.plan.most_passes(objective, count, room))
    }

    /// The sum of `passes` over the objectives of the trials at `places`, with the number of their trials.
    fn sum_of_attacks(
        &self,
        places: impl Iterator<Item = usize>,
        passes: impl Fn(&Objective, usize) -> usize,
    ) -> usize {
        let mut queries: BTreeMap<&str, (&Objective, usize)> = BTreeMap::new();
        for place in places {
            let objective = self.trials[place].objective;
            queries.entry(objective.code).or_insert((objective, 0)).1 += 1;
        }
        queries.into_values().map(|(objective, count)| passes(objective, count)).sum()
    }
}

/// Image steps of outcomes. The strong search counts all its own steps, and shared perturbations have those
/// on their `sample` queries each.
pub fn image_steps(outcomes: &[Outcome], sample: usize, plan: &Plan) -> usize {
    let (mut steps, mut shared) = (0, BTreeMap::new());
    for o in outcomes {
        if let (Some(which), Ok(objective)) = (o.shared, Objective::find(&o.attack)) {
            shared.insert((which, objective.code), plan.work(objective));
        } else {
            steps += if o.members.is_some() { o.steps } else { o.steps * (plan.restarts + 1) };
        }
    }
    steps + sample * shared.into_values().sum::<usize>()
}
