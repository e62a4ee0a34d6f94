//! The numbers of a report by name: a row for each, which every output, gate and comparison uses. `rows.rs`
//! has the rows, but for those at single ε, which `rungs.rs` makes as they are requested.

mod rows;
mod rungs;
#[cfg(test)]
mod tests;

use super::division::Division;
use super::reading::Reading;
use super::score::{Replicate, Resampled};
use super::stars::{self, LEVELS};
use crate::facts::term::Term;
use crate::record::{Breakdown, Corrupted, Corruptions, Report, Rung, ScoreName, length};
use audit_base::error::nearest;
use audit_base::{Error, Result};
use audit_gallery::corruption::Corruption;
use rows::{ALL, ATTACKED, CLEAN, SCORES};
use rungs::{RUNGS, Rungs};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Where users find the names of all quantities.
pub(super) const LISTED: &str =
    "`audit gate --help` says how metrics are named, and `numbers` in a JSON report lists those that it has";

/// Digits after the decimal point of changes of a length.
const LENGTH_DIGITS: usize = 4;

/// What Python and tables put before the names of numbers on clean images.
const CLEAN_PREFIX: &str = "clean_";

/// A number that reports can have. Two are equal if they are the same row.
pub struct Quantity {
    /// Such as `robust_r1`, `ars`, `ars.table`, `ers`, `attack.ES:R`, `attack.CA+.resistance` or `benign.r1`.
    pub name: &'static str,
    /// Name in sentences; empty for numbers that are only in tables.
    pub label: &'static str,
    /// The lowest and the highest possible value.
    pub range: [f64; 2],
    /// Digits after the decimal point.
    pub digits: usize,
    /// Default tolerance against a baseline, in its own unit.
    pub tolerance: f64,
    /// Whether a smaller number means a more robust model.
    pub lower_is_better: bool,
    /// Address of the text that defines it.
    pub source: &'static str,
    /// What a suite must contain for a report to have it.
    pub needs: Needs,
    /// Whether it judges a model as a whole: a score, or robust R@1 under another name. It is withheld on few
    /// queries.
    pub score: bool,
    /// Whether the number depends on an ε that is shown with it.
    pub at_eps: bool,
    /// Whether it is a size of changes, in 255ths.
    pub size: bool,
    /// Whether only images with classes have it, or only images without; `None` if all may.
    pub classes: Option<bool>,
    /// Whether it exists only for comparison with published tables.
    pub as_published: bool,
    /// Whether comparisons show it before the others.
    pub leading: bool,
    /// For the worst value of any class or group: the number of all queries, and the division.
    pub part_of: Option<(&'static Quantity, &'static Division)>,
    read: &'static Read,
    follows: Follows,
    void: fn(&Report) -> bool,
}

/// Reads a number from a report.
type Read = dyn Fn(&Report) -> Option<Reading> + Send + Sync;

/// What a suite must contain for a report to have a number.
#[derive(Clone, Copy)]
pub enum Needs {
    /// Every report may have it.
    Nothing,
    /// A score.
    Score(ScoreName),
    /// A ladder of ε.
    Ladder,
    /// A search for the smallest perturbations.
    Smallest,
    /// An attack with this term.
    Term(&'static Term),
    /// A natural corruption, or any.
    Corruption(Option<&'static Corruption>),
}

/// How a number follows from single queries, for intervals of differences and to check it.
#[derive(Clone, Copy)]
pub(super) enum Follows {
    /// It is of clean queries.
    Clean(Clean),
    /// Its value in a resample of the outcomes. If it is a share of queries, each of which counts or doesn't:
    /// which do.
    Outcomes(&'static InReplicate, Option<&'static OfQueries>),
    /// It is a mean over corrupted queries. Its value in the table of corruptions, and the values of a query
    /// under one corruption.
    Corruptions(&'static OfCorruptions, &'static OfCorrupted),
}

/// How a number of clean queries follows from single ones.
#[derive(Clone, Copy)]
pub(super) enum Clean {
    /// It is a mean over queries of a value in [0, 1], by the rank of the first match.
    First(&'static OfFirst),
    /// It is a mean over queries of a value that reports don't have for each query.
    Ranking,
    /// It is of all queries together.
    Together,
}

pub(super) type OfFirst = dyn Fn(usize) -> f64 + Send + Sync;
pub(super) type InReplicate = dyn Fn(&Resampled, &Replicate) -> Option<f64> + Send + Sync;
/// By the queries' ids; `None` if the number is no share of this report's queries.
pub(super) type OfQueries = dyn Fn(&Report) -> Option<BTreeMap<String, bool>> + Send + Sync;
pub(super) type OfCorruptions = dyn Fn(&Corruptions) -> Option<Reading> + Send + Sync;
pub(super) type OfCorrupted = dyn Fn(&Corrupted) -> Vec<f64> + Send + Sync;

/// R@1 under the strong search.
pub const ROBUST: &Quantity = &SCORES[0];
/// Robust R@1 without classes: the share of the queries whose nearest image stays the same.
pub const ROBUST_TOP1: &Quantity = &SCORES[1];
/// The ε at which half of the correct queries fail, in 255ths.
pub const EPS50: &Quantity = &SCORES[2];
/// The adversarial resistance score.
pub const ARS: &Quantity = &SCORES[3];
/// ARS from the ratios of means.
pub const ARS_TABLE: &Quantity = &SCORES[4];
/// The empirical robustness score.
pub const ERS: &Quantity = &SCORES[5];
/// ARS of the results of the strong search.
pub const ARS_STRONG: &Quantity = &SCORES[6];
/// The median of the smallest perturbations, in 255ths.
pub const MEDIAN_EPS: &Quantity = &SCORES[7];
/// R@1 on clean images.
pub const CLEAN_R1: &Quantity = &CLEAN[0];

impl Quantity {
    /// Why the ladder of a report has no number at the ε of this row; `None` if it has one, or if the row is
    /// about no rung. The report need not have outcomes yet.
    pub fn beside_ladder(&self, report: &Report) -> Option<String> {
        let (kind, eps) = Rungs::parse(self.name)?;
        kind.not_at(report, eps?)
    }

    /// The number at a rung as earlier versions counted it: within the ε that the report stores, such as
    /// 3.99968/255, and not within the 4/255 that it stands for. `None` if the row is about no rung of the
    /// report.
    pub(super) fn at_stored_eps(&self, report: &Report) -> Option<f64> {
        let (kind, eps) = Rungs::parse(self.name)?;
        kind.at_stored_eps(report, eps?)
    }

    /// Every quantity, in the order of reports.
    pub fn all() -> impl ExactSizeIterator<Item = &'static Quantity> {
        ALL.iter().copied()
    }

    /// The quantity called `name`. Case is ignored, a typographic minus sign is accepted, and `clean_r1`, as
    /// Python and tables call it, is `benign.r1`. Errors (exit code 2): no quantity has this name.
    pub fn find(name: &str) -> Result<&'static Quantity> {
        let plain = name.trim().replace('\u{2212}', "-");
        let plain = match plain.split_at_checked(CLEAN_PREFIX.len()) {
            Some((start, of)) if start.eq_ignore_ascii_case(CLEAN_PREFIX) => format!("benign.{of}"),
            _ => plain,
        };
        if let Some(rung) = Rungs::named(&plain) {
            return rung;
        }
        Quantity::all().find(|q| q.name.eq_ignore_ascii_case(&plain)).ok_or_else(|| {
            let names: Vec<&str> = Quantity::all().map(|q| q.name).chain(["clean_r1"]).collect();
            Error::usage(format!(
                "unknown metric `{name}`. The nearest are {}. {LISTED}",
                // Tables print R@1.
                nearest(&plain.to_lowercase().replace("r@", "r"), &names),
            ))
        })
    }

    /// Every quantity that a report may have, in the order of reports: all, and the rungs of its own ladder.
    pub fn of(report: &Report) -> impl Iterator<Item = &'static Quantity> {
        let ladder = report.scores.robust().and_then(|robust| robust.ladder.as_ref());
        let at = |rung: &Rung| stars::on_ladder(LEVELS * f64::from(rung.eps), stars::most(report));
        let rungs: Vec<f64> = ladder.iter().flat_map(|l| &l.rungs).map(at).collect();
        // Robust R@1 at the largest ε is already a row.
        let of = move |kind: &'static Rungs| {
            rungs.clone().into_iter().skip(usize::from(!kind.as_file)).map(|eps| kind.row_at(eps))
        };
        let rungs = RUNGS.iter().filter(|kind| (kind.of)() == Quantity::robust(report)).flat_map(of);
        let (first, rest) = (Quantity::all().take(SCORES.len()), Quantity::all().skip(SCORES.len()));
        first.chain(rungs).chain(rest)
    }

    /// The numbers of a rung of a report: robust R@1 or robust top-1, for all images and for files.
    pub fn at_rung(report: &Report, rung: &Rung) -> Vec<&'static Quantity> {
        let own = RUNGS.iter().filter(|kind| (kind.of)() == Quantity::robust(report));
        let at = stars::on_ladder(LEVELS * f64::from(rung.eps), stars::most(report));
        own.map(|kind| kind.row_at(at)).collect()
    }

    /// The number of the strong search in a report: robust R@1, or robust top-1 if images have no classes.
    pub fn robust(report: &Report) -> &'static Quantity {
        if report.data.has_classes() { ROBUST } else { ROBUST_TOP1 }
    }

    /// Whether it is the number of the strong search in any report.
    pub fn is_robust(&'static self) -> bool {
        self == ROBUST || self == ROBUST_TOP1
    }

    /// The score called `name`.
    pub fn score(name: ScoreName) -> &'static Quantity {
        match name {
            ScoreName::Ers => ERS,
            ScoreName::Ars => ARS,
            ScoreName::ArsStrong => ARS_STRONG,
        }
    }

    /// The means of all terms under attack.
    pub fn of_terms() -> impl Iterator<Item = &'static Quantity> {
        ATTACKED.iter()
    }

    /// The mean of a term under attack; `None` for a term that is not in the table.
    pub fn after(term: &Term) -> Option<&'static Quantity> {
        ATTACKED.iter().find(|q| q.term() == Some(term))
    }

    /// A term's resistance from the ratio of means; `None` if it has no resistance.
    pub fn ratio(term: &Term) -> Option<&'static Quantity> {
        Quantity::all().find(|q| q.as_published && q.term() == Some(term))
    }

    /// The numbers that are a share of queries, so that classes and groups of the queries have it too.
    pub fn divided() -> impl Iterator<Item = &'static Quantity> {
        let terms = ATTACKED.iter().filter(|q| q.term().is_some_and(|term| term.divided));
        std::iter::once(ROBUST).chain(terms)
    }

    /// The term of the number, if it has one.
    pub fn term(&self) -> Option<&'static Term> {
        if let Needs::Term(term) = self.needs { Some(term) } else { None }
    }

    /// The number of all queries, if this is the worst of any class or group; otherwise the number itself.
    pub fn whole(&'static self) -> &'static Quantity {
        self.part_of.map_or(self, |(whole, _)| whole)
    }

    /// Why a report on images with classes, or without, can't have it; `None` if it may.
    pub fn beside(&self, has_classes: bool) -> Option<&'static str> {
        match (self.classes, has_classes) {
            (Some(true), false) => Some("the images have no classes"),
            (Some(false), true) => Some("it is for images without classes; robust R@1 takes its place"),
            _ => None,
        }
    }

    /// Whether it depends on attacks. Retrieval without an attacker may be of a sample of the queries too:
    /// clean R@1 of a large data set is, and so are natural corruptions.
    pub fn attacked(&self) -> bool {
        matches!(self.follows, Follows::Outcomes(..))
    }

    /// The saved value. Outputs show its [`row`](Quantity::row).
    pub(super) fn saved(&self, report: &Report) -> Option<Reading> {
        (self.read)(report)
    }

    /// The saved value, even if reports for people don't show it; `None` if the report doesn't have it.
    pub fn value(&self, report: &Report) -> Option<f64> {
        Some(self.saved(report)?.value)
    }

    /// Whether a finding invalidates it, so that reports strike it through.
    pub(super) fn void(&self, report: &Report) -> bool {
        (self.void)(report)
    }

    /// How it follows from single queries.
    pub(super) fn follows(&self) -> Follows {
        self.follows
    }

    /// Its value in a resample of `of`; `None` if it is undefined there, or doesn't follow from outcomes.
    pub fn in_replicate(&self, of: &Resampled, replicate: &Replicate) -> Option<f64> {
        if let Follows::Outcomes(value, _) = self.follows { value(of, replicate) } else { None }
    }

    /// Formats a value.
    pub fn show(&self, value: f64) -> String {
        format!("{value:.*}", self.digits)
    }

    /// [`Quantity::show`] of a size in a `norm` that does not count grey levels: without the factor 255.
    pub fn show_in(&self, norm: Option<&str>, value: f64) -> String {
        if norm.is_some() { length(value / LEVELS) } else { self.show(value) }
    }

    /// Formats a change, with its sign.
    pub fn show_change(&self, change: f64) -> String {
        self.show_change_in(None, change)
    }

    /// [`Quantity::show_change`] of a size in a `norm` that does not count grey levels.
    pub fn show_change_in(&self, norm: Option<&str>, change: f64) -> String {
        let (change, digits) = match norm {
            Some(_) => (change / LEVELS, LENGTH_DIGITS),
            None => (change, self.digits),
        };
        // A change that rounds to zero is shown as "+0.0", not "-0.0".
        let shown = format!("{change:+.digits$}");
        if shown.trim_start_matches(['+', '-']).chars().all(|c| matches!(c, '0' | '.')) {
            shown.replace('-', "+")
        } else {
            shown
        }
    }
}

/// The breakdown of a number among those of a report.
pub(super) fn breakdown<'b>(all: &'b [Breakdown], of: &Quantity, by: &Division) -> Option<&'b Breakdown> {
    all.iter().find(|b| b.by == by.name && b.metric == of.name)
}

impl std::fmt::Debug for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        std::ptr::eq(self, other)
    }
}

/// Serialised as its name.
impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(self.name)
    }
}
