//! Writing Parquet tables, one group of rows at a time.

use audit_base::{Error, Result};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::io::Write;
use std::sync::Arc;

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
