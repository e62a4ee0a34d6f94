//! Checks that run further attacks, to see whether the audit's attack is weaker than others. This file
//! attacks and compares, and `findings.rs` judges.
//!
//! There are two measures. *Success* is what the audit measures, from 0 to 100 for the attacker; variants of
//! the attack are compared by its mean, paired by query. *Loss* is what the attack minimises; on the same
//! trial and within the same bounds, the attack with the lower loss is better. An attack without the gradient
//! should not be.
//!
//! A shared perturbation counts once in both, by the mean over the queries that it is measured on: another
//! perturbation may suit a single query better.

mod findings;
mod work;

use super::Check;
use super::attacked::{ENOUGH, arrived};
use super::plans::{self, Attack};
use crate::{AttackContext, Event, ImageSource, Others, Plan, Room, Strong, Trial, measure};
use audit_base::numbers::mean;
use audit_base::{Error, Result};
use audit_model::Model;
use audit_report::judge::mean::Mean;
use audit_report::judge::score::Basis;
use audit_report::judge::strong::MORE_QUERIES;
use audit_report::record::{Found, Measures, Outcome, Severity};
pub(super) use findings::{
    black_box, budget, curve, eight_bit, more_steps, noise, one_step, restarts, step_size, transfer,
    unbounded,
};
use ndarray::Array2;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::rc::Rc;
pub use work::{PassCount, WatchPasses};

/// Smallest difference in success that counts, in points.
const MIN_GAIN: f64 = 1.0;
/// Largest share of the trials in which a weaker attack may have the lower loss by chance, in per cent.
const CHANCE_SHARE: f64 = 1.0;

/// The attacked model and trials, and the runs that checks share.
pub struct DoctorInput<'a> {
    /// The model that every check attacks.
    pub model: &'a mut Model,
    /// The model's clean embeddings, and what attacks need besides the trial.
    pub context: &'a AttackContext,
    /// Clean images, C·H·W, by gallery index.
    pub images: &'a ImageSource<'a>,
    /// What to attack, and with which objective.
    pub trials: &'a [Trial],
    /// How the audit attacks.
    pub plan: &'a Plan,
    /// Another model for the same images, with its own embeddings.
    pub surrogate: Option<(Model, AttackContext)>,
    /// Forward passes of all checks.
    work: PassCount<'a>,
    /// Runs made so far, by plan.
    made: Vec<(Plan, Rc<Vec<Shot>>)>,
    /// Clean images of the trials, and their losses.
    clean: Vec<Vec<f32>>,
    at_start: Vec<f64>,
    /// The trials by perturbation; see [`crate::together`].
    perturbations: Vec<Vec<usize>>,
}

/// The result of an attack on one trial.
struct Shot {
    outcome: Outcome,
    image: Vec<f32>,
}

/// The gain in success of one run over another.
struct Gain {
    what: String,
    by: Mean,
    /// Whether the mean has enough values that they don't agree by chance.
    judged: bool,
}

impl Gain {
    /// The mean of `gains`, of queries or of perturbations that many queries share; `None` if there are none.
    fn of(what: &str, gains: &[f64], shared: bool) -> Option<Gain> {
        let least = if shared { 2 } else { ENOUGH };
        Mean::of(gains).map(|by| Gain { what: what.into(), by, judged: gains.len() >= least })
    }
}

impl<'a> DoctorInput<'a> {
    /// Loads the clean images and computes their losses.
    pub fn new(
        model: &'a mut Model,
        context: &'a AttackContext,
        images: &'a ImageSource<'a>,
        trials: &'a [Trial],
        plan: &'a Plan,
        surrogate: Option<(Model, AttackContext)>,
        work: PassCount<'a>,
    ) -> Result<DoctorInput<'a>> {
        let clean = trials.iter().map(|t| Ok(images(t.query)?.data)).collect::<Result<Vec<_>>>()?;
        let (at_start, _) = crate::losses(model.workers(), context, plan.form, trials, &clean)?;
        let perturbations = crate::together(&context.gallery, plan.seed, trials);
        let made = Vec::new();
        Ok(DoctorInput {
            model,
            context,
            images,
            trials,
            plan,
            surrogate,
            work,
            made,
            clean,
            at_start,
            perturbations,
        })
    }

    /// Sets the remaining checks, for the time left.
    pub fn expect(&mut self, checks: &[&Check]) {
        let room = Room::of(self.model);
        let new = |attack: &Attack| match attack {
            Attack::Search(plan) => !self.made.iter().any(|(made, _)| made == plan),
            Attack::Noise => true,
            Attack::Transfer => self.surrogate.is_some(),
        };
        let all = plans::distinct(self.plan, self.widest(), checks).into_iter().filter(new);
        let amount = |attack: &Attack| attack.amount(self.plan, self.trials, room);
        self.work.ahead = all.map(|attack| (attack.clone(), amount(&attack))).collect();
    }

    /// Runs the trials under `plan`, once per plan.
    fn run(&mut self, plan: Plan) -> Result<Rc<Vec<Shot>>> {
        if let Some((_, shots)) = self.made.iter().find(|(other, _)| *other == plan) {
            return Ok(shots.clone());
        }
        self.work.begin(&Attack::Search(plan.clone()));
        let shots = shoot(self.model, self.context, self.images, self.trials, &plan, &mut self.work)?;
        let shots = Rc::new(shots);
        self.made.push((plan, shots.clone()));
        Ok(shots)
    }

    /// Outcomes of the audit's own attack.
    pub fn outcomes(&mut self) -> Result<Vec<Outcome>> {
        Ok(self.base()?.iter().map(|shot| shot.outcome.clone()).collect())
    }

    /// The run of the audit's own attack.
    fn base(&mut self) -> Result<Rc<Vec<Shot>>> {
        self.run(self.plan.clone())
    }

    /// The attacker's success on a trial without and with the attack, in per cent.
    fn success(&self, trial: usize, shot: &Shot) -> Option<(f64, f64)> {
        let (form, objective) = (self.plan.form, self.trials[trial].objective);
        objective.success(&shot.outcome, form, form.ranked_in(&self.context.gallery) as f64)
    }

    /// The mean over the trials of each attack of a number that follows from [`Self::success`].
    fn means(&self, shots: &[Shot], of: fn((f64, f64)) -> f64) -> BTreeMap<&'static str, f64> {
        let mut all: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for (i, shot) in shots.iter().enumerate() {
            all.entry(self.trials[i].objective.code).or_default().extend(self.success(i, shot).map(of));
        }
        let mean = |v: Vec<f64>| Mean::of(&v).map(|m| m.value);
        all.into_iter().filter_map(|(code, v)| Some((code, mean(v)?))).collect()
    }

    /// The gain of `better` over `worse`, in points of success: first over all attacks, paired by query, then
    /// of each attack. A shared perturbation is one gain, under the first query that it is measured on.
    fn gains(&self, better: &[Shot], worse: &[Shot]) -> Vec<Gain> {
        let mut of_attack: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let mut of_query: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        let gain = |&i: &usize| Some(self.success(i, &better[i])?.1 - self.success(i, &worse[i])?.1);
        for trials in &self.perturbations {
            let gains: Vec<f64> = trials.iter().filter_map(gain).collect();
            let Some(Mean { value, .. }) = Mean::of(&gains) else { continue };
            let Trial { objective, query, .. } = self.trials[trials[0]];
            of_attack.entry(objective.code).or_default().push(value);
            of_query.entry(query).or_default().push(value);
        }
        let queries: Vec<f64> = of_query.into_values().map(|v| mean(&v)).collect();
        let shared =
            |code: &str| self.trials.iter().any(|t| t.objective.code == code && t.objective.shared.is_some());
        let all = Gain::of("all attacks together", &queries, of_attack.keys().all(|code| shared(code)));
        let each = of_attack.iter().filter_map(|(code, gains)| Gain::of(code, gains, shared(code)));
        all.into_iter().chain(each).collect()
    }

    /// Why these gains can't be judged, if they can't.
    fn unjudged(&self, gains: &[Gain]) -> Option<Found> {
        let Some(all) = gains.first() else { return Some(unmeasured()) };
        let why = match self.trials.iter().all(|t| t.objective.shared.is_some()) {
            true => "a single perturbation can't tell a difference from chance".into(),
            false => format!("fewer than {ENOUGH} queries can't tell a difference from chance"),
        };
        (!all.judged).then(|| Found::not_checked(why, MORE_QUERIES))
    }

    /// A finding of `severity` if `better` has clearly more success than `worse`.
    fn compared(&self, severity: Severity, how: &str, better: &[Shot], worse: &[Shot]) -> Found {
        let gains = self.gains(better, worse);
        if let Some(unjudged) = self.unjudged(&gains) {
            return unjudged;
        }
        let (all, clear) = (gains[0].by, clear(&gains, MIN_GAIN));
        match clear.is_empty() {
            true => Found::passed(format!("{how}: {:+.1} ± {:.1} points of success", all.value, all.error)),
            false => Found::Failed(severity, format!("{how}, points of success gained: {clear}")),
        }
    }

    /// The perturbations with which the base attack misses its goal, and `losses` decrease by at least a
    /// twentieth more than its loss.
    fn beaten(&mut self, losses: &[f64]) -> Result<Vec<&[usize]>> {
        let base = self.base()?;
        let basis = Basis::of(&self.context.gallery, self.plan.form);
        let scale = self.at_start.iter().chain(losses).fold(0.0f64, |m, v| m.max(v.abs()));
        let beats = |trials: &[usize]| {
            if trials.iter().all(|&i| arrived(&base[i].outcome, &basis)) {
                return false;
            }
            let fall = |to: &dyn Fn(usize) -> f64| {
                mean(&trials.iter().map(|&i| self.at_start[i] - to(i)).collect::<Vec<_>>())
            };
            let (theirs, ours) = (fall(&|i| losses[i]), fall(&|i| base[i].outcome.loss_last));
            theirs > ours + 0.05 * ours.abs() + 1e-3 * scale
        };
        Ok(self.perturbations.iter().map(Vec::as_slice).filter(|trials| beats(trials)).collect())
    }

    /// The perturbations whose images have less success than others, if the strong search made them: its
    /// members minimise different losses. A rank counts as better only if float32 rounding of embeddings
    /// cannot explain it: if an output saturates, most images of a gallery can be equally far from each
    /// other.
    fn beaten_by_success(&mut self, points: &Array2<f32>) -> Result<Vec<&[usize]>> {
        let base = self.base()?;
        let ours: Vec<Vec<f32>> = base.iter().map(|shot| shot.image.clone()).collect();
        let (_, ours) = self.losses(&ours)?;
        let form = self.plan.form;
        let ranked = form.ranked_in(&self.context.gallery) as f64;
        // The least and the most success that rounding allows.
        let successes = |i: usize, after: &Measures, z: &[f32]| {
            let trial = &self.trials[i];
            let success = |rank: Option<f64>| {
                let after = Measures { rank, ..after.clone() };
                let outcome = Outcome { after, ..base[i].outcome.clone() };
                Some(trial.objective.success(&outcome, form, ranked)?.1)
            };
            let bounds = crate::rank_bounds(self.context, form, trial, z).into_iter().flatten().map(Some);
            let all: Option<Vec<f64>> = bounds.chain([after.rank]).map(success).collect();
            let all = all?.into_iter();
            Some((all.clone().fold(f64::INFINITY, f64::min), all.fold(f64::NEG_INFINITY, f64::max)))
        };
        let gain = |&i: &usize| {
            let z = points.row(i).to_vec();
            let theirs = successes(i, &measure(self.context, form, &self.trials[i], &z), &z);
            let ours = successes(i, &base[i].outcome.after, &ours.row(i).to_vec());
            theirs.map_or(f64::NEG_INFINITY, |(least, _)| least)
                - ours.map_or(f64::INFINITY, |(_, most)| most)
        };
        let beats = |trials: &[usize]| mean(&trials.iter().map(gain).collect::<Vec<_>>()) > 1e-9;
        Ok(self.perturbations.iter().map(Vec::as_slice).filter(|trials| beats(trials)).collect())
    }

    /// A finding of `severity` if the images of a weaker attack (one for each trial) are better than those of
    /// the audit's attack in more than [`CHANCE_SHARE`] per cent of the trials: in the loss, and for the
    /// strong search in success.
    fn outdone(&mut self, severity: Severity, who: &str, images: &[Vec<f32>]) -> Result<Found> {
        let all = self.perturbations.len();
        if all < 2 {
            let why = "a single perturbation can't tell a better attack from chance";
            return Ok(Found::not_checked(why, MORE_QUERIES));
        }
        let strong = self.plan.effort.is_some();
        let base = self.base()?;
        if strong && self.means(&base, |(_, after)| after).is_empty() {
            return Ok(unmeasured());
        }
        let (losses, points) = self.losses(images)?;
        let what = if all < self.trials.len() { "perturbations" } else { "trials" };
        let (beaten, better) = match strong {
            true => (self.beaten_by_success(&points)?, "more success"),
            false => (self.beaten(&losses)?, "a lower loss"),
        };
        let first: Vec<usize> = beaten.into_iter().map(|trials| trials[0]).collect();
        let count = first.len();
        let mut codes: Vec<&str> = first.into_iter().map(|i| self.trials[i].objective.code).collect();
        codes.sort_unstable();
        codes.dedup();
        let of = if codes.is_empty() { String::new() } else { format!(" ({})", codes.join(", ")) };
        let share = 100.0 * count as f64 / all.max(1) as f64;
        // An attack that beats the strong search does not prove masked gradients: some members need no
        // gradient.
        let severity = if strong { severity.min(Severity::Warning) } else { severity };
        // With few trials a single one exceeds the share, so at least two are required.
        let fault = share > CHANCE_SHARE && count > 1;
        let text = format!("{who} gets {better} than {} on {count} of {all} {what}{of}", self.own_attack());
        Ok(Found::judged(fault, severity, text))
    }

    /// The audit's own attack, in words.
    fn own_attack(&self) -> String {
        match self.plan {
            Plan { effort: Some(_), .. } => "the strong search".into(),
            Plan { steps: 1, .. } => "the audit's single step".into(),
            Plan { steps, .. } => format!("the audit's {steps} steps"),
        }
    }

    /// The loss of one image per trial, and its point [n, D].
    fn losses(&mut self, images: &[Vec<f32>]) -> Result<(Vec<f64>, Array2<f32>)> {
        crate::losses(self.model.workers(), self.context, self.plan.form, self.trials, images)
    }

    /// Runs the searches of a check, in their order.
    fn run_all(&mut self, of_check: plans::Attacks) -> Result<Vec<(Plan, Rc<Vec<Shot>>)>> {
        let attacks = of_check(self.plan, self.widest()).into_iter();
        let searches = attacks.filter_map(|attack| match attack {
            Attack::Search(plan) => Some(plan),
            Attack::Noise | Attack::Transfer => None,
        });
        searches.map(|plan| Ok((plan.clone(), self.run(plan)?))).collect()
    }

    /// The worst comparison of some runs, each with its words, with the audit's own attack.
    fn gravest(&self, runs: impl Iterator<Item = (String, Rc<Vec<Shot>>)>, base: &[Shot]) -> Found {
        let compared = runs.map(|(how, shots)| self.compared(Severity::Warning, &how, &shots, base));
        compared.reduce(Found::or_graver).unwrap_or_else(unmeasured)
    }

    /// The largest distance between two images, in the norm of the ball.
    fn widest(&self) -> f32 {
        (self.plan.ball.widest)(self.model.pixels())
    }

    /// R@1 by chance, in per cent: what a successful attack leaves.
    fn chance(&self) -> f64 {
        let g = &self.context.gallery;
        let queries: BTreeSet<usize> = self.trials.iter().map(|t| t.query).collect();
        let shares = queries.iter().map(|&q| g.positives(q).count() as f64 / g.len() as f64);
        100.0 * shares.sum::<f64>() / queries.len().max(1) as f64
    }
}

/// The result of a check that compares success, if no attack has any.
fn unmeasured() -> Found {
    Found::not_checked("no attack of the suite can be measured", "")
}

fn shoot(
    model: &mut Model,
    context: &AttackContext,
    images: &ImageSource,
    trials: &[Trial],
    plan: &Plan,
    work: &mut PassCount,
) -> Result<Vec<Shot>> {
    let mut shots: BTreeMap<usize, Shot> = BTreeMap::new();
    let mut end = Ok(());
    let mut see = |event: Event| {
        match event {
            // Trials that end after the first error are reported too.
            _ if end.is_err() => (),
            Event::Step { passes, .. } => end = work.record(passes),
            Event::Further(_) | Event::Broken(_) => (),
            Event::Done(trial, outcome, evidence) => {
                shots.insert(trial, Shot { outcome: outcome.clone(), image: evidence.image.clone() });
            }
        }
        if end.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let ran = match plan.effort {
        None => crate::run(model.workers(), context, images, trials, plan, &mut see).map(drop),
        Some(effort) => {
            let (others, largest) = (Others { images, shape: model.shape() }, model.pixels());
            let strong = Strong { context, images, trials, plan, effort, others, largest, files: None };
            strong.run(&mut model.passes_for_search(), &mut see)
        }
    };
    end?;
    ran?;
    if shots.len() != trials.len() {
        return Err(Error::internal("an attack left no image"));
    }
    Ok(shots.into_values().collect())
}

/// The gains that are clearly above `least`, in words; empty if there are none.
fn clear(gains: &[Gain], least: f64) -> String {
    let clear = gains.iter().filter(|g| g.judged && g.by.clearly_above(least));
    clear.map(|g| format!("{} {:.1}", g.what, g.by.value)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two queries may gain alike by chance, and then their gains have no variance, as a single one has none.
    #[test]
    fn a_gain_of_few_queries_is_not_clear() {
        let of = |count: usize, shared: bool| {
            clear(&[Gain::of("LTM", &vec![100.0; count], shared).unwrap()], MIN_GAIN)
        };
        assert_eq!([1, 2, 7, 8].map(|count| of(count, false)), ["", "", "", "LTM 100.0"]);
        // A perturbation that queries share has the mean of them all.
        assert_eq!([1, 2].map(|count| of(count, true)), ["", "LTM 100.0"]);
    }
}
