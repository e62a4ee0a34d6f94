//! Embeddings instead of images: a gallery as `gallery.parquet`, or as `gallery.npy` with `gallery.csv`
//! beside it.

use super::table::{Column, Form, Table};
use crate::columns;
use crate::name_index::NameIndex;
use audit_base::{Error, Result, files};
use ndarray::{Array2, Axis, s};
use std::collections::HashMap;
use std::io::{BufReader, Read};
use std::path::Path;

const NPY: &str = "a .npy file of float32 or float64 [embeddings, dimensions], and beside it a .csv file of the same name with \
                   the columns id and label, and optionally camera: one row per embedding, in order";
const PARQUET: &str = "a .parquet file with the columns id, label, embedding (lists of floats, all of one length), and \
                       optionally camera";

/// Embeddings of items without pixels.
#[derive(Clone, Debug)]
pub struct Vectors {
    /// Embeddings from the model, not normalised [N, D].
    pub embeddings: Array2<f32>,
    /// Unique names, N.
    pub ids: Vec<String>,
    /// Classes, N.
    pub labels: Vec<String>,
    /// Cameras, N.
    pub cameras: Vec<Option<u32>>,
}

/// Reads a gallery. Its items are sorted by label and id, so that the order of rows has no effect. Errors
/// (exit code 2) name the file and the row.
pub fn read(path: &Path) -> Result<Vectors> {
    let shown = path.display();
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    let vectors = match extension.to_str() {
        Some("npy") => from_npy(path),
        Some("parquet") => from_parquet(path),
        _ => Err(Error::usage(format!("--gallery {shown}: expected is {PARQUET}, or {NPY}"))),
    }?;
    if vectors.embeddings.nrows() == 0 {
        let expected = if extension == "npy" { NPY } else { PARQUET };
        return Err(Error::usage(format!("{shown}: it holds no rows; expected {expected}")));
    }
    let mut rows = vectors.embeddings.rows().into_iter();
    match rows.position(|row| row.iter().any(|v| !v.is_finite())) {
        Some(row) => Err(Error::usage(format!("{shown}, row {}: the embedding is not finite", row + 1))),
        None => Ok(vectors.sorted()),
    }
}

const TARGETS: &str = "a .parquet file with the columns id and embedding (lists of floats, all of one length), or a .npy file of float32 or \
                       float64 [targets, dimensions] and beside it a .csv file of the same name with the column id: one row per target, in \
                       order";

/// Embeddings of other data than images, as targets of attacks.
#[derive(Clone, Debug)]
pub struct ForeignTargets {
    /// Embeddings from the other model, not normalised [M, D].
    pub embeddings: Array2<f32>,
    /// Unique names, ascending, M.
    pub ids: Vec<String>,
}

/// Reads foreign targets. They are sorted by name, so that the order of rows has no effect. Errors (exit code
/// 2) name the file and the row.
pub fn read_targets(path: &Path) -> Result<ForeignTargets> {
    let shown = path.display();
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    let (ids, embeddings) = match extension.to_str() {
        Some("npy") => {
            let embeddings = read_npy(path)
                .map_err(|what| Error::usage(format!("{shown}: {what}. Expected is {TARGETS}")))?;
            const COLUMNS: [Column; 1] = [Column::required("id")];
            let table = read_list_beside(path, &Form { columns: &COLUMNS, bare: &[], about: TARGETS })?;
            let ids = table
                .records()
                .map(|record| Ok(record?.need("id")?.to_owned()))
                .collect::<Result<Vec<_>>>()?;
            (ids, embeddings)
        }
        Some("parquet") => {
            let table = columns::ParquetTable::open(path, TARGETS)?;
            (filled(&table, "id")?, table.vectors("embedding")?)
        }
        _ => return Err(Error::usage(format!("--targets {shown}: expected is {TARGETS}"))),
    };
    if ids.len() != embeddings.nrows() {
        let (names, rows) = (ids.len(), embeddings.nrows());
        return Err(Error::usage(format!(
            "{shown}: {rows} embeddings and {names} names. Both numbers must be equal"
        )));
    }
    let mut rows: HashMap<&str, usize> = HashMap::with_capacity(ids.len());
    for (row, id) in ids.iter().enumerate() {
        if let Some(first) = rows.insert(id, row) {
            let (row, first) = (row + 1, first + 1);
            return Err(Error::usage(format!(
                "{shown}, row {row}: `{id}` is in row {first} too. Names must be unique"
            )));
        }
        if embeddings.row(row).iter().any(|v| !v.is_finite()) {
            return Err(Error::usage(format!(
                "{shown}, row {}: the embedding of `{id}` is not finite",
                row + 1
            )));
        }
    }
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_by(|&a, &b| ids[a].cmp(&ids[b]));
    let embeddings = embeddings.select(Axis(0), &order);
    Ok(ForeignTargets { embeddings, ids: order.into_iter().map(|i| ids[i].clone()).collect() })
}

/// A column of text without missing values.
fn filled(table: &columns::ParquetTable, name: &str) -> Result<Vec<String>> {
    let rows = table.texts(name)?.into_iter().enumerate();
    let empty = |row| table.wrong_at(row + 1, name, "is empty");
    rows.map(|(row, text)| text.filter(|text| !text.is_empty()).ok_or_else(|| empty(row))).collect()
}

impl Vectors {
    /// Sorted by label and id.
    fn sorted(mut self) -> Vectors {
        let name = |i: &usize| (self.labels[*i].as_str(), self.ids[*i].as_str());
        let mut from: Vec<usize> = (0..self.ids.len()).collect();
        from.sort_by(|a, b| name(a).cmp(&name(b)));
        // Row by row along the cycles of the permutation: a second copy of a large gallery may not fit into
        // memory.
        let mut placed = vec![false; from.len()];
        for start in 0..from.len() {
            let mut at = start;
            while !std::mem::replace(&mut placed[at], true) && !placed[from[at]] {
                let next = from[at];
                let (mut a, mut b) = self.embeddings.multi_slice_mut((s![at, ..], s![next, ..]));
                a.iter_mut().zip(&mut b).for_each(|(a, b)| std::mem::swap(a, b));
                self.ids.swap(at, next);
                self.labels.swap(at, next);
                self.cameras.swap(at, next);
                at = next;
            }
        }
        self
    }
}

pub(super) fn from_parquet(path: &Path) -> Result<Vectors> {
    // The last five columns are those of `audit embed`.
    const KNOWN: [&str; 9] =
        ["id", "label", "embedding", "camera", "sha256", "bytes", "pixels", "part", "modified"];
    let table = columns::ParquetTable::open(path, PARQUET)?;
    // pandas writes row numbers into a separate column.
    let named = table.names().into_iter().filter(|name| !name.starts_with("__index_level_"));
    let named: Vec<&str> = named.collect();
    if let Some(other) = named.iter().find(|name| !KNOWN.contains(name)) {
        return Err(table.wrong(format!("unknown column `{other}`")));
    }
    let (ids, labels) = (filled(&table, "id")?, filled(&table, "label")?);
    let name = |row: usize| ids[row].as_str();
    if let Some((row, first)) = NameIndex::of(ids.len(), name).twice(name) {
        let what = format!("`{}` is in row {} too. Ids must be unique", ids[row], first + 1);
        return Err(table.wrong_at(row + 1, "id", what));
    }
    let cameras = match named.contains(&"camera") {
        false => vec![None; ids.len()],
        true => table
            .wholes("camera")?
            .into_iter()
            .enumerate()
            .map(|(row, camera)| {
                let wrong =
                    |n| table.wrong_at(row + 1, "camera", format!("expected a camera's number, found `{n}`"));
                camera.map(|n| u32::try_from(n).map_err(|_| wrong(n))).transpose()
            })
            .collect::<Result<_>>()?,
    };
    let embeddings = table.vectors("embedding")?;
    let counts = [ids.len(), labels.len(), cameras.len()];
    if counts.iter().any(|&n| n != embeddings.nrows()) {
        let n = embeddings.nrows();
        return Err(table.wrong(format!("its columns have {counts:?} and {n} rows: it is damaged")));
    }
    Ok(Vectors { embeddings, ids, labels, cameras })
}

fn from_npy(path: &Path) -> Result<Vectors> {
    let shown = path.display();
    let embeddings =
        read_npy(path).map_err(|what| Error::usage(format!("{shown}: {what}. Expected is {NPY}")))?;
    let (mut ids, mut labels, mut cameras) = (Vec::new(), Vec::new(), Vec::new());
    const COLUMNS: [Column; 3] =
        [Column::required("id"), Column::required("label"), Column::optional("camera")];
    let table = read_list_beside(path, &Form { columns: &COLUMNS, bare: &[], about: NPY })?;
    let mut seen: HashMap<String, usize> = HashMap::new();
    for record in table.records() {
        let record = record?;
        let id = record.need("id")?;
        if let Some(line) = seen.insert(id.into(), record.place.line) {
            return Err(record.wrong("id", &format!("`{id}` is in line {line} too. Ids must be unique")));
        }
        ids.push(id.into());
        labels.push(record.need("label")?.into());
        cameras.push(record.camera()?);
    }
    if ids.len() != embeddings.nrows() {
        return Err(Error::usage(format!(
            "{} has {} rows, and {shown} has {} embeddings. Both numbers must be equal",
            path.with_extension("csv").display(),
            ids.len(),
            embeddings.nrows()
        )));
    }
    Ok(Vectors { embeddings, ids, labels, cameras })
}

/// The list beside an array. It only names items, so an unknown column is an error.
fn read_list_beside(path: &Path, form: &Form) -> Result<Table> {
    let path = path.with_extension("csv");
    let table = Table::read(&path, form, &[])?;
    match table.unread().first() {
        None => Ok(table),
        Some(column) => Err(Error::usage(format!(
            "{}: unknown column `{column}`. Expected is {}",
            path.display(),
            form.about
        ))),
    }
}

/// A two-dimensional array of NumPy's format, versions 1 to 3 (numpy.lib.format).
fn read_npy(path: &Path) -> std::result::Result<Array2<f32>, String> {
    let file = files::open(path).map_err(|reason| format!("can't read it: {reason}"))?;
    let length = file.metadata().map_err(|reason| format!("can't read it: {reason}"))?.len();
    let mut file = BufReader::new(file);
    let mut exactly = |count: usize| -> std::result::Result<Vec<u8>, String> {
        if count as u64 > length {
            return Err(format!("it ends before its {count} bytes"));
        }
        let mut bytes = vec![0; count];
        file.read_exact(&mut bytes).map_err(|reason| format!("it ends too early: {reason}"))?;
        Ok(bytes)
    };
    let start = exactly(8)?;
    if &start[..6] != b"\x93NUMPY" {
        return Err("it is no .npy file".into());
    }
    let size = match start[6] {
        1 => exactly(2)?,
        _ => exactly(4)?,
    };
    let size = size.iter().rev().fold(0usize, |all, &byte| all << 8 | usize::from(byte));
    let header = String::from_utf8_lossy(&exactly(size)?).into_owned();
    let value = |key: &str| {
        let rest = header.split_once(&format!("'{key}':"))?.1.trim_start();
        Some(
            rest.split([if rest.starts_with('(') { ')' } else { ',' }])
                .next()?
                .trim_matches(['\'', '(', ' ']),
        )
    };
    let shape: Option<Vec<usize>> = value("shape").and_then(|shape| {
        shape.split(',').map(str::trim).filter(|n| !n.is_empty()).map(|n| n.parse().ok()).collect()
    });
    let width = match value("descr") {
        Some("<f4") => 4,
        Some("<f8") => 8,
        other => return Err(format!("its values are {}", other.unwrap_or("of no known type"))),
    };
    let (Some([rows, columns]), Some("False")) = (shape.as_deref(), value("fortran_order")) else {
        return Err(format!("its header is {}", header.trim()));
    };
    let (rows, columns) = (*rows, *columns);
    let count = rows.checked_mul(columns).ok_or("its shape is too large")?;
    let held = length - (8 + if start[6] == 1 { 2 } else { 4 } + size as u64).min(length);
    if (count as u64).checked_mul(width as u64) != Some(held) {
        return Err(format!("its shape is {rows}×{columns} of {width} bytes each, and {held} bytes follow"));
    }
    // In pieces, so that bytes and numbers of a whole gallery are never in memory together.
    let mut values = Vec::with_capacity(count);
    while values.len() < count {
        let bytes = exactly(width * (count - values.len()).min(1 << 20))?;
        values.extend(bytes.chunks_exact(width).map(|b| match *b {
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
            [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]) as f32,
            // Unreachable: a value has 4 or 8 bytes.
            _ => f32::NAN,
        }));
    }
    Array2::from_shape_vec((rows, columns), values).map_err(|reason| reason.to_string())
}
