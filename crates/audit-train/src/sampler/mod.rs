//! Choice of negatives, one file each. A sampler is a weight for every image of the batch: how likely it is to be an
//! anchor's negative.

mod distance;
mod hardest;
mod random;
pub mod semihard;
mod softhard;

use crate::dice::Dice;
use crate::find_row;
use audit::{Error, Result};
use tch::{Kind, Tensor};

/// A sampler.
pub struct Sampler {
    /// Its name on the command line.
    pub name: &'static str,
    /// Which negatives it takes.
    pub about: &'static str,
    /// Weight of `candidate`, an image of another class than `anchor`; not negative.
    pub weight: fn(batch: &Mined, anchor: usize, positive: usize, candidate: usize) -> f64,
}

/// Every sampler.
pub const SAMPLERS: &[Sampler] =
    &[random::SAMPLER, semihard::SAMPLER, softhard::SAMPLER, distance::SAMPLER, hardest::SAMPLER];

/// A batch as samplers see it: images 2i and 2i + 1 share a class.
pub struct Mined {
    /// Distances of unit-norm embeddings, row by row.
    distances: Vec<f32>,
    /// Class of each image.
    pub labels: Vec<usize>,
    /// Embedding dimensions.
    pub dim: usize,
    /// The margin within which semi-hard negatives lie.
    pub eta: f64,
}

/// Rows of a batch, by index: anchors, positives, negatives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Triplets {
    /// Anchors.
    pub a: Vec<i64>,
    /// Positives.
    pub p: Vec<i64>,
    /// Negatives.
    pub n: Vec<i64>,
}

impl Sampler {
    /// The sampler called `name`.
    pub fn find(name: &str) -> Result<&'static Sampler> {
        find_row("sampler", SAMPLERS, name, |row| row.name)
    }

    /// Whether it is the one that the margin η is for.
    pub fn is_semihard(&self) -> bool {
        self.name == semihard::SAMPLER.name
    }

    /// Weights of all images of the batch as negatives of an anchor.
    pub fn weights(&self, batch: &Mined, anchor: usize, positive: usize) -> Vec<f64> {
        let weight = |c: usize| match batch.labels[c] == batch.labels[anchor] {
            true => 0.0,
            false => (self.weight)(batch, anchor, positive, c),
        };
        (0..batch.labels.len()).map(weight).collect()
    }

    /// One triplet for each class pair. Where the sampler takes nothing, any image of another class will do.
    pub fn mine(&self, batch: &Mined, dice: &mut Dice) -> Triplets {
        let mut triplets = Triplets { a: vec![], p: vec![], n: vec![] };
        for anchor in (0..batch.labels.len()).step_by(2) {
            let mut weights = self.weights(batch, anchor, anchor + 1);
            if weights.iter().all(|w| *w == 0.0) {
                weights = random::SAMPLER.weights(batch, anchor, anchor + 1);
            }
            // A batch has at least two classes, so there is one.
            if let Some(negative) = dice.weighted(&weights) {
                triplets.a.push(anchor as i64);
                triplets.p.push(anchor as i64 + 1);
                triplets.n.push(negative as i64);
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

    /// Between two images.
    pub fn distance(&self, i: usize, j: usize) -> f64 {
        f64::from(self.distances[i * self.labels.len() + j])
    }
}

impl Triplets {
    /// Rows of `batch` [B, …] as anchors, positives and negatives.
    pub fn of(&self, batch: &Tensor) -> [Tensor; 3] {
        [&self.a, &self.p, &self.n]
            .map(|rows| batch.index_select(0, &Tensor::from_slice(rows).to_device(batch.device())))
    }
}
