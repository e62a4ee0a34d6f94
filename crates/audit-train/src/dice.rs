//! Random numbers that depend on the seed, their purpose, and the step, so that a resumed run needs no saved
//! state.

use audit::random::Random;
use tch::Tensor;

/// A stream of random numbers.
pub struct Dice(Random);

impl Dice {
    /// The stream of `purpose` at step `at`.
    pub fn new(seed: u64, purpose: &str, at: u64) -> Dice {
        Dice(Random::keyed(&[b"audit-train 1", &seed.to_le_bytes(), &at.to_le_bytes(), purpose.as_bytes()]))
    }

    /// Uniform in 0..n.
    pub fn index(&mut self, n: usize) -> usize {
        self.0.index(n)
    }

    /// Uniform in [0, 1), 53 bits.
    pub fn unit(&mut self) -> f64 {
        self.0.unit_f64()
    }

    /// Normal, mean 0 and standard deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// `count` different indices of 0..n, in random order.
    pub fn choose(&mut self, n: usize, count: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        for i in 0..count.min(n) {
            let j = i + self.index(n - i);
            all.swap(i, j);
        }
        all.truncate(count);
        all
    }

    /// The underlying stream.
    pub fn random(&mut self) -> &mut Random {
        &mut self.0
    }

    /// A tensor of the shape, uniform in [0, 1).
    pub fn tensor(&mut self, shape: &[i64]) -> Tensor {
        let count = shape.iter().product::<i64>() as usize;
        let values: Vec<f32> = (0..count).map(|_| self.0.unit()).collect();
        Tensor::from_slice(&values).view(shape)
    }
}
