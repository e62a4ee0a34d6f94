//! The identity of a model: hashes over the file and over the weights beside it, and their size.

use super::refused;
use audit_base::files::hex;
use audit_base::{Error, Result};
use onnx_grad::graph::{Apart, Bytes, TensorData};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::path::Path;

/// Bytes of a file that are in memory while it is hashed.
const CHUNK: usize = 1 << 20;

/// The identity of a model. Reports, caches, cards and evidence take hashes and size from here; only
/// `verify.py` computes `sha256` itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelIdentity {
    /// SHA-256, hexadecimal, of the model file, as `sha256sum` prints it. If tensors have their data in files
    /// beside it (external data), it goes on: for each such tensor, in the order of [`Apart::data`], the
    /// number of its bytes as 8 bytes, little-endian, and these bytes.
    pub sha256: String,
    /// SHA-256, hexadecimal, of the net wherever its data lie: the message without data, then for each tensor
    /// the number of its bytes and these bytes, as above. It is the same for a net in one file and for the
    /// net with external data.
    pub net_sha256: String,
    /// Bytes of the file and of all external ranges, a range that several tensors share once.
    pub bytes: u64,
    /// Files with external data, as the model names them, in order of first use.
    pub beside: Vec<String>,
}

impl ModelIdentity {
    /// The identity of a model whose file, at `path`, has these bytes. External data are read in pieces and
    /// never held. Errors (exit code 3): it is no ONNX model, or external data can't be read.
    pub fn of(file: Bytes, path: &Path) -> Result<ModelIdentity> {
        let parts = Apart::decode(file.clone(), path).map_err(refused)?;
        let mut whole = Sha256::new_with_prefix(&file);
        let mut net = Sha256::new_with_prefix(&parts.message);
        let (mut ranges, mut beside) = (Vec::new(), Vec::new());
        let mut chunk = vec![0; CHUNK];
        for data in parts.data {
            let range = match data {
                TensorData::Inline(bytes) => {
                    net.update((bytes.len() as u64).to_le_bytes());
                    net.update(&bytes);
                    continue;
                }
                TensorData::External(range) => range,
            };
            whole.update(range.length.to_le_bytes());
            net.update(range.length.to_le_bytes());
            let mut from = range.open().map_err(|why| Error::model(format!("{}: {why}", path.display())))?;
            loop {
                let read = from.read(&mut chunk).map_err(|e| {
                    Error::model(format!("{}: can't read {:?}: {e}", path.display(), range.location))
                })?;
                if read == 0 {
                    break;
                }
                whole.update(&chunk[..read]);
                net.update(&chunk[..read]);
            }
            ranges.push(range);
        }
        for range in &ranges {
            if !beside.contains(&range.location) {
                beside.push(range.location.clone());
            }
        }
        ranges.sort_unstable();
        ranges.dedup();
        Ok(ModelIdentity {
            sha256: hex(&whole.finalize()),
            net_sha256: hex(&net.finalize()),
            bytes: file.len() as u64 + ranges.iter().map(|range| range.length).sum::<u64>(),
            beside,
        })
    }

    /// Whether a stated hash, such as a model card's, is one of this model's.
    pub fn is(&self, stated: &str) -> bool {
        [&self.sha256, &self.net_sha256].into_iter().any(|hash| stated.eq_ignore_ascii_case(hash))
    }

    /// The files with external data, in words: empty if there are none.
    pub fn with_beside(&self) -> String {
        match &self.beside[..] {
            [] => String::new(),
            files => format!(" with {}", files.join(", ")),
        }
    }
}
