//! Results that are reused: each in one file, with everything that it follows from in its name or beside it.

pub(crate) mod clean_retrieval;
pub(crate) mod embeddings;
pub(crate) mod load_check;
