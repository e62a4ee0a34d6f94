//! Measures of the geometry of embeddings, as in reports of `audit geometry`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Distances of clean embeddings, over all pairs of the items.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spacing {
    /// Items of the gallery that were compared.
    pub items: usize,
    /// How they were chosen, where they are not all.
    pub sampling: Option<String>,
    /// Mean distance of all pairs, d̄.
    pub distance: f64,
    /// Mean distance of pairs of one class, d_intra.
    pub within: f64,
    /// Mean distance of pairs of two classes, d_inter.
    pub between: f64,
    /// `within` / `between` (CA-TRIDE, table 5).
    pub entanglement: f64,
    /// (`between` − `within`) / `distance`.
    pub separability: f64,
    /// Mean squared distance of pairs of one class, the alignment loss (ADML, equation 1).
    pub alignment: f64,
    /// Squared length of the mean embedding, the unbiased loss (ADML, definition 5). Absent under the
    /// Euclidean metric, as the energies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbiased: Option<f64>,
    /// HE, s = 0: mean of −log d over all pairs (ADML, equation 2). Absent under the Euclidean metric, whose
    /// embeddings lie on no sphere, and if all pairs coincide.
    pub he_0: Option<f64>,
    /// HE, s = 1: mean of 1/d (ADML, equation 2); absent as `he_0`.
    pub he_1: Option<f64>,
    /// G-HE, s = 1: log of the mean of exp(−d²) (ADML, equation 3). Table 8 of the paper prints the mean
    /// itself.
    pub g_he: Option<f64>,
    /// Pairs at a distance below 1e-6, which both kinds of HE leave out: they would be infinite.
    pub coincident: u64,
    /// Shares of the pairs by distance.
    pub histogram: Histogram,
    /// Classes, the most entangled first.
    pub classes: Vec<ClassSpacing>,
}

/// Pairs by distance, in bins of equal width from 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// Width of a bin.
    pub width: f64,
    /// Share of the pairs of one class in each bin, in per cent.
    pub within: Vec<f64>,
    /// The same of pairs of two classes.
    pub between: Vec<f64>,
}

/// A class and its neighbour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassSpacing {
    /// The class, as the data names it.
    pub class: String,
    /// Number of its items in the gallery.
    pub items: usize,
    /// Mean distance of its pairs.
    pub within: f64,
    /// The other class with the smallest mean distance from it.
    pub neighbour: String,
    /// This distance.
    pub between: f64,
    /// `within` / `between`: from 1 on, the two classes are no longer apart.
    pub entanglement: f64,
}

/// Hardness d(a,p) − d(a,n) of the triplets of a sampler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SamplerRow {
    /// The sampler's name in `audit-train`.
    pub sampler: String,
    /// Mean over batches of the batch's mean.
    pub mean: f64,
    /// Variance of the batches' means.
    pub variance: f64,
    /// Mean over batches of the variance within a batch.
    pub variance_within: f64,
    /// Share of the triplets with a hardness above 0, in per cent.
    pub hard: f64,
}

/// What a batch of triplets shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TripletState {
    /// Mean of d(a,p) − d(a,n), H.
    pub hardness: f64,
    /// Collapseness C (CA-TRIDE, equations 5 to 7).
    pub collapseness: f64,
    /// Mean of (d(a,n) − d(a,p)) / d̄.
    pub separability: f64,
    /// Mean distance of all pairs of the batch's embeddings, d̄.
    pub distance: f64,
}
