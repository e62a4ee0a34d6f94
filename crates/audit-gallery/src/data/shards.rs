//! Data sets that are cut into files (shards), whose names say which split they are of.

use super::Split;
use super::listing::named;
use std::path::{Path, PathBuf};

/// The shards of a split.
pub struct Shards {
    /// Those to read, sorted.
    pub taken: Vec<PathBuf>,
    /// See [`super::Dataset::notes`].
    pub notes: Vec<String>,
    /// The part of the data that they are, for reports.
    pub part: String,
}

impl Shards {
    /// The files of this ending at `path`: it, those in the folder, or those in its folder `data`; `None` without any. If the names of some say
    /// `train`, they are of this split, and the others are to evaluate on.
    pub fn of(path: &Path, ending: &str, split: Option<Split>) -> Option<Shards> {
        let all = files(path, ending);
        let both = all.iter().any(|shard| is_training(shard)) && !all.iter().all(|shard| is_training(shard));
        let (taken, others): (Vec<_>, Vec<_>) = match (split, both) {
            (None, false) => (all, Vec::new()),
            _ => all.into_iter().partition(|shard| is_training(shard) == (split == Some(Split::Train))),
        };
        if taken.is_empty() {
            return None;
        }
        let names: Vec<_> = others.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        let note = format!("{}: files of another split are not read: {}", path.display(), names.join(", "));
        let notes = if names.is_empty() { Vec::new() } else { vec![note] };
        let part = if split.is_none() && !both { "all files".into() } else { named(split) };
        Some(Shards { taken, notes, part })
    }

    /// Whether there are shards of the train split.
    pub fn have_splits(path: &Path, ending: &str) -> bool {
        files(path, ending).iter().any(|shard| is_training(shard))
    }
}

/// Whether a word of the file's name begins with "train".
fn is_training(shard: &Path) -> bool {
    let name = shard.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    name.split(|c: char| !c.is_alphanumeric()).any(|word| word.starts_with("train"))
}

fn files(path: &Path, ending: &str) -> Vec<PathBuf> {
    let fits = |path: &PathBuf| {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !hidden && path.is_file() && path.extension().is_some_and(|own| own.eq_ignore_ascii_case(ending))
    };
    if !path.is_dir() {
        return Some(path.to_path_buf()).filter(fits).into_iter().collect();
    }
    let inside = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(fits).collect();
        all.sort();
        all
    };
    let own = inside(path);
    if own.is_empty() { inside(&path.join("data")) } else { own }
}
