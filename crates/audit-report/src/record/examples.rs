//! Attacks to show in a report: their images, what they find, and a map of embeddings.

use super::CorruptedPictures;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A few attacks to show: for each attack, the trials whose embedding moved farthest, and of the others the
/// one that withstood most.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Examples {
    /// The factor that pixel differences are multiplied by in [`Example::difference`].
    pub amplification: f32,
    /// Trials of each attack, in the order of the suite.
    pub trials: Vec<Example>,
    /// Small pictures (base64) of the gallery images that the trials name, by id.
    pub thumbnails: BTreeMap<String, String>,
    /// A map of embeddings in the plane.
    pub map: Map,
    /// A query under natural corruptions; absent if the suite has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupted: Option<CorruptedPictures>,
}

/// A trial to show. Pictures are in base64: PNG, or JPEG of images of more than 96 pixels.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Example {
    /// The attack's code.
    pub attack: String,
    /// The query's id.
    pub query: String,
    /// The query's class.
    pub class: String,
    /// Ids of the targets.
    pub targets: Vec<String>,
    /// The query's image.
    pub clean: String,
    /// The attacked image.
    pub attacked: String,
    /// Their difference, amplified, with mid-grey for no difference.
    pub difference: String,
    /// The nearest images before the attack, without the query. If the attack perturbs a candidate, those
    /// of its first target.
    pub nearest_before: Vec<Neighbour>,
    /// The nearest images after the attack, without the query.
    pub nearest_after: Vec<Neighbour>,
    /// Held-out queries that the attacked image captures, by its rank; empty for attacks that capture none.
    /// Relevant are those of its class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub captured: Vec<Neighbour>,
    /// The loss at each step.
    pub losses: Vec<f64>,
}

/// A gallery image that was retrieved.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Neighbour {
    /// The image's id.
    pub id: String,
    /// Whether the image has the query's class.
    pub relevant: bool,
}

/// Embeddings projected onto the two directions in which the gallery varies most.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Map {
    /// The attack whose trials are shown.
    pub attack: String,
    /// Share of the gallery's variance in the plane, in per cent.
    pub variance: f64,
    /// A sample of the gallery.
    pub gallery: Vec<MapPoint>,
    /// A sample of attacked queries.
    pub queries: Vec<Move>,
}

/// A gallery image on the map.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MapPoint {
    /// The image's class.
    pub class: String,
    /// The image's position.
    pub at: [f32; 2],
}

/// An attacked query on the map.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Move {
    /// The query's id.
    pub query: String,
    /// The query's class.
    pub class: String,
    /// Position before the attack.
    pub from: [f32; 2],
    /// Position after the attack.
    pub to: [f32; 2],
}
