//! The rows: scores, retrieval on clean images, and those that are made of the tables of terms and
//! corruptions.

use super::{Clean, Follows, InReplicate, Needs, OfFirst, Quantity, Read, breakdown};
use crate::facts::term::Term;
use crate::facts::{Facts, is_robust_term};
use crate::judge::division::{DIVISIONS, Division};
use crate::judge::ladder;
use crate::judge::reading::{self, Reading, counted, queries};
use crate::judge::score::{Means, Replicate, Resampled};
use crate::judge::share::{counts, wilson};
use crate::judge::smallest;
use crate::judge::survivors::survivors;
use crate::record::source::{ADJUSTED_MUTUAL_INFORMATION, CLUSTERING, RANKED_RETRIEVAL, RETRIEVAL};
use crate::record::{
    Attack, Benign, Corrupted, CorruptionRow, Corruptions, Hub, Report, ScoreName, Space, reason, source,
};
use audit_gallery::corruption::{CORRUPTIONS, Corruption, STRENGTHS};
use audit_gallery::space::benign::CMC;
use std::collections::BTreeMap;
use std::sync::LazyLock;

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
    size: false,
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
pub(super) const ROBUST_SCORE: Quantity = Quantity {
    source: source::ENSEMBLE,
    void: |report| report.errors().any(|w| !reason::MASKED_GRADIENTS.made(w)),
    ..SCORE
};

pub(super) static SCORES: [Quantity; 8] = [
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
        size: true,
        range: [0.0, 255.0],
        digits: 2,
        tolerance: 0.1,
        needs: Needs::Ladder,
        read: &|report| {
            let of = report.scores.robust()?.ladder.as_ref()?.eps50.as_ref()?;
            // A file changes by whole grey levels.
            let least = (report.suite.space == Space::File).then_some(1.0);
            Some(Reading { most: Some(of.most), least, ..Reading::new(of.value, of.interval, of.queries) })
        },
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
        read: &|report| {
            let (score, queries) = (report.scores.ars.as_ref()?, fewest(report, ScoreName::Ars));
            let found = Reading::new(score.table?, score.table_interval, queries);
            Some(Reading { withheld: score.withheld, ..found })
        },
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
    Quantity {
        name: "median_eps",
        size: true,
        range: [0.0, 255.0],
        digits: 2,
        tolerance: 0.1,
        source: source::PANUM,
        needs: Needs::Smallest,
        read: &|report| Reading::of_smallest(report.smallest.as_ref()?),
        follows: Follows::Outcomes(&smallest::median_in, None),
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
pub(super) static CLEAN: [Quantity; 9] = [
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
pub(super) static ATTACKED: LazyLock<Vec<Quantity>> = LazyLock::new(|| Term::all().map(attacked).collect());

/// Every row, in the order of reports. Rows of terms and corruptions are made from their tables.
pub(super) static ALL: LazyLock<Vec<&'static Quantity>> = LazyLock::new(|| {
    let resisted = || Term::all().filter(|term| term.resistance.is_some());
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
pub(super) fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

pub(super) fn named(name: String) -> &'static str {
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
pub(super) fn distinct<'q>(
    queries: impl IntoIterator<Item = (&'q str, bool)>,
) -> Option<BTreeMap<String, bool>> {
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

pub(super) type Spread = (f64, Option<(f64, f64)>);

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
