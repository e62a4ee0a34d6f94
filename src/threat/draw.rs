//! The one source of random choices in attacks.

use super::objective::Targets;
use crate::random::Random;

/// The stream of images that are nothing but noise, far from those of random starts.
pub const NOISE: u64 = 1 << 32;

/// The random choices of one trial. They depend on (seed, attack, query id) alone, so that a trial is the
/// same in every batch, order, shard and subset of queries.
pub struct Draw(Random);

impl Draw {
    /// ChaCha8, keyed with SHA-256 of the seed, the attack's code and the query's id. Stream 0 is for targets, the k-th for the
    /// k-th random start, [`NOISE`] for noise, and those after it for what a search draws from each start.
    pub fn new(seed: u64, code: &str, id: &str, stream: u64) -> Self {
        let parts = [&seed.to_le_bytes(), code.as_bytes(), &[0], id.as_bytes()];
        Draw(Random::keyed(&parts).stream(stream))
    }

    /// Uniform in 0..n.
    pub fn index(&mut self, n: usize) -> usize {
        self.0.index(n)
    }

    /// `count` of `items`, each drawn from all.
    pub(super) fn from(&mut self, items: &[usize], count: usize) -> Targets {
        match items {
            [] => Targets::Skip("no other item to choose from"),
            _ => Targets::Chosen((0..count).map(|_| items[self.index(items.len())]).collect()),
        }
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        self.0.unit()
    }

    /// −1 or 1.
    pub fn sign(&mut self) -> f32 {
        if self.index(2) == 0 { 1.0 } else { -1.0 }
    }

    /// Roughly normal, mean 0 and standard deviation 1: twelve uniform numbers less 6.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }
}
