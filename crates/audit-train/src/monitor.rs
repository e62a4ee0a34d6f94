//! Measures at the end of an epoch: retrieval and geometry of the clean embeddings, and whether the net has
//! collapsed.

use crate::checkpoint::RunState;
use crate::defence::{BatchMeasures, number};
use crate::dice::Dice;
use crate::images::LabelledImages;
use crate::loss::{MARGIN, others, same_class, triplet_loss};
use crate::net::Net;
use crate::sampler::Triplets;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use tch::{Kind, Tensor, no_grad};

/// Measures of clean embeddings at the end of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CleanMeasures {
    /// Share of the images of classes of several images whose nearest other image has their class.
    pub recall: f64,
    /// Mean distance of all pairs, d̄.
    pub distance: f64,
    /// (mean distance between classes − mean distance within) / d̄.
    pub separability: f64,
    /// Mean distance of pairs within classes.
    pub within: f64,
    /// Mean distance of pairs of different classes.
    pub between: f64,
    /// `within` / `between`.
    pub entanglement: f64,
    /// Triplet loss of random triplets.
    pub triplet_loss: f64,
    /// Number of measured images; 0 in older logs.
    #[serde(default)]
    pub images: usize,
    /// Number of their classes; 0 in older logs.
    #[serde(default)]
    pub classes: usize,
}

impl fmt::Display for CleanMeasures {
    /// R@1 and what it is measured on: a sample of few classes has a much higher R@1 than all of the images.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let CleanMeasures { recall, images, classes, .. } = self;
        write!(f, "clean R@1 {:.1} % of {images} images of {classes} classes", 100.0 * recall)
    }
}

/// Measures a net on images, which are the same at every epoch.
pub fn measure(net: &Net, batch: &LabelledImages) -> CleanMeasures {
    let e = net.unit_all(&batch.images, 256);
    no_grad(|| {
        let same = same_class(&batch.labels, &e);
        let count = batch.labels.len() as i64;
        let own = Tensor::eye(count, (Kind::Bool, e.device()));
        let products: Tensor = e.matmul(&e.tr());
        let squares: Tensor = 2.0 - products * 2.0;
        let d = squares.clamp_min(0.0).sqrt();
        let nearest = d.masked_fill(&own, f64::INFINITY).argmin(1, false);
        let hits = number(&same.gather(1, &nearest.unsqueeze(1), false).sum(Kind::Double));
        let mean = |mask: &Tensor| number(&d.masked_select(mask).to_kind(Kind::Double).mean(Kind::Double));
        let distance = mean(&own.logical_not());
        let within = mean(&others(&same));
        let between = mean(&same.logical_not());
        // The next image of the class, and a random one of another class: always the same, so that epochs
        // compare.
        let mut dice = Dice::new(0, "monitor", 0);
        let labels = &batch.labels;
        let find = |from: usize, equal: bool, at: usize| {
            (0..labels.len())
                .map(|i| (from + i) % labels.len())
                .find(|&i| i != at && (labels[i] == labels[at]) == equal)
        };
        let asked = (0..labels.len()).filter(|&at| find(at + 1, true, at).is_some()).count();
        let mut triplets = Triplets::default();
        for at in 0..labels.len() {
            let Some(positive) = find(at + 1, true, at) else { continue };
            let Some(negative) = find(dice.index(labels.len()), false, at) else { continue };
            triplets.add(at, positive, negative);
        }
        let [a, p, n] = triplets.of(&e);
        CleanMeasures {
            recall: hits / asked as f64,
            distance,
            separability: (between - within) / distance.max(1e-12),
            within,
            between,
            entanglement: within / between.max(1e-12),
            triplet_loss: number(&triplet_loss(&a, &p, &n)),
            images: labels.len(),
            classes: labels.iter().collect::<BTreeSet<_>>().len(),
        }
    })
}

/// A row of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EpochRow {
    /// Number of finished epochs.
    pub epoch: u64,
    /// Number of trained batches.
    pub step: u64,
    /// Means over the epoch's batches; `None` for the state before training.
    pub batches: Option<BatchMeasures>,
    /// Measures on clean images at the end of the epoch.
    pub clean: CleanMeasures,
    /// ERS of a sample of queries, 0 to 100, if measured after this epoch.
    pub ers: Option<f64>,
    /// Images times attack steps so far.
    pub image_steps: u64,
    /// Wall time so far in seconds.
    pub seconds: f64,
    /// Trained images per second in this epoch.
    pub images_per_second: f64,
    /// Share of the epoch's wall time spent in attacks, in [0, 1].
    pub attack_share: f64,
    /// Signs of collapse, for the user.
    pub signs: Vec<String>,
    /// Whether these signs are a collapse ([`signs`]).
    pub collapsed: bool,
}

/// Share of the initial mean distance below which it is a sign of collapse, and a collapse at the end of the
/// training. HM's nets fell to 12 % and recovered.
const NARROW: f64 = 0.1;
/// Share of the initial mean distance from below which no net recovered.
const LOST: f64 = 0.05;

/// Signs of collapse, for the user, and whether they are a collapse.
///
/// A mean distance near 0 is a collapse by itself: R@1 may hold, because it doesn't depend on scale, and the
/// triplet loss needn't be back at the margin while the remaining embedding is in order. So is a small one at
/// the `end` of the training. Other signs come and go; two at once are a collapse.
pub fn signs(clean: &CleanMeasures, state: &RunState, end: bool) -> (Vec<String>, bool) {
    let mut found = vec![];
    // A random net starts at this loss; a collapsed one returns to it.
    if clean.triplet_loss >= 0.9 * MARGIN && state.least_loss < 0.9 * MARGIN {
        found.push(format!(
            "the clean triplet loss is {:.3}, back at 90 % of the margin or more",
            clean.triplet_loss
        ));
    }
    let left = clean.distance / state.first_distance;
    if left < NARROW {
        found.push(format!(
            "the mean distance is {:.4}, {:.1} % of the {:.4} at the start",
            clean.distance,
            100.0 * left,
            state.first_distance
        ));
    }
    if clean.recall < 0.5 * state.best_recall {
        found.push(format!(
            "clean R@1 fell to {:.1} %, less than half of the best, {:.1} %",
            100.0 * clean.recall,
            100.0 * state.best_recall
        ));
    }
    let collapsed = left < if end { NARROW } else { LOST } || found.len() >= 2;
    (found, collapsed)
}

/// Means over batches; sums of work and time.
#[derive(Default)]
pub struct BatchMeans {
    sum: BatchMeasures,
    count: u64,
}

impl BatchMeans {
    /// Adds a batch.
    pub fn add(&mut self, mut batch: BatchMeasures) {
        for (sum, value) in self.sum.means().into_iter().zip(batch.means()) {
            *sum += *value;
        }
        self.sum.image_steps += batch.image_steps;
        self.sum.attack_seconds += batch.attack_seconds;
        self.count += 1;
    }

    /// The means; `None` without batches.
    pub fn mean(mut self) -> Option<BatchMeasures> {
        for sum in self.sum.means() {
            *sum /= self.count as f64;
        }
        (self.count > 0).then_some(self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collapse_in_scale_is_one_though_recall_holds() {
        // A plain net has distance 1.28 and R@1 0.9; after naive CAP it had distance 0.038, loss 0.192 and
        // R@1 0.49.
        let learnt =
            RunState { first_distance: 1.28, best_recall: 0.9, least_loss: 0.01, ..RunState::default() };
        // A net that has learnt nothing yet, whose loss can't return to anything.
        let fresh =
            RunState { first_distance: 0.4, best_recall: 0.3, least_loss: 0.19, ..RunState::default() };
        let judge = |state: &RunState, distance: f64, triplet_loss: f64, recall: f64| {
            let clean = CleanMeasures { recall, distance, triplet_loss, ..CleanMeasures::default() };
            let (found, collapsed) = signs(&clean, state, false);
            let (again, at_end) = signs(&clean, state, true);
            assert_eq!(again, found);
            assert_eq!(at_end, collapsed || distance < 0.1 * state.first_distance);
            (found.len(), collapsed)
        };
        assert_eq!(judge(&learnt, 1.2, 0.02, 0.8), (0, false));
        assert_eq!(judge(&learnt, 0.038, 0.192, 0.49), (2, true));
        assert_eq!(judge(&learnt, 0.06, 0.17, 0.9), (1, true), "in order, but drawn together");
        assert_eq!(
            judge(&learnt, 0.127, 0.1, 0.9),
            (1, false),
            "just below a tenth, perhaps to come up again"
        );
        assert_eq!(judge(&learnt, 0.127, 0.185, 0.9), (2, true), "with another sign");
        assert_eq!(judge(&learnt, 0.129, 0.1, 0.9), (0, false), "just above it");
        assert_eq!(judge(&fresh, 0.01, 0.198, 0.3), (1, true), "from scratch");
        assert_eq!(judge(&fresh, 0.3, 0.19, 0.3), (0, false), "as it began");
        assert_eq!(judge(&learnt, 0.5, 0.185, 0.6), (1, false), "the loss alone");
        assert_eq!(judge(&learnt, 0.5, 0.1, 0.4), (1, false), "R@1 alone");
        assert_eq!(judge(&learnt, 0.5, 0.185, 0.4), (2, true));
    }
}
