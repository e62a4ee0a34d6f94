//! What a training does: the flags with every default filled in and every combination checked.

use crate::cli::Flags;
use crate::defence::{DEFENCES, Defence};
use crate::loss::{LOSSES, Loss};
use crate::net::{Backbone, Norms};
use crate::sampler::{self, Anchors, SAMPLERS, Sampler};
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
    /// The sum of both.
    AlignmentUniformity,
    /// The triplet loss.
    Triplet,
}

/// What ADML's attack compares an image with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum References {
    /// The clean images of the batch (equations 6 and 7).
    Clean,
    /// The batch as it moves (algorithms 1 and 2).
    Joint,
}

/// Which halves of the top-rank pair are used (CA-TRIDE, table 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopRank {
    /// Both.
    On,
    /// The term of the attack alone.
    Term,
    /// The loss L_TR alone.
    Loss,
    /// None of it.
    Off,
}

/// The robust objectives of Panum et al., by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Formulation {
    /// 1: all images of a triplet are moved together, up its loss (equation 11).
    Joint,
    /// 2: one image of a triplet is moved, the others stay (equation 12).
    Sample,
    /// 3: the loss of clean images, and the largest shift of an embedding as a penalty (equation 13).
    Shift,
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
    /// File of weights of torchvision that the net starts from, and its hash.
    pub pretrained: Option<String>,
    /// Checkpoint whose weights the net starts from, and its hash.
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
    /// Name of a loss that is added.
    pub regulariser: Option<String>,
    /// Its weight.
    pub regulariser_weight: f64,
    /// Name of the sampler.
    pub sampler: String,
    /// Which images are anchors.
    pub anchors: Anchors,
    /// Margin η of semi-hard negatives.
    pub eta: f64,
    /// Whether η falls with the epochs.
    pub eta_scheduled: bool,
    /// cap, anp, ca-tride: how much near samples count in collapseness, λ.
    pub lambda: f64,
    /// cap, anp, ca-tride: the reading of the definitions.
    pub reading: Reading,
    /// anp, ca-tride: where the top-rank pair is used.
    pub top_rank: TopRank,
    /// anp, ca-tride: margin β_TR of the top-rank loss.
    pub top_rank_margin: f64,
    /// anp, ca-tride: weight γ of the top-rank loss.
    pub top_rank_weight: f64,
    /// hm: the hardness to reach.
    pub destination: String,
    /// hm: the loss above which LGA's destination is the easiest.
    pub lga_u: f64,
    /// hm: weight of the intra-class structure loss.
    pub ics: f64,
    /// Which of anchor, positive and negative are moved: letters out of a, p, n.
    pub perturb: String,
    /// panum: the form of the definitions.
    pub formulation: Formulation,
    /// panum: share of triplets, or of images, that are moved.
    pub gamma: f64,
    /// adml: what the attack raises.
    pub target: AdmlTarget,
    /// adml: what the attack compares an image with.
    pub refs: References,
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
    /// The least share of an image's area that a patch has; `None` for the usual cut.
    pub crop_area: Option<f64>,
    /// Number of images trained on.
    pub images: usize,
    /// Number of their classes.
    pub classes: usize,
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
    /// The loss called `settings.regulariser`.
    pub regulariser: Option<&'static Loss>,
    /// The sampler called `settings.sampler`.
    pub sampler: &'static Sampler,
    /// The net called `settings.backbone`.
    pub backbone: &'static Backbone,
    /// The hardness that `settings.destination` names.
    pub destination: TargetHardness,
    /// Which of anchor, positive and negative are moved, for methods that leave a choice.
    pub perturb: [bool; 3],
}

impl Recipe {
    /// Checks the flags against each other and fills in what they leave out. `images`, `classes` and `digest` describe the data. Exit
    /// code 2 for a combination without sense, with the reason.
    pub fn of(flags: &Flags, images: usize, classes: usize, digest: &str) -> Result<Recipe> {
        let defence = Defence::find(flags.method.as_deref().unwrap_or_default())?;
        let backbone = Backbone::find(&flags.backbone)?;
        let loss = Loss::find(flags.loss.as_deref().unwrap_or(defence.loss))?;
        check_method(flags, defence, loss.name)?;
        let sampler = sampler::find(flags.sampler.as_deref().unwrap_or(defence.sampler))?;
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

        let attack = Attack::of(flags, defence, backbone)?;
        let method = defence.name;
        refuse_if!(
            attack.progressive && steps <= per_epoch(images, flags.batch),
            "the step size of {method} grows with the epochs, from 0 in the first, and {steps} steps are one epoch: it would train \
             without an attack. Give more --epochs, or --progressive off"
        );

        let collapse_aware = defence.is_collapse_aware();
        let pair = collapse_aware && defence.has_top_rank(reading) && reading != Reading::Naive;
        let perturb = flags.perturb.as_deref().unwrap_or(defence.perturb);
        let (lr, decay) = if backbone.photograph { (1e-5, 4e-4) } else { (1e-3, 1e-7) };
        let weight =
            |flag: &str, given: Option<f64>, default: f64| within(flag, given.unwrap_or(default), 0.0, 100.0);
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
            regulariser: flags.regulariser.clone(),
            regulariser_weight: weight("regulariser-weight", flags.regulariser_weight, 1.0)?,
            sampler: sampler.name.into(),
            anchors: flags.anchors.unwrap_or(defence.anchors),
            eta: within("eta", flags.eta.unwrap_or(0.2), 1e-6, 2.0)?,
            eta_scheduled: flags.eta_schedule.unwrap_or(sampler.is_semihard() && collapse_aware),
            // C is logged for every method; λ is 10 as in the first table of the CA-TRIDE paper.
            lambda: weight("lambda", flags.lambda, 10.0)?,
            reading,
            top_rank: flags.top_rank.unwrap_or(if pair { TopRank::On } else { TopRank::Off }),
            top_rank_margin: within("top-rank-margin", flags.top_rank_margin.unwrap_or(0.04), 0.0, 2.0)?,
            top_rank_weight: weight("top-rank-weight", flags.top_rank_weight, 0.5)?,
            destination: destination.into(),
            lga_u: within("lga-u", flags.lga_u.unwrap_or(0.2), 1e-6, 100.0)?,
            ics: weight("ics", flags.ics, 0.5)?,
            perturb: perturb.into(),
            formulation: flags.formulation.unwrap_or(Formulation::Sample),
            gamma: within("gamma", flags.gamma.unwrap_or(0.5), 0.0, 1.0)?,
            target: flags.target.unwrap_or(AdmlTarget::Alignment),
            refs: flags.refs.unwrap_or(References::Clean),
            adversarial_weight: weight("adversarial-weight", flags.adversarial_weight, 0.1)?,
            eps: attack.eps,
            alpha: attack.alpha,
            pgd_steps: attack.steps,
            random_start: attack.random_start,
            progressive: attack.progressive,
            on_collapse: flags.on_collapse,
            crop_area: flags.crop_area.map(|share| within("crop-area", share, 0.01, 1.0)).transpose()?,
            images,
            classes,
            data: digest.into(),
        })
    }

    /// Looks the names of settings up. Exit code 2 where a table lacks one.
    pub fn from(settings: TrainingSettings) -> Result<Recipe> {
        Ok(Recipe {
            defence: Defence::find(&settings.method)?,
            loss: Loss::find(&settings.loss)?,
            regulariser: settings.regulariser.as_deref().map(find_regulariser).transpose()?,
            perturb: moving(&settings.perturb)?,
            sampler: sampler::find(&settings.sampler)?,
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

/// An attack with its defaults filled in; all 0 and off for a method without one.
#[derive(Default)]
struct Attack {
    eps: f64,
    alpha: f64,
    steps: u32,
    random_start: bool,
    progressive: bool,
}

impl Attack {
    fn of(flags: &Flags, defence: &Defence, backbone: &Backbone) -> Result<Attack> {
        let Some(row) = &defence.attack else { return Ok(Attack::default()) };
        let eps = if backbone.photograph || row.fixed { row.eps } else { 77.0 / 255.0 };
        let eps = fraction("eps", &flags.eps, eps)?;
        let steps = flags.pgd_steps.unwrap_or(row.steps);
        refuse_if!(steps == 0, "--pgd-steps 0 is no attack; train with `none` instead of {}", defence.name);
        Ok(Attack {
            eps,
            alpha: fraction("alpha", &flags.alpha, row.alpha.of(eps, steps, backbone.photograph))?,
            steps,
            random_start: flags.random_start.unwrap_or(row.random_start),
            progressive: flags.progressive.unwrap_or(row.progressive),
        })
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

/// A loss that can be added to others. Exit code 2 for one that can't.
fn find_regulariser(name: &str) -> Result<&'static Loss> {
    LOSSES.iter().find(|row| row.regularises && row.name == name).ok_or_else(|| {
        let known: Vec<_> = LOSSES.iter().filter(|row| row.regularises).map(|row| row.name).collect();
        Error::usage(format!("--regulariser {name}: expected one of {}", known.join(", ")))
    })
}

/// Which of a, p, n the letters name; none for no letters.
fn moving(letters: &str) -> Result<[bool; 3]> {
    let known = ['a', 'p', 'n'];
    let twice = |c: char| letters.matches(c).count() > 1;
    refuse_if!(
        letters.chars().any(|c| !known.contains(&c) || twice(c)),
        "--perturb {letters}: expected letters out of a (anchor), p (positive), n (negative), each once, such as pn"
    );
    Ok(known.map(|c| letters.contains(c)))
}

/// Flags of other methods, an attack on clean training, losses that the method isn't defined with.
fn check_method(flags: &Flags, defence: &Defence, loss: &str) -> Result<()> {
    let (method, losses) = (defence.name, defence.losses());
    for (flag, given) in [
        ("lambda", flags.lambda.is_some()),
        ("reading", flags.reading.is_some()),
        ("top-rank", flags.top_rank.is_some()),
        ("top-rank-margin", flags.top_rank_margin.is_some()),
        ("top-rank-weight", flags.top_rank_weight.is_some()),
        ("destination", flags.destination.is_some()),
        ("lga-u", flags.lga_u.is_some()),
        ("perturb", flags.perturb.is_some()),
        ("formulation", flags.formulation.is_some()),
        ("ics", flags.ics.is_some()),
        ("gamma", flags.gamma.is_some()),
        ("target", flags.target.is_some()),
        ("refs", flags.refs.is_some()),
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
        defence.attack.is_none() && (budget || flags.random_start.is_some() || flags.progressive.is_some()),
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
    let attacks_triplets = defence.attacks_triplets || flags.target == Some(AdmlTarget::Triplet);
    refuse_if!(
        flags.sampler.is_some() && !loss.of_triplets && !attacks_triplets,
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
        matches!(flags.top_rank, Some(TopRank::On | TopRank::Term)) && naive,
        "--top-rank: the reading `naive` raises hardness and nothing else in its attack; use --top-rank loss or another reading"
    );
    let no_loss = matches!(flags.top_rank, Some(TopRank::Off | TopRank::Term))
        || (flags.top_rank.is_none()
            && (naive || !defence.has_top_rank(flags.reading.unwrap_or(Reading::Working))));
    refuse_if!(
        (flags.top_rank_margin.is_some() || flags.top_rank_weight.is_some()) && no_loss,
        "--top-rank-margin and --top-rank-weight belong to L_TR, which isn't used here; give --top-rank on or loss with anp or ca-tride"
    );
    refuse_if!(
        flags.regulariser_weight.is_some() && flags.regulariser.is_none(),
        "--regulariser-weight: there is no regulariser to weigh; give --regulariser"
    );
    let formulation = flags.formulation.unwrap_or(Formulation::Sample);
    refuse_if!(
        flags.perturb.is_some() && formulation != Formulation::Sample,
        "--perturb is for --formulation sample: joint moves all three images of a triplet, and shift every image"
    );
    refuse_if!(
        flags
            .perturb
            .as_ref()
            .is_some_and(|letters| letters.is_empty() || (defence.perturb.len() == 1 && letters.len() > 1)),
        "--perturb: {} moves {}; give one or more of a, p, n",
        defence.name,
        if defence.perturb.len() == 1 {
            "one image of a triplet (all three with --formulation joint)"
        } else {
            "images"
        }
    );
    refuse_if!(
        defence.flags.contains(&"formulation")
            && flags.adversarial_weight.is_some()
            && formulation != Formulation::Shift,
        "--adversarial-weight: {} has something to weigh only with --formulation shift",
        defence.name
    );
    refuse_if!(
        flags.lga_u.is_some() && flags.destination.as_deref().is_some_and(|d| d != "lga"),
        "--lga-u is for --destination lga"
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
    sampler::find(text).map(TargetHardness::Sampler).map_err(|_| {
        let known: Vec<_> = SAMPLERS.iter().map(|row| row.name).collect();
        Error::usage(format!(
            "--destination {text}: expected lga, a number such as -0.1, or a sampler ({})",
            known.join(", ")
        ))
    })
}
