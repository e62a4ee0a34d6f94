//! Reading Parquet tables, column by column and in pieces.

use super::bytes::{Bytes, BytesColumn, RowGroups};
use audit_base::{Error, Result, files, guard};
use ndarray::Array2;
use parquet::basic::{ConvertedType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows read at a time.
const PIECE: usize = 4096;

/// A Parquet file opened for reading.
pub struct ParquetTable {
    path: PathBuf,
    file: SerializedFileReader<File>,
    /// Expected content of the file, for errors.
    about: &'static str,
}

impl ParquetTable {
    /// Opens `path`; `about` says in errors what was expected.
    pub fn open(path: &Path, about: &'static str) -> Result<ParquetTable> {
        let wrong = |reason: &dyn std::fmt::Display| {
            Error::usage(format!("can't read {}: {reason}. Expected is {about}", path.display()))
        };
        let file = files::open(path).map_err(|reason| wrong(&reason))?;
        let file = guarded(|| SerializedFileReader::new(file)).map_err(|reason| wrong(&message(&reason)))?;
        Ok(ParquetTable { path: path.to_path_buf(), file, about })
    }

    /// Names of the columns.
    pub fn names(&self) -> Vec<&str> {
        let schema = self.file.metadata().file_metadata().schema_descr();
        schema.root_schema().get_fields().iter().map(|field| field.name()).collect()
    }

    /// The text that [`super::write_in_groups`] wrote under this key.
    pub fn note(&self, key: &str) -> Option<&str> {
        let notes = self.file.metadata().file_metadata().key_value_metadata()?;
        notes.iter().find(|note| note.key == key)?.value.as_deref()
    }

    /// An error about the whole file.
    pub fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::usage(format!("{}: {what}. Expected is {}", self.path.display(), self.about))
    }

    /// An error about a row, counted from 1.
    pub fn wrong_at(&self, row: usize, column: &str, what: impl std::fmt::Display) -> Error {
        Error::usage(format!("{}, row {row}: column `{column}`: {what}", self.path.display()))
    }

    /// Columns whose values are bytes, such as images: of a record, its field `bytes`. Text doesn't count.
    pub fn of_bytes(&self) -> Vec<String> {
        let schema = self.file.metadata().file_metadata().schema_descr();
        let leaves = schema.columns().iter().filter(|column| {
            let path = column.path().parts();
            let bytes = column.physical_type() == Type::BYTE_ARRAY && column.logical_type_ref().is_none();
            let plain = column.converted_type() == ConvertedType::NONE && column.max_rep_level() == 0;
            bytes && plain && (path.len() == 1 || (path.len() == 2 && path[1] == "bytes"))
        });
        leaves.map(|column| column.path().string()).collect()
    }

    /// The values of a column of bytes in one row group.
    pub(super) fn bytes(&self, name: &str, group: usize) -> Result<Vec<Option<Bytes>>> {
        let mut out = Vec::new();
        self.pieces(name, group..group + 1, |reader| match reader {
            ColumnReader::ByteArrayColumnReader(reader) => {
                self.scalars(name, reader, &mut out, |bytes| Ok(Bytes(bytes.clone())))
            }
            _ => Err(self.wrong(format!("column `{name}` doesn't hold bytes"))),
        })?;
        Ok(out)
    }

    /// A column of bytes that stays in the file; `cache` has decoded row groups.
    pub fn column(&self, name: &str, cache: &Arc<RowGroups>) -> BytesColumn {
        let groups = self.file.metadata().row_groups().iter();
        let ends = groups.scan(0, |rows, group| {
            *rows += usize::try_from(group.num_rows()).unwrap_or(0);
            Some(*rows)
        });
        let (path, name, about) = (self.path.clone(), name.to_owned(), self.about);
        BytesColumn { path, name, about, ends: ends.collect(), cache: cache.clone() }
    }

    /// The rows, from 0, in which a column of bytes is empty. Reads only row groups that have missing values
    /// according to the file.
    pub fn empty(&self, column: &BytesColumn) -> Result<Vec<usize>> {
        let mut all = Vec::new();
        for (group, (of, end)) in self.file.metadata().row_groups().iter().zip(&column.ends).enumerate() {
            let own = of.columns().iter().find(|own| own.column_path().string() == column.name);
            let nulls = own.and_then(|own| own.statistics()).and_then(|found| found.null_count_opt());
            if nulls.is_some_and(|nulls| nulls > 0) {
                let values = self.bytes(&column.name, group)?;
                let first = end - values.len();
                all.extend((0..values.len()).filter(|&row| values[row].is_none()).map(|row| first + row));
            }
        }
        Ok(all)
    }

    /// A column of text, or of whole numbers or flags as text.
    pub fn texts(&self, name: &str) -> Result<Vec<Option<String>>> {
        let mut out = Vec::new();
        self.pieces(name, self.groups(), |reader| match reader {
            ColumnReader::ByteArrayColumnReader(reader) => self.scalars(name, reader, &mut out, |bytes| {
                bytes.as_utf8().map(str::to_owned).map_err(|_| "is not UTF-8 text")
            }),
            ColumnReader::Int32ColumnReader(reader) => {
                self.scalars(name, reader, &mut out, |n| Ok(n.to_string()))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                self.scalars(name, reader, &mut out, |n| Ok(n.to_string()))
            }
            ColumnReader::BoolColumnReader(reader) => {
                self.scalars(name, reader, &mut out, |flag| Ok(flag.to_string()))
            }
            _ => Err(self.wrong(format!("column `{name}` holds neither text nor whole numbers"))),
        })?;
        Ok(out)
    }

    /// A column of whole numbers.
    pub fn wholes(&self, name: &str) -> Result<Vec<Option<i64>>> {
        let mut out = Vec::new();
        self.pieces(name, self.groups(), |reader| match reader {
            ColumnReader::Int32ColumnReader(reader) => {
                self.scalars(name, reader, &mut out, |n| Ok(i64::from(*n)))
            }
            ColumnReader::Int64ColumnReader(reader) => self.scalars(name, reader, &mut out, |n| Ok(*n)),
            _ => Err(self.wrong(format!("column `{name}` doesn't hold whole numbers"))),
        })?;
        Ok(out)
    }

    /// A column of lists of numbers of equal length [rows, length].
    pub fn vectors(&self, name: &str) -> Result<Array2<f32>> {
        let rows = usize::try_from(self.file.metadata().file_metadata().num_rows()).unwrap_or(0);
        let mut lists = Lists { rows, length: 0, values: Vec::new() };
        self.pieces(name, self.groups(), |reader| match reader {
            ColumnReader::FloatColumnReader(reader) => self.lists(name, reader, &mut lists, |v| *v),
            ColumnReader::DoubleColumnReader(reader) => self.lists(name, reader, &mut lists, |v| *v as f32),
            _ => Err(self.wrong(format!("column `{name}` doesn't hold lists of 32- or 64-bit floats"))),
        })?;
        let Lists { length, values, .. } = lists;
        let rows = values.len().checked_div(length).unwrap_or(0);
        Array2::from_shape_vec((rows, length), values).map_err(|reason| self.wrong(reason))
    }

    fn groups(&self) -> Range<usize> {
        0..self.file.num_row_groups()
    }

    /// Passes a column to `read`, one row group at a time.
    fn pieces(
        &self,
        name: &str,
        groups: Range<usize>,
        mut read: impl FnMut(ColumnReader) -> Result<()>,
    ) -> Result<()> {
        guarded(|| Ok(self.all_pieces(name, groups, &mut read)))
            .map_err(|reason| self.unreadable(name, &reason))?
    }

    fn all_pieces(
        &self,
        name: &str,
        groups: Range<usize>,
        read: &mut dyn FnMut(ColumnReader) -> Result<()>,
    ) -> Result<()> {
        let schema = self.file.metadata().file_metadata().schema_descr();
        let leaves: Vec<usize> =
            (0..schema.num_columns()).filter(|leaf| is_named(schema, *leaf, name)).collect();
        let leaf = match leaves[..] {
            [leaf] => leaf,
            [] => {
                let found = self.names().join(", ");
                return Err(self.wrong(format!("it lacks the column `{name}`. Found are {found}")));
            }
            _ => return Err(self.wrong(format!("column `{name}` holds records of several fields"))),
        };
        for group in groups {
            let reader = self.file.get_row_group(group).and_then(|group| group.get_column_reader(leaf));
            read(reader.map_err(|reason| self.unreadable(name, &reason))?)?;
        }
        Ok(())
    }

    fn unreadable(&self, column: &str, reason: &ParquetError) -> Error {
        self.wrong(format!("column `{column}` can't be read: {}", message(reason)))
    }

    /// Appends the values of a flat column.
    fn scalars<T: DataType, V>(
        &self,
        name: &str,
        mut reader: ColumnReaderImpl<T>,
        out: &mut Vec<Option<V>>,
        of: impl Fn(&T::T) -> std::result::Result<V, &'static str>,
    ) -> Result<()> {
        let (most, lists) = self.levels(name);
        if lists {
            return Err(self.wrong(format!("column `{name}` holds lists")));
        }
        let (mut levels, mut values) = (Vec::new(), Vec::new());
        loop {
            levels.clear();
            values.clear();
            let (rows, ..) = reader
                .read_records(PIECE, Some(&mut levels), None, &mut values)
                .map_err(|reason| self.unreadable(name, &reason))?;
            if rows == 0 {
                return Ok(());
            }
            let mut values = values.iter();
            for row in 0..rows {
                let value = match levels.get(row) {
                    Some(&level) if level < most => None,
                    _ => values.next(),
                };
                let value = value.map(&of).transpose();
                out.push(value.map_err(|what| self.wrong_at(out.len() + 1, name, what))?);
            }
        }
    }

    fn lists<T: DataType>(
        &self,
        name: &str,
        mut reader: ColumnReaderImpl<T>,
        out: &mut Lists,
        of: impl Fn(&T::T) -> f32,
    ) -> Result<()> {
        let (most, lists) = self.levels(name);
        if !lists {
            return Err(self.wrong(format!("column `{name}` holds single numbers and no lists of them")));
        }
        let (mut defined, mut repeated, mut values) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            defined.clear();
            repeated.clear();
            values.clear();
            let (rows, ..) = reader
                .read_records(PIECE, Some(&mut defined), Some(&mut repeated), &mut values)
                .map_err(|reason| self.unreadable(name, &reason))?;
            if rows == 0 {
                return Ok(());
            }
            let first = out.values.len().checked_div(out.length).unwrap_or(0) + 1;
            // A list begins where the repetition level is 0, and has a value where the definition level is
            // full.
            let starts = (0..repeated.len()).filter(|&at| repeated[at] == 0);
            let ends = starts.clone().skip(1).chain([repeated.len()]);
            for (row, (start, end)) in (first..).zip(starts.zip(ends)) {
                if defined[start..end].iter().any(|&level: &i16| level < most) {
                    return Err(self.wrong_at(row, name, "is empty, or a value in it is"));
                }
                if out.length == 0 {
                    out.length = end - start;
                    let count = out.rows.checked_mul(out.length).filter(|n| {
                        // Reserved at once: growing by doubling would take twice the memory of the gallery.
                        out.values.try_reserve_exact(*n).is_ok()
                    });
                    count.ok_or_else(|| self.wrong(format!("{} rows don't fit into memory", out.rows)))?;
                }
                if end - start != out.length {
                    return Err(self.wrong_at(
                        row,
                        name,
                        format!("holds {} values, and row 1 holds {}", end - start, out.length),
                    ));
                }
            }
            out.values.extend(values.iter().map(&of));
        }
    }

    /// The full definition level of a column, and whether it has lists.
    fn levels(&self, name: &str) -> (i16, bool) {
        let schema = self.file.metadata().file_metadata().schema_descr();
        let leaf = (0..schema.num_columns()).find(|&leaf| is_named(schema, leaf, name));
        leaf.map_or((0, false), |leaf| {
            let column = schema.column(leaf);
            (column.max_def_level(), column.max_rep_level() == 1)
        })
    }
}

/// Whether a column is `name`, or a field of it. `image.bytes` is the field `bytes` of the records in
/// `image`.
fn is_named(schema: &SchemaDescriptor, leaf: usize, name: &str) -> bool {
    schema.get_column_root(leaf).name() == name || schema.column(leaf).path().string() == name
}

/// The result of `read`, or an error if it panics: the library trusts some values of a damaged file.
fn guarded<T>(read: impl FnOnce() -> parquet::errors::Result<T>) -> parquet::errors::Result<T> {
    guard::quietly(read).unwrap_or_else(|_| Err(ParquetError::General("it is damaged".into())))
}

/// Lists of equal length while they are read.
struct Lists {
    /// Number of rows according to the file.
    rows: usize,
    /// Length of each list; 0 before the first one.
    length: usize,
    values: Vec<f32>,
}

/// The reason, without the library's name of the error.
fn message(reason: &ParquetError) -> String {
    match reason {
        ParquetError::General(what) | ParquetError::EOF(what) => what.clone(),
        other => other.to_string(),
    }
}
