//! Result of `audit geometry`: the geometry of embeddings, and how far attacks move them.

use crate::Exit;
use crate::record::{
    Benign, Data, MapPoint, ModelRecord, Move, SamplerRow, Severity, Spacing, SuiteRecord, Tool,
    TripletState, Warning,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The geometry of a model's embeddings of a data set. All distances are Euclidean; under the metrics that
/// normalise, between embeddings of length 1.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Geometry {
    /// Version of this format, that of reports.
    pub schema_version: u32,
    /// The program that wrote it.
    pub tool: Tool,
    /// The measured model.
    pub model: ModelRecord,
    /// The images.
    pub data: Data,
    /// Retrieval without an attack, in per cent. NMI and AMI are left out.
    pub benign: Benign,
    /// Budget of the attacks.
    pub suite: SuiteRecord,
    /// Seed of all draws.
    pub seed: u64,
    /// Distances of clean embeddings.
    pub spacing: Spacing,
    /// Hardness of clean triplets by sampler (HM, table 1).
    pub samplers: Vec<SamplerRow>,
    /// The first batches of semi-hard triplets (CA-TRIDE, figure 4).
    pub batches: Vec<TripletState>,
    /// What was measured of triplets, and how.
    pub mining: Mining,
    /// Triplets under attack (CA-TRIDE, figures 4 and 5).
    pub triplets: AttackedTriplets,
    /// Queries under the attacks of the suite.
    pub shifts: Vec<ShiftRow>,
    /// Some classes in the plane, by t-SNE where embeddings have more than two dimensions.
    pub map: ClassMap,
    /// Findings.
    pub warnings: Vec<Warning>,
    /// Seconds that all of it took.
    pub seconds: f64,
    /// The command line.
    pub command: String,
}

impl Geometry {
    /// Exit code 12 if a finding invalidates the numbers, unless --allow-untrusted is set.
    pub fn exit(&self, accepted: bool) -> Option<Exit> {
        let found = self.warnings.iter().any(|w| w.severity == Severity::Error);
        (!accepted && found).then_some(Exit::Untrusted)
    }
}

/// How triplets were drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mining {
    /// Number of batches.
    pub batches: usize,
    /// Images of a batch, two of a class.
    pub images: usize,
    /// The margin within which semi-hard negatives lie, η.
    pub eta: f64,
    /// How much near samples count in collapseness, λ (CA-TRIDE, equation 7).
    pub lambda: f64,
}

/// Triplets that an attack makes as hard as it can.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AttackedTriplets {
    /// Names of anchor, positive and negative of each.
    pub triplets: Vec<[String; 3]>,
    /// Before the attack.
    pub clean: TripletState,
    /// A row for each choice of what moves.
    pub attacks: Vec<TripletRow>,
}

/// Attacked triplets.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TripletRow {
    /// What moves: anchors, candidates or all.
    pub moved: String,
    /// The name in CA-TRIDE: ANP, CAP or SIP.
    pub method: String,
    /// Mean distance that moved embeddings went.
    pub shift: f64,
    /// The same divided by d̄ of the clean triplets (figure 5).
    pub relative: f64,
    /// `relative` times the number of images that move in a triplet.
    pub overall: f64,
    /// Rise of mean H for each unit of `shift` (γ of CA-TRIDE, equation 18).
    pub gain: f64,
    /// The same by its equations 22 to 25, of the angles of the clean triplets.
    pub gain_printed: f64,
    /// After the attack.
    pub state: TripletState,
}

/// How far an attack moves the embeddings of queries.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ShiftRow {
    /// Code of the attack.
    pub attack: String,
    /// Queries attacked.
    pub queries: usize,
    /// Mean distance that their embeddings went.
    pub shift: f64,
    /// The same divided by d̄ of the gallery.
    pub relative: f64,
    /// R@1 of these queries before, in per cent; absent where the attack is measured by something else.
    pub r1_before: Option<f64>,
    /// The same under attack.
    pub r1_after: Option<f64>,
}

/// Items of some classes in the plane, attacked queries with them: by t-SNE, or the embeddings themselves
/// where they have two dimensions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClassMap {
    /// Code of the attack.
    pub attack: String,
    /// Effective number of neighbours; absent where there is no t-SNE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perplexity: Option<f64>,
    /// KL(P‖Q) of the map: how much of the neighbourhoods it lost; absent where there is no t-SNE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divergence: Option<f64>,
    /// Clean items.
    pub items: Vec<MapPoint>,
    /// Queries before and after the attack.
    pub queries: Vec<Move>,
}
