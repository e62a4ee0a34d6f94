//! The findings of the checks that attack again.

use super::{DoctorInput, MIN_GAIN, Shot, clear, shoot, unmeasured};
use crate::check::plans::{self, Attack, NOISE_IMAGES, RANDOM_IMAGES, STEP_SIZES};
use crate::{Bound, Draw, Passes, Plan, Reach, Room, Trial, measure};
use audit_base::Result;
use audit_gallery::data::file_value;
use audit_report::record::{Found, Outcome, Severity, size};
use std::collections::BTreeMap;

/// Largest loss of success by rounding to grey levels, in points.
const MOST_LOST: f64 = 5.0;

/// Two standard errors of a share of so many queries, in points; `share` is in per cent.
fn two_errors(share: f64, queries: usize) -> f64 {
    2.0 * (share * (100.0 - share) / queries.max(1) as f64).sqrt()
}

/// The largest R@1 that a successful attack leaves of so many queries, in per cent, if it leaves `chance` of
/// all: a point and two standard errors more.
fn most_by_chance(chance: f64, queries: usize) -> f64 {
    chance + MIN_GAIN + two_errors(chance, queries)
}

fn images_of(shots: &[Shot]) -> Vec<Vec<f32>> {
    shots.iter().map(|shot| shot.image.clone()).collect()
}

pub fn more_steps(p: &mut DoctorInput) -> Result<Found> {
    let how = match p.plan.effort {
        None => format!("{} steps instead of {}", 2 * p.plan.steps, p.plan.steps),
        Some(_) => "ten times the work".to_string(),
    };
    let (more, base) = (p.run_all(plans::more_steps)?, p.base()?);
    Ok(p.gravest(more.into_iter().map(|(_, shots)| (how.clone(), shots)), &base))
}

pub fn restarts(p: &mut DoctorInput) -> Result<Found> {
    let own = p.plan.restarts;
    let (more, base) = (p.run_all(plans::restarts)?, p.base()?);
    if more.is_empty() {
        return Ok(Found::not_checked(format!("the suite has {own} random starts itself"), ""));
    }
    let how = |plan: Plan| format!("{} more random starts", plan.restarts - own);
    Ok(p.gravest(more.into_iter().map(|(plan, shots)| (how(plan), shots)), &base))
}

pub fn step_size(p: &mut DoctorInput) -> Result<Found> {
    let how = |n: f32| match plans::shares_of_eps(p.plan) {
        true => format!("steps of {n} ε/{}", p.plan.search.moves(p.plan.steps)),
        false => format!("steps of {n}/255"),
    };
    let names: Vec<String> = STEP_SIZES.map(how).into_iter().chain(["adaptive steps".into()]).collect();
    let (others, base) = (p.run_all(plans::step_size)?, p.base()?);
    let shots = others.into_iter().map(|(_, shots)| shots);
    Ok(p.gravest(names.into_iter().zip(shots), &base))
}

pub fn one_step(p: &mut DoctorInput) -> Result<Found> {
    let once = p.run_all(plans::one_step)?;
    let images: Vec<_> = once.iter().flat_map(|(_, shots)| images_of(shots)).collect();
    p.outdone(Severity::Error, "a single step of ε", &images)
}

/// Every run starts from the clean image, as in the audit. If the run with the larger ε started from the
/// result of the smaller ε, it could never be worse.
pub fn budget(p: &mut DoctorInput) -> Result<Found> {
    let (others, base) = (p.run_all(plans::budget)?, p.base()?);
    let compared = others.iter().map(|(plan, other)| match plan.eps < p.plan.eps {
        true => p.compared(Severity::Error, "ε/2 instead of ε", other, &base),
        false => p.compared(Severity::Error, "ε instead of 2ε", &base, other),
    });
    Ok(compared.reduce(Found::or_graver).unwrap_or_else(unmeasured))
}

/// Checks the goals that another image instead of the query would reach: the rank of another image, the
/// embedding of the target, or another class. The last rank is not one of them.
pub fn unbounded(p: &mut DoctorInput) -> Result<Found> {
    let runs = p.run_all(plans::unbounded)?;
    let [(plan, shots)] = &runs[..] else { return Ok(unmeasured()) };
    let chance = p.chance();
    let (mut short, mut judged, mut unknown) = (Vec::new(), false, Vec::new());
    for (code, success) in p.means(shots, |(_, after)| after) {
        let queries = p.trials.iter().filter(|t| t.objective.code == code).count();
        let objective = crate::Objective::find(code)?;
        // It is unknown whether an image can come near a foreign target.
        let foreign = p.context.gallery.foreign().is_some() && objective.measure.takes_foreign;
        let reach = if foreign { Reach::Unknown } else { (objective.reach)(plan.form) };
        let most = match reach {
            Reach::Almost(points) => points,
            Reach::Share(points) => points + two_errors(points, queries),
            Reach::Chance => most_by_chance(chance, queries),
            Reach::Unknown => {
                unknown.push(code);
                continue;
            }
        };
        judged = true;
        if 100.0 - success > most {
            short.push(format!("{code} reaches {success:.0} % of its goal"));
        }
    }
    let how = format!("with ε = {} and {} steps", plan.eps, plan.steps);
    let rest = match &unknown[..] {
        [] => String::new(),
        codes => format!("{} not judged, as it is unknown what can be reached", codes.join(", ")),
    };
    Ok(match (&short[..], judged) {
        ([], false) if rest.is_empty() => unmeasured(),
        ([], false) => Found::not_checked(rest, ""),
        ([], true) if rest.is_empty() => Found::passed(format!("yes, {how}")),
        ([], true) => Found::passed(format!("yes, {how}; {rest}")),
        (short, _) => Found::error(format!("{how}, {} only", short.join(", "))),
    })
}

pub fn curve(p: &mut DoctorInput) -> Result<Found> {
    let (mut points, mut last, mut judged) = (Vec::new(), (100.0, 0), false);
    for (Plan { eps, .. }, shots) in p.run_all(plans::curve)? {
        // A query counts as a hit only if it is one under every attack on R@1.
        let mut hits: BTreeMap<usize, bool> = BTreeMap::new();
        for (trial, shot) in p.trials.iter().zip(shots.iter()) {
            if let Some(hit) = shot.outcome.after.hit {
                *hits.entry(trial.query).or_insert(true) &= hit;
                judged |= (trial.objective.reach)(p.plan.form) != Reach::Unknown;
            }
        }
        if hits.is_empty() {
            return Ok(Found::not_checked("the suite has no attack on R@1", ""));
        }
        let left = 100.0 * hits.values().filter(|hit| **hit).count() as f64 / hits.len() as f64;
        last = (left, hits.len());
        points.push(match p.plan.ball.is_box {
            true => format!("{left:.0} at {}", size(p.plan.ball.name, f64::from(eps), 2)),
            false => format!("{left:.0} at {eps:.2}"),
        });
    }
    let text = format!("R@1 under the worst attack: {}", points.join(", "));
    if !judged {
        return Ok(Found::not_checked(
            format!("{text}. Not judged, as it is unknown what can be reached"),
            "",
        ));
    }
    let (left, queries) = last;
    Ok(Found::judged(left > most_by_chance(p.chance(), queries), Severity::Warning, text))
}

/// A shared perturbation is drawn once for all its queries; the best has the lowest mean loss.
pub fn noise(p: &mut DoctorInput) -> Result<Found> {
    let Plan { eps, ball, .. } = *p.plan;
    let shape = p.model.shape();
    let free = |t: &Trial| p.plan.free(shape, t.objective, &p.context.gallery.ids[t.query]);
    let free = p.trials.iter().map(free).collect::<Result<Vec<_>>>()?;
    let mut best: Vec<(f64, Vec<f32>)> = p.at_start.iter().copied().zip(p.clean.clone()).collect();
    let draw = |trials: &Vec<usize>| {
        let t = &p.trials[trials[0]];
        let id = trials
            .iter()
            .map(|&i| p.context.gallery.ids[p.trials[i].query].as_str())
            .min()
            .unwrap_or_default();
        Draw::new(p.plan.seed, t.objective.code, id, crate::NOISE)
    };
    let mut draws: Vec<Draw> = p.perturbations.iter().map(draw).collect();
    p.work.begin(&Attack::Noise);
    let each = Attack::Noise.amount(p.plan, p.trials, Room::of(p.model)).most / NOISE_IMAGES;
    for k in 0..NOISE_IMAGES {
        p.work.record(Passes { made: k * each, left: (NOISE_IMAGES - k) * each })?;
        let mut images = p.clean.clone();
        for (trials, draw) in p.perturbations.iter().zip(&mut draws) {
            let by: Vec<f32> = (0..p.model.pixels())
                .map(|_| {
                    let u = 2.0 * draw.unit() - 1.0;
                    // Even numbers draw corners of the box, odd numbers points inside. Other balls lie within
                    // this box.
                    if k % 2 == 0 { u.signum() } else { u }
                })
                .collect();
            for &i in trials {
                images[i].iter_mut().zip(&by).for_each(|(x, by)| *x += eps * by);
                let free = free[i].as_deref();
                Bound { ball, eps, centre: &p.clean[i], pixels: true, free }.project(&mut images[i]);
            }
        }
        let (losses, _) = p.losses(&images)?;
        for trials in &p.perturbations {
            let (now, least): (f64, f64) = trials
                .iter()
                .map(|&i| (losses[i], best[i].0))
                .fold((0.0, 0.0), |(now, least), (loss, best)| (now + loss, least + best));
            if now < least {
                trials.iter().for_each(|&i| best[i] = (losses[i], std::mem::take(&mut images[i])));
            }
        }
    }
    let best: Vec<Vec<f32>> = best.into_iter().map(|(_, image)| image).collect();
    p.outdone(Severity::Error, &format!("the best of {NOISE_IMAGES} random images"), &best)
}

pub fn black_box(p: &mut DoctorInput) -> Result<Found> {
    let runs = p.run_all(plans::black_box)?;
    let [(_, shots)] = &runs[..] else {
        return Ok(Found::not_checked("the suite's own attack is this random search", ""));
    };
    p.outdone(
        Severity::Error,
        &format!("a random search of {RANDOM_IMAGES} images (Square)"),
        &images_of(shots),
    )
}

pub fn transfer(p: &mut DoctorInput) -> Result<Found> {
    let Some((mut model, context)) = p.surrogate.take() else {
        let how = "Name another model of the same input: --surrogate";
        return Ok(Found::not_checked("there is no other model", how));
    };
    p.work.begin(&Attack::Transfer);
    let shots = shoot(&mut model, &context, p.images, p.trials, p.plan, &mut p.work)?;
    let images: Vec<Vec<f32>> = shots.into_iter().map(|s| s.image).collect();
    p.outdone(Severity::Warning, "an attack made on the other model", &images)
}

pub fn eight_bit(p: &mut DoctorInput) -> Result<Found> {
    let base = p.base()?;
    let gained = p.means(&base, |(before, after)| after - before);
    if gained.is_empty() {
        return Ok(unmeasured());
    }
    if !gained.values().any(|gain| *gain > MOST_LOST) {
        let why = format!(
            "no attack gains more than {MOST_LOST:.0} points of success that rounding could take away"
        );
        return Ok(Found::not_checked(why, ""));
    }
    let images: Vec<Vec<f32>> =
        base.iter().map(|s| s.image.iter().map(|v| file_value(*v)).collect()).collect();
    let (_, points) = crate::losses(p.model.workers(), p.context, p.plan.form, p.trials, &images)?;
    let rounded: Vec<Shot> = (images.into_iter().zip(points.rows()).zip(p.trials).zip(base.iter()))
        .map(|(((image, point), trial), shot)| {
            let after = measure(p.context, p.plan.form, trial, &point.to_vec());
            Shot { outcome: Outcome { after, ..shot.outcome.clone() }, image }
        })
        .collect();
    let gains = p.gains(&base, &rounded);
    if let Some(unjudged) = p.unjudged(&gains) {
        return Ok(unjudged);
    }
    let lost = clear(&gains, MOST_LOST);
    Ok(match lost.is_empty() {
        true => Found::passed("rounded to 256 grey levels they are as effective"),
        false => Found::warning(format!("rounded to 256 grey levels they lose points of success: {lost}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: chance is 7 %. One hit of 8 queries is 12.5 %, within 7 + 1 + 2·√(7·93/8) = 26.0; a quarter
    /// of 200 queries is beyond 7 + 1 + 2·√(7·93/200) = 11.6.
    #[test]
    fn a_hit_of_a_few_queries_is_chance() {
        let most = [8, 200].map(|queries| most_by_chance(7.0, queries));
        assert!((most[0] - 26.04).abs() < 0.01 && (most[1] - 11.61).abs() < 0.01, "{most:?}");
    }
}
