//! Where things lie, and how other programs are run.

use crate::reference::REFERENCE;
use std::{
    env,
    ffi::OsStr,
    fmt, fs,
    path::{self, Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

pub type Result<T = ()> = std::result::Result<T, Error>;

pub enum Error {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// Something was expected and not found; the text says what to do next.
    Failed(String),
}

impl Error {
    /// Adds what to do next, where the one who reports the error cannot know it.
    pub fn then(self, next: &str) -> Error {
        match self {
            Error::Failed(message) => Error::Failed(format!("{message}; {next}")),
            usage => usage,
        }
    }
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Error::Failed(message)
    }
}

/// The folder of the checkout.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// A file or folder of the reference data beside the checkout (CONTRIBUTING.md), there or not.
pub fn reference(path: &str) -> PathBuf {
    root().join(REFERENCE).join(path)
}

/// Cargo's target folder. This program lies in `target/debug`, wherever CARGO_TARGET_DIR or a configuration
/// put it.
pub fn target() -> Result<PathBuf> {
    let program =
        env::current_exe().map_err(|error| format!("cannot tell where this program lies: {error}"))?;
    let target =
        program.ancestors().nth(2).ok_or("expected this program in Cargo's target folder".to_owned())?;
    Ok(target.to_path_buf())
}

/// A program that Cargo built, such as `release/audit`.
pub fn built(name: &str) -> Result<PathBuf> {
    Ok(target()?.join(name).with_extension(env::consts::EXE_EXTENSION))
}

/// A path as a reader of the terminal likes it: relative where it lies inside the checkout.
pub fn shown(path: &Path) -> path::Display<'_> {
    path.strip_prefix(root()).unwrap_or(path).display()
}

/// Cargo, run at the root of the checkout.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args(arguments).current_dir(root());
    // Cargo takes a relative one from the current folder, which is another one for us than for whoever set
    // it.
    if let Some(Ok(target)) = env::var_os("CARGO_TARGET_DIR").map(path::absolute) {
        command.env("CARGO_TARGET_DIR", target);
    }
    command
}

/// Runs a command to its end, its output going to the terminal.
pub fn run(command: &mut Command) -> Result {
    let status = command.status().map_err(|error| format!("cannot start {}: {error}", line(command)))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::Failed(format!("{} ended with {status}", line(command)))),
    }
}

/// Runs a command to its end and takes what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("cannot start {}: {error}", line(command)))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(Error::Failed(format!(
            "{} ended with {}: {}",
            line(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

/// Whether a command can be started and ends well, in silence.
pub fn works(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// A command as one would type it.
pub fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_stem().unwrap_or(command.get_program());
    let words: Vec<_> = [program].into_iter().chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    format!("`{}`", words.join(" "))
}

/// Does something to a file, and names the file if that fails.
pub fn file<T>(doing: &str, path: &Path, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|error| Error::Failed(format!("cannot {doing} {}: {error}", shown(path))))
}

/// Removes a folder, if it is there.
pub fn remove(folder: &Path) -> Result {
    match folder.exists() {
        true => file("remove", folder, fs::remove_dir_all(folder)),
        false => Ok(()),
    }
}

/// Time since a moment, for people.
pub struct Since(pub Instant);

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let time: Duration = self.0.elapsed();
        match time.as_secs() {
            seconds @ 100.. => write!(f, "{} min {:02} s", seconds / 60, seconds % 60),
            _ => write!(f, "{:.1} s", time.as_secs_f64()),
        }
    }
}
