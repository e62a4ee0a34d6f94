//! Sums in `f64`, and what a metric makes of single embeddings and pairs of points.

use super::Metric;
use audit_base::{Error, Result};
use ndarray::Array2;

/// Minimum norm; smaller ones are replaced by it, as in `torch.nn.functional.normalize`.
const TINY_NORM: f64 = 1e-12;

/// Minimum and maximum length of embeddings under normalising metrics. A shorter row would not have length 1
/// after the division, and a longer one takes gradients out of float32's range.
pub(super) const NORMALISED: (f64, f64) = (TINY_NORM, 1e30);
/// Minimum and maximum length of the longest embedding under the Euclidean metric, whose squares are float32.
/// Published losses add 1e-6 to every coordinate, which hides anything shorter.
pub(super) const EUCLIDEAN: (f64, f64) = (1e-6, 1e18);

impl Metric {
    /// A model's raw embeddings [n, D] as points of the space [n, D]: [`Metric::place`] of each row. Rows of
    /// the result are contiguous.
    pub fn into_space(self, raw: Array2<f32>) -> Array2<f32> {
        let mut raw = if raw.is_standard_layout() { raw } else { raw.as_standard_layout().into_owned() };
        for mut row in raw.rows_mut() {
            self.place(row.as_slice_mut().expect("standard layout"));
        }
        raw
    }

    /// Makes a raw embedding (D) a point of the space: divides it by max(‖raw‖, 1e-12) under normalising
    /// metrics, and leaves it unchanged under the Euclidean one.
    pub fn place(self, raw: &mut [f32]) {
        if self.normalizes() {
            let norm = product(raw, raw).sqrt().max(TINY_NORM);
            raw.iter_mut().for_each(|v| *v = (f64::from(*v) / norm) as f32);
        }
    }

    /// Refuses embeddings [N, D] that are too short or too long to be compared (exit code 12). `ids`: their
    /// names. An embedding of 0 is not refused: it is a finding of the check of clean embeddings.
    pub fn check_lengths(self, raw: &Array2<f32>, ids: &[String]) -> Result<()> {
        let length = |row: ndarray::ArrayView1<f32>| match row.as_slice() {
            Some(row) => product(row, row).sqrt(),
            None => row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt(),
        };
        let lengths = raw.rows().into_iter().map(length).enumerate();
        let lengths = lengths.filter(|(_, length)| *length > 0.0 && length.is_finite());
        let (least, most) = if self.normalizes() { NORMALISED } else { EUCLIDEAN };
        let wrong = |(_, length): &(usize, f64)| !(least..=most).contains(length);
        let outlier = match self.normalizes() {
            true => { lengths }.find(wrong),
            false => lengths.max_by(|a, b| a.1.total_cmp(&b.1)).filter(wrong),
        };
        match outlier {
            None => Ok(()),
            Some((i, length)) => Err(Error::untrusted(format!(
                "the clean embedding of `{}` has length {length:.1e}. Supported lengths under `{}`: {least:.0e} to {most:.0e}. Scale the \
             model's output",
                ids[i],
                self.name()
            ))),
        }
    }

    /// Replaces ∂L/∂point (D) by ∂L/∂raw: the vector-Jacobian product of [`Metric::place`].
    pub fn pull_back(self, raw: &[f32], gradient: &mut [f32]) {
        if !self.normalizes() {
            return;
        }
        let norm = product(raw, raw).sqrt();
        let (scale, along) = if norm > TINY_NORM {
            (norm, product(raw, gradient) / (norm * norm))
        } else {
            // The norm is clamped, so the divisor is constant.
            (TINY_NORM, 0.0)
        };
        for (g, &r) in gradient.iter_mut().zip(raw) {
            *g = ((f64::from(*g) - along * f64::from(r)) / scale) as f32;
        }
    }

    /// The distance between two points, by direct difference.
    pub fn distance(self, a: &[f32], b: &[f32]) -> f64 {
        match self {
            Metric::Cosine => 1.0 - product(a, b),
            _ => sum_over(a, b, |x, y| (x - y) * (x - y)).sqrt(),
        }
    }

    /// The distance d of a point `z` from `u`. Adds weight(d) · ∂d/∂z to `gradient`. `offset` is added to
    /// every coordinate of z − u (`torch.nn.functional.pairwise_distance` adds 1e-6). The gradient of a
    /// distance of 0 is 0.
    pub fn pair(
        self,
        z: &[f32],
        u: &[f64],
        offset: f64,
        gradient: &mut [f32],
        weight: impl FnOnce(f64) -> f32,
    ) -> f64 {
        if self == Metric::Cosine {
            let angle = Angle::between(z, u);
            let weight = weight(1.0 - angle.cosine);
            angle.add_gradient(z, u, gradient, -weight);
            return 1.0 - angle.cosine;
        }
        let distance = sum_over(z, u, |z, u| (z - u + offset).powi(2)).sqrt();
        let (per, weight) = (if distance > 0.0 { 1.0 / distance } else { 0.0 }, weight(distance));
        for (g, (&z, u)) in gradient.iter_mut().zip(z.iter().zip(u)) {
            *g += weight * ((f64::from(z) - u + offset) * per) as f32;
        }
        distance
    }
}

/// The angle between two vectors; norms are at least 1e-8, as in `torch.nn.functional.cosine_similarity`.
pub struct Angle {
    /// Cosine similarity.
    pub cosine: f64,
    /// ‖z‖ and ‖u‖, at least 1e-8.
    norms: [f64; 2],
}

impl Angle {
    /// The angle between `z` and `u`.
    pub fn between(z: &[f32], u: &[f64]) -> Angle {
        let norm = |squares: f64| squares.sqrt().max(1e-8);
        let (nz, nu) = (norm(product(z, z)), norm(product(u, u)));
        let cosine = product(z, u) / (nz * nu);
        Angle { cosine, norms: [nz, nu] }
    }

    /// Adds weight · ∂cosine/∂z to `gradient`.
    pub fn add_gradient(&self, z: &[f32], u: &[f64], gradient: &mut [f32], weight: f32) {
        let (cosine, [nz, nu]) = (self.cosine, self.norms);
        for (g, (&z, u)) in gradient.iter_mut().zip(z.iter().zip(u)) {
            *g += weight * (u / (nz * nu) - cosine * f64::from(z) / (nz * nz)) as f32;
        }
    }
}

/// Converts to `f64`.
pub fn wide(v: &[f32]) -> Vec<f64> {
    v.iter().map(|&x| f64::from(x)).collect()
}

/// Σ a_i b_i in `f64`.
pub fn product<A: Copy + Into<f64>, B: Copy + Into<f64>>(a: &[A], b: &[B]) -> f64 {
    sum_over(a, b, |x, y| x * y)
}

/// The cosine of the angle between two vectors; 0 if one of them is zero.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    product(a, b) / (product(a, a) * product(b, b)).sqrt().max(f64::MIN_POSITIVE)
}

/// Σ f(a_i, b_i) in `f64`, in eight partial sums that the compiler vectorises. Indexed, because the release
/// build inlines no iterator adapter of another codegen unit, and these took most of the time.
#[inline]
pub(super) fn sum_over<A: Copy + Into<f64>, B: Copy + Into<f64>>(
    a: &[A],
    b: &[B],
    f: impl Fn(f64, f64) -> f64,
) -> f64 {
    const LANES: usize = 8;
    let mut lanes = [0.0f64; LANES];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for at in 0..a.len().min(b.len()) {
        let (x, y) = (&a[at], &b[at]);
        for lane in 0..LANES {
            lanes[lane] += f(x[lane].into(), y[lane].into());
        }
    }
    let mut tail = 0.0;
    for at in 0..a_tail.len().min(b_tail.len()) {
        tail += f(a_tail[at].into(), b_tail[at].into());
    }
    lanes.iter().sum::<f64>() + tail
}

pub(super) fn squared_norms<S: ndarray::Data<Elem = f32>>(
    rows: &ndarray::ArrayBase<S, ndarray::Ix2, f32>,
) -> Vec<f32> {
    rows.rows().into_iter().map(|r| squared_norm(r.to_slice().expect("row-major"))).collect()
}

/// Bits of a coordinate, the same for equal coordinates.
pub fn bits(v: f32) -> u32 {
    // Adding 0 turns -0 into 0.
    (v + 0.0).to_bits()
}

/// A hash of a point (D), the same for equal points: multiplications by an odd number, as in FNV, in
/// independent lanes. Each step is a bijection, so points that differ in one coordinate have different
/// hashes.
pub fn hash(point: &[f32]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut lanes = [0u64; 8];
    for chunk in point.chunks(lanes.len()) {
        for (lane, v) in lanes.iter_mut().zip(chunk) {
            *lane = (*lane ^ u64::from(bits(*v))).wrapping_mul(FACTOR);
        }
    }
    lanes.iter().fold(0, |all: u64, lane| (all.rotate_left(11) ^ lane).wrapping_mul(FACTOR))
}

pub(super) fn squared_norm(v: &[f32]) -> f32 {
    v.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() as f32
}
