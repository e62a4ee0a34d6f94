//! The one error type: what went wrong, in words for the user, and the exit code it ends the process with.

use crate::visible::visible;
use std::fmt;

/// Exit codes of the command line, as documented in the README.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A fault of ours, or of the machine (input/output while writing results, ONNX Runtime failing mid-run).
    Internal = 1,
    /// Wrong usage: flags, suite files, paths, unknown names; the runtime library not found.
    Usage = 2,
    /// The model can't be audited: not ONNX, truncated, ambiguous, an operator without gradient.
    Model = 3,
    /// Nothing to evaluate: no images, no class with two members.
    Empty = 4,
    /// A gate's threshold was missed, or a drop from the baseline could not be decided.
    Gate = 10,
    /// Worse than the baseline, beyond the tolerance and beyond chance.
    Regression = 11,
    /// The result is invalid: NaN embeddings, a failed gradient check.
    Untrusted = 12,
    /// Parts of a run that don't make a whole.
    Incomplete = 13,
    /// No attacked file was found.
    NotFound = 14,
    /// Interrupted. Finished trials are in the journal, if there is one.
    Interrupted = 130,
}

impl Exit {
    /// Every code but 0: in few words, as the help has it, and when it is given.
    pub const ALL: [(Exit, &str, &str); 10] = [
        (
            Exit::Internal,
            "internal error",
            "A fault of the program or of the machine: a file that can't be written, ONNX Runtime failing on the way.",
        ),
        (Exit::Usage, "usage", "Flags, files or names that are wrong; ONNX Runtime was not found."),
        (
            Exit::Model,
            "model can't be audited",
            "Not ONNX, cut off, ambiguous, an operator without gradient or that fails, or more memory than a model may use.",
        ),
        (Exit::Empty, "nothing to evaluate", "No images, or no class with two of them."),
        (
            Exit::Gate,
            "gate failed",
            "A threshold was missed, or a drop from the baseline could not be decided.",
        ),
        (
            Exit::Regression,
            "regression against the baseline",
            "Worse than the baseline, beyond the tolerance and beyond chance.",
        ),
        (
            Exit::Untrusted,
            "result not trustworthy",
            "A check found that the numbers are invalid, such as embeddings that are not finite, or a gradient that is wrong or hidden.",
        ),
        (Exit::Incomplete, "incomplete: parts are missing", "Parts of a run that don't make a whole."),
        (
            Exit::NotFound,
            "no attacked file found",
            "`audit attack` found no file within ε that reaches the goal.",
        ),
        (
            Exit::Interrupted,
            "interrupted",
            "Ctrl-C; with a journal, finished trials are saved and `--resume` continues.",
        ),
    ];
}

/// An error on its way to the user: a message that names the file, node or row and the next step.
#[derive(Clone, Debug)]
pub struct Error {
    /// The exit code.
    pub exit: Exit,
    /// The message, without a trailing full stop or newline where it is one sentence.
    pub message: String,
    /// Rows of flags and values that the command line may lack, the likeliest first. Of a model that was
    /// refused: the row that it was read with, if any.
    pub flags: Vec<Vec<String>>,
}

/// The result of all crates.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn new(exit: Exit, message: impl Into<String>) -> Self {
        Error { exit, message: message.into(), flags: Vec::new() }
    }
    /// Exit code 1.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Exit::Internal, message)
    }
    /// Exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
    /// Exit code 3.
    pub fn model(message: impl Into<String>) -> Self {
        Self::new(Exit::Model, message)
    }
    /// Exit code 4.
    pub fn empty(message: impl Into<String>) -> Self {
        Self::new(Exit::Empty, message)
    }
    /// Exit code 12.
    pub fn untrusted(message: impl Into<String>) -> Self {
        Self::new(Exit::Untrusted, message)
    }
    /// Exit code 13.
    pub fn incomplete(message: impl Into<String>) -> Self {
        Self::new(Exit::Incomplete, message)
    }
    /// Exit code 130.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::new(Exit::Interrupted, message)
    }
    /// Its first sentence, without the path of the file in front.
    pub fn brief(&self, path: &std::path::Path) -> String {
        let path = format!("{}: ", path.display());
        let message = self.message.strip_prefix(&path).unwrap_or(&self.message);
        message.split(". ").next().unwrap_or_default().lines().next().unwrap_or_default().to_string()
    }
    /// The error with flags that would correct the command line.
    pub fn lacking(mut self, flags: impl IntoIterator<Item = Vec<String>>) -> Self {
        self.flags = flags.into_iter().collect();
        self
    }
    /// The error with a prefix that names the work.
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }
}

/// For a terminal: names in the message may come from untrusted files.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&visible(&self.message))
    }
}

impl std::error::Error for Error {}

/// " (did you mean `…`?)" for the nearest of `known`, unless none is near.
pub fn did_you_mean(word: &str, known: &[impl AsRef<str>]) -> String {
    let nearest = known.iter().map(AsRef::as_ref).map(|k| (strsim::levenshtein(word, k), k)).min();
    match nearest {
        Some((distance, k)) if distance <= 1 + k.len() / 3 => format!(" (did you mean `{k}`?)"),
        _ => String::new(),
    }
}

/// A list for messages: the first names, `most` of them, and the number of the others.
pub fn shortened(names: &[impl AsRef<str>], most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let some = names[..names.len() - more].iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{some} and {more} more") } else { some }
}

/// Whether a word is probably a misspelt `known`: it begins alike, and a letter, or two of a long word, are
/// wrong, and it is no plural. Stricter than [`did_you_mean`], for words that may be what they say.
pub fn is_typo(word: &str, known: &str) -> bool {
    let most = 1 + usize::from(known.len() > 7);
    let plural = word.strip_suffix('s') == Some(known);
    !plural && word.chars().next() == known.chars().next() && strsim::damerau_levenshtein(word, known) <= most
}

/// The error (exit code 2) for a name that no row of a table has; `known` are the rows' names, and `what`
/// says what they are.
pub fn unknown<'k>(what: &str, name: &str, known: impl Iterator<Item = &'k str>) -> Error {
    let known: Vec<&str> = known.collect();
    let near = did_you_mean(name, &known);
    Error::usage(format!("unknown {what} `{name}`{near}: expected one of {}", known.join(", ")))
}

/// The three nearest of `known`, the nearest first, such as "`ars`, `ers`, `ars.table`". Names that contain
/// the word come before names of fewer different letters: `r1` is a part of `robust_r1`, but nearer to `ars`.
/// Case is ignored.
pub fn nearest(word: &str, known: &[impl AsRef<str>]) -> String {
    let word = word.to_lowercase();
    let mut known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    known.sort_by_cached_key(|name| {
        let name = name.to_lowercase();
        (!name.contains(&word), strsim::levenshtein(&word, &name))
    });
    known.iter().take(3).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
