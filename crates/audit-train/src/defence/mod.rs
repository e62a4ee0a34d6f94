//! Ways of training, one file each: what is perturbed, what the adversary minimises, and what the net is trained on.

mod act;
pub mod adml;
pub mod collapse;
mod est;
mod hm;
mod none;
mod panum;

use crate::dice::Dice;
use crate::find_row;
use crate::loss::{LossInput, distance, hardness, same_class};
use crate::net::{Net, Norms, Weights};
use crate::perturb::{Perturbed, PgdBudget, pgd};
use crate::recipe::{Reading, Recipe};
use crate::sampler::{Mined, Triplets, scheduled};
use audit::Result;
use collapse::{Side, collapseness};
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor, no_grad};

/// A way of training.
pub struct Defence {
    /// On the command line.
    pub name: &'static str,
    /// One line for `audit-train methods`.
    pub about: &'static str,
    /// Losses it is defined with, the default first.
    pub losses: &'static [&'static str],
    /// The sampler where none is asked for.
    pub sampler: &'static str,
    /// Its attack where nothing is asked for; `None` for one without attack.
    pub attack: Option<AttackDefaults>,
    /// Flags of its own, by name.
    pub flags: &'static [&'static str],
    /// What batch norm does where nothing is asked for.
    pub norms: Norms,
    /// What a collapse-aware attack moves, batch by batch in turn; empty for other attacks.
    pub sides: &'static [Side],
    /// Loss of one batch.
    pub step: fn(&mut Step) -> Result<Update>,
}

/// An attack's budget as published, for photographs and for 28-pixel images.
pub struct AttackDefaults {
    /// ε of photographs; 77/255 on 28-pixel images, but where it is given as fixed.
    pub eps: f64,
    /// Step size of photographs; 3/255 on 28-pixel images.
    pub alpha: f64,
    /// Number of steps.
    pub steps: u32,
    /// Whether ε and α are the same for all images.
    pub fixed: bool,
    /// Whether the step size grows with the epochs.
    pub progressive: bool,
}

impl AttackDefaults {
    /// What EST, ACT and HM were published with.
    const LITERATURE: AttackDefaults =
        AttackDefaults { eps: 8.0 / 255.0, alpha: 1.0 / 255.0, steps: 32, fixed: false, progressive: false };
}

/// Every way of training.
pub const DEFENCES: &[Defence] = &[
    none::DEFENCE,
    est::DEFENCE,
    act::DEFENCE,
    hm::DEFENCE,
    collapse::CAP,
    collapse::ANP,
    collapse::CA_TRIDE,
    panum::DEFENCE,
    adml::DEFENCE,
];

/// What a defence remembers from batch to batch, beside the net.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// The adversarial loss of the batch before; LGA's next destination.
    pub last_loss: f64,
}

impl Default for Memory {
    fn default() -> Memory {
        // Above any margin: the first destination is the easiest.
        Memory { last_loss: 2.0 }
    }
}

/// One batch on its way through a defence.
pub struct Step<'a> {
    /// The net that is trained.
    pub net: &'a Net,
    /// Its weights, cut off from gradients.
    pub frozen: Weights,
    /// What the run was asked for.
    pub recipe: &'a Recipe,
    /// Images [B, C, H, W]; 2i and 2i + 1 share a class.
    pub images: &'a Tensor,
    /// The class of each image, [B].
    pub labels: &'a [usize],
    /// Number of the batch, from 0.
    pub at: u64,
    /// Share of the epochs that are over.
    pub progress: f64,
    /// Random numbers of this batch.
    pub dice: Dice,
    /// What the defence keeps from batch to batch.
    pub memory: &'a mut Memory,
}

/// What a defence makes of a batch.
pub struct Update {
    /// To be descended with respect to the weights.
    pub loss: Tensor,
    /// What the batch shows.
    pub seen: BatchMeasures,
}

/// What a batch shows of the dynamics; means over its triplets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchMeasures {
    /// Triplet loss of the clean triplets.
    pub loss_clean: f64,
    /// The loss trained on, without extra terms.
    pub loss_adversarial: f64,
    /// Mean d(a,p) − d(a,n) of clean triplets.
    pub hardness_before: f64,
    /// The same of the triplets trained on.
    pub hardness_after: f64,
    /// Collapseness of clean triplets.
    pub collapseness_before: f64,
    /// The same of the triplets trained on.
    pub collapseness_after: f64,
    /// Steps of the attack.
    pub attack_steps: f64,
    /// Mean distance that perturbed embeddings moved.
    pub shift: f64,
    /// Share of triplets that the attack made easier.
    pub easier: f64,
    /// Images times steps.
    pub image_steps: u64,
    /// Wall time of the attack.
    pub attack_seconds: f64,
}

impl BatchMeasures {
    /// What is averaged over the batches of an epoch.
    pub fn means(&mut self) -> [&mut f64; 9] {
        [
            &mut self.loss_clean,
            &mut self.loss_adversarial,
            &mut self.hardness_before,
            &mut self.hardness_after,
            &mut self.collapseness_before,
            &mut self.collapseness_after,
            &mut self.attack_steps,
            &mut self.shift,
            &mut self.easier,
        ]
    }
}

impl Defence {
    /// The defence called `name`. Errors (exit code 2): no defence has this name.
    pub fn find(name: &str) -> Result<&'static Defence> {
        find_row("method", DEFENCES, name, |row| row.name)
    }

    /// Whether its attack looks at collapseness.
    pub fn is_collapse_aware(&self) -> bool {
        !self.sides.is_empty()
    }

    /// Whether a top-rank pair has a place: it belongs to anchors, and the released code adds it to candidates as well.
    pub fn has_top_rank(&self, reading: Reading) -> bool {
        self.sides.contains(&Side::Anchors) || reading == Reading::Released
    }
}

impl Step<'_> {
    /// Unit embeddings of the batch in inference mode, without gradients.
    pub fn clean(&self) -> Tensor {
        no_grad(|| self.net.unit(&self.frozen, self.images, Norms::Frozen))
    }

    /// Unit embeddings in training mode, with gradients to the weights.
    pub fn embed(&self, images: &Tensor) -> Tensor {
        self.net.unit(&self.net.weights, images, self.recipe.settings.norms)
    }

    /// Triplets of the batch, by these embeddings.
    pub fn mine(&mut self, embeddings: &Tensor) -> Result<Triplets> {
        let settings = &self.recipe.settings;
        let eta = match settings.eta_scheduled {
            true => scheduled(settings.eta, self.progress),
            false => settings.eta,
        };
        let mined = Mined::new(embeddings, self.labels, eta)?;
        Ok(self.recipe.sampler.mine(&mined, &mut self.dice))
    }

    /// The loss of a batch's embeddings, mined on themselves where it takes triplets.
    pub fn loss_of(&mut self, embeddings: &Tensor) -> Result<Tensor> {
        Ok(match self.recipe.loss.of {
            LossInput::Batch(f) => f(embeddings, &same_class(self.labels, embeddings)),
            LossInput::Triplets(f) => {
                let [a, p, n] = self.mine(embeddings)?.of(embeddings);
                f(&a, &p, &n)
            }
        })
    }

    /// The budget of an attack on this batch. A progressive step size has grown with the epochs.
    pub fn budget(&self) -> PgdBudget {
        let s = &self.recipe.settings;
        let alpha = if s.progressive { s.alpha * self.progress } else { s.alpha };
        PgdBudget { eps: s.eps, alpha, steps: s.pgd_steps, random_start: s.random_start }
    }

    /// Attacks whole images.
    pub fn attack(&mut self, images: &Tensor, loss: impl FnMut(&Tensor, u32) -> Option<Tensor>) -> Perturbed {
        let budget = self.budget();
        pgd(self.net, &self.frozen, images, &budget, &mut self.dice, loss)
    }

    /// Attacks some of the anchors, positives and negatives of triplets; `loss` sees the embeddings of all three.
    /// Returns the three batches of images, moved or not.
    pub fn attack_triplets(
        &mut self,
        clean: &Tensor,
        triplets: &Triplets,
        moving: [bool; 3],
        mut loss: impl FnMut([&Tensor; 3], u32) -> Option<Tensor>,
    ) -> ([Tensor; 3], Perturbed) {
        let still = triplets.of(clean);
        let mut images = triplets.of(self.images);
        let places: Vec<usize> = (0..3).filter(|&i| moving[i]).collect();
        let start = Tensor::cat(&places.iter().map(|&i| &images[i]).collect::<Vec<_>>(), 0);
        let moved = self.attack(&start, |e, at| {
            let parts = e.chunk(places.len() as i64, 0);
            let mut now = [&still[0], &still[1], &still[2]];
            for (&place, part) in places.iter().zip(&parts) {
                now[place] = part;
            }
            loss(now, at)
        });
        for (&place, part) in places.iter().zip(moved.images.chunk(places.len() as i64, 0)) {
            images[place] = part;
        }
        (images, moved)
    }

    /// Embeds three batches of images in training mode, in one pass.
    pub fn embed_triplets(&self, images: &[Tensor; 3]) -> [Tensor; 3] {
        let mut parts = self.embed(&Tensor::cat(images, 0)).chunk(3, 0).into_iter();
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }

    /// What triplets show before and after an attack: embeddings of anchors, positives, negatives.
    pub fn seen(
        &self,
        before: &[Tensor; 3],
        after: &[Tensor; 3],
        moving: [bool; 3],
        moved: Option<&Perturbed>,
    ) -> BatchMeasures {
        no_grad(|| {
            let mean = |t: &Tensor| t.mean(Kind::Float).double_value(&[]);
            let hard = |[a, p, n]: &[Tensor; 3]| hardness(a, p, n);
            let (h0, h1) = (hard(before), hard(after));
            let lambda = self.recipe.settings.lambda;
            let c = |[a, p, n]: &[Tensor; 3]| collapseness([a, p, n], -lambda, true).double_value(&[]);
            let shifts: Vec<f64> =
                (0..3).filter(|&i| moving[i]).map(|i| mean(&distance(&before[i], &after[i]))).collect();
            BatchMeasures {
                loss_clean: mean(&(&h0 + crate::loss::MARGIN).relu()),
                loss_adversarial: 0.0,
                hardness_before: mean(&h0),
                hardness_after: mean(&h1),
                collapseness_before: c(before),
                collapseness_after: c(after),
                attack_steps: moved.map_or(0.0, |m| f64::from(m.steps)),
                shift: if shifts.is_empty() { 0.0 } else { shifts.iter().sum::<f64>() / shifts.len() as f64 },
                // What rounding does to an unmoved triplet is no difference.
                easier: mean(&h1.lt_tensor(&(&h0 - 1e-5)).to_kind(Kind::Float)),
                image_steps: moved.map_or(0, |m| m.work),
                attack_seconds: moved.map_or(0.0, |m| m.seconds),
            }
        })
    }
}

/// The value of a tensor with one element.
pub fn number(t: &Tensor) -> f64 {
    t.double_value(&[])
}

/// The loss as a number beside what else was seen.
fn update(loss: Tensor, base: &Tensor, seen: BatchMeasures) -> Update {
    let seen = BatchMeasures { loss_adversarial: number(&base.detach()), ..seen };
    Update { loss, seen }
}
