//! Parquet tables of named columns: galleries are read, trials are written.
//!
//! Columns are read one by one and in pieces, so that a large gallery is in memory once, as its numbers.

mod bytes;
mod read;
mod write;

pub use bytes::{Bytes, BytesColumn, RowGroups};
pub use read::ParquetTable;
pub use write::{Column, write, write_in_groups};
