//! The strong search: an ensemble of losses, searches, starts and backward passes. For each trial the best
//! image that any member found counts, measured by the trial's term and never by a loss.
//!
//! Members come in tiers. All members of a tier run on the trials whose goal no earlier tier has reached, so
//! that expensive members run on few trials, and members of one tier can be compared on the same trials.
//! Which trials these are is known only at the end of a tier; it never depends on the order in which runs
//! end.

mod chunk;
mod descent;
mod forecast;
pub(super) mod ladder;
pub(super) mod members;
mod outcomes;
mod run;
mod runs;

pub use super::trial::{Aims, Ensemble, From, LossOf, Member};
pub use forecast::Forecast;
pub use members::{cost, usual};
pub use outcomes::routes;
pub use run::{Others, QueryFiles, Strong, WorkerSource};
