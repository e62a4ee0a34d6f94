//! Cache of the check at load. A result is reused only if everything that it depends on is the same: the
//! program, the runtime, the processor, the file with its weights, the card, the options and the images.
//! Findings of severity error are never cached, and neither are results of a GPU, whose drivers and settings
//! are unknown here.

use crate::check;
use crate::files;
use crate::files::hex;
use crate::model::Model;
use crate::model::card::Card;
use crate::model::runtime::{self, Options, Provider};
use crate::record::{Finding, GradientCheck, Properties, Severity};
use crate::request::{Gradient, Request};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// The result of the check at load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checked {
    /// The part for reports.
    pub gradient_check: GradientCheck,
    /// A finding for each check.
    pub findings: Vec<Finding>,
}

impl Checked {
    /// The result of measurements.
    pub fn of(measured: &check::load::Measured) -> Checked {
        Checked { gradient_check: measured.summary(), findings: check::at_load(measured) }
    }
}

/// A result with everything that it depends on, as it is on disk.
#[derive(Serialize, Deserialize)]
struct CachedCheck {
    /// Everything that the result depends on.
    basis: Properties,
    checked: Checked,
}

/// The place of a result in the cache.
pub struct CheckCache {
    path: PathBuf,
    basis: Properties,
}

impl CheckCache {
    /// The place of this model's result on these images, the first `count` of which are checked. `None` if
    /// nothing is cached: with --no-cache, on a GPU, or if the system has no folder for caches.
    pub fn of(
        request: &Request,
        options: Options,
        card: &Card,
        model: &Model,
        images: &[f32],
        count: usize,
    ) -> Option<CheckCache> {
        if request.run.no_cache || options.provider != Provider::Cpu {
            return None;
        }
        let mut pixels = Sha256::new();
        images.iter().for_each(|v| pixels.update(v.to_le_bytes()));
        let source = if request.reading.gradient == Gradient::Exact { "exact" } else { "estimated" };
        let (threads, batch, seed) = (options.threads, model.batch(), request.seed);
        let options = format!(
            "{threads} threads of {}, batch {batch}, {source}, seed {seed}, precision {}, {count} images",
            runtime::cores(),
            request.attack.precision
        );
        let all = [
            ("program", program()?),
            ("runtime", format!("{} {}", runtime::version(), runtime::build())),
            ("processor", processor()),
            ("model's SHA-256", model.info.identity.sha256.clone()),
            ("card", serde_json::to_string(card).ok()?),
            ("options", options),
            ("images' SHA-256", hex(&pixels.finalize())),
        ];
        let basis: Properties = all.into_iter().collect();
        let key = hex(&Sha256::digest(serde_json::to_vec(&basis).ok()?));
        Some(CheckCache { path: super::entry("check", &key)?, basis })
    }

    /// The cached result; `None` if there is none, or if it is damaged or depends on something else.
    pub fn find(&self) -> Option<Checked> {
        let entry: CachedCheck =
            serde_json::from_str(&files::read_text(&self.path, files::BY_HAND).ok()?).ok()?;
        (entry.basis == self.basis && keepable(&entry.checked)).then_some(entry.checked)
    }

    /// Caches a result. Errors: the folder can't be written to.
    pub fn store(&self, checked: &Checked) -> std::io::Result<()> {
        if !keepable(checked) {
            return Ok(());
        }
        super::write(&self.path, &CachedCheck { basis: self.basis.clone(), checked: checked.clone() })
    }
}

/// Whether a result may be reused: a result that stops an audit is always measured again.
fn keepable(checked: &Checked) -> bool {
    checked.findings.iter().all(|f| f.severity != Severity::Error)
}

/// The running executable. A new build has another time.
pub fn program() -> Option<String> {
    let about = std::fs::metadata(std::env::current_exe().ok()?).ok()?;
    let built = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} of {} bytes, {} ns", env!("CARGO_PKG_VERSION"), about.len(), built.as_nanos()))
}

/// The kind of processor: kernels differ by it, and machines may share a cache folder.
fn processor() -> String {
    let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = |key: &str| about.lines().find(|l| l.starts_with(key)).unwrap_or_default().to_string();
    format!("{} {} {}", std::env::consts::ARCH, line("model name"), line("flags"))
}
