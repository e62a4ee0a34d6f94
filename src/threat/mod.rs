//! Attacks: what they target, the loss they minimise, what they measure; and the one PGD loop.
//!
//! ```text
//! queries ─ select ─> Trial (attack × query × targets) ─ run ─> Outcome (before / after)
//! ```
//!
//! An attack is a row of [`ATTACKS`]: how it chooses targets, its loss at the embedding, what it is judged
//! by. To add one, write `<code>.rs` with that row and name it in the table. Definitions follow Zhou et al.,
//! "Adversarial Attack and Defense in Deep Ranking" (T-PAMI 2024, arXiv:2106.03614), Tolias et al. (ICCV
//! 2019) for TMA and Wang et al. (CVPR 2020) for LTM.

mod objective;
mod runner;
mod search;
mod select;

pub use runner::{Event, Evidence, Images, LAST, Plan, Watch, losses, run};
pub use search::apgd::Schedule;
pub use select::{
    Selection, Skipped, Trial, TrialFile, read_trials, record, sample_queries, select, write_trials,
};

use crate::space::ranks::{Ask, Mark};
use crate::space::{self, Angle, Gallery, draw_index, wide};
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// Every attack, in the order reports list them.
pub static ATTACKS: &[Attack] = objective::ALL;

/// One kind of attack.
pub struct Attack {
    /// The code in suites, reports and seeds: "CA+".
    pub code: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// What it is judged by.
    pub measure: Measure,
    /// Whether targets are drawn at random; otherwise they follow from the model.
    pub drawn: bool,
    /// The suite parameter that sets the number of targets ("w", "m"), for attacks on several.
    pub several: Option<&'static str>,
    /// Chooses the gallery items a trial is about.
    pub targets: fn(&Query, &mut Draw) -> Result<Targets>,
    /// Prepares the loss of one trial. It is minimised.
    pub loss: for<'a> fn(&'a Gallery, Form, &Trial) -> Loss<'a>,
}

impl fmt::Debug for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

impl Attack {
    /// The attack called `code`: any case, and a typographic minus sign will do.
    pub fn find(code: &str) -> Result<&'static Attack> {
        let plain = code.trim().replace('\u{2212}', "-");
        ATTACKS.iter().find(|a| a.code.eq_ignore_ascii_case(&plain)).ok_or_else(|| {
            let codes: Vec<&str> = ATTACKS.iter().map(|a| a.code).collect();
            Error::usage(format!("unknown attack `{code}`: expected one of {}", codes.join(", ")))
        })
    }
}

/// Which reading of the definitions.
///
/// `Published` does what the released evaluation code behind the published tables computes, flaws included;
/// `Corrected` does what the papers define. They differ in:
///
/// - GTM's target: an index into a filtered list used as an index into the gallery, and "another class"
///   judged against the class of the nearest item; corrected: the nearest item of a class other than the
///   query's;
/// - LTM's "own class", which holds the query itself; corrected: it does not;
/// - ES:D, taken one step before the end; corrected: at the end;
/// - ranks, which count the clean copies of the query and of the target; corrected: they do not, and random
///   targets are never the query itself;
/// - an offset of 1e-6 in the pairwise distance of ES and GTM; corrected: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Comparable with published tables.
    Published,
    /// As defined.
    Corrected,
}

impl Form {
    /// Items that a ranking holds in a gallery of `n`: ranks lie in 0..ranked, and percentiles refer to it.
    /// The published form ranks the query's clean copy too. `outside`: some queries have none in the gallery.
    pub fn ranked(self, n: usize, outside: bool) -> usize {
        match self {
            Form::Corrected if !outside => n - 1,
            _ => n,
        }
    }

    /// The same for a gallery at hand.
    pub fn ranked_in(self, gallery: &Gallery) -> usize {
        self.ranked(gallery.len(), gallery.points.nrows() > gallery.len())
    }

    /// Whether `item` counts in the ranking of `query`.
    pub fn ranks(self, gallery: &Gallery, query: usize, item: usize) -> bool {
        match self {
            Form::Published => !gallery.same_view(query, item),
            Form::Corrected => !gallery.excluded(query, item),
        }
    }

    /// What is added to each coordinate of a difference inside the pairwise distance of ES and GTM.
    fn offset(self) -> f64 {
        match self {
            Form::Published => 1e-6,
            Form::Corrected => 0.0,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Published => "published",
            Form::Corrected => "corrected",
        })
    }
}

/// What an attack is judged by, and what the attacker wants of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Rank of the perturbed item in its targets' rankings, mean over targets.
    CandidateRank(Goal),
    /// Rank of the targets in the perturbed query's ranking, mean over targets.
    QueryRank(Goal),
    /// Cosine similarity with the target; the attacker wants 1.
    Cosine,
    /// Distance travelled from the clean embedding, and whether the nearest item still has the query's class;
    /// the attacker wants far and no.
    Escape,
    /// Whether the nearest item has the query's class; the attacker wants no.
    Hit,
    /// Whether the target is among the nearest 4; the attacker wants no.
    Retained,
}

/// Where a ranking attack wants the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Rank 0.
    First,
    /// The last rank.
    Last,
}

impl Goal {
    /// +1 or −1: the sign of (distance to the target − distance to others) in the loss.
    fn sign(self) -> f32 {
        match self {
            Goal::First => 1.0,
            Goal::Last => -1.0,
        }
    }
}

/// A query that asks for targets.
pub struct Query<'a> {
    /// The gallery.
    pub gallery: &'a Gallery,
    /// The query's index; below N where it is an item of the gallery itself.
    pub index: usize,
    /// Targets wanted (w or m).
    pub count: usize,
    /// The reading of the definitions.
    pub form: Form,
}

impl Query<'_> {
    /// Distances of the clean query to every item, N.
    pub fn distances(&self) -> Vec<f64> {
        self.gallery.distances(self.gallery.point(self.index))
    }

    /// The ⌊0.01·N⌋ items nearest to the query (at least 1) of those it may rank, nearest first.
    pub fn top_percent(&self) -> Vec<usize> {
        let n = self.gallery.len();
        self.gallery.nearest(&self.distances(), (n / 100).max(1), |i| !self.gallery.excluded(self.index, i))
    }

    /// The same of the queries, to a candidate: the ⌊1 %⌋ nearest that may rank it.
    pub fn top_percent_of_queries(&self) -> Vec<usize> {
        let gallery = self.gallery;
        let at = |q: usize| gallery.metric.distance(gallery.point(self.index), gallery.point(q));
        let others = gallery.queries().iter().filter(|&&q| !gallery.excluded(q, self.index));
        let mut near: Vec<(f64, usize)> = others.map(|&q| (at(q), q)).collect();
        near.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        near.truncate((gallery.queries().len() / 100).max(1));
        near.into_iter().map(|(_, q)| q).collect()
    }

    /// So many items, each uniform over those of the gallery that the query ranks.
    fn any_items(&self, count: usize, draw: &mut Draw) -> Targets {
        let ranked = |&i: &usize| self.form.ranks(self.gallery, self.index, i);
        let items: Vec<usize> = (0..self.gallery.len()).filter(ranked).collect();
        draw.from(&items, count)
    }

    /// So many queries, each uniform over those that rank this candidate.
    fn any_queries(&self, count: usize, draw: &mut Draw) -> Targets {
        let ranks = |&&q: &&usize| self.form.ranks(self.gallery, q, self.index);
        let queries: Vec<usize> = self.gallery.queries().iter().filter(ranks).copied().collect();
        draw.from(&queries, count)
    }
}

/// What choosing targets led to.
pub enum Targets {
    /// Gallery indices; none for attacks without a target.
    Chosen(Vec<usize>),
    /// This query can't be attacked so, and why.
    Skip(&'static str),
}

/// The random choices of one trial. They depend on (seed, attack, query id) alone, so that a trial is the
/// same in every batch, order, shard and subset of queries.
pub struct Draw(ChaCha8Rng);

impl Draw {
    /// ChaCha8, keyed with SHA-256 of the seed, the attack's code and the query's id; `stream` 0 is for
    /// targets, further ones for random starts.
    pub fn new(seed: u64, code: &str, id: &str, stream: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(seed.to_le_bytes());
        hash.update(code.as_bytes());
        hash.update([0]);
        hash.update(id.as_bytes());
        let mut rng = ChaCha8Rng::from_seed(hash.finalize().into());
        rng.set_stream(stream);
        Draw(rng)
    }

    /// Uniform in 0..n.
    pub fn index(&mut self, n: usize) -> usize {
        draw_index(&mut self.0, n)
    }

    /// `count` of `items`, each drawn from all.
    fn from(&mut self, items: &[usize], count: usize) -> Targets {
        match items {
            [] => Targets::Skip("no other item to choose from"),
            _ => Targets::Chosen((0..count).map(|_| items[self.index(items.len())]).collect()),
        }
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 / (1u32 << 24) as f32
    }
}

/// A loss at the point z (D) of the metric space.
pub enum Loss<'a> {
    /// A function of the point: (z, first step of a run from the clean image, ∂L/∂z [D], zero on entry) → loss.
    Point(Box<PointLoss<'a>>),
    /// A function of the distances d from z to the whole gallery: (d [N], ∂L/∂d [N], zero on entry) → loss.
    /// Only these pay for matrix products with the gallery.
    Gallery(Box<GalleryLoss<'a>>),
}

/// See [`Loss::Point`].
pub type PointLoss<'a> = dyn Fn(&[f32], bool, &mut [f32]) -> f64 + Send + Sync + 'a;
/// See [`Loss::Gallery`].
pub type GalleryLoss<'a> = dyn Fn(&[f32], &mut [f32]) -> f64 + Send + Sync + 'a;

/// What was measured in one state, clean or attacked: what the attack's [`Measure`] says, the others `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Measures {
    /// Rank, 0 = nearest, mean over targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<f64>,
    /// Cosine similarity with the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f64>,
    /// Whether the nearest item that the query may rank has its class; `None` where no such item has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit: Option<bool>,
    /// Whether the target is among the nearest 4 items other than the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<bool>,
}

/// What became of one trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Outcome {
    /// The attack's code.
    pub attack: String,
    /// The query's id.
    pub query: String,
    /// Ids of the targets; empty where there are none.
    pub targets: Vec<String>,
    /// Which start gave this result: 0 = the clean image, others random.
    pub start: usize,
    /// Steps that could still move the image.
    pub steps: usize,
    /// Loss at the first iterate.
    pub loss_first: f64,
    /// Loss at the final image.
    pub loss_last: f64,
    /// Lowest loss at any image of the run.
    #[serde(default)]
    pub loss_best: f64,
    /// Share of the loss's whole fall that came in the last 10 steps; 0 where it didn't fall.
    #[serde(default)]
    pub late_fall: f64,
    /// Distance from the clean embedding to the final one.
    pub shift: f64,
    /// The same before the last step.
    pub shift_before_last: f64,
    /// Largest change of a pixel.
    pub linf: f32,
    /// At the clean embedding.
    pub before: Measures,
    /// At the final embedding.
    pub after: Measures,
}

/// Measures the point `z` (D) as `trial` is judged.
pub fn measure(gallery: &Gallery, form: Form, trial: &Trial, z: &[f32]) -> Measures {
    measure_all(gallery, form, &[(trial, z)]).swap_remove(0)
}

/// The same of many: they share matrix products with the gallery, and what near ties hang on is compared by direct
/// difference.
pub fn measure_all(gallery: &Gallery, form: Form, at: &[(&Trial, &[f32])]) -> Vec<Measures> {
    let (mut asks, mut owners) = (Vec::new(), Vec::new());
    for (owner, &(trial, z)) in at.iter().enumerate() {
        let found = questions(gallery, form, trial, z);
        owners.resize(owners.len() + found.len(), owner);
        asks.extend(found);
    }
    let mut ranks: Vec<Vec<usize>> = vec![Vec::new(); at.len()];
    owners
        .iter()
        .zip(space::ranks::ranks(gallery, &asks))
        .for_each(|(&owner, found)| ranks[owner].extend(found));
    let judged = at.iter().zip(ranks).map(|(&(trial, z), ranks)| {
        let target = trial.targets.first();
        let first = ranks.first();
        let mut found = Measures::default();
        match trial.attack.measure {
            Measure::CandidateRank(_) | Measure::QueryRank(_) => {
                found.rank = Some(ranks.iter().sum::<usize>() as f64 / trial.targets.len().max(1) as f64);
            }
            Measure::Cosine => {
                found.cosine = target.map(|&t| Angle::between(z, &wide(gallery.point(t))).cosine)
            }
            Measure::Escape | Measure::Hit => found.hit = first.map(|&rank| rank == 0),
            Measure::Retained => {
                let ranked = |t: &usize| !gallery.excluded(trial.query, *t);
                found.retained = target.zip(first).map(|(t, &rank)| rank < 4 && ranked(t));
            }
        }
        found
    });
    judged.collect()
}

/// The places in rankings that say how `trial` stands at `z`.
fn questions<'a>(gallery: &'a Gallery, form: Form, trial: &Trial, z: &'a [f32]) -> Vec<Ask<'a>> {
    let query = trial.query;
    // The published form ranks clean copies as well.
    let own = form == Form::Corrected;
    let items = |targets: &[usize]| targets.iter().map(|&t| Mark::Item(t)).collect();
    match trial.attack.measure {
        Measure::CandidateRank(_) => {
            let ask = |&q: &usize| {
                let mut left_out = gallery.left_out(q, own);
                if own && query < gallery.len() && !left_out.contains(&query) {
                    left_out.push(query);
                }
                let q = gallery.point(q);
                Ask { z: q, marks: vec![Mark::Distance(gallery.metric.distance(q, z))], left_out }
            };
            trial.targets.iter().map(ask).collect()
        }
        Measure::QueryRank(_) => {
            vec![Ask { z, marks: items(&trial.targets), left_out: gallery.left_out(query, own) }]
        }
        Measure::Cosine => Vec::new(),
        // The nearest of its class is in front of all others of it: what is before that is of another class.
        Measure::Escape | Measure::Hit => {
            let far = |i: usize| gallery.metric.distance(z, gallery.point(i));
            let positives = gallery.positives(query).map(|i| (far(i), i));
            let nearest = positives.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let ask = |(_, i)| Ask { z, marks: vec![Mark::Item(i)], left_out: gallery.left_out(query, true) };
            nearest.map(ask).into_iter().collect()
        }
        Measure::Retained => {
            let targets = items(&trial.targets[..trial.targets.len().min(1)]);
            vec![Ask { z, marks: targets, left_out: gallery.left_out(query, true) }]
        }
    }
}

/// Asked at each step, with the raw embeddings [B, D], for ∂L/∂embedding [B, D], which it overwrites.
pub type Cotangent<'c> = dyn FnMut(ArrayView2<f32>, ArrayViewMut2<f32>) + 'c;

/// A model whose embedding can be differentiated with respect to its images, as one thread has it.
///
/// Images are contiguous `f32` pixels in [0,1], C×H×W each. Embeddings are the model's own
/// output, not normalised: metrics are the business of [`crate::space`].
pub trait Differentiable: Send {
    /// Images that one call processes at the most.
    fn batch(&self) -> usize;
    /// Values in one image, C·H·W.
    fn pixels(&self) -> usize;
    /// Embeddings [n, D] of n ≤ `batch()` images (`images.len() == n * pixels()`).
    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>>;
    /// One PGD step on a full batch: embeds the images x, has `cotangent` write ∂L/∂embedding,
    /// and replaces them by clip(x − α·sign(∂L/∂x), lo, hi). `sign(0) = 0`.
    ///
    /// A model may keep images and bounds where it computes from one step to the next: then it takes them from `batch`
    /// only where `batch.changed`, which it clears, and `batch.x` falls behind until [`Differentiable::fetch`].
    fn step(&mut self, batch: &mut Batch, cotangent: &mut Cotangent) -> Result<()>;
    /// Brings `batch.x` up to the last step. Nothing to do for a model whose steps change `batch.x` itself.
    fn fetch(&mut self, _batch: &mut Batch) -> Result<()> {
        Ok(())
    }
}

/// The state of a PGD batch: B images and the box each may move in.
pub struct Batch {
    /// Images, B×P; current after [`Differentiable::fetch`].
    pub x: Vec<f32>,
    /// Lower bounds, max(x0 − ε, 0), B×P.
    pub lo: Vec<f32>,
    /// Upper bounds, min(x0 + ε, 1), B×P.
    pub hi: Vec<f32>,
    /// Step size of each image, B. 0 leaves an image where it is. Read at every step.
    pub alpha: Vec<f32>,
    /// Whether `x`, `lo` or `hi` were written to since the last step. `x` must be current then.
    pub changed: bool,
}
