//! Parquet tables of named columns: galleries are read, trials are written.
//!
//! Columns are read one by one and in pieces, so that a large gallery is in memory once, as its numbers.

use audit_base::{Error, Result, files, guard};
use ndarray::Array2;
use parquet::basic::{Compression, ConvertedType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, SchemaDescriptor};
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Rows read at a time.
const PIECE: usize = 4096;

/// The values of a column, one per row; `None` if missing.
#[derive(Clone, Debug, PartialEq)]
pub enum Column<'a> {
    /// Text.
    Text(Vec<Option<String>>),
    /// A list of texts, never missing.
    Texts(Vec<Vec<String>>),
    /// Whole numbers.
    Whole(Vec<Option<i64>>),
    /// Numbers in double precision.
    Double(Vec<Option<f64>>),
    /// Numbers in single precision.
    Single(Vec<Option<f32>>),
    /// Lists of numbers, concatenated, never missing; and the length of each list, at least 1.
    Vectors(&'a [f32], usize),
}

impl Column<'_> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Column::Text(values) => values.len(),
            Column::Texts(values) => values.len(),
            Column::Whole(values) => values.len(),
            Column::Double(values) => values.len(),
            Column::Single(values) => values.len(),
            Column::Vectors(values, length) => values.len() / length,
        }
    }

    /// Declaration in a Parquet schema.
    fn declared(&self, name: &str) -> String {
        match self {
            Column::Text(_) => format!("OPTIONAL BYTE_ARRAY {name} (STRING);"),
            Column::Texts(_) => format!(
                "REQUIRED group {name} (LIST) {{ REPEATED group list {{ REQUIRED BYTE_ARRAY element (STRING); }} }}"
            ),
            Column::Whole(_) => format!("OPTIONAL INT64 {name};"),
            Column::Double(_) => format!("OPTIONAL DOUBLE {name};"),
            Column::Single(_) => format!("OPTIONAL FLOAT {name};"),
            Column::Vectors(..) => format!(
                "REQUIRED group {name} (LIST) {{ REPEATED group list {{ REQUIRED FLOAT element; }} }}"
            ),
        }
    }

    fn write(&self, to: &mut SerializedColumnWriter) -> parquet::errors::Result<()> {
        fn optional<T: DataType, V>(
            to: &mut SerializedColumnWriter,
            values: &[Option<V>],
            of: impl Fn(&V) -> T::T,
        ) -> parquet::errors::Result<()> {
            let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
            let values: Vec<T::T> = values.iter().flatten().map(of).collect();
            to.typed::<T>().write_batch(&values, Some(&levels), None).map(drop)
        }
        let bytes = |text: &String| ByteArray::from(text.as_str());
        match self {
            Column::Text(values) => optional::<ByteArrayType, _>(to, values, bytes),
            Column::Whole(values) => optional::<Int64Type, _>(to, values, |v| *v),
            Column::Double(values) => optional::<DoubleType, _>(to, values, |v| *v),
            Column::Single(values) => optional::<FloatType, _>(to, values, |v| *v),
            Column::Texts(lists) => {
                // Levels as the format defines them: an empty list has a level, but no value.
                let (mut defined, mut repeated) = (Vec::new(), Vec::new());
                for list in lists {
                    defined.extend(if list.is_empty() { vec![0] } else { vec![1; list.len()] });
                    repeated.extend((0..list.len().max(1)).map(|at| i16::from(at > 0)));
                }
                let values: Vec<ByteArray> = lists.iter().flatten().map(bytes).collect();
                to.typed::<ByteArrayType>().write_batch(&values, Some(&defined), Some(&repeated)).map(drop)
            }
            Column::Vectors(values, length) => {
                let repeated: Vec<i16> = (0..values.len()).map(|at| i16::from(at % length > 0)).collect();
                let defined = vec![1; values.len()];
                to.typed::<FloatType>().write_batch(values, Some(&defined), Some(&repeated)).map(drop)
            }
        }
    }
}

/// A Parquet file of `columns`, which must have equally many rows; `name` is the name of the schema.
pub fn write<'a>(name: &str, columns: &[(&'a str, Column<'a>)]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write_in_groups(&mut bytes, name, &[], std::iter::once(columns.to_vec()))?;
    Ok(bytes)
}

/// Writes a Parquet file one group of rows at a time, so that the table need not be in memory twice. Every
/// group has the same columns. `notes`: key → text about the whole file.
pub fn write_in_groups<'a>(
    to: &'a mut (dyn Write + Send),
    name: &str,
    notes: &[(&str, String)],
    groups: impl Iterator<Item = Vec<(&'a str, Column<'a>)>>,
) -> Result<()> {
    let mut groups = groups.peekable();
    let written = move || -> parquet::errors::Result<()> {
        let first = groups.peek().map_or(&[][..], Vec::as_slice);
        let declared: String = first.iter().map(|(name, column)| column.declared(name)).collect();
        let schema = Arc::new(parse_message_type(&format!("message {name} {{ {declared} }}"))?);
        let notes = notes.iter().map(|(key, text)| KeyValue::new(key.to_string(), text.clone())).collect();
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("audit version ", env!("CARGO_PKG_VERSION")).into())
            .set_key_value_metadata(Some(notes).filter(|notes: &Vec<KeyValue>| !notes.is_empty()))
            .set_compression(Compression::SNAPPY);
        // Values of embeddings hardly ever repeat, and compression doesn't shorten them.
        for (name, _) in first.iter().filter(|(_, column)| matches!(column, Column::Vectors(..))) {
            let path = ColumnPath::new([name, "list", "element"].map(str::to_owned).to_vec());
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_compression(path, Compression::UNCOMPRESSED);
        }
        let mut file = SerializedFileWriter::new(to, schema, Arc::new(properties.build()))?;
        for columns in groups {
            let mut rows = file.next_row_group()?;
            for (_, column) in &columns {
                if let Some(mut to) = rows.next_column()? {
                    column.write(&mut to)?;
                    to.close()?;
                }
            }
            rows.close()?;
        }
        file.close().map(drop)
    };
    written().map_err(|e| Error::internal(format!("writing Parquet: {e}")))
}

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

    /// The text that [`write_in_groups`] wrote under this key.
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
    fn bytes(&self, name: &str, group: usize) -> Result<Vec<Option<Bytes>>> {
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

/// A column of bytes in a file. A row group is decoded when one of its rows is read.
pub struct BytesColumn {
    path: PathBuf,
    name: String,
    about: &'static str,
    /// Number of rows up to the end of each row group.
    ends: Vec<usize>,
    cache: Arc<RowGroups>,
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
pub struct Bytes(ByteArray);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self.0.data()
    }
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
