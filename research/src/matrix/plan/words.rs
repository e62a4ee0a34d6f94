//! Flags of a plan as words.

use crate::matrix::split;
use audit::{Error, Result};
use std::collections::BTreeSet;

/// A method with further flags before its own; its name stays first.
pub(super) fn with_flags_first(flags: &str, method: &str) -> String {
    let (name, own) = method.trim().split_once(char::is_whitespace).unwrap_or((method.trim(), ""));
    [vec![name.to_string()], joined(flags, own)].concat().join(" ")
}

/// Flags of audit that change the attack.
pub(super) const OF_ATTACKS: [&str; 7] =
    ["--suite", "--eps", "--alpha", "--steps", "--norm", "--form", "--protocol"];

/// Flags that exclude each other.
const EITHER: [&str; 2] = ["--steps", "--epochs"];

/// A method's own flags, and the common ones that it doesn't set itself.
pub(super) fn joined(own: &str, common: &str) -> Vec<String> {
    let mut words: Vec<String> = split(own).collect();
    let mut given: BTreeSet<String> =
        words.iter().filter(|word| is_flag(word)).map(|word| name_of(word).to_string()).collect();
    if EITHER.iter().any(|flag| given.contains(*flag)) {
        given.extend(EITHER.map(String::from));
    }
    let mut skipped = false;
    for word in split(common) {
        if is_flag(&word) {
            skipped = given.contains(name_of(&word));
        }
        if !skipped {
            words.push(word);
        }
    }
    words
}

/// Whether it is a flag's name. A negative number is a value.
fn is_flag(word: &str) -> bool {
    word.starts_with('-') && word.parse::<f64>().is_err()
}

/// The name in `--name` and in `--name=value`.
pub(super) fn name_of(word: &str) -> &str {
    word.split('=').next().unwrap_or_default()
}

pub(super) fn own_flags(key: &str, words: &str, own: &[&str]) -> Result<()> {
    match split(words).find(|word| own.contains(&name_of(word))) {
        Some(flag) => Err(Error::usage(format!("{key}: {flag} is given by the matrix itself; leave it out"))),
        None => Ok(()),
    }
}
