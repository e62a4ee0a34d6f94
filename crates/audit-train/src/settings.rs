//! All settings that determine the weights of a training, as in logs and checkpoints.

use crate::net::Norms;
use crate::sampler::Anchors;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Readings of CA-TRIDE's definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// Ours: weights without gradient; increases collapseness up to 0.
    Working,
    /// Equations 10 to 12 as printed.
    Paper,
    /// As in the authors' code.
    Released,
    /// Without collapse awareness: increases hardness as far as possible.
    Naive,
}

/// The quantity that ADML's attack increases.
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

/// The images with which ADML's attack compares an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum References {
    /// The clean images of the batch (equations 6 and 7).
    Clean,
    /// The perturbed batch (algorithms 1 and 2).
    Joint,
}

/// The parts of the top-rank pair that are used (CA-TRIDE, table 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopRank {
    /// Both.
    On,
    /// The term of the attack alone.
    Term,
    /// The loss L_TR alone.
    Loss,
    /// Neither.
    Off,
}

/// The robust objectives of Panum et al., by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Formulation {
    /// 1: all images of a triplet are perturbed together to increase its loss (equation 11).
    Joint,
    /// 2: one image of a triplet is perturbed (equation 12).
    Sample,
    /// 3: the loss of clean images, and the largest shift of an embedding as a penalty (equation 13).
    Shift,
}

/// Construction of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loader {
    /// Two images of each class: a batch of 112 has 56 classes, drawn again for each batch.
    Classes,
    /// Every image once an epoch, in random order, each with any image of its class, as in the code of HM and
    /// CA-TRIDE.
    Pairs,
}

/// Size of photographs before the crop to the net's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhotographSize {
    /// 256 × 256, whatever their aspect ratio, as in the code of EST, ACT, HM and CA-TRIDE.
    #[default]
    Square,
    /// A shorter side of 256, with the same aspect ratio, as the framework of Roth et al. 2020, which Panum
    /// et al. and ADML train with, evaluates.
    Shorter,
}

/// Reaction to a collapse of the net.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnCollapse {
    /// Report it, leave the last checkpoint and, if that has a sign of collapse, the last one without, and
    /// exit with code 12.
    Stop,
    /// Report it in the log and continue.
    Continue,
}

/// All settings that determine the weights, with defaults filled in. They are in the checkpoint, and a
/// resumed run must have the same ([`differences`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TrainingSettings {
    /// Name of the defence.
    pub method: String,
    /// Name of the net.
    pub backbone: String,
    /// Dimensions of the embedding.
    pub dim: i64,
    /// Mode of batch norm in training.
    pub norms: Norms,
    /// Path, as given, of torchvision's weights from which the net starts.
    pub pretrained: Option<String>,
    /// Path, as given, of the checkpoint from whose weights the net starts.
    pub init: Option<String>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of batches.
    pub steps: u64,
    /// Images per batch.
    pub batch: usize,
    /// Construction of batches.
    pub loader: Loader,
    /// Learning rate of Adam.
    pub lr: f64,
    /// Share of the steps after which the learning rate is divided by 5.
    pub lr_drop: Option<f64>,
    /// Weight decay of Adam.
    pub weight_decay: f64,
    /// Name of the loss.
    pub loss: String,
    /// Name of the additional loss.
    pub regulariser: Option<String>,
    /// Weight of the additional loss.
    pub regulariser_weight: f64,
    /// Name of the sampler.
    pub sampler: String,
    /// Images that are anchors.
    pub anchors: Anchors,
    /// Margin η of semi-hard negatives.
    pub eta: f64,
    /// Whether η falls with the epochs.
    pub eta_scheduled: bool,
    /// cap, anp, ca-tride: weight of near samples in collapseness, λ.
    pub lambda: f64,
    /// cap, anp, ca-tride: reading of the definitions.
    pub reading: Reading,
    /// anp, ca-tride: parts of the top-rank pair that are used.
    pub top_rank: TopRank,
    /// anp, ca-tride: margin β_TR of the top-rank loss.
    pub top_rank_margin: f64,
    /// anp, ca-tride: weight γ of the top-rank loss.
    pub top_rank_weight: f64,
    /// hm: target hardness.
    pub destination: String,
    /// hm: loss from which LGA's target is the easiest.
    pub lga_u: f64,
    /// hm: weight of the intra-class structure loss.
    pub ics: f64,
    /// Images of a triplet that are moved: letters of a, p, n.
    pub perturb: String,
    /// panum: form of the definitions.
    pub formulation: Formulation,
    /// panum: share of triplets, or of images, that are moved, in [0, 1].
    pub gamma: f64,
    /// adml: quantity that the attack raises.
    pub target: AdmlTarget,
    /// adml: images with which the attack compares an image.
    pub refs: References,
    /// adml: weight of the adversarial loss.
    pub adversarial_weight: f64,
    /// Maximum change of a pixel in training, for pixels in [0, 1].
    pub eps: f64,
    /// Step size of the attack, for pixels in [0, 1].
    pub alpha: f64,
    /// Number of steps of the attack.
    pub pgd_steps: u32,
    /// Whether the attack starts at a random point of the box.
    pub random_start: bool,
    /// Whether the step size grows with the epochs.
    pub progressive: bool,
    /// Reaction to a collapse of the net. A resumed run may have another: up to a collapse it determines
    /// nothing.
    pub on_collapse: OnCollapse,
    /// Minimum share of an image's area in a crop; `None`: the default crop.
    pub crop_area: Option<f64>,
    /// Size of photographs before the crop.
    pub resize: PhotographSize,
    /// Number of training images.
    pub images: usize,
    /// Number of classes.
    pub classes: usize,
    /// SHA-256 of the images' names, classes and lengths, in hexadecimal, shortened.
    pub data: String,
    /// The same of the images of --validation: what is measured on them decides which states are saved.
    pub validation: Option<String>,
}

/// Names and values of settings that differ and that determine the weights.
pub fn differences(theirs: &TrainingSettings, ours: &TrainingSettings) -> Vec<String> {
    let fields = |s: &TrainingSettings| serde_json::to_value(s).unwrap_or_default();
    let (theirs, ours) = (fields(theirs), fields(ours));
    let Some(names) = ours.as_object() else { return vec![] };
    names
        .iter()
        .filter(|(name, value)| *name != "on-collapse" && theirs.get(name.as_str()) != Some(value))
        .map(|(name, value)| {
            format!("{name} {} there and {value} here", theirs.get(name).unwrap_or(&().into()))
        })
        .collect()
}
