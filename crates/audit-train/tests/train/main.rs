//! Compares the trainer with PyTorch, torchvision and pytorch-metric-learning (tests/golden/train.json, made
//! by research/golden/golden_train.py), with the papers, with ONNX Runtime, and with itself: killed and
//! resumed, collapsed, misused. One binary, because linking libtorch takes long.

mod again;
mod batch;
mod documentation;
#[cfg(unix)]
mod harden;
mod knobs;
mod losses;
mod nets;
mod papers;
mod photographs;
mod refused;
mod runs;
mod samplers;

#[path = "../../../../tests/common/words.rs"]
mod words;

use audit::Exit;
use audit::data::{Dataset, Item, Preparation, Resize, Split};
use audit::model::runtime::{self, Input, Options, Provider, Session};
use audit_train::checkpoint::{self, RunState};
use audit_train::cli::Cli;
use audit_train::defence::collapse::{Side, collapseness, counts_clean_anchors, objective, top_rank_loss};
use audit_train::defence::{adml, number};
use audit_train::dice::Dice;
use audit_train::images::TrainingImages;
use audit_train::log::{self, Ending, LogLine};
use audit_train::loss::{Labelled, Loss, distance, numbers, same_class, triplet_loss};
use audit_train::net::{BACKBONES, Backbone, Net, Norms, normalize};
use audit_train::optimiser::Adam;
use audit_train::perturb::{PgdBudget, pgd};
use audit_train::sampler::{self, Anchors, Mined, SAMPLERS, Triplets, scheduled};
use audit_train::settings::{AdmlTarget, PhotographSize, Reading};
use audit_train::{export, run};
use clap::Parser;
use onnx_grad::Graph;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tch::{Device, Kind, Tensor};
use tempfile::TempDir;
use words::words;

#[derive(Deserialize)]
struct Golden {
    embeddings: Vec<Vec<f32>>,
    labels: Vec<usize>,
    triplets: [Vec<i64>; 3],
    losses: BTreeMap<String, Case>,
    samplers: BTreeMap<String, Vec<Vec<usize>>>,
    distance_weights: Vec<Vec<f64>>,
    samplers_of_hm: BTreeMap<String, BatchOfHm>,
    released_attacks: BTreeMap<String, Attacked>,
    collapse: serde_json::Value,
    adml: serde_json::Value,
    backbones: BTreeMap<String, Outputs>,
    adam: Trained,
}

#[derive(Deserialize)]
struct Case {
    value: f64,
    gradients: Vec<Vec<Vec<f32>>>,
}

/// Distances of a batch, and the results of HM's samplers for it.
#[derive(Deserialize)]
struct BatchOfHm {
    distances: Vec<f32>,
    labels: Vec<usize>,
    dim: usize,
    samplers: BTreeMap<String, Drawn>,
}

/// Probabilities of each image as positive and as negative, one row per anchor; moments of a triplet's
/// hardness.
#[derive(Deserialize)]
struct Drawn {
    positives: Vec<Vec<f64>>,
    negatives: Vec<Vec<f64>>,
    mean: f64,
    variance: f64,
}

/// Objective before each step, share of images that moved, and mean shift of their embeddings.
#[derive(Deserialize)]
struct Attacked {
    objective: Vec<f64>,
    moved: f64,
    shift: f64,
}

#[derive(Deserialize)]
struct Outputs {
    weights: BTreeMap<String, Vec<i64>>,
    embeddings: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
struct Trained {
    losses: Vec<f64>,
    after: BTreeMap<String, Vec<f32>>,
}

impl Golden {
    /// Anchors, positives and negatives.
    fn rows(&self, e: &Tensor) -> [Tensor; 3] {
        self.triplets.each_ref().map(|rows| e.index_select(0, &Tensor::from_slice(rows)))
    }
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../golden/train.json")).unwrap()
}

fn tensor(rows: &[Vec<f32>]) -> Tensor {
    Tensor::from_slice(&rows.concat()).view([rows.len() as i64, rows[0].len() as i64])
}

fn leaf(t: &Tensor) -> Tensor {
    t.detach().copy().set_requires_grad(true)
}

#[track_caller]
fn close(found: &Tensor, expected: &Tensor, tolerance: f64, what: &str) {
    let scale = number(&expected.abs().max()).max(1e-3);
    let worst = number(&(found - expected).abs().max());
    assert!(worst <= tolerance * scale, "{what}: differs by {worst:.2e} at values of {scale:.2e}");
}

/// Compares a loss and its gradients with PyTorch's.
#[track_caller]
fn same(loss: &Tensor, leaves: &[&Tensor], case: &Case, what: &str) {
    let value = number(&loss.detach());
    assert!(
        (value - case.value).abs() <= 2e-6 * case.value.abs().max(1.0),
        "{what}: {value} instead of {}",
        case.value
    );
    let gradients = Tensor::run_backward(&[loss], leaves, false, false);
    for (gradient, expected) in gradients.iter().zip(&case.gradients) {
        close(gradient, &tensor(expected), 2e-5, what);
    }
}

/// The weights that research/golden/golden_train.py derives from a name and a shape.
fn formula(name: &str, shape: &[i64]) -> Tensor {
    let start: u64 = name.bytes().map(u64::from).sum();
    let count: i64 = shape.iter().product();
    let scale = (2.0 / shape[1..].iter().product::<i64>() as f64).sqrt();
    let value = |i: i64| {
        let wave = (0.37 * i as f64 + start as f64).sin();
        if name.ends_with("running_var") {
            1.0 + 0.5 * wave * wave
        } else if shape.len() == 1 {
            0.1 * wave + f64::from(u8::from(name.ends_with("weight")))
        } else {
            wave * scale
        }
    };
    Tensor::from_slice(&(0..count).map(|i| value(i) as f32).collect::<Vec<_>>()).view(shape)
}

fn image(channels: i64, side: i64, start: f64) -> Tensor {
    let value = |i: i64| 0.5 + 0.5 * (0.013 * (i as f64).powf(1.1) + start).sin();
    let values: Vec<f32> = (0..channels * side * side).map(|i| value(i) as f32).collect();
    Tensor::from_slice(&values).view([1, channels, side, side])
}

fn filled(backbone: &'static Backbone) -> Net {
    let mut net = Net::new(backbone, 8, 0, Device::Cpu);
    let weights = net.weights.iter().map(|(name, t)| (name.clone(), formula(name, &t.size()))).collect();
    net.copy_from(&weights);
    net
}

/// The folder of `cargo xtask setup`'s runtime; `None` if the environment names another, or setup hasn't run.
fn runtime_folder() -> Option<PathBuf> {
    let set_up = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../onnxruntime");
    (std::env::var_os("ORT_DYLIB_PATH").is_none() && set_up.is_dir()).then_some(set_up)
}

/// A small set of generated characters in class folders, in a folder of this one.
fn characters(folder: &Path, classes: usize) -> String {
    let path = folder.join(format!("images{classes}"));
    Dataset::generated(5, classes, 8).export(&path, &Preparation::new(1, 28, 28)).unwrap();
    path.display().to_string()
}

/// A folder with [`characters`].
fn stage(classes: usize) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = characters(folder.path(), classes);
    (folder, path)
}

/// `audit-train` with this command line, one thread and no progress.
fn train(line: &str) -> audit::Result<String> {
    match Cli::parse_words([&["audit-train", "-q", "--threads", "1"], &words(line)[..]].concat()) {
        Ok(cli) => run(&cli.run),
        Err(e) => panic!("{e}"),
    }
}

/// Trains a plain net, and returns its checkpoint.
fn plain(folder: &Path, data: &str, extra: &str) -> String {
    let out = folder.join("plain.onnx");
    train(&format!("none --data {data:?} --out {out:?} --sampler random {extra}")).unwrap();
    out.with_extension("checkpoint").display().to_string()
}

fn log(path: &Path) -> Vec<LogLine> {
    log::read(path).unwrap()
}

fn rows(path: &Path) -> Vec<audit_train::monitor::EpochRow> {
    let row = |line| if let LogLine::Epoch(row) = line { Some(row) } else { None };
    log(path).into_iter().filter_map(row).collect()
}

/// Puts another state into a checkpoint.
fn restate(path: &Path, change: impl FnOnce(&mut RunState)) {
    let saved = checkpoint::load(path).unwrap();
    let mut net = Net::new(Backbone::find("c2f1").unwrap(), saved.settings.dim, 0, Device::Cpu);
    saved.fill(&mut net, path).unwrap();
    let adam = saved.adam(&net, saved.settings.weight_decay, path).unwrap();
    let mut state = saved.state.clone();
    change(&mut state);
    checkpoint::save(path, &saved.settings, &state, &net, &adam).unwrap();
}
