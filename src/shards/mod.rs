//! Runs in parts and runs that go on: what makes two processes work on the same run, the journal of finished trials, and a part's share.

pub mod identity;
pub mod journal;
pub(crate) mod share;
