//! Random numbers that depend on the seed, what they are for, and the step: nothing to save, nothing to lose at a resume.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};
use tch::Tensor;

/// A stream of random numbers.
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The stream of `purpose` at step `at`.
    pub fn new(seed: u64, purpose: &str, at: u64) -> Dice {
        let mut hash = Sha256::new_with_prefix(b"audit-train 1");
        hash.update(seed.to_le_bytes());
        hash.update(at.to_le_bytes());
        hash.update(purpose.as_bytes());
        Dice(ChaCha8Rng::from_seed(hash.finalize().into()))
    }

    /// Uniform in 0..n.
    pub fn index(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    /// Uniform in [0, 1), 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal, mean 0 and standard deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// `count` different indices out of 0..n, in random order.
    pub fn choose(&mut self, n: usize, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        for i in 0..count.min(n) {
            let j = i + self.index(n - i);
            all.swap(i, j);
        }
        all.truncate(count);
        all
    }

    /// One index by weight; `None` where all weights are 0.
    pub fn weighted(&mut self, weights: &[f64]) -> Option<usize> {
        let total: f64 = weights.iter().sum();
        let mut left = self.unit() * total;
        let mut last = None;
        for (i, &w) in weights.iter().enumerate().filter(|(_, w)| **w > 0.0) {
            last = Some(i);
            left -= w;
            if left < 0.0 {
                break;
            }
        }
        last
    }

    /// A tensor of the shape, uniform in [0, 1).
    pub fn tensor(&mut self, shape: &[i64]) -> Tensor {
        let count = shape.iter().product::<i64>() as usize;
        let values: Vec<f32> =
            (0..count).map(|_| (self.0.next_u32() >> 8) as f32 / (1u32 << 24) as f32).collect();
        Tensor::from_slice(&values).view(shape)
    }
}
