//! The report as JSON.

use crate::record::Report;
use crate::{Error, Result};
use serde::Serialize;

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    pretty(report)
}

/// A value as JSON of many lines.
pub(super) fn pretty(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes =
        serde_json::to_vec_pretty(value).map_err(|e| Error::internal(format!("the report as JSON: {e}")))?;
    bytes.push(b'\n');
    Ok(bytes)
}
