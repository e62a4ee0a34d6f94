//! The result of `audit attack` as data.

use super::{FileAttack, Found};
use crate::data::{Photograph, grey_level};
use crate::files::hex;
use crate::record::Metric;
use crate::{Error, Exit, Result};
use sha2::{Digest, Sha256};

/// The result of `audit attack`.
#[derive(Clone, Debug)]
pub struct AttackedFile {
    /// The photograph, the goal and the files.
    pub attack: FileAttack,
    /// What the file does if the attack succeeds: "finds another class than `cat`".
    pub goal: String,
    /// Channels, height and width of the photograph.
    pub shape: [usize; 3],
    /// What decides, each with its name: the gallery, or the reference and the threshold.
    pub system: Vec<(&'static str, String)>,
    /// The distance between embeddings.
    pub metric: Metric,
    /// ε in grey levels.
    pub eps: u32,
    /// Result for the photograph.
    pub clean: Found,
    /// The photograph's own class in the gallery, if the clean search finds another.
    pub wrong: Option<String>,
    /// The file; `None` if there is none.
    pub attacked: Option<Attacked>,
}

/// An attacked file.
#[derive(Clone, Debug)]
pub struct Attacked {
    /// Result for the file, read again after it was written.
    pub found: Found,
    /// The largest change of a value, in grey levels.
    pub largest: u32,
    /// The share of the values that changed, in [0, 1].
    pub share: f64,
    /// SHA-256 of the file.
    pub sha256: String,
}

impl AttackedFile {
    /// The exit code, if it is not 0.
    pub fn exit(&self) -> Option<Exit> {
        self.attacked.is_none().then_some(Exit::NotFound)
    }

    /// Refuses a file that, read again, does less than the search found.
    pub(super) fn confirmed(self) -> Result<AttackedFile> {
        // What JPEG adds is no part of the attack.
        let within = |attacked: &Attacked| self.attack.jpeg.is_some() || attacked.largest <= self.eps;
        match self.attacked.as_ref().is_some_and(|attacked| attacked.found.reached && within(attacked)) {
            true => Ok(self),
            false => Err(Error::internal(format!(
                "{}: the file differs from what the search found; please report this",
                self.subject()
            ))),
        }
    }
}

impl Attacked {
    /// The file that `bytes` are, read again as `written`, beside the photograph that it was made of.
    pub(super) fn new(bytes: &[u8], found: Found, written: &Photograph, photograph: &Photograph) -> Attacked {
        let pairs = written.data.iter().zip(&photograph.data);
        let changes: Vec<u32> =
            pairs.map(|(a, b)| u32::from(grey_level(*a).abs_diff(grey_level(*b)))).collect();
        let largest = changes.iter().copied().max().unwrap_or(0);
        let share = changes.iter().filter(|change| **change > 0).count() as f64 / changes.len() as f64;
        Attacked { found, largest, share, sha256: hex(&Sha256::digest(bytes)) }
    }
}
