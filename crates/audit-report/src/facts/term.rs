//! Terms: the measures of attacks. This is the only place that defines them; scores, gates, comparisons,
//! checks and every report format read them by [`Term::all`].

use crate::facts::FACTS;
use crate::record::{Form, Measures, Outcome, ScoreName, source};

/// A measure of an attack's result, before and after.
pub struct Term {
    /// Name in reports, gates and tables: the objective's code, with a suffix if the objective has several
    /// terms.
    pub name: &'static str,
    /// The numbers, in a few words.
    pub label: &'static str,
    /// The unit of the numbers.
    pub unit: Unit,
    /// The lowest and the highest value, in the unit.
    pub range: [f64; 2],
    /// The end of the range that the attacker wants.
    pub goal: Goal,
    /// Digits after the decimal point.
    pub digits: usize,
    /// Reads the values before the attack (`None` if it is a constant) and after it, not yet converted to the
    /// unit. Returns `None` if the outcome has no such value.
    pub read: Read,
    /// For attacks that are measured on many queries: reads the value after the attack with a weight for each
    /// query, by place, so that intervals resample these too. Returns `None` if all weights are 0.
    pub held_out: Option<HeldOut>,
    /// The term's contribution to ERS, as a function of the mean after the attack (Zhou et al., T-PAMI 2024,
    /// section 5); `None` if it has none.
    pub ers: Option<fn(f64) -> f64>,
    /// Whether the term is also stated by class and by group of the queries, each of which counts as one or
    /// as nothing.
    pub divided: bool,
    /// Whether the term is R@1 after an attack, which robust R@1 can contradict.
    pub recall: bool,
    /// Whether the term measures the path of the embedding itself, which a map of embeddings shows.
    pub way: bool,
    /// How resistance is averaged (Tian et al., ICML 2024, equation 30); `None` if resistance is not defined,
    /// so that ARS leaves the term out.
    pub resistance: Option<Averaging>,
    /// The weight of the term's resistance in ARS, and in ARS of the strong search; 0 if it has no part.
    pub weights: [usize; 2],
    /// Address of the paper that defines the attack.
    pub source: &'static str,
}

/// See [`Term::held_out`].
pub type HeldOut = fn(&Outcome, &[f64]) -> Option<f64>;
/// See [`Term::read`].
pub type Read = fn(&Outcome, Form) -> Option<(Option<f64>, f64)>;

/// The unit of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Ranks, in per cent of the images ranked.
    Percentile,
    /// Shares of the trials, in per cent.
    Percent,
    /// A cosine or a distance, unscaled.
    Plain,
}

/// The end of a term's range that is the attacker's goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The lowest value.
    Lowest,
    /// The highest value.
    Highest,
}

/// How resistance is averaged over trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Averaging {
    /// The mean of the trials' resistances, each clamped to [0, 1].
    Trials,
    /// The resistance of the means, for shares: a single trial has no resistance.
    Means,
}

const RANK: Term = Term {
    recall: false,
    name: "",
    label: "",
    unit: Unit::Percentile,
    range: [0.0, 100.0],
    goal: Goal::Lowest,
    digits: 1,
    read: |o, _| Some((Some(o.before.rank?), o.after.rank?)),
    held_out: None,
    ers: Some(|after| 2.0 * after),
    divided: false,
    way: false,
    resistance: Some(Averaging::Trials),
    weights: [1, 1],
    source: source::RANKING_ATTACK,
};
const SHARE: Term = Term {
    recall: true,
    unit: Unit::Percent,
    label: "R@1, %",
    read: |o, _| Some((Some(f64::from(o.before.hit?)), f64::from(o.after.hit?))),
    ers: Some(|after| after),
    divided: true,
    resistance: Some(Averaging::Means),
    source: source::DEEP_RANKING,
    ..RANK
};
/// R@1 after a published attack. In ARS of the strong search R1 replaces all three.
const RECALL: Term = Term { weights: [1, 0], ..SHARE };
const RAISED: Term = RANK;
const LOWERED: Term = Term { goal: Goal::Highest, ers: Some(|after| 100.0 - after), ..RANK };

/// The candidate's rank in the queries' rankings. The attacker lowers it to 0.
pub const CA_RAISE: Term = Term { name: "CA+", label: CANDIDATE, ..RAISED };
/// The candidate's rank in the queries' rankings. The attacker increases it.
pub const CA_LOWER: Term = Term { name: "CA-", label: CANDIDATE, ..LOWERED };
/// The candidates' rank in the query's ranking. The attacker lowers it to 0.
pub const QA_RAISE: Term = Term { name: "QA+", label: QUERY, ..RAISED };
/// The candidates' rank in the query's ranking. The attacker increases it.
pub const QA_LOWER: Term = Term { name: "QA-", label: QUERY, ..LOWERED };
/// The cosine between the query's embedding and its target's.
pub const TMA: Term = Term {
    name: "TMA",
    label: "cosine to target",
    unit: Unit::Plain,
    range: [-1.0, 1.0],
    goal: Goal::Highest,
    digits: 3,
    read: |o, _| Some((Some(o.before.cosine?), o.after.cosine?)),
    ers: Some(|after| 100.0 * (1.0 - after)),
    resistance: None,
    weights: [0, 0],
    source: source::TARGETED_MISMATCH,
    ..RANK
};
/// The shift of the embedding. The published form measures it one step before the end.
pub const ES_D: Term = Term {
    name: "ES:D",
    label: "embedding shift",
    range: [0.0, 2.0],
    read: |o, form| match form {
        Form::Published => Some((None, o.shift_before_last)),
        Form::Corrected => Some((None, o.shift)),
    },
    ers: Some(|after| 100.0 * (1.0 - after / 2.0)),
    way: true,
    source: source::DEEP_RANKING,
    ..TMA
};
/// R@1 after ES.
pub const ES_R: Term = Term { name: "ES:R", ..RECALL };
/// R@1 after LTM.
pub const LTM: Term = Term { name: "LTM", source: source::MIS_RANKING, ..RECALL };
/// R@1 after GTM.
pub const GTM: Term = Term { name: "GTM", ..RECALL };
/// Share of the queries whose best match is still among the first four.
pub const GTT: Term = Term {
    recall: false,
    name: "GTT",
    label: "top-1 kept in top 4, %",
    read: |o, _| Some((Some(f64::from(o.before.retained?)), f64::from(o.after.retained?))),
    divided: false,
    ..SHARE
};

/// Robust R@1: R@1 after the strongest attack found for each query. It replaces the three R@1 terms of ARS.
pub const R1: Term = Term {
    recall: false,
    name: "R1",
    label: "robust R@1, %",
    ers: None,
    weights: [0, 3],
    source: source::ENSEMBLE,
    ..SHARE
};

/// Robust top-1: the share of the queries whose nearest image is the same, or a near copy of it, after the
/// strongest attack found for each query. It needs no classes.
pub const TOP1: Term = Term { name: "TOP1", label: "robust top-1, %", divided: false, weights: [0, 0], ..R1 };

const KEPT: Term = Term {
    label: "kept images' rank, %",
    read: |o, _| Some((Some(o.before.kept?), o.after.kept?)),
    ers: None,
    resistance: None,
    weights: [0, 0],
    source: source::DEEP_RANKING,
    ..RANK
};
/// The candidates' rank after SPQA+.
pub const SPQA_RAISE: Term =
    Term { name: "SPQA+", ers: None, weights: [0, 0], source: source::DEEP_RANKING, ..QA_RAISE };
/// The rank of the images that SPQA+ keeps at the top.
pub const SPQA_RAISE_KEPT: Term = Term { name: "SPQA+:G", ..KEPT };
/// The candidates' rank after SPQA−.
pub const SPQA_LOWER: Term =
    Term { name: "SPQA-", ers: None, weights: [0, 0], source: source::DEEP_RANKING, ..QA_LOWER };
/// The rank of the images that SPQA− keeps at the top.
pub const SPQA_LOWER_KEPT: Term = Term { name: "SPQA-:G", ..KEPT };

/// Share of the queries that rank two images in the other order.
pub const FOA2: Term = Term {
    recall: false,
    name: "FOA2",
    label: "orders swapped, %",
    goal: Goal::Highest,
    read: ordered,
    divided: false,
    ers: None,
    resistance: None,
    weights: [0, 0],
    source: source::ORDER_ATTACK,
    ..SHARE
};
/// Kendall's τ between the requested order and the order by distance.
pub const FOA5: Term = Term {
    name: "FOA5",
    label: "τ to the order asked",
    unit: Unit::Plain,
    range: [-1.0, 1.0],
    digits: 3,
    ..FOA2
};
/// [`FOA5`] for 10 images.
pub const FOA10: Term = Term { name: "FOA10", ..FOA5 };
/// [`FOA5`] for 25 images.
pub const FOA25: Term = Term { name: "FOA25", ..FOA5 };
/// [`FOA2`] after SPFOA.
pub const SPFOA2: Term = Term { name: "SPFOA2", ..FOA2 };
/// The rank of the images that SPFOA keeps at the top.
pub const SPFOA2_KEPT: Term = Term { name: "SPFOA2:G", source: source::ORDER_ATTACK, ..KEPT };
/// [`FOA5`] after SPFOA.
pub const SPFOA5: Term = Term { name: "SPFOA5", ..FOA5 };
/// [`SPFOA2_KEPT`] for 5 images.
pub const SPFOA5_KEPT: Term = Term { name: "SPFOA5:G", source: source::ORDER_ATTACK, ..KEPT };
/// [`FOA10`] after SPFOA.
pub const SPFOA10: Term = Term { name: "SPFOA10", ..FOA5 };
/// [`SPFOA2_KEPT`] for 10 images.
pub const SPFOA10_KEPT: Term = Term { name: "SPFOA10:G", source: source::ORDER_ATTACK, ..KEPT };
/// [`FOA25`] after SPFOA.
pub const SPFOA25: Term = Term { name: "SPFOA25", ..FOA5 };
/// [`SPFOA2_KEPT`] for 25 images.
pub const SPFOA25_KEPT: Term = Term { name: "SPFOA25:G", source: source::ORDER_ATTACK, ..KEPT };

/// Share of the targets that are still among the nearest 1 %, from which they were drawn. Nobody sees images
/// farther down.
const TOP: Term = Term {
    label: "targets in the top 1 %, %",
    read: |o, _| Some((Some(o.before.top?), o.after.top?)),
    ..FOA2
};
/// Share of FOA5's targets that stay in the nearest 1 %.
pub const FOA5_TOP: Term = Term { name: "FOA5:T", ..TOP };
/// [`FOA5_TOP`] for 10 images.
pub const FOA10_TOP: Term = Term { name: "FOA10:T", ..TOP };
/// [`FOA5_TOP`] for 25 images.
pub const FOA25_TOP: Term = Term { name: "FOA25:T", ..TOP };
/// [`FOA5_TOP`] after SPFOA.
pub const SPFOA5_TOP: Term = Term { name: "SPFOA5:T", ..TOP };
/// [`FOA10_TOP`] after SPFOA.
pub const SPFOA10_TOP: Term = Term { name: "SPFOA10:T", ..TOP };
/// [`FOA25_TOP`] after SPFOA.
pub const SPFOA25_TOP: Term = Term { name: "SPFOA25:T", ..TOP };

fn ordered(o: &Outcome, _: Form) -> Option<(Option<f64>, f64)> {
    Some((Some(o.before.order?), o.after.order?))
}
/// R@1 after an attack that is part of no score.
const APART: Term = Term { ers: None, weights: [0, 0], ..SHARE };
/// R@1 after NN-push.
pub const NN: Term = Term { name: "NN", source: source::PANUM, ..APART };
/// R@1 after the attack on the anchor.
pub const ANCHOR: Term = Term { name: "ANC", source: source::PANUM, ..APART };
/// R@1 after the smallest perturbation found within ε. A query without one stays correct.
pub const MIN: Term = Term { name: "MIN", source: source::PANUM, ..APART };
/// Share of the queries for which no perturbation within ε was found that makes them find the named class.
pub const TARGETED_MIN: Term = Term {
    recall: false,
    name: "TMIN",
    label: "named class not first, %",
    divided: false,
    source: source::PANUM,
    ..APART
};
/// R@1 after the alignment attack.
pub const ALIGNMENT: Term = Term { name: "ALI", source: source::ALIGNMENT_UNIFORMITY, ..APART };
/// R@1 after the uniformity attack.
pub const UNIFORMITY: Term = Term { name: "UNI", source: source::ALIGNMENT_UNIFORMITY, ..APART };
/// R@1 after the triplet attack.
pub const TRIPLET: Term = Term { name: "TRI", source: source::FACENET, ..APART };

/// Share of the sample's queries that a hub captures, the mean of k = 1 and 10. It selects among images;
/// held-out queries measure the hub.
pub const HUB_SAMPLE: Term = Term {
    name: "HUB:S",
    label: "sample captured, %",
    read: |o, _| {
        let mean = |of: &Measures| Some(of.captured.as_ref()?.sample.iter().sum::<f64>() / 2.0);
        Some((Some(mean(&o.before)?), mean(&o.after)?))
    },
    ..CAPTURED
};
/// Share of the held-out queries that have a hub among their first ten images.
pub const HUB_10: Term = Term {
    name: "HUB:10",
    label: "captured, k = 10, %",
    read: |o, _| captured_shares(o, 10),
    held_out: Some(|o, weights| weighted(o, 10, weights)),
    ..CAPTURED
};
/// Share of the held-out queries whose first image is a hub.
pub const HUB_1: Term = Term {
    name: "HUB:1",
    label: "captured, k = 1, %",
    read: |o, _| captured_shares(o, 1),
    held_out: Some(|o, weights| weighted(o, 1, weights)),
    ..CAPTURED
};
/// The shift of the embedding under a universal perturbation, measured at the end in every form.
pub const UAP_D: Term = Term {
    name: "UAP:D",
    read: |o, _| Some((None, o.shift)),
    ers: None,
    way: false,
    source: source::UNIVERSAL,
    ..ES_D
};
/// R@1 under a universal perturbation.
pub const UAP_R: Term = Term { name: "UAP:R", source: source::UNIVERSAL, ..APART };

/// Share of the genuine pairs that are not accepted.
pub const DODGE: Term = Term { name: "DODGE", label: "genuine pairs refused, %", read: refused, ..DECIDED };
/// Share of the impostor pairs that are accepted.
pub const IMPERSONATE: Term =
    Term { name: "IMPERSONATE", label: "impostor pairs accepted, %", read: accepted, ..DECIDED };
/// Share of the queries that have no duplicate within the threshold.
pub const EVADE: Term = Term {
    name: "EVADE",
    label: "no duplicate within t, %",
    read: refused,
    source: source::PERCEPTUAL_HASHES,
    ..DECIDED
};
/// Share of the queries that have an image of another class within the threshold.
pub const COLLIDE: Term = Term {
    name: "COLLIDE",
    label: "another image within t, %",
    read: accepted,
    source: source::PERCEPTUAL_HASHES,
    ..DECIDED
};
/// Wrong decisions at a threshold. The resistance is the share of the correct decisions that stay correct.
const DECIDED: Term = Term { recall: false, goal: Goal::Highest, source: source::DODGING, ..APART };

fn accepted(o: &Outcome, _: Form) -> Option<(Option<f64>, f64)> {
    Some((Some(f64::from(o.before.accepted?)), f64::from(o.after.accepted?)))
}

fn refused(o: &Outcome, _: Form) -> Option<(Option<f64>, f64)> {
    Some((Some(f64::from(!o.before.accepted?)), f64::from(!o.after.accepted?)))
}

/// A hub is CA+ with many targets.
const CAPTURED: Term = Term {
    recall: false,
    goal: Goal::Highest,
    divided: false,
    resistance: None,
    source: source::RANKING_ATTACK,
    ..APART
};

fn captured_shares(o: &Outcome, k: usize) -> Option<(Option<f64>, f64)> {
    let share = |of: &Measures| of.captured.as_ref()?.share(k, |_| 1.0);
    Some((Some(share(&o.before)?), share(&o.after)?))
}

fn weighted(o: &Outcome, k: usize, weights: &[f64]) -> Option<f64> {
    o.after.captured.as_ref()?.share(k, |place| weights.get(place).copied().unwrap_or(0.0))
}

const CANDIDATE: &str = "candidate's rank, %";
const QUERY: &str = "rank for the query, %";

impl Term {
    /// Every term, in the order of reports: those of the objectives.
    pub fn all() -> impl Iterator<Item = &'static Term> + Clone {
        FACTS.iter().flat_map(|objective| objective.terms)
    }

    /// The term called `name`. Case matters.
    pub fn find(name: &str) -> Option<&'static Term> {
        Term::all().find(|t| t.name == name)
    }

    /// The weight of the term in a score.
    pub fn weight(&self, score: ScoreName) -> usize {
        match score {
            ScoreName::Ers => usize::from(self.ers.is_some()),
            ScoreName::Ars => self.weights[0],
            ScoreName::ArsStrong => self.weights[1],
        }
    }

    /// Whether a smaller number means a more robust model.
    pub fn lower_is_better(&self) -> bool {
        self.goal == Goal::Highest
    }

    /// Whether it may be a share of queries, each of which counts or doesn't: a share that is not measured on
    /// many queries for each trial.
    pub fn counts_queries(&self) -> bool {
        self.unit == Unit::Percent && self.held_out.is_none()
    }

    /// The factor from a read value to the unit, if rankings have `ranked` images.
    pub fn scale(&self, ranked: f64) -> f64 {
        match self.unit {
            Unit::Percentile => 100.0 / ranked,
            Unit::Percent => 100.0,
            Unit::Plain => 1.0,
        }
    }

    /// The lowest and the highest value that can be read, if rankings have `ranked` images.
    pub fn bounds(&self, ranked: f64) -> [f64; 2] {
        match self.unit {
            Unit::Percentile => [0.0, ranked - 1.0],
            Unit::Percent => [0.0, 1.0],
            Unit::Plain => self.range,
        }
    }

    /// The attacker's goal, as a read value.
    pub fn target(&self, ranked: f64) -> f64 {
        let [lowest, highest] = self.bounds(ranked);
        match self.goal {
            Goal::Lowest => lowest,
            Goal::Highest => highest,
        }
    }

    /// The attacker's success at a read `value`, in per cent: 0 is his worst value, 100 his goal.
    pub fn success(&self, value: f64, ranked: f64) -> f64 {
        let [lowest, highest] = self.bounds(ranked);
        let share = 100.0 * (value - lowest) / (highest - lowest).max(1e-9);
        match self.goal {
            Goal::Lowest => 100.0 - share,
            Goal::Highest => share,
        }
    }

    /// The model's score at `value` (in the unit), from 0, the attacker's goal, to 100.
    pub fn standing(&self, value: f64) -> f64 {
        let [lowest, highest] = self.range;
        let share = 100.0 * (value - lowest) / (highest - lowest);
        if self.lower_is_better() { 100.0 - share } else { share }
    }

    /// The attacker's worst value, in the unit.
    pub fn untouched(&self) -> f64 {
        if self.lower_is_better() { self.range[0] } else { self.range[1] }
    }

    /// Formats a value of this term.
    pub fn show(&self, value: f64) -> String {
        format!("{value:.*}", self.digits)
    }
}

/// The terms that a score averages.
pub fn terms_of(score: ScoreName) -> impl Iterator<Item = &'static Term> + Clone {
    Term::all().filter(move |term| term.weight(score) > 0)
}

audit_base::known_by_name!(Term);

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables and gates find a term by its name.
    #[test]
    fn every_term_belongs_to_one_objective() {
        let names: std::collections::BTreeSet<&str> = Term::all().map(|term| term.name).collect();
        assert_eq!(names.len(), Term::all().count());
    }

    #[test]
    fn standing_and_success_run_the_other_way() {
        for term in Term::all() {
            let goal = if term.lower_is_better() { term.range[1] } else { term.range[0] };
            assert_eq!(term.standing(goal), 0.0, "{}", term.name);
            assert_eq!(term.success(term.target(101.0), 101.0), 100.0, "{}", term.name);
        }
    }
}
