//! Samples of the images that are attacked.

use super::Gallery;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Draws at most `most` of the queries, stratified by class: each class gets about its share. The result is
/// ascending.
///
/// The queries have one order per seed, and a sample is the first part of it, so a smaller sample is part of
/// every larger one. Within a class of n queries, hashes of (seed, id) define the order. The j-th query of
/// the class gets the position (j + u)/n in the whole order, where u is drawn once per class. This is
/// systematic sampling (Cochran, Sampling Techniques, chapter 8).
pub fn sample_queries(gallery: &Gallery, most: Option<usize>, seed: u64) -> Vec<usize> {
    sample_of(gallery, gallery.queries(), most, seed)
}

/// [`sample_queries`] from the gallery's images, for attacks that perturb a candidate.
pub fn sample_candidates(gallery: &Gallery, most: usize, seed: u64) -> Vec<usize> {
    sample_of(gallery, &Vec::from_iter(0..gallery.len()), Some(most), seed)
}

/// [`sample_queries`] from `all`.
pub fn sample_of(gallery: &Gallery, all: &[usize], most: Option<usize>, seed: u64) -> Vec<usize> {
    let Some(most) = most.filter(|&most| most < all.len()) else { return all.to_vec() };
    let mut chosen = in_order(gallery, all, seed);
    chosen.truncate(most);
    chosen.sort_unstable();
    chosen
}

/// All queries in the order that samples follow.
pub fn order(gallery: &Gallery, seed: u64) -> Vec<usize> {
    in_order(gallery, gallery.queries(), seed)
}

fn in_order(gallery: &Gallery, all: &[usize], seed: u64) -> Vec<usize> {
    let hash = |kind: &[u8], id: &str| -> u64 {
        let hash = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(kind);
        let hash: [u8; 32] = hash.chain_update(id.as_bytes()).finalize().into();
        hash[..8].iter().fold(0, |all, &byte| all << 8 | u64::from(byte))
    };
    let mut classes: BTreeMap<usize, Vec<(u64, usize)>> = BTreeMap::new();
    for &i in all {
        classes.entry(gallery.labels[i]).or_default().push((hash(b"query\0", &gallery.ids[i]), i));
    }
    let mut order: Vec<(f64, usize)> = Vec::with_capacity(all.len());
    for mut members in classes.into_values() {
        members.sort_unstable();
        // The hash uses the id of the class's first member, because labels change if other images are added.
        let start = (hash(b"class\0", &gallery.ids[members[0].1]) >> 11) as f64 / (1u64 << 53) as f64;
        let n = members.len() as f64;
        order.extend(members.into_iter().enumerate().map(|(j, (_, i))| ((j as f64 + start) / n, i)));
    }
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order.into_iter().map(|(_, i)| i).collect()
}
