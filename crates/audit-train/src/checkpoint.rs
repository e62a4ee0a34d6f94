//! All of a run's state in one .safetensors file: weights, Adam's state, and settings and counters as JSON in
//! a tensor of bytes. Random numbers depend on the seed and the step, so that they needn't be saved.

use crate::defence::Memory;
use crate::net::{Net, Weights, read};
use crate::optimiser::Adam;
use crate::settings::TrainingSettings;
use audit::{Error, Result, files};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tch::{Device, Tensor};

/// Progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunState {
    /// Number of trained batches.
    pub step: u64,
    /// Number of Adam's updates, over all runs with these moments.
    pub updates: u64,
    /// State that defences carry from batch to batch.
    pub memory: Memory,
    /// Mean distance of embeddings before training; a small share of it is a sign of collapse.
    pub first_distance: f64,
    /// Best R@1 at the end of an epoch.
    pub best_recall: f64,
    /// Lowest triplet loss of random triplets at the end of an epoch.
    pub least_loss: f64,
    /// Images times steps, of all attacks.
    pub image_steps: u64,
    /// Wall time in seconds, including that before resumes.
    pub seconds: f64,
    /// Wall time of attacks in seconds.
    pub attack_seconds: f64,
    /// Length of the log at this state, in bytes.
    pub log_bytes: u64,
    /// Whether this state has a sign of collapse. Then [`good`] has the last state without one.
    #[serde(default)]
    pub suspect: bool,
}

/// The settings, progress and tensors of a run.
pub struct Checkpoint {
    /// Settings at the start of the run.
    pub settings: TrainingSettings,
    /// Progress.
    pub state: RunState,
    weights: Weights,
    mean: Weights,
    square: Weights,
}

const HEADER: &str = "audit-train";
const PARTS: [&str; 3] = ["weight/", "mean/", "square/"];

#[derive(Serialize, Deserialize)]
struct Header {
    settings: TrainingSettings,
    state: RunState,
}

/// Writes a checkpoint atomically: `path` is either the old or the new file.
pub fn save(
    path: &Path,
    settings: &TrainingSettings,
    state: &RunState,
    net: &Net,
    adam: &Adam,
) -> Result<()> {
    let header = Header { settings: settings.clone(), state: state.clone() };
    let header = serde_json::to_vec(&header).map_err(|e| Error::internal(format!("checkpoint: {e}")))?;
    let mut tensors = vec![(HEADER.to_string(), Tensor::from_slice(&header))];
    let parts =
        [[&net.weights, &net.of_loss], [&adam.mean, &Weights::new()], [&adam.square, &Weights::new()]];
    for (part, weights) in PARTS.iter().zip(parts) {
        let entry = |(name, t): (&String, &Tensor)| {
            (format!("{part}{name}"), t.detach().to_device(Device::Cpu).contiguous())
        };
        tensors.extend(weights.into_iter().flatten().map(entry));
    }
    let unwritable = |e: &dyn std::fmt::Display| {
        let reason = e.to_string();
        let brief = reason.lines().next().unwrap_or_default();
        Error::internal(format!("can't write the checkpoint {}: {brief}", path.display()))
    };
    let file = files::partial(path).map_err(|e| unwritable(&e))?;
    Tensor::write_safetensors(&tensors, file.path()).map_err(|e| unwritable(&e))?;
    // Opened again, because libtorch may have replaced the file of the original handle.
    File::open(file.path()).and_then(|f| f.sync_all()).map_err(|e| unwritable(&e))?;
    file.persist(path).map(drop).map_err(|e| unwritable(&e))
}

/// The file for the last state without a sign of collapse, while the checkpoint at `path` has one.
pub fn good(path: &Path) -> PathBuf {
    path.with_extension("good.checkpoint")
}

/// Copies a checkpoint to [`good`], atomically.
pub fn keep_good(path: &Path) -> Result<()> {
    let bytes = fs::read(path)
        .map_err(|e| Error::internal(format!("can't read the checkpoint {}: {e}", path.display())))?;
    replace(&good(path), &bytes)
}

/// Removes [`good`], if it exists.
pub fn drop_good(path: &Path) -> Result<()> {
    let good = good(path);
    match fs::remove_file(&good) {
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(Error::internal(format!("can't remove {}: {e}", good.display())))
        }
        _ => Ok(()),
    }
}

/// Reads a checkpoint. Error (exit code 2): the file isn't one.
pub fn load(path: &Path) -> Result<Checkpoint> {
    let shown = path.display();
    let tensors = read(path)?;
    let header = tensors.get(HEADER).and_then(|t| Vec::<u8>::try_from(t).ok()).ok_or_else(|| {
        Error::usage(format!("{shown} is no checkpoint of audit-train: it has no tensor `{HEADER}`"))
    })?;
    let Header { settings, state } = serde_json::from_slice(&header).map_err(|e| {
        Error::usage(format!("{shown} is a checkpoint of another version of audit-train: {e}"))
    })?;
    let part = |prefix: &str| {
        let entry =
            |(name, t): (&String, &Tensor)| Some((name.strip_prefix(prefix)?.to_string(), t.shallow_clone()));
        tensors.iter().filter_map(entry).collect::<Weights>()
    };
    let [weights, mean, square] = PARTS.map(part);
    Ok(Checkpoint { settings, state, weights, mean, square })
}

impl Checkpoint {
    /// Copies the weights to the net. Error (exit code 2): it has another architecture.
    pub fn fill(&self, net: &mut Net, path: &Path) -> Result<()> {
        let differences = net.compare(&self.weights);
        let TrainingSettings { backbone, dim, .. } = &self.settings;
        refuse_if!(
            !differences.is_empty(),
            "{} is a checkpoint of a {backbone} with {dim} dimensions, and this is a {} with {}: {differences}. Give --backbone \
             {backbone} --dim {dim}",
            path.display(),
            net.backbone.name,
            net.dim
        );
        net.copy_from(&self.weights);
        Ok(())
    }

    /// Copies the learnt parameters of the loss to the net.
    pub fn fill_loss(&self, net: &mut Net) {
        net.copy_loss_from(&self.weights);
    }

    /// Adam in the saved state, on the net's device. Call after [`Checkpoint::fill`].
    pub fn adam(&self, net: &Net, decay: f64, path: &Path) -> Result<Adam> {
        let mut adam = Adam::new(net, decay);
        adam.updates = self.state.updates;
        for (own, saved) in [(&mut adam.mean, &self.mean), (&mut adam.square, &self.square)] {
            for (name, t) in own.iter_mut() {
                let saved = saved.get(name).filter(|s| s.size() == t.size());
                let missing = format!("the optimiser's state of {name} is missing; the file is damaged");
                t.copy_(saved.ok_or_else(|| Error::usage(format!("{}: {missing}", path.display())))?);
            }
        }
        Ok(adam)
    }
}

/// [`files::replace`] with an error for the user.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    files::replace(path, bytes).map_err(|e| Error::internal(format!("can't write {}: {e}", path.display())))
}
