//! The gallery of `audit`: images and their layouts on disk, corruptions, files of embeddings, and the
//! embedding space with its metrics, ranks and clean measures.

pub mod columns;
pub mod corruption;
pub mod data;
pub mod name_index;
pub mod space;
