//! Metric losses on unit-norm embeddings.

use crate::find_row;
use audit::Result;
use tch::{Kind, Tensor};

/// A loss that a net is trained on.
pub struct Loss {
    /// On the command line.
    pub name: &'static str,
    /// One line for `audit-train methods`.
    pub about: &'static str,
    /// The loss as a function of embeddings.
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
pub const LOSSES: &[Loss] = &[
    Loss { name: "triplet", about: "mean [d(a,p) − d(a,n) + 0.2]+", of: LossInput::Triplets(triplet_loss) },
    Loss {
        name: "contrastive",
        about: "mean d(a,p) + mean [1 − d(a,n)]+",
        of: LossInput::Triplets(contrastive),
    },
    Loss {
        name: "margin",
        about: "[d(a,p) − 1.2 + 0.2]+ + [1.2 − d(a,n) + 0.2]+ over the number of pairs above 0",
        of: LossInput::Triplets(margin),
    },
    Loss {
        name: "multi-similarity",
        about: "soft sums over all pairs that are hard enough (2, 40, 0.1)",
        of: LossInput::Batch(multi_similarity),
    },
    Loss {
        name: "info-nce",
        about: "−log of a positive's share among itself and all negatives, temperature 0.07",
        of: LossInput::Batch(info_nce),
    },
];

impl Loss {
    /// The loss called `name`. Errors (exit code 2): no loss has this name.
    pub fn find(name: &str) -> Result<&'static Loss> {
        find_row("loss", LOSSES, name, |row| row.name)
    }

    /// Whether it needs a sampler.
    pub fn takes_triplets(&self) -> bool {
        matches!(self.of, LossInput::Triplets(_))
    }
}

/// Margin of the triplet loss.
pub const MARGIN: f64 = 0.2;

/// mean [d(a,p) − d(a,n) + margin]+ (Schroff et al. 2015).
pub fn triplet_loss(a: &Tensor, p: &Tensor, n: &Tensor) -> Tensor {
    (hardness(a, p, n) + MARGIN).relu().mean(Kind::Float)
}

/// mean d(a,p) + mean [1 − d(a,n)]+ (Hadsell et al. 2006, distances not squared).
fn contrastive(a: &Tensor, p: &Tensor, n: &Tensor) -> Tensor {
    distance(a, p).mean(Kind::Float) + (1.0f64 - distance(a, n)).relu().mean(Kind::Float)
}

/// Margin loss (Wu et al. 2017): [d(a,p) − β + α]+ and [β − d(a,n) + α]+, over the number of those above 0. β stays fixed.
fn margin(a: &Tensor, p: &Tensor, n: &Tensor) -> Tensor {
    let (alpha, beta) = (0.2f64, 1.2f64);
    let near = (distance(a, p) - beta + alpha).relu();
    let far = (beta - distance(a, n) + alpha).relu();
    let active = near.gt(0.0).sum(Kind::Float) + far.gt(0.0).sum(Kind::Float);
    (near.sum(Kind::Float) + far.sum(Kind::Float)) / active.clamp_min(1.0)
}

/// Multi-similarity loss (Wang et al. 2019) with its pair mining: α = 2, β = 40, base 0.5, mining margin 0.1.
fn multi_similarity(e: &Tensor, same: &Tensor) -> Tensor {
    let (alpha, beta, base, margin) = (2.0f64, 40.0f64, 0.5f64, 0.1f64);
    let similarity = e.matmul(&e.tr());
    let known = similarity.detach();
    let (positive, negative) = (others(same), same.logical_not());
    // A positive counts if some negative comes within the margin of it, a negative if some positive does.
    let row: &[i64] = &[1];
    let least = known.masked_fill(&positive.logical_not(), f64::INFINITY).amin(row, true);
    let most = known.masked_fill(same, f64::NEG_INFINITY).amax(row, true);
    let positive = positive.logical_and(&(&known - margin).lt_tensor(&most));
    let negative = negative.logical_and(&(&known + margin).gt_tensor(&least));
    let soft = |exponent: Tensor, mask: Tensor| {
        // log(1 + Σ e^x): the 1 as a column of zeros.
        let zero = exponent.zeros_like().narrow(1, 0, 1);
        let masked = exponent.masked_fill(&mask.logical_not(), f64::NEG_INFINITY);
        Tensor::cat(&[masked, zero], 1).logsumexp(row, false)
    };
    let pull = soft((base - &similarity) * alpha, positive) / alpha;
    let push = soft((&similarity - base) * beta, negative) / beta;
    (pull + push).mean(Kind::Float)
}

/// InfoNCE (van den Oord et al. 2018) over all pairs of a class: each positive against all negatives of the anchor, by
/// cosine over a temperature of 0.07.
fn info_nce(e: &Tensor, same: &Tensor) -> Tensor {
    let logits = e.matmul(&e.tr()) / 0.07;
    let negatives = logits.masked_fill(same, f64::NEG_INFINITY).logsumexp([1i64].as_slice(), true);
    // log(e^s + Σ e^negatives) − s for every pair.
    let each = logits.logaddexp(&negatives) - &logits;
    each.masked_select(&others(same)).mean(Kind::Float)
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
pub fn others(same: &Tensor) -> Tensor {
    same.logical_and(&Tensor::eye(same.size()[0], (Kind::Bool, same.device())).logical_not())
}
