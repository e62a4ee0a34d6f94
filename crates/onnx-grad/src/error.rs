//! Why a model can't be loaded.

use std::fmt;

/// Why a model can't be loaded: a sentence that names the file or the node, what was expected and what to do
/// next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The file can't be read.
    Unreadable(String),
    /// What was read is no ONNX model, is damaged, or has a form that isn't covered.
    Model(String),
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The message, without a trailing full stop.
    pub fn message(&self) -> &str {
        match self {
            Error::Unreadable(message) | Error::Model(message) => message,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}
