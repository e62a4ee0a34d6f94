//! Result of `audit doctor`: a finding for each check.

use crate::Exit;
use crate::record::{Data, Finding, ModelRecord, Severity, SuiteRecord, Tool};
use serde::{Deserialize, Serialize};

/// What the checks found.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Examination {
    /// [`crate::record::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What made it.
    pub tool: Tool,
    /// The examined model.
    pub model: ModelRecord,
    /// The images.
    pub data: Data,
    /// The audit that was looked into.
    pub suite: SuiteRecord,
    /// Fixes everything drawn.
    pub seed: u64,
    /// Whether findings of weight error were to be lived with.
    pub allow_untrusted: bool,
    /// A finding for each check, in the order of the table.
    pub findings: Vec<Finding>,
}

impl Examination {
    /// 12 where a finding leaves a score without a meaning, unless that was to be lived with.
    pub fn exit(&self) -> Option<Exit> {
        let errors = self.findings.iter().any(|f| f.severity == Severity::Error);
        (errors && !self.allow_untrusted).then_some(Exit::Untrusted)
    }
}
