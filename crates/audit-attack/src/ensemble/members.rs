//! Members of ensembles that need no more than the loss of the attack itself, and the ensembles that consist
//! of these. An objective with members of its own has them in its file.

use crate::passes::Room;
use crate::search::{COSINE, COSINE_MULTI_EPS, MOMENTUM, NES, RANDOM};
use crate::trial::{Aims, Ensemble, From, Member};
use audit_gallery::data::QUALITIES;
use audit_model::Route;
use audit_report::facts::members;

pub const HINGE: Member = Member {
    facts: &members::HINGE,
    loss: |gallery, form, trial, _| (trial.objective.loss)(gallery, form, trial),
    aims: Aims::One,
    route: Route::Exact,
    or: None,
    needs: None,
    search: &COSINE,
    steps: 40,
    alpha: Some(1.0),
    from: From::Clean,
    until: None,
    at_once: 1,
    closing: false,
};
pub const SQUARE: Member =
    Member { facts: &members::SQUARE, search: &RANDOM, steps: 200, from: From::Best, ..HINGE };
pub const FREE: Member = Member { facts: &members::FREE, search: &NES, ..SQUARE };
pub const SOFTENED: Member = Member { facts: &members::SOFTENED, route: Route::Softened, ..HINGE };
pub const STRAIGHT: Member = Member { facts: &members::STRAIGHT, route: Route::StraightThrough, ..HINGE };
/// The base of members that go along the softened gradient, and on models without one along the exact one.
pub const SOFT: Member = Member { route: Route::Softened, or: Some(Route::Exact), ..HINGE };
pub const RESTART: Member =
    Member { facts: &members::RESTART, search: &COSINE_MULTI_EPS, from: From::Random, ..SOFT };
pub const REFINED: Member = Member { facts: &members::REFINED, alpha: Some(0.2), from: From::Best, ..SOFT };

/// The tier of JPEG files, after all others. It runs on trials whose goal is reached too: what is found along
/// the gradient of one quality is often at the border, and lost by another decoder, or by a system that
/// encodes the file again. So no loss ends it.
pub const JPEG: Ensemble = &[&[Member {
    facts: &members::QUALITIES,
    alpha: Some(0.1),
    search: &MOMENTUM,
    from: From::Best,
    steps: 20 * QUALITIES.len(),
    until: Some(f64::NEG_INFINITY),
    at_once: QUALITIES.len(),
    ..SOFT
}]];

/// For objectives without an ensemble of their own.
pub const USUAL: Ensemble = &[
    &[HINGE],
    &[SOFTENED, STRAIGHT, RESTART],
    &[REFINED, Member { steps: 250, ..SQUARE }, Member { steps: 50, ..FREE }],
];

/// The goal is reached where the loss is below 0: a query is lost, or a threshold passed.
pub const LOST: Option<f64> = Some(0.0);

/// For objectives whose loss is below 0 where they are successful.
pub const THRESHOLD: Ensemble = &[
    &[Member { until: LOST, ..HINGE }],
    &[
        Member { until: LOST, ..SOFTENED },
        Member { until: LOST, ..STRAIGHT },
        Member { until: LOST, aims: Aims::Several(2), ..RESTART },
    ],
    &[
        Member { until: LOST, ..REFINED },
        Member { steps: 500, until: LOST, ..SQUARE },
        Member { steps: 100, until: LOST, ..FREE },
    ],
];

impl Member {
    /// Steps of a run with `effort` times the usual work. The work grows by the root in steps and by the root
    /// in runs.
    pub(super) fn steps_at(&self, effort: usize) -> usize {
        (self.steps as f64 * (effort as f64).sqrt()).round() as usize
    }

    /// The largest number of image steps that it makes for a trial.
    pub(super) fn cost(&self, effort: usize) -> usize {
        self.steps_at(effort) * self.runs(effort)
    }

    /// The forward passes of all workers that it takes at most on some trials.
    pub(super) fn passes(&self, effort: usize, trials: usize, room: Room) -> usize {
        room.passes(trials * self.runs(effort), self.steps_at(effort), self.at_once, self.search)
    }

    /// The largest number of its runs on a trial.
    fn runs(&self, effort: usize) -> usize {
        let aims = match self.aims {
            Aims::One => 1,
            Aims::Several(n) | Aims::Nearest(n) | Aims::Best(n) => n,
        };
        aims * self.repeats(effort)
    }

    /// How often it runs on each aim: more than once only if something is drawn.
    pub(super) fn repeats(&self, effort: usize) -> usize {
        match !self.search.needs_gradient || matches!(self.from, From::Random | From::Other) {
            true => (effort as f64).sqrt().ceil() as usize,
            false => 1,
        }
    }
}

/// Whether members have losses that tell how near the goal is: those that end a run at a threshold.
pub(super) fn has_thresholds(ensemble: Ensemble) -> bool {
    ensemble.iter().flat_map(|tier| tier.iter()).any(|member| member.until.is_some())
}

/// The largest number of image steps that an ensemble makes for a trial.
pub fn cost(ensemble: Ensemble, effort: usize) -> usize {
    ensemble.iter().flat_map(|tier| tier.iter()).map(|m| m.cost(effort)).sum()
}

/// The forward passes of all workers that an ensemble takes at most on some trials. One member runs after the
/// other.
pub fn passes(ensemble: Ensemble, effort: usize, trials: usize, room: Room) -> usize {
    ensemble.iter().flat_map(|tier| tier.iter()).map(|m| m.passes(effort, trials, room)).sum()
}

/// The same for trials that withstand all of it, if members for trials that come nearer to the goal don't
/// run.
pub fn passes_to_the_end(ensemble: Ensemble, effort: usize, trials: usize, room: Room) -> usize {
    let members = ensemble.iter().flat_map(|tier| tier.iter());
    members.filter(|m| !m.closing).map(|m| m.passes(effort, trials, room)).sum()
}

/// Image steps that an ensemble usually makes for a trial.
pub fn usual(ensemble: Ensemble, effort: usize) -> usize {
    usually(ensemble, |member| member.cost(effort))
}

/// The forward passes of all workers that it usually takes on some trials.
pub fn usual_passes(ensemble: Ensemble, effort: usize, trials: usize, room: Room) -> usize {
    usually(ensemble, |member| member.passes(effort, trials, room))
}

/// A quarter of the trials withstand the first tier, and members for trials that come nearer to the goal
/// hardly run.
fn usually(ensemble: Ensemble, work: impl Fn(&Member) -> usize) -> usize {
    let of = |tier: &&[Member]| tier.iter().filter(|m| !m.closing).map(&work).sum::<usize>();
    let first: usize = ensemble.iter().take(1).map(of).sum();
    first + ensemble.iter().skip(1).map(of).sum::<usize>() / 4
}
