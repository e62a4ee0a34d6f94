//! Results that are reused: each is one file, with everything that it depends on in its name or beside it.

pub(crate) mod clean_retrieval;
pub(crate) mod embeddings;
pub(crate) mod load_check;
