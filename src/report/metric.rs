//! The numbers of a report by name, as gates and comparisons speak of them.

use super::{Attack, Report};
use crate::judge::score::{Replicate, Resampled};
use crate::space::benign::CMC;
use crate::suite::{ScoreName, Suite, did_you_mean};
use crate::threat;
use crate::threat::term::{self, TERMS, Term};
use crate::{Error, Result};

/// A number that reports hold.
#[derive(Clone)]
pub struct Metric {
    /// `ars`, `ars.table`, `ers`, `attack.ES:R`, `attack.CA+.resistance`, `benign.r1`, ...
    pub name: String,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Ars,
    ArsTable,
    Ers,
    /// Mean after the attack.
    After(&'static Term),
    /// Per trial.
    Resistance(&'static Term),
    /// Ratio of means.
    Table(&'static Term),
    R1,
    R2,
    Map,
    MapAtR,
    Nmi,
    Ami,
    Mrr,
    RPrecision,
    MapAtC,
    Cmc(usize),
}

impl Metric {
    /// Every metric there is.
    pub fn all() -> Vec<Metric> {
        let metric = |name: &str, what| Metric { name: name.into(), what };
        let scores =
            [metric("ars", What::Ars), metric("ars.table", What::ArsTable), metric("ers", What::Ers)];
        let after = TERMS.iter().map(|t| metric(&format!("attack.{}", t.name), What::After(t)));
        let resistance =
            term::ars_terms().map(|t| metric(&format!("attack.{}.resistance", t.name), What::Resistance(t)));
        let table = term::ars_terms().map(|t| metric(&format!("attack.{}.table", t.name), What::Table(t)));
        let benign = [
            metric("benign.r1", What::R1),
            metric("benign.r2", What::R2),
            metric("benign.map", What::Map),
            metric("benign.map_at_r", What::MapAtR),
            metric("benign.nmi", What::Nmi),
            metric("benign.ami", What::Ami),
            metric("benign.mrr", What::Mrr),
            metric("benign.r_precision", What::RPrecision),
            metric("benign.map_at_c", What::MapAtC),
        ];
        // The curve's first point is R@1.
        let cmc = CMC[1..].iter().map(|&k| metric(&format!("benign.cmc@{k}"), What::Cmc(k)));
        scores.into_iter().chain(after).chain(resistance).chain(table).chain(benign).chain(cmc).collect()
    }

    /// The metric called `name`, in any case and with a typographic minus sign too. Error: exit code 2.
    pub fn find(name: &str) -> Result<Metric> {
        let plain = name.trim().replace('\u{2212}', "-");
        let all = Metric::all();
        if let Some(found) = all.iter().find(|m| m.name.eq_ignore_ascii_case(&plain)) {
            return Ok(found.clone());
        }
        let names: Vec<&str> = all.iter().map(|m| m.name.as_str()).collect();
        Err(Error::usage(format!(
            "unknown metric `{name}`{}: expected ars, ars.table, ers, attack.CODE, attack.CODE.resistance or \
             attack.CODE.table with CODE one of {}, or one of {}",
            did_you_mean(&plain, &names),
            TERMS.iter().map(|t| t.name).collect::<Vec<_>>().join(", "),
            names.iter().filter(|n| n.starts_with("benign.")).copied().collect::<Vec<_>>().join(", ")
        )))
    }

    /// Whether a smaller number means a more robust model.
    pub fn lower_is_better(&self) -> bool {
        matches!(self.what, What::After(term) if term.lower_is_better())
    }

    /// Digits after the point that mean something.
    pub fn digits(&self) -> usize {
        match self.what {
            What::After(term) => term.digits,
            _ => 1,
        }
    }

    /// Whether it depends on attacks, and so on the choice of queries.
    pub fn attacked(&self) -> bool {
        !self.name.starts_with("benign.")
    }

    /// Whether an audit by `suite` gives it.
    pub fn given_by(&self, suite: &Suite) -> bool {
        match self.what {
            What::Ars | What::ArsTable => suite.scores.contains(&ScoreName::Ars),
            What::Ers => suite.scores.contains(&ScoreName::Ers),
            What::After(term) | What::Resistance(term) | What::Table(term) => {
                let judged = |o: &threat::Objective| o.terms.iter().any(|t| t.name == term.name);
                suite.attacks.iter().any(|a| judged(a.objective))
            }
            _ => true,
        }
    }

    /// Its value in a report.
    pub fn value(&self, report: &Report) -> Option<f64> {
        let attack = |term: &Term| row(report, term.name);
        match self.what {
            What::Ars => report.scores.ars.as_ref().map(|s| s.value),
            What::ArsTable => report.scores.ars.as_ref().and_then(|s| s.table),
            What::Ers => report.scores.ers.as_ref().map(|s| s.value),
            What::After(term) => attack(term).and_then(|a| a.after),
            What::Resistance(term) => attack(term).and_then(|a| a.resistance.per_trial),
            What::Table(term) => attack(term).and_then(|a| a.resistance.table),
            What::R1 => Some(report.benign.r1),
            What::R2 => Some(report.benign.r2),
            What::Map => Some(report.benign.map),
            What::MapAtR => Some(report.benign.map_at_r),
            What::Nmi => report.benign.nmi,
            What::Ami => report.benign.ami,
            What::Mrr => report.benign.mrr,
            What::RPrecision => report.benign.r_precision,
            What::MapAtC => report.benign.map_at_c,
            What::Cmc(k) => report.benign.cmc.iter().find(|p| p.k == k).map(|p| p.value),
        }
    }

    /// Its value in a resample of `of`; `None` too for what is not resampled, the benign metrics.
    pub fn in_replicate(&self, of: &Resampled, replicate: &Replicate) -> Option<f64> {
        let at = |term: &Term| of.terms.iter().position(|t| t == term.name);
        match self.what {
            What::Ars => replicate.ars,
            What::ArsTable => replicate.ars_table,
            What::Ers => replicate.ers,
            What::After(term) => replicate.after[at(term)?],
            What::Resistance(term) => replicate.per_trial[at(term)?],
            What::Table(term) => replicate.table[at(term)?],
            _ => None,
        }
    }

    /// Formats a value of this metric.
    pub fn show(&self, value: f64) -> String {
        format!("{value:.*}", self.digits())
    }

    /// Formats a change of this metric, with its sign.
    pub fn show_change(&self, change: f64) -> String {
        // No "-0.0".
        let shown = format!("{change:+.*}", self.digits());
        if shown.trim_start_matches(['+', '-']).chars().all(|c| matches!(c, '0' | '.')) {
            shown.replace('-', "+")
        } else {
            shown
        }
    }
}

/// The row of a term.
pub fn row<'r>(report: &'r Report, term: &str) -> Option<&'r Attack> {
    report.attacks.iter().find(|a| a.code == term)
}

impl std::fmt::Debug for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Metric) -> bool {
        self.name == other.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_people_write_them() {
        for name in ["ARS", "attack.es:r", "attack.CA\u{2212}.resistance", " benign.r1"] {
            Metric::find(name).unwrap();
        }
        let error = Metric::find("attack.ESR").unwrap_err();
        assert_eq!(error.exit, crate::Exit::Usage);
        assert!(error.message.contains("did you mean `attack.ES:R`?"), "{error}");
        assert!(Metric::find("attack.TMA.resistance").is_err());
        assert_eq!(Metric::find("ars").unwrap().show_change(-0.04), "+0.0");
    }
}
