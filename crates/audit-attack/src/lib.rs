//! Attacks. An attack is an objective (what the attacker wants), a search (how images move) and the bounds of
//! a perturbation.
//!
//! ```text
//! queries ─ select ─> Trial (objective × query × targets) ─ run ─> Outcome (before / after)
//! ```

pub mod ball;
pub mod check;
mod context;
mod draw;
pub mod ensemble;
mod loss;
mod loss_batch;
pub mod mask;
pub mod measure;
pub mod objective;
mod passes;
mod plan;
mod runner;
pub mod search;
mod select;
mod trial;
pub mod triplets;

pub use audit_gallery::space::{order, sample_candidates, sample_of, sample_queries};
pub use audit_report::facts::{Drawn, term};
pub use audit_report::record::rungs;
pub use ball::{BALLS, Ball, Bound};
pub use context::ContextSettings;
pub use draw::{Draw, NOISE};
pub use ensemble::{Forecast, Others, QueryFiles, Strong};
pub use loss::{GalleryLoss, Loss, PointLoss};
pub use loss_batch::losses;
pub use mask::Mask;
pub use measure::{measure, measure_all, rank_bounds, retrievals};
pub use objective::OBJECTIVES;
pub use passes::{GRADIENT_PASSES, Passes, Room};
pub use plan::Plan;
pub use runner::{CleanImage, Event, Evidence, Further, ImageSource, LAST, Watch, run, run_jobs, together};
pub use search::{APGD, PGD, RANDOM, SEARCHES, Search};
pub use select::{Selection, TrialFile, list, read_trials, rows_of, select};
pub use trial::{AttackContext, Measure, Objective, Query, Reach, Shared, Targets, Trial};
