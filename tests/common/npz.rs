//! NumPy's .npz files: zip archives of .npy arrays. npyz has a reader of its own, which brings every zip codec along.

use npyz::NpyFile;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use zip::ZipArchive;

pub struct NpzArchive(ZipArchive<File>);

impl NpzArchive {
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(NpzArchive(ZipArchive::new(File::open(path)?)?))
    }

    /// The array of a name, `None` where there is none.
    pub fn by_name(&mut self, name: &str) -> io::Result<Option<NpyFile<Cursor<Vec<u8>>>>> {
        let mut bytes = Vec::new();
        match self.0.by_name(&format!("{name}.npy")) {
            Ok(mut entry) => entry.read_to_end(&mut bytes)?,
            Err(zip::result::ZipError::FileNotFound) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        NpyFile::new(Cursor::new(bytes)).map(Some)
    }
}

/// A .npy file as NumPy writes it: `descr` and `shape` are said in Python.
pub fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(values);
    bytes
}
