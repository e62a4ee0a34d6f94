//! The numbers of a report: retrieval without an attack and after attacks, scores, and their breakdowns.

use super::{Form, ScoreName, Space};
use audit_gallery::data::GREY_LEVEL;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One measure. Ranks are percentiles and shares are in per cent; TMA is a cosine, ES:D a distance.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Attack {
    /// The term's name.
    pub code: String,
    /// The form of the definitions.
    pub form: Form,
    /// Number of trials in the means.
    pub queries: usize,
    /// Number of trials that could not be run, or whose rank already was the attacker's goal.
    pub skipped: usize,
    /// Number of trials that the resistance rests on: for shares, queries that are correct without an attack;
    /// for ranks, trials whose rank was not the attacker's goal. Absent if there is no resistance, and in
    /// reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<usize>,
    /// Mean before the attack.
    pub before: Option<f64>,
    /// Mean after the attack.
    pub after: Option<f64>,
    /// 95 % interval of `after`: of a share of queries Wilson's, otherwise by bootstrap over queries, and
    /// over perturbations that they share; of shares that are all 0 or all 100 at least Wilson's. Of attacked
    /// pairs, see `verification.far_interval`.
    pub after_interval: Option<(f64, f64)>,
    /// Contribution to ERS.
    pub ers_term: Option<f64>,
    /// Resistance, per cent.
    pub resistance: Resistance,
}

impl Attack {
    /// Whether the resistance rests on too few trials to be reliable.
    pub fn small(&self) -> bool {
        self.counted.is_some_and(|n| n < FEW)
    }

    /// The number of trials behind the resistance, and of how many: `12/16`, or `16` if all of them count.
    pub fn of(&self) -> String {
        match self.counted {
            Some(n) if n != self.queries => format!("{n}/{}", self.queries),
            _ => self.queries.to_string(),
        }
    }
}

/// Number of queries below which a number has no interval and no verdict, and a score is withheld: one query
/// more or less changes it by more than ten points.
pub const FEW: usize = 10;

/// A number of queries in words: `1 query`, `12 queries`.
pub fn number_of_queries(queries: usize) -> String {
    format!("{queries} {}", if queries == 1 { "query" } else { "queries" })
}

/// The 95 % interval of a number of `queries` queries; `None` for fewer than [`FEW`].
pub fn unless_few<T>(queries: usize, interval: Option<T>) -> Option<T> {
    interval.filter(|_| queries >= FEW)
}

/// Retrieval of an attack's queries without it and under it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetrievalRow {
    /// The attack's code.
    pub attack: String,
    /// Number of queries in the means.
    pub queries: usize,
    /// The same queries without an attack.
    pub before: RetrievalMeans,
    /// The attacked queries.
    pub after: RetrievalMeans,
}

/// Retrieval of some queries, in per cent. The gallery is clean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetrievalMeans {
    /// Recall at 1.
    pub r1: f64,
    /// Mean average precision.
    pub map: f64,
    /// Mean average precision over the first R images, where R is the number of images of the query's class
    /// (Musgrave et al., 2020).
    pub map_at_r: f64,
    /// Share of the class among the nearest R + 1 (ADML, appendix D.3).
    pub map_at_c: f64,
    /// Normalised mutual information of the queries' classes with their clusters: the nearest centre of the
    /// k-means clustering of the clean gallery. Absent if the gallery was not clustered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nmi: Option<f64>,
}

/// R@1 or wrong decisions after attacks, by class or by group of the queries. Classes and groups of few
/// queries are left out. The groups of attacks on pairs are those that their list names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Breakdown {
    /// The division of the queries: class or group.
    pub by: String,
    /// The number that is divided, by its name in gates: robust_r1, or that of an attack, such as
    /// attack.ES:R.
    pub metric: String,
    /// Fewest queries of a class or group that has a row.
    pub least: usize,
    /// Number of classes or groups that have fewer queries.
    pub too_few: usize,
    /// The worst of the rows' values after attacks, per cent: the lowest R@1, or the highest share of wrong
    /// decisions. The worst of several noisy numbers is bad by chance too: read it with its interval.
    #[serde(alias = "lowest")]
    pub worst: f64,
    /// 95 % interval of the worst value of any class or group that has a row: from the worst lower to the
    /// worst upper end of the exact intervals of the m rows and of all their queries together, at 1 −
    /// 0.05/(m + 1). Attacked pairs of groups that share identities count as fewer.
    pub interval: (f64, f64),
    /// The classes or groups, the worst first.
    pub rows: Vec<BreakdownRow>,
}

/// R@1, or the share of wrong decisions, of the queries of one class or group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BreakdownRow {
    /// The class or group.
    pub name: String,
    /// Number of its queries that were attacked.
    pub queries: usize,
    /// The value of these without an attack, per cent.
    pub before: f64,
    /// The value after the attacks, per cent.
    pub after: f64,
    /// 95 % interval of `after` that holds for all rows together: exact (Clopper and Pearson, 1934), at 1 −
    /// 0.05/m for m rows (Bonferroni). Attacked pairs of a group that share identities count as fewer.
    pub interval: (f64, f64),
}

/// How universal perturbations were crafted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Universal {
    /// Number of perturbations. Each query is measured under one of them.
    pub perturbations: usize,
    /// Number of queries that each is crafted on. They are measured under none.
    pub sample: usize,
}

/// Queries that hubs are measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hub {
    /// Number of queries that held-out ones are drawn from: for each hub, those that are not in its sample.
    pub queries: usize,
    /// Maximum number of queries that a hub is crafted on.
    pub sample: usize,
    /// Share that the best clean image captures, per cent, for k = 1 and 10.
    pub best_clean: [f64; 2],
}

/// The smallest perturbations that a search found to make queries wrong, or to make them find the named class
/// (TMIN). They are upper bounds: a better search may find smaller ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Smallest {
    /// The attack's code.
    pub attack: String,
    /// Name of the norm that measures a perturbation, `linf` or `l2`.
    pub norm: String,
    /// The largest norm that was searched, ε.
    pub most: f32,
    /// Number of queries attacked.
    pub queries: usize,
    /// Number of these that are correct without an attack; under TMIN, that don't find the named class.
    pub right: usize,
    /// Median of the norms over these; absent if more than half of them have none
    /// up to ε.
    pub median: Option<f64>,
    /// Its 95 % interval over queries (order statistics); an end at `most` is larger than that. Absent for
    /// fewer than 10 of these queries, and in reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// R@1 against the norm that an attacker may use: at 0, at up to 19 quantiles of the norms found (from
    /// the smallest to the largest), and at ε.
    pub curve: Vec<CurvePoint>,
}

/// A point of the curve of R@1, or of the share that is left under TMIN, against the size of perturbations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurvePoint {
    /// The largest norm of a perturbation, in units of the [0, 1] range.
    pub eps: f64,
    /// Share of the queries for which the attack found no perturbation within it, per cent.
    pub r1: f64,
}

/// Both forms of a resistance, per cent.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Resistance {
    /// Mean over trials, each clamped: equation 30 of the CA-TRIDE paper.
    pub per_trial: Option<f64>,
    /// Ratio of means, as in the paper's tables.
    pub table: Option<f64>,
}

/// The scores, 0–100, higher is better.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Scores {
    /// Empirical robustness score.
    pub ers: Option<Score>,
    /// Adversarial resistance score.
    pub ars: Option<Score>,
    /// ARS under the strong search, for suites that run it on every attack.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ars_strong: Option<Score>,
    /// R@1 under the strong search; absent if no query was attacked by it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub robust_r1: Option<Robust>,
    /// Robust R@1 of images without classes: the share of the queries whose nearest image stays the same
    /// under the strong search. A report has one of the two.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub robust_top1: Option<Robust>,
    /// The reasons for missing scores.
    pub notes: Vec<String>,
}

impl Scores {
    /// Robust R@1, or robust top-1.
    pub fn robust(&self) -> Option<&Robust> {
        self.robust_r1.as_ref().or(self.robust_top1.as_ref())
    }

    /// The score called `name`, if there is one.
    pub fn get(&self, name: ScoreName) -> Option<&Score> {
        match name {
            ScoreName::Ers => self.ers.as_ref(),
            ScoreName::Ars => self.ars.as_ref(),
            ScoreName::ArsStrong => self.ars_strong.as_ref(),
        }
    }
}

/// Robust R@1: the share of the queries for which no attack of the strong search found an image that makes an
/// image of another class the nearest. Queries that are wrong without an attack count as wrong. It is an
/// upper bound: a better attack may lower it. Robust top-1 is the same share for images without classes: a
/// query is correct if its nearest image is the one that the model finds for the clean image, or a near copy
/// of it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Robust {
    /// The share, in per cent.
    pub value: f64,
    /// 95 % interval over queries (Wilson); absent for fewer than 10 queries, as reports for people don't
    /// show the number then.
    pub interval: Option<(f64, f64)>,
    /// Largest size ε of the perturbations, in units of the [0, 1] range, in the suite's norm; absent in
    /// reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eps: Option<f32>,
    /// Queries that were attacked.
    pub queries: usize,
    /// R@1, or top-1, of the same queries without an attack, in per cent. Top-1 is 100 then.
    pub clean: f64,
    /// Results of each member of the ensemble, in its order.
    pub members: Vec<MemberRow>,
    /// Robust R@1, or robust top-1, at smaller ε; absent unless the suite has a ladder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<Ladder>,
}

/// Robust R@1 at ε and at its halves, and the ε at which half of the correct queries fail. All are upper
/// bounds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Ladder {
    /// The largest ε first.
    pub rungs: Vec<Rung>,
    /// ε50; absent if no query is correct without an attack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eps50: Option<Eps50>,
}

/// A rung of a [`Ladder`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rung {
    /// The largest size of a perturbation, in units of the [0, 1] range.
    pub eps: f32,
    /// Share of all attacked queries for which no image within it was found that makes them wrong, per cent.
    pub r1: f64,
    /// 95 % interval over queries (Wilson); absent for fewer than 10 queries.
    pub interval: Option<(f64, f64)>,
    /// That share for files of 8 bits a channel: for the queries' own files if the suite's `file_column` is
    /// `file`, otherwise for images of the model's input size whose values are whole grey levels, n/255.
    /// Absent below 1/255, where no such image differs, and in other norms than the largest change of a
    /// pixel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_file: Option<f64>,
    /// Its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_file_interval: Option<(f64, f64)>,
}

/// ε50: the smallest ε at which half of the correct queries fail.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Eps50 {
    /// In 255ths of the [0, 1] range. `most` if fewer than half fail: it is then larger than that.
    pub value: f64,
    /// The largest ε that was searched, in 255ths.
    pub most: f64,
    /// 95 % interval over queries (bootstrap); an end at `most` is larger than that. Absent for fewer than 10
    /// queries.
    pub interval: Option<(f64, f64)>,
    /// Queries that are correct without an attack.
    pub queries: usize,
}

/// A member of the ensemble over all queries.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemberRow {
    /// Name of the member (docs/strength.md).
    pub name: String,
    /// What it does.
    pub about: String,
    /// Queries that it attacked: those that no earlier tier had broken.
    pub queries: usize,
    /// Queries of these that it broke.
    pub broken: usize,
    /// Queries that it broke, and whose image is the trial's result.
    pub counts: usize,
    /// Image steps.
    pub steps: usize,
}

impl Robust {
    /// The number of correct queries, without an attack and under attack.
    pub fn correct(&self) -> [usize; 2] {
        let count = |share: f64| (share * self.queries as f64 / 100.0).round() as usize;
        // A report that somebody wrote may have more under attack.
        let clean = count(self.clean);
        [clean, count(self.value).min(clean)]
    }
}

/// A score and its interval.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// The score. For ARS it is the form per trial.
    pub value: f64,
    /// 95 % interval of the score, by bootstrap over queries.
    pub interval: Option<(f64, f64)>,
    /// The ratio-of-means form, for ARS.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub table: Option<f64>,
    /// 95 % interval of the ratio-of-means form.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub table_interval: Option<(f64, f64)>,
    /// Whether the interval is so wide that reports for people don't show the score.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub withheld: bool,
}

/// ε and its halves, the largest first. If files are changed, only those at which another file exists: files
/// differ by at least a grey level.
pub fn rungs(eps: f32, halvings: Option<usize>, space: Space) -> Vec<f32> {
    let halves = (1..=halvings.unwrap_or(0)).map(|k| eps / (1u32 << k.min(31)) as f32);
    let least = match space {
        Space::Input => 0.0,
        // Halves of the protocols' truncated decimals lie a little below it.
        Space::File => GREY_LEVEL * (1.0 - 1e-3),
    };
    std::iter::once(eps).chain(halves.filter(|half| *half >= least)).collect()
}
