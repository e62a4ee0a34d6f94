//! Threats: an objective (what the attacker wants), a search (how images move) and the bounds of a perturbation.
//!
//! ```text
//! queries ─ select ─> Trial (objective × query × targets) ─ run ─> Outcome (before / after)
//! ```

mod draw;
mod measure;
pub mod objective;
mod runner;
mod search;
mod select;
pub mod term;

pub use draw::Draw;
pub use measure::{Measure, measure, measure_all};
pub use objective::{Aim, Drawn, GalleryLoss, Loss, OBJECTIVES, Objective, PointLoss, Query, Reach, Targets};
pub use runner::{Event, Evidence, Images, LAST, Plan, Watch, losses, run};
pub use search::apgd::Schedule;
pub use select::{
    Selection, Trial, TrialFile, list, read_trials, rows_of, sample_queries, select, write_trials,
};
