//! ERS of the net on its way: a small audit of what has been trained so far, by `audit`'s own code.

use crate::cli::Flags;
use crate::export;
use crate::net::Net;
use audit::cli::AuditFlags;
use audit::{Error, Result};
use clap::Parser;
use std::path::{Path, PathBuf};

/// A small audit after every so many epochs.
pub struct Probe {
    every: u64,
    /// The net as ONNX, for as long as its audit takes.
    model: PathBuf,
    audit: AuditFlags,
}

impl Probe {
    /// `None` where none is asked for. The audit's images are those of --validation, else those trained on.
    pub fn of(flags: &Flags, model: &Path) -> Result<Option<Probe>> {
        let Some(every) = flags.ers_every else { return Ok(None) };
        refuse_if!(every == 0, "--ers-every 0: expected 1 or more epochs");
        refuse_if!(flags.ers_queries == 0, "--ers-queries 0: expected 1 or more");
        let model = model.with_extension("probe.onnx");
        let data = flags.validation.as_ref().or(flags.data.as_ref());
        let path = |p: &Path| p.display().to_string();
        let mut words: Vec<String> =
            ["audit", "--quiet", "--suite", "ers", "--strong-sample", "off", "--allow-untrusted"]
                .map(String::from)
                .into();
        words.extend([path(&model), "--max-queries".into(), flags.ers_queries.to_string()]);
        words.extend(data.map(|data| ["--data".into(), path(data)]).into_iter().flatten());
        words.extend(flags.ort_lib.as_ref().map(|dir| ["--ort-lib".into(), path(dir)]).into_iter().flatten());
        words.extend(flags.threads.map(|n| ["--threads".into(), n.to_string()]).into_iter().flatten());
        if flags.validation.is_none() {
            words.extend(
                flags.layout.as_ref().map(|name| ["--layout".into(), name.clone()]).into_iter().flatten(),
            );
        }
        let cli = audit::cli::Cli::try_parse_from(words)
            .map_err(|e| Error::internal(format!("the flags of the audit for --ers-every: {e}")))?;
        Ok(Some(Probe { every, model, audit: cli.run }))
    }

    /// Whether it is time, after so many epochs.
    pub fn is_due(&self, epochs: u64) -> bool {
        epochs.is_multiple_of(self.every)
    }

    /// ERS, 0 to 100.
    pub fn measure(&self, net: &Net) -> Result<f64> {
        export::write(net, &self.model, "a net in training, for --ers-every")?;
        let report = audit::run::run(&self.audit, "audit-train --ers-every");
        // The files were for this audit alone; one that can't be removed does no harm.
        let _ = std::fs::remove_file(&self.model);
        let _ = std::fs::remove_file(self.model.with_extension("yaml"));
        let report = report?;
        let ers = report.scores.ers.as_ref().map(|score| score.value);
        ers.ok_or_else(|| Error::internal(format!("--ers-every: no ERS: {}", report.scores.notes.join("; "))))
    }
}
