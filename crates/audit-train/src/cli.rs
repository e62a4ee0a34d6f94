//! The command line of `audit-train`.

use crate::net::Norms;
use crate::published::{PUBLISHED, Published};
use crate::sampler::Anchors;
use crate::settings::{
    AdmlTarget, Formulation, Loader, OnCollapse, PhotographSize, Reading, References, TopRank,
};
use audit::command::choice;
use audit::data::Split;
use audit::model::memory::Bytes;
use audit::progress;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Trains image-embedding models, hardened or not, and exports them to ONNX.
#[derive(Debug, Parser)]
#[command(
    name = "audit-train",
    version,
    allow_negative_numbers = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
#[command(
    after_help = "Examples:\n  audit-train none --data photos/ --out plain.onnx --backbone resnet18 --pretrained \
    resnet18.safetensors\n  audit-train ca-tride --data photos/ --out hardened.onnx --backbone resnet18 --init plain.checkpoint \
    --lambda 2\n  audit-train ca-tride --data photos/ --out hardened.onnx --backbone resnet18 --init plain.checkpoint --lambda 2 \
    --resume\n  audit-train report plain.jsonl hardened.jsonl -o training.html\n\nExit codes: 0 done · 1 internal error · 2 usage · \
    4 no images · 12 collapsed, or the loss is not a number"
)]
pub struct Cli {
    /// Without one, train.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The flags of a training.
    #[command(flatten)]
    pub run: Flags,
}

/// Commands beside training itself.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a checkpoint's net as ONNX
    Export {
        /// A .checkpoint file
        checkpoint: PathBuf,
        /// The .onnx file to write; its card is written beside it
        #[arg(long)]
        out: PathBuf,
    },
    /// Plot the logs of one or more runs
    Report {
        /// .jsonl files, one per run
        #[arg(required = true)]
        logs: Vec<PathBuf>,
        /// The .html file to write
        #[arg(short, long)]
        output: PathBuf,
    },
    /// List methods, losses, samplers and backbones
    Methods,
}

/// Flags of a training.
#[derive(Clone, Debug, Args)]
pub struct Flags {
    /// Training method; `audit-train methods` lists them
    #[arg(required_unless_present = "recipe")]
    pub method: Option<String>,
    /// Recipe of a paper or of its released code: a method and flags, which `audit-train methods` lists. Your
    /// own flags override them
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(PUBLISHED.iter().map(|row| row.name)))]
    pub recipe: Option<String>,
    /// Images: a folder in one of the layouts that audit reads, or a list of images
    #[arg(long, value_name = "PATH", required = true)]
    pub data: Option<PathBuf>,
    /// The .onnx file to write. Its card (.yaml), log (.jsonl) and checkpoint (.checkpoint; the last one
    /// without a sign of collapse, .good.checkpoint) are written beside it
    #[arg(long, value_name = "FILE", required = true)]
    pub out: Option<PathBuf>,
    /// Layout of the data on disk [default: detected]
    #[arg(long)]
    pub layout: Option<String>,
    /// Split to use, if the data have splits [default: train]
    #[arg(long, value_parser = choice::<Split>())]
    pub split: Option<Split>,
    /// Images to measure R@1 on after each epoch, usually of other classes: at most 2000 of them, of
    /// photographs 500 [default: the training images]
    #[arg(long, value_name = "PATH")]
    pub validation: Option<PathBuf>,
    /// Layout of the images of --validation [default: detected]
    #[arg(long, value_name = "LAYOUT", requires = "validation")]
    pub validation_layout: Option<String>,
    /// Continue from the checkpoint beside --out
    #[arg(long)]
    pub resume: bool,
    /// Check the flags and list the images, without training
    #[arg(long)]
    pub check: bool,
    /// Smallest area of a random crop as a share of the image, such as 0.6; crops are scaled to the input
    /// [default: 224 of 256 pixels for photographs, no crop for other images]
    #[arg(long, value_name = "SHARE")]
    pub crop_area: Option<f64>,
    /// How photographs are resized before the crop of 224 pixels; the card states the same
    #[arg(long, value_enum, default_value = "square")]
    pub resize: PhotographSize,
    /// Memory for decoded images, such as 12G. Images that don't fit are decoded again for each batch
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    pub image_cache: Bytes,
    /// Measure ERS with the attacks of `audit --suite ers` after every EPOCHS epochs
    #[arg(long, value_name = "EPOCHS")]
    pub ers_every: Option<u64>,
    /// Number of queries for --ers-every
    #[arg(long, default_value_t = 50)]
    pub ers_queries: usize,
    /// The folder with ONNX Runtime, for --ers-every [default: where audit looks]
    #[arg(long, value_name = "DIR")]
    pub ort_lib: Option<PathBuf>,
    /// Seed of the initial weights, batches and samplers
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Number of batches to train on
    #[arg(long, conflicts_with = "epochs")]
    pub steps: Option<u64>,
    /// Number of epochs. An epoch has as many images as the data, or with --loader pairs as many anchors
    /// [default: 100]
    #[arg(long)]
    pub epochs: Option<u64>,
    /// Images in a batch, two of each class
    #[arg(long, default_value_t = 112)]
    pub batch: usize,
    /// How batches are made [default: classes]
    #[arg(long, value_enum)]
    pub loader: Option<Loader>,
    /// Adam's learning rate [default: 1e-3 for 28-pixel nets, 1e-5 for ResNets]
    #[arg(long)]
    pub lr: Option<f64>,
    /// Divide the learning rate by 5 after this share of the steps
    #[arg(long, value_name = "SHARE")]
    pub lr_drop: Option<f64>,
    /// Weight decay [default: 1e-7 for 28-pixel nets, 4e-4 for ResNets]
    #[arg(long)]
    pub weight_decay: Option<f64>,
    /// The net
    #[arg(long, default_value = "c2f1", help_heading = "Net")]
    pub backbone: String,
    /// Dimensions of the embedding [default: by the net]
    #[arg(long, help_heading = "Net")]
    pub dim: Option<i64>,
    /// Start from the weights of torchvision or timm for the ResNet, with a new head
    #[arg(long, value_name = "FILE.safetensors", help_heading = "Net", conflicts_with = "init")]
    pub pretrained: Option<PathBuf>,
    /// Start from the weights of a checkpoint
    #[arg(long, value_name = "FILE.checkpoint", help_heading = "Net")]
    pub init: Option<PathBuf>,
    /// Batch norm in training: frozen at its running statistics, or trained [default: frozen; train with est]
    #[arg(long, value_enum, help_heading = "Net")]
    pub norms: Option<Norms>,
    /// Loss [default: by the method]
    #[arg(long, help_heading = "Method")]
    pub loss: Option<String>,
    /// Uniformity loss to add: he-0, he-1 or g-he
    #[arg(long, value_name = "LOSS", help_heading = "Method")]
    pub regulariser: Option<String>,
    /// Weight of the regulariser [default: 1]
    #[arg(long, help_heading = "Method")]
    pub regulariser_weight: Option<f64>,
    /// Sampler of the triplets' negatives [default: by the method]
    #[arg(long, help_heading = "Method")]
    pub sampler: Option<String>,
    /// Which images are anchors: the first of each class pair, or every image [default: by the method]
    #[arg(long, value_enum, help_heading = "Method")]
    pub anchors: Option<Anchors>,
    /// Margin of semi-hard negatives [default: 0.2]
    #[arg(long, help_heading = "Method")]
    pub eta: Option<f64>,
    /// Whether η falls with the epochs: η·(1 − (epoch/(2·epochs))²), with --reading released η·(1 −
    /// epoch/(2·epochs))² [default: on with cap, anp and ca-tride]
    #[arg(long, value_parser = switch(), help_heading = "Method")]
    pub eta_schedule: Option<bool>,
    /// cap, anp, ca-tride: weight λ of near samples in collapseness; 0 makes it the mean hardness [default:
    /// 10]
    #[arg(long, help_heading = "Method")]
    pub lambda: Option<f64>,
    /// cap, anp, ca-tride: reading of the definitions [default: working]
    #[arg(long, value_enum, help_heading = "Method")]
    pub reading: Option<Reading>,
    /// anp, ca-tride: the top-rank pair, in the attack (term), in the loss, or both (on) [default: on]
    #[arg(long, value_enum, help_heading = "Method")]
    pub top_rank: Option<TopRank>,
    /// anp, ca-tride: margin β_TR of the top-rank loss [default: 0.04]
    #[arg(long, help_heading = "Method")]
    pub top_rank_margin: Option<f64>,
    /// anp, ca-tride: weight γ of the top-rank loss [default: 0.5]
    #[arg(long, help_heading = "Method")]
    pub top_rank_weight: Option<f64>,
    /// hm: target hardness: lga, a sampler, a sampler and a constant such as semihard+0.1, or a number such
    /// as -0.1 [default: lga]
    #[arg(long, allow_hyphen_values = true, help_heading = "Method")]
    pub destination: Option<String>,
    /// hm: loss above which LGA's destination is the easiest, −0.2 [default: 0.2]
    #[arg(long, help_heading = "Method")]
    pub lga_u: Option<f64>,
    /// hm, panum: images of a triplet to perturb, some of the letters a, p, n [default: apn with hm, p with
    /// panum]
    #[arg(long, value_name = "LETTERS", help_heading = "Method")]
    pub perturb: Option<String>,
    /// panum: the robust objective: 1 joint, 2 sample, 3 shift [default: sample]
    #[arg(long, value_enum, help_heading = "Method")]
    pub formulation: Option<Formulation>,
    /// hm: weight of the intra-class structure loss [default: 0.5]
    #[arg(long, help_heading = "Method")]
    pub ics: Option<f64>,
    /// panum: share of triplets (with --formulation shift: of images) to perturb [default: 0.5]
    #[arg(long, help_heading = "Method")]
    pub gamma: Option<f64>,
    /// adml: quantity that the attack increases [default: alignment]
    #[arg(long, value_enum, help_heading = "Method")]
    pub target: Option<AdmlTarget>,
    /// adml: images that a perturbed image is compared with: the clean ones, or those perturbed together with
    /// it [default: clean]
    #[arg(long, value_enum, help_heading = "Method")]
    pub refs: Option<References>,
    /// adml: weight of the adversarial loss; panum --formulation shift: of the shift [default: 0.1]
    #[arg(long, help_heading = "Method")]
    pub adversarial_weight: Option<f64>,
    /// Largest change of a pixel, such as 8/255 [default: by method and net]
    #[arg(long, help_heading = "Attack")]
    pub eps: Option<String>,
    /// Step size, such as 1/255 [default: by method and net; 2.5 ε/steps if the published step size can't
    /// reach ε]
    #[arg(long, help_heading = "Attack")]
    pub alpha: Option<String>,
    /// PGD steps [default: by the method]
    #[arg(long, help_heading = "Attack")]
    pub pgd_steps: Option<u32>,
    /// Start the attack at a random point of the box [default: on with panum; without a value: on]
    #[arg(long, value_parser = switch(), num_args = 0..=1, default_missing_value = "on", help_heading = "Attack")]
    pub random_start: Option<bool>,
    /// Whether the step size grows with the epochs, α·epoch/epochs [default: on with cap, anp and ca-tride]
    #[arg(long, value_parser = switch(), help_heading = "Attack")]
    pub progressive: Option<bool>,
    /// What to do when the net collapses
    #[arg(long, value_enum, default_value = "stop", help_heading = "Machine")]
    pub on_collapse: OnCollapse,
    /// cpu or cuda:N
    #[arg(long, default_value = "cpu", help_heading = "Machine")]
    pub device: String,
    /// Threads [default: one per core]
    #[arg(long, help_heading = "Machine")]
    pub threads: Option<usize>,
    /// How to show progress on stderr
    #[arg(long, value_parser = choice::<progress::Mode>(), default_value = "auto", help_heading = "Machine")]
    pub progress: progress::Mode,
    /// No progress and no notes on stderr: --progress none
    #[arg(short, long, help_heading = "Machine")]
    pub quiet: bool,
}

impl Cli {
    /// Parses `words`, which begin with the program's name. A recipe's flags precede the user's, which
    /// override them.
    pub fn parse_words(words: impl IntoIterator<Item = impl Into<OsString>>) -> clap::error::Result<Cli> {
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let own = Cli::try_parse_from(&words)?;
        let Some(name) = &own.run.recipe else { return Ok(own) };
        let mut command = Cli::command().args_override_self(true);
        let recipe = Published::find(name).map_err(|e| command.error(ErrorKind::InvalidValue, e.message))?;
        let method = match own.run.method.as_deref() {
            None => Some(recipe.method),
            Some(method) if method == recipe.method => None,
            Some(other) => {
                return Err(command.error(
                    ErrorKind::ArgumentConflict,
                    format!(
                        "--recipe {name} trains with {}, found {other}; leave the method out",
                        recipe.method
                    ),
                ));
            }
        };
        let mut flags: Vec<&str> = method.into_iter().chain(recipe.words()).collect();
        // --steps excludes --epochs.
        if let (true, Some(at)) = (own.run.steps.is_some(), flags.iter().position(|word| *word == "--epochs"))
        {
            flags.drain(at..at + 2);
        }
        let (program, rest) = words.split_at(1);
        let all =
            program.iter().cloned().chain(flags.into_iter().map(OsString::from)).chain(rest.iter().cloned());
        Cli::from_arg_matches_mut(&mut command.try_get_matches_from_mut(all)?)
    }
}

impl Flags {
    /// How to show progress and notes.
    pub fn mode(&self) -> progress::Mode {
        if self.quiet { progress::Mode::None } else { self.progress }
    }
}

fn switch() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["on", "off"]).map(|word| word == "on")
}
