//! The archive of evidence while it is written.

use crate::data::{self, Dataset, Preparation, file_value};
use crate::files::{Archive, hex};
use crate::request::Request;
use crate::{Error, Result};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;

/// The archive, and the hashes of its files.
pub(super) struct Contents {
    archive: Archive<Vec<u8>>,
    pub hashes: Map<String, Value>,
}

impl Contents {
    pub fn new() -> Contents {
        Contents { archive: Archive::new(Vec::new()), hashes: Map::new() }
    }

    pub fn add(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.hashes.insert(name.into(), hex(&Sha256::digest(bytes)).into());
        self.put(name, bytes)
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.archive.add(name, bytes).map_err(|e| {
            Error::usage(format!("--bundle: {e}. Make a report of fewer queries (--max-queries) or images"))
        })
    }

    /// Adds an image [C, H, W]: as PNG where 8 bits hold it exactly, else as an array. Returns its name.
    pub fn image(&mut self, name: &str, pixels: &[f32], shape: [usize; 3]) -> Result<String> {
        let exact = |v: &f32| file_value(*v) == *v;
        let (name, bytes) = match matches!(shape[0], 1 | 3) && pixels.iter().all(exact) {
            true => (
                format!("{name}.png"),
                data::png(&data::picture(pixels, shape))
                    .map_err(|e| Error::internal(format!("an image as PNG: {e}")))?,
            ),
            false => (format!("{name}.npy"), npy(pixels, shape)),
        };
        self.add(&name, &bytes)?;
        Ok(name)
    }

    /// Adds the images of the data. Returns what the manifest says of them, and the names of their files.
    pub fn images(
        &mut self,
        request: &Request,
        dataset: &Dataset,
        prep: &Preparation,
        shape: [usize; 3],
    ) -> Result<(Vec<Value>, Vec<String>)> {
        // The folder that paths of images begin in: that of a list, if the data are a list.
        let data = request.images.data.as_deref();
        let root = data.map(|data| if data.is_dir() { data } else { data.parent().unwrap_or(data) });
        let below = |path| root.and_then(|root| Path::strip_prefix(path, root).ok()).unwrap_or(path);
        let (mut items, mut names) = (Vec::new(), Vec::new());
        for (i, (item, role)) in dataset.items.iter().zip(dataset.roles()).enumerate() {
            let pixels = dataset.pixels(i, prep)?;
            items.push(json!({
                "id": item.id,
                "label": dataset.classes[item.class],
                "camera": item.camera(),
                "role": role as u8,
                "file": item.file().map(below),
                "sha256": hex(&pixels.digest)
            }));
            names.push(self.image(&format!("images/{i:06}"), &pixels.data, shape)?);
        }
        Ok((items, names))
    }

    pub fn finish(mut self, manifest: &Value) -> Result<Vec<u8>> {
        let text = serde_json::to_vec(manifest).map_err(|e| Error::internal(format!("manifest: {e}")))?;
        self.put("manifest.json", &text)?;
        self.archive.finish().map_err(|e| Error::usage(format!("--bundle: {e}")))
    }
}

/// An array of float32 as NumPy writes it (format 1.0).
fn npy(values: &[f32], [c, h, w]: [usize; 3]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({c}, {h}, {w}), }}");
    // Magic, version and length are 10 bytes, and values begin at a multiple of 64.
    let length = (10 + header.len() + 1).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((length as u16).to_le_bytes());
    bytes.extend(format!("{header:<0$}\n", length - 1).bytes());
    bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    bytes
}

/// Refuses more files than an archive holds (exit code 2), before the attacks, which may take hours.
pub(super) fn refuse_too_many(files: usize) -> Result<()> {
    match files <= usize::from(u16::MAX) {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "--bundle: the archive would have {files} files, and a zip archive holds at most 65,535. Make a report of fewer queries \
             (--max-queries) or images"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as [`Archive`] takes.
    #[test]
    fn an_archive_of_too_many_files_is_refused_before_the_attacks() {
        let mut archive = Archive::new(std::io::sink());
        let most = (0..).take_while(|_| archive.add("x", b"").is_ok()).count();
        assert!(refuse_too_many(most).is_ok());
        assert!(refuse_too_many(most + 1).is_err_and(|e| e.message.contains("65536 files")));
    }
}
