//! Maps of embeddings in the plane: t-SNE (van der Maaten & Hinton, JMLR 2008), exact. It compares all pairs,
//! so it is meant for up to about a thousand points.

use crate::space::sum_over;
use audit_base::parallel;
use audit_base::random::Random;
use ndarray::{Array2, ArrayView2};

/// Steps of gradient descent, and the number of first steps with exaggerated attraction.
const STEPS: [usize; 2] = [1000, 250];
const EXAGGERATION: f64 = 12.0;
/// Effective number of neighbours of a point, if there are three times as many other points.
const PERPLEXITY: f64 = 30.0;

/// A map of embeddings in the plane.
#[derive(Clone, Debug, PartialEq)]
pub struct TsneMap {
    /// Positions of the points, `[N]`.
    pub places: Vec<[f64; 2]>,
    /// KL(P‖Q), the minimised loss.
    pub divergence: f64,
    /// Effective number of neighbours.
    pub perplexity: f64,
}

/// The map of points [N, D] under the Euclidean distance, N ≥ 2. It depends on the points and the seed only.
/// Calls `tell` with the number of finished steps, out of [`steps`].
pub fn layout(points: ArrayView2<f32>, seed: u64, tell: &mut dyn FnMut(usize)) -> TsneMap {
    let n = points.nrows();
    let perplexity = PERPLEXITY.min((n.saturating_sub(1)) as f64 / 3.0).max(1.0);
    let p = affinities(points, perplexity);
    let mut random = Random::keyed(&[b"t-sne", &seed.to_le_bytes()]);
    let start = (0..n).map(|_| [0, 1].map(|_| 1e-4 * f64::from(random.normal()))).collect();
    let places = descend(&p, start, STEPS, tell);
    TsneMap { divergence: divergence(&p, &places), places, perplexity }
}

/// The number of steps of [`layout`].
pub fn steps() -> usize {
    STEPS[0]
}

/// P [N, N]: joint probabilities (p_{j|i} + p_{i|j}) / 2N. p_{j|i} is a Gaussian of ‖x_i − x_j‖, whose width
/// gives it the perplexity.
pub fn affinities(points: ArrayView2<f32>, perplexity: f64) -> Array2<f64> {
    let n = points.nrows();
    let rows = points.as_standard_layout();
    let row = |i: usize| rows.row(i).to_slice().expect("standard layout").to_vec();
    let rows: Vec<Vec<f32>> = (0..n).map(row).collect();
    let conditional = parallel::each(n, &|i| {
        let squares: Vec<f64> =
            rows.iter().map(|other| sum_over(&rows[i], other, |a, b| (a - b) * (a - b))).collect();
        neighbours(&squares, i, perplexity)
    });
    Array2::from_shape_fn((n, n), |(i, j)| (conditional[i][j] + conditional[j][i]) / (2 * n) as f64)
}

/// p_{j|i} of the squared distances [N] from point `i`: bisection for the precision β of exp(−β d²).
fn neighbours(squares: &[f64], i: usize, perplexity: f64) -> Vec<f64> {
    const ROUNDS: usize = 200;
    let others = || squares.iter().enumerate().filter(|(j, _)| *j != i);
    let least = others().fold(f64::INFINITY, |least, (_, s)| s.min(least));
    let mean = others().map(|(_, s)| s - least).sum::<f64>() / (squares.len() - 1).max(1) as f64;
    let weights = |beta: f64| -> Vec<f64> {
        let weight = |(j, s): (usize, &f64)| if j == i { 0.0 } else { (-beta * (s - least)).exp() };
        squares.iter().enumerate().map(weight).collect()
    };
    let (mut low, mut high, mut beta) = (0.0, f64::INFINITY, 1.0 / mean.max(f64::MIN_POSITIVE));
    for _ in 0..ROUNDS {
        let w = weights(beta);
        let sum: f64 = w.iter().sum();
        let along: f64 = w.iter().zip(squares).filter(|(w, _)| **w > 0.0).map(|(w, s)| w * (s - least)).sum();
        let gap = sum.ln() + beta * along / sum - perplexity.ln();
        if gap.abs() < 1e-10 {
            break;
        }
        (low, high) = if gap > 0.0 { (beta, high) } else { (low, beta) };
        beta = if high.is_finite() { (low + high) / 2.0 } else { beta * 2.0 };
        if !beta.is_finite() {
            break;
        }
    }
    let w = weights(if beta.is_finite() { beta } else { low });
    let sum: f64 = w.iter().sum();
    w.into_iter().map(|w| w / sum).collect()
}

/// Gradient descent with momentum and gains (section 3.4 of the paper). `steps`: the number of all steps, and
/// of the first ones in which P is exaggerated.
pub fn descend(
    p: &Array2<f64>,
    start: Vec<[f64; 2]>,
    [all, exaggerated]: [usize; 2],
    tell: &mut dyn FnMut(usize),
) -> Vec<[f64; 2]> {
    let n = start.len();
    // The rate of Belkina et al. (2019), and at least 50 for a map of few points.
    let rate = (n as f64 / EXAGGERATION / 4.0).max(50.0);
    let (mut places, mut moves, mut gains) = (start, vec![[0.0; 2]; n], vec![[1.0f64; 2]; n]);
    for step in 0..all {
        let early = step < exaggerated;
        let (factor, momentum) = if early { (EXAGGERATION, 0.5) } else { (1.0, 0.8) };
        let slopes = gradient(p, &places, factor);
        let points = places.iter_mut().zip(&mut moves).zip(gains.iter_mut().zip(&slopes));
        for ((place, way), (gain, slope)) in points {
            for k in 0..2 {
                let turned = way[k] * slope[k] < 0.0;
                gain[k] = if turned { gain[k] + 0.2 } else { (gain[k] * 0.8).max(0.01) };
                way[k] = momentum * way[k] - rate * gain[k] * slope[k];
                place[k] += way[k];
            }
        }
        tell(step + 1);
    }
    places
}

/// 1 / (1 + ‖a − b‖²).
fn kernel(a: [f64; 2], b: [f64; 2]) -> f64 {
    1.0 / (1.0 + (a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2))
}

/// Σ of the kernel over all pairs i ≠ j, in a fixed order.
fn total(places: &[[f64; 2]]) -> f64 {
    let sum_of_row = |i: usize| places.iter().map(|&b| kernel(places[i], b)).sum::<f64>() - 1.0;
    parallel::each(places.len(), &sum_of_row).into_iter().sum::<f64>().max(f64::MIN_POSITIVE)
}

/// ∂KL(factor·P‖Q)/∂place, `[N]` (equation 5).
pub fn gradient(p: &Array2<f64>, places: &[[f64; 2]], factor: f64) -> Vec<[f64; 2]> {
    let all = total(places);
    let force = |i: usize| {
        let mut sum = [0.0; 2];
        for (j, &b) in places.iter().enumerate() {
            let near = kernel(places[i], b);
            let pull = 4.0 * (factor * p[[i, j]] - near / all) * near;
            (0..2).for_each(|k| sum[k] += pull * (places[i][k] - b[k]));
        }
        sum
    };
    parallel::each(places.len(), &force)
}

/// KL(P‖Q).
pub fn divergence(p: &Array2<f64>, places: &[[f64; 2]]) -> f64 {
    let all = total(places);
    let row_divergence = |i: usize| -> f64 {
        let term = |(j, &b): (usize, &[f64; 2])| match p[[i, j]] {
            p if i != j && p > 0.0 => p * (p / (kernel(places[i], b) / all)).ln(),
            _ => 0.0,
        };
        places.iter().enumerate().map(term).sum()
    };
    parallel::each(places.len(), &row_divergence).into_iter().sum()
}
