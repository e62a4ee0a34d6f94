//! Verification: a list of pairs of images, each of one identity or of two. As a CSV file, or as `pairs.txt` of LFW (Huang et al.,
//! "Labeled Faces in the Wild", 2007).

use super::csv::CsvTable;
use super::listing::{ListedImage, Listing, Rows, SourceLine, root};
use super::{Dataset, Layout, ListedPair, Role, Split};
use audit_base::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

const ABOUT: &str = "a .csv file with the columns path_a, path_b, same (true or false) and optionally group, with paths relative to \
                     the file; or a folder with LFW's pairs.txt and a folder of images for each name, such as \
                     lfw/Name/Name_0001.jpg";

pub const LAYOUT: Layout = Layout {
    name: "pairs",
    about: ABOUT,
    takes_file: true,
    stretched: false,
    detect,
    has_splits: |_| false,
    open,
};

/// Columns of the CSV file.
const COLUMNS: [&str; 4] = ["path_a", "path_b", "same", "group"];
/// LFW's list.
const LIST: &str = "pairs.txt";
/// Where LFW's images lie beside the list, by the archive that they come from.
const FOLDERS: [&str; 5] = ["", "lfw", "lfw_funneled", "lfw-deepfunneled", "lfw_align"];
/// The endings that LFW's images may have. The published ones are JPEG.
const ENDINGS: [&str; 4] = ["jpg", "jpeg", "png", "bmp"];
/// The most pairs. Resampling more would take minutes.
const MAX_PAIRS: usize = 1_000_000;

/// Whether a path is a CSV file of pairs, by its header.
pub fn is_table(path: &Path) -> bool {
    use std::io::{BufRead, BufReader, Read};
    let csv = path.is_file() && path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"));
    let Some(file) = csv.then(|| std::fs::File::open(path).ok()).flatten() else { return false };
    let mut header = Vec::new();
    // A longer first line is no header.
    let read = BufReader::new(file.take(1 << 16)).read_until(b'\n', &mut header);
    read.is_ok() && String::from_utf8_lossy(&header).contains(COLUMNS[0])
}

fn is_list(path: &Path) -> bool {
    path.is_file() && path.file_name().is_some_and(|name| name == LIST)
}

fn detect(path: &Path) -> bool {
    is_table(path) || is_list(path) || (path.is_dir() && root(path, "lfw", LIST).is_some())
}

fn open(path: &Path, split: Option<Split>) -> Result<Dataset> {
    if let Some(split) = split {
        return Err(Error::usage(format!("pairs have no splits: leave --split {split} out")));
    }
    let mut pairs = Pairs::default();
    if path.is_dir() {
        let folder =
            root(path, "lfw", LIST).ok_or_else(|| super::listing::missing(&path.join(LIST), ABOUT))?;
        pairs.list(&folder.join(LIST))?;
    } else if is_list(path) {
        pairs.list(path)?;
    } else {
        pairs.table(path)?;
    }
    pairs.finish(path)
}

/// Pairs as they are read.
#[derive(Default)]
struct Pairs {
    pairs: Vec<ListedPair>,
    /// Of each pair, where it is listed.
    places: Vec<String>,
    /// Of each image: where it lies, its identity where the list names it, and where it is listed first.
    images: BTreeMap<String, (PathBuf, Option<String>, String)>,
}

/// One side of a pair: id, path, and the identity where the list names it.
type Side = (String, PathBuf, Option<String>);

impl Pairs {
    fn add(&mut self, place: SourceLine, sides: [Side; 2], same: bool, group: Option<String>) -> Result<()> {
        if self.pairs.len() == MAX_PAIRS {
            return Err(
                place.wrong(format!("more than {MAX_PAIRS} pairs. Draw some of them into a smaller list"))
            );
        }
        let at = place.to_string();
        let [probe, reference] = sides.map(|(id, path, class)| {
            self.images.entry(id.clone()).or_insert_with(|| (path, class, at.clone()));
            id
        });
        if probe == reference {
            return Err(place.wrong(format!("both images are `{probe}`. A pair is two images")));
        }
        self.pairs.push(ListedPair { probe, reference, same, group, fold: None });
        self.places.push(at);
        Ok(())
    }

    /// Reads a CSV file.
    fn table(&mut self, path: &Path) -> Result<()> {
        let table = CsvTable::read(path, &COLUMNS[..3], &COLUMNS, ABOUT)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for record in table.records() {
            let record = record?;
            let side = |column: &str| -> Result<Side> {
                let file = record.need(column)?;
                Ok((file.into(), folder.join(file), None))
            };
            record.need("same")?;
            let sides = [side("path_a")?, side("path_b")?];
            self.add(record.place, sides, record.flag("same")?, record.get("group").map(str::to_owned))?;
        }
        Ok(())
    }

    /// Reads LFW's list: a line with the number of folds and of pairs, then pairs as `name n m` or `name1 n name2 m`, fold by fold.
    fn list(&mut self, path: &Path) -> Result<()> {
        let rows = Rows::read(path.to_path_buf(), ABOUT)?;
        let [(place, head)] = rows.first()?;
        let counts: Vec<i64> = head
            .split_whitespace()
            .map(|n| place.number("a number of the first line", n, 1))
            .collect::<Result<_>>()?;
        // Of each fold so many pairs of one person, and then as many of two. A list of one fold leaves its number out.
        let stated = match counts[..] {
            [pairs] => 2 * pairs,
            [folds, pairs] => folds.saturating_mul(2).saturating_mul(pairs),
            _ => {
                return Err(place.wrong(format!(
                    "expected `10 300`, the number of folds and of pairs of one person in each, found `{head}`"
                )));
            }
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut images: Option<PathBuf> = None;
        for (place, line) in rows.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
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
            let images = images.get_or_insert_with(|| folder_of(folder, sides[0].0));
            let [a, b] = sides.map(|(name, number)| -> Result<Side> {
                let number = place.number("the number of an image", number, 1)?;
                let stem = format!("{name}/{name}_{number:04}");
                let path = |ending: &str| images.join(format!("{stem}.{ending}"));
                let found = ENDINGS.iter().map(|e| path(e)).find(|path| path.exists());
                let path = found.unwrap_or_else(|| path(ENDINGS[0]));
                Ok((stem, path, Some(name.into())))
            });
            self.add(place, [a?, b?], same, None)?;
        }
        if let [_, pairs] = counts[..] {
            let each = 2 * usize::try_from(pairs).unwrap_or(usize::MAX / 2);
            self.pairs.iter_mut().enumerate().for_each(|(place, pair)| pair.fold = Some(place / each));
        }
        match self.pairs.len() as i64 == stated {
            true => Ok(()),
            false => Err(place.wrong(format!(
                "`{head}` announces {stated} pairs, and the list has {}. Take the whole list, or correct the line",
                self.pairs.len()
            ))),
        }
    }

    /// The data set: each image once. The first image of a pair is a query, the second an item of the gallery.
    fn finish(self, path: &Path) -> Result<Dataset> {
        let classes = self.identities()?;
        let probes: std::collections::HashSet<&str> = self.pairs.iter().map(|p| p.probe.as_str()).collect();
        let mut listing = Listing::default();
        for (id, (path, _, place)) in &self.images {
            let role = if probes.contains(id.as_str()) { Role::Both } else { Role::Gallery };
            let class = classes[id.as_str()].clone();
            listing.add(
                place,
                ListedImage { id: id.clone(), class, path: path.clone(), role, ..ListedImage::default() },
            )?;
        }
        let genuine = self.pairs.iter().filter(|p| p.same).count();
        let part = format!("{genuine} genuine and {} impostor pairs", self.pairs.len() - genuine);
        Ok(Dataset { pairs: self.pairs, ..listing.finish(path, LAYOUT.name, part)? })
    }

    /// The identity of each image: the name that the list gives, or the first image that genuine pairs connect it with. Error (exit code 2):
    /// the pair of two identities whose images genuine pairs connect.
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

/// The folder beside LFW's list that holds the images of `name`.
fn folder_of(beside: &Path, name: &str) -> PathBuf {
    let found = FOLDERS.iter().map(|folder| beside.join(folder)).find(|folder| folder.join(name).is_dir());
    found.unwrap_or_else(|| beside.to_path_buf())
}
