//! The data that an audit writes: trials, outcomes, findings, verdicts, and the report that contains them.
//! Facts and judgements depend on it. Of this crate it uses the name of the default norm, which is a fact.

mod choices;
mod conditions;
mod corruption;
mod examples;
mod float16;
mod preprocessing;
pub mod reason;
mod report;
mod results;
pub mod source;
mod suite;
mod trial;
mod trials_file;
mod verdict;
mod verification;

pub use audit_gallery::data::{Axes, Channels, Crop, Interpolation, Partition, Properties, Role};
pub use audit_gallery::space::benign::{Benign, ClassRow, CmcPoint};
pub use audit_gallery::space::{ClassSpacing, Histogram, Metric, SamplerRow, Spacing, TripletState};
pub use choices::{Precision, Protocol, ScoreName, Space};
pub use conditions::{Data, ForeignTargetsRecord, GradientCheck, ModelRecord, Timing, Tool, megabytes};
pub use corruption::{Corrupted, CorruptedPictures, CorruptedRow, CorruptionRow, Corruptions, SameEps};
pub use examples::{Example, Examples, Map, MapPoint, Move, Neighbour};
pub use float16::{ByTrial, HalfComparison, HalfPrecision, HalfTerm};
pub use preprocessing::Preprocessing;
pub use reason::{Finding, Found, Masking, Reason, Severity, State, Unchecked, Warning};
pub use report::{Part, Report, SCHEMA_VERSION, TrialsFile};
pub use results::{
    Attack, Breakdown, BreakdownRow, CurvePoint, Eps50, FEW, Hub, Ladder, MemberRow, Resistance,
    RetrievalMeans, RetrievalRow, Robust, Rung, Score, Scores, Smallest, Universal, number_of_queries, rungs,
    unless_few,
};
pub use suite::{CORRECT_FIRST, EpsAlpha, MaskRecord, SuiteRecord, Surrogate, as_typed, length, size};
pub use trial::{
    Captured, Enough, Form, Measures, MemberResult, Outcome, Retrieval, Skipped, TrialList, TrialRow,
};
pub use verdict::{Baseline, CheckResult, GateCheck, GateCheckKind, Level, Verdict};
pub use verification::{Acceptance, AttackedPairs, Folds, PairGroup, Verification};
