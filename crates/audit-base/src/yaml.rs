//! Reading YAML: suites, and the cards of models.

use crate::error::did_you_mean;
use crate::{Error, Result};
use serde::de::DeserializeOwned;

/// A value with its place in the file.
pub use serde_saphyr::Spanned;

/// `text` as a `T`; `file` is what errors call it. They (exit code 2) name the line, and for an unknown key
/// or value the nearest that is known.
pub fn read<T: DeserializeOwned>(file: &str, text: &str) -> Result<T> {
    serde_saphyr::from_str(text).map_err(|error| {
        use serde_saphyr::Error::{SerdeUnknownField, SerdeUnknownVariant};
        let line = error.location().map(|l| format!(", line {}", l.line())).unwrap_or_default();
        let unknown = |what: &str, word: &str, expected: &[&str]| {
            format!(
                "unknown {what} `{word}`{}. Known are {}",
                did_you_mean(word, expected),
                expected.join(", ")
            )
        };
        let what = match error.without_snippet() {
            SerdeUnknownField { field, expected, .. } => unknown("key", field, expected),
            SerdeUnknownVariant { variant, expected, .. } => unknown("value", variant, expected),
            other => {
                let reason = other.to_string();
                // It repeats the line.
                match reason.strip_prefix("missing field ").and_then(|rest| rest.split(' ').next()) {
                    Some(key) => format!("the key {key} is missing. docs/formats.md describes every key"),
                    None => reason,
                }
            }
        };
        Error::usage(format!("{file}{line}: {what}"))
    })
}
