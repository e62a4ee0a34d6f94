//! Metric losses on unit-norm embeddings, one file each.

mod contrastive;
mod info_nce;
mod margin;
mod multi_similarity;
mod triplet;

use crate::find_row;
use audit::Result;
use tch::{Kind, Tensor};

pub use triplet::{MARGIN, loss as triplet_loss};

/// A loss.
pub struct Loss {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What it is computed of.
    pub of: LossInput,
}

/// What a loss is computed of.
#[derive(Clone, Copy)]
pub enum LossInput {
    /// Embeddings of anchors, positives and negatives, [T, D] each.
    Triplets(fn(&Tensor, &Tensor, &Tensor) -> Tensor),
    /// All embeddings of a batch [B, D], and which of them share a class, boolean [B, B].
    Batch(fn(&Tensor, &Tensor) -> Tensor),
}

/// Every loss.
pub const LOSSES: &[Loss] =
    &[triplet::LOSS, contrastive::LOSS, margin::LOSS, multi_similarity::LOSS, info_nce::LOSS];

impl Loss {
    /// The loss called `name`.
    pub fn find(name: &str) -> Result<&'static Loss> {
        find_row("loss", LOSSES, name, |row| row.name)
    }

    /// Whether it needs a sampler.
    pub fn takes_triplets(&self) -> bool {
        matches!(self.of, LossInput::Triplets(_))
    }
}

/// Distances of rows, [T]. Where it is 0, so is the gradient.
pub fn distance(a: &Tensor, b: &Tensor) -> Tensor {
    ((a - b).square().sum_dim_intlist([-1i64].as_slice(), false, Kind::Float) + 1e-20).sqrt()
}

/// d(a,p) − d(a,n) of each triplet, [T].
pub fn hardness(a: &Tensor, p: &Tensor, n: &Tensor) -> Tensor {
    distance(a, p) - distance(a, n)
}

/// Which of the labels are equal, boolean [B, B], on the embeddings' device.
pub fn same_class(labels: &[usize], like: &Tensor) -> Tensor {
    let labels: Vec<i64> = labels.iter().map(|&l| l as i64).collect();
    let row = Tensor::from_slice(&labels).to_device(like.device());
    row.unsqueeze(0).eq_tensor(&row.unsqueeze(1))
}

/// `same` without the diagonal.
fn others(same: &Tensor) -> Tensor {
    same.logical_and(&Tensor::eye(same.size()[0], (Kind::Bool, same.device())).logical_not())
}
