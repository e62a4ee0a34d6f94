//! The data that an audit writes: trials, outcomes, findings, verdicts, and the report that contains them. This module
//! uses no other module of the crate except [`crate::error`], so that every writer and reader can depend on it.

mod apart;
mod corruption;
mod float16;
mod geometry;
mod names;
mod partition;
mod properties;
pub mod reason;
mod report;
pub mod source;
mod sweep;
mod trial;
mod verdict;
mod verification;

pub use corruption::{Corrupted, CorruptedPictures, CorruptedRow, CorruptionRow, Corruptions, SameEps};
pub use float16::{HalfComparison, HalfPrecision, HalfTerm};
pub use geometry::{
    AttackedTriplets, ClassMap, ClassSpacing, Geometry, Histogram, Mining, SamplerRow, ShiftRow, Spacing,
    TripletRow, TripletState,
};
pub use names::{Axes, Channels, Interpolation, Metric, Precision, Protocol, Role, ScoreName};
pub use partition::Partition;
pub use properties::Properties;
pub use reason::{Finding, Found, Reason, Severity, Warning};
pub use report::{
    Attack, Benign, Breakdown, BreakdownRow, ClassRow, CmcPoint, CurvePoint, Data, Example, Examples, FEW,
    ForeignTargets, GradientCheck, Hub, Map, Mask, MemberRow, Model, Move, Neighbour, Part, Place,
    Preprocessing, Report, Resistance, RetrievalMeans, RetrievalRow, RobustR1, SCHEMA_VERSION, Score, Scores,
    Smallest, Suite, Surrogate, Timing, Tool, TrialsFile, Universal,
};
pub use sweep::{Sweep, SweepPoint};
pub use trial::{Captured, Form, Measures, MemberResult, Outcome, Retrieval, Skipped, TrialList, TrialRow};
pub use verdict::{Baseline, Check, CheckResult, Kind, Level, Verdict};
pub use verification::{Acceptance, AttackedPairs, Folds, PairGroup, Verification};
