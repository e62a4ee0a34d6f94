//! What a training does: the flags with every default filled in and every combination checked.

use crate::cli::Flags;
use crate::defence::{DEFENCES, Defence};
use crate::loss::Loss;
use crate::net::{Backbone, Norms};
use crate::sampler::{SAMPLERS, Sampler};
use audit::suite::parse_fraction;
use audit::{Error, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Readings of CA-TRIDE's definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// Weights without gradient; raises collapseness to 0 and stops.
    Working,
    /// Equations 10 to 12 as printed.
    Paper,
    /// As the authors' code has it.
    Released,
    /// Without collapse awareness: hardness raised as far as it goes.
    Naive,
}

/// What ADML's attack raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdmlTarget {
    /// The mean squared distance of images of one class.
    Alignment,
    /// The mean of exp(−d²) over pairs of different classes.
    Uniformity,
    /// The triplet loss.
    Triplet,
}

/// What to do when the net collapses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnCollapse {
    /// Say so, keep the last good checkpoint, end with exit code 12.
    Stop,
    /// Say so in the log and go on.
    Continue,
}

/// What HM moves triplets to.
pub enum TargetHardness {
    /// Linear gradual adversary.
    Lga,
    /// The hardness of another sampler's triplets.
    Sampler(&'static Sampler),
    /// This value.
    Constant(f64),
}

/// All that decides which weights come out, defaults filled in. A checkpoint holds it, and a resumed run must have the
/// same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TrainingSettings {
    /// Name of the defence.
    pub method: String,
    /// Name of the net.
    pub backbone: String,
    /// Dimensions of the embedding.
    pub dim: i64,
    /// What batch norm does in training.
    pub norms: Norms,
    /// File of weights of torchvision that the net starts from.
    pub pretrained: Option<String>,
    /// Checkpoint whose weights the net starts from.
    pub init: Option<String>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Batches to train on.
    pub steps: u64,
    /// Images in a batch.
    pub batch: usize,
    /// Learning rate of Adam.
    pub lr: f64,
    /// Share of the steps after which the learning rate is divided by 5.
    pub lr_drop: Option<f64>,
    /// Weight decay of Adam.
    pub weight_decay: f64,
    /// Name of the loss.
    pub loss: String,
    /// Name of the sampler.
    pub sampler: String,
    /// Margin η of semi-hard negatives.
    pub eta: f64,
    /// Whether η falls with the epochs.
    pub eta_scheduled: bool,
    /// cap, anp, ca-tride: how much near samples count in collapseness, λ.
    pub lambda: f64,
    /// cap, anp, ca-tride: the reading of the definitions.
    pub reading: Reading,
    /// anp, ca-tride: whether attack and loss have the top-rank pair.
    pub top_rank: bool,
    /// hm: the hardness to reach.
    pub destination: String,
    /// hm: weight of the intra-class structure loss.
    pub ics: f64,
    /// panum: share γ of positives that are moved.
    pub gamma: f64,
    /// adml: what the attack raises.
    pub target: AdmlTarget,
    /// adml: weight of the adversarial loss.
    pub adversarial_weight: f64,
    /// Largest change of a pixel in training, in units of [0, 1].
    pub eps: f64,
    /// Step size of the attack, in units of [0, 1].
    pub alpha: f64,
    /// Steps of the attack.
    pub pgd_steps: u32,
    /// Whether the attack starts anywhere in the box.
    pub random_start: bool,
    /// Whether the step size grows with the epochs.
    pub progressive: bool,
    /// What to do when the net collapses.
    pub on_collapse: OnCollapse,
    /// Number of images trained on.
    pub images: usize,
    /// SHA-256 of the names of the images, in hexadecimal, cut short.
    pub data: String,
}

/// Settings, their names looked up in the tables.
pub struct Recipe {
    /// The settings.
    pub settings: TrainingSettings,
    /// The defence called `settings.method`.
    pub defence: &'static Defence,
    /// The loss called `settings.loss`.
    pub loss: &'static Loss,
    /// The sampler called `settings.sampler`.
    pub sampler: &'static Sampler,
    /// The net called `settings.backbone`.
    pub backbone: &'static Backbone,
    /// The hardness that `settings.destination` names.
    pub destination: TargetHardness,
}

impl Recipe {
    /// Checks the flags against each other and fills in what they leave out. `images` and `digest` describe the data. Exit
    /// code 2 for a combination without sense, with the reason.
    pub fn of(flags: &Flags, images: usize, digest: &str) -> Result<Recipe> {
        let defence = Defence::find(flags.method.as_deref().unwrap_or_default())?;
        let backbone = Backbone::find(&flags.backbone)?;
        let loss = Loss::find(flags.loss.as_deref().unwrap_or(defence.losses[0]))?;
        check_method(flags, defence, loss.name)?;
        let sampler = Sampler::find(flags.sampler.as_deref().unwrap_or(defence.sampler))?;
        check_objective(flags, defence, loss, sampler)?;
        let reading = flags.reading.unwrap_or(Reading::Working);
        let destination = flags.destination.as_deref().unwrap_or("lga");
        refuse_if!(
            matches!(target_hardness(destination)?, TargetHardness::Sampler(other) if other.name == sampler.name),
            "--destination {destination}: triplets of the sampler {destination} are as hard as that already, so nothing would \
             be moved; name a harder destination, or another --sampler"
        );
        let norms = flags.norms.unwrap_or(defence.norms);
        check_net(flags, backbone, norms)?;
        check_batch(flags.batch, images)?;
        let steps = flags.steps.unwrap_or(flags.epochs.unwrap_or(100) * per_epoch(images, flags.batch));
        refuse_if!(steps == 0, "--steps 0 trains nothing; give at least 1");

        let (eps, alpha, pgd_steps, progressive) = match &defence.attack {
            None => (0.0, 0.0, 0, false),
            Some(a) if backbone.photograph || a.fixed => (a.eps, a.alpha, a.steps, a.progressive),
            Some(a) => (77.0 / 255.0, 3.0 / 255.0, a.steps, a.progressive),
        };
        let pgd_steps = flags.pgd_steps.unwrap_or(pgd_steps);
        let method = defence.name;
        refuse_if!(
            defence.attack.is_some() && pgd_steps == 0,
            "--pgd-steps 0 is no attack; train with `none` instead of {method}"
        );

        let collapse_aware = defence.is_collapse_aware();
        let top_rank = collapse_aware && defence.has_top_rank(reading) && reading != Reading::Naive;
        let (lr, decay) = if backbone.photograph { (1e-5, 4e-4) } else { (1e-3, 1e-7) };
        let adversarial_weight = flags.adversarial_weight.unwrap_or(0.1);
        let adversarial_weight = within("adversarial-weight", adversarial_weight, 0.0, 100.0)?;
        let shown = |path: &Option<PathBuf>| path.as_ref().map(|p| p.display().to_string());
        Recipe::from(TrainingSettings {
            method: method.into(),
            backbone: backbone.name.into(),
            dim: within("dim", flags.dim.unwrap_or(backbone.dim) as f64, 2.0, 65536.0)? as i64,
            norms,
            pretrained: shown(&flags.pretrained),
            init: shown(&flags.init),
            seed: flags.seed,
            steps,
            batch: flags.batch,
            lr: within("lr", flags.lr.unwrap_or(lr), 1e-12, 10.0)?,
            lr_drop: flags.lr_drop.map(|share| within("lr-drop", share, 0.0, 1.0)).transpose()?,
            weight_decay: within("weight-decay", flags.weight_decay.unwrap_or(decay), 0.0, 1.0)?,
            loss: loss.name.into(),
            sampler: sampler.name.into(),
            eta: within("eta", flags.eta.unwrap_or(0.2), 1e-6, 2.0)?,
            eta_scheduled: flags.eta_schedule.unwrap_or(sampler.is_semihard() && collapse_aware),
            // C is logged for every method; λ is 10 as in the first table of the CA-TRIDE paper.
            lambda: within("lambda", flags.lambda.unwrap_or(10.0), 0.0, 100.0)?,
            reading,
            top_rank: flags.top_rank.unwrap_or(top_rank),
            destination: destination.into(),
            ics: within("ics", flags.ics.unwrap_or(0.5), 0.0, 100.0)?,
            gamma: within("gamma", flags.gamma.unwrap_or(0.5), 0.0, 1.0)?,
            target: flags.target.unwrap_or(AdmlTarget::Alignment),
            adversarial_weight,
            eps: fraction("eps", &flags.eps, eps)?,
            alpha: fraction("alpha", &flags.alpha, alpha)?,
            pgd_steps,
            random_start: flags.random_start,
            progressive: flags.progressive.unwrap_or(progressive),
            on_collapse: flags.on_collapse,
            images,
            data: digest.into(),
        })
    }

    /// Looks the names of settings up. Exit code 2 where a table lacks one.
    pub fn from(settings: TrainingSettings) -> Result<Recipe> {
        Ok(Recipe {
            defence: Defence::find(&settings.method)?,
            loss: Loss::find(&settings.loss)?,
            sampler: Sampler::find(&settings.sampler)?,
            backbone: Backbone::find(&settings.backbone)?,
            destination: target_hardness(&settings.destination)?,
            settings,
        })
    }

    /// Batches in an epoch.
    pub fn per_epoch(&self) -> u64 {
        per_epoch(self.settings.images, self.settings.batch)
    }

    /// Epochs, the last one perhaps cut short.
    pub fn epochs(&self) -> u64 {
        self.settings.steps.div_ceil(self.per_epoch())
    }
}

fn per_epoch(images: usize, batch: usize) -> u64 {
    (images / batch).max(1) as u64
}

/// The names and values that differ.
pub fn differences(theirs: &TrainingSettings, ours: &TrainingSettings) -> Vec<String> {
    let fields = |s: &TrainingSettings| serde_json::to_value(s).unwrap_or_default();
    let (theirs, ours) = (fields(theirs), fields(ours));
    let Some(names) = ours.as_object() else { return vec![] };
    names
        .iter()
        .filter(|(name, value)| theirs.get(name.as_str()) != Some(value))
        .map(|(name, value)| {
            format!("{name} {} there and {value} here", theirs.get(name).unwrap_or(&().into()))
        })
        .collect()
}

/// Flags of other methods, an attack on clean training, losses that the method isn't defined with.
fn check_method(flags: &Flags, defence: &Defence, loss: &str) -> Result<()> {
    let (method, losses) = (defence.name, defence.losses);
    for (flag, given) in [
        ("lambda", flags.lambda.is_some()),
        ("reading", flags.reading.is_some()),
        ("top-rank", flags.top_rank.is_some()),
        ("destination", flags.destination.is_some()),
        ("ics", flags.ics.is_some()),
        ("gamma", flags.gamma.is_some()),
        ("target", flags.target.is_some()),
        ("adversarial-weight", flags.adversarial_weight.is_some()),
    ] {
        let who: Vec<_> = DEFENCES.iter().filter(|d| d.flags.contains(&flag)).map(|d| d.name).collect();
        refuse_if!(
            given && !defence.flags.contains(&flag),
            "--{flag} is for {}; {method} has nothing of the kind",
            who.join(", ")
        );
    }
    let budget = flags.eps.is_some() || flags.alpha.is_some() || flags.pgd_steps.is_some();
    refuse_if!(
        defence.attack.is_none() && (budget || flags.random_start || flags.progressive.is_some()),
        "{method} has no attack: --eps, --alpha, --pgd-steps, --random-start and --progressive say nothing to it"
    );
    refuse_if!(
        !losses.contains(&loss),
        "--loss {loss}: {method} is defined with {} ({})",
        losses.join(", "),
        defence.about
    );
    Ok(())
}

/// Samplers and their margin without use, and flags that a reading of CA-TRIDE has no place for.
fn check_objective(flags: &Flags, defence: &Defence, loss: &Loss, sampler: &Sampler) -> Result<()> {
    let attacks_triplets = matches!(defence.losses, ["triplet"]) || flags.target == Some(AdmlTarget::Triplet);
    refuse_if!(
        flags.sampler.is_some() && !loss.takes_triplets() && !attacks_triplets,
        "--sampler: {} takes every pair of the batch, there is nothing to choose",
        loss.name
    );
    refuse_if!(
        (flags.eta.is_some() || flags.eta_schedule.is_some()) && !sampler.is_semihard(),
        "--eta and --eta-schedule are for the sampler semihard, found {}",
        sampler.name
    );
    let naive = flags.reading == Some(Reading::Naive);
    refuse_if!(
        flags.top_rank.is_some() && !defence.has_top_rank(flags.reading.unwrap_or(Reading::Working)),
        "--top-rank: the top-rank pair belongs to anchor perturbation; {} has none, but for the reading `released`",
        defence.name
    );
    refuse_if!(
        flags.top_rank == Some(true) && naive,
        "--top-rank on: the reading `naive` raises hardness and nothing else in its attack; use another reading"
    );
    refuse_if!(flags.lambda.is_some() && naive, "--lambda: the reading `naive` weighs all samples alike");
    Ok(())
}

/// Weights and batch norm that the net doesn't have.
fn check_net(flags: &Flags, backbone: &Backbone, norms: Norms) -> Result<()> {
    let (net, from_random) = (backbone.name, flags.pretrained.is_none() && flags.init.is_none());
    refuse_if!(
        flags.pretrained.is_some() && !backbone.photograph,
        "--pretrained takes torchvision's weights, which there are of ResNets; {net} starts from --init or at random"
    );
    refuse_if!(flags.norms.is_some() && !backbone.has_norm(), "--norms: {net} has no batch norm");
    refuse_if!(
        backbone.has_norm() && norms == Norms::Frozen && from_random,
        "{net} from random weights would freeze batch norm at statistics of no data; give --pretrained or --init, or train it \
         with --norms train"
    );
    Ok(())
}

fn check_batch(batch: usize, images: usize) -> Result<()> {
    refuse_if!(
        batch < 4 || batch % 2 == 1,
        "--batch {batch}: expected an even number, at least 4: two images of each class"
    );
    refuse_if!(
        batch > images,
        "--batch {batch} is larger than the data, which holds {images} images; give at most --batch {}",
        images / 2 * 2
    );
    Ok(())
}

fn within(flag: &str, value: f64, low: f64, high: f64) -> Result<f64> {
    // Not a number is not within.
    refuse_if!(!(low..=high).contains(&value), "--{flag} {value}: expected {low} to {high}");
    Ok(value)
}

/// A fraction such as 8/255.
fn fraction(flag: &str, text: &Option<String>, default: f64) -> Result<f64> {
    text.as_ref().map_or(Ok(default), |text| {
        parse_fraction(text).map(f64::from).map_err(|e| Error::usage(format!("--{flag} {e}")))
    })
}

fn target_hardness(text: &str) -> Result<TargetHardness> {
    if text == "lga" {
        return Ok(TargetHardness::Lga);
    }
    if let Ok(hardness) = text.parse::<f64>() {
        refuse_if!(
            !(-2.0..=2.0).contains(&hardness),
            "--destination {text}: hardness is a difference of distances on the unit sphere, expected -2 to 2"
        );
        return Ok(TargetHardness::Constant(hardness));
    }
    Sampler::find(text).map(TargetHardness::Sampler).map_err(|_| {
        let known: Vec<_> = SAMPLERS.iter().map(|row| row.name).collect();
        Error::usage(format!(
            "--destination {text}: expected lga, a number such as -0.1, or a sampler ({})",
            known.join(", ")
        ))
    })
}
