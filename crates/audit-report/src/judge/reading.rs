//! The saved form of a number, before the decision whether to show it.

use super::stars::{LEVELS, capped};
use crate::facts::term::{Term, terms_of};
use crate::record::{Attack, FEW, Hub, Robust, ScoreName, Scores, Smallest, number_of_queries, unless_few};

/// A saved number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The value.
    pub value: f64,
    /// Its 95 % interval. Below [`FEW`] queries there is none.
    pub interval: Option<(f64, f64)>,
    /// Number of queries that it rests on.
    pub queries: usize,
    /// Whether the report marks it as too uncertain to be shown.
    pub withheld: bool,
    /// A value, or an end of the interval, at or above this is only known to be larger.
    pub most: Option<f64>,
    /// The smallest possible value, where smaller changes don't exist.
    pub least: Option<f64>,
}

impl Reading {
    /// A number of `queries` queries.
    pub fn new(value: f64, interval: Option<(f64, f64)>, queries: usize) -> Reading {
        let interval = unless_few(queries, interval);
        Reading { value, interval, queries, withheld: false, most: None, least: None }
    }

    /// A score; `None` if there is none.
    pub fn of_score(scores: &Scores, name: ScoreName, queries: usize) -> Option<Reading> {
        let score = scores.get(name)?;
        Some(Reading { withheld: score.withheld, ..Reading::new(score.value, score.interval, queries) })
    }

    /// Robust R@1, or robust top-1.
    pub fn of_robust(robust: &Robust) -> Reading {
        Reading::new(robust.value, robust.interval, robust.queries)
    }

    /// The median of the smallest perturbations, in 255ths; `None` if no query could get worse.
    pub fn of_smallest(found: &Smallest) -> Option<Reading> {
        let most = f64::from(found.most);
        let median = capped(found.median.unwrap_or(f64::INFINITY), most);
        let interval = found.interval.map(|(low, high)| (LEVELS * low, LEVELS * high));
        let reading = Reading::new(LEVELS * median, interval, found.right);
        (found.right > 0).then_some(Reading { most: Some(LEVELS * most), ..reading })
    }

    /// The mean of a term under attack; `None` if no trial could be run. `hub` are the queries that the
    /// report's hubs are measured on.
    pub fn of_attack(attack: &Attack, term: &Term, hub: Option<&Hub>) -> Option<Reading> {
        let (value, interval) = (attack.after?, attack.after_interval);
        let found = Reading::new(value, interval, queries(attack, term, hub));
        // A point of a sweep doesn't have the number of queries that its hubs are measured on.
        let unknown = term.held_out.is_some() && hub.is_none();
        Some(if unknown { Reading { interval, ..found } } else { found })
    }

    /// The reason to withhold it if it rests on fewer than [`FEW`] queries.
    pub fn on_few(&self) -> Option<String> {
        on_few(self.queries)
    }
}

/// Number of queries behind a score: of its attack with the fewest. ARS is a mean of resistances, which rest
/// on the queries that an attack could make worse. `None` if it has no attack.
pub fn fewest(attacks: &[Attack], hub: Option<&Hub>, name: ScoreName) -> Option<usize> {
    let behind = match name {
        ScoreName::Ers => queries,
        ScoreName::Ars | ScoreName::ArsStrong => counted,
    };
    let of = |term: &Term| Some(behind(attacks.iter().find(|a| a.code == term.name)?, term, hub));
    terms_of(name).filter_map(of).min()
}

/// The reason to withhold a number that rests on fewer than [`FEW`] queries.
pub(super) fn on_few(queries: usize) -> Option<String> {
    (queries < FEW).then(|| format!("it rests on {}, fewer than {FEW}", number_of_queries(queries)))
}

/// Number of queries behind a resistance: those that an attack could make worse. Reports of older versions
/// don't have it, so that all of the mean count.
pub(super) fn counted(attack: &Attack, term: &Term, hub: Option<&Hub>) -> usize {
    attack.counted.unwrap_or_else(|| queries(attack, term, hub))
}

/// Number of queries behind the mean of a term. An image that is crafted for many queries is measured on the
/// held-out ones.
pub(super) fn queries(attack: &Attack, term: &Term, hub: Option<&Hub>) -> usize {
    hub.filter(|_| term.held_out.is_some()).map_or(attack.queries, |hub| hub.queries)
}
