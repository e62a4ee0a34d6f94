//! Plain data that an audit leaves: trials, outcomes, and in time the whole report. A leaf: it names no other module of this
//! crate but [`crate::error`], so that whatever writes or reads it can depend on it.

pub mod trial;

pub use trial::{Form, Measures, Outcome, Skipped, TrialList, TrialRow};
