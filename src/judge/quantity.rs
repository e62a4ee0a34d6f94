//! The numbers of a report by name, for gates and comparisons.

use super::division::{DIVISIONS, Division};
use super::score::{Replicate, Resampled, WIDEST};
use crate::corruption::{CORRUPTIONS, Corruption, STRENGTHS};
use crate::error::nearest;
use crate::record::{
    Attack, Benign, Breakdown, CorruptionRow, Corruptions, FEW, Report, Retrieval, Score, ScoreName, reason,
    source, unless_few,
};
use crate::space::benign::CMC;
use crate::threat::term::{R1, TERMS, Term, terms_of};
use crate::{Error, Result};
use serde::{Serialize, Serializer};

/// Where a user finds the names of all quantities.
pub(super) const LISTED: &str =
    "`audit gate --help` says how metrics are named, and docs/reference.md lists them";

/// A number in a report.
#[derive(Clone, Copy)]
pub enum Quantity {
    /// ERS or ARS.
    Score(ScoreName),
    /// ARS from the ratios of means.
    Table,
    /// R@1 under the strong search.
    Robust,
    /// Mean of a term after the attack.
    After(&'static Term),
    /// A term's resistance, averaged over trials.
    Resistance(&'static Term),
    /// A term's resistance from the ratio of means.
    Ratio(&'static Term),
    /// The worst value of any class or group of the queries.
    Worst(Share, &'static Division),
    /// Retrieval without attack.
    Benign(&'static RetrievalMeasure),
    /// A point of the cumulative match curve: the share of queries with a match among the first k.
    Cmc(usize),
    /// Retrieval under a natural corruption at a strength.
    Corrupted(&'static Corruption, usize, Finds),
    /// The mean over all corruptions and strengths.
    AllCorrupted(Finds),
}

/// What corrupted queries are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finds {
    /// Share of the queries whose nearest item has their class.
    R1,
    /// Mean average precision.
    Map,
}

/// A number that is a share of queries, so that parts of the queries have it too.
#[derive(Clone, Copy)]
pub enum Share {
    /// Robust R@1.
    Robust,
    /// R@1, or wrong decisions by a threshold, after an attack.
    After(&'static Term),
}

impl Share {
    /// Every such number.
    pub fn all() -> impl Iterator<Item = Share> {
        let terms = TERMS.iter().filter(|term| term.divided).map(Share::After);
        std::iter::once(Share::Robust).chain(terms)
    }

    /// The number of all queries.
    pub fn whole(self) -> Quantity {
        match self {
            Share::Robust => Quantity::Robust,
            Share::After(term) => Quantity::After(term),
        }
    }
}

/// A measure of retrieval without attack.
pub struct RetrievalMeasure {
    name: &'static str,
    /// Address of the text that defines it.
    source: &'static str,
    read: fn(&Benign) -> Option<f64>,
    /// What one query adds to the mean, in [0, 1], by the rank of its first match; `None` if that rank doesn't say.
    of_first: Option<fn(usize) -> f64>,
    /// The same by what the query finds.
    of_retrieval: Option<fn(&Retrieval) -> f64>,
}

/// R@1 without attack.
pub const CLEAN_R1: Quantity = Quantity::Benign(&RETRIEVAL[0]);
/// The adversarial resistance score.
pub const ARS: Quantity = Quantity::Score(ScoreName::Ars);
/// ARS of what the strong search found.
pub const ARS_STRONG: Quantity = Quantity::Score(ScoreName::ArsStrong);
/// The empirical robustness score.
pub const ERS: Quantity = Quantity::Score(ScoreName::Ers);

/// Whether the first match is among the first `k`.
fn among_first(rank: usize, k: usize) -> f64 {
    f64::from(u8::from(rank < k))
}

/// A number that is no mean over queries.
const OF_ALL: RetrievalMeasure = RetrievalMeasure {
    name: "",
    source: source::RANKED_RETRIEVAL,
    read: |_| None,
    of_first: None,
    of_retrieval: None,
};

static RETRIEVAL: [RetrievalMeasure; 9] = [
    RetrievalMeasure {
        name: "r1",
        source: source::RETRIEVAL,
        read: |b| Some(b.r1),
        of_first: Some(|rank| among_first(rank, 1)),
        of_retrieval: Some(|found| f64::from(u8::from(found.first))),
    },
    RetrievalMeasure {
        name: "r2",
        source: source::RETRIEVAL,
        read: |b| Some(b.r2),
        of_first: Some(|rank| among_first(rank, 2)),
        ..OF_ALL
    },
    RetrievalMeasure { name: "map", read: |b| Some(b.map), of_retrieval: Some(|found| found.ap), ..OF_ALL },
    RetrievalMeasure {
        name: "map_at_r",
        source: source::RETRIEVAL,
        read: |b| Some(b.map_at_r),
        of_retrieval: Some(|found| found.ap_at_r),
        ..OF_ALL
    },
    RetrievalMeasure { name: "nmi", source: source::CLUSTERING, read: |b| b.nmi, ..OF_ALL },
    RetrievalMeasure { name: "ami", source: source::ADJUSTED_MUTUAL_INFORMATION, read: |b| b.ami, ..OF_ALL },
    RetrievalMeasure {
        name: "mrr",
        read: |b| b.mrr,
        of_first: Some(|rank| 1.0 / (rank + 1) as f64),
        ..OF_ALL
    },
    RetrievalMeasure { name: "r_precision", read: |b| b.r_precision, ..OF_ALL },
    RetrievalMeasure {
        name: "map_at_c",
        read: |b| b.map_at_c,
        of_retrieval: Some(|found| found.at_c),
        ..OF_ALL
    },
];

impl Finds {
    const BOTH: [Finds; 2] = [Finds::R1, Finds::Map];

    fn name(self) -> &'static str {
        match self {
            Finds::R1 => "r1",
            Finds::Map => "map",
        }
    }
}

impl Quantity {
    /// Every quantity.
    pub fn all() -> Vec<Quantity> {
        let scores = [Quantity::Robust, ARS, Quantity::Table, ERS, ARS_STRONG];
        let after = TERMS.iter().map(Quantity::After);
        let resisted = || TERMS.iter().filter(|term| term.resistance.is_some());
        let resistance = resisted().map(Quantity::Resistance);
        let ratio = resisted().map(Quantity::Ratio);
        let benign = RETRIEVAL.iter().map(Quantity::Benign);
        // The curve's first point is R@1, which is already in the list.
        let cmc = CMC[1..].iter().map(|&k| Quantity::Cmc(k));
        let worst = DIVISIONS.iter().flat_map(|by| Share::all().map(move |of| Quantity::Worst(of, by)));
        let each = CORRUPTIONS.iter().flat_map(|c| (1..=STRENGTHS).map(move |strength| (c, strength)));
        let corrupted =
            each.flat_map(|(c, strength)| Finds::BOTH.map(|of| Quantity::Corrupted(c, strength, of)));
        let attacked = scores.into_iter().chain(after).chain(resistance).chain(ratio);
        let means = Finds::BOTH.map(Quantity::AllCorrupted);
        attacked.chain(worst).chain(benign).chain(cmc).chain(means).chain(corrupted).collect()
    }

    /// The name, such as `robust_r1`, `ars`, `ars.table`, `ers`, `attack.ES:R`, `attack.CA+.resistance` or `benign.r1`.
    pub fn name(self) -> String {
        match self {
            Quantity::Score(score) => score.name().into(),
            Quantity::Robust => "robust_r1".into(),
            Quantity::Table => "ars.table".into(),
            Quantity::After(term) => format!("attack.{}", term.name),
            Quantity::Resistance(term) => format!("attack.{}.resistance", term.name),
            Quantity::Ratio(term) => format!("attack.{}.table", term.name),
            Quantity::Worst(_, by) => format!("{}.worst_{}", self.whole().name(), by.name),
            Quantity::Benign(number) => format!("benign.{}", number.name),
            Quantity::Cmc(k) => format!("benign.cmc@{k}"),
            Quantity::Corrupted(corruption, strength, of) => {
                format!("corruption.{}@{strength}.{}", corruption.name, of.name())
            }
            Quantity::AllCorrupted(of) => format!("corruption.{}", of.name()),
        }
    }

    /// The quantity called `name`. Case is ignored, and a typographic minus sign is accepted. Errors (exit code 2): no
    /// quantity has this name.
    pub fn find(name: &str) -> Result<Quantity> {
        let plain = name.trim().replace('\u{2212}', "-");
        let all = Quantity::all();
        if let Some(found) = all.iter().find(|q| q.name().eq_ignore_ascii_case(&plain)) {
            return Ok(*found);
        }
        let names: Vec<String> = all.iter().map(|q| q.name()).collect();
        Err(Error::usage(format!(
            "unknown metric `{name}`. The nearest are {}. {LISTED}",
            nearest(&plain, &names),
        )))
    }

    /// Whether a smaller number means a more robust model.
    pub fn lower_is_better(self) -> bool {
        matches!(self.whole(), Quantity::After(term) if term.lower_is_better())
    }

    /// Significant digits after the decimal point.
    fn digits(self) -> usize {
        if let Quantity::After(term) = self { term.digits } else { 1 }
    }

    /// The lowest and the highest possible value.
    pub fn range(self) -> [f64; 2] {
        if let Quantity::After(term) = self { term.range } else { [0.0, 100.0] }
    }

    /// Whether the number depends on attacks, and so on the choice of queries.
    pub fn attacked(self) -> bool {
        !matches!(
            self,
            Quantity::Benign(_) | Quantity::Cmc(_) | Quantity::Corrupted(..) | Quantity::AllCorrupted(_)
        )
    }

    /// Whether the number exists only for comparison with published tables.
    pub fn as_published(self) -> bool {
        matches!(self, Quantity::Table | Quantity::Ratio(_))
    }

    /// Address of the text that defines the number.
    pub fn source(self) -> &'static str {
        match self {
            Quantity::Score(ScoreName::Ers) => source::DEEP_RANKING,
            Quantity::Score(ScoreName::Ars | ScoreName::ArsStrong) | Quantity::Table => source::CA_TRIDE,
            Quantity::Resistance(_) | Quantity::Ratio(_) => source::CA_TRIDE,
            Quantity::Robust => source::ENSEMBLE,
            Quantity::Worst(..) => self.whole().source(),
            Quantity::After(term) => term.source,
            Quantity::Benign(number) => number.source,
            Quantity::Cmc(_) => source::RE_IDENTIFICATION,
            Quantity::Corrupted(..) | Quantity::AllCorrupted(_) => source::CORRUPTIONS,
        }
    }

    /// The number of all queries that this is the worst of any class or group of; of others it is the number itself.
    pub fn whole(self) -> Quantity {
        if let Quantity::Worst(of, _) = self { of.whole() } else { self }
    }

    /// Whether the number is the worst of several, so that chance makes it worse.
    pub fn worst(self) -> bool {
        matches!(self, Quantity::Worst(..))
    }

    /// Its value, in the unit of its kind; `None` where the report doesn't have it.
    pub fn value(self, report: &Report) -> Option<f64> {
        match self {
            Quantity::Score(name) => score(report, name).map(|s| s.value),
            Quantity::Table => score(report, ScoreName::Ars)?.table,
            Quantity::Robust => report.scores.robust_r1.as_ref().map(|r| r.value),
            Quantity::After(term) => row(report, term)?.after,
            Quantity::Resistance(term) => row(report, term)?.resistance.per_trial,
            Quantity::Ratio(term) => row(report, term)?.resistance.table,
            Quantity::Worst(of, by) => breakdown(&report.breakdowns, of, by).map(|found| found.worst),
            Quantity::Benign(number) => (number.read)(&report.benign),
            Quantity::Cmc(k) => report.benign.cmc.iter().find(|p| p.k == k).map(|p| p.value),
            Quantity::Corrupted(..) | Quantity::AllCorrupted(_) => {
                self.of_corruptions(report.corruptions.as_ref()?)
            }
        }
    }

    /// The value, where it is one of natural corruptions.
    pub fn of_corruptions(self, all: &Corruptions) -> Option<f64> {
        match self {
            Quantity::Corrupted(corruption, strength, of) => {
                let row = corrupted(all, corruption, strength)?;
                Some(if of == Finds::R1 { row.r1 } else { row.map })
            }
            Quantity::AllCorrupted(of) => Some(if of == Finds::R1 { all.mean_r1 } else { all.mean_map }),
            Quantity::Score(_) | Quantity::Table | Quantity::Robust => None,
            Quantity::After(_) | Quantity::Resistance(_) | Quantity::Ratio(_) | Quantity::Worst(..) => None,
            Quantity::Benign(_) | Quantity::Cmc(_) => None,
        }
    }

    /// The 95 % interval in a report, where it has one. Below [`FEW`] queries there is none.
    pub fn interval(self, report: &Report) -> Option<(f64, f64)> {
        unless_few(self.queries(report), self.stored_interval(report))
    }

    fn stored_interval(self, report: &Report) -> Option<(f64, f64)> {
        match self {
            Quantity::Score(name) => score(report, name)?.interval,
            Quantity::Table => score(report, ScoreName::Ars)?.table_interval,
            Quantity::Robust => report.scores.robust_r1.as_ref()?.interval,
            Quantity::After(term) => row(report, term)?.after_interval,
            Quantity::Corrupted(corruption, strength, of) => {
                let row = corrupted(report.corruptions.as_ref()?, corruption, strength)?;
                if of == Finds::R1 { row.r1_interval } else { row.map_interval }
            }
            Quantity::AllCorrupted(of) => {
                let all = report.corruptions.as_ref()?;
                if of == Finds::R1 { all.mean_r1_interval } else { all.mean_map_interval }
            }
            Quantity::Worst(of, by) => breakdown(&report.breakdowns, of, by).map(|found| found.interval),
            Quantity::Resistance(_) | Quantity::Ratio(_) | Quantity::Benign(_) | Quantity::Cmc(_) => None,
        }
    }

    /// Whether a finding leaves the number without a meaning, so that reports strike it through.
    pub fn void(self, report: &Report) -> bool {
        match self.whole() {
            Quantity::Score(_) | Quantity::Table => report.errors().next().is_some(),
            // It counts what softened and gradient-free members found, so it means something where gradients are masked.
            Quantity::Robust => report.errors().any(|w| !reason::MASKED_GRADIENTS.made(w)),
            // Without an attacker gradients have no part in it.
            Quantity::Benign(_) | Quantity::Cmc(_) | Quantity::Corrupted(..) | Quantity::AllCorrupted(_) => {
                report.errors().any(|w| reason::PARITY.made(w))
            }
            Quantity::After(_) | Quantity::Resistance(_) | Quantity::Ratio(_) | Quantity::Worst(..) => false,
        }
    }

    /// Number of queries that the number rests on: of a score those of its attack with the fewest.
    pub fn queries(self, report: &Report) -> usize {
        // An image that is crafted for many queries is measured on those that are held out.
        let held_out = |term: &Term| report.hub.as_ref().filter(|_| term.held_out.is_some());
        let of_term =
            |term: &Term| Some(held_out(term).map_or(row(report, term)?.queries, |hub| hub.queries));
        let of_score = |name| terms_of(name).filter_map(of_term).min().unwrap_or(report.suite.queries);
        match self {
            Quantity::Score(name) => of_score(name),
            Quantity::Table => of_score(ScoreName::Ars),
            Quantity::Robust => report.scores.robust_r1.as_ref().map_or(0, |r| r.queries),
            Quantity::After(term) | Quantity::Resistance(term) | Quantity::Ratio(term) => {
                of_term(term).unwrap_or(0)
            }
            Quantity::Worst(of, by) => breakdown(&report.breakdowns, of, by)
                .map_or(0, |found| found.rows.iter().map(|row| row.queries).sum()),
            Quantity::Benign(_) | Quantity::Cmc(_) => report.benign.queries,
            Quantity::Corrupted(..) | Quantity::AllCorrupted(_) => {
                report.corruptions.as_ref().map_or(0, |all| all.queries)
            }
        }
    }

    /// Why the number has neither an interval nor a verdict: it rests on fewer than [`FEW`] queries. `None` where it rests on enough.
    pub fn too_few(self, report: &Report) -> Option<String> {
        rests_on_few(self.queries(report))
    }

    /// Whether the number is a score, or what is printed as one: what a model is judged by as a whole. R@1 after the strong search, and
    /// what follows from it, is robust R@1 by another name.
    fn is_score(self) -> bool {
        match self {
            Quantity::Score(_) | Quantity::Table | Quantity::Robust => true,
            Quantity::After(term) | Quantity::Resistance(term) | Quantity::Ratio(term) => is_robust_r1(term),
            _ => false,
        }
    }

    /// Why no report for people shows the number: it rests on too few queries, or its interval is too wide. `None` where it is shown.
    pub fn withheld(self, report: &Report) -> Option<String> {
        if !self.is_score() || self.value(report).is_none() {
            return None;
        }
        let marked = match self {
            Quantity::Score(name) => score(report, name).is_some_and(|s| s.withheld),
            Quantity::Table => score(report, ScoreName::Ars).is_some_and(|s| s.withheld),
            _ => false,
        };
        self.too_few(report).or_else(|| {
            marked.then(|| match self.interval(report) {
                Some((low, high)) => format!(
                    "its 95 % interval, {} – {}, is wider than {WIDEST:.0} points",
                    self.show(low),
                    self.show(high)
                ),
                None => "it has no interval".into(),
            })
        })
    }

    /// The ε under which the number holds, `8/255`, for numbers that mean nothing without it.
    pub fn budget(self, report: &Report) -> Option<String> {
        matches!(self.whole(), Quantity::Robust).then(|| report.suite.budget())
    }

    /// The value in a resample of `of`; `None` where undefined, and for retrieval without attack, which is not
    /// resampled.
    pub fn in_replicate(self, of: &Resampled, replicate: &Replicate) -> Option<f64> {
        let at = |term: &Term| of.terms.iter().position(|t| *t == term);
        match self {
            Quantity::Score(name) => replicate.score(name),
            Quantity::Table => replicate.ars_table,
            Quantity::Robust => replicate.robust_r1,
            Quantity::After(term) => replicate.after[at(term)?],
            Quantity::Resistance(term) => replicate.per_trial[at(term)?],
            Quantity::Ratio(term) => replicate.table[at(term)?],
            Quantity::Worst(of, by) => {
                let by = DIVISIONS.iter().position(|d| d.name == by.name)?;
                match of {
                    Share::Robust => replicate.robust_worst[by],
                    Share::After(term) => replicate.worst[at(term)?][by],
                }
            }
            Quantity::Benign(_) | Quantity::Cmc(_) | Quantity::Corrupted(..) | Quantity::AllCorrupted(_) => {
                None
            }
        }
    }

    /// What one query adds to the mean of a clean number, in [0, 1], by the rank of its first match; `None` for other numbers.
    pub(super) fn of_first(self, rank: usize) -> Option<f64> {
        match self {
            Quantity::Benign(number) => Some(number.of_first?(rank)),
            Quantity::Cmc(k) => Some(among_first(rank, k)),
            _ => None,
        }
    }

    /// The same by what the query finds.
    pub(super) fn of_retrieval(self, found: &Retrieval) -> Option<f64> {
        if let Quantity::Benign(number) = self { Some(number.of_retrieval?(found)) } else { None }
    }

    /// Formats a value.
    pub fn show(self, value: f64) -> String {
        format!("{value:.*}", self.digits())
    }

    /// Formats a change, with its sign.
    pub fn show_change(self, change: f64) -> String {
        // A change that rounds to zero is shown as "+0.0", not "-0.0".
        let shown = format!("{change:+.*}", self.digits());
        if shown.trim_start_matches(['+', '-']).chars().all(|c| matches!(c, '0' | '.')) {
            shown.replace('-', "+")
        } else {
            shown
        }
    }
}

/// Whether a term is R@1 after the strong search.
pub(super) fn is_robust_r1(term: &Term) -> bool {
    *term == R1
}

/// That a number rests on fewer than [`FEW`] queries, if it does.
pub(super) fn rests_on_few(queries: usize) -> Option<String> {
    let noun = if queries == 1 { "query" } else { "queries" };
    (queries < FEW).then(|| format!("it rests on {queries} {noun}, fewer than {FEW}"))
}

fn score(report: &Report, name: ScoreName) -> Option<&Score> {
    report.scores.get(name)
}

fn corrupted<'c>(
    all: &'c Corruptions,
    corruption: &Corruption,
    strength: usize,
) -> Option<&'c CorruptionRow> {
    all.rows.iter().find(|row| row.corruption == corruption.name && row.strength == strength)
}

fn row<'r>(report: &'r Report, term: &Term) -> Option<&'r Attack> {
    report.attacks.iter().find(|a| a.code == term.name)
}

/// The breakdown of a number among those of a report.
pub fn breakdown<'b>(all: &'b [Breakdown], of: Share, by: &Division) -> Option<&'b Breakdown> {
    let metric = of.whole().name();
    all.iter().find(|b| b.by == by.name && b.metric == metric)
}

impl std::fmt::Debug for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Quantity) -> bool {
        self.name() == other.name()
    }
}

/// Serialised as its name.
impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(&self.name())
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
        assert_eq!(error.exit, crate::Exit::Usage);
        assert!(error.message.contains("The nearest are `attack.ES:R`, "), "{error}");
        assert!(Quantity::find("attack.TMA.resistance").is_err());
        assert_eq!(Quantity::find("ars").unwrap().show_change(-0.04), "+0.0");
    }

    /// Gates and comparisons know every term of the table.
    #[test]
    fn every_term_has_its_quantities() {
        for term in TERMS {
            let named = |ending: &str| Quantity::find(&format!("attack.{}{ending}", term.name)).is_ok();
            let resisted = term.resistance.is_some();
            assert!(named("") && [".resistance", ".table"].map(named) == [resisted; 2], "{}", term.name);
        }
        let names: Vec<String> = Quantity::all().into_iter().map(Quantity::name).collect();
        assert!(names.iter().all(|name| Quantity::find(name).unwrap().name() == *name));
        let each = |t: &Term| 1 + 2 * usize::from(t.resistance.is_some()) + 2 * usize::from(t.divided);
        let count = TERMS.iter().map(each).sum::<usize>();
        assert_eq!(names.iter().filter(|name| name.starts_with("attack.")).count(), count);
    }
}
