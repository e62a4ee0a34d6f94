//! Choice of negatives. A sampler is a weight for every image of the batch: how likely it is to be an anchor's negative.

use crate::dice::Dice;
use crate::find_row;
use audit::{Error, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

pub struct Sampler {
    /// On the command line.
    pub name: &'static str,
    pub about: &'static str,
    /// Weight of `candidate`, an image of another class than `anchor`; not negative.
    pub weight: fn(batch: &Mined, anchor: usize, positive: usize, candidate: usize) -> f64,
}

/// Every sampler.
pub const SAMPLERS: &[Sampler] = &[
    RANDOM,
    // Schroff et al. (2015).
    Sampler {
        name: SEMIHARD,
        about: "farther than the positive, by less than η",
        weight: |batch, anchor, positive, candidate| {
            let gap = batch.distance(anchor, candidate) - batch.distance(anchor, positive);
            f64::from(gap > 0.0 && gap < batch.eta)
        },
    },
    // Nearer than the farthest image of the anchor's class, in Roth and Brattoli's code; with two images of a class in a
    // batch that is the positive.
    Sampler {
        name: "softhard",
        about: "nearer than the positive",
        weight: |batch, anchor, positive, candidate| {
            f64::from(batch.distance(anchor, candidate) < batch.distance(anchor, positive))
        },
    },
    // Wu et al. (2017), distances held in NEAREST to FARTHEST.
    Sampler {
        name: "distance",
        about: "by the inverse density of its distance on the sphere",
        weight: |batch, anchor, _, candidate| {
            // Relative to the largest that any distance in the range can have, so that nothing overflows.
            let highest = log_weight(batch, NEAREST).max(log_weight(batch, FARTHEST));
            (log_weight(batch, batch.distance(anchor, candidate)) - highest).exp()
        },
    },
    Sampler {
        name: "hardest",
        about: "the nearest of another class",
        weight: |batch, anchor, _, candidate| {
            let own = batch.distance(anchor, candidate);
            let nearer =
                |c: usize| batch.labels[c] != batch.labels[anchor] && batch.distance(anchor, c) < own;
            f64::from(!(0..batch.labels.len()).any(nearer))
        },
    },
];

const RANDOM: Sampler =
    Sampler { name: "random", about: "any image of another class", weight: |_, _, _, _| 1.0 };
const SEMIHARD: &str = "semihard";

/// Distances outside of these count as these.
const NEAREST: f64 = 0.5;
const FARTHEST: f64 = 1.4;

fn log_weight(batch: &Mined, distance: f64) -> f64 {
    let (d, dim) = (distance.clamp(NEAREST, FARTHEST), batch.dim as f64);
    (2.0 - dim) * d.ln() - (dim - 3.0) / 2.0 * (1.0 - d * d / 4.0).ln()
}

/// The margin η after a share of the training: η0·(1 − (share/2)²) (CA-TRIDE, equation 32).
pub fn scheduled(eta: f64, share: f64) -> f64 {
    eta * (1.0 - (share / 2.0).powi(2))
}

/// The margin η of CA-TRIDE's released code: η0·(1 − share/2)².
pub fn scheduled_as_released(eta: f64, share: f64) -> f64 {
    eta * (1.0 - share / 2.0).powi(2)
}

/// Which images of a batch are anchors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Anchors {
    /// The first of each class pair: half as many triplets as images.
    Pairs,
    /// Every image, the other one of its class being the positive.
    Every,
}

/// A batch as samplers see it: images 2i and 2i + 1 share a class.
pub struct Mined {
    /// Distances of unit-norm embeddings, row by row.
    distances: Vec<f32>,
    pub labels: Vec<usize>,
    /// Of the embeddings.
    pub dim: usize,
    /// The margin within which semi-hard negatives lie.
    pub eta: f64,
}

/// Rows of a batch, by index: anchors, positives, negatives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Triplets {
    pub a: Vec<i64>,
    pub p: Vec<i64>,
    pub n: Vec<i64>,
}

impl Sampler {
    pub fn find(name: &str) -> Result<&'static Sampler> {
        find_row("sampler", SAMPLERS, name, |row| row.name)
    }

    /// Whether it is the one that the margin η is for.
    pub fn is_semihard(&self) -> bool {
        self.name == SEMIHARD
    }

    /// Weights of all images of the batch as negatives of an anchor.
    pub fn weights(&self, batch: &Mined, anchor: usize, positive: usize) -> Vec<f64> {
        let weight = |c: usize| match batch.labels[c] == batch.labels[anchor] {
            true => 0.0,
            false => (self.weight)(batch, anchor, positive, c),
        };
        (0..batch.labels.len()).map(weight).collect()
    }

    /// One triplet for each anchor. Where the sampler takes nothing, any image of another class will do.
    pub fn mine(&self, batch: &Mined, anchors: Anchors, dice: &mut Dice) -> Triplets {
        let mut triplets = Triplets::default();
        let every = match anchors {
            Anchors::Pairs => 2,
            Anchors::Every => 1,
        };
        for anchor in (0..batch.labels.len()).step_by(every) {
            // Images 2i and 2i + 1 share a class.
            let positive = anchor ^ 1;
            let mut weights = self.weights(batch, anchor, positive);
            if weights.iter().all(|w| *w == 0.0) {
                weights = RANDOM.weights(batch, anchor, positive);
            }
            // A batch has at least two classes, so there is one.
            if let Some(negative) = dice.weighted(&weights) {
                triplets.add(anchor, positive, negative);
            }
        }
        triplets
    }
}

impl Mined {
    /// Looks at unit-norm embeddings [B, D].
    pub fn new(embeddings: &Tensor, labels: &[usize], eta: f64) -> Result<Mined> {
        let e = embeddings.detach().to_kind(Kind::Double);
        let squares: Tensor = 2.0 - 2.0 * e.matmul(&e.tr());
        let flat = squares.clamp_min(0.0).sqrt().to_kind(Kind::Float).to_device(tch::Device::Cpu).view(-1);
        let distances = Vec::<f32>::try_from(flat)
            .map_err(|e| Error::internal(format!("reading distances from libtorch: {e}")))?;
        Ok(Mined { distances, labels: labels.to_vec(), dim: embeddings.size()[1] as usize, eta })
    }

    pub fn distance(&self, i: usize, j: usize) -> f64 {
        f64::from(self.distances[i * self.labels.len() + j])
    }
}

impl Triplets {
    /// Of three batches of `count` rows, one after another.
    pub fn consecutive(count: i64) -> Triplets {
        let rows = |part: i64| (part * count..(part + 1) * count).collect();
        Triplets { a: rows(0), p: rows(1), n: rows(2) }
    }

    /// Some of them, by place.
    pub fn some(&self, places: &[i64]) -> Triplets {
        let pick = |rows: &[i64]| places.iter().map(|&at| rows[at as usize]).collect();
        Triplets { a: pick(&self.a), p: pick(&self.p), n: pick(&self.n) }
    }

    pub fn add(&mut self, anchor: usize, positive: usize, negative: usize) {
        self.a.push(anchor as i64);
        self.p.push(positive as i64);
        self.n.push(negative as i64);
    }

    /// Rows of `batch` [B, …] as anchors, positives and negatives.
    pub fn of(&self, batch: &Tensor) -> [Tensor; 3] {
        [&self.a, &self.p, &self.n]
            .map(|rows| batch.index_select(0, &Tensor::from_slice(rows).to_device(batch.device())))
    }
}
