//! Embeddings of a data set's images as a file: `audit embed` writes it once, and every part of a run reads
//! it instead of embedding all images again.
//!
//! A row is keyed by the hash of its image. `made` describes model and settings. A file of other images,
//! model or settings is refused.

use super::vectors::{self, Vectors};
use super::{Partition, Properties};
use crate::columns::{self, Column};
use crate::name_index::NameIndex;
use audit_base::files::{self, hex};
use audit_base::{Error, Result};
use rayon::prelude::*;
use std::path::{Path, PathBuf};

const ABOUT: &str = "a .parquet file of embeddings that `audit embed` or `--cache` wrote";
/// Keys of the notes about a file.
const MADE: &str = "audit.made";
const PART: &str = "audit.part";
const UNREADABLE: &str = "audit.unreadable";
/// Rows per group.
const GROUP: usize = 1 << 14;

/// Properties of an image besides its embedding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Id in the data set.
    pub id: String,
    /// Class.
    pub label: String,
    /// Camera of the image, if known.
    pub camera: Option<u32>,
    /// Size of its file in bytes, if no other image is in it.
    pub bytes: Option<u64>,
    /// [`super::Item::modified`] before the file was read; `None` in files of earlier versions.
    pub modified: Option<i64>,
    /// [`super::Item::part`].
    pub part: Option<String>,
    /// SHA-256, as [`super::Pixels::digest`].
    pub digest: [u8; 32],
    /// [`super::Pixels::hash`] of the image.
    pub pixels: u64,
}

/// Embeddings of images.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedded {
    /// Model and settings that made them.
    pub made: Properties,
    /// The part of a data set that was embedded, if not all.
    pub part: Option<Partition>,
    /// Length of an embedding, D.
    pub dim: usize,
    /// Images, N.
    pub images: Vec<Image>,
    /// Embeddings from the model, concatenated: N·D values.
    pub values: Vec<f32>,
    /// Images that can't be read: id and reason.
    pub unreadable: Vec<(String, String)>,
}

impl Embedded {
    /// Reads a file. Errors (exit code 2): [`Embedded::write`] didn't write it, or it is damaged.
    pub fn read(path: &Path) -> Result<Embedded> {
        let table = columns::ParquetTable::open(path, ABOUT)?;
        let note = |key: &str| table.note(key).map(str::to_owned);
        let Some(made) = note(MADE).and_then(|text| serde_json::from_str(&text).ok()) else {
            return Err(table.wrong("it doesn't say how its embeddings were made"));
        };
        let part = note(PART).map(|text| text.parse()).transpose();
        let part = part.map_err(|e| table.wrong(format!("its part: {e}")))?;
        let unreadable = note(UNREADABLE).map_or(Ok(Vec::new()), |text| serde_json::from_str(&text));
        let unreadable = unreadable.map_err(|e| table.wrong(format!("its unreadable images: {e}")))?;
        let (digests, bytes, hashes) =
            (table.texts("sha256")?, table.wholes("bytes")?, table.wholes("pixels")?);
        let Vectors { embeddings, ids, labels, cameras } = vectors::from_parquet(path)?;
        let has = |column: &str| table.names().contains(&column);
        let parts = if has("part") { table.texts("part")? } else { vec![None; ids.len()] };
        let times = if has("modified") { table.wholes("modified")? } else { vec![None; ids.len()] };
        let lengths = [digests.len(), bytes.len(), hashes.len(), parts.len(), times.len()];
        if lengths.iter().any(|&n| n != ids.len()) {
            return Err(table.wrong("its columns differ in length: it is damaged"));
        }
        let mut images = Vec::with_capacity(ids.len());
        let named = ids.into_iter().zip(labels).zip(cameras).zip(parts);
        let files = digests.into_iter().zip(bytes).zip(hashes).zip(times);
        for (row, (named, file)) in named.zip(files).enumerate() {
            let ((((id, label), camera), part), (((digest, bytes), hash), modified)) = (named, file);
            let digest = digest.as_deref().and_then(from_hex);
            let digest =
                digest.ok_or_else(|| table.wrong_at(row + 1, "sha256", "expected 64 hexadecimal digits"))?;
            let bytes = bytes.map(u64::try_from).transpose();
            let bytes = bytes.map_err(|_| table.wrong_at(row + 1, "bytes", "is negative"))?;
            let pixels = hash.ok_or_else(|| table.wrong_at(row + 1, "pixels", "is empty"))?.cast_unsigned();
            images.push(Image { id, label, camera, bytes, modified, part, digest, pixels });
        }
        let dim = embeddings.ncols();
        let values = embeddings.into_raw_vec_and_offset().0;
        Ok(Embedded { made, part, dim, images, values, unreadable })
    }

    /// Writes a file atomically, its rows sorted by label and id.
    pub fn write(mut self, path: &Path) -> Result<()> {
        self.sort();
        self.unreadable.sort();
        let wrong = |e: serde_json::Error| Error::internal(format!("notes of {}: {e}", path.display()));
        let made = serde_json::to_string(&self.made).map_err(wrong)?;
        let unreadable = serde_json::to_string(&self.unreadable).map_err(wrong)?;
        let mut notes = vec![(MADE, made), (UNREADABLE, unreadable)];
        notes.extend(self.part.map(|part| (PART, part.to_string())));
        let cameras = self.images.iter().any(|image| image.camera.is_some());
        let parts = self.images.iter().any(|image| image.part.is_some());
        let times = self.images.iter().any(|image| image.modified.is_some());
        // A part without images has one group without rows, which declares its columns.
        let dim = self.dim.max(1);
        let groups = (0..self.images.len().div_ceil(GROUP).max(1)).map(|group| {
            let (from, to) = (group * GROUP, self.images.len().min((group + 1) * GROUP));
            let (images, values) = (&self.images[from..to], &self.values[from * dim..to * dim]);
            let texts = |of: fn(&Image) -> String| Column::Text(images.iter().map(|i| Some(of(i))).collect());
            let wholes = |of: fn(&Image) -> Option<i64>| Column::Whole(images.iter().map(of).collect());
            let mut columns = vec![
                ("id", texts(|image| image.id.clone())),
                ("label", texts(|image| image.label.clone())),
                ("sha256", texts(|image| hex(&image.digest))),
                ("bytes", wholes(|image| image.bytes.and_then(|n| i64::try_from(n).ok()))),
                ("pixels", wholes(|image| Some(image.pixels.cast_signed()))),
                ("embedding", Column::Vectors(values, dim)),
            ];
            if cameras {
                columns.push(("camera", wholes(|image| image.camera.map(i64::from))));
            }
            if times {
                columns.push(("modified", wholes(|image| image.modified)));
            }
            if parts {
                columns.push(("part", Column::Text(images.iter().map(|image| image.part.clone()).collect())));
            }
            columns
        });
        let cannot =
            |e: &dyn std::fmt::Display| Error::internal(format!("can't write {}: {e}", path.display()));
        let mut file = files::partial(path).map_err(|e| cannot(&e))?;
        columns::write_in_groups(&mut file, "embeddings", &notes, groups).map_err(|e| cannot(&e))?;
        file.as_file().sync_all().map_err(|e| cannot(&e))?;
        file.persist(path).map_err(|e| cannot(&e)).map(drop)
    }

    fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.images.len()).collect();
        let name = |i: usize| (&self.images[i].label, &self.images[i].id);
        order.sort_by(|&a, &b| name(a).cmp(&name(b)));
        if order.iter().enumerate().all(|(at, &from)| at == from) {
            return;
        }
        let row = |from: usize| &self.values[from * self.dim..(from + 1) * self.dim];
        let values = order.iter().flat_map(|&from| row(from).iter().copied()).collect();
        self.images = order.iter().map(|&from| self.images[from].clone()).collect();
        self.values = values;
    }

    /// Refuses a file made with another model or settings. `name`: the file's name. `expected`: properties of
    /// this audit.
    pub fn refuse_other(&self, name: &str, expected: &Properties) -> Result<()> {
        let differs = expected.differences(&self.made);
        match (differs.is_empty(), self.part) {
            (false, _) => {
                Err(stale(name, &format!("this audit and the file differ in {}", differs.join("; in "))))
            }
            (true, Some(part)) => Err(Error::usage(format!(
                "{name} holds a part of the embeddings, {part}: put all parts together with `audit merge` first"
            ))),
            (true, None) => Ok(()),
        }
    }

    /// The rows of images, by their ids; `None` if missing. Fast if the ids are in the same order as the
    /// rows.
    pub fn rows<'a>(&self, ids: impl IndexedParallelIterator<Item = &'a str>) -> Vec<Option<usize>> {
        let here = |(at, wanted): (usize, &'a str)| {
            let is_here = self.images.get(at).is_some_and(|image| image.id == wanted);
            (is_here.then_some(at), wanted)
        };
        let found: Vec<(Option<usize>, &str)> = ids.enumerate().map(here).collect();
        if found.iter().all(|(row, _)| row.is_some()) {
            return found.into_iter().map(|(row, _)| row).collect();
        }
        let id = |row: usize| self.images[row].id.as_str();
        let names = NameIndex::of(self.images.len(), id);
        let find = |(row, wanted): (Option<usize>, &str)| row.or_else(|| names.find(wanted, id));
        found.into_par_iter().map(find).collect()
    }

    /// The embedding in a row, `[D]`.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.dim..(row + 1) * self.dim]
    }

    /// Merges the parts of `audit embed --partition`. Errors: a file is not a part (exit code 2); parts
    /// differ in model or settings, are missing, or overlap (exit code 13).
    pub fn merge(paths: &[PathBuf]) -> Result<Embedded> {
        let mut parts = Vec::new();
        for path in paths {
            let name = path.display().to_string();
            let read = Embedded::read(path)?;
            let part = read.part.ok_or_else(|| {
                Error::usage(format!(
                    "{name} holds all embeddings: expected parts, as `audit embed --partition hash:1/3` writes them"
                ))
            })?;
            parts.push((name, part, read));
        }
        parts.sort_by_key(|(_, part, _)| part.index);
        let named: Vec<(String, Partition)> =
            parts.iter().map(|(name, part, _)| (name.clone(), *part)).collect();
        let mut parts = parts.into_iter();
        let Some((first, part, mut whole)) = parts.next() else {
            return Err(Error::usage("name the files of all parts"));
        };
        whole.part = None;
        for (name, other, read) in parts {
            let mut differs = whole.made.differences(&read.made);
            if other.of != part.of {
                differs.push(format!("number of parts: {} and {}", part.of, other.of));
            }
            if !differs.is_empty() {
                let differs = differs.join("; in ");
                return Err(Error::incomplete(format!("{first} and {name} differ in {differs}")));
            }
            whole.dim = whole.dim.max(read.dim);
            whole.images.extend(read.images);
            whole.values.extend(read.values);
            whole.unreadable.extend(read.unreadable);
        }
        Partition::refuse_incomplete(&named)?;
        Ok(whole)
    }
}

/// The error about a file of embeddings that doesn't fit this audit. Exit code 2.
pub fn stale(name: &str, why: &str) -> Error {
    Error::usage(format!(
        "{name}: {why}. Remove the file and create it again with `audit embed`, or leave it out"
    ))
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}
