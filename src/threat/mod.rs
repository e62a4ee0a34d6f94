//! Attacks. An attack is an objective (what the attacker wants), a search (how images move) and the bounds of a
//! perturbation.
//!
//! ```text
//! queries ─ select ─> Trial (objective × query × targets) ─ run ─> Outcome (before / after)
//! ```

/// Rows of a table are shown and told apart by their names.
macro_rules! known_by_name {
    ($row:ty) => {
        impl std::fmt::Debug for $row {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name)
            }
        }

        impl PartialEq for $row {
            fn eq(&self, other: &Self) -> bool {
                self.name == other.name
            }
        }
    };
}

pub mod ball;
mod context;
mod draw;
pub mod ensemble;
mod loss;
mod losses;
pub mod mask;
pub mod measure;
pub mod objective;
mod passes;
mod plan;
mod runner;
mod sample;
pub mod search;
mod select;
pub mod term;
mod trial;
pub mod triplets;

pub use ball::{BALLS, Ball, Bound};
pub use context::ContextSettings;
pub use draw::{Draw, NOISE};
pub use ensemble::Strong;
pub use loss::{GalleryLoss, Loss, PointLoss};
pub use losses::losses;
pub use mask::Mask;
pub use measure::{measure, measure_all, rank_bounds, retrievals};
pub use objective::OBJECTIVES;
pub use passes::{GRADIENT_PASSES, Passes, Room};
pub use plan::{Plan, rungs};
pub use runner::{Event, Evidence, Further, ImageSource, LAST, Watch, run, run_jobs, together};
pub use sample::{order, sample_candidates, sample_of, sample_queries};
pub use search::{APGD, PGD, RANDOM, SEARCHES, Search};
pub use select::{Selection, TrialFile, list, read_trials, rows_of, select};
pub use trial::{AttackContext, Drawn, Measure, Objective, Query, Reach, Shared, Targets, Trial};
