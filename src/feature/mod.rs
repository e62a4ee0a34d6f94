//! The commands besides an audit: a file for each, or a folder if it has its own result, page or text. All
//! consist of the steps of [`crate::pipeline`].

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
