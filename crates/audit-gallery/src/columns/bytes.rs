//! Columns of bytes, such as images, that stay in their file: a row group is decoded when it is read.

use super::ParquetTable;
use audit_base::{Error, Result};
use parquet::data_type::ByteArray;
use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A column of bytes in a file. A row group is decoded when one of its rows is read.
pub struct BytesColumn {
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) about: &'static str,
    /// Number of rows up to the end of each row group.
    pub(super) ends: Vec<usize>,
    pub(super) cache: Arc<RowGroups>,
}

impl BytesColumn {
    /// Name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The value in a row, counted from 0. Errors (exit code 2): it is empty, or the file can't be read any
    /// more.
    pub fn value(&self, row: usize) -> Result<Bytes> {
        let group = self.ends.partition_point(|end| *end <= row);
        let first = group.checked_sub(1).map_or(0, |before| self.ends[before]);
        // The file is opened for each row group: a data set may have more files than a program may hold open.
        let values = self.cache.get((&self.path, group), || {
            ParquetTable::open(&self.path, self.about)?.bytes(&self.name, group)
        })?;
        values.get(row - first).cloned().flatten().ok_or_else(|| {
            let (path, name) = (self.path.display(), &self.name);
            Error::usage(format!("{path}, row {}: column `{name}` is empty", row + 1))
        })
    }
}

impl fmt::Debug for BytesColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.name, self.path.display())
    }
}

/// Cache of a data set's decoded row groups: images are mostly read in order.
pub struct RowGroups {
    /// The most recently used group first.
    groups: Mutex<VecDeque<RowGroup>>,
    /// Maximum size of several cached groups, in bytes.
    most: usize,
}

impl Default for RowGroups {
    fn default() -> Self {
        RowGroups { groups: Mutex::default(), most: 1 << 30 }
    }
}

struct RowGroup {
    path: PathBuf,
    group: usize,
    values: Arc<Vec<Option<Bytes>>>,
    size: usize,
}

impl RowGroups {
    /// The values of a row group; `read` decodes it if it isn't cached. Only one is decoded at a time:
    /// several could exceed any memory.
    fn get(
        &self,
        (path, group): (&Path, usize),
        read: impl FnOnce() -> Result<Vec<Option<Bytes>>>,
    ) -> Result<Arc<Vec<Option<Bytes>>>> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let index = groups.iter().position(|entry| entry.group == group && entry.path == path);
        let first = match index.and_then(|at| groups.remove(at)) {
            Some(index) => index,
            None => {
                let values = Arc::new(read()?);
                let size = values.iter().flatten().map(|bytes| bytes.as_ref().len()).sum();
                RowGroup { path: path.to_path_buf(), group, values, size }
            }
        };
        let values = first.values.clone();
        groups.push_front(first);
        while groups.len() > 1 && groups.iter().map(|entry| entry.size).sum::<usize>() > self.most {
            groups.pop_back();
        }
        Ok(values)
    }
}

/// Bytes of a table. Copies share them.
#[derive(Clone, Debug)]
pub struct Bytes(pub(super) ByteArray);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for two groups of 4 bytes. The least recently used group is dropped first; a group larger than
    /// the room is cached alone.
    #[test]
    fn row_groups_are_kept_while_there_is_room() {
        let cache = RowGroups { groups: Mutex::default(), most: 8 };
        let read = |path: &str, group: usize, size: usize| {
            let mut decoded = false;
            let values = cache.get((Path::new(path), group), || {
                decoded = true;
                Ok(vec![Some(Bytes(ByteArray::from(vec![group as u8; size]))), None])
            });
            assert_eq!(values.unwrap()[0].as_ref().unwrap().as_ref(), vec![group as u8; size]);
            decoded
        };
        assert!(read("a", 0, 4) && read("a", 1, 4) && !read("a", 0, 4));
        assert!(read("b", 0, 4) && !read("a", 0, 4), "another file's group is another group");
        assert!(read("a", 1, 4), "it was used the longest ago");
        assert!(read("a", 2, 9) && !read("a", 2, 9) && read("a", 0, 4));
    }
}
