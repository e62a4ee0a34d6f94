//! Checks on the clean embeddings: whether the model retrieves anything without an attack.

use audit_base::error::shortened;
use audit_gallery::space::{self, Gallery, product};
use audit_report::judge::share::wilson;
use audit_report::record::{Benign, Found, Metric, Severity, number_of_queries};
use std::collections::HashMap;

/// The largest number of points used for distances and variances.
const SAMPLE: usize = 500;
/// Mean distance of two points on the unit sphere below which embeddings count as collapsed.
const CLOSE: f64 = 0.05;

/// The input of these checks.
pub struct CleanRetrieval<'a> {
    /// The clean embeddings, with labels.
    pub gallery: &'a Gallery,
    /// Their R@1 and other measures of retrieval; `None` if the images have no classes.
    pub benign: Option<&'a Benign>,
}

impl CleanRetrieval<'_> {
    /// At most [`SAMPLE`] points, evenly spaced in the gallery.
    fn sample(&self) -> Vec<&[f32]> {
        let stride = self.gallery.len().div_ceil(SAMPLE).max(1);
        (0..self.gallery.len()).step_by(stride).map(|i| self.gallery.point(i)).collect()
    }

    /// R@1 of a random ranking: the mean over queries of the share of images that have their class.
    fn chance(&self) -> f64 {
        let g = self.gallery;
        let mut sizes: HashMap<usize, usize> = HashMap::new();
        (0..g.len()).for_each(|i| *sizes.entry(g.labels[i]).or_default() += 1);
        let share = |&q: &usize| {
            let own = usize::from(q < g.len());
            let others = sizes.get(&g.labels[q]).map_or(0, |n| n - own);
            others as f64 / (g.len() - own).max(1) as f64
        };
        g.queries().iter().map(share).sum::<f64>() / g.queries().len().max(1) as f64
    }
}

/// Returns the mean distance as a share of the mean norm; the effective dimensions, (Σλ)² / Σλ² over the
/// variances λ; and the share of the largest variance.
fn spread(gallery: &Gallery, points: &[&[f32]]) -> (f64, f64, f64) {
    let n = points.len();
    let norm = points.iter().map(|p| product(p, p).sqrt()).sum::<f64>() / n as f64;
    let (mut total, mut pairs) = (0.0, 0.0);
    for (i, a) in points.iter().enumerate() {
        for b in &points[..i] {
            total += gallery.metric.distance(a, b);
            pairs += 1.0;
        }
    }
    let distance = total / f64::max(pairs, 1.0) / norm.max(f64::MIN_POSITIVE);
    let dim = gallery.dim();
    let mean: Vec<f32> =
        (0..dim).map(|k| (points.iter().map(|p| f64::from(p[k])).sum::<f64>() / n as f64) as f32).collect();
    let centred: Vec<Vec<f32>> =
        points.iter().map(|p| p.iter().zip(&mean).map(|(p, m)| p - m).collect()).collect();
    // The Gram matrix has the same nonzero eigenvalues as the covariance and is smaller.
    let gram: Vec<Vec<f64>> =
        centred.iter().map(|a| centred.iter().map(|b| product(a, b)).collect()).collect();
    let trace: f64 = (0..n).map(|i| gram[i][i]).sum();
    let squares: f64 = gram.iter().flatten().map(|v| v * v).sum();
    if squares == 0.0 {
        return (distance, 0.0, 1.0);
    }
    // The largest eigenvalue, by power iteration.
    let mut v: Vec<f64> = (0..n).map(|i| 1.0 + (i % 7) as f64).collect();
    let mut largest = 0.0;
    for _ in 0..50 {
        let next: Vec<f64> = gram.iter().map(|row| product(row, &v)).collect();
        largest = product(&next, &next).sqrt();
        if largest == 0.0 {
            break;
        }
        v = next.into_iter().map(|x| x / largest).collect();
    }
    (distance, trace * trace / squares, (largest / trace).min(1.0))
}

/// The faults of embeddings, before the numbers that show them.
const SAME: &str = "all embeddings are nearly the same: ";
const LINE: &str = "embeddings lie almost on a line: ";

pub(super) fn collapse(r: &CleanRetrieval) -> Found {
    let points = r.sample();
    let (distance, dimensions, top) = spread(r.gallery, &points);
    let embeddings = format!(
        "mean distance {distance:.*}{}; {dimensions:.1} effective dimensions of {}, the largest with {:.0} % of the variance",
        if r.gallery.metric == Metric::Cosine { 5 } else { 3 },
        if r.gallery.metric.normalizes() { "" } else { " of the mean norm" },
        r.gallery.dim(),
        100.0 * top
    );
    // The cosine distance 1 − cos of two points at this Euclidean distance.
    let close = if r.gallery.metric == Metric::Cosine { CLOSE * CLOSE / 2.0 } else { CLOSE };
    let flat = dimensions < 2.0 && r.gallery.dim() > 2;
    let Some(benign) = r.benign else {
        return match (distance < close, flat) {
            (true, _) => Found::error(format!("{SAME}{embeddings}")),
            (false, true) => Found::warning(format!("{LINE}{embeddings}")),
            (false, false) => Found::passed(embeddings),
        };
    };
    let (r1, chance) = (benign.r1 / 100.0, r.chance());
    let (low, high) = wilson((r1 * benign.queries as f64).round() as usize, benign.queries);
    let text = format!(
        "{embeddings}; R@1 {:.1} % (95 % {low:.1} – {high:.1}, {}), by chance {:.1} %",
        benign.r1,
        number_of_queries(benign.queries),
        100.0 * chance
    );
    // If chance is small, R@1 up to about twice chance is low; never above 1.
    let low = r1 < chance + chance * (1.0 - chance);
    let above = surely_above(r1, benign.queries, chance);
    let with_lead = |lead: &str| format!("{lead}{text}");
    if distance < close {
        return Found::error(with_lead(SAME));
    }
    if benign.queries == 0 {
        let why = "no query has an image of its class to find, so that there is no R@1";
        return Found::not_checked(why, "Give each class two images or more").weighing(Severity::Warning);
    }
    if low && !above {
        return Found::error(with_lead("clean R@1 is not significantly above chance: "));
    }
    if low {
        return Found::warning(with_lead("clean R@1 is above chance, but low: "));
    }
    if flat {
        return Found::warning(with_lead(LINE));
    }
    Found::passed(text)
}

/// Whether the 95 % interval of a share of this many queries lies above `chance`.
fn surely_above(share: f64, queries: usize, chance: f64) -> bool {
    let hits = (share * queries as f64).round() as usize;
    wilson(hits, queries).0 > 100.0 * chance
}

pub(super) fn zero(r: &CleanRetrieval) -> Found {
    /// Largest share of zero embeddings with which scores still have a meaning.
    const MAX_ZERO_SHARE: f64 = 0.1;
    let g = r.gallery;
    let all = g.labels.len();
    let zero = (0..all).filter(|&i| g.point(i).iter().all(|v| *v == 0.0));
    let zero: Vec<String> = zero.map(|i| format!("`{}`", g.ids[i])).collect();
    let severity = match zero.len() {
        0 => return Found::passed("none is zero"),
        n if !g.metric.normalizes() => {
            return Found::passed(format!(
                "{n} of {all} embeddings are zero, and this metric needs no direction"
            ));
        }
        n if n as f64 > MAX_ZERO_SHARE * all as f64 => Severity::Error,
        _ => Severity::Warning,
    };
    Found::Failed(severity, format!("{} of {all} embeddings are zero: {}", zero.len(), shortened(&zero, 5)))
}

pub(super) fn duplicates(r: &CleanRetrieval) -> Found {
    let g = r.gallery;
    // Only points that share a hash are compared: a table of all would be as large as the gallery.
    let mut hashes: Vec<(u64, usize)> = (0..g.len()).map(|i| (space::hash(g.point(i)), i)).collect();
    hashes.sort_unstable();
    let mut groups: HashMap<Vec<u32>, Vec<usize>> = HashMap::new();
    for &(_, i) in hashes.chunk_by(|a, b| a.0 == b.0).filter(|alike| alike.len() > 1).flatten() {
        groups.entry(g.point(i).iter().map(|v| space::bits(*v)).collect()).or_default().push(i);
    }
    let groups: Vec<Vec<usize>> = groups.into_values().filter(|items| items.len() > 1).collect();
    if groups.is_empty() {
        return Found::passed("no two embeddings are equal");
    }
    let pairs: usize = groups.iter().map(|items| items.len() * (items.len() - 1) / 2).sum();
    let items: usize = groups.iter().map(Vec::len).sum();
    let counted = format!(
        "{items} embeddings equal another one, {pairs} pair{} in all",
        if pairs == 1 { "" } else { "s" }
    );
    let Some(benign) = r.benign else {
        return Found::passed(format!("{counted}, and near copies count as the same image"));
    };
    // If a query has equal embeddings in the gallery, one of them ranks first. Its class is then the query's
    // always, depending on the tie, or never.
    let (mut surely, mut perhaps, mut found) = (0usize, 0usize, 0usize);
    for items in &groups {
        for &q in items.iter().filter(|q| g.queries().binary_search(q).is_ok()) {
            let mut others =
                items.iter().filter(|&&i| !g.excluded(q, i)).map(|&i| g.labels[i] == g.labels[q]);
            let Some(first) = others.next() else { continue };
            found += usize::from(first);
            let (all, any) = others.fold((first, first), |(all, any), own| (all && own, any || own));
            surely += usize::from(all);
            perhaps += usize::from(any);
        }
    }
    let queries = benign.queries.max(1) as f64;
    // Rounding must not print −0.0.
    let at = |n: usize| (benign.r1 + 100.0 * (n as f64 - found as f64) / queries).max(0.0);
    Found::warning(format!(
        "{counted}; with ties broken for or against the model, R@1 lies between {:.1} and {:.1} %",
        at(surely),
        at(perhaps)
    ))
}

pub(super) fn lone(r: &CleanRetrieval) -> Found {
    match r.benign.map_or(0, |benign| benign.without_positive) {
        0 => Found::passed("all do"),
        lone => Found::warning(format!(
            "{} {} nothing to find: no other image of the class, or none from another camera",
            number_of_queries(lone),
            if lone == 1 { "has" } else { "have" }
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::surely_above;

    /// By hand: Wilson's 95 % interval of 120 of 600 is 17.0 – 23.4 %, and of 1 of 5 3.6 – 62.4 %.
    #[test]
    fn the_number_of_queries_decides_what_is_above_chance() {
        assert!(surely_above(0.2, 600, 0.12));
        assert!(!surely_above(0.2, 600, 0.18));
        assert!(!surely_above(0.2, 5, 0.12));
        assert!(!surely_above(0.12, 600, 0.12));
    }
}
