//! `cargo research bench rank`: exact ranks in a large gallery, beside the bare matrix product of the same size.

use audit::space::ranks::{Ask, Mark, ranks};
use audit::space::{Gallery, Metric};
use clap::Args;
use ndarray::{Array2, Axis, linalg::general_mat_mul, s};
use rayon::prelude::*;
use std::time::Instant;
use xtask::project::{Error, Result};

/// Targets per query: as many as a product has other photographs in SOP.
const TARGETS: usize = 4;
/// Times each is measured.
const ROUNDS: usize = 3;

/// Sizes of the problem.
#[derive(Args, PartialEq)]
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

impl Sizes {
    /// Whether the result belongs on the page.
    pub fn usual(&self) -> bool {
        [self.items, self.dimensions, self.queries] == USUAL
    }
}

/// Measures both, and returns what there is to print.
pub fn measure(sizes: &Sizes) -> Result<String> {
    let Sizes { items: n, dimensions: d, queries: q } = *sizes;
    if n.min(d).min(q) < 2 {
        return Err(Error::Usage(format!("bench rank: expected sizes of at least 2, found {n} {d} {q}")));
    }
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
    let gallery = match Gallery::new(Metric::NormalizedEuclidean, raw, vec![0; n], ids) {
        Ok(gallery) => gallery,
        Err(error) => return Err(Error::Failed(error.message)),
    };
    let queries: Vec<usize> = (0..q).map(|i| i * (n / q.min(n)).max(1) % n).collect();
    let z = gallery.points.select(Axis(0), &queries);
    let targets: Vec<Vec<usize>> =
        queries.iter().map(|&i| (1..=TARGETS).map(|k| (i + k * 7919) % n).collect()).collect();
    let gflop = 2e-9 * n as f64 * d as f64 * q as f64;
    let asks: Vec<Ask> = queries
        .iter()
        .zip(&targets)
        .map(|(&i, targets)| Ask {
            z: gallery.point(i),
            marks: targets.iter().map(|&t| Mark::Item(t)).collect(),
            left_out: vec![i],
        })
        .collect();

    // The product alone, in pieces that all threads share, written to the same memory over and over: whole, it would
    // take 4 GB to write.
    let piece = 16_384;
    let plain = || {
        let start = Instant::now();
        let sums = (0..n.div_ceil(piece)).into_par_iter().map_init(
            || Array2::<f32>::zeros((q, piece)),
            |out, k| {
                let items = k * piece..n.min((k + 1) * piece);
                let mut out = out.slice_mut(s![.., ..items.len()]);
                general_mat_mul(1.0, &z, &gallery.points.slice(s![items, ..]).t(), 0.0, &mut out);
                f64::from(out[[0, 0]])
            },
        );
        let sum: f64 = sums.sum();
        assert!(sum.is_finite());
        start.elapsed().as_secs_f64()
    };
    let ours = || {
        let start = Instant::now();
        let found = ranks(&gallery, &asks);
        (start.elapsed().as_secs_f64(), found)
    };
    // By turns, and the best of each: what else the machine has to do only ever adds to a time.
    let (mut times, mut products) = (Vec::new(), Vec::new());
    let mut found = Vec::new();
    let mut peak = None;
    for _ in 0..ROUNDS {
        let (time, ranks) = ours();
        times.push(time);
        found = ranks;
        // Before the plain product, whose buffers are no part of it.
        peak = peak.or_else(peak_memory);
        products.push(plain());
    }
    for (row, (&query, targets)) in queries.iter().zip(&targets).enumerate().step_by((q / 3).max(1)) {
        let distances = gallery.distances(gallery.point(query));
        let expected: Vec<usize> =
            targets.iter().map(|&t| gallery.position(&distances, t, |i| i != query)).collect();
        assert_eq!(found[row], expected, "ranks of query {query}");
    }
    let best = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let all = |times: &[f64]| times.iter().map(|t| format!("{t:.1}")).collect::<Vec<_>>().join(", ");
    let mut lines =
        vec![format!("{q} queries, {n} items of {d} dimensions, {TARGETS} targets each: {gflop:.0} GFLOP")];
    for (name, times) in [("exact ranks", &times), ("plain product", &products)] {
        let (best, all) = (best(times), all(times));
        lines.push(format!(
            "{name:14}{best:7.1} s {:7.1} ms/GFLOP   (best of {all} s, by turns)",
            1e3 * best / gflop
        ));
    }
    lines.push(format!("ratio         {:7.2}   (goal: at most 2)", best(&times) / best(&products)));
    if let Some(peak) = peak {
        lines.push(format!("peak memory   {peak:7.2} GiB (goal for a million items of 512 dimensions: 4)"));
    }
    Ok(lines.join("\n"))
}

/// Peak resident memory in GiB, where the system says so.
fn peak_memory() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / (1 << 20) as f64)
}
