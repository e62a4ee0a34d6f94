//! The log of a run: one JSON object per line.

use crate::monitor::EpochRow;
use crate::settings::TrainingSettings;
use audit::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A line of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant)]
pub enum LogLine {
    /// The settings; the first line.
    Settings(TrainingSettings),
    /// An epoch; the first one, number 0, is the state before training.
    Epoch(EpochRow),
    /// The end of the run.
    End {
        /// Done, collapsed, or the loss not a number.
        how: Ending,
        /// Number of trained batches.
        step: u64,
        /// The reason, for the user.
        why: String,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// All batches were trained.
    Done,
    /// Stopped because the net collapsed.
    Collapsed,
    /// Stopped because the loss was not a number.
    NotANumber,
}

/// The log file and its length.
pub struct LogWriter {
    file: fs::File,
    path: PathBuf,
    /// Length of the log in bytes.
    pub bytes: u64,
}

impl LogWriter {
    /// A new log, or an earlier one truncated to `keep` bytes: epochs after the checkpoint are trained again.
    /// Errors (exit code 2): it is shorter than that, or another run is writing it.
    pub fn open(path: &Path, keep: Option<u64>) -> Result<LogWriter> {
        if let Some(expected) = keep {
            let found = length(path);
            refuse_if!(
                found < expected,
                "--resume: the log {} is missing or cut off: expected at least {expected} bytes, found {found}. Restore it, or \
                 start a new run from the weights of the checkpoint, with --init and another --out",
                path.display()
            );
        }
        let unwritable =
            |e: std::io::Error| Error::usage(format!("can't write the log {}: {e}", path.display()));
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(unwritable)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(Error::usage(format!(
                    "the log {}: another audit-train is writing it. Let it end, or name another --out",
                    path.display()
                )));
            }
            // Some network file systems have no locks; there nothing prevents two writers.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        file.set_len(keep.unwrap_or(0)).map_err(unwritable)?;
        Ok(LogWriter { file, path: path.into(), bytes: keep.unwrap_or(0) })
    }

    /// Returns when the log is on the disk.
    pub fn sync(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|e| Error::internal(format!("can't write the log {}: {e}", self.path.display())))
    }

    /// Appends the last line. Returns when it is on the disk.
    pub fn end(&mut self, how: Ending, step: u64, why: String) -> Result<()> {
        self.write(&LogLine::End { how, step, why })?;
        self.sync()
    }

    /// Appends a line.
    pub fn write(&mut self, line: &LogLine) -> Result<()> {
        let mut text = serde_json::to_string(line).map_err(|e| Error::internal(format!("log: {e}")))?;
        text.push('\n');
        self.bytes += text.len() as u64;
        self.file
            .write_all(text.as_bytes())
            .map_err(|e| Error::internal(format!("can't write the log {}: {e}", self.path.display())))
    }
}

/// Length of a log in bytes; 0 if it is missing.
pub fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

/// Reads a log. Error (exit code 2): the file isn't one.
pub fn read(path: &Path) -> Result<Vec<LogLine>> {
    let shown = path.display();
    let text =
        fs::read_to_string(path).map_err(|e| Error::usage(format!("can't read the log {shown}: {e}")))?;
    let parse = |(i, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|e| {
            Error::usage(format!("{shown}, line {}: not a line of audit-train's log: {e}", i + 1))
        })
    };
    text.lines().enumerate().map(parse).collect()
}
