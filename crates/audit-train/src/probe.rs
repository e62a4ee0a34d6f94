//! ERS of the net in training: a small audit of the current net, by `audit`'s own code.

use crate::cli::Flags;
use crate::export;
use crate::net::Net;
use crate::settings::PhotographSize;
use audit::request::StrongSample;
use audit::{Error, Request, Result};
use std::path::{Path, PathBuf};

/// A small audit after every `every` epochs.
pub struct Probe {
    every: u64,
    /// The net as ONNX, while it is audited.
    model: PathBuf,
    /// Size of photographs in training.
    resize: PhotographSize,
    audit: Request,
}

impl Probe {
    /// `None` if it isn't requested. The audit's images are those of --validation, otherwise the training
    /// images.
    pub fn of(flags: &Flags, model: &Path) -> Result<Option<Probe>> {
        let Some(every) = flags.ers_every else { return Ok(None) };
        refuse_if!(every == 0, "--ers-every 0: expected 1 or more epochs");
        refuse_if!(flags.ers_queries == 0, "--ers-queries 0: expected 1 or more");
        let model = model.with_extension("probe.onnx");
        let data = flags.validation.as_ref().or(flags.data.as_ref());
        let mut audit = Request::model(&model).suite("ers").max_queries(flags.ers_queries);
        audit.queries.strong = Some(StrongSample::Off);
        audit.allow_untrusted = true;
        audit.images.data = data.cloned();
        audit.images.layout = flags.layout.clone().filter(|_| flags.validation.is_none());
        audit.compute.library = flags.ort_lib.clone();
        audit.compute.threads = flags.threads.unwrap_or_default();
        Ok(Some(Probe { every, model, resize: flags.resize, audit }))
    }

    /// Whether it is due after `epochs`.
    pub fn is_due(&self, epochs: u64) -> bool {
        epochs.is_multiple_of(self.every)
    }

    /// ERS, 0 to 100.
    pub fn measure(&self, net: &Net) -> Result<f64> {
        export::write(net, &self.model, self.resize, "a net in training, for --ers-every")?;
        let report = audit::run(&self.audit);
        // The files were for this audit only; one that can't be removed does no harm.
        let _ = std::fs::remove_file(&self.model);
        let _ = std::fs::remove_file(self.model.with_extension("yaml"));
        let report = report?;
        let ers = report.scores.ers.as_ref().map(|score| score.value);
        ers.ok_or_else(|| Error::internal(format!("--ers-every: no ERS: {}", report.scores.notes.join("; "))))
    }
}
