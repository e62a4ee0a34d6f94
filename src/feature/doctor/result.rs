//! Result of `audit doctor`: a finding for each check.

use crate::Exit;
use crate::record::{Data, Finding, ModelRecord, Severity, SuiteRecord, Tool};
use serde::{Deserialize, Serialize};

/// The findings of the checks, and what was examined.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Examination {
    /// Version of this format: [`crate::record::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The program that wrote the result.
    pub tool: Tool,
    /// The examined model.
    pub model: ModelRecord,
    /// The images.
    pub data: Data,
    /// The suite whose attacks were checked.
    pub suite: SuiteRecord,
    /// Seed of the trials and the random starts.
    pub seed: u64,
    /// Whether the user accepted findings of severity error.
    pub allow_untrusted: bool,
    /// A finding for each check, in the order of the table.
    pub findings: Vec<Finding>,
}

impl Examination {
    /// Exit code 12 if a finding makes a score invalid, unless the user accepted it.
    pub fn exit(&self) -> Option<Exit> {
        let errors = self.findings.iter().any(|f| f.severity == Severity::Error);
        (errors && !self.allow_untrusted).then_some(Exit::Untrusted)
    }
}
