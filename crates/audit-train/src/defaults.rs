//! Fills in the defaults of a training's flags, and checks all combinations.

use crate::cli::Flags;
use crate::defence::{DEFENCES, Defence};
use crate::loss::Loss;
use crate::net::{Backbone, Norms};
use crate::recipe::{Recipe, TargetHardness, per_epoch, target_hardness};
use crate::sampler::{self, Sampler};
use crate::settings::{
    AdmlTarget, Formulation, Loader, PhotographSize, Reading, References, TopRank, TrainingSettings,
};
use audit::facts::protocols::parse_fraction;
use audit::{Error, Result};
use std::path::PathBuf;

/// Checks the flags against each other and fills in the missing ones. `images`, `classes` and `digest`
/// describe the data. Error (exit code 2): flags that don't fit together, with the reason.
pub fn recipe(flags: &Flags, images: usize, classes: usize, digest: &str) -> Result<Recipe> {
    let defence = Defence::find(flags.method.as_deref().unwrap_or_default())?;
    let backbone = Backbone::find(&flags.backbone)?;
    let loss = Loss::find(flags.loss.as_deref().unwrap_or(defence.loss))?;
    check_method(flags, defence, loss.name)?;
    let sampler = sampler::find(flags.sampler.as_deref().unwrap_or(defence.sampler))?;
    check_objective(flags, defence, loss, sampler)?;
    let reading = flags.reading.unwrap_or(Reading::Working);
    let destination = flags.destination.as_deref().unwrap_or("lga");
    refuse_if!(
        matches!(target_hardness(destination)?, TargetHardness::Sampler(other, boost) if other.name == sampler.name && boost <= 0.0),
        "--destination {destination}: triplets of the sampler {} are as hard as that already, so nothing would be moved; name \
         a harder destination, or another --sampler",
        sampler.name
    );
    let norms = flags.norms.unwrap_or(defence.norms);
    check_net(flags, backbone, norms)?;
    let loader = flags.loader.unwrap_or(Loader::Classes);
    check_batch(flags.batch, images, loader)?;
    let per_epoch = per_epoch(images, flags.batch, loader);
    let steps = flags.steps.unwrap_or(flags.epochs.unwrap_or(100) * per_epoch);
    refuse_if!(steps == 0, "--steps 0 trains nothing; give at least 1");

    let attack = Attack::of(flags, defence, backbone)?;
    let method = defence.name;
    refuse_if!(
        attack.progressive && steps <= per_epoch,
        "the step size of {method} grows with the epochs, from 0 in the first, and {steps} steps are one epoch: it would train \
         without an attack. Give more --epochs, or --progressive off"
    );

    let collapse_aware = defence.is_collapse_aware();
    let pair = collapse_aware && defence.has_top_rank(reading) && reading != Reading::Naive;
    let perturb = flags.perturb.as_deref().unwrap_or(defence.perturb);
    let (lr, decay) = if backbone.photograph { (1e-5, 4e-4) } else { (1e-3, 1e-7) };
    let weight = |flag: &str, given: Option<f64>, default: f64| {
        check_range(flag, given.unwrap_or(default), 0.0, 100.0)
    };
    let shown = |path: &Option<PathBuf>| path.as_ref().map(|p| p.display().to_string());
    Recipe::from(TrainingSettings {
        method: method.into(),
        backbone: backbone.name.into(),
        dim: check_range("dim", flags.dim.unwrap_or(backbone.dim) as f64, 2.0, 65536.0)? as i64,
        norms,
        pretrained: shown(&flags.pretrained),
        init: shown(&flags.init),
        seed: flags.seed,
        steps,
        batch: flags.batch,
        loader,
        lr: check_range("lr", flags.lr.unwrap_or(lr), 1e-12, 10.0)?,
        lr_drop: flags.lr_drop.map(|share| check_range("lr-drop", share, 0.0, 1.0)).transpose()?,
        weight_decay: check_range("weight-decay", flags.weight_decay.unwrap_or(decay), 0.0, 1.0)?,
        loss: loss.name.into(),
        regulariser: flags.regulariser.clone(),
        regulariser_weight: weight("regulariser-weight", flags.regulariser_weight, 1.0)?,
        sampler: sampler.name.into(),
        anchors: flags.anchors.unwrap_or(defence.anchors),
        eta: check_range("eta", flags.eta.unwrap_or(0.2), 1e-6, 2.0)?,
        eta_scheduled: flags.eta_schedule.unwrap_or(sampler.is_semihard() && collapse_aware),
        // C is logged for every method; λ is 10 as in the first table of the CA-TRIDE paper.
        lambda: weight("lambda", flags.lambda, 10.0)?,
        reading,
        top_rank: flags.top_rank.unwrap_or(if pair { TopRank::On } else { TopRank::Off }),
        top_rank_margin: check_range("top-rank-margin", flags.top_rank_margin.unwrap_or(0.04), 0.0, 2.0)?,
        top_rank_weight: weight("top-rank-weight", flags.top_rank_weight, 0.5)?,
        destination: destination.into(),
        lga_u: check_range("lga-u", flags.lga_u.unwrap_or(0.2), 1e-6, 100.0)?,
        ics: weight("ics", flags.ics, 0.5)?,
        perturb: perturb.into(),
        formulation: flags.formulation.unwrap_or(Formulation::Sample),
        gamma: check_range("gamma", flags.gamma.unwrap_or(0.5), 0.0, 1.0)?,
        target: flags.target.unwrap_or(AdmlTarget::Alignment),
        refs: flags.refs.unwrap_or(References::Clean),
        adversarial_weight: weight("adversarial-weight", flags.adversarial_weight, 0.1)?,
        eps: attack.eps,
        alpha: attack.alpha,
        pgd_steps: attack.steps,
        random_start: attack.random_start,
        progressive: attack.progressive,
        on_collapse: flags.on_collapse,
        crop_area: flags.crop_area.map(|share| check_range("crop-area", share, 0.01, 1.0)).transpose()?,
        resize: flags.resize,
        images,
        classes,
        data: digest.into(),
        // Listed later, as flags may be refused before.
        validation: None,
    })
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

/// Refuses flags of other methods, an attack on clean training, and losses for which the method isn't
/// defined.
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
            "--{flag} is for {}; {method} has no such flag",
            who.join(", ")
        );
    }
    let budget = flags.eps.is_some() || flags.alpha.is_some() || flags.pgd_steps.is_some();
    refuse_if!(
        defence.attack.is_none() && (budget || flags.random_start.is_some() || flags.progressive.is_some()),
        "{method} has no attack: --eps, --alpha, --pgd-steps, --random-start and --progressive have no effect on it"
    );
    refuse_if!(
        !losses.contains(&loss),
        "--loss {loss}: {method} is defined with {} ({})",
        losses.join(", "),
        defence.about
    );
    Ok(())
}

/// Refuses a sampler or margin without use, and flags without meaning in a reading of CA-TRIDE.
fn check_objective(flags: &Flags, defence: &Defence, loss: &Loss, sampler: &Sampler) -> Result<()> {
    let attacks_triplets = defence.attacks_triplets || flags.target == Some(AdmlTarget::Triplet);
    refuse_if!(
        flags.sampler.is_some() && !loss.of_triplets && !attacks_triplets,
        "--sampler: {} takes every pair of the batch, there is nothing to choose",
        loss.name
    );
    let destination = flags.destination.as_deref().map(target_hardness).transpose()?;
    let semihard = matches!(destination, Some(TargetHardness::Sampler(other, _)) if other.is_semihard());
    refuse_if!(
        (flags.eta.is_some() || flags.eta_schedule.is_some()) && !sampler.is_semihard() && !semihard,
        "--eta and --eta-schedule are for the sampler semihard, also as --destination, found {}",
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
            .is_some_and(|letters| letters.is_empty() || (defence.formulations && letters.len() > 1)),
        "--perturb: {} moves {}; give one or more of a, p, n",
        defence.name,
        if defence.formulations {
            "one image of a triplet (all three with --formulation joint)"
        } else {
            "images"
        }
    );
    refuse_if!(
        defence.formulations && flags.adversarial_weight.is_some() && formulation != Formulation::Shift,
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

/// Refuses weights and batch norm that the net doesn't have.
fn check_net(flags: &Flags, backbone: &Backbone, norms: Norms) -> Result<()> {
    refuse_if!(
        flags.resize != PhotographSize::Square && !backbone.photograph,
        "--resize is for photographs; {} takes images of {} pixels",
        backbone.name,
        backbone.input.1
    );
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
    refuse_if!(
        backbone.has_norm() && flags.norms.is_none() && from_random,
        "{net} would start from random weights, where the published nets start from ImageNet's; give --pretrained or --init. \
         --norms train starts from random weights"
    );
    Ok(())
}

fn check_batch(batch: usize, images: usize, loader: Loader) -> Result<()> {
    refuse_if!(
        batch < 4 || batch % 2 == 1,
        "--batch {batch}: expected an even number, at least 4: two images of each class"
    );
    let most = match loader {
        Loader::Classes => images / 2 * 2,
        Loader::Pairs => 2 * images,
    };
    refuse_if!(
        batch > most,
        "--batch {batch} is larger than the data, which holds {images} images; give at most --batch {most}"
    );
    Ok(())
}

fn check_range(flag: &str, value: f64, low: f64, high: f64) -> Result<f64> {
    // NaN is refused too.
    refuse_if!(!(low..=high).contains(&value), "--{flag} {value}: expected {low} to {high}");
    Ok(value)
}

/// A fraction such as 8/255.
fn fraction(flag: &str, text: &Option<String>, default: f64) -> Result<f64> {
    text.as_ref().map_or(Ok(default), |text| {
        parse_fraction(text).map(f64::from).map_err(|e| Error::usage(format!("--{flag} {e}")))
    })
}
