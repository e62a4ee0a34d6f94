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

/// The average number of images of a class in a sample, from which a stratified one has enough pairs of one
/// class.
const ENOUGH: usize = 10;

/// Draws at most `most` of the gallery's images, to compare pairs within classes and between classes: a
/// stratified sample if it leaves enough pairs of one class. If classes are too many for that, class by class
/// in random order, those of two images or more first, and of each at most a tenth of `most`. Also says in
/// words which of both it is. The result is ascending.
pub fn sample_pairs(gallery: &Gallery, most: usize, seed: u64) -> (Vec<usize>, &'static str) {
    let all = Vec::from_iter(0..gallery.len());
    let mut classes = by_class(gallery, &all, seed);
    if all.len() <= most || ENOUGH * classes.len() <= most {
        return (sample_of(gallery, &all, Some(most), seed), "stratified by class");
    }
    classes.sort_by_cached_key(|members| {
        (members.len() < 2, hash(seed, b"class\0", &gallery.ids[members[0]]), members[0])
    });
    let some = classes.iter().flat_map(|members| members.iter().take((most / 10).max(2)));
    let mut chosen: Vec<usize> = some.take(most).copied().collect();
    chosen.sort_unstable();
    (chosen, "class by class in random order")
}

/// All queries in the order that samples follow.
pub fn order(gallery: &Gallery, seed: u64) -> Vec<usize> {
    in_order(gallery, gallery.queries(), seed)
}

fn in_order(gallery: &Gallery, all: &[usize], seed: u64) -> Vec<usize> {
    let mut order: Vec<(f64, usize)> = Vec::with_capacity(all.len());
    for members in by_class(gallery, all, seed) {
        // The hash uses the id of the class's first member, because labels change if other images are added.
        let start = (hash(seed, b"class\0", &gallery.ids[members[0]]) >> 11) as f64 / (1u64 << 53) as f64;
        let n = members.len() as f64;
        order.extend(members.into_iter().enumerate().map(|(j, i)| ((j as f64 + start) / n, i)));
    }
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order.into_iter().map(|(_, i)| i).collect()
}

/// The images of each class in `all`, in the order of their hashes.
fn by_class(gallery: &Gallery, all: &[usize], seed: u64) -> Vec<Vec<usize>> {
    let mut classes: BTreeMap<usize, Vec<(u64, usize)>> = BTreeMap::new();
    for &i in all {
        classes.entry(gallery.labels[i]).or_default().push((hash(seed, b"query\0", &gallery.ids[i]), i));
    }
    let sorted = |mut members: Vec<(u64, usize)>| {
        members.sort_unstable();
        members.into_iter().map(|(_, i)| i).collect::<Vec<usize>>()
    };
    classes.into_values().map(sorted).collect()
}

fn hash(seed: u64, kind: &[u8], id: &str) -> u64 {
    let hash = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(kind);
    let hash: [u8; 32] = hash.chain_update(id.as_bytes()).finalize().into();
    hash[..8].iter().fold(0, |all, &byte| all << 8 | u64::from(byte))
}
