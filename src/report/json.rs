//! The report as JSON.

use crate::record::Report;
use crate::{Error, Result};

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let mut bytes =
        serde_json::to_vec_pretty(report).map_err(|e| Error::internal(format!("the report as JSON: {e}")))?;
    bytes.push(b'\n');
    Ok(bytes)
}
