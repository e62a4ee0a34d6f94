//! The result of an audit as one serialisable value. Every format is a pure function of it.

mod json;
pub mod terminal;

use crate::attack::{Outcome, Skipped};
use crate::check::{GradientCheck, Warning};
use crate::model::card::Preprocessing;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Grows when a field changes its meaning or goes away; new fields leave it.
pub const SCHEMA_VERSION: u32 = 1;

/// A file format of reports.
pub struct Format {
    /// The file name's ending, without the dot.
    pub extension: &'static str,
    /// Renders it.
    pub render: fn(&Report) -> Result<Vec<u8>>,
}

/// Every format; `-o` chooses by the file name's ending.
pub const FORMATS: &[Format] = &[Format { extension: "json", render: json::render }];

/// All that an audit found, and how it was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What made the report.
    pub tool: Tool,
    /// The model.
    pub model: Model,
    /// The images.
    pub data: Data,
    /// What was run.
    pub suite: Suite,
    /// Fixes the trials, the random starts and the resampling.
    pub seed: u64,
    /// Retrieval without attack, in per cent but for NMI.
    pub benign: Benign,
    /// A row per measure.
    pub attacks: Vec<Attack>,
    /// The scores.
    pub scores: Scores,
    /// Every random choice and every target, in the form that `--trials` reads.
    pub trials: serde_json::Value,
    /// What came of each trial.
    pub outcomes: Vec<Outcome>,
    /// Trials that could not be run.
    pub skipped: Vec<Skipped>,
    /// Reasons to distrust the result.
    pub warnings: Vec<Warning>,
    /// Where the time went. The only part that differs between two runs of the same audit.
    pub timing: Timing,
}

/// What made a report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Tool {
    pub name: String,
    pub version: String,
    /// ONNX Runtime's version.
    pub runtime: String,
    /// cpu or cuda:n.
    pub provider: String,
}

/// The audited model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Model {
    /// As given on the command line.
    pub path: String,
    /// Of the file.
    pub sha256: String,
    /// Inputs with their shapes.
    pub inputs: Vec<String>,
    /// The value taken as embedding.
    pub output: String,
    /// Length of an embedding.
    pub dim: usize,
    /// The distance.
    pub metric: String,
    /// What is done to pixels before the model's input.
    pub preprocessing: Preprocessing,
    /// From the model card.
    pub licence: Option<String>,
    /// From the model card.
    pub source: Option<String>,
    /// The check at load.
    pub gradient_check: GradientCheck,
}

/// The images audited on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Data {
    /// Folder or generator.
    pub source: String,
    /// Images in the gallery.
    pub images: usize,
    /// Their classes.
    pub classes: usize,
    /// Over ids, classes and file contents.
    pub sha256: String,
    /// Files that could not be read, with the reason.
    pub unreadable: Vec<String>,
}

/// What was run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// published or corrected.
    pub form: String,
    /// rob28 or rob224.
    pub protocol: String,
    /// Largest change of a pixel, in units of the [0,1] range.
    pub eps: f32,
    /// Step size, same units.
    pub alpha: f32,
    /// PGD steps.
    pub steps: usize,
    /// How the step size runs.
    pub schedule: String,
    /// Random starts beside the clean one.
    pub restarts: usize,
    /// Queries attacked.
    pub queries: usize,
}

/// Retrieval without attack.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Benign {
    /// Recall at 1, per cent.
    pub r1: f64,
    /// Recall at 2, per cent.
    pub r2: f64,
    /// Mean average precision, per cent.
    pub map: f64,
    /// mAP@R, per cent.
    pub map_at_r: f64,
    /// Normalised mutual information of a k-means clustering with the classes, per cent.
    pub nmi: Option<f64>,
    /// Images these run over.
    pub queries: usize,
    /// Images alone in their class, left out.
    pub without_positive: usize,
}

/// One measure. Ranks are percentiles and shares per cent; TMA is a cosine, ES:D a distance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attack {
    /// CA+, CA-, QA+, QA-, TMA, ES:D, ES:R, LTM, GTM, GTT.
    pub code: String,
    /// published or corrected.
    pub form: String,
    /// Trials behind the numbers.
    pub queries: usize,
    /// Trials that could not be run or had nothing to attack.
    pub skipped: usize,
    /// Mean before the attack.
    pub before: Option<f64>,
    /// Mean after it.
    pub after: Option<f64>,
    /// 95 % interval of `after`, by bootstrap over queries.
    pub after_interval: Option<(f64, f64)>,
    /// Contribution to ERS.
    pub ers_term: Option<f64>,
    /// Resistance, per cent.
    pub resistance: Resistance,
}

/// Both forms of a resistance, per cent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resistance {
    /// Mean over trials, each clamped: equation 30 of the CA-TRIDE paper.
    pub per_trial: Option<f64>,
    /// Ratio of means: what its tables print.
    pub table: Option<f64>,
}

/// The scores, 0–100, higher is better.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scores {
    /// Empirical robustness score.
    pub ers: Option<Score>,
    /// Adversarial resistance score.
    pub ars: Option<Score>,
    /// Why one is missing.
    pub notes: Vec<String>,
}

/// A score and its interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Score {
    /// The headline.
    pub value: f64,
    /// Its 95 % interval, by bootstrap over queries.
    pub interval: Option<(f64, f64)>,
    /// The ratio-of-means form, for ARS.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub table: Option<f64>,
}

/// Seconds spent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Timing {
    /// Loading, differentiating and compiling the model.
    pub model_s: f64,
    /// Decoding and embedding the gallery, benign metrics included.
    pub gallery_s: f64,
    /// The check at load.
    pub check_s: f64,
    /// The attacks.
    pub attacks_s: f64,
    /// All of it.
    pub total_s: f64,
    /// PGD steps of single images that were paid for.
    pub image_steps: usize,
    /// Images per model run.
    pub batch: usize,
    /// Threads asked for; 0 for one per core.
    pub threads: usize,
}

/// A file that a report will be written to: opened before the work, so that a bad path fails at once, and given its
/// name when complete, so that nothing half-written stays.
pub struct Target {
    path: PathBuf,
    partial: PathBuf,
    format: &'static Format,
}

impl Target {
    /// Claims `path`. Errors (exit code 2): unknown ending, folder missing or not writable.
    pub fn open(path: &Path) -> Result<Target> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        let format = FORMATS.iter().find(|f| f.extension == extension).ok_or_else(|| {
            let known: Vec<String> = FORMATS.iter().map(|f| format!(".{}", f.extension)).collect();
            Error::usage(format!(
                "-o {}: the ending chooses the format, and {extension:?} is none; known: {}",
                path.display(),
                known.join(", ")
            ))
        })?;
        if path.is_dir() {
            return Err(Error::usage(format!("-o {}: is a folder; name a file in it", path.display())));
        }
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(name);
        std::fs::File::create(&partial).map_err(|e| {
            Error::usage(format!(
                "-o {}: can't write there: {e}. Make the folder, or choose another",
                path.display()
            ))
        })?;
        Ok(Target { path: path.to_path_buf(), partial, format })
    }

    /// Writes the report.
    pub fn write(self, report: &Report) -> Result<()> {
        let bytes = (self.format.render)(report)?;
        let wrong = |e: std::io::Error| Error::internal(format!("can't write {}: {e}", self.path.display()));
        std::fs::write(&self.partial, bytes).map_err(wrong)?;
        std::fs::rename(&self.partial, &self.path).map_err(wrong)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.partial);
    }
}
