//! Ways of training, one file each: what is perturbed, what the adversary minimises, and what the net is
//! trained on.

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
    /// On the command line.
    pub name: &'static str,
    /// One line for `audit-train methods`.
    pub about: &'static str,
    /// The loss where none is asked for.
    pub loss: &'static str,
    /// Losses that it is defined with; empty for every one.
    pub only: &'static [&'static str],
    /// The sampler where none is asked for.
    pub sampler: &'static str,
    /// Which images are anchors where nothing is asked for.
    pub anchors: Anchors,
    /// Whether its attack looks at triplets, whatever the loss.
    pub attacks_triplets: bool,
    /// Which of anchor, positive and negative it moves where nothing is asked for, for methods that leave a
    /// choice.
    pub perturb: &'static str,
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
    /// ε of photographs; 77/255 on 28-pixel images, but where it is the same for all.
    pub eps: f64,
    /// Step size of PGD, in units of the [0,1] range.
    pub alpha: StepSize,
    /// Number of steps.
    pub steps: u32,
    /// Whether ε is the same for all images.
    pub fixed: bool,
    /// Whether the step size grows with the epochs.
    pub progressive: bool,
    /// Whether it starts anywhere in the box.
    pub random_start: bool,
}

/// How far a step goes where nothing is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepSize {
    /// So far on photographs; 3/255 on 28-pixel images.
    Fixed(f64),
    /// So many times ε, divided by the number of steps.
    PerBox(f64),
}

/// Where steps of the published size cannot cross the box, the lengths of all steps together are this many
/// times ε.
const REACH: f64 = 2.5;

impl StepSize {
    /// The step size for a box of `eps` and so many steps, at least one.
    pub fn of(self, eps: f64, steps: u32, photograph: bool) -> f64 {
        let steps = f64::from(steps);
        let published = match self {
            StepSize::PerBox(times) => return times * eps / steps,
            StepSize::Fixed(alpha) if photograph => alpha,
            StepSize::Fixed(_) => 3.0 / 255.0,
        };
        // ε may have been rounded to a float.
        if published * steps >= eps * (1.0 - 1e-6) { published } else { REACH * eps / steps }
    }
}

impl AttackDefaults {
    /// What EST, ACT and HM were published with.
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
    /// Steps of the attack, the mean over triplets where they stop one by one.
    pub attack_steps: f64,
    /// Mean distance that perturbed embeddings moved.
    pub shift: f64,
    /// Mean of (d(a,n) − d(a,p)) / d̄ over clean triplets, d̄ the mean distance of all pairs of their
    /// embeddings.
    pub separability_before: f64,
    /// The same of the triplets trained on.
    pub separability_after: f64,
    /// Share of triplets that the attack made easier.
    pub easier: f64,
    /// Images times steps.
    pub image_steps: u64,
    /// Wall time of the attack.
    pub attack_seconds: f64,
}

impl BatchMeasures {
    /// What is averaged over the batches of an epoch.
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
    /// The defence called `name`. Errors (exit code 2): no defence has this name.
    pub fn find(name: &str) -> Result<&'static Defence> {
        find_row("method", DEFENCES, name, |row| row.name)
    }

    /// Losses that it is defined with, the default first.
    pub fn losses(&self) -> Vec<&'static str> {
        let all =
            LOSSES.iter().map(|row| row.name).filter(|name| self.only.is_empty() || self.only.contains(name));
        std::iter::once(self.loss).chain(all.filter(|name| *name != self.loss)).collect()
    }

    /// Whether its attack looks at collapseness.
    pub fn is_collapse_aware(&self) -> bool {
        !self.sides.is_empty()
    }

    /// Whether a top-rank pair has a place: it belongs to anchors, and the released code adds it to
    /// candidates as well.
    pub fn has_top_rank(&self, reading: Reading) -> bool {
        self.sides.contains(&Side::Anchors) || reading == Reading::Released
    }
}

impl Step<'_> {
    /// Unit embeddings of the batch in inference mode, without gradients.
    pub fn clean(&self) -> Tensor {
        no_grad(|| self.net.unit(&self.frozen, self.images, Norms::Frozen))
    }

    /// Unit embeddings in training mode, with gradients to the weights; and the same in inference mode
    /// without gradients, for what is logged: clean embeddings are in inference mode, and shifts are between
    /// two of a kind.
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
                // First, since a pass in training mode moves the running statistics.
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

    /// Triplets of the batch, by these embeddings.
    pub fn mine(&mut self, embeddings: &Tensor) -> Result<Triplets> {
        self.mine_with(self.recipe.sampler, embeddings)
    }

    /// The same by another sampler.
    pub fn mine_with(&mut self, sampler: &Sampler, embeddings: &Tensor) -> Result<Triplets> {
        let mined = sampler::mined(embeddings, self.labels, self.eta())?;
        Ok(sampler::mine(sampler, &mined, self.recipe.settings.anchors, &mut self.dice))
    }

    /// The loss of a batch's embeddings [B, D]; of these triplets of it, where it takes triplets. With the
    /// regulariser.
    pub fn loss_of(&self, embeddings: &Tensor, triplets: &Triplets) -> Tensor {
        let classes = numbers(self.labels, embeddings);
        self.loss_with(embeddings, &classes, triplets, embeddings)
    }

    /// The loss of the embeddings of triplets, each [T, D]: as triplets, or as one batch of all three where
    /// the loss takes pairs. The regulariser sees each image of the batch once.
    pub fn loss_of_triplets(&self, parts: &[Tensor; 3], triplets: &Triplets) -> Tensor {
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

    fn loss_with(&self, e: &Tensor, classes: &Tensor, triplets: &Triplets, once: &Tensor) -> Tensor {
        let Recipe { loss, regulariser, settings, .. } = self.recipe;
        let value = |loss: &Loss, e: &Tensor| {
            let parameter = loss.parameter.as_ref().and_then(|p| self.net.of_loss.get(p.name));
            (loss.of)(&Labelled { e, classes, triplets, parameter })
        };
        let own = value(loss, e);
        match regulariser {
            Some(regulariser) => own + value(regulariser, once) * settings.regulariser_weight,
            None => own,
        }
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

    /// Attacks some of the anchors, positives and negatives of triplets; `loss` sees the embeddings of all
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

    /// Embeds three batches of images in one pass, as [`Step::embed`] does.
    pub fn embed_triplets(&self, images: &[Tensor; 3]) -> ([Tensor; 3], [Tensor; 3]) {
        let (trained, rest) = self.embed(&Tensor::cat(images, 0));
        (thirds(&trained), thirds(&rest))
    }

    /// What triplets show before and after an attack: embeddings of anchors, positives, negatives, in
    /// inference mode.
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
                separability_before: apart(before, &h0),
                separability_after: apart(after, &h1),
                // What rounding does to an unmoved triplet is no difference.
                easier: mean(&h1.lt_tensor(&(&h0 - 1e-5)).to_kind(Kind::Float)),
                image_steps: moved.map_or(0, |m| m.work),
                attack_seconds: moved.map_or(0.0, |m| m.seconds),
            }
        })
    }
}

/// Mean distance of all pairs of different rows of unit length.
fn mean_distance(e: &Tensor) -> f64 {
    let count = e.size()[0];
    let squares: Tensor = 2.0 - e.matmul(&e.tr()) * 2.0;
    // A row's distance from itself is 0 but for rounding.
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

/// The loss as a number beside what else was seen.
fn update(loss: Tensor, base: &Tensor, seen: BatchMeasures) -> Update {
    let seen = BatchMeasures { loss_adversarial: number(&base.detach()), ..seen };
    Update { loss, seen }
}
