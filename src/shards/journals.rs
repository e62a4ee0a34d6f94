//! The journals of a command of several runs, such as the points of a sweep. They are numbered, and stay
//! until the results of all runs are written.

use super::journal::Journal;
use crate::request::Request;
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// The journals of several runs.
pub struct Journals {
    /// What their names begin with; `None` if nothing is written.
    base: Option<PathBuf>,
    /// Whether to go on with those of an earlier process.
    resume: bool,
    done: Vec<Journal>,
}

impl Journals {
    /// Those of a request: beside its first file, unless it names a place. The runs themselves write no file,
    /// so that the request is left without. Error (exit code 2): it resumes, and has no place for journals.
    pub fn settle(request: &mut Request) -> Result<Journals> {
        let beside = |path: &PathBuf| named(path, "journal");
        let base = request.run.journal.take().or_else(|| request.output.reports.first().map(beside));
        let resume = std::mem::take(&mut request.run.resume);
        if resume && base.is_none() {
            return Err(Error::usage(
                "--resume continues from the journals beside the first file: give the same -o as before, or --journal FILE",
            ));
        }
        request.output.reports.clear();
        Ok(Journals { base, resume, done: Vec::new() })
    }

    /// The journal of a run by its number, and whether an earlier process began this run.
    pub fn open(&self, number: usize) -> Result<(Option<Journal>, bool)> {
        let file = self.base.as_ref().map(|base| named(base, &number.to_string()));
        let resume = self.resume && file.as_ref().is_some_and(|file| file.is_file());
        Ok((file.map(|file| Journal::open(&file, resume)).transpose()?, resume))
    }

    /// Holds the journal of a run that has ended.
    pub fn hold(&mut self, journal: Option<Journal>) {
        self.done.extend(journal);
    }

    /// Removes all: the results are written.
    pub fn done(mut self) {
        self.done.iter_mut().for_each(Journal::done);
    }
}

/// The path with an ending added.
pub fn named(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{ending}"));
    path.with_file_name(name)
}
