//! Cache of retrieval without an attack in a large gallery, and of the correct queries. Both need distances
//! of many queries to the whole gallery, and both are equal in every part of a run, where they would take
//! much of its time.

use super::load_check;
use crate::files;
use crate::files::hex;
use crate::record::Benign;
use crate::request::{Request, Sample};
use crate::space::{self, Gallery};
use crate::suite::Suite;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// Maximum size of a cache entry, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// A cache entry.
#[derive(Serialize, Deserialize)]
pub struct CachedRetrieval {
    /// Retrieval without an attack.
    pub benign: Benign,
    /// The attacked queries, by their index in the gallery, if they are chosen by their clean result.
    pub queries: Option<Vec<usize>>,
}

/// The place of a result in the cache.
pub struct RetrievalCache(PathBuf);

impl RetrievalCache {
    /// The place of the result for this gallery, whose images, classes and roles have the hash `data`. Its
    /// name is a hash of everything that the result depends on: the program, the embeddings, the number of
    /// ranked queries, and the choice of queries. `None` if nothing is cached: with --no-cache, or if the
    /// system has no cache folder.
    pub fn of(
        request: &Request,
        suite: &Suite,
        ranked: usize,
        gallery: &Gallery,
        data: &str,
    ) -> Option<RetrievalCache> {
        if request.run.no_cache {
            return None;
        }
        let mut hash = Sha256::new();
        hash.update(format!("{}\n{data}\n{}\n", load_check::program()?, gallery.metric));
        // The hash detects damage, not manipulation: the cache belongs to the user.
        (0..gallery.ids.len()).for_each(|i| hash.update(space::hash(gallery.point(i)).to_le_bytes()));
        let sample = match (request.queries.sample, suite.max_queries) {
            (Sample::Correct, Some(most)) => format!("{most} correct"),
            (Sample::Correct, None) => "all correct".into(),
            (Sample::Any, _) => "any".into(),
        };
        let given = request.images.gallery.is_some();
        hash.update(format!("\n{ranked} ranked, {sample}, seed {}, {given}", request.seed));
        super::entry("clean", &hex(&hash.finalize())).map(RetrievalCache)
    }

    /// The cached result; `None` if there is none, or a damaged one.
    pub fn find(&self, gallery: &Gallery) -> Option<CachedRetrieval> {
        let entry: CachedRetrieval =
            serde_json::from_str(&files::read_text(&self.0, MAX_BYTES).ok()?).ok()?;
        let known = |query: &usize| gallery.queries().binary_search(query).is_ok();
        entry.queries.iter().flatten().all(known).then_some(entry)
    }

    /// Caches a result. Errors: the folder can't be written to.
    pub fn store(&self, entry: &CachedRetrieval) -> std::io::Result<()> {
        super::write(&self.0, entry)
    }
}
