//! Two models on the same trials: the effect on one of attacks made on the other, and the models' agreement
//! without an attack.

use super::clean::paired;
use super::paired::PairedReports;
use super::quantity::{ARS, ERS, Quantity};
use super::row::{Difference, State};
use super::share::wilson;
use crate::record::{Report, unless_few};
use audit_base::numbers::mean;
use audit_gallery::space::{Gallery, cosine, sample_queries};
use serde::Serialize;

/// Maximum number of queries whose nearest images are compared.
const MOST_QUERIES: usize = 2000;

/// Transfer, agreement and cost of two models audited on the same trials.
#[derive(Clone, Debug, Serialize)]
pub struct Crossed {
    /// Each score and each result of an attack, by where attacks were made and where they were measured.
    pub transfer: Vec<Transfer>,
    /// Agreement of embeddings and nearest images without an attack.
    pub agreement: Agreement,
    /// Cost of the models, in the order of [`Transfer::cells`].
    pub costs: [ModelCost; 2],
}

/// A number by the model that attacks were made on and the one that they were measured on.
#[derive(Clone, Debug, Serialize)]
pub struct Transfer {
    /// The metric.
    pub metric: &'static Quantity,
    /// `cells[made][measured]`; 0 is the baseline of the comparison, 1 the other model.
    pub cells: [[Cell; 2]; 2],
}

/// A number of attacks made on one model and measured on one.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// In the unit of the metric; absent if it is withheld.
    pub value: Option<f64>,
    /// Whether it may be shown.
    pub state: State,
    /// The reason why it is withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// 95 % interval over queries.
    pub interval: Option<(f64, f64)>,
    /// If the attacks were made on the other model: the difference from attacks made on the measured model
    /// itself.
    pub difference: Option<Difference>,
}

/// Agreement of two models without an attack.
#[derive(Clone, Debug, Serialize)]
pub struct Agreement {
    /// Number of images.
    pub images: usize,
    /// The cosine between both models' embeddings of an image; `None` if their lengths differ.
    pub cosine: Option<Cosines>,
    /// Number of queries whose nearest images were compared.
    pub queries: usize,
    /// Share of these queries for which both models find the same image first, per cent.
    pub same_first: f64,
    /// 95 % interval of the share (Wilson).
    pub interval: Option<(f64, f64)>,
    /// R@1 of both models on these queries without an attack, per cent; queries without a possible match are
    /// left out.
    pub r1: [f64; 2],
    /// The other model's R@1 minus the baseline's. Its interval resamples the queries, the same for both.
    pub r1_difference: Difference,
}

/// The cosines between both models' embeddings, over all images.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cosines {
    /// 1 if the models agree on every image.
    pub mean: f64,
    /// The cosine of the image on which they differ most.
    pub lowest: f64,
}

/// Cost of a model.
#[derive(Clone, Debug, Serialize)]
pub struct ModelCost {
    /// Bytes of the file and of the external data that it refers to.
    pub bytes: u64,
    /// Image steps of attacks a second, in this audit.
    pub image_steps_per_second: f64,
}

/// Combines the four reports. `own[i]` has the attacks made on model i and measured on it, `of_other[i]`
/// those made on the other model and measured on it.
pub fn transfers(own: [&Report; 2], of_other: [&Report; 2]) -> Vec<Transfer> {
    let pairs = [0, 1].map(|i| PairedReports::new(own[i], of_other[i]));
    let all = [ARS, ERS].into_iter().chain(Quantity::of_terms());
    let transfer = |metric: &'static Quantity| {
        let cell = |made: usize, measured: usize| {
            let report = if made == measured { own[measured] } else { of_other[measured] };
            let row = metric.row(report);
            let difference = (made != measured).then(|| pairs[measured].difference(metric)).flatten();
            (row.state != State::NotMeasured).then_some(Cell {
                value: row.value,
                state: row.state,
                why: row.why,
                interval: row.interval,
                difference,
            })
        };
        Some(Transfer { metric, cells: [[cell(0, 0)?, cell(0, 1)?], [cell(1, 0)?, cell(1, 1)?]] })
    };
    all.filter_map(transfer).collect()
}

/// Agreement of two models on the same images, in the same order. `tell` gets the number of queries done and
/// of all.
pub fn agreement(galleries: [&Gallery; 2], seed: u64, tell: &mut dyn FnMut(usize, usize)) -> Agreement {
    let [a, b] = galleries;
    // Foreign targets come after the images, and are equal for both.
    let images = a.ids.len() - a.targets().len();
    let cosines: Option<Vec<f64>> =
        (a.dim() == b.dim()).then(|| (0..images).map(|i| cosine(a.point(i), b.point(i))).collect());
    let cosine = cosines
        .map(|all| Cosines { mean: mean(&all), lowest: all.iter().copied().fold(f64::INFINITY, f64::min) });
    let queries = sample_queries(a, Some(MOST_QUERIES), seed);
    let first = |gallery: &Gallery, query: usize| {
        let distances = gallery.distances(gallery.point(query));
        gallery.nearest(&distances, 1, |item| !gallery.excluded(query, item)).first().copied()
    };
    let (mut same, mut hits) = (0, Vec::new());
    for (done, &query) in queries.iter().enumerate() {
        let found = [first(a, query), first(b, query)];
        same += usize::from(found[0] == found[1]);
        if a.positives(query).next().is_some() {
            let hit = |item: Option<usize>| item.is_some_and(|item| a.labels[item] == a.labels[query]);
            hits.push(found.map(|item| 100.0 * f64::from(hit(item))));
        }
        tell(done + 1, queries.len());
    }
    let r1 = [0, 1].map(|model| hits.iter().map(|hit| hit[model]).sum::<f64>() / hits.len().max(1) as f64);
    let changes: Vec<f64> = hits.iter().map(|[base, candidate]| candidate - base).collect();
    Agreement {
        images,
        cosine,
        queries: queries.len(),
        same_first: 100.0 * same as f64 / queries.len() as f64,
        interval: unless_few(queries.len(), Some(wilson(same, queries.len()))),
        r1,
        r1_difference: Difference {
            value: r1[1] - r1[0],
            interval: paired(&changes, seed),
            queries: changes.len(),
        },
    }
}
