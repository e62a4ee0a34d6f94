//! Why a model can't be loaded.

use std::fmt;

/// Why a model can't be loaded. The message names the file or the node, what was expected, and what to do
/// next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The file can't be read.
    Unreadable(String),
    /// The data are not an ONNX model, are damaged, or have an unsupported form.
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
