//! Verification: a list of pairs of images, with one identity or two. With columns, or as `pairs.txt` of LFW
//! (Huang et al., "Labeled Faces in the Wild", 2007).

use super::listing::{ListedImage, Listing, Rows, SourceLine, first_lines, image_of, root, trimmed};
use super::table::{Column, Form, Holds, Table, begins, is_image};
use super::{Dataset, Layout, ListedPair, Open, Role, Split};
use audit_base::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

const ABOUT: &str = "a .csv, .tsv, .txt or .jsonl file with the columns path_a, path_b, same (true or false) and optionally group, with paths \
                     relative to the file; or a folder with LFW's pairs.txt and a folder of images for each name, such as \
                     lfw/Name/Name_0001.jpg";

pub const LAYOUT: Layout = Layout {
    name: "pairs",
    about: ABOUT,
    takes_file: true,
    stretched: false,
    detect,
    has_splits: |_| false,
    open: Open::Split(open),
};

const FORM: Form = Form {
    columns: &[
        Column { also: &[&SIDES[0]], holds: Holds::Image, ..Column::required("path_a") },
        Column { also: &[&SIDES[1]], holds: Holds::Image, ..Column::required("path_b") },
        Column { also: &[&SAME], holds: Holds::Flag, ..Column::required("same") },
        Column::optional("group"),
    ],
    bare: &["path_a", "path_b", "same"],
    about: ABOUT,
};

const SIDES: [[&str; 7]; 2] = [
    ["path1", "image_a", "image1", "img_a", "img1", "file_a", "file1"],
    ["path2", "image_b", "image2", "img_b", "img2", "file_b", "file2"],
];
const SAME: [&str; 7] = ["is_same", "same_identity", "label", "match", "is_match", "genuine", "target"];
/// LFW's list.
const LIST: &str = "pairs.txt";
/// Part of the column names in Kaggle's copies of LFW's lists.
const NUMBER: &str = "imagenum1";
/// Folders of LFW's images beside the list, by archive.
const FOLDERS: [&str; 5] = ["", "lfw", "lfw_funneled", "lfw-deepfunneled", "lfw_align"];
/// Extensions of LFW's images. The published ones are JPEG.
const EXTENSIONS: [&str; 4] = ["jpg", "jpeg", "png", "bmp"];
/// Maximum number of pairs. Resampling more would take minutes.
const MAX_PAIRS: usize = 1_000_000;

/// Whether a file lists pairs, by its first lines.
pub fn is_pairs(path: &Path) -> bool {
    let lines = first_lines(path);
    is_table(path, &lines) || is_lfw(path, &lines)
}

fn is_table(path: &Path, lines: &[String]) -> bool {
    let folder = path.parent().unwrap_or(Path::new(""));
    lines.first().is_some_and(|line| begins(line, folder, &FORM, &["path_a", "path_b"]))
}

fn is_lfw(path: &Path, lines: &[String]) -> bool {
    let named = path.file_name().is_some_and(|name| name == LIST);
    let second = lines.get(1).is_some_and(|line| is_pair(line));
    let begins = second && (is_pair(&lines[0]) || is_head(&lines[0]));
    path.is_file() && (named || begins)
}

/// Whether a line is the first one of LFW's lists: the numbers of folds and pairs, or the names of Kaggle's
/// columns.
fn is_head(line: &str) -> bool {
    let mut fields = fields(line).into_iter();
    line.contains(NUMBER) || fields.all(|field| field.parse::<u32>().is_ok())
}

/// The fields of a line of LFW's lists. Names may contain blanks if tabs separate them.
fn fields(line: &str) -> Vec<&str> {
    let marks: &[char] = match line.contains(['\t', ',']) {
        true => &['\t', ','],
        false => &[' '],
    };
    line.split(marks).map(trimmed).filter(|field| !field.is_empty()).collect()
}

/// Whether a line is a pair of one person, `name n m`, or of two, `name1 n name2 m`.
fn is_pair(line: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let is_name = |text: &str| !is_number(text) && !is_image(text);
    match fields(line)[..] {
        [name, n, m] => is_name(name) && is_number(n) && is_number(m),
        [a, n, b, m] => is_name(a) && is_number(n) && is_name(b) && is_number(m),
        _ => false,
    }
}

fn detect(path: &Path) -> bool {
    is_pairs(path) || (path.is_dir() && root(path, "lfw", LIST).is_some())
}

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    if let Some(split) = split {
        return Err(Error::usage(format!("pairs have no splits: leave --split {split} out")));
    }
    let list = match path.is_dir() {
        true => root(path, "lfw", LIST).map(|folder| folder.join(LIST)),
        false => Some(path.to_path_buf()),
    };
    let list = list.ok_or_else(|| super::listing::missing(&path.join(LIST), ABOUT))?;
    let lines = first_lines(&list);
    let mut pairs = Pairs::default();
    match is_lfw(&list, &lines) && !is_table(&list, &lines) {
        true => pairs.list(&list)?,
        false => pairs.table(&list)?,
    }
    pairs.finish(path)
}

/// Pairs while they are read.
#[derive(Default)]
struct Pairs {
    pairs: Vec<ListedPair>,
    /// Position of each pair in the list.
    places: Vec<String>,
    /// See [`Dataset::notes`].
    notes: Vec<String>,
    /// Id of an image → its path, its identity if the list names it, and its first position in the list.
    images: BTreeMap<String, (PathBuf, Option<String>, String)>,
}

/// One side of a pair: id, path, and the identity if the list names it.
type Side = (String, PathBuf, Option<String>);

impl Pairs {
    fn add(&mut self, place: SourceLine, sides: [Side; 2], same: bool, group: Option<String>) -> Result<()> {
        if self.pairs.len() == MAX_PAIRS {
            return Err(
                place.wrong(format!("more than {MAX_PAIRS} pairs. Draw some of them into a smaller list"))
            );
        }
        let shown = place.to_string();
        let [probe, reference] = sides.map(|(id, path, class)| {
            self.images.entry(id.clone()).or_insert_with(|| (path, class, shown.clone()));
            id
        });
        if probe == reference {
            return Err(place.wrong(format!("both images are `{probe}`. A pair is two images")));
        }
        self.pairs.push(ListedPair { probe, reference, same, group, fold: None });
        self.places.push(shown);
        Ok(())
    }

    fn table(&mut self, path: &Path) -> Result<()> {
        let table = Table::read(path, &FORM, &[])?;
        self.notes = table.notes();
        let beside = path.parent().unwrap_or(Path::new(""));
        let mut images: Option<PathBuf> = None;
        for record in table.records() {
            let record = record?;
            let mut side = |column: &str| -> Result<Side> {
                let file = record.need(column)?;
                let folder = images
                    .get_or_insert_with(|| folder_of(beside, |folder| image_of(folder, file).1.exists()));
                let (id, path) = image_of(folder, file);
                Ok((id, path, None))
            };
            record.need("same")?;
            let sides = [side("path_a")?, side("path_b")?];
            self.add(record.place, sides, record.flag("same")?, record.get("group").map(str::to_owned))?;
        }
        Ok(())
    }

    /// Reads LFW's list: an optional line with the numbers of folds and pairs, then pairs as `name n m` or
    /// `name1 n name2 m`, fold by fold.
    fn list(&mut self, path: &Path) -> Result<()> {
        let rows = Rows::read(path.to_path_buf(), ABOUT)?;
        let [(place, head)] = rows.first()?;
        let headless = is_pair(head);
        let counts: Vec<i64> = match headless || head.contains(NUMBER) {
            true => Vec::new(),
            false => fields(head)
                .into_iter()
                .map(|n| place.number("a number of the first line", n, 1))
                .collect::<Result<_>>()?,
        };
        // Each fold has this number of genuine pairs, then the same number of impostor pairs. A list of one
        // fold omits the number of folds.
        let stated = match counts[..] {
            [] => None,
            [pairs] => Some(pairs.saturating_mul(2)),
            [folds, pairs] => Some(folds.saturating_mul(2).saturating_mul(pairs)),
            _ => {
                return Err(place.wrong(format!(
                    "expected `10 300`, the number of folds and of pairs of one person in each, found `{head}`"
                )));
            }
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut images: Option<PathBuf> = None;
        for (place, line) in rows.lines().skip(usize::from(!headless)) {
            let fields = fields(line);
            let (sides, same) = match fields[..] {
                [name, n, m] => ([(name, n), (name, m)], true),
                [a, n, b, m] => ([(a, n), (b, m)], false),
                _ => {
                    return Err(place.wrong(format!(
                        "expected `name n m` or `name1 n name2 m`, found {} fields in `{line}`",
                        fields.len()
                    )));
                }
            };
            if !same && sides[0].0 == sides[1].0 {
                return Err(place.wrong(format!("a pair of two persons has the name `{}` twice", sides[0].0)));
            }
            let images =
                images.get_or_insert_with(|| folder_of(folder, |folder| folder.join(sides[0].0).is_dir()));
            let [a, b] = sides.map(|(name, number)| -> Result<Side> {
                let number = place.number("the number of an image", number, 1)?;
                let stem = format!("{name}/{name}_{number:04}");
                let path = |extension: &str| images.join(format!("{stem}.{extension}"));
                let existing = EXTENSIONS.iter().map(|e| path(e)).find(|path| path.exists());
                let path = existing.unwrap_or_else(|| path(EXTENSIONS[0]));
                Ok((stem, path, Some(name.into())))
            });
            self.add(place, [a?, b?], same, None)?;
        }
        if let [_, pairs] = counts[..] {
            let each = 2 * usize::try_from(pairs).unwrap_or(usize::MAX / 2);
            self.pairs.iter_mut().enumerate().for_each(|(place, pair)| pair.fold = Some(place / each));
        }
        match stated {
            Some(stated) if self.pairs.len() as i64 != stated => Err(place.wrong(format!(
                "`{head}` announces {stated} pairs, and the list has {}. Take the whole list, or correct the line",
                self.pairs.len()
            ))),
            _ => Ok(()),
        }
    }

    /// The data set, with each image once. The first image of a pair is a query, the second is in the
    /// gallery.
    fn finish(self, path: &Path) -> Result<Dataset> {
        let classes = self.identities()?;
        let probes: std::collections::HashSet<&str> = self.pairs.iter().map(|p| p.probe.as_str()).collect();
        let mut listing = Listing::default();
        for (id, (path, _, place)) in &self.images {
            let role = if probes.contains(id.as_str()) { Role::Both } else { Role::Gallery };
            let image = ListedImage::new(id, &classes[id.as_str()], path.clone());
            listing.add(place, ListedImage { role, ..image })?;
        }
        let genuine = self.pairs.iter().filter(|p| p.same).count();
        let part = format!("{genuine} genuine and {} impostor pairs", self.pairs.len() - genuine);
        let notes = self.notes.iter().cloned().chain(self.repeated()).collect();
        Ok(Dataset { pairs: self.pairs, notes, ..listing.finish(path, LAYOUT.name, part)? })
    }

    /// That pairs are listed twice, in whatever order of their images; `None` if they are not. It is no
    /// error: published lists are read as they are, and a pair in both orders has both its images attacked.
    fn repeated(&self) -> Option<String> {
        let mut listed: HashMap<[&str; 2], &str> = HashMap::new();
        let (mut rows, mut first) = (0, None);
        for (pair, place) in self.pairs.iter().zip(&self.places) {
            let mut images = [pair.probe.as_str(), pair.reference.as_str()];
            images.sort_unstable();
            if let Some(before) = listed.get(&images) {
                rows += 1;
                first.get_or_insert((place, images, *before));
            } else {
                listed.insert(images, place);
            }
        }
        let (place, [a, b], before) = first?;
        let more = match rows {
            1 => String::new(),
            rows => format!(" ({rows} rows repeat a pair)"),
        };
        Some(format!(
            "{place}: the pair of `{a}` and `{b}` was listed before, at {before}{more}. Error rates count every row, so that such \
             a pair counts twice"
        ))
    }

    /// The identity of each image: the name in the list, or the first image that genuine pairs connect with
    /// it. Error (exit code 2): a pair of two identities whose images genuine pairs connect.
    fn identities(&self) -> Result<HashMap<&str, String>> {
        let ids: Vec<&str> = self.images.keys().map(String::as_str).collect();
        let index: HashMap<&str, usize> = ids.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        let mut parent: Vec<usize> = (0..ids.len()).collect();
        fn head(parent: &mut [usize], mut i: usize) -> usize {
            while parent[i] != i {
                parent[i] = parent[parent[i]];
                i = parent[i];
            }
            i
        }
        for pair in self.pairs.iter().filter(|p| p.same) {
            let [a, b] = [&pair.probe, &pair.reference].map(|id| head(&mut parent, index[id.as_str()]));
            // The first by name stays the head.
            parent[a.max(b)] = a.min(b);
        }
        for (pair, place) in self.pairs.iter().zip(&self.places).filter(|(p, _)| !p.same) {
            let [a, b] = [&pair.probe, &pair.reference].map(|id| head(&mut parent, index[id.as_str()]));
            if a == b {
                return Err(Error::usage(format!(
                    "{place}: `{}` and `{}` are said to be of two identities, and pairs with `same` connect them. Correct one of \
                     these rows",
                    pair.probe, pair.reference
                )));
            }
        }
        let classes = ids.iter().enumerate().map(|(i, id)| match &self.images[*id].1 {
            Some(name) => name.clone(),
            None => ids[head(&mut parent, i)].to_string(),
        });
        Ok(ids.iter().copied().zip(classes).collect())
    }
}

/// The folder beside a list with its images, found by `holds`.
fn folder_of(beside: &Path, holds: impl Fn(&Path) -> bool) -> PathBuf {
    let folder = FOLDERS.iter().map(|folder| beside.join(folder)).find(|folder| holds(folder));
    folder.unwrap_or_else(|| beside.to_path_buf())
}
