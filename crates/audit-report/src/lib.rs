//! The report of an audit as data, and what follows from it: scores, gates, comparisons. [`facts`] says of every attack what a report
//! must know.

pub mod facts;
pub mod judge;
pub mod record;
