//! Choice of a triplet's negative. A sampler is a weight for every image of a batch: how likely it is to be an anchor's
//! negative. The trainer mines by it, and `audit geometry` measures what it finds (HM, table 1).

use audit_base::random::Random;

/// A way to choose negatives.
pub struct Sampler {
    /// On the command line.
    pub name: &'static str,
    /// One line for lists.
    pub about: &'static str,
    /// Weight of `candidate`, an image of another class than `anchor`; not negative.
    pub weight: fn(batch: &Mined, anchor: usize, positive: usize, candidate: usize) -> f64,
}

/// Every sampler.
pub const SAMPLERS: &[Sampler] = &[
    RANDOM,
    // Schroff et al. (2015).
    SEMIHARD,
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
/// Negatives within the margin η behind the positive.
pub const SEMIHARD: Sampler = Sampler {
    name: "semihard",
    about: "farther than the positive, by less than η",
    weight: |batch, anchor, positive, candidate| {
        let gap = batch.distance(anchor, candidate) - batch.distance(anchor, positive);
        f64::from(gap > 0.0 && gap < batch.eta)
    },
};

/// Distances outside of these count as these.
const NEAREST: f64 = 0.5;
const FARTHEST: f64 = 1.4;

fn log_weight(batch: &Mined, distance: f64) -> f64 {
    let (d, dim) = (distance.clamp(NEAREST, FARTHEST), batch.dim as f64);
    (2.0 - dim) * d.ln() - (dim - 3.0) / 2.0 * (1.0 - d * d / 4.0).ln()
}

/// Images as samplers see them: a batch in which images 2i and 2i + 1 share a class.
pub struct Mined {
    /// Distances of unit-norm embeddings, row by row, [B, B].
    pub distances: Vec<f32>,
    /// The class of each image, `[B]`.
    pub labels: Vec<usize>,
    /// Of the embeddings.
    pub dim: usize,
    /// The margin within which semi-hard negatives lie.
    pub eta: f64,
}

impl Mined {
    /// Distance between the embeddings of images i and j.
    pub fn distance(&self, i: usize, j: usize) -> f64 {
        f64::from(self.distances[i * self.labels.len() + j])
    }
}

impl Sampler {
    /// Whether it is the one that the margin η is for.
    pub fn is_semihard(&self) -> bool {
        self.name == SEMIHARD.name
    }

    /// Weights of all images of the batch as negatives of an anchor.
    pub fn weights(&self, batch: &Mined, anchor: usize, positive: usize) -> Vec<f64> {
        let weight = |c: usize| match batch.labels[c] == batch.labels[anchor] {
            true => 0.0,
            false => (self.weight)(batch, anchor, positive, c),
        };
        (0..batch.labels.len()).map(weight).collect()
    }

    /// One triplet (anchor, positive, negative) for every `stride`-th image of the batch; 2 makes the first of each class pair
    /// an anchor. Where the sampler takes nothing, any image of another class will do.
    pub fn mine(&self, batch: &Mined, stride: usize, random: &mut Random) -> Vec<[usize; 3]> {
        let of = |anchor: usize| {
            let positive = anchor ^ 1;
            let mut weights = self.weights(batch, anchor, positive);
            if weights.iter().all(|w| *w == 0.0) {
                weights = RANDOM.weights(batch, anchor, positive);
            }
            // A batch has at least two classes, so there is one.
            random.weighted(&weights).map(|negative| [anchor, positive, negative])
        };
        (0..batch.labels.len()).step_by(stride).filter_map(of).collect()
    }
}
