//! The command line of `audit-train`, and what it comes to: every default filled in, every combination checked.

use crate::defence::{DEFENCES, Defence};
use crate::loss::{LOSSES, Loss};
use crate::net::{BACKBONES, Backbone, Mode};
use crate::sampler::{SAMPLERS, Sampler};
use audit::data::Split;
use audit::progress;
use audit::suite;
use audit::{Error, Result};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Trains image-embedding models, hardened or not, and exports them to ONNX.
#[derive(Debug, Parser)]
#[command(
    name = "audit-train",
    version,
    about = "Trains image-embedding models, hardened or not, and exports them to ONNX",
    allow_negative_numbers = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
#[command(
    after_help = "Examples:\n  audit-train none --data photos/ --out plain.onnx --backbone resnet18 --pretrained \
    resnet18.safetensors\n  audit-train ca-tride --data photos/ --out hardened.onnx --init plain.checkpoint --lambda 2\n  \
    audit-train ca-tride --data photos/ --out hardened.onnx --init plain.checkpoint --lambda 2 --resume\n  audit-train \
    report plain.jsonl hardened.jsonl -o training.html\n\nExit codes: 0 done · 1 internal error · 2 usage · 4 no images · \
    12 collapsed, or the loss is not a number"
)]
pub struct Cli {
    /// What to do; without a command, train.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The training.
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
        /// The .onnx file to write; its card goes beside it
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
    /// How to train; `audit-train methods` lists the ways
    #[arg(required = true)]
    pub method: Option<String>,
    /// Images: a folder in one of the layouts that audit reads, or a .csv manifest
    #[arg(long, value_name = "PATH", required = true)]
    pub data: Option<PathBuf>,
    /// The .onnx file to write. Its card (.yaml), log (.jsonl) and checkpoint (.checkpoint) lie beside it
    #[arg(long, value_name = "FILE", required = true)]
    pub out: Option<PathBuf>,
    /// How the data lies on disk [default: detected]
    #[arg(long)]
    pub layout: Option<String>,
    /// Part of a benchmark [default: train]
    #[arg(long, value_parser = split)]
    pub split: Option<Split>,
    /// Images of other classes to measure R@1 on at each epoch's end [default: those trained on]
    #[arg(long, value_name = "PATH")]
    pub validation: Option<PathBuf>,
    /// Go on from the checkpoint beside --out
    #[arg(long)]
    pub resume: bool,
    /// Fixes initial weights, batches and samplers
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Batches to train on
    #[arg(long, conflicts_with = "epochs")]
    pub steps: Option<u64>,
    /// Passes through the data [default: 100]
    #[arg(long)]
    pub epochs: Option<u64>,
    /// Images in a batch, two of each class
    #[arg(long, default_value_t = 112)]
    pub batch: usize,
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
    /// Start from torchvision's weights of the ResNet, with a new head
    #[arg(long, value_name = "FILE.safetensors", help_heading = "Net", conflicts_with = "init")]
    pub pretrained: Option<PathBuf>,
    /// Start from the weights of a checkpoint
    #[arg(long, value_name = "FILE.checkpoint", help_heading = "Net")]
    pub init: Option<PathBuf>,
    /// Batch norm in training: frozen at its running statistics, or trained [default: frozen; train with est]
    #[arg(long, value_enum, help_heading = "Net")]
    pub norms: Option<Norms>,
    /// What the net is trained on [default: by the method]
    #[arg(long, help_heading = "Method")]
    pub loss: Option<String>,
    /// Which negatives triplets have [default: by the method]
    #[arg(long, help_heading = "Method")]
    pub sampler: Option<String>,
    /// Margin of semi-hard negatives [default: 0.2]
    #[arg(long, help_heading = "Method")]
    pub eta: Option<f64>,
    /// Whether η falls with the epochs, η·(1 − (epoch/(2·epochs))²) [default: on with cap, anp and ca-tride]
    #[arg(long, value_enum, help_heading = "Method")]
    pub eta_schedule: Option<Switch>,
    /// cap, anp, ca-tride: how much near samples count in collapseness; 0 is mean hardness [default: 10]
    #[arg(long, help_heading = "Method")]
    pub lambda: Option<f64>,
    /// cap, anp, ca-tride: reading of the definitions [default: working]
    #[arg(long, value_enum, help_heading = "Method")]
    pub reading: Option<Reading>,
    /// anp, ca-tride: the top-rank pair, in attack and loss [default: on]
    #[arg(long, value_enum, help_heading = "Method")]
    pub top_rank: Option<Switch>,
    /// hm: the hardness to reach: lga, a sampler, or a number such as -0.1 [default: lga]
    #[arg(long, allow_hyphen_values = true, help_heading = "Method")]
    pub destination: Option<String>,
    /// hm: weight of the intra-class structure loss [default: 0.5]
    #[arg(long, help_heading = "Method")]
    pub ics: Option<f64>,
    /// panum: share of positives that are moved [default: 0.5]
    #[arg(long, help_heading = "Method")]
    pub gamma: Option<f64>,
    /// adml: what the attack raises [default: alignment]
    #[arg(long, value_enum, help_heading = "Method")]
    pub target: Option<Target>,
    /// adml: weight of the adversarial loss [default: 0.1]
    #[arg(long, help_heading = "Method")]
    pub adversarial_weight: Option<f64>,
    /// Largest change of a pixel, such as 8/255 [default: by method and net]
    #[arg(long, help_heading = "Attack")]
    pub eps: Option<String>,
    /// Step size, such as 1/255 [default: by method and net]
    #[arg(long, help_heading = "Attack")]
    pub alpha: Option<String>,
    /// Steps [default: by the method]
    #[arg(long, help_heading = "Attack")]
    pub pgd_steps: Option<u32>,
    /// Start the attack anywhere in the box
    #[arg(long, help_heading = "Attack")]
    pub random_start: bool,
    /// Whether the step size grows with the epochs, α·epoch/epochs [default: on with cap, anp and ca-tride]
    #[arg(long, value_enum, help_heading = "Attack")]
    pub progressive: Option<Switch>,
    /// What to do when the net collapses
    #[arg(long, value_enum, default_value = "stop", help_heading = "Machine")]
    pub on_collapse: OnCollapse,
    /// cpu or cuda:N
    #[arg(long, default_value = "cpu", help_heading = "Machine")]
    pub device: String,
    /// Threads [default: one per core]
    #[arg(long, help_heading = "Machine")]
    pub threads: Option<usize>,
    /// How to say how far it is, on stderr
    #[arg(long, value_enum, default_value = "auto", help_heading = "Machine")]
    pub progress: progress::Mode,
    /// The same as --progress none
    #[arg(short, long, help_heading = "Machine")]
    pub quiet: bool,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Switch {
    On,
    Off,
}

/// What batch norm does in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norms {
    /// As in inference.
    Frozen,
    /// By the batch's statistics.
    Train,
}

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
#[allow(missing_docs)]
pub enum Target {
    Alignment,
    Uniformity,
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
pub enum Destination {
    /// Linear gradual adversary.
    Lga,
    /// The hardness of another sampler's triplets.
    Sampler(&'static Sampler),
    /// A number.
    Constant(f64),
}

/// All that decides which weights come out, defaults filled in. A checkpoint holds it, and a resumed run must have the
/// same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Settings {
    pub method: String,
    pub backbone: String,
    pub dim: i64,
    pub norms: Norms,
    pub pretrained: Option<String>,
    pub init: Option<String>,
    pub seed: u64,
    pub steps: u64,
    pub batch: usize,
    pub lr: f64,
    pub lr_drop: Option<f64>,
    pub weight_decay: f64,
    pub loss: String,
    pub sampler: String,
    pub eta: f64,
    pub eta_scheduled: bool,
    pub lambda: f64,
    pub reading: Reading,
    pub top_rank: bool,
    pub destination: String,
    pub ics: f64,
    pub gamma: f64,
    pub target: Target,
    pub adversarial_weight: f64,
    pub eps: f64,
    pub alpha: f64,
    pub pgd_steps: u32,
    pub random_start: bool,
    pub progressive: bool,
    pub on_collapse: OnCollapse,
    /// Images trained on, and a hash of their names.
    pub images: usize,
    pub data: String,
}

/// Settings, their names looked up in the tables.
pub struct Plan {
    /// The settings.
    pub settings: Settings,
    /// The method.
    pub defence: &'static Defence,
    /// The loss.
    pub loss: &'static Loss,
    /// The sampler.
    pub sampler: &'static Sampler,
    /// The net.
    pub backbone: &'static Backbone,
    /// HM's destination.
    pub destination: Destination,
    /// CA-TRIDE's reading.
    pub reading: Reading,
    /// ADML's target.
    pub target: Target,
    /// Batch norm in training.
    pub mode: Mode,
}

impl Plan {
    /// Checks the flags against each other and fills in what they leave out. `images` and `digest` say what data they
    /// are for. Exit code 2 for what makes no sense, with the reason.
    pub fn of(flags: &Flags, images: usize, digest: &str) -> Result<Plan> {
        let method = flags.method.as_deref().unwrap_or_default();
        let defence = Defence::find(method)?;
        let backbone = Backbone::find(&flags.backbone)?;
        let refuse = |what: String| Err::<(), Error>(Error::usage(what));
        let own: [(&str, bool); 8] = [
            ("lambda", flags.lambda.is_some()),
            ("reading", flags.reading.is_some()),
            ("top-rank", flags.top_rank.is_some()),
            ("destination", flags.destination.is_some()),
            ("ics", flags.ics.is_some()),
            ("gamma", flags.gamma.is_some()),
            ("target", flags.target.is_some()),
            ("adversarial-weight", flags.adversarial_weight.is_some()),
        ];
        for (flag, _) in own.iter().filter(|(flag, given)| *given && !defence.flags.contains(flag)) {
            let who: Vec<_> = DEFENCES.iter().filter(|d| d.flags.contains(flag)).map(|d| d.name).collect();
            refuse(format!("--{flag} is for {}; {method} has nothing of the kind", who.join(", ")))?;
        }
        let attacks = flags.eps.is_some()
            || flags.alpha.is_some()
            || flags.pgd_steps.is_some()
            || flags.random_start
            || flags.progressive.is_some();
        if defence.attack.is_none() && attacks {
            refuse(format!(
                "{method} has no attack: --eps, --alpha, --pgd-steps, --random-start and --progressive say nothing to it"
            ))?;
        }

        let loss_name = flags.loss.as_deref().unwrap_or(defence.losses[0]);
        let loss = Loss::find(loss_name)?;
        if !defence.losses.contains(&loss_name) {
            refuse(format!(
                "--loss {loss_name}: {method} is defined with {} ({})",
                defence.losses.join(", "),
                defence.about
            ))?;
        }
        let target = flags.target.unwrap_or(Target::Alignment);
        let sampler = Sampler::find(flags.sampler.as_deref().unwrap_or(defence.sampler))?;
        let moves_triplets = matches!(defence.losses, ["triplet"]) || target == Target::Triplet;
        if flags.sampler.is_some() && !loss.takes_triplets() && !moves_triplets {
            refuse(format!(
                "--sampler: {loss_name} takes every pair of the batch, there is nothing to choose"
            ))?;
        }
        let semihard = sampler.name == "semihard";
        if (flags.eta.is_some() || flags.eta_schedule.is_some()) && !semihard {
            refuse(format!("--eta and --eta-schedule are for the sampler semihard, found {}", sampler.name))?;
        }
        let collapse_aware = defence.flags.contains(&"lambda");
        let reading = flags.reading.unwrap_or(Reading::Working);
        if flags.top_rank.is_some() && defence.name == "cap" && reading != Reading::Released {
            refuse("--top-rank: the top-rank pair belongs to anchor perturbation; cap has none, but for the reading `released`".into())?;
        }
        if flags.top_rank == Some(Switch::On) && reading == Reading::Naive {
            refuse("--top-rank on: the reading `naive` raises hardness and nothing else in its attack; use another reading".into())?;
        }
        if flags.lambda.is_some() && reading == Reading::Naive {
            refuse("--lambda: the reading `naive` weighs all samples alike".into())?;
        }
        let text = flags.destination.as_deref().unwrap_or("lga");
        let destination = destination(text)?;
        if let Destination::Sampler(other) = &destination
            && other.name == sampler.name
        {
            refuse(format!(
                "--destination {text}: triplets of the sampler {text} are as hard as that already, so nothing would be moved; \
                 name a harder destination, or another --sampler"
            ))?;
        }

        if flags.pretrained.is_some() && !backbone.photograph {
            refuse(format!(
                "--pretrained takes torchvision's weights, which there are of ResNets; {} starts from --init or at random",
                backbone.name
            ))?;
        }
        let norms = flags.norms.unwrap_or(if method == "est" { Norms::Train } else { Norms::Frozen });
        if flags.norms.is_some() && !backbone.has_norm() {
            refuse(format!("--norms: {} has no batch norm", backbone.name))?;
        }
        if backbone.has_norm() && norms == Norms::Frozen && flags.pretrained.is_none() && flags.init.is_none()
        {
            refuse(format!(
                "{} from random weights would freeze batch norm at statistics of no data; give --pretrained or --init, or \
                 train it with --norms train",
                backbone.name
            ))?;
        }

        let within = |flag: &str, value: f64, low: f64, high: f64| match value >= low && value <= high {
            true => Ok(value),
            false => Err(Error::usage(format!("--{flag} {value}: expected {low} to {high}"))),
        };
        let dim = flags.dim.unwrap_or(backbone.dim);
        within("dim", dim as f64, 2.0, 65536.0)?;
        if flags.batch < 4 || flags.batch % 2 == 1 {
            refuse(format!(
                "--batch {}: expected an even number, at least 4: two images of each class",
                flags.batch
            ))?;
        }
        if flags.batch > images {
            refuse(format!(
                "--batch {} is larger than the data, which holds {images} images; give at most --batch {}",
                flags.batch,
                images / 2 * 2
            ))?;
        }
        let per_epoch = (images / flags.batch).max(1) as u64;
        let steps = flags.steps.unwrap_or(flags.epochs.unwrap_or(100) * per_epoch);
        if steps == 0 {
            refuse("--steps 0 trains nothing; give at least 1".into())?;
        }
        let pixels = |flag: &str, text: &Option<String>, default: f64| match text {
            None => Ok(default),
            Some(text) => {
                suite::parse_fraction(text).map(f64::from).map_err(|e| Error::usage(format!("--{flag} {e}")))
            }
        };
        let (eps, alpha, pgd_steps, progressive) = match &defence.attack {
            None => (0.0, 0.0, 0, false),
            Some(a) => {
                let small = !backbone.photograph && !a.fixed;
                let (eps, alpha) = if small { (77.0 / 255.0, 3.0 / 255.0) } else { (a.eps, a.alpha) };
                (eps, alpha, a.steps, a.progressive)
            }
        };
        let (eps, alpha) = (pixels("eps", &flags.eps, eps)?, pixels("alpha", &flags.alpha, alpha)?);
        let pgd_steps = flags.pgd_steps.unwrap_or(pgd_steps);
        if defence.attack.is_some() && pgd_steps == 0 {
            refuse(format!("--pgd-steps 0 is no attack; train with `none` instead of {method}"))?;
        }
        let (lr, decay) = if backbone.photograph { (1e-5, 4e-4) } else { (1e-3, 1e-7) };
        let on = |switch: Option<Switch>, default: bool| switch.map_or(default, |s| s == Switch::On);
        let shown = |path: &Option<PathBuf>| path.as_ref().map(|p| p.display().to_string());
        let settings = Settings {
            method: method.into(),
            backbone: backbone.name.into(),
            dim,
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
            eta_scheduled: on(flags.eta_schedule, semihard && collapse_aware),
            // Without collapse awareness, C is still logged; at 10 as the paper's first table has it.
            lambda: within("lambda", flags.lambda.unwrap_or(10.0), 0.0, 100.0)?,
            reading,
            top_rank: on(
                flags.top_rank,
                collapse_aware && defence.name != "cap" && reading != Reading::Naive,
            ) || (defence.name == "cap"
                && reading == Reading::Released
                && flags.top_rank.is_none()),
            destination: text.into(),
            ics: within("ics", flags.ics.unwrap_or(0.5), 0.0, 100.0)?,
            gamma: within("gamma", flags.gamma.unwrap_or(0.5), 0.0, 1.0)?,
            target,
            adversarial_weight: within(
                "adversarial-weight",
                flags.adversarial_weight.unwrap_or(0.1),
                0.0,
                100.0,
            )?,
            eps,
            alpha,
            pgd_steps,
            random_start: flags.random_start,
            progressive: on(flags.progressive, progressive),
            on_collapse: flags.on_collapse,
            images,
            data: digest.into(),
        };
        Plan::from(settings)
    }

    /// Looks the names of settings up. Exit code 2 where a table lacks one.
    pub fn from(settings: Settings) -> Result<Plan> {
        let backbone = Backbone::find(&settings.backbone)?;
        let trained = settings.norms == Norms::Train && backbone.has_norm();
        Ok(Plan {
            defence: Defence::find(&settings.method)?,
            loss: Loss::find(&settings.loss)?,
            sampler: Sampler::find(&settings.sampler)?,
            backbone,
            destination: destination(&settings.destination)?,
            reading: settings.reading,
            target: settings.target,
            mode: if trained { Mode::Training } else { Mode::Inference },
            settings,
        })
    }

    /// Batches in an epoch.
    pub fn per_epoch(&self) -> u64 {
        (self.settings.images / self.settings.batch).max(1) as u64
    }

    /// Epochs, the last one perhaps cut short.
    pub fn epochs(&self) -> u64 {
        self.settings.steps.div_ceil(self.per_epoch())
    }
}

/// The names and values that differ.
pub fn differences(theirs: &Settings, ours: &Settings) -> Vec<String> {
    let fields = |s: &Settings| serde_json::to_value(s).unwrap_or_default();
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

/// What there is, for `audit-train methods`.
pub fn tables() -> String {
    let mut out = String::from("Methods\n");
    for d in DEFENCES {
        out += &format!(
            "  {:<18} {}\n  {:<18} sampler {}, losses {}",
            d.name,
            d.about,
            "",
            d.sampler,
            d.losses.join(", ")
        );
        out += &d.attack.as_ref().map_or("\n".into(), |a| format!("; {} steps of attack\n", a.steps));
    }
    let mut list = |title: &str, rows: Vec<(&str, &str)>| {
        out += &format!("\n{title}\n");
        rows.iter().for_each(|(name, about)| out += &format!("  {name:<18} {about}\n"));
    };
    list("Losses", LOSSES.iter().map(|r| (r.name, r.about)).collect());
    list("Samplers", SAMPLERS.iter().map(|r| (r.name, r.about)).collect());
    list("Backbones", BACKBONES.iter().map(|r| (r.name, r.about)).collect());
    out
}

fn destination(text: &str) -> Result<Destination> {
    if text == "lga" {
        return Ok(Destination::Lga);
    }
    if let Ok(hardness) = text.parse::<f64>() {
        return match (-2.0..=2.0).contains(&hardness) {
            true => Ok(Destination::Constant(hardness)),
            false => Err(Error::usage(format!(
                "--destination {text}: hardness is a difference of distances on the unit sphere, expected -2 to 2"
            ))),
        };
    }
    Sampler::find(text).map(Destination::Sampler).map_err(|_| {
        let known: Vec<_> = SAMPLERS.iter().map(|row| row.name).collect();
        Error::usage(format!(
            "--destination {text}: expected lga, a number such as -0.1, or a sampler ({})",
            known.join(", ")
        ))
    })
}

fn split(text: &str) -> std::result::Result<Split, String> {
    text.parse::<Split>().map_err(|e| e.to_string())
}
