//! The only source of random choices in attacks.

use audit_base::random::Random;

/// The stream of noise images, far from the streams of random starts.
pub const NOISE: u64 = 1 << 32;

/// The random choices of one trial. They depend only on (seed, attack, query id), so a trial is the same in
/// every batch, order, shard and subset of queries.
pub struct Draw(Random);

impl Draw {
    /// ChaCha8, keyed with SHA-256 of the seed, the attack's code and the query's id. Stream 0 is for
    /// targets, stream k for the k-th random start, and [`NOISE`] for noise images. Stream `NOISE + 1 + k` is
    /// for the choices of a search from start k.
    pub fn new(seed: u64, code: &str, id: &str, stream: u64) -> Self {
        let parts = [&seed.to_le_bytes(), code.as_bytes(), &[0], id.as_bytes()];
        Draw(Random::keyed(&parts).stream(stream))
    }

    /// Uniform in 0..n.
    pub fn index(&mut self, n: usize) -> usize {
        self.0.index(n)
    }

    /// `count` independent draws, each uniform over `items`; `None` if there are no items.
    pub(super) fn from(&mut self, items: &[usize], count: usize) -> Option<Vec<usize>> {
        (!items.is_empty()).then(|| (0..count).map(|_| items[self.index(items.len())]).collect())
    }

    /// `count` distinct elements of `items`, in a random order. `items` must have at least `count`.
    pub(super) fn distinct(&mut self, mut items: Vec<usize>, count: usize) -> Vec<usize> {
        for i in 0..count {
            let j = i + self.index(items.len() - i);
            items.swap(i, j);
        }
        items.truncate(count);
        items
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        self.0.unit()
    }

    /// −1 or 1, equally likely.
    pub fn sign(&mut self) -> f32 {
        if self.index(2) == 0 { 1.0 } else { -1.0 }
    }

    /// Roughly normal, mean 0 and standard deviation 1.
    pub fn normal(&mut self) -> f32 {
        self.0.normal()
    }
}
