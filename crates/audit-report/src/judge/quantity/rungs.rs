//! Numbers at single ε of the ladder, such as `robust_r1@2/255`.

use super::rows::{ROBUST_SCORE, Spread, distinct, leaked, named};
use super::{Follows, Needs, Quantity, ROBUST, ROBUST_TOP1};
use crate::facts::Norm;
use crate::judge::ladder;
use crate::judge::reading::Reading;
use crate::judge::score::{Replicate, Resampled};
use crate::judge::share::wilson;
use crate::judge::stars::{self, LEVELS, Star};
use crate::record::{Report, Rung, Space};
use audit_base::{Error, Result};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The numbers at a rung of the ladder of ε.
pub(super) struct Rungs {
    /// The beginning of their names.
    prefix: &'static str,
    /// The number at the largest ε.
    pub(super) of: fn() -> &'static Quantity,
    pub(super) as_file: bool,
    read: fn(&Rung) -> Option<Spread>,
    /// The size from which a query fails.
    fails_at: fn(&Star) -> f64,
}

/// For all images, and for files.
const RUNG: Rungs = Rungs {
    prefix: "robust_r1@",
    of: || ROBUST,
    as_file: false,
    read: |rung| Some((rung.r1, rung.interval)),
    fails_at: |star| star.size,
};
const FILE_RUNG: Rungs = Rungs {
    prefix: "robust_r1_file@",
    as_file: true,
    read: |rung| Some((rung.as_file?, rung.as_file_interval)),
    fails_at: |star| star.as_file,
    ..RUNG
};

pub(super) static RUNGS: [Rungs; 4] = [
    RUNG,
    FILE_RUNG,
    Rungs { prefix: "robust_top1@", of: || ROBUST_TOP1, ..RUNG },
    Rungs { prefix: "robust_top1_file@", of: || ROBUST_TOP1, ..FILE_RUNG },
];

/// The rows of requested rungs. There is one for each name, as of every other row.
static REQUESTED: Mutex<Vec<&'static Quantity>> = Mutex::new(Vec::new());

impl Rungs {
    /// The row called `name`, such as `robust_r1@2/255`; `None` if it names no rung. Errors (exit code 2): ε
    /// is no number of 255ths.
    pub(super) fn named(name: &str) -> Option<Result<&'static Quantity>> {
        let (kind, eps) = Rungs::parse(name)?;
        Some(eps.map(|eps| kind.row_at(eps)).ok_or_else(|| {
            Error::usage(format!(
                "metric `{name}`: expected an ε in 255ths after the @, as in {}2/255 or {}0.5/255",
                kind.prefix, kind.prefix
            ))
        }))
    }

    /// The kind of rung that a name is about, and its ε in 255ths, if it states one.
    pub(super) fn parse(name: &str) -> Option<(&'static Rungs, Option<f64>)> {
        let lower = name.to_lowercase();
        let (kind, eps) = RUNGS.iter().find_map(|kind| Some((kind, lower.strip_prefix(kind.prefix)?)))?;
        let number = eps.strip_suffix("/255").and_then(|levels| levels.parse::<f64>().ok());
        // In other norms than the largest change of a pixel, ε may be larger than 255/255.
        Some((kind, number.filter(|eps| *eps > 0.0 && eps.is_finite())))
    }

    /// The row at `eps`, in 255ths.
    pub(super) fn row_at(&'static self, eps: f64) -> &'static Quantity {
        // Enough digits to tell the rungs of any ladder apart.
        let eps = (eps * 1e4).round() / 1e4;
        let name = format!("{}{eps}/255", self.prefix);
        let mut rows = REQUESTED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = rows.iter().find(|row| row.name == name) {
            return known;
        }
        let read = move |report: &Report| self.reading(report, eps);
        let row = leaked(Quantity {
            name: named(name),
            needs: Needs::Ladder,
            classes: (self.of)().classes,
            leading: !self.as_file,
            read: leaked(read),
            follows: Follows::Outcomes(
                leaked(move |of: &Resampled, r: &Replicate| ladder::robust_in(of, r, eps, self.fails_at)),
                Some(leaked(move |report: &Report| self.withstanding(report, eps))),
            ),
            ..ROBUST_SCORE
        });
        rows.push(row);
        row
    }

    /// Whether each query that the strong search attacked is correct under changes of at most `eps`, in
    /// 255ths.
    fn withstanding(&self, report: &Report, eps: f64) -> Option<BTreeMap<String, bool>> {
        let stars = stars::stars(&report.outcomes)?;
        let eps = stars::on_ladder(eps, stars::most(report));
        distinct(stars.iter().map(|(query, star)| (*query, stars::withstands((self.fails_at)(star), eps))))
    }

    /// The number at `eps` that a report has, or that follows from its outcomes.
    fn reading(&self, report: &Report, eps: f64) -> Option<Reading> {
        let robust = report.scores.robust().filter(|_| (self.of)() == Quantity::robust(report))?;
        robust.ladder.as_ref()?;
        if let Some(rung) = rung(report, eps) {
            let (value, interval) = (self.read)(rung)?;
            return Some(Reading::new(value, interval, robust.queries));
        }
        let eps = stars::on_ladder(eps, stars::most(report));
        self.counted(report, eps).filter(|_| self.not_at(report, eps).is_none())
    }

    /// The number at the rung of `eps`, within the ε that the report stores for it.
    pub(super) fn at_stored_eps(&self, report: &Report, eps: f64) -> Option<f64> {
        let stored = LEVELS * f64::from(rung(report, eps)?.eps);
        Some(self.counted(report, stored)?.value)
    }

    /// The share of queries that are correct under changes of at most `eps`, in 255ths, as outcomes say.
    fn counted(&self, report: &Report, eps: f64) -> Option<Reading> {
        let stars = stars::stars(&report.outcomes)?;
        let left = stars.iter().filter(|(_, star)| stars::withstands((self.fails_at)(star), eps)).count();
        let value = 100.0 * left as f64 / stars.len() as f64;
        Some(Reading::new(value, Some(wilson(left, stars.len())), stars.len()))
    }

    /// Why there is no number at `eps`, in 255ths; `None` if there is one.
    pub(super) fn not_at(&self, report: &Report, eps: f64) -> Option<String> {
        let norm = &report.suite.norm;
        if self.as_file && !Norm::counts_levels(norm) {
            return Some(format!("files are searched for in the norm linf only, and this audit's is {norm}"));
        }
        let [eps, most] = [eps, stars::most(report)].map(|eps| stars::on_ladder(eps, stars::most(report)));
        let levels = self.as_file || report.suite.space == Space::File;
        if eps > most {
            return Some(
                format!("its largest ε is {most:.4}").trim_end_matches('0').trim_end_matches('.').to_string()
                    + "/255",
            );
        }
        (levels && eps < 1.0).then(|| "a file differs from another one by 1/255 at least".into())
    }
}

/// The rung of a report's ladder that `eps`, in 255ths, stands for.
fn rung(report: &Report, eps: f64) -> Option<&Rung> {
    let at = |eps: f64| stars::on_ladder(eps, stars::most(report));
    let rungs = &report.scores.robust()?.ladder.as_ref()?.rungs;
    rungs.iter().find(|rung| at(LEVELS * f64::from(rung.eps)) == at(eps))
}
