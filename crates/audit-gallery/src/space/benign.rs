//! Clean retrieval: R@k, mAP and related measures.

use super::Gallery;
use super::clustering::{ami, k_means, nmi};
use super::ranks::{Ask, Mark, ranks};
use audit_base::{Error, Result};
use ndarray::{Array2, s};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};

/// Retrieval without an attack.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Benign {
    /// Recall at 1, per cent.
    pub r1: f64,
    /// Recall at 2, per cent.
    pub r2: f64,
    /// Mean average precision, per cent.
    pub map: f64,
    /// mAP@R, per cent.
    pub map_at_r: f64,
    /// Normalised mutual information of a k-means clustering with the classes, per cent.
    pub nmi: Option<f64>,
    /// Adjusted mutual information of the same clustering, which corrects for chance, per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami: Option<f64>,
    /// Mean reciprocal rank of the first match, per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mrr: Option<f64>,
    /// R-precision, per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r_precision: Option<f64>,
    /// mAP@C, per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_at_c: Option<f64>,
    /// Cumulative match curve: the share of queries with a match among the first k.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmc: Vec<CmcPoint>,
    /// Retrieval of each class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassRow>,
    /// For each query in these numbers, in the order of the data set, the rank of the first item of its
    /// class; 0 = nearest. With it two reports on the same images are compared query by query. Empty in
    /// reports of versions that did not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first: Vec<usize>,
    /// Number of queries in these numbers.
    pub queries: usize,
    /// Number of queries without a possible match, which are left out.
    pub without_positive: usize,
    /// How these queries were chosen; absent if they are all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<String>,
}

/// A point of the cumulative match curve.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CmcPoint {
    /// Number of first items, k.
    pub k: usize,
    /// Queries with a match among the first k items, per cent.
    pub value: f64,
}

/// Retrieval of one class.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClassRow {
    /// The class's name.
    pub class: String,
    /// Number of its queries with a possible match.
    pub queries: usize,
    /// Recall at 1, per cent.
    pub r1: f64,
    /// mAP@R, per cent.
    pub map_at_r: f64,
}

/// The k of the cumulative matching characteristic in reports.
pub const CMC: [usize; 4] = [1, 5, 10, 20];

/// Progress of [`benign`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Number of queries ranked so far.
    Ranked(usize),
    /// A finished iteration of k-means.
    Clustering,
}

/// Measures the queries `all` of `gallery`, and its clustering: the centres [classes, D]. `clustering`:
/// number of k-means restarts for NMI and AMI, which are of the whole gallery. `None` leaves them out: on
/// large galleries their cost (images × classes × dimensions, dozens of times) exceeds all other work. `name`
/// names a class by its label. Reports progress to `tell`, and ends with its error.
pub fn benign(
    gallery: &Gallery,
    all: &[usize],
    clustering: Option<usize>,
    seed: u64,
    name: &dyn Fn(usize) -> String,
    tell: &mut dyn FnMut(Stage) -> Result<()>,
) -> Result<(Benign, Option<Array2<f32>>)> {
    // Only the ranks of the positives matter: r_1 < r_2 < … < r_R, 0 = nearest.
    let ranks_by_query = positive_ranks(gallery, all, &mut |done| tell(Stage::Ranked(done)))?;
    let (queries, ranks): (Vec<usize>, Vec<Vec<usize>>) =
        all.iter().copied().zip(ranks_by_query).filter(|(_, ranks)| !ranks.is_empty()).unzip();
    if ranks.is_empty() {
        return Err(Error::empty(format!(
            "none of the {} queries shares its class with an image it may rank: retrieval needs classes of at least 2 \
             images",
            all.len()
        )));
    }
    let mean = |of: &dyn Fn(&[usize]) -> f64| {
        100.0 * (ranks.iter().map(|r| of(r)).sum::<f64>() / ranks.len() as f64)
    };
    let recall = |k: usize| mean(&|r| f64::from(r[0] < k));
    // Queries, and sums of R@1 and mAP@R.
    let mut classes: BTreeMap<usize, (usize, [f64; 2])> = BTreeMap::new();
    for (&query, ranks) in queries.iter().zip(&ranks) {
        let (count, sums) = classes.entry(gallery.labels[query]).or_default();
        *count += 1;
        sums[0] += f64::from(ranks[0] < 1);
        sums[1] += ap_at_r(ranks);
    }
    let classes = classes.into_iter().map(|(label, (queries, sums))| {
        let [r1, map_at_r] = sums.map(|sum| 100.0 * (sum / queries as f64));
        ClassRow { class: name(label), queries, r1, map_at_r }
    });
    let labels = &gallery.labels[..gallery.len()];
    let (clusters, centres) = clustering
        .map(|restarts| {
            let count = labels.iter().collect::<HashSet<_>>().len();
            let points = gallery.points.slice(s![..gallery.len(), ..]);
            k_means(points, count, restarts, seed, &mut || tell(Stage::Clustering))
        })
        .transpose()?
        .unzip();
    let found = Benign {
        r1: recall(1),
        r2: recall(2),
        map: mean(&ap),
        map_at_r: mean(&ap_at_r),
        nmi: clusters.as_ref().map(|clusters| 100.0 * nmi(clusters, labels)),
        ami: clusters.as_ref().map(|clusters| 100.0 * ami(clusters, labels)),
        mrr: Some(mean(&|r| 1.0 / (r[0] + 1) as f64)),
        r_precision: Some(mean(&|r| among(r, r.len()))),
        map_at_c: Some(mean(&|r| among(r, r.len() + 1))),
        cmc: CMC.map(|k| CmcPoint { k, value: recall(k) }).to_vec(),
        classes: classes.collect(),
        first: ranks.iter().map(|r| r[0]).collect(),
        queries: ranks.len(),
        without_positive: all.len() - ranks.len(),
        sampling: None,
    };
    Ok((found, centres))
}

/// Precision at the (k + 1)-th positive, which has rank `rank`.
fn precision((k, &rank): (usize, &usize)) -> f64 {
    (k + 1) as f64 / (rank + 1) as f64
}

/// Average precision of positives with these `ranks` (ascending, 0 = nearest, at least one).
pub fn ap(ranks: &[usize]) -> f64 {
    ranks.iter().enumerate().map(precision).sum::<f64>() / ranks.len() as f64
}

/// The mAP@R of one query; `ranks` as in [`ap`].
pub fn ap_at_r(ranks: &[usize]) -> f64 {
    let within = ranks.iter().enumerate().filter(|(_, rank)| **rank < ranks.len());
    // An empty `sum` would be −0.
    within.map(precision).fold(0.0, |sum, p| sum + p) / ranks.len() as f64
}

/// Number of positives among the nearest `k`, divided by k; `ranks` as in [`ap`]. With k = R + 1, the mAP@C
/// of one query.
pub fn among(ranks: &[usize], k: usize) -> f64 {
    ranks.partition_point(|&rank| rank < k) as f64 / k as f64
}

/// Whether each of `queries` is correct: its nearest candidate has its class. False without positives.
pub fn right(gallery: &Gallery, queries: &[usize]) -> Result<Vec<bool>> {
    let ranks_by_query = positive_ranks(gallery, queries, &mut |_| Ok(()))?;
    Ok(ranks_by_query.iter().map(|ranks| ranks.first() == Some(&0)).collect())
}

/// For each of `queries`, the ascending ranks of its positives. Calls `tell` with the number of queries done,
/// and ends with its error.
fn positive_ranks(
    gallery: &Gallery,
    queries: &[usize],
    tell: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Vec<Vec<usize>>> {
    const BATCH: usize = 1024;
    let mut all = Vec::with_capacity(queries.len());
    let members = gallery.by_class(0..gallery.len());
    let class = |q: usize| members.get(&gallery.labels[q]).map_or(&[][..], Vec::as_slice);
    // In batches, because marks of all queries at once may be larger than the gallery.
    for queries in queries.chunks(BATCH) {
        let asks: Vec<Ask> = queries
            .iter()
            .map(|&q| {
                // Excluded images have the query's class.
                let (left_out, kept): (Vec<usize>, Vec<usize>) =
                    class(q).iter().partition(|&&i| gallery.excluded(q, i));
                Ask { z: gallery.point(q), marks: kept.into_iter().map(Mark::Image).collect(), left_out }
            })
            .collect();
        let mut batch_ranks = ranks(gallery, &asks);
        batch_ranks.iter_mut().for_each(|ranks| ranks.sort_unstable());
        all.append(&mut batch_ranks);
        tell(all.len())?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Metric;

    #[test]
    fn classes_of_one_are_nothing_to_evaluate() {
        let raw = Array2::from_shape_vec((2, 1), vec![0.0, 1.0]).unwrap();
        let gallery = Gallery::new(Metric::Euclidean, raw, vec![0, 1], vec!["a".into(), "b".into()]).unwrap();
        let name = |label: usize| label.to_string();
        let found = benign(&gallery, gallery.queries(), None, 0, &name, &mut |_| Ok(()));
        assert_eq!(found.map(drop).unwrap_err().exit, audit_base::Exit::Empty);
    }
}
