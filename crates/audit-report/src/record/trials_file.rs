//! The trials of a report in their own file (`--trials-out`). The report then is short and names that file,
//! and loading it gives the whole.

use super::{Corrupted, Examples, Outcome, Report, SCHEMA_VERSION, Skipped, TrialList, TrialsFile};
use audit_base::{Error, Result, files};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// What such a file holds: the fields of [`Report`] that grow with the number of trials, under the same
/// names.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Apart {
    /// As in the report.
    pub schema_version: u32,
    /// See [`Report::trials`].
    pub trials: TrialList,
    /// See [`Report::skipped`].
    pub skipped: Vec<Skipped>,
    /// See [`Report::labels`].
    pub labels: BTreeMap<String, String>,
    /// See [`Report::groups`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, String>,
    /// See [`Report::outcomes`].
    pub outcomes: Vec<Outcome>,
    /// See [`Report::corrupted`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub corrupted: Vec<Corrupted>,
    /// See [`Report::examples`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<Examples>,
}

impl Report {
    /// The trials, and the report without them as a function of the file that they are in.
    pub fn apart(&self) -> (Apart, impl Fn(TrialsFile) -> Report) {
        let mut short = self.clone();
        let apart = Apart {
            schema_version: SCHEMA_VERSION,
            outcomes: std::mem::take(&mut short.outcomes),
            corrupted: std::mem::take(&mut short.corrupted),
            skipped: std::mem::take(&mut short.skipped),
            labels: std::mem::take(&mut short.labels),
            groups: std::mem::take(&mut short.groups),
            examples: short.examples.take(),
            trials: self.trials.clone(),
        };
        short.trials.attacks.clear();
        (apart, move |file| Report { trials_file: Some(file), ..short.clone() })
    }

    /// Puts the trials of another file back. `folder` is the report's. Errors (exit code 2): the file can't
    /// be read, or is not the one that was written with the report.
    pub(super) fn join(&mut self, folder: &Path) -> Result<()> {
        let Some(file) = self.trials_file.take() else { return Ok(()) };
        let path = folder.join(&file.path);
        let lost = |why: String| {
            Error::usage(format!(
                "its {} outcomes are in another file, {}, {why}. Put the file that was written with this report (sha256 {}) there, or \
                 make the report again",
                file.outcomes,
                path.display(),
                file.sha256
            ))
        };
        let text =
            files::read_text(&path, files::LARGE).map_err(|e| lost(format!("which can't be read: {e}")))?;
        let found = files::hex(&Sha256::digest(&text));
        if found != file.sha256 {
            return Err(lost(format!("which is not the one that it names: sha256 {found}")));
        }
        let apart: Apart =
            serde_json::from_str(&text).map_err(|e| lost(format!("which holds no trials: {e}")))?;
        (self.trials, self.skipped) = (apart.trials, apart.skipped);
        (self.labels, self.groups) = (apart.labels, apart.groups);
        (self.outcomes, self.corrupted, self.examples) = (apart.outcomes, apart.corrupted, apart.examples);
        Ok(())
    }
}
