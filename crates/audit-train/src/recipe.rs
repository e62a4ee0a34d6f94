//! Settings with their table rows.

use crate::loader;
use crate::loss::{LOSSES, Loss};
use crate::net::Backbone;
use crate::sampler::{self, SAMPLERS, Sampler};
use crate::settings::{Loader, TrainingSettings};
use audit::{Error, Result};

/// The hardness to which HM moves triplets.
pub enum TargetHardness {
    /// Linear gradual adversary.
    Lga,
    /// The hardness of a sampler's triplets plus a constant ξ: HM's boosted destination g_B; by default ξ is
    /// 0.
    Sampler(&'static Sampler, f64),
    /// This value.
    Constant(f64),
}

/// Settings with their table rows.
pub struct Recipe {
    /// The settings.
    pub settings: TrainingSettings,
    /// The loss called `settings.loss`.
    pub loss: &'static Loss,
    /// The loss called `settings.regulariser`.
    pub regulariser: Option<&'static Loss>,
    /// The sampler called `settings.sampler`.
    pub sampler: &'static Sampler,
    /// The net called `settings.backbone`.
    pub backbone: &'static Backbone,
    /// The hardness called `settings.destination`.
    pub destination: TargetHardness,
    /// Images of a triplet that are moved, for methods with a choice: anchor, positive, negative.
    pub perturb: [bool; 3],
}

impl Recipe {
    /// Looks up the names in settings. Error (exit code 2): an unknown name.
    pub fn from(settings: TrainingSettings) -> Result<Recipe> {
        Ok(Recipe {
            loss: Loss::find(&settings.loss)?,
            regulariser: settings.regulariser.as_deref().map(find_regulariser).transpose()?,
            perturb: parse_perturb(&settings.perturb)?,
            sampler: sampler::find(&settings.sampler)?,
            backbone: Backbone::find(&settings.backbone)?,
            destination: target_hardness(&settings.destination)?,
            settings,
        })
    }

    /// Batches in an epoch.
    pub fn per_epoch(&self) -> u64 {
        per_epoch(self.settings.images, self.settings.batch, self.settings.loader)
    }

    /// Number of epochs; the last one may be incomplete.
    pub fn epochs(&self) -> u64 {
        self.settings.steps.div_ceil(self.per_epoch())
    }
}

/// Batches of `batch` images per epoch, at least one.
pub fn per_epoch(images: usize, batch: usize, loader: Loader) -> u64 {
    match loader {
        Loader::Classes => (images / batch).max(1) as u64,
        Loader::Pairs => loader::batches(images, batch) as u64,
    }
}

/// A loss that can be added to others. Error (exit code 2): it can't.
fn find_regulariser(name: &str) -> Result<&'static Loss> {
    LOSSES.iter().find(|row| row.regularises && row.name == name).ok_or_else(|| {
        let known: Vec<_> = LOSSES.iter().filter(|row| row.regularises).map(|row| row.name).collect();
        Error::usage(format!("--regulariser {name}: expected one of {}", known.join(", ")))
    })
}

/// Whether the letters name a, p, n.
fn parse_perturb(letters: &str) -> Result<[bool; 3]> {
    let known = ['a', 'p', 'n'];
    let twice = |c: char| letters.matches(c).count() > 1;
    refuse_if!(
        letters.chars().any(|c| !known.contains(&c) || twice(c)),
        "--perturb {letters}: expected letters out of a (anchor), p (positive), n (negative), each once, such as pn"
    );
    Ok(known.map(|c| letters.contains(c)))
}

/// The hardness that a text names. Error (exit code 2): it names none.
pub fn target_hardness(text: &str) -> Result<TargetHardness> {
    if text == "lga" {
        return Ok(TargetHardness::Lga);
    }
    let number = |number: &str| match number.parse::<f64>() {
        Ok(hardness) if (-2.0..=2.0).contains(&hardness) => Some(Ok(hardness)),
        Ok(_) => Some(Err(Error::usage(format!(
            "--destination {text}: hardness is a difference of distances on the unit sphere, expected -2 to 2"
        )))),
        Err(_) => None,
    };
    if let Some(hardness) = number(text) {
        return hardness.map(TargetHardness::Constant);
    }
    // The longest matching name: `distance-clamped` is not `distance` with a constant.
    let begins = SAMPLERS.iter().filter(|row| text.starts_with(row.name));
    let found = begins.max_by_key(|row| row.name.len()).and_then(|sampler| {
        let rest = &text[sampler.name.len()..];
        let boost = match rest.chars().next() {
            None => Some(Ok(0.0)),
            Some('+' | '-') => number(rest),
            Some(_) => None,
        };
        Some((sampler, boost?))
    });
    match found {
        Some((sampler, boost)) => boost.map(|boost| TargetHardness::Sampler(sampler, boost)),
        None => {
            let known: Vec<_> = SAMPLERS.iter().map(|row| row.name).collect();
            Err(Error::usage(format!(
                "--destination {text}: expected lga, a number such as -0.1, or a sampler ({}), with a constant where its \
                 hardness is to be boosted, such as semihard+0.1",
                known.join(", ")
            )))
        }
    }
}
