//! NumPy's .npz files: zip archives of .npy arrays. npyz's own reader depends on every zip codec.

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

    /// The array called `name`; `None` if there is none.
    pub fn by_name(&mut self, name: &str) -> io::Result<Option<NpyFile<Cursor<Vec<u8>>>>> {
        let mut bytes = Vec::new();
        match self.0.by_name(&format!("{name}.npy")) {
            Ok(mut entry) => entry.read_to_end(&mut bytes)?,
            Err(zip::result::ZipError::FileNotFound) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        NpyFile::new(Cursor::new(bytes)).map(Some)
    }

    /// Shape and values of an array of float32 or float64; `None` if there is none.
    #[allow(dead_code, reason = "not every program with this file reads floats")]
    pub fn floats(&mut self, name: &str) -> io::Result<Option<(Vec<usize>, Vec<f64>)>> {
        let Some(npy) = self.by_name(name)? else { return Ok(None) };
        let shape = npy.shape().iter().map(|&d| d as usize).collect();
        let values = match npy.dtype().num_bytes() {
            Some(4) => npy.into_vec::<f32>()?.into_iter().map(f64::from).collect(),
            _ => npy.into_vec::<f64>()?,
        };
        Ok(Some((shape, values)))
    }
}
