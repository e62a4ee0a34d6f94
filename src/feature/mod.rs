//! What can be asked of a model or of reports besides an audit: a file for each, or a folder if it has
//! a result, a page or a text of its own. All are made of the steps of [`crate::pipeline`].

pub mod attack_file;
pub mod compare;
pub mod demo;
pub mod doctor;
pub mod embed;
pub mod evidence;
pub mod geometry;
pub mod grad_file;
pub mod inspect;
pub mod merge;
pub mod sweep;
