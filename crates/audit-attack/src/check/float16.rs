//! Checks whether attacks with float16 steps were as strong as with float32 steps. A sample of the trials is
//! repeated with float32 steps, and the scores of the same trials are compared.

use super::attacked::Outcomes;
use audit_base::numbers::variance;
use audit_gallery::space::Gallery;
use audit_report::facts::term::Term;
use audit_report::judge::score::{self, Replicate};
use audit_report::record::{
    Attack, ByTrial, Found, HalfComparison, HalfTerm, Outcome, Report, Score, ScoreName, Scores, Severity,
    reason,
};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// The sample contains one query in this many,
const ONE_IN: usize = 10;
/// but at least this many queries,
const MIN_QUERIES: usize = 128;
/// and at most this many.
const MAX_QUERIES: usize = 1024;
/// Largest accepted difference of scores, in points.
pub const POINTS: f64 = 0.5;
/// Number of standard errors from which a single attack's difference counts as real.
const ERRORS: f64 = 3.0;

/// The queries to repeat, of all queries of a run (gallery indices, possibly repeated). A hash of seed and id
/// selects them, so they are the same for every attack, in every part of a run and after every interruption.
pub fn sample(queries: impl Iterator<Item = usize>, gallery: &Gallery, seed: u64) -> BTreeSet<usize> {
    let queries: BTreeSet<usize> = queries.collect();
    let count = queries.len().div_ceil(ONE_IN).clamp(MIN_QUERIES, MAX_QUERIES);
    let hash = |query: usize| {
        let mut hash = Sha256::new_with_prefix("repeated in float32");
        hash.update(seed.to_le_bytes());
        hash.update(&gallery.ids[query]);
        <[u8; 32]>::from(hash.finalize())
    };
    let mut drawn: Vec<([u8; 32], usize)> = queries.into_iter().map(|q| (hash(q), q)).collect();
    drawn.sort_unstable();
    drawn.into_iter().take(count).map(|(_, query)| query).collect()
}

/// Scores the sample of `report` in float16 and float32; `None` if there is no sample.
pub fn compare(report: &Report) -> Option<HalfComparison> {
    let half = report.half_precision.as_ref().filter(|h| !h.sample.is_empty())?;
    let mut all = ByTrial::new(report.outcomes.iter());
    let ours: Vec<Outcome> = half.sample.iter().filter_map(|o| all.take(o)).cloned().collect();
    let (basis, seed) = (report.basis(), report.seed);
    let [(half_rows, half_scores), (full_rows, full_scores)] =
        [&ours, &half.sample].map(|o| score::score(o, &[], &basis, &ScoreName::ALL, seed));
    let [re_half, re_full] =
        [&ours, &half.sample].map(|o| score::replicates(o, &basis, score::RESAMPLES, seed));
    let differences = |of: &dyn Fn(&Replicate) -> Option<f64>| -> Vec<f64> {
        re_half.iter().zip(&re_full).filter_map(|(h, f)| Some(of(h)? - of(f)?)).collect()
    };

    let value = |row: &Attack| row.resistance.per_trial.or(row.ers_term);
    let resampled = |i: usize, r: &Replicate| match half_rows[i].resistance.per_trial {
        Some(_) => r.means[i].as_ref()?.per_trial,
        None => Some((Term::find(&half_rows[i].code)?.ers?)(r.means[i].as_ref()?.after)),
    };
    let mut attacks = Vec::new();
    for (i, (h, f)) in half_rows.iter().zip(&full_rows).enumerate() {
        if let Some((half, full)) = value(h).zip(value(f)) {
            let error = variance(&differences(&|r| resampled(i, r))).sqrt();
            attacks.push(HalfTerm { code: h.code.clone(), half, full, difference: half - full, error });
        }
    }
    let count = half_rows.len();
    let scores =
        |of: fn(&Scores) -> Option<&Score>| [&half_scores, &full_scores].map(|all| Some(of(all)?.value));
    let terms = [&half_rows, &full_rows].map(|rows| mean(rows.iter().map(value).collect()));
    type Kind<'a> = (&'a str, [Option<f64>; 2], &'a dyn Fn(&Replicate) -> Option<f64>);
    let kinds: [Kind; 3] = [
        ("ARS", scores(|s| s.ars.as_ref()), &|r| r.ars),
        ("ERS", scores(|s| s.ers.as_ref()), &|r| r.ers),
        ("mean of the attacks' terms", terms, &|r| mean((0..count).map(|i| resampled(i, r)).collect())),
    ];
    let found = kinds.iter().find_map(|(name, [in_half, in_full], in_replicate)| {
        Some((name, (*in_half)?, (*in_full)?, score::interval(differences(in_replicate))))
    });
    found.map(|(name, in_half, in_full, interval)| HalfComparison {
        queries: half.sample.iter().map(|o| &o.query).collect::<BTreeSet<_>>().len(),
        trials: half.sample.len(),
        score: name.to_string(),
        half: in_half,
        full: in_full,
        difference: in_half - in_full,
        interval,
        attacks,
    })
}

/// The mean; `None` if a value is missing.
fn mean(values: Vec<Option<f64>>) -> Option<f64> {
    let count = values.len() as f64;
    values.into_iter().sum::<Option<f64>>().map(|sum| sum / count)
}

/// Reports an error if float16 made the attack weaker: the sample's score, or that of a single attack, is
/// higher by more than [`POINTS`] and beyond chance.
///
/// Pairing removes the noise from the choice of queries, but not all noise. In 32 steps, one different sign
/// in a thousand leads to a different image. If an attack is close to success, some trials then end
/// differently, in both directions (on a hardened net, 64 queries give ± 1.7 points). The finding states what
/// the sample cannot decide.
pub(super) fn weaker(all: &Outcomes) -> Found {
    let Some(half) = all.half else { return Found::passed("they ran in float32") };
    let ran = format!(
        "the attacks' steps ran in float16 (cotangents times {}; on the first images {:.1} % of the gradient's signs are \
         those of float32, and {:.1} % of it is zero, in float32 {:.1} %), and every outcome was measured in float32",
        half.loss_scale, half.sign_agreement, half.zero, half.zero_full
    );
    let Some(c) = &half.comparison else {
        let why = format!(
            "{ran}. No trial was repeated with float32 steps that a score could be made of: nothing shows that the attacks are \
             as strong as with those"
        );
        return Found::not_checked(why, reason::HALF_PRECISION.advice).weighing(Severity::Warning);
    };
    let interval = c.interval.map_or(String::new(), |(low, high)| format!(" (95 % {low:+.2} to {high:+.2})"));
    let text = format!(
        "{ran}. On a sample of {} queries ({} trials) repeated with float32 steps, {} is {:.2} with float16 steps and {:.2} \
         with float32 ones, a difference of {:+.2}{interval}",
        c.queries, c.trials, c.score, c.half, c.full, c.difference
    );
    let clear = |t: &&HalfTerm| t.difference > POINTS && t.difference > ERRORS * t.error;
    let weaker: Vec<String> =
        c.attacks.iter().filter(clear).map(|t| format!("{} by {:.1} points", t.code, t.difference)).collect();
    let blunter = if weaker.is_empty() { String::new() } else { format!(" ({})", weaker.join(", ")) };
    let (low, high) = c.interval.unwrap_or((c.difference, f64::INFINITY));
    if (c.difference > POINTS && low > 0.0) || !weaker.is_empty() {
        return Found::error(format!("{text}: float16 made the attacks weaker{blunter}"));
    }
    if c.difference < -POINTS && high < 0.0 {
        let text = format!("{text}: float16 made the attacks stronger. Compare only with audits in float16");
        return Found::warning(text);
    }
    if high > POINTS {
        let why = format!(
            "{text}: too few queries to decide whether float16 made the attacks weaker by {POINTS} points"
        );
        let how = format!("Attack more of them. {}", reason::HALF_PRECISION.advice);
        return Found::not_checked(why, how).weighing(Severity::Warning);
    }
    Found::note(text)
}
