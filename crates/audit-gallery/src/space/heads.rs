//! The first images of rankings: to test whether a moved image is among them takes one distance per query.

use super::Gallery;
use rayon::prelude::*;

/// Candidates from matrix products per image in the result. Their distances are then computed directly.
const SPARE: usize = 4;

/// The nearest images of several queries.
pub struct Heads {
    /// Indices of the queries.
    pub queries: Vec<usize>,
    /// For each query the nearest `first` + 1 images that it ranks, with their distances, nearest first.
    near: Vec<Vec<(f64, usize)>>,
    first: usize,
}

impl Heads {
    /// The first `first` images of `queries`, each without the query itself and its views.
    pub fn new(gallery: &Gallery, queries: Vec<usize>, first: usize) -> Heads {
        let near = queries.par_chunks(32).flat_map_iter(|some| {
            let (n, mut room) = (gallery.len(), Vec::new());
            let z: Vec<f32> = some.iter().flat_map(|&q| gallery.point(q).iter().copied()).collect();
            let mut d = vec![0.0; some.len() * n];
            gallery.distances_batch(&z, &mut d, &mut room);
            let rows = some.iter().zip(d.chunks(n));
            rows.map(|(&q, d)| head(gallery, q, d, first + 1)).collect::<Vec<_>>()
        });
        let near = near.collect();
        Heads { queries, near, first }
    }

    /// The rank of a point `z` `[D]` for query `place`, before equally near images; `None` if it is not among
    /// the first. The image `own`, which is `z` before the attack, is not ranked.
    pub fn rank(&self, gallery: &Gallery, place: usize, z: &[f32], own: usize) -> Option<usize> {
        let moved = gallery.metric.distance(gallery.point(self.queries[place]), z);
        let before = self.near[place].iter().filter(|(d, item)| *item != own && *d < moved).count();
        (before < self.first).then_some(before)
    }

    /// The maximum, over images, of the share of queries that have the image among their first `k`, in [0,
    /// 1].
    pub fn best(&self, gallery: &Gallery, k: usize) -> f64 {
        let mut counts = vec![0usize; gallery.len()];
        self.near.iter().flat_map(|near| near.iter().take(k)).for_each(|(_, item)| counts[*item] += 1);
        counts.into_iter().max().unwrap_or(0) as f64 / self.queries.len().max(1) as f64
    }
}

/// The `count` nearest images of query `q`, from approximate distances `d` [N].
fn head(gallery: &Gallery, q: usize, d: &[f32], count: usize) -> Vec<(f64, usize)> {
    let mut items: Vec<usize> = (0..gallery.len()).filter(|&i| !gallery.excluded(q, i)).collect();
    let most = SPARE * count;
    if most < items.len() {
        items.select_nth_unstable_by(most, |&a, &b| d[a].total_cmp(&d[b]).then(a.cmp(&b)));
        items.truncate(most);
    }
    let far = |i: usize| (gallery.metric.distance(gallery.point(q), gallery.point(i)), i);
    let mut near: Vec<(f64, usize)> = items.into_iter().map(far).collect();
    near.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    near.truncate(count);
    near
}
