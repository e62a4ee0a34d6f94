//! The numbers of a report by name: a row for each, which every output, gate and comparison uses.

use super::division::{DIVISIONS, Division};
use super::ladder;
use super::reading::{self, Reading, counted, queries};
use super::score::{Means, Replicate, Resampled};
use super::share::{counts, wilson};
use super::stars::{self, LEVELS, Star};
use super::survivors::survivors;
use crate::facts::term::{TERMS, Term};
use crate::facts::{Facts, Norm, is_robust_term};
use crate::record::source::{ADJUSTED_MUTUAL_INFORMATION, CLUSTERING, RANKED_RETRIEVAL, RETRIEVAL};
use crate::record::{
    Attack, Benign, Breakdown, Corrupted, CorruptionRow, Corruptions, Hub, Report, Rung, ScoreName, Space,
    reason, source,
};
use audit_base::error::nearest;
use audit_base::{Error, Result};
use audit_gallery::corruption::{CORRUPTIONS, Corruption, STRENGTHS};
use audit_gallery::space::benign::CMC;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Where users find the names of all quantities.
pub(super) const LISTED: &str =
    "`audit gate --help` says how metrics are named, and `numbers` in a JSON report lists those that it has";

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
/// R@1 on clean images.
pub const CLEAN_R1: &Quantity = &CLEAN[0];

/// The defaults of rows, which differ in name and reader.
const USUAL: Quantity = Quantity {
    name: "",
    label: "",
    range: [0.0, 100.0],
    digits: 1,
    tolerance: 1.0,
    lower_is_better: false,
    source: source::CA_TRIDE,
    needs: Needs::Nothing,
    score: false,
    at_eps: false,
    classes: None,
    as_published: false,
    leading: false,
    part_of: None,
    read: &|_| None,
    follows: TOGETHER,
    void: |_| false,
};

/// A score depends on every attack.
const SCORE: Quantity =
    Quantity { score: true, leading: true, void: |report| report.errors().next().is_some(), ..USUAL };

/// Results of the strong search. It counts what softened and gradient-free members found, so it stays valid
/// if gradients are masked.
const ROBUST_SCORE: Quantity = Quantity {
    source: source::ENSEMBLE,
    void: |report| report.errors().any(|w| !reason::MASKED_GRADIENTS.made(w)),
    ..SCORE
};

static SCORES: [Quantity; 7] = [
    Quantity {
        name: "robust_r1",
        label: "robust R@1",
        at_eps: true,
        classes: Some(true),
        read: &|report| report.scores.robust_r1.as_ref().map(Reading::of_robust),
        follows: Follows::Outcomes(&|_, replicate| replicate.robust, Some(&withstanding)),
        ..ROBUST_SCORE
    },
    Quantity {
        name: "robust_top1",
        label: "robust top-1",
        at_eps: true,
        classes: Some(false),
        read: &|report| report.scores.robust_top1.as_ref().map(Reading::of_robust),
        follows: Follows::Outcomes(&|_, replicate| replicate.robust, Some(&withstanding)),
        ..ROBUST_SCORE
    },
    Quantity {
        name: "eps50",
        range: [0.0, 255.0],
        digits: 2,
        tolerance: 0.1,
        needs: Needs::Ladder,
        read: &|report| report.scores.robust()?.ladder.as_ref()?.eps50.as_ref().map(Reading::of_eps50),
        follows: Follows::Outcomes(&ladder::eps50_in, None),
        ..ROBUST_SCORE
    },
    Quantity {
        name: "ars",
        needs: Needs::Score(ScoreName::Ars),
        read: &|report| score(report, ScoreName::Ars),
        follows: Follows::Outcomes(&|_, replicate| replicate.ars, None),
        ..SCORE
    },
    Quantity {
        name: "ars.table",
        needs: Needs::Score(ScoreName::Ars),
        as_published: true,
        read: &|report| Reading::of_ratio(&report.scores, fewest(report, ScoreName::Ars)),
        follows: Follows::Outcomes(&|_, replicate| replicate.ars_table, None),
        ..SCORE
    },
    Quantity {
        name: "ers",
        source: source::DEEP_RANKING,
        needs: Needs::Score(ScoreName::Ers),
        read: &|report| score(report, ScoreName::Ers),
        follows: Follows::Outcomes(&|_, replicate| replicate.ers, None),
        ..SCORE
    },
    Quantity {
        name: "ars_strong",
        needs: Needs::Score(ScoreName::ArsStrong),
        read: &|report| score(report, ScoreName::ArsStrong),
        follows: Follows::Outcomes(&|_, replicate| replicate.ars_strong, None),
        ..SCORE
    },
];

/// Retrieval has no attacker, so it doesn't depend on gradients.
const CLEANLY: Quantity =
    Quantity { void: |report| report.errors().any(|w| reason::PARITY.made(w)), classes: Some(true), ..USUAL };

/// A number of retrieval on clean images.
const fn clean(name: &'static str, source: &'static str, follows: Follows, read: &'static Read) -> Quantity {
    Quantity { name, source, follows, read, ..CLEANLY }
}

/// By the rank of the first match.
const fn by_first(of: &'static OfFirst) -> Follows {
    Follows::Clean(Clean::First(of))
}

const FIRST: Follows = by_first(&|rank| among_first(rank, 1));
const RANKING: Follows = Follows::Clean(Clean::Ranking);
const TOGETHER: Follows = Follows::Clean(Clean::Together);

#[rustfmt::skip]
static CLEAN: [Quantity; 9] = [
    Quantity { leading: true, label: "clean R@1", ..clean("benign.r1", RETRIEVAL, FIRST, &clean_r1) },
    clean("benign.r2", RETRIEVAL, by_first(&|rank| among_first(rank, 2)), &|r| mean(r, |b| Some(b.r2))),
    clean("benign.map", RANKED_RETRIEVAL, RANKING, &|r| mean(r, |b| Some(b.map))),
    clean("benign.map_at_r", RETRIEVAL, RANKING, &|r| mean(r, |b| Some(b.map_at_r))),
    clean("benign.nmi", CLUSTERING, TOGETHER, &|r| mean(r, |b| b.nmi)),
    clean("benign.ami", ADJUSTED_MUTUAL_INFORMATION, TOGETHER, &|r| mean(r, |b| b.ami)),
    clean("benign.mrr", RANKED_RETRIEVAL, by_first(&|rank| 1.0 / (rank + 1) as f64), &|r| mean(r, |b| b.mrr)),
    clean("benign.r_precision", RANKED_RETRIEVAL, RANKING, &|r| mean(r, |b| b.r_precision)),
    clean("benign.map_at_c", RANKED_RETRIEVAL, RANKING, &|r| mean(r, |b| b.map_at_c)),
];

/// The means of terms under attack, in their order.
static ATTACKED: LazyLock<Vec<Quantity>> = LazyLock::new(|| TERMS.iter().map(attacked).collect());

/// Every row, in the order of reports. Rows of terms and corruptions are made from their tables.
static ALL: LazyLock<Vec<&'static Quantity>> = LazyLock::new(|| {
    let resisted = || TERMS.iter().filter(|term| term.resistance.is_some());
    let worst = DIVISIONS.iter().flat_map(|by| Quantity::divided().map(move |whole| worst(whole, by)));
    // The curve's first point is R@1, which is already a row.
    let cmc = CMC[1..].iter().map(|&k| cmc(k));
    let each = CORRUPTIONS.iter().flat_map(|of| (1..=STRENGTHS).map(move |strength| Some((of, strength))));
    let corrupted =
        [None].into_iter().chain(each).flat_map(|of| FINDS.iter().map(move |by| corrupted(of, by)));
    let of_terms = resisted().map(resistance).chain(resisted().map(ratio)).chain(worst);
    let without_attack = cmc.chain(corrupted);
    let made = |rows: Vec<Quantity>| leaked(rows).iter();
    let attacked = SCORES.iter().chain(ATTACKED.iter()).chain(made(of_terms.collect()));
    attacked.chain(&CLEAN).chain(made(without_attack.collect())).collect()
});

/// A value that lives as long as the program, like the tables.
fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn named(name: String) -> &'static str {
    leaked(name)
}

/// Number of queries behind a number of a row of the table of attacks.
type Count = fn(&Attack, &Term, Option<&Hub>) -> usize;

/// A number of a term: its value in a row of the table of attacks, the number of queries behind it, and its
/// value in the means of a resample.
fn of_term(
    term: &'static Term,
    suffix: &str,
    value: fn(&Attack) -> Option<f64>,
    count: Count,
    mean: fn(&Means) -> Option<f64>,
) -> Quantity {
    let read = move |report: &Report| {
        let attack = row(report, term)?;
        Some(Reading::new(value(attack)?, None, count(attack, term, report.hub.as_ref())))
    };
    Quantity {
        name: named(format!("attack.{}{suffix}", term.name)),
        needs: Needs::Term(term),
        score: is_robust_term(term.name),
        read: leaked(read),
        follows: Follows::Outcomes(in_means(term, mean), None),
        void: if is_robust_term(term.name) { ROBUST_SCORE.void } else { SCORE.void },
        ..USUAL
    }
}

/// A number of a term in the means of a resample.
fn in_means(term: &'static Term, mean: fn(&Means) -> Option<f64>) -> &'static InReplicate {
    leaked(move |of: &Resampled, r: &Replicate| mean(r.means[index_in(of, term)?].as_ref()?))
}

/// These by id; `None` if one occurs twice, so that its trials are no queries of their own.
fn distinct<'q>(queries: impl IntoIterator<Item = (&'q str, bool)>) -> Option<BTreeMap<String, bool>> {
    let mut found = BTreeMap::new();
    for (query, counts) in queries {
        if found.insert(query.to_string(), counts).is_some() {
            return None;
        }
    }
    Some(found)
}

/// Whether each query that the strong search attacked is correct under every attack.
fn withstanding(report: &Report) -> Option<BTreeMap<String, bool>> {
    distinct(survivors(&report.outcomes))
}

/// Whether each query of a term counts under attack; `None` if the term is no share of queries, or queries
/// share perturbations.
fn counting(report: &Report, term: &Term) -> Option<BTreeMap<String, bool>> {
    let objective = Facts::of_term(term.name).filter(|_| term.counts_queries())?;
    let mut found = Vec::new();
    for outcome in report.outcomes.iter().filter(|o| objective.made(o)) {
        let Some((_, after)) = (term.read)(outcome, report.suite.form) else { continue };
        found.push((outcome.query.as_str(), counts(after).filter(|_| outcome.shared.is_none())?));
    }
    distinct(found)
}

/// The mean of a term under attack.
fn attacked(term: &'static Term) -> Quantity {
    Quantity {
        range: term.range,
        digits: term.digits,
        lower_is_better: term.lower_is_better(),
        source: term.source,
        leading: true,
        read: leaked(move |report: &Report| {
            Reading::of_attack(row(report, term)?, term, report.hub.as_ref())
        }),
        follows: Follows::Outcomes(
            in_means(term, |means| Some(means.after)),
            Some(leaked(move |report: &Report| counting(report, term))),
        ),
        ..of_term(term, "", |attack| attack.after, queries, |m| Some(m.after))
    }
}

/// A term's resistance, averaged over trials.
fn resistance(term: &'static Term) -> Quantity {
    of_term(term, ".resistance", |attack| attack.resistance.per_trial, counted, |m| m.per_trial)
}

/// A term's resistance from the ratio of means.
fn ratio(term: &'static Term) -> Quantity {
    let found = of_term(term, ".table", |attack| attack.resistance.table, counted, |m| m.table);
    Quantity { as_published: true, ..found }
}

/// The worst value of any class or group of the queries.
fn worst(whole: &'static Quantity, by: &'static Division) -> Quantity {
    let place = DIVISIONS.iter().position(|division| division.name == by.name);
    Quantity {
        name: named(format!("{}.worst_{}", whole.name, by.name)),
        part_of: Some((whole, by)),
        lower_is_better: whole.lower_is_better,
        source: whole.source,
        needs: whole.needs,
        at_eps: whole.at_eps,
        void: whole.void,
        read: leaked(move |report: &Report| {
            let found = breakdown(&report.breakdowns, whole, by)?;
            let queries = found.rows.iter().map(|row| row.queries).sum();
            Some(Reading::new(found.worst, Some(found.interval), queries))
        }),
        follows: Follows::Outcomes(
            leaked(move |of: &Resampled, r: &Replicate| match whole.needs {
                Needs::Term(term) => r.worst[index_in(of, term)?][place?],
                _ => r.robust_worst[place?],
            }),
            None,
        ),
        ..USUAL
    }
}

/// A point of the cumulative match curve: the share of queries with a match among the first k.
fn cmc(k: usize) -> Quantity {
    let read = move |report: &Report| {
        mean(report, |benign| Some(benign.cmc.iter().find(|point| point.k == k)?.value))
    };
    let follows = by_first(leaked(move |rank| among_first(rank, k)));
    clean(named(format!("benign.cmc@{k}")), source::RE_IDENTIFICATION, follows, leaked(read))
}

/// A measure of corrupted queries.
struct Finds {
    name: &'static str,
    /// Value of a query at a strength, in [0, 1].
    query: fn(&Corrupted, usize) -> f64,
    row: fn(&CorruptionRow) -> Spread,
    /// Mean over all corruptions and strengths.
    mean: fn(&Corruptions) -> Spread,
}

/// A value and its interval.
type Spread = (f64, Option<(f64, f64)>);

static FINDS: [Finds; 2] = [
    Finds {
        name: "r1",
        query: |query, strength| f64::from(query.first[strength]),
        row: |row| (row.r1, row.r1_interval),
        mean: |all| (all.mean_r1, all.mean_r1_interval),
    },
    Finds {
        name: "map",
        query: |query, strength| query.ap[strength],
        row: |row| (row.map, row.map_interval),
        mean: |all| (all.mean_map, all.mean_map_interval),
    },
];

/// Retrieval under a natural corruption at a strength, or the mean over all.
fn corrupted(of: Option<(&'static Corruption, usize)>, finds: &'static Finds) -> Quantity {
    let name = of.map_or(String::new(), |(corruption, strength)| format!(".{}@{strength}", corruption.name));
    let mean = move |all: &Corruptions| {
        let (value, interval) = match of {
            None => (finds.mean)(all),
            Some((of, at)) => {
                let is_it = |row: &&CorruptionRow| row.corruption == of.name && row.strength == at;
                (finds.row)(all.rows.iter().find(is_it)?)
            }
        };
        Some(Reading::new(value, interval, all.queries))
    };
    let each = move |query: &Corrupted| match of {
        None => (1..query.first.len()).map(|strength| (finds.query)(query, strength)).collect(),
        Some((of, at)) if query.corruption == of.name => vec![(finds.query)(query, at)],
        Some(_) => Vec::new(),
    };
    Quantity {
        name: named(format!("corruption{name}.{}", finds.name)),
        source: source::CORRUPTIONS,
        needs: Needs::Corruption(of.map(|(corruption, _)| corruption)),
        read: leaked(move |report: &Report| mean(report.corruptions.as_ref()?)),
        follows: Follows::Corruptions(leaked(mean), leaked(each)),
        ..CLEANLY
    }
}

/// The numbers at a rung of the ladder of ε.
struct Rungs {
    /// The beginning of their names.
    prefix: &'static str,
    /// The number at the largest ε.
    of: fn() -> &'static Quantity,
    /// Whether it is about files.
    as_file: bool,
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

static RUNGS: [Rungs; 4] = [
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
    fn named(name: &str) -> Option<Result<&'static Quantity>> {
        let (kind, eps) = Rungs::parse(name)?;
        Some(eps.map(|eps| kind.row_at(eps)).ok_or_else(|| {
            Error::usage(format!(
                "metric `{name}`: expected an ε in 255ths after the @, as in {}2/255 or {}0.5/255",
                kind.prefix, kind.prefix
            ))
        }))
    }

    /// The kind of rung that a name is about, and its ε in 255ths, if it states one.
    fn parse(name: &str) -> Option<(&'static Rungs, Option<f64>)> {
        let lower = name.to_lowercase();
        let (kind, eps) = RUNGS.iter().find_map(|kind| Some((kind, lower.strip_prefix(kind.prefix)?)))?;
        let number = eps.strip_suffix("/255").and_then(|levels| levels.parse::<f64>().ok());
        // In other norms than the largest change of a pixel, ε may be larger than 255/255.
        Some((kind, number.filter(|eps| *eps > 0.0 && eps.is_finite())))
    }

    /// The row at `eps`, in 255ths.
    fn row_at(&'static self, eps: f64) -> &'static Quantity {
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

    /// The share of queries that are correct under changes of at most `eps`, in 255ths, as outcomes say.
    fn counted(&self, report: &Report, eps: f64) -> Option<Reading> {
        let stars = stars::stars(&report.outcomes)?;
        let left = stars.iter().filter(|(_, star)| stars::withstands((self.fails_at)(star), eps)).count();
        let value = 100.0 * left as f64 / stars.len() as f64;
        Some(Reading::new(value, Some(wilson(left, stars.len())), stars.len()))
    }

    /// Why there is no number at `eps`, in 255ths; `None` if there is one.
    fn not_at(&self, report: &Report, eps: f64) -> Option<String> {
        let norm = &report.suite.norm;
        if self.as_file && !Norm::find(norm).is_ok_and(|norm| norm.is_box) {
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
        let stored = LEVELS * f64::from(rung(report, eps?)?.eps);
        Some(kind.counted(report, stored)?.value)
    }

    /// Every quantity, in the order of reports.
    pub fn all() -> impl ExactSizeIterator<Item = &'static Quantity> {
        ALL.iter().copied()
    }

    /// The quantity called `name`. Case is ignored, and a typographic minus sign is accepted. Errors (exit
    /// code 2): no quantity has this name.
    pub fn find(name: &str) -> Result<&'static Quantity> {
        let plain = name.trim().replace('\u{2212}', "-");
        if let Some(rung) = Rungs::named(&plain) {
            return rung;
        }
        Quantity::all().find(|q| q.name.eq_ignore_ascii_case(&plain)).ok_or_else(|| {
            let names: Vec<&str> = Quantity::all().map(|q| q.name).collect();
            Error::usage(format!(
                "unknown metric `{name}`. The nearest are {}. {LISTED}",
                nearest(&plain, &names),
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

    /// Formats a change, with its sign.
    pub fn show_change(&self, change: f64) -> String {
        // A change that rounds to zero is shown as "+0.0", not "-0.0".
        let shown = format!("{change:+.*}", self.digits);
        if shown.trim_start_matches(['+', '-']).chars().all(|c| matches!(c, '0' | '.')) {
            shown.replace('-', "+")
        } else {
            shown
        }
    }
}

/// Whether the first match is among the first `k`.
fn among_first(rank: usize, k: usize) -> f64 {
    f64::from(rank < k)
}

/// A mean over the clean queries of a report.
fn mean(report: &Report, value: impl Fn(&Benign) -> Option<f64>) -> Option<Reading> {
    let benign = report.benign.as_ref()?;
    Some(Reading::new(value(benign)?, None, benign.queries))
}

/// R@1 of all queries is no estimate; R@1 of a sample is.
fn clean_r1(report: &Report) -> Option<Reading> {
    let of = report.benign.as_ref()?;
    let hits = (of.r1 * of.queries as f64 / 100.0).round() as usize;
    Some(Reading::new(of.r1, of.sampling.as_ref().map(|_| wilson(hits, of.queries)), of.queries))
}

/// The row of a report's table of attacks.
fn row<'r>(report: &'r Report, term: &Term) -> Option<&'r Attack> {
    report.attacks.iter().find(|a| a.code == term.name)
}

/// The rung of a report's ladder that `eps`, in 255ths, stands for.
fn rung(report: &Report, eps: f64) -> Option<&Rung> {
    let at = |eps: f64| stars::on_ladder(eps, stars::most(report));
    let rungs = &report.scores.robust()?.ladder.as_ref()?.rungs;
    rungs.iter().find(|rung| at(LEVELS * f64::from(rung.eps)) == at(eps))
}

/// A score.
fn score(report: &Report, name: ScoreName) -> Option<Reading> {
    Reading::of_score(&report.scores, name, fewest(report, name))
}

/// Number of queries behind a score: of its attack with the fewest.
fn fewest(report: &Report, name: ScoreName) -> usize {
    reading::fewest(&report.attacks, report.hub.as_ref(), name).unwrap_or(report.suite.queries)
}

/// The place of a term in lists of a resample.
fn index_in(of: &Resampled, term: &Term) -> Option<usize> {
    of.terms.iter().position(|t| *t == term)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_people_write_them() {
        for name in ["ARS", "attack.es:r", "attack.CA\u{2212}.resistance", " benign.r1"] {
            Quantity::find(name).unwrap();
        }
        let error = Quantity::find("attack.ESR").unwrap_err();
        assert_eq!(error.exit, audit_base::Exit::Usage);
        assert!(error.message.contains("The nearest are `attack.ES:R`, "), "{error}");
        assert!(Quantity::find("attack.TMA.resistance").is_err());
        assert_eq!(ARS.show_change(-0.04), "+0.0");
    }

    /// Gates and comparisons know every term of the table.
    #[test]
    fn every_term_has_its_quantities() {
        for term in TERMS {
            let named = |ending: &str| Quantity::find(&format!("attack.{}{ending}", term.name)).is_ok();
            let resisted = term.resistance.is_some();
            assert!(named("") && [".resistance", ".table"].map(named) == [resisted; 2], "{}", term.name);
            assert_eq!(Quantity::after(term).unwrap().name, format!("attack.{}", term.name));
            assert_eq!(Quantity::ratio(term).is_some(), resisted);
        }
        let names: Vec<&str> = Quantity::all().map(|q| q.name).collect();
        let each = |t: &Term| 1 + 2 * usize::from(t.resistance.is_some()) + 2 * usize::from(t.divided);
        let count = TERMS.iter().map(each).sum::<usize>();
        assert_eq!(names.iter().filter(|name| name.starts_with("attack.")).count(), count);
    }

    /// A row is found by its name, and equal only to itself.
    #[test]
    fn rows_are_told_apart_by_their_places() {
        for quantity in Quantity::all() {
            assert_eq!(Quantity::find(quantity.name).unwrap(), quantity);
            assert_eq!(Quantity::all().filter(|other| *other == quantity).count(), 1, "{}", quantity.name);
        }
        for score in ScoreName::ALL {
            assert_eq!(Quantity::score(score).name, score.name());
        }
        for known in [ROBUST, ARS, ARS_TABLE, ERS, ARS_STRONG, CLEAN_R1] {
            assert!(Quantity::all().any(|quantity| quantity == known), "{}", known.name);
        }
    }
}
