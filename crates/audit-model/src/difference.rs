//! How far embeddings of the same images are apart.

use ndarray::Array2;

/// Largest accepted difference between two runs or two batches, as a share of the largest value.
pub const SAME: f64 = 1e-4;

/// Largest difference, as a share of the largest value of `b`; infinite if exactly one of two values is NaN.
pub fn difference(a: &Array2<f32>, b: &Array2<f32>) -> f64 {
    let apart = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
        (false, false) if a == b => 0.0,
        (false, false) => (a - b).abs(),
        (one, other) if one == other => 0.0,
        _ => f64::INFINITY,
    };
    a.iter().zip(b).fold(0.0f64, |m, (a, b)| m.max(apart(f64::from(*a), f64::from(*b)))) / largest(b)
}

/// The largest absolute value; never 0.
pub fn largest(values: &Array2<f32>) -> f64 {
    values.iter().fold(0.0f64, |m, v| m.max(v.abs() as f64)).max(f64::MIN_POSITIVE)
}

/// The smallest cosine between two embeddings of an image; NaN if an embedding is zero or not finite.
pub fn cosine(a: &Array2<f32>, b: &Array2<f32>) -> f64 {
    let product = |a: ndarray::ArrayView1<f32>, b: ndarray::ArrayView1<f32>| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let cosines = a.rows().into_iter().zip(b.rows());
    let cosines = cosines.map(|(a, b)| product(a, b) / (product(a, a) * product(b, b)).sqrt());
    cosines.fold(1.0, |least, cosine| if least.is_nan() || least <= cosine { least } else { cosine })
}
