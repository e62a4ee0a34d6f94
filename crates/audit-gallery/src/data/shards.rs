//! Data sets divided into files (shards), whose names state their split.

use super::Split;
use super::folder::Contents;
use super::listing::{is_list, missing, named};
use audit_base::{Error, files};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub const TAR: &str = "tar";
pub const PARQUET: &str = "parquet";
/// The folder in which shards may lie.
const INNER: &str = "data";
/// Maximum size of a list of shards, in bytes.
const LIST: u64 = 1 << 24;
/// Maximum number of shards in a list.
const MOST: usize = 1 << 20;

/// Maximum number of ranges in a name, and of digits of their numbers.
const RANGES: usize = 8;
const DIGITS: usize = 20;

pub struct Shards {
    /// Files to read, sorted.
    pub taken: Vec<PathBuf>,
    /// Their names in the ids of images: the files' names, or paths if two files have the same.
    pub names: Vec<String>,
    /// See [`super::Dataset::notes`].
    pub notes: Vec<String>,
    /// Name of the split, for reports.
    pub part: String,
    /// The file that lists the shards, if one does.
    list: Option<PathBuf>,
}

impl Shards {
    /// The files of this extension at `path`: the path itself, those in a list, those in the folder, or those
    /// in its folder `data`; `None` without any. If some names contain `train`, they are the train split, and
    /// the others are for evaluation.
    pub fn of(path: &Path, extension: &str, split: Option<Split>) -> Option<Shards> {
        let all = files(path, extension);
        let is_training = training(&all);
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
        let list = is_list(path).then(|| path.to_path_buf());
        let name = |shard: &PathBuf| shard.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut names: Vec<String> = taken.iter().map(name).collect();
        if names.iter().collect::<HashSet<_>>().len() < names.len() {
            let root = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
            let below =
                |shard: &PathBuf| shard.strip_prefix(root).unwrap_or(shard).to_string_lossy().into_owned();
            names = taken.iter().map(|shard| below(shard).replace('\\', "/")).collect();
        }
        Some(Shards { taken, names, notes, part, list })
    }

    /// An error about a shard, with the list that names it.
    pub fn wrong(&self, e: Error) -> Error {
        match &self.list {
            Some(list) => e.context(list.display()),
            None => e,
        }
    }

    /// Whether `path` is a data set of shards. A file of this extension beside class folders, such as the
    /// stored embeddings of their images, is none.
    pub fn are_at(path: &Path, extension: &str) -> bool {
        let of_class = |(name, folder): &(String, PathBuf)| {
            name != INNER && Contents::of(folder).is_ok_and(|inside| !inside.images.is_empty())
        };
        let classes = |inside: Contents| inside.folders.iter().filter(|folder| of_class(folder)).count();
        let has_classes = || Contents::of(path).is_ok_and(|inside| classes(inside) > 1);
        Shards::of(path, extension, None).is_some() && !(path.is_dir() && has_classes())
    }

    /// The error if [`Shards::of`] finds none: there are no files, or none of the split.
    pub fn missing(path: &Path, extension: &str, split: Option<Split>, about: &str) -> Error {
        match split.filter(|_| !files(path, extension).is_empty()) {
            None => missing(&path.join(format!("0000.{extension}")), about),
            Some(split) => Error::usage(format!(
                "{}: none of its .{extension} files is of the {split} split. Those whose names contain `train` are for training, and the \
                 others for evaluation. Leave --split out, or name other files",
                path.display()
            )),
        }
    }

    /// Whether there are shards of the train split.
    pub fn have_splits(path: &Path, extension: &str) -> bool {
        let all = files(path, extension);
        let is_training = training(&all);
        all.iter().any(|shard| is_training(shard))
    }
}

/// Whether a word of a file's name begins with "train", or of its folder's name if files in several folders
/// have one name.
fn training(all: &[PathBuf]) -> impl Fn(&Path) -> bool + use<> {
    let repeated = all.iter().filter_map(|shard| shard.file_name()).collect::<HashSet<_>>().len() < all.len();
    let begins = |name: Option<&OsStr>| {
        let name = name.unwrap_or_default().to_string_lossy().to_lowercase();
        name.split(|c: char| !c.is_alphanumeric()).any(|word| word.starts_with("train"))
    };
    move |shard| {
        let folder = shard.parent().and_then(Path::file_name).filter(|_| repeated);
        begins(shard.file_name()) || begins(folder)
    }
}

/// The files of this extension at `path`, as [`Shards::of`] finds them.
pub fn files(path: &Path, extension: &str) -> Vec<PathBuf> {
    let fits = |path: &PathBuf| {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !hidden && path.is_file() && path.extension().is_some_and(|own| own.eq_ignore_ascii_case(extension))
    };
    if is_list(path) {
        return listed(path, extension).unwrap_or_default();
    }
    if !path.is_dir() {
        return Some(path.to_path_buf()).filter(fits).into_iter().collect();
    }
    let inside = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(fits).collect();
        all.sort();
        all
    };
    let listed = inside(path);
    if listed.is_empty() { inside(&path.join(INNER)) } else { listed }
}

/// Whether a file lists shards, and not images.
pub fn lists(path: &Path) -> bool {
    is_list(path) && [TAR, PARQUET].iter().any(|extension| listed(path, extension).is_some())
}

/// The shards listed in a file, one per line, in the file's folder; `None` if a line names anything else.
fn listed(list: &Path, extension: &str) -> Option<Vec<PathBuf>> {
    let text = files::read_text(list, LIST).ok()?;
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim).filter(|line| !line.is_empty());
    let folder = list.parent().unwrap_or(Path::new(""));
    let mut all = Vec::new();
    for line in lines {
        if !Path::new(line).extension()?.eq_ignore_ascii_case(extension) {
            return None;
        }
        all.extend(expand(line, MOST - all.len())?.into_iter().map(|name| folder.join(name)));
    }
    Some(all).filter(|all| !all.is_empty())
}

/// The names of a pattern such as WebDataset's `shard-{000..010}.tar`. `None` if there are more than `most`,
/// or more than [`RANGES`] ranges.
fn expand(pattern: &str, most: usize) -> Option<Vec<String>> {
    let range = |pattern: &str| {
        let at = pattern.find('{')?;
        let length = pattern[at..].find('}')?;
        let (from, to) = pattern[at + 1..at + length].split_once("..")?;
        let digits = from.len().min(DIGITS);
        Some((at..=at + length, from.parse::<u64>().ok()?..=to.parse::<u64>().ok()?, digits))
    };
    let mut names = vec![pattern.to_string()];
    for _ in 0..=RANGES {
        // All names of a pattern have the same ranges left, at other places if numbers have more digits.
        let Some((_, numbers, _)) = names.first().and_then(|name| range(name)) else {
            return Some(names);
        };
        let count = numbers.end().checked_sub(*numbers.start()).map_or(0, |more| more.saturating_add(1));
        if count.checked_mul(names.len() as u64).is_none_or(|all| all > most as u64) {
            return None;
        }
        let each = |name: &String| -> Option<Vec<String>> {
            let (place, numbers, digits) = range(name)?;
            let (front, back) = (&name[..*place.start()], &name[*place.end() + 1..]);
            Some(numbers.map(|number| format!("{front}{number:0digits$}{back}")).collect())
        };
        names = names.iter().map(each).collect::<Option<Vec<_>>>()?.concat();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_every_shard() {
        let all = |pattern: &str| expand(pattern, 100);
        let names = |pattern: &str| all(pattern).unwrap();
        assert_eq!(names("a.tar"), ["a.tar"]);
        assert_eq!(names("x/a-{008..010}.tar"), ["x/a-008.tar", "x/a-009.tar", "x/a-010.tar"]);
        assert_eq!(names("{0..1}-{2..3}"), ["0-2", "0-3", "1-2", "1-3"]);
        assert_eq!(names("{9..10}-{2..3}.tar"), ["9-2.tar", "9-3.tar", "10-2.tar", "10-3.tar"]);
        assert_eq!(names("{a,b}.tar"), ["{a,b}.tar"]);
        assert!(names("{2..1}.tar").is_empty());
        assert_eq!(names("{0..1}x{a,b}"), ["0x{a,b}", "1x{a,b}"]);
        assert_eq!(all("{0..18446744073709551615}.tar"), None);
        // A list of one line neither hangs nor fills the memory.
        assert_eq!(all("{0..18446744073709551615}{2..1}.tar"), None);
        assert_eq!(all(&"{0..0}".repeat(20_000)), None);
        assert!(names(&format!("{{{}1..1}}", "0".repeat(10_000)))[0].len() < 100);
    }
}
