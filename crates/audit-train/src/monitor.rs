//! What an epoch shows: retrieval and geometry of the clean embeddings, and whether the net has collapsed.

use crate::checkpoint::State;
use crate::defence::Seen;
use crate::dice::Dice;
use crate::images::Batch;
use crate::loss::{MARGIN, hardness, same_class};
use crate::net::Net;
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor, no_grad};

/// Clean embeddings at an epoch's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Share of images whose nearest other one has their class.
    pub recall: f64,
    /// Mean distance of all pairs, d̄.
    pub distance: f64,
    /// (mean distance between classes − mean distance within) / d̄.
    pub separability: f64,
    /// Mean distance within classes / mean distance between.
    pub entanglement: f64,
    /// Triplet loss of random triplets.
    pub triplet_loss: f64,
}

/// Measures a net on images; the same ones at every epoch.
pub fn look(net: &Net, batch: &Batch) -> Look {
    let e = net.unit_all(&batch.images, 256);
    no_grad(|| {
        let same = same_class(&batch.labels, &e);
        let count = batch.labels.len() as i64;
        let own = Tensor::eye(count, (Kind::Bool, e.device()));
        let products: Tensor = e.matmul(&e.tr());
        let squares: Tensor = 2.0 - products * 2.0;
        let d = squares.clamp_min(0.0).sqrt();
        let nearest = d.masked_fill(&own, f64::INFINITY).argmin(1, false);
        let hits = same.gather(1, &nearest.unsqueeze(1), false).to_kind(Kind::Float).mean(Kind::Float);
        let mean =
            |mask: &Tensor| d.masked_select(mask).to_kind(Kind::Double).mean(Kind::Double).double_value(&[]);
        let distance = mean(&own.logical_not());
        let within = mean(&same.logical_and(&own.logical_not()));
        let between = mean(&same.logical_not());
        // The next image of the class, and any of another: always the same, so that epochs compare.
        let mut dice = Dice::new(0, "monitor", 0);
        let labels = &batch.labels;
        let find = |from: usize, equal: bool, at: usize| {
            (0..labels.len())
                .map(|i| (from + i) % labels.len())
                .find(|&i| i != at && (labels[i] == labels[at]) == equal)
        };
        let rows: Vec<[i64; 3]> = (0..labels.len())
            .filter_map(|at| {
                let positive = find(at + 1, true, at)?;
                let negative = find(dice.index(labels.len()), false, at)?;
                Some([at as i64, positive as i64, negative as i64])
            })
            .collect();
        let pick = |i: usize| {
            let rows: Vec<i64> = rows.iter().map(|r| r[i]).collect();
            e.index_select(0, &Tensor::from_slice(&rows).to_device(e.device()))
        };
        let hard = hardness(&pick(0), &pick(1), &pick(2));
        Look {
            recall: hits.double_value(&[]),
            distance,
            separability: (between - within) / distance.max(1e-12),
            entanglement: within / between.max(1e-12),
            triplet_loss: (hard + MARGIN).relu().mean(Kind::Float).double_value(&[]),
        }
    })
}

/// One row of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Epochs that are over.
    pub epoch: u64,
    /// Batches that are over.
    pub step: u64,
    /// Means over the epoch's batches; `None` before the first.
    pub batches: Option<Seen>,
    /// The clean embeddings at its end.
    pub clean: Look,
    /// Images times attack steps so far.
    pub image_steps: u64,
    /// Wall time so far.
    pub seconds: f64,
    /// Images trained on per second, in this epoch.
    pub images_per_second: f64,
    /// Share of the epoch's wall time spent in attacks.
    pub attack_share: f64,
    /// Signs of collapse, in words.
    pub signs: Vec<String>,
    /// Whether they make a collapse ([`signs`]).
    pub collapsed: bool,
}

/// Signs of collapse, in words, and whether they make one.
///
/// A mean distance that is next to nothing is a collapse by itself: R@1 may hold, for it sees no scale, and the triplet loss
/// need not be back at the margin while what is left of the embedding is in order. The other two come and go; both at
/// once are a collapse.
pub fn signs(look: &Look, state: &State) -> (Vec<String>, bool) {
    let mut found = vec![];
    // A net at random begins there; one that has learnt comes back to it.
    if look.triplet_loss >= 0.9 * MARGIN && state.least_loss < 0.9 * MARGIN {
        found.push(format!(
            "the clean triplet loss is {:.3}, back at 90 % of the margin or more",
            look.triplet_loss
        ));
    }
    let narrow = look.distance < 0.05 * state.first_distance;
    if narrow {
        found.push(format!(
            "the mean distance is {:.4}, below 5 % of the {:.4} at the start",
            look.distance, state.first_distance
        ));
    }
    if look.recall < 0.5 * state.best_recall {
        found.push(format!(
            "clean R@1 fell to {:.1} %, less than half of the best, {:.1} %",
            100.0 * look.recall,
            100.0 * state.best_recall
        ));
    }
    let collapsed = narrow || found.len() >= 2;
    (found, collapsed)
}

/// Means over batches; sums of work and time.
#[derive(Default)]
pub struct Tally {
    sum: Seen,
    count: u64,
}

impl Tally {
    /// Adds a batch.
    pub fn add(&mut self, seen: &Seen) {
        let s = &mut self.sum;
        for (sum, value) in [
            (&mut s.loss_clean, seen.loss_clean),
            (&mut s.loss_adversarial, seen.loss_adversarial),
            (&mut s.hardness_before, seen.hardness_before),
            (&mut s.hardness_after, seen.hardness_after),
            (&mut s.collapseness_before, seen.collapseness_before),
            (&mut s.collapseness_after, seen.collapseness_after),
            (&mut s.attack_steps, seen.attack_steps),
            (&mut s.shift, seen.shift),
            (&mut s.easier, seen.easier),
            (&mut s.attack_seconds, seen.attack_seconds),
        ] {
            *sum += value;
        }
        s.image_steps += seen.image_steps;
        self.count += 1;
    }

    /// The means.
    pub fn mean(&self) -> Option<Seen> {
        let n = self.count as f64;
        let s = &self.sum;
        (self.count > 0).then(|| Seen {
            loss_clean: s.loss_clean / n,
            loss_adversarial: s.loss_adversarial / n,
            hardness_before: s.hardness_before / n,
            hardness_after: s.hardness_after / n,
            collapseness_before: s.collapseness_before / n,
            collapseness_after: s.collapseness_after / n,
            attack_steps: s.attack_steps / n,
            shift: s.shift / n,
            easier: s.easier / n,
            image_steps: s.image_steps,
            attack_seconds: s.attack_seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collapse_in_scale_is_one_though_recall_holds() {
        // A plain net of distance 1.28 and R@1 0.9; what naive CAP made of it had 0.038, loss 0.192 and R@1 0.49.
        let learnt = State { first_distance: 1.28, best_recall: 0.9, least_loss: 0.01, ..State::default() };
        // One that has not learnt anything yet, whose loss can't come back to anywhere.
        let fresh = State { first_distance: 0.4, best_recall: 0.3, least_loss: 0.19, ..State::default() };
        let judge = |state: &State, distance: f64, triplet_loss: f64, recall: f64| {
            let look = Look { recall, distance, triplet_loss, ..Look::default() };
            let (found, collapsed) = signs(&look, state);
            (found.len(), collapsed)
        };
        assert_eq!(judge(&learnt, 1.2, 0.02, 0.8), (0, false));
        assert_eq!(judge(&learnt, 0.038, 0.192, 0.49), (2, true));
        assert_eq!(judge(&learnt, 0.06, 0.17, 0.9), (1, true), "in order, but drawn together");
        assert_eq!(judge(&fresh, 0.01, 0.198, 0.3), (1, true), "from scratch");
        assert_eq!(judge(&fresh, 0.3, 0.19, 0.3), (0, false), "as it began");
        assert_eq!(judge(&learnt, 0.5, 0.185, 0.6), (1, false), "the loss alone");
        assert_eq!(judge(&learnt, 0.5, 0.1, 0.4), (1, false), "R@1 alone");
        assert_eq!(judge(&learnt, 0.5, 0.185, 0.4), (2, true));
    }
}
