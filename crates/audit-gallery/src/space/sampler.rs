//! Choice of a triplet's positive and negative. A sampler gives every image of a batch a weight: its
//! probability as an anchor's negative. The trainer mines triplets with it, and `audit geometry` measures
//! them (HM, table 1).

use audit_base::random::Random;

/// A way to choose positives and negatives.
pub struct Sampler {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line, for lists.
    pub about: &'static str,
    /// Images of the anchor's class among which its positive is drawn, with equal probability.
    pub positives: fn(batch: &Mined, anchor: usize) -> Vec<usize>,
    /// Logarithm of the weight of `candidate`, an image of another class than `anchor`. Only differences
    /// count: the ratio of two weights may exceed the range of f64.
    pub log_weight: fn(batch: &Mined, anchor: usize, positive: usize, candidate: usize) -> f64,
}

/// Every sampler.
pub const SAMPLERS: &[Sampler] = &[
    RANDOM,
    // Schroff et al. (2015).
    SEMIHARD,
    // As in HM's released code: both are resampled, and the anchor counts as a member of its class.
    Sampler {
        name: "softhard",
        about: "nearer than the farthest of the anchor's class; the positive farther than the nearest negative, or any of its class",
        positives: |batch, anchor| {
            let nearest =
                batch.apart(anchor).map(|c| batch.distance(anchor, c)).fold(f64::INFINITY, f64::min);
            let farther: Vec<usize> =
                batch.class_of(anchor).filter(|&c| batch.distance(anchor, c) > nearest).collect();
            if farther.is_empty() { batch.class_of(anchor).collect() } else { farther }
        },
        log_weight: |batch, anchor, _, candidate| {
            let farthest = batch.class_of(anchor).map(|c| batch.distance(anchor, c)).fold(0.0, f64::max);
            all_or_none(batch.distance(anchor, candidate) < farthest)
        },
    },
    // Wu et al. (2017), as in HM's released code.
    Sampler {
        name: "distance",
        about: "by the inverse density of its distance on the sphere",
        log_weight: |batch, anchor, _, candidate| {
            // The density is 0 at distances 0 and 2.
            let at = batch.distance(anchor, candidate).clamp(1e-6, 2.0 - 1e-6);
            inverse_log_density(batch.dim, at)
        },
        ..RANDOM
    },
    // Wu et al. (2017), for Panum et al. and ADML. Both train with the framework of Roth et al. (2020), which
    // clamps at 0.5 too. It has no upper bound: beyond √2 the weights rise again, so that far negatives are
    // drawn more often than near ones.
    Sampler {
        name: "distance-clamped",
        about: "like distance; distances below 0.5 and above 1.4 count as these",
        log_weight: |batch, anchor, _, candidate| {
            inverse_log_density(batch.dim, batch.distance(anchor, candidate).clamp(0.5, 1.4))
        },
        ..RANDOM
    },
    Sampler {
        name: "hardest",
        about: "the nearest of another class",
        log_weight: |batch, anchor, _, candidate| {
            let own = batch.distance(anchor, candidate);
            all_or_none(!batch.apart(anchor).any(|c| batch.distance(anchor, c) < own))
        },
        ..RANDOM
    },
];

const RANDOM: Sampler = Sampler {
    name: "random",
    about: "any image of another class",
    // The other image of its pair.
    positives: |_, anchor| vec![anchor ^ 1],
    log_weight: |_, _, _, _| 0.0,
};
/// Negatives within the margin η beyond the positive.
pub const SEMIHARD: Sampler = Sampler {
    name: "semihard",
    about: "farther than the positive, by less than η",
    log_weight: |batch, anchor, positive, candidate| {
        let gap = batch.distance(anchor, candidate) - batch.distance(anchor, positive);
        all_or_none(gap > 0.0 && gap < batch.eta)
    },
    ..RANDOM
};

/// Logarithm of a weight of 1 or 0.
fn all_or_none(all: bool) -> f64 {
    if all { 0.0 } else { f64::NEG_INFINITY }
}

/// −ln of the density of the distance between two uniform random points on the unit sphere, up to a constant.
fn inverse_log_density(dim: usize, distance: f64) -> f64 {
    let dim = dim as f64;
    (2.0 - dim) * distance.ln() - (dim - 3.0) / 2.0 * (1.0 - distance * distance / 4.0).ln()
}

/// The batch for samplers. Images 2i and 2i + 1 share a class.
pub struct Mined {
    /// Distances of embeddings of unit norm, row by row, [B, B].
    pub distances: Vec<f32>,
    /// Class of each image, `[B]`.
    pub labels: Vec<usize>,
    /// Dimension of the embeddings.
    pub dim: usize,
    /// Margin of semi-hard negatives.
    pub eta: f64,
}

impl Mined {
    /// Distance between the embeddings of images i and j.
    pub fn distance(&self, i: usize, j: usize) -> f64 {
        f64::from(self.distances[i * self.labels.len() + j])
    }

    /// Images of the anchor's class, including itself.
    fn class_of(&self, anchor: usize) -> impl Iterator<Item = usize> {
        (0..self.labels.len()).filter(move |&c| self.labels[c] == self.labels[anchor])
    }

    /// Images of other classes than the anchor's.
    fn apart(&self, anchor: usize) -> impl Iterator<Item = usize> {
        (0..self.labels.len()).filter(move |&c| self.labels[c] != self.labels[anchor])
    }
}

impl Sampler {
    /// Whether the sampler uses the margin η.
    pub fn is_semihard(&self) -> bool {
        self.name == SEMIHARD.name
    }

    /// Weights of all images of the batch as negatives of an anchor, the largest 1; all 0 if the sampler
    /// allows none.
    pub fn weights(&self, batch: &Mined, anchor: usize, positive: usize) -> Vec<f64> {
        let mut logs = vec![f64::NEG_INFINITY; batch.labels.len()];
        batch.apart(anchor).for_each(|c| logs[c] = (self.log_weight)(batch, anchor, positive, c));
        let highest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        logs.into_iter()
            .map(|log| if log == f64::NEG_INFINITY { 0.0 } else { (log - highest).exp() })
            .collect()
    }

    /// One triplet (anchor, positive, negative) for every `stride`-th image of the batch; with 2, the first
    /// of each pair is an anchor. If the sampler allows no negative, any image of another class is drawn.
    pub fn mine(&self, batch: &Mined, stride: usize, random: &mut Random) -> Vec<[usize; 3]> {
        let mine_one = |anchor: usize| {
            let positive = match (self.positives)(batch, anchor)[..] {
                [only] => only,
                ref several => several[random.index(several.len())],
            };
            let mut weights = self.weights(batch, anchor, positive);
            if weights.iter().all(|w| *w == 0.0) {
                weights = RANDOM.weights(batch, anchor, positive);
            }
            // A batch has at least two classes, so this is not empty.
            random.weighted(&weights).map(|negative| [anchor, positive, negative])
        };
        (0..batch.labels.len()).step_by(stride).filter_map(mine_one).collect()
    }
}
