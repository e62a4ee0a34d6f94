//! The features: a file for each, or a folder if it has its own result, page or text. Most are commands
//! besides an audit, and consist of the steps of [`crate::pipeline`]. `corruption` and `verification` are
//! parts of an audit: its steps call them.

pub mod attack_file;
pub mod compare;
pub(crate) mod corruption;
pub mod demo;
pub mod doctor;
pub mod embed;
pub mod evidence;
pub mod geometry;
pub mod grad_file;
pub mod inspect;
pub mod merge;
pub mod sweep;
pub(crate) mod verification;
