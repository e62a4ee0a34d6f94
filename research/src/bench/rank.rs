//! `cargo research bench rank`: exact ranks in a large gallery, beside the bare matrix product of the same
//! size.

use super::ratios::{Benchmark, Cell, Turn};
use super::{cpu_seconds, failed};
use audit::space::ranks::{Ask, Mark, ranks};
use audit::space::{Gallery, Metric};
use clap::Args;
use ndarray::{Array2, Axis, linalg::general_mat_mul, s};
use rayon::prelude::*;
use xtask::project::{Error, Result};

/// Targets per query: the number of other photographs that a product has in SOP.
const TARGETS: usize = 4;

/// Sizes of the problem.
#[derive(Args, Clone, Copy, PartialEq)]
pub struct Sizes {
    /// Items in the gallery
    #[arg(default_value_t = USUAL[0])]
    items: usize,
    /// Dimensions of an embedding
    #[arg(default_value_t = USUAL[1])]
    dimensions: usize,
    /// Queries
    #[arg(default_value_t = USUAL[2])]
    queries: usize,
}

/// The sizes whose result is on the page.
const USUAL: [usize; 3] = [1_000_000, 512, 1_000];

impl Default for Sizes {
    fn default() -> Self {
        let [items, dimensions, queries] = USUAL;
        Sizes { items, dimensions, queries }
    }
}

const COLUMNS: &[(&str, Cell)] = &[
    ("exact ranks", Cell::Seconds(0)),
    ("plain product", Cell::Seconds(1)),
    ("ranks / product", Cell::Ratio(|t| t[0] / t[1])),
    ("product, GFLOP/s a core", Cell::Number(1, |t| t[2] / t[1])),
    ("peak memory, GiB", Cell::Number(2, |t| t[3])),
];

/// The benchmark of these sizes.
pub fn benchmark(sizes: Sizes) -> Result<Benchmark> {
    let Sizes { items: n, dimensions: d, queries: q } = sizes;
    if n.min(d).min(q) < 2 {
        return Err(Error::Usage(format!("bench rank: expected sizes of at least 2, found {n} {d} {q}")));
    }
    Ok(Benchmark {
        name: "rank",
        about: format!("CPU seconds, {TARGETS} targets for each query"),
        of: "sizes",
        columns: COLUMNS,
        cases: vec![format!("{q} queries, {n} × {d}")],
        usual: sizes == Sizes::default(),
        prepare: Box::new(move || prepare(sizes)),
    })
}

/// Makes the gallery. A turn returns CPU seconds of ranks and of the product, its GFLOP, and the peak memory
/// in GiB.
fn prepare(sizes: Sizes) -> Result<Turn> {
    let Sizes { items: n, dimensions: d, queries: q } = sizes;
    let mut values = vec![0.0f32; n * d];
    values.par_chunks_mut(d).enumerate().for_each(|(row, values)| {
        let mut state = (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for value in values {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *value = (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        }
    });
    let raw = Array2::from_shape_vec((n, d), values).expect("n·d values");
    let ids = (0..n).map(|i| i.to_string()).collect();
    let gallery = Gallery::new(Metric::NormalizedEuclidean, raw, vec![0; n], ids).map_err(failed)?;
    let queries: Vec<usize> = (0..q).map(|i| i * (n / q.min(n)).max(1) % n).collect();
    let z = gallery.points.select(Axis(0), &queries);
    let targets: Vec<Vec<usize>> =
        queries.iter().map(|&i| (1..=TARGETS).map(|k| (i + k * 7919) % n).collect()).collect();
    let gflop = 2e-9 * n as f64 * d as f64 * q as f64;
    // In one process the peak only rises, and it must not include the product's buffers: the first turn
    // counts.
    let mut peak = None;
    Ok(Box::new(move |_| {
        let asks: Vec<Ask> = queries
            .iter()
            .zip(&targets)
            .map(|(&i, targets)| Ask {
                z: gallery.point(i),
                marks: targets.iter().map(|&t| Mark::Image(t)).collect(),
                left_out: vec![i],
            })
            .collect();
        let start = cpu_seconds().map_err(failed)?;
        let found = ranks(&gallery, &asks);
        let ours = cpu_seconds().map_err(failed)? - start;
        let peak = *peak.get_or_insert_with(peak_memory);
        let plain = product(&gallery, &z).map_err(failed)?;
        for (row, (&query, targets)) in queries.iter().zip(&targets).enumerate().step_by((q / 3).max(1)) {
            let distances = gallery.distances(gallery.point(query));
            let expected: Vec<usize> =
                targets.iter().map(|&t| gallery.position(&distances, t, |i| i != query)).collect();
            assert_eq!(found[row], expected, "ranks of query {query}");
        }
        Ok(vec![ours, plain, gflop, peak])
    }))
}

/// CPU seconds of the product alone, in pieces that all threads share, written to the same memory repeatedly:
/// as a whole, it would take 4 GB.
fn product(gallery: &Gallery, z: &Array2<f32>) -> audit::Result<f64> {
    let (n, piece) = (gallery.points.nrows(), 16_384);
    let start = cpu_seconds()?;
    let sums = (0..n.div_ceil(piece)).into_par_iter().map_init(
        || Array2::<f32>::zeros((z.nrows(), piece)),
        |out, k| {
            let items = k * piece..n.min((k + 1) * piece);
            let mut out = out.slice_mut(s![.., ..items.len()]);
            general_mat_mul(1.0, z, &gallery.points.slice(s![items, ..]).t(), 0.0, &mut out);
            f64::from(out[[0, 0]])
        },
    );
    let sum: f64 = sums.sum();
    assert!(sum.is_finite());
    Ok(cpu_seconds()? - start)
}

/// Peak resident memory in GiB, if the system reports it.
fn peak_memory() -> f64 {
    crate::memory("self", "VmHWM").map_or(f64::NAN, |kilobytes| kilobytes as f64 / (1 << 20) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_measures_both_sides() {
        let sizes = Sizes { items: 3000, dimensions: 16, queries: 20 };
        let kept = benchmark(sizes).ok().unwrap();
        assert_eq!(
            (kept.cases.as_slice(), kept.usual),
            (["20 queries, 3000 × 16".to_owned()].as_slice(), false)
        );
        let mut turn = (kept.prepare)().ok().unwrap();
        let [ours, plain, gflop, _] = turn(&kept.cases[0]).ok().unwrap().try_into().unwrap();
        assert!(ours > 0.0 && plain > 0.0, "{ours} {plain}");
        assert!((gflop - 2e-9 * 3000.0 * 16.0 * 20.0).abs() < 1e-12);
    }
}
