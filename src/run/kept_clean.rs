//! What an audit of a large gallery finds before its attacks, kept for the next: retrieval without attack, and the trials that were
//! drawn. Both need distances of many queries to the whole gallery, both are the same in every part of a run, and beside a part's
//! share of the attacks they would take most of its time.

use super::kept;
use crate::cli::AuditFlags;
use crate::files;
use crate::model::hex;
use crate::record::{Form, Skipped};
use crate::space::Gallery;
use crate::space::benign::Benign;
use crate::suite::Suite;
use crate::threat::{Objective, Selection, Trial};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// Most bytes of a kept result that is believed.
const MOST: u64 = 1 << 30;

/// A result as it lies on disk.
#[derive(Serialize, Deserialize)]
struct Entry {
    benign: Benign,
    /// Code, query and targets of each trial; items by their index in the gallery.
    trials: Vec<(String, usize, Vec<usize>)>,
    skipped: Vec<Skipped>,
}

/// The place of a result in the cache.
pub struct Place(PathBuf);

impl Place {
    /// The place of the result for this gallery, whose images, classes and roles have the hash `data`. Its name is a hash of all that
    /// the result follows from: the program, the embeddings, the suite, and how queries are chosen. `None` where nothing is
    /// kept: with --no-cache, for trials that are replayed or aim at foreign targets, or where the system names no folder for caches.
    pub fn of(flags: &AuditFlags, suite: &Suite, form: Form, gallery: &Gallery, data: &str) -> Option<Place> {
        let given = flags.trials.is_some() || flags.targets.is_some() || flags.demands.baseline.is_some();
        if flags.no_cache || given {
            return None;
        }
        // All of the suite: which of it an attack's choice of targets follows from is that attack's own.
        let chosen = (flags.sample, flags.benign_sample, flags.seed, flags.gallery.is_some());
        let basis = (kept::program()?, data, gallery.metric, suite, form, chosen);
        let mut hash = Sha256::new_with_prefix(format!("{basis:?}"));
        // A few rows at a time: as bytes, a gallery would be in memory twice.
        let mut bytes = Vec::new();
        for row in gallery.points.rows() {
            bytes.clear();
            bytes.extend(row.iter().flat_map(|v| v.to_le_bytes()));
            hash.update(&bytes);
        }
        Some(Place(files::cache_folder()?.join("clean").join(format!("{}.json", hex(&hash.finalize())))))
    }

    /// The result that lies here; `None` where there is none, or a damaged one.
    pub fn find(&self, gallery: &Gallery) -> Option<(Benign, Selection)> {
        let entry: Entry = serde_json::from_str(&files::read_text(&self.0, MOST).ok()?).ok()?;
        let known = |item: &usize| *item < gallery.labels.len();
        let trial = |(code, query, targets): (String, usize, Vec<usize>)| {
            let objective = Objective::find(&code).ok()?;
            (known(&query) && targets.iter().all(known)).then_some(Trial { objective, query, targets })
        };
        let trials = entry.trials.into_iter().map(trial).collect::<Option<Vec<_>>>()?;
        Some((entry.benign, Selection { trials, skipped: entry.skipped }))
    }

    /// Keeps a result. Errors: the folder can't be written to.
    pub fn keep(&self, benign: &Benign, selection: &Selection) -> std::io::Result<()> {
        if let Some(folder) = self.0.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let trial = |t: &Trial| (t.objective.code.to_string(), t.query, t.targets.clone());
        let trials = selection.trials.iter().map(trial).collect();
        let entry = Entry { benign: benign.clone(), trials, skipped: selection.skipped.clone() };
        files::replace(&self.0, &serde_json::to_vec(&entry)?)
    }
}
