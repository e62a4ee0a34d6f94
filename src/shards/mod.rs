//! Runs in parts and resumed runs: the identity of a run, the journal of finished trials, and a part's share.

pub mod identity;
pub mod journal;
pub(crate) mod share;
