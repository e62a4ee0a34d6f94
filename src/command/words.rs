//! Errors of command lines that clap refuses.

use super::Cli;
use crate::Error;
use crate::error::did_you_mean;
use crate::report::escape::shell;
use crate::visible::is_obeyed;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::path::Path;

/// Suggests a command if the first word looks like a typo: `audit rnu`, `audit inspct model.onnx`. `None` if
/// it is a command, a file, or unlike any command.
pub fn misspelt(word: &OsStr) -> Option<Error> {
    let word = word.to_str().filter(|word| !word.starts_with('-'))?;
    let all = Cli::command();
    let names: Vec<&str> = all.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name()).collect();
    let near = did_you_mean(word, &names);
    if all.find_subcommand(word).is_some()
        || near.is_empty()
        || word.contains(['.', '/', '\\'])
        || Path::new(word).exists()
    {
        return None;
    }
    Some(Error::usage(format!(
        "there is no file {word}, and no command of that name{near}. Commands are {}; a model is an .onnx file",
        names.join(", ")
    )))
}

/// Adds the corrected command line to an error that suggests flags, if the command takes them. `words` is the
/// line without the program's name.
pub fn with_fix(error: Error, words: &[OsString]) -> Error {
    let Some(flags) = error.flags.first() else { return error };
    let words = words.iter().map(|word| word.to_string_lossy().into_owned());
    let line: Vec<String> =
        std::iter::once("audit".into()).chain(words).chain(flags.iter().cloned()).collect();
    // A line with other characters than it shows is not for pasting.
    if line.iter().any(|word| word.contains(is_obeyed)) {
        return error;
    }
    // Flags of a comparison apply to both models.
    if line.get(1).is_some_and(|word| word == "compare") || Cli::try_parse_from(&line).is_err() {
        return error;
    }
    let line: Vec<String> = line.iter().map(|word| shell(word)).collect();
    Error { message: format!("{}\nfix: {}", error.message, line.join(" ")), ..error }
}

/// Flags of other tools, and the flags of `audit` with the same meaning.
const ELSEWHERE: [(&str, &str); 15] = [
    ("--epsilon", "--eps 8/255"),
    ("--iterations", "--steps N"),
    ("--device", "--ep cuda or --ep cpu"),
    ("--gpu", "--ep cuda"),
    ("--dataset", "--data FOLDER"),
    ("--images", "--data FOLDER"),
    ("--attack", "--suite NAME; `audit suites` lists them"),
    ("--num-queries", "--max-queries N"),
    ("--limit", "--max-queries N"),
    ("--query", "--data FOLDER, with the folders query and gallery in it"),
    ("--workers", "--threads N"),
    ("--image-size", "--size N, or --resize N for the size before the crop"),
    ("--json", "-o FILE.json"),
    ("--html", "-o FILE.html"),
    ("--model", "the path of the model without a flag"),
];

/// Flags of several numbers, with an example.
const LISTS: [(&str, &str); 3] =
    [("--mean", "0.485,0.456,0.406"), ("--std", "0.229,0.224,0.225"), ("--range", "0,255")];

/// Flags of a metric and its bound.
const BOUNDS: [&str; 3] = ["--fail-under", "--fail-over", "--max-drop"];

/// A value that is written as several words: `--mean 0.485 0.456 0.406`, `--fail-under robust_r1 30`.
fn apart(words: &[OsString]) -> Option<Error> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    words.windows(3).find_map(|three| {
        let [flag, value, next] = [&*three[0], &*three[1], &*three[2]];
        next.parse::<f32>().ok()?;
        if let Some((_, example)) = LISTS.iter().find(|(list, _)| *list == flag) {
            return Some(Error::usage(format!(
                "{flag}: its values are separated by commas, without blanks, such as {flag} {example}"
            )));
        }
        let bound = BOUNDS.contains(&flag) && !value.contains('=');
        bound.then(|| Error::usage(format!("{flag} takes METRIC=VALUE: {flag} {value}={next}")))
    })
}

/// The words of an audit's command line that are neither flags nor their values.
fn operands(words: &[OsString]) -> Vec<String> {
    let cli = Cli::command();
    let takes_value = |word: &str| {
        let flag = |arg: &clap::Arg| {
            let long = arg.get_long().is_some_and(|long| word == format!("--{long}"));
            long || arg.get_short().is_some_and(|short| word == format!("-{short}"))
        };
        cli.get_arguments().any(|arg| flag(arg) && arg.get_action().takes_values())
    };
    let mut found = Vec::new();
    let mut rest = words.iter().map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = rest.next() {
        match word.starts_with('-') {
            true if takes_value(&word) => drop(rest.next()),
            true => {}
            false => found.push(word),
        }
    }
    found
}

/// A better hint than clap's own error, if there is one. `words` is the line without the program's name.
pub fn advised(wrong: &clap::Error, words: &[OsString]) -> Option<Error> {
    let text = |kind| match wrong.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let given = |kind| text(kind).unwrap_or_default().to_string();
    // Words that no flag takes.
    let several = [ErrorKind::UnknownArgument, ErrorKind::ArgumentConflict, ErrorKind::InvalidSubcommand];
    if let Some(error) = several.contains(&wrong.kind()).then(|| apart(words)).flatten() {
        return Some(error);
    }
    match wrong.kind() {
        ErrorKind::MissingRequiredArgument if operands(words).is_empty() => {
            let line: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            let flags = if line.is_empty() { "--data FOLDER".into() } else { line.join(" ") };
            Some(Error::usage(format!(
                "name a model, an .onnx file: `audit MODEL.onnx {flags}`. `audit inspect MODEL.onnx` describes a file, and `audit --help` \
                 lists commands and flags"
            )))
        }
        ErrorKind::UnknownArgument => unknown_flag(&given(ContextKind::InvalidArg), words),
        ErrorKind::ValueValidation => {
            wrong_value(wrong.source()?, &given(ContextKind::InvalidArg), &given(ContextKind::InvalidValue))
        }
        ErrorKind::ArgumentConflict | ErrorKind::InvalidSubcommand => two_operands(words),
        _ => None,
    }
}

/// The hint about a flag that the command doesn't have.
fn unknown_flag(flag: &str, words: &[OsString]) -> Option<Error> {
    // A number below 0 looks like a flag.
    if flag.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.')) {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        // For -12 clap names -1.
        let pair = words.windows(2).find(|pair| pair[0].starts_with("--") && pair[1].starts_with(flag))?;
        return Some(Error::usage(format!("{}: expected a number of 0 or more, found {}", pair[0], pair[1])));
    }
    if let Some((_, here)) = ELSEWHERE.iter().find(|(other, _)| *other == flag) {
        return Some(Error::usage(format!("unknown flag {flag}; use {here}")));
    }
    // A flag of audits that this command doesn't have.
    let (audit, name) = (Cli::command(), words.first()?.to_str()?);
    let command = audit.find_subcommand(name)?;
    let known = audit.get_arguments().any(|arg| {
        let short = arg.get_short().is_some_and(|short| flag == format!("-{short}"));
        short || arg.get_long().is_some_and(|long| flag == format!("--{long}"))
    });
    known.then(|| {
        let name = command.get_name();
        Error::usage(format!("audit {name} doesn't have {flag}, a flag of `audit MODEL`. Leave it out; `audit {name} --help` lists its flags"))
    })
}

/// The hint about a value that is no number.
fn wrong_value(reason: &(dyn std::error::Error + 'static), flag: &str, found: &str) -> Option<Error> {
    if reason.is::<ParseFloatError>() {
        let name = flag.split(' ').next().unwrap_or_default();
        let (_, example) = LISTS.iter().find(|(list, _)| *list == name)?;
        return Some(Error::usage(format!(
            "{name}: expected numbers separated by commas, such as {name} {example}; found `{found}`"
        )));
    }
    let reason = reason.downcast_ref::<ParseIntError>()?;
    matches!(reason.kind(), IntErrorKind::InvalidDigit | IntErrorKind::Empty)
        .then(|| Error::usage(format!("{flag}: expected a whole number of 0 or more, found `{found}`")))
}

/// The hint about a second word that is no flag.
fn two_operands(words: &[OsString]) -> Option<Error> {
    let operands = operands(words);
    let [model, second, ..] = operands.as_slice() else { return None };
    if model == "help" {
        return misspelt(OsStr::new(second));
    }
    let cli = Cli::command();
    let is_command = |word: &str| cli.find_subcommand(word).is_some();
    if is_command(model) {
        return None;
    }
    if is_command(second) {
        return Some(Error::usage(format!("a command comes first: `audit {second} {model}`")));
    }
    let is_path = |word: &str| word.contains(['.', '/', '\\']) || Path::new(word).exists();
    Some(Error::usage(match second.ends_with(".onnx") {
        true if !is_path(model) => format!(
            "there is no command {model}. `audit {second} --data FOLDER` audits the model; `audit --help` lists the \
             commands"
        ),
        true => format!(
            "{second}: audit takes one model at a time. `audit compare {model} {second} --data FOLDER` compares two"
        ),
        false => format!(
            "{second}: audit takes one model at a time. Name images with --data: `audit {model} --data {second}`"
        ),
    }))
}
