//! What several tests need: the runtime, random numbers, folders that may be absent.
#![allow(dead_code)]

use audit::model::runtime;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};
use std::path::PathBuf;

/// The runtime that `cargo xtask setup` fetched. Tests can't do without: they fail with its message.
pub fn load_runtime() {
    let set_up = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../onnxruntime");
    let path =
        if std::env::var_os("ORT_DYLIB_PATH").is_none() && set_up.is_dir() { Some(set_up) } else { None };
    if let Err(e) = runtime::load(path.as_deref()) {
        panic!("{e}");
    }
}

/// The folder of reference data beside the checkout, or `None` and a message saying what is skipped.
pub fn shared(what: &str) -> Option<PathBuf> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared");
    if dir.join(what).exists() {
        return Some(dir);
    }
    eprintln!("skipped: {what} needs the folder `shared` beside the checkout, which isn't there");
    None
}

pub struct Rng(ChaCha8Rng);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(ChaCha8Rng::seed_from_u64(seed))
    }
    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 / (1u32 << 24) as f32
    }
    /// Uniform in [low, high].
    pub fn int(&mut self, low: i64, high: i64) -> i64 {
        low + (self.0.next_u64() % (high - low + 1) as u64) as i64
    }
    pub fn bool(&mut self) -> bool {
        self.int(0, 1) == 1
    }
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.int(0, of.len() as i64 - 1) as usize]
    }
    /// Roughly normal: mean 0, standard deviation 1.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }
    pub fn shape(&mut self, rank: i64) -> Vec<i64> {
        (0..rank).map(|_| self.int(1, 5)).collect()
    }
    pub fn shuffle<T>(&mut self, v: &mut [T]) {
        for i in (1..v.len()).rev() {
            v.swap(i, self.int(0, i as i64) as usize);
        }
    }
}
