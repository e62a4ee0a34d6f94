//! The journal of a run: its finished trials, so that a killed run can continue.
//!
//! A text file of lines, each the start of the SHA-256 of the rest, a blank, and JSON. The first identifies
//! the run, every other holds a finished trial. Lines are only ever added. If the process was killed or the
//! disk was full, the last line doesn't fit its checksum: it and later lines are left out and run again. An
//! audit removes its journal when every report is written.

use crate::files::hex;
use crate::record::Outcome;
use crate::request::Request;
use crate::shards::identity::Identity;
use crate::{Error, Result, files, interrupt};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Grows when the format changes.
const VERSION: u32 = 1;
/// How often a journal is opened that another process removes meanwhile.
const TRIES: usize = 100;
/// Hexadecimal digits of a line's checksum.
const CHECKSUM: usize = 16;

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    journal: u32,
    /// "hash:1/3", if it is of a part.
    partition: Option<String>,
    trials: usize,
    run: Identity,
}

/// A journal that only this process writes to.
pub struct Journal {
    path: PathBuf,
    file: File,
    /// The journal of an earlier process: its header, and trials by place.
    earlier: Option<(Header, Vec<(usize, Outcome)>)>,
    /// Size of the whole lines, in bytes.
    whole: u64,
    /// Whether to keep the file when this value is dropped.
    keep: bool,
}

impl Journal {
    /// Claims the file at `path`, new or of an earlier process. Errors (exit code 2): it can't be written,
    /// another process has it, or it has trials and `resume` is not set.
    pub fn open(path: &Path, resume: bool) -> Result<Journal> {
        let name = path.display();
        let unfit = |e: std::io::Error| {
            Error::usage(format!(
                "journal {name}: can't write there: {e}. Choose another place with --journal FILE"
            ))
        };
        if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            return Err(Error::usage(format!(
                "journal {name}: expected a file, found something else. Choose another place with --journal FILE"
            )));
        }
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(path);
        let mut tries = 0;
        let file = loop {
            let file = open().map_err(unfit)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    return Err(Error::usage(format!(
                        "journal {name}: another audit is writing it. Let it end, or give this one another -o or --journal"
                    )));
                }
                // Some network file systems have no locks; there nothing prevents two writers.
                Err(TryLockError::Error(_)) | Ok(()) => {}
            }
            tries += 1;
            // An audit that ended between the two calls removed the file that was opened here.
            if tries == TRIES || std::fs::metadata(path).is_ok_and(|found| is(&file, &found)) {
                break file;
            }
        };
        let mut journal = Journal { path: path.into(), file, earlier: None, whole: 0, keep: true };
        journal.read().map_err(|e| {
            Error::usage(format!("journal {name}: {e}. Name another file with --journal, or remove this one"))
        })?;
        let done = journal.earlier.as_ref().map_or(0, |(_, done)| done.len());
        if done > 0 && !resume {
            return Err(Error::usage(format!(
                "{name} is the journal of an unfinished run, with {done} finished trials. Add --resume to continue it, or remove it to start \
                 from the beginning"
            )));
        }
        if done > 0 {
            interrupt::saved_in(path);
        }
        Ok(journal)
    }

    fn read(&mut self) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes)?;
        let mut done = Vec::new();
        let mut header = None;
        for line in bytes.split_inclusive(|&b| b == b'\n') {
            let Some(json) = checked(line) else { break };
            match &header {
                None => match serde_json::from_str::<Header>(json) {
                    Ok(found) if found.journal == VERSION => header = Some(found),
                    _ => break,
                },
                Some(_) => match serde_json::from_str::<(usize, Outcome)>(json) {
                    Ok(trial) => done.push(trial),
                    Err(_) => break,
                },
            }
            self.whole += line.len() as u64;
        }
        // A file that doesn't begin like a journal belongs to somebody else and is not overwritten.
        let start = |bytes: &[u8]| {
            let (sum, rest) = bytes.split_at(CHECKSUM.min(bytes.len()));
            sum.iter().all(u8::is_ascii_hexdigit)
                && (rest.len() < 2 || rest.starts_with(b" {"))
                && !bytes.contains(&b'\n')
        };
        self.keep = !bytes.is_empty();
        if header.is_none() && !start(&bytes) {
            let ours = bytes.split_inclusive(|&b| b == b'\n').skip(1).any(|line| checked(line).is_some());
            return Err(std::io::Error::other(match ours {
                true => "its first line was changed, so that it is unknown to which run its trials belong",
                false => "it is no journal of this version of audit",
            }));
        }
        self.keep = !done.is_empty();
        self.earlier = header.map(|h| (h, done));
        Ok(())
    }

    /// Begins the run `run` of `trials` trials and returns the finished ones, by place. Errors (exit code 2):
    /// the journal is of another run.
    pub fn begin(
        &mut self,
        run: Identity,
        partition: Option<String>,
        trials: usize,
    ) -> Result<Vec<(usize, Outcome)>> {
        if let Some((header, done)) = self.earlier.take().filter(|(_, done)| !done.is_empty()) {
            let mut differs = header.run.differences(&run);
            if header.partition != partition {
                let name = |p: &Option<String>| p.clone().unwrap_or_else(|| "none".into());
                differs.push(format!("partition: {} and {}", name(&header.partition), name(&partition)));
            }
            if header.trials != trials && differs.is_empty() {
                differs.push(format!("trials: {} and {trials}", header.trials));
            }
            if !differs.is_empty() {
                return Err(Error::usage(format!(
                    "{} is the journal of another run. The runs differ in {}. Run the earlier command again, or remove the journal",
                    self.path.display(),
                    differs.join("; in ")
                )));
            }
            // Removes the line that was cut off, and everything behind it.
            let cut = self.file.set_len(self.whole).and_then(|()| self.file.seek(SeekFrom::End(0)));
            cut.map_err(|e| self.failed(e))?;
            return Ok(done);
        }
        let cut = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        cut.map_err(|e| self.failed(e))?;
        self.line(&Header { journal: VERSION, partition, trials, run })?;
        Ok(Vec::new())
    }

    /// Adds a trial. After an error nothing more may be added: the last line is not whole.
    pub fn add(&mut self, place: usize, outcome: &Outcome) -> Result<()> {
        self.line(&(place, outcome))?;
        if !self.keep {
            interrupt::saved_in(&self.path);
            self.keep = true;
        }
        Ok(())
    }

    fn line<T: Serialize>(&mut self, value: &T) -> Result<()> {
        let json = serde_json::to_string(value).map_err(|e| Error::internal(format!("the journal: {e}")))?;
        let line = format!("{} {json}\n", checksum(json.as_bytes()));
        self.file.write_all(line.as_bytes()).map_err(|e| self.failed(e))
    }

    fn failed(&self, e: std::io::Error) -> Error {
        Error::internal(format!("can't write the journal {}: {e}", self.path.display()))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where trials are saved and what `--resume` then `does`, or why they are lost, in words.
    pub fn saved(&mut self, does: &str) -> String {
        match self.restored() {
            Ok(path) => format!("saved in {}: the same command with --resume {does}", path.display()),
            Err(e) => format!("lost: {e}"),
        }
    }

    /// The path. A file that was removed since it was opened is written again, with its folder. Errors (exit
    /// code 1): it can't be written.
    fn restored(&mut self) -> Result<&Path> {
        match std::fs::metadata(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let mut bytes = Vec::new();
                let read = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.read_to_end(&mut bytes));
                let folder = self.path.parent().map_or(Ok(()), std::fs::create_dir_all);
                let written = read.and(folder).and_then(|()| files::replace(&self.path, &bytes));
                written.map_err(|e| self.failed(e))?;
            }
            Ok(found) if is(&self.file, &found) => {}
            _ => return Err(self.failed(std::io::Error::other("another file took its place"))),
        }
        Ok(&self.path)
    }

    /// Removes the journal of a finished run.
    pub fn done(&mut self) {
        self.keep = false;
    }
}

/// Whether `found` describes an open file, as far as the system can tell.
#[cfg(unix)]
fn is(file: &File, found: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn is(_: &File, found: &std::fs::Metadata) -> bool {
    found.is_file()
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.keep {
            interrupt::not_saved_in(&self.path);
            // If this journal was removed meanwhile, the file there may be that of another audit.
            if std::fs::metadata(&self.path).is_ok_and(|found| is(&self.file, &found)) {
                let _ = std::fs::remove_file(&self.path);
            }
        }
    }
}

/// The checksum of a line, which is followed by a blank and its JSON.
pub fn checksum(json: &[u8]) -> String {
    hex(&Sha256::digest(json))[..CHECKSUM].into()
}

/// The JSON of a whole line.
fn checked(line: &[u8]) -> Option<&str> {
    let (sum, rest) = line.split_at_checked(CHECKSUM)?;
    let json = rest.strip_prefix(b" ")?.strip_suffix(b"\n")?;
    std::str::from_utf8(json).ok().filter(|_| sum == checksum(json).as_bytes())
}

/// The journals of a command of several runs, such as the points of a sweep. They are numbered, and stay
/// until the results of all runs are written.
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
        let resume = std::mem::take(&mut request.run.resume);
        let begun = |base: &Path| Some(named(base, "1")).filter(|first| resume && first.is_file());
        let base = match request.run.journal.take() {
            Some(path) => Some(path),
            None => beside(&request.output.reports, begun)?,
        };
        if resume && base.is_none() {
            return Err(Error::usage(
                "--resume continues from the journals beside the first file: give the same -o as before, or --journal FILE",
            ));
        }
        request.output.reports.clear();
        // The journal of a run is opened at its turn; a journal without trials is removed.
        if let Some(base) = base.as_ref().filter(|base| resume && named(base, "1").is_file()) {
            interrupt::saved_in(&named(base, "1"));
        }
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

/// The journal beside a report: the one that an earlier process has begun, or that of the first report.
/// `begun` returns the file of a journal if it was begun. Error (exit code 2): several were.
pub fn beside(reports: &[PathBuf], begun: impl Fn(&Path) -> Option<PathBuf>) -> Result<Option<PathBuf>> {
    let all = || reports.iter().map(|path| named(path, "journal"));
    let mut found = all().filter_map(|path| Some((begun(&path)?, path)));
    match (found.next(), found.next()) {
        (Some((file, path)), Some((other, _))) => Err(Error::usage(format!(
            "--resume: {} and {} are both there. Name the one to continue from, such as --journal {}",
            file.display(),
            other.display(),
            path.display()
        ))),
        (found, _) => Ok(found.map(|(_, path)| path).or_else(|| all().next())),
    }
}

/// The path with an extension added.
pub fn named(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{extension}"));
    path.with_file_name(name)
}
