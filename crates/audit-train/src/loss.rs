//! Metric losses on unit-norm embeddings.

use crate::dice::Dice;
use crate::find_row;
use crate::net::{Weights, normalize};
use crate::sampler::Triplets;
use audit::Result;
use tch::{Kind, Tensor};

/// A loss that a net is trained on.
pub struct Loss {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line for `audit-train methods`.
    pub about: &'static str,
    /// Whether it needs triplets, and so a sampler; other losses use every pair of the batch.
    pub of_triplets: bool,
    /// Whether it ignores classes, so that it can be added to another loss.
    pub regularises: bool,
    /// Values that are trained with the net.
    pub parameter: Option<Parameter>,
    /// Computes the loss, a scalar.
    pub of: fn(&Labelled) -> Tensor,
}

/// Values of a loss that are trained with the net. They are in checkpoints, but not in the model.
pub struct Parameter {
    /// Name in a checkpoint.
    pub name: &'static str,
    /// (classes, dimensions, random numbers) → initial values.
    pub start: fn(i64, i64, &mut Dice) -> Tensor,
    /// Adam's learning rate; `None`: the net's.
    pub rate: Option<f64>,
}

/// Input of a loss.
pub struct Labelled<'a> {
    /// Unit embeddings [B, D].
    pub e: &'a Tensor,
    /// Class of each embedding, int64 `[B]`.
    pub classes: &'a Tensor,
    /// Triplets of rows of `e`.
    pub triplets: &'a Triplets,
    /// The loss's parameter, if it has one.
    pub parameter: Option<&'a Tensor>,
}

impl Labelled<'_> {
    /// Anchors, positives, negatives.
    fn parts(&self) -> [Tensor; 3] {
        self.triplets.of(self.e)
    }

    /// The parameter; an empty tensor if there is none.
    fn learnt(&self) -> Tensor {
        self.parameter.map(Tensor::shallow_clone).unwrap_or_default()
    }

    /// 1 for an embedding's class, else 0: [B, count].
    fn one_hot(&self, count: i64) -> Tensor {
        self.classes.one_hot(count).to_kind(Kind::Float)
    }
}

/// The pairs of a loss that have a gradient (ADML, tables 7 and 8). The value doesn't depend on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pull {
    /// All.
    Both,
    /// Pairs of one class.
    Positive,
    /// Pairs of two classes.
    Negative,
}

impl Pull {
    /// A value of pairs of one class, detached unless they have a gradient.
    fn positive(self, of: Tensor) -> Tensor {
        if self == Pull::Negative { of.detach() } else { of }
    }

    /// A value of pairs of two classes, detached unless they have a gradient.
    fn negative(self, of: Tensor) -> Tensor {
        if self == Pull::Positive { of.detach() } else { of }
    }
}

/// A loss of triplets, without a parameter.
const TRIPLETS: Loss = Loss {
    name: "triplet",
    about: "mean [d(a,p) − d(a,n) + 0.2]+",
    of_triplets: true,
    regularises: false,
    parameter: None,
    of: |batch| triplet(batch, Pull::Both),
};

/// Common fields of losses of pairs.
const PAIRS: Loss = Loss { of_triplets: false, ..TRIPLETS };

/// Every loss.
pub const LOSSES: &[Loss] = &[
    TRIPLETS,
    Loss {
        name: "triplet-positive",
        about: "triplet, with a gradient of pairs of one class alone",
        of: |batch| triplet(batch, Pull::Positive),
        ..TRIPLETS
    },
    Loss {
        name: "triplet-negative",
        about: "triplet, with a gradient of pairs of two classes alone",
        of: |batch| triplet(batch, Pull::Negative),
        ..TRIPLETS
    },
    // ADML, definition 4.
    Loss {
        name: "linear",
        about: "mean d(a,p)² − d(a,n)²",
        of: |batch| linear(batch, Pull::Both),
        ..TRIPLETS
    },
    Loss {
        name: "linear-positive",
        about: "linear, with a gradient of pairs of one class alone",
        of: |batch| linear(batch, Pull::Positive),
        ..TRIPLETS
    },
    Loss {
        name: "linear-negative",
        about: "linear, with a gradient of pairs of two classes alone",
        of: |batch| linear(batch, Pull::Negative),
        ..TRIPLETS
    },
    Loss { name: "contrastive", about: "mean d(a,p) + mean [1 − d(a,n)]+", of: contrastive, ..TRIPLETS },
    Loss {
        name: "margin",
        about: "[d(a,p) − 1.2 + 0.2]+ + [1.2 − d(a,n) + 0.2]+ over the number of pairs above 0",
        of: |batch| margin(batch, &fixed(batch), Pull::Both),
        ..TRIPLETS
    },
    Loss {
        name: "margin-positive",
        about: "margin, with a gradient of pairs of one class alone",
        of: |batch| margin(batch, &fixed(batch), Pull::Positive),
        ..TRIPLETS
    },
    Loss {
        name: "margin-negative",
        about: "margin, with a gradient of pairs of two classes alone",
        of: |batch| margin(batch, &fixed(batch), Pull::Negative),
        ..TRIPLETS
    },
    // Wu et al. (2017) learn β by class; initial value and learning rate as in Roth et al. (2020).
    Loss {
        name: "margin-learnt",
        about: "margin with a β for each class instead of 1.2, learnt from there on",
        parameter: Some(Parameter {
            name: "loss.beta",
            start: |classes, _, _| Tensor::full([classes], 1.2, (Kind::Float, tch::Device::Cpu)),
            rate: Some(5e-4),
        }),
        of: |batch| {
            let anchors = Tensor::from_slice(&batch.triplets.a).to_device(batch.e.device());
            let classes = batch.classes.index_select(0, &anchors);
            margin(batch, &batch.learnt().index_select(0, &classes), Pull::Both)
        },
        ..TRIPLETS
    },
    Loss {
        name: "multi-similarity",
        about: "soft sums over all pairs that are hard enough (2, 40, 0.1)",
        of: |batch| multi_similarity(batch, Pull::Both),
        ..PAIRS
    },
    Loss {
        name: "multi-similarity-positive",
        about: "multi-similarity, with a gradient of pairs of one class alone",
        of: |batch| multi_similarity(batch, Pull::Positive),
        ..PAIRS
    },
    Loss {
        name: "multi-similarity-negative",
        about: "multi-similarity, with a gradient of pairs of two classes alone",
        of: |batch| multi_similarity(batch, Pull::Negative),
        ..PAIRS
    },
    Loss {
        name: "info-nce",
        about: "−log of a positive's share among itself and all negatives, temperature 0.07",
        of: info_nce,
        ..PAIRS
    },
    Loss {
        name: "proxy-anchor",
        about: "soft sums over the images of each class and a learnt proxy of it (32, 0.1)",
        parameter: Some(Parameter { name: "loss.proxies", start: directions, rate: Some(1e-2) }),
        of: proxy_anchor,
        ..PAIRS
    },
    Loss {
        name: "cross-entropy",
        about: "−log of the class's share by cosine with a learnt direction of each class, temperature 0.05",
        parameter: Some(Parameter { name: "loss.directions", start: directions, rate: None }),
        of: cross_entropy,
        ..PAIRS
    },
    Loss {
        name: "he-0",
        about: "hyperspherical energy, s = 0: mean −log d of all pairs; uniformity alone",
        regularises: true,
        of: |batch| -squares(batch.e).log().mean(Kind::Float) * 0.5,
        ..PAIRS
    },
    Loss {
        name: "he-1",
        about: "hyperspherical energy, s = 1: mean 1/d of all pairs; uniformity alone",
        regularises: true,
        of: |batch| squares(batch.e).sqrt().reciprocal().mean(Kind::Float),
        ..PAIRS
    },
    Loss {
        name: "g-he",
        about: "Gaussian hyperspherical energy: log mean exp(−d²) of all pairs; uniformity alone",
        regularises: true,
        of: |batch| (-squares(batch.e)).exp().mean(Kind::Float).log(),
        ..PAIRS
    },
];

impl Loss {
    /// The loss called `name`. Error (exit code 2): there is none.
    pub fn find(name: &str) -> Result<&'static Loss> {
        find_row("loss", LOSSES, name, |row| row.name)
    }

    /// Initial values of its parameter; often none.
    pub fn start(&self, classes: usize, dim: i64, seed: u64) -> Weights {
        let learnt = self.parameter.iter();
        learnt
            .map(|p| (p.name.into(), (p.start)(classes as i64, dim, &mut Dice::new(seed, p.name, 0))))
            .collect()
    }
}

/// Margin of the triplet loss.
pub const MARGIN: f64 = 0.2;

/// mean [d(a,p) − d(a,n) + margin]+ (Schroff et al. 2015).
pub fn triplet_loss(a: &Tensor, p: &Tensor, n: &Tensor) -> Tensor {
    (hardness(a, p, n) + MARGIN).relu().mean(Kind::Float)
}

fn triplet(batch: &Labelled, pull: Pull) -> Tensor {
    let [a, p, n] = &batch.parts();
    let hardness = pull.positive(distance(a, p)) - pull.negative(distance(a, n));
    (hardness + MARGIN).relu().mean(Kind::Float)
}

/// Naive linear loss (ADML, definition 4): mean d(a,p)² − d(a,n)².
fn linear(batch: &Labelled, pull: Pull) -> Tensor {
    let [a, p, n] = &batch.parts();
    let squared =
        |a: &Tensor, b: &Tensor| (a - b).square().sum_dim_intlist([-1i64].as_slice(), false, Kind::Float);
    (pull.positive(squared(a, p)) - pull.negative(squared(a, n))).mean(Kind::Float)
}

/// The fixed β of the margin loss.
fn fixed(batch: &Labelled) -> Tensor {
    Tensor::from(1.2f32).to_device(batch.e.device())
}

/// mean d(a,p) + mean [1 − d(a,n)]+ (Hadsell et al. 2006, distances not squared).
fn contrastive(batch: &Labelled) -> Tensor {
    let [a, p, n] = &batch.parts();
    distance(a, p).mean(Kind::Float) + (1.0f64 - distance(a, n)).relu().mean(Kind::Float)
}

/// Margin loss (Wu et al. 2017): [d(a,p) − β + α]+ and [β − d(a,n) + α]+, divided by the number of those
/// above 0. α is 0.2; `beta` is a scalar, or has one value per anchor.
fn margin(batch: &Labelled, beta: &Tensor, pull: Pull) -> Tensor {
    let ([a, p, n], alpha) = (&batch.parts(), 0.2f64);
    let near = pull.positive((distance(a, p) - beta + alpha).relu());
    let far = pull.negative((beta - distance(a, n) + alpha).relu());
    let active = near.gt(0.0).sum(Kind::Float) + far.gt(0.0).sum(Kind::Float);
    (near.sum(Kind::Float) + far.sum(Kind::Float)) / active.clamp_min(1.0)
}

/// Multi-similarity loss (Wang et al. 2019) with its pair mining: α = 2, β = 40, base 0.5, mining margin 0.1.
fn multi_similarity(batch: &Labelled, which: Pull) -> Tensor {
    let (e, same) = (batch.e, &equal(batch.classes));
    let (alpha, beta, base, margin) = (2.0f64, 40.0f64, 0.5f64, 0.1f64);
    let similarity = e.matmul(&e.tr());
    let known = similarity.detach();
    let (positive, negative) = (others(same), same.logical_not());
    // A positive counts if a negative is within the margin of it, and vice versa.
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
    (which.positive(pull) + which.negative(push)).mean(Kind::Float)
}

/// InfoNCE (van den Oord et al. 2018) over all pairs of a class: each positive against all negatives of the
/// anchor, by cosine over a temperature of 0.07.
fn info_nce(batch: &Labelled) -> Tensor {
    let (e, same) = (batch.e, &equal(batch.classes));
    let logits = e.matmul(&e.tr()) / 0.07;
    let negatives = logits.masked_fill(same, f64::NEG_INFINITY).logsumexp([1i64].as_slice(), true);
    // log(e^s + Σ e^negatives) − s for every pair.
    let each = logits.logaddexp(&negatives) - &logits;
    each.masked_select(&others(same)).mean(Kind::Float)
}

/// Proxy-Anchor loss (Kim et al. 2020, equation 4), α = 32, δ = 0.1, s the cosine. It is the sum of two means
/// of log(1 + Σ …): of e^(−α(s − δ)) over the images of a proxy's class, for the classes in the batch, and of
/// e^(α(s + δ)) over all other images, for all classes.
fn proxy_anchor(batch: &Labelled) -> Tensor {
    let (alpha, delta) = (32.0f64, 0.1f64);
    let cosines = cosines(batch);
    let own = batch.one_hot(cosines.size()[1]);
    let soft = |exponent: Tensor, mask: &Tensor| {
        (exponent.exp() * mask).sum_dim_intlist([0i64].as_slice(), false, Kind::Float).log1p()
    };
    let pull = soft((&cosines - delta) * -alpha, &own);
    let push = soft((&cosines + delta) * alpha, &(1.0 - &own));
    let present = own.amax([0i64].as_slice(), false).sum(Kind::Float);
    pull.sum(Kind::Float) / present + push.mean(Kind::Float)
}

/// Cross-entropy of the classes by cosine over a temperature of 0.05 (Zhai and Wu 2019): embeddings are on
/// the unit sphere, so the classifier's directions are normalised too.
fn cross_entropy(batch: &Labelled) -> Tensor {
    (cosines(batch) / 0.05).cross_entropy_for_logits(batch.classes)
}

/// Cosines of embeddings with the parameter's rows, [B, classes].
fn cosines(batch: &Labelled) -> Tensor {
    batch.e.matmul(&normalize(&batch.learnt()).tr())
}

/// A random direction for each class, [classes, D].
fn directions(classes: i64, dim: i64, dice: &mut Dice) -> Tensor {
    let values: Vec<f32> = (0..classes * dim).map(|_| dice.normal() as f32).collect();
    normalize(&Tensor::from_slice(&values).view([classes, dim]))
}

/// Squared distances of all pairs of different rows of unit length, [B·(B − 1)]. Equal embeddings count as
/// 1e-4 apart, so that energies are finite.
fn squares(e: &Tensor) -> Tensor {
    let count = e.size()[0];
    let different = Tensor::eye(count, (Kind::Bool, e.device())).logical_not();
    let all: Tensor = 2.0 - e.matmul(&e.tr()) * 2.0;
    all.masked_select(&different).clamp_min(1e-8)
}

/// Distances of rows, `[T]`. At 0 the gradient is 0 too.
pub fn distance(a: &Tensor, b: &Tensor) -> Tensor {
    ((a - b).square().sum_dim_intlist([-1i64].as_slice(), false, Kind::Float) + 1e-20).sqrt()
}

/// d(a,p) − d(a,n) of each triplet, `[T]`.
pub fn hardness(a: &Tensor, p: &Tensor, n: &Tensor) -> Tensor {
    distance(a, p) - distance(a, n)
}

/// Labels as numbers, int64 `[B]`, on the embeddings' device.
pub fn numbers(labels: &[usize], like: &Tensor) -> Tensor {
    let labels: Vec<i64> = labels.iter().map(|&l| l as i64).collect();
    Tensor::from_slice(&labels).to_device(like.device())
}

/// Whether labels are equal, boolean [B, B], on the embeddings' device.
pub fn same_class(labels: &[usize], like: &Tensor) -> Tensor {
    equal(&numbers(labels, like))
}

/// Whether two of the classes are equal, boolean [B, B].
fn equal(classes: &Tensor) -> Tensor {
    classes.unsqueeze(0).eq_tensor(&classes.unsqueeze(1))
}

/// `same` without the diagonal.
pub fn others(same: &Tensor) -> Tensor {
    same.logical_and(&Tensor::eye(same.size()[0], (Kind::Bool, same.device())).logical_not())
}
