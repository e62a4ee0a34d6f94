//! Errors that end a run, with the trials that are saved and how to continue.

use crate::shards::journal::Journal;
use crate::{Error, Exit, interrupt};

/// An error that ended the attacks after `done` of `of` trials.
pub(super) fn stopped(mut error: Error, journal: &mut Option<Journal>, done: usize, of: usize) -> Error {
    match journal {
        // Embeddings that aren't finite would end the same trials again.
        Some(journal) if error.exit == Exit::Untrusted => journal.done(),
        Some(journal) if done > 0 => {
            let what = journal.saved("continues");
            error.message = format!("{}. {done} of {of} trials are done and {what}", error.message);
        }
        _ if error.exit == Exit::Interrupted => {
            // Of a sweep, those of an earlier point.
            let next = interrupt::saved().unwrap_or_else(|| {
                let why = match journal {
                    Some(_) => "No trial was done yet",
                    None => "Without -o or --journal no trial is saved",
                };
                format!("{why}. {}", interrupt::next_step())
            });
            error.message = format!("{}. {next}", error.message);
        }
        _ => {}
    }
    error
}

/// An error after the attacks, none of which need be run again.
pub fn saved(mut error: Error, journal: &mut Option<Journal>) -> Error {
    if let Some(journal) = journal {
        let path = journal.path().display().to_string();
        let what = match error.exit {
            // A corrupted image's embedding that isn't finite would end the same command again.
            Exit::Untrusted => {
                journal.done();
                return error;
            }
            // It may be the file, which no second try will write either.
            Exit::Internal => journal.saved(&format!(
                "makes the report. To write another file: --journal {path} --resume -o OTHER"
            )),
            _ => journal.saved("makes the report"),
        };
        error.message = format!("{}. All trials are done and {what}", error.message);
    }
    error
}
