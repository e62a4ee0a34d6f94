//! Triplets of a batch, and the margin of semi-hard negatives. The samplers are those of `audit`.

use crate::dice::Dice;
use crate::find_row;
pub use audit::space::sampler::{Mined, SAMPLERS, Sampler};
use audit::{Error, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

/// The margin η after a share of the training: η0·(1 − (share/2)²) (CA-TRIDE, equation 32).
pub fn scheduled(eta: f64, share: f64) -> f64 {
    eta * (1.0 - (share / 2.0).powi(2))
}

/// The margin η of CA-TRIDE's released code: η0·(1 − share/2)².
pub fn scheduled_as_released(eta: f64, share: f64) -> f64 {
    eta * (1.0 - share / 2.0).powi(2)
}

/// The images of a batch that are anchors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Anchors {
    /// The first of each class pair: half as many triplets as images.
    Pairs,
    /// Every image, the other one of its class being the positive.
    Every,
}

/// Anchors, positives and negatives, as row indices of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Triplets {
    /// Anchors.
    pub a: Vec<i64>,
    /// Positives.
    pub p: Vec<i64>,
    /// Negatives.
    pub n: Vec<i64>,
}

/// The sampler called `name`. Error (exit code 2): there is none.
pub fn find(name: &str) -> Result<&'static Sampler> {
    find_row("sampler", SAMPLERS, name, |row| row.name)
}

/// One triplet for each anchor of a batch.
pub fn mine(sampler: &Sampler, batch: &Mined, anchors: Anchors, dice: &mut Dice) -> Triplets {
    let stride = match anchors {
        Anchors::Pairs => 2,
        Anchors::Every => 1,
    };
    let mut triplets = Triplets::default();
    for [anchor, positive, negative] in sampler.mine(batch, stride, dice.random()) {
        triplets.add(anchor, positive, negative);
    }
    triplets
}

/// A batch of embeddings [B, D] for samplers.
pub fn mined(embeddings: &Tensor, labels: &[usize], eta: f64) -> Result<Mined> {
    let e = embeddings.detach().to_kind(Kind::Double);
    let products = e.matmul(&e.tr());
    // Rounded lengths instead of 1, so that a distance from itself is exactly 0: samplers compare it with
    // others.
    let lengths = products.diag(0);
    let squares: Tensor = lengths.unsqueeze(0) + lengths.unsqueeze(1) - 2.0 * products;
    let flat = squares.clamp_min(0.0).sqrt().to_kind(Kind::Float).to_device(tch::Device::Cpu).view(-1);
    let distances = Vec::<f32>::try_from(flat)
        .map_err(|e| Error::internal(format!("reading distances from libtorch: {e}")))?;
    Ok(Mined { distances, labels: labels.to_vec(), dim: embeddings.size()[1] as usize, eta })
}

impl Triplets {
    /// Triplets of three batches of `count` rows, concatenated.
    pub fn consecutive(count: i64) -> Triplets {
        let rows = |part: i64| (part * count..(part + 1) * count).collect();
        Triplets { a: rows(0), p: rows(1), n: rows(2) }
    }

    /// Some triplets, by index.
    pub fn some(&self, places: &[i64]) -> Triplets {
        let pick = |rows: &[i64]| places.iter().map(|&at| rows[at as usize]).collect();
        Triplets { a: pick(&self.a), p: pick(&self.p), n: pick(&self.n) }
    }

    /// Adds a triplet.
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
