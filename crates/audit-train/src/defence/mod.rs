//! Ways of training, one file each: the perturbed images, the adversary's loss, and the net's loss.

mod act;
pub mod adml;
pub mod collapse;
mod est;
pub mod hm;
mod none;
mod panum;

use crate::dice::Dice;
use crate::find_row;
use crate::loss::{LOSSES, Labelled, Loss, distance, hardness, numbers};
use crate::net::{Net, Norms, Weights};
use crate::perturb::{Perturbed, PgdBudget, pgd};
use crate::recipe::Recipe;
use crate::sampler::{self, Anchors, Sampler, Triplets, scheduled, scheduled_as_released};
use crate::settings::Reading;
use audit::Result;
use collapse::{Side, collapseness};
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor, no_grad};

/// A way of training.
pub struct Defence {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line for `audit-train methods`.
    pub about: &'static str,
    /// Default loss.
    pub loss: &'static str,
    /// Losses for which it is defined; empty: all.
    pub only: &'static [&'static str],
    /// Default sampler.
    pub sampler: &'static str,
    /// Default anchors.
    pub anchors: Anchors,
    /// Whether its attack uses triplets, whatever the loss.
    pub attacks_triplets: bool,
    /// Whether it has formulations: `sample` moves one image of a triplet, and only `shift` has a weight.
    pub formulations: bool,
    /// Images of a triplet that it moves by default, for methods with a choice.
    pub perturb: &'static str,
    /// Default attack; `None` without an attack.
    pub attack: Option<AttackDefaults>,
    /// Names of flags that only this method has.
    pub flags: &'static [&'static str],
    /// Default mode of batch norm.
    pub norms: Norms,
    /// Images that a collapse-aware attack moves, alternating by batch; empty for other attacks.
    pub sides: &'static [Side],
    /// Computes the loss of one batch.
    pub step: fn(&mut Step) -> Result<Update>,
}

/// The published budget of an attack, for photographs and for 28-pixel images.
pub struct AttackDefaults {
    /// ε for photographs; 77/255 for 28-pixel images, unless `fixed`.
    pub eps: f64,
    /// Step size of PGD, for pixels in [0, 1].
    pub alpha: StepSize,
    /// Number of steps.
    pub steps: u32,
    /// Whether ε is the same for photographs and 28-pixel images.
    pub fixed: bool,
    /// Whether the step size grows with the epochs.
    pub progressive: bool,
    /// Whether it starts at a random point of the box.
    pub random_start: bool,
}

/// Default length of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepSize {
    /// This length for photographs; 3/255 for 28-pixel images.
    Fixed(f64),
    /// This factor times ε, divided by the number of steps.
    PerBox(f64),
}

/// If steps of the published size can't cross the box, all steps together have this length, in units of ε.
const REACH: f64 = 2.5;

impl StepSize {
    /// The step size for a box of `eps` and `steps` (at least one).
    pub fn of(self, eps: f64, steps: u32, photograph: bool) -> f64 {
        let steps = f64::from(steps);
        let published = match self {
            StepSize::PerBox(times) => return times * eps / steps,
            StepSize::Fixed(alpha) if photograph => alpha,
            StepSize::Fixed(_) => 3.0 / 255.0,
        };
        // ε may have been rounded to f32.
        if published * steps >= eps * (1.0 - 1e-6) { published } else { REACH * eps / steps }
    }
}

impl AttackDefaults {
    /// The attack of the publications of EST, ACT and HM.
    const LITERATURE: AttackDefaults = AttackDefaults {
        eps: 8.0 / 255.0,
        alpha: StepSize::Fixed(1.0 / 255.0),
        steps: 32,
        fixed: false,
        progressive: false,
        random_start: false,
    };
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

/// State that a defence carries from batch to batch, besides the net.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// The net's loss on the previous batch, without extra terms, for LGA's next target hardness.
    pub last_loss: f64,
}

impl Default for Memory {
    fn default() -> Memory {
        // Above any margin: the first target is the easiest.
        Memory { last_loss: 2.0 }
    }
}

/// One batch, for a defence.
pub struct Step<'a> {
    /// The method.
    pub defence: &'static Defence,
    /// The net in training.
    pub net: &'a Net,
    /// Its weights, detached from gradients.
    pub frozen: Weights,
    /// Settings of the run.
    pub recipe: &'a Recipe,
    /// Images [B, C, H, W]; 2i and 2i + 1 share a class.
    pub images: &'a Tensor,
    /// Class of each image, `[B]`.
    pub labels: &'a [usize],
    /// Number of the batch, from 0.
    pub at: u64,
    /// Share of the epochs done.
    pub progress: f64,
    /// Random numbers of this batch.
    pub dice: Dice,
    /// State that the defence carries from batch to batch.
    pub memory: &'a mut Memory,
}

/// The net's loss on a batch.
pub struct BatchLoss {
    /// Without the regulariser.
    pub own: Tensor,
    /// With the regulariser; without one, the same tensor.
    pub regularised: Tensor,
}

/// The result of a defence for a batch.
pub struct Update {
    /// Loss to minimise with respect to the weights.
    pub loss: Tensor,
    /// Measures for the log.
    pub seen: BatchMeasures,
}

/// Measures of a batch: means over its triplets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchMeasures {
    /// Triplet loss of the clean triplets.
    pub loss_clean: f64,
    /// The net's loss without regulariser and extra terms; with `adml` that of the moved images.
    pub loss_adversarial: f64,
    /// Mean d(a,p) − d(a,n) of clean triplets.
    pub hardness_before: f64,
    /// Mean d(a,p) − d(a,n) of the triplets trained on.
    pub hardness_after: f64,
    /// Collapseness of clean triplets.
    pub collapseness_before: f64,
    /// Collapseness of the triplets trained on.
    pub collapseness_after: f64,
    /// Steps of the attack on a batch, until its last triplet stops.
    pub attack_steps: f64,
    /// Mean distance between perturbed and clean embeddings; 0 if no image was perturbed.
    pub shift: f64,
    /// Mean of (d(a,n) − d(a,p)) / d̄ over clean triplets; d̄ is the mean distance of all pairs of their
    /// embeddings.
    pub separability_before: f64,
    /// The same ratio over the triplets trained on.
    pub separability_after: f64,
    /// Share of triplets that the attack made easier, in [0, 1].
    pub easier: f64,
    /// Images times steps.
    pub image_steps: u64,
    /// Wall time of the attack in seconds.
    pub attack_seconds: f64,
}

impl BatchMeasures {
    /// The measures that are averaged over the batches of an epoch.
    pub fn means(&mut self) -> [&mut f64; 11] {
        [
            &mut self.loss_clean,
            &mut self.loss_adversarial,
            &mut self.hardness_before,
            &mut self.hardness_after,
            &mut self.collapseness_before,
            &mut self.collapseness_after,
            &mut self.attack_steps,
            &mut self.shift,
            &mut self.separability_before,
            &mut self.separability_after,
            &mut self.easier,
        ]
    }
}

impl Defence {
    /// The defence called `name`. Error (exit code 2): there is none.
    pub fn find(name: &str) -> Result<&'static Defence> {
        find_row("method", DEFENCES, name, |row| row.name)
    }

    /// Losses for which it is defined, the default first.
    pub fn losses(&self) -> Vec<&'static str> {
        let all =
            LOSSES.iter().map(|row| row.name).filter(|name| self.only.is_empty() || self.only.contains(name));
        std::iter::once(self.loss).chain(all.filter(|name| *name != self.loss)).collect()
    }

    /// Whether its attack uses collapseness.
    pub fn is_collapse_aware(&self) -> bool {
        !self.sides.is_empty()
    }

    /// Whether a top-rank pair applies: it belongs to anchors, and the released code adds it to candidates
    /// too.
    pub fn has_top_rank(&self, reading: Reading) -> bool {
        self.sides.contains(&Side::Anchors) || reading == Reading::Released
    }
}

impl Step<'_> {
    /// Unit embeddings of the batch in inference mode, without gradients.
    pub fn clean(&self) -> Tensor {
        no_grad(|| self.net.unit(&self.frozen, self.images, Norms::Frozen))
    }

    /// Points beside clean embeddings, from which the first step of an attack measures a shift: at distance 0
    /// there is no direction. Each coordinate is moved by −1e-7, 0 or 1e-7, as in robrank.
    pub fn beside(&self, clean: &Tensor) -> Tensor {
        // Not the batch's own numbers: the rest of the step is independent of it.
        let mut dice = Dice::new(self.recipe.settings.seed, "beside", self.at);
        let signs: Tensor = (dice.tensor(&clean.size()) * 3.0).floor() - 1.0;
        clean + signs.to_device(clean.device()) * 1e-7
    }

    /// Unit embeddings in training mode, with gradients to the weights; and in inference mode without
    /// gradients, for the log: clean embeddings are in inference mode, and a shift needs two of the same
    /// mode.
    pub fn embed(&self, images: &Tensor) -> (Tensor, Tensor) {
        let norms = self.recipe.settings.norms;
        let trained = || self.net.unit(&self.net.weights, images, norms);
        match norms {
            Norms::Frozen => {
                let embeddings = trained();
                let rest = embeddings.detach();
                (embeddings, rest)
            }
            Norms::Train => {
                // First, because a pass in training mode changes the running statistics.
                let rest = no_grad(|| self.net.unit(&self.frozen, images, Norms::Frozen));
                (trained(), rest)
            }
        }
    }

    /// The margin η of this epoch.
    fn eta(&self) -> f64 {
        let s = &self.recipe.settings;
        match (s.eta_scheduled, s.reading) {
            (false, _) => s.eta,
            (true, Reading::Released) => scheduled_as_released(s.eta, self.progress),
            (true, _) => scheduled(s.eta, self.progress),
        }
    }

    /// Triplets of the batch, mined on these embeddings.
    pub fn mine(&mut self, embeddings: &Tensor) -> Result<Triplets> {
        self.mine_with(self.recipe.sampler, embeddings)
    }

    /// [`Step::mine`] with another sampler.
    pub fn mine_with(&mut self, sampler: &Sampler, embeddings: &Tensor) -> Result<Triplets> {
        let mined = sampler::mined(embeddings, self.labels, self.eta())?;
        Ok(sampler::mine(sampler, &mined, self.recipe.settings.anchors, &mut self.dice))
    }

    /// The loss of a batch's embeddings [B, D]. Losses of triplets use `triplets`.
    pub fn loss_of(&self, embeddings: &Tensor, triplets: &Triplets) -> BatchLoss {
        let classes = numbers(self.labels, embeddings);
        self.loss_with(embeddings, &classes, triplets, embeddings)
    }

    /// The loss of the embeddings of triplets, each [T, D]: as triplets, or as one batch of all three for
    /// losses of pairs. The regulariser gets the anchors, and with [`Anchors::Pairs`] the positives: each
    /// image of the batch once, unless the sampler draws positives anew (`softhard`).
    pub fn loss_of_triplets(&self, parts: &[Tensor; 3], triplets: &Triplets) -> BatchLoss {
        let [a, p, _] = parts;
        let count = a.size()[0];
        let e = Tensor::cat(parts, 0);
        let rows = Triplets::consecutive(count);
        let classes: Vec<Tensor> = triplets.of(&numbers(self.labels, &e)).into();
        let once = match self.recipe.settings.anchors {
            Anchors::Pairs => Tensor::cat(&[a, p], 0),
            Anchors::Every => a.shallow_clone(),
        };
        self.loss_with(&e, &Tensor::cat(&classes, 0), &rows, &once)
    }

    fn loss_with(&self, e: &Tensor, classes: &Tensor, triplets: &Triplets, once: &Tensor) -> BatchLoss {
        let Recipe { loss, regulariser, settings, .. } = self.recipe;
        let value = |loss: &Loss, e: &Tensor| {
            let parameter = loss.parameter.as_ref().and_then(|p| self.net.of_loss.get(p.name));
            (loss.of)(&Labelled { e, classes, triplets, parameter })
        };
        let own = value(loss, e);
        let regularised = match regulariser {
            Some(regulariser) => &own + value(regulariser, once) * settings.regulariser_weight,
            None => own.shallow_clone(),
        };
        BatchLoss { own, regularised }
    }

    /// The budget of an attack on this batch. A progressive step size grows with the epochs.
    pub fn budget(&self) -> PgdBudget {
        let s = &self.recipe.settings;
        let alpha = if s.progressive { s.alpha * self.progress } else { s.alpha };
        PgdBudget { eps: s.eps, alpha, steps: s.pgd_steps, random_start: s.random_start }
    }

    /// Attacks all of `images`.
    pub fn attack(&mut self, images: &Tensor, loss: impl FnMut(&Tensor, u32) -> Option<Tensor>) -> Perturbed {
        let budget = self.budget();
        pgd(self.net, &self.frozen, images, &budget, &mut self.dice, loss)
    }

    /// Attacks some of the anchors, positives and negatives of triplets; `loss` gets the embeddings of all
    /// three. Returns the three batches of images, moved or not.
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

    /// [`Step::embed`] of three batches of images, in one pass.
    pub fn embed_triplets(&self, images: &[Tensor; 3]) -> ([Tensor; 3], [Tensor; 3]) {
        let (trained, rest) = self.embed(&Tensor::cat(images, 0));
        (thirds(&trained), thirds(&rest))
    }

    /// Measures of triplets before and after an attack, from embeddings of anchors, positives and negatives
    /// in inference mode.
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
            let apart = |e: &[Tensor; 3], h: &Tensor| -mean(h) / mean_distance(&Tensor::cat(e, 0)).max(1e-12);
            let shifts: Vec<f64> =
                (0..3).filter(|&i| moving[i]).map(|i| shift(&before[i], &after[i])).collect();
            BatchMeasures {
                loss_clean: mean(&(&h0 + crate::loss::MARGIN).relu()),
                loss_adversarial: 0.0,
                hardness_before: mean(&h0),
                hardness_after: mean(&h1),
                collapseness_before: c(before),
                collapseness_after: c(after),
                attack_steps: moved.map_or(0.0, |m| f64::from(m.steps)),
                shift: if shifts.is_empty() { 0.0 } else { shifts.iter().sum::<f64>() / shifts.len() as f64 },
                separability_before: apart(before, &h0),
                separability_after: apart(after, &h1),
                // The effect of rounding on an unmoved triplet doesn't count.
                easier: mean(&h1.lt_tensor(&(&h0 - 1e-5)).to_kind(Kind::Float)),
                image_steps: moved.map_or(0, |m| m.work),
                attack_seconds: moved.map_or(0.0, |m| m.seconds),
            }
        })
    }
}

/// Mean distance of embeddings [n, D] before and after an attack; 0 without rows.
fn shift(before: &Tensor, after: &Tensor) -> f64 {
    if before.size()[0] == 0 {
        return 0.0;
    }
    number(&distance(before, after).mean(Kind::Float))
}

/// Mean distance of all pairs of different rows of unit length.
fn mean_distance(e: &Tensor) -> f64 {
    let count = e.size()[0];
    let squares: Tensor = 2.0 - e.matmul(&e.tr()) * 2.0;
    // A row's distance from itself is 0, up to rounding.
    let own = Tensor::eye(count, (Kind::Bool, e.device()));
    let sum = squares.masked_fill(&own, 0.0).clamp_min(0.0).sqrt().sum(Kind::Double);
    number(&sum) / (count * (count - 1)).max(1) as f64
}

fn thirds(t: &Tensor) -> [Tensor; 3] {
    let mut parts = t.chunk(3, 0).into_iter();
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// The value of a tensor with one element.
pub fn number(t: &Tensor) -> f64 {
    t.double_value(&[])
}

/// Adds the net's own loss to the measures.
fn update(loss: Tensor, own: &Tensor, seen: BatchMeasures) -> Update {
    let seen = BatchMeasures { loss_adversarial: number(&own.detach()), ..seen };
    Update { loss, seen }
}
