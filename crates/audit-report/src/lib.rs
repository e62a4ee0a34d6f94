//! The report of an audit as data, and what follows from it: scores, gates, comparisons. [`facts`] describes
//! every attack for reports.

pub mod facts;
pub mod judge;
pub mod record;
