//! Tests of metrics, distances and galleries.

use super::*;
use ndarray::s;

fn cloud(n: usize, d: usize, seed: u64) -> Array2<f32> {
    let mut state = seed;
    Array2::from_shape_fn((n, d), |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    })
}

fn gallery(metric: Metric, raw: Array2<f32>) -> Gallery {
    let n = raw.nrows();
    Gallery::new(metric, raw, vec![0; n], (0..n).map(|i| i.to_string()).collect()).unwrap()
}

/// Distances in a buffer that already has other content.
fn distances(gallery: &Gallery, z: &Array2<f32>) -> Array2<f32> {
    let mut d = Array2::zeros((z.nrows(), gallery.len()));
    let mut room = vec![7.0; 100];
    gallery.distances_batch(z.as_slice().unwrap(), d.as_slice_mut().unwrap(), &mut room);
    d
}

fn gradient(gallery: &Gallery, z: &Array2<f32>, d: &Array2<f32>, mut w: Array2<f32>) -> Array2<f32> {
    let mut gradient = Array2::from_elem(z.dim(), 7.0);
    let (z, d, w) = (z.as_slice().unwrap(), d.as_slice().unwrap(), w.as_slice_mut().unwrap());
    gallery.gradient_batch(z, d, w, gradient.as_slice_mut().unwrap(), &mut vec![7.0; 100]);
    gradient
}

#[test]
fn names_and_letters_parse_and_serialise() {
    for metric in Metric::ALL {
        assert_eq!(metric.name().parse::<Metric>().unwrap(), metric);
        assert_eq!(metric.letter().parse::<Metric>().unwrap(), metric);
        let json = serde_json::to_string(&metric).unwrap();
        assert_eq!(json, format!("\"{}\"", metric.name()));
        assert_eq!(serde_json::from_str::<Metric>(&json).unwrap(), metric);
        assert_eq!(serde_json::from_str::<Metric>(&format!("\"{}\"", metric.letter())).unwrap(), metric);
    }
    assert!("manhattan".parse::<Metric>().unwrap_err().message.contains("euclidean (E)"));
}

#[test]
fn matrix_product_agrees_with_direct_differences() {
    for metric in Metric::ALL {
        // More than one block; a query equal to an image; one within rounding of another.
        let raw = cloud(BLOCK + 37, 24, 1);
        let mut z = raw.slice(s![3..6, ..]).to_owned();
        z[[1, 0]] += 1e-4;
        z.row_mut(2).mapv_inplace(|v| -2.0 * v);
        let gallery = gallery(metric, raw);
        let z = metric.into_space(z);
        let fast = distances(&gallery, &z);
        for (row, fast) in fast.rows().into_iter().enumerate() {
            let exact = gallery.distances(z.row(row).as_slice().unwrap());
            for (i, (&f, e)) in fast.iter().zip(exact).enumerate() {
                assert!(
                    (f64::from(f) - e).abs() < 2e-6 * (1.0 + e),
                    "{metric} row {row} item {i}: {f} vs {e}"
                );
            }
        }
        if metric != Metric::Cosine {
            assert_eq!(fast[[0, 3]], 0.0, "an item is at distance exactly 0 from itself");
        }
        let near = metric.distance(gallery.point(4), z.row(1).as_slice().unwrap());
        assert!((f64::from(fast[[1, 4]]) - near).abs() < 1e-9, "{metric}");
    }
}

/// Rounding tells two images at the same distance apart, but never by as much as its bound.
#[test]
fn rounding_is_below_its_bound() {
    for metric in Metric::ALL {
        let (many, dim) = (60, 128);
        let noise = cloud(many, dim, 7);
        // From nearly equal to unrelated, twice each: with the coordinates backwards.
        let image = |i: usize, k: usize| {
            let share = 2.0f32.powi(-(i as i32 % 30) / 2);
            if k == 0 { 0.0 } else { 1.0 + share * noise[[i, k]] * 3.0 }
        };
        let mirrored = |i: usize, k: usize| if k == 0 { 0.0 } else { image(i, dim - k) };
        let raw = Array2::from_shape_fn((2 * many, dim), |(i, k)| match i % 2 {
            0 => image(i / 2, k),
            _ => mirrored(i / 2, k),
        });
        let gallery = gallery(metric, raw);
        // z is the same forwards and backwards.
        let raw = Array2::from_shape_fn((1, dim), |(_, k)| if k == 0 { 0.0 } else { 1.0 });
        let z = metric.into_space(raw);
        let (fast, exact) = (distances(&gallery, &z), gallery.distances(z.row(0).as_slice().unwrap()));
        let mut differ = 0;
        for i in 0..many {
            let [a, b] = [fast[[0, 2 * i]], fast[[0, 2 * i + 1]]].map(f64::from);
            differ += usize::from(a != b);
            let least = (exact[2 * i] - exact[2 * i + 1]).abs();
            assert!((a - b).abs() < gallery.rounding(2 * i, a) + least, "{metric}: {a} and {b}");
        }
        assert!(differ > 0, "{metric}: nothing was rounded");
    }
}

/// L = Σ wᵢ·d(normalise(raw), xᵢ), differentiated numerically with respect to raw in `f64`.
#[test]
fn gradients_agree_with_finite_differences() {
    for metric in Metric::ALL {
        let gallery = gallery(metric, cloud(50, 8, 2));
        let raw = cloud(3, 8, 3) * 1.7;
        let weights = cloud(3, 50, 4);
        let z = metric.into_space(raw.clone());
        let d = distances(&gallery, &z);
        let mut gradient = gradient(&gallery, &z, &d, weights.clone());
        for (raw, mut gradient) in raw.rows().into_iter().zip(gradient.rows_mut()) {
            metric.pull_back(raw.as_slice().unwrap(), gradient.as_slice_mut().unwrap());
        }
        let loss = |row: usize, raw: &[f64]| -> f64 {
            let norm = if metric.normalizes() { raw.iter().map(|v| v * v).sum::<f64>().sqrt() } else { 1.0 };
            (0..50)
                .map(|i| {
                    let pairs =
                        raw.iter().map(|v| v / norm).zip(gallery.point(i).iter().map(|&x| f64::from(x)));
                    let d = match metric {
                        Metric::Cosine => 1.0 - pairs.map(|(a, b)| a * b).sum::<f64>(),
                        _ => pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt(),
                    };
                    f64::from(weights[[row, i]]) * d
                })
                .sum()
        };
        for row in 0..3 {
            let at = wide(raw.row(row).as_slice().unwrap());
            for k in 0..8 {
                let (mut up, mut down) = (at.clone(), at.clone());
                up[k] += 1e-5;
                down[k] -= 1e-5;
                let numeric = (loss(row, &up) - loss(row, &down)) / 2e-5;
                let found = f64::from(gradient[[row, k]]);
                assert!(
                    (found - numeric).abs() < 1e-5 * (1.0 + numeric.abs()),
                    "{metric}: {found} vs {numeric}"
                );
            }
        }
    }
}

#[test]
fn a_distance_of_zero_has_no_gradient() {
    let raw = cloud(4, 5, 5);
    for metric in [Metric::Euclidean, Metric::NormalizedEuclidean] {
        let gallery = gallery(metric, raw.clone());
        let z = gallery.points.slice(s![1..2, ..]).to_owned();
        let d = distances(&gallery, &z);
        let mut weights = Array2::zeros((1, 4));
        weights[[0, 1]] = 1.0;
        let gradient = gradient(&gallery, &z, &d, weights);
        assert!(gradient.iter().all(|&g| g == 0.0));
        let mut gradient = vec![0.0; 5];
        let own = wide(gallery.point(1));
        let distance = metric.pair(gallery.point(1), &own, 0.0, &mut gradient, |_| 1.0);
        assert!(distance == 0.0 && gradient.iter().all(|&g| g == 0.0));
    }
}

#[test]
fn positions_break_ties_by_index_and_nearest_agrees() {
    let gallery = gallery(Metric::Euclidean, cloud(5, 2, 6));
    let d = [3.0, 1.0, 2.0, 1.0, 0.5];
    assert_eq!(gallery.nearest(&d, 3, |_| true), [4, 1, 3]);
    assert_eq!(gallery.nearest(&d, 9, |i| i != 4), [1, 3, 2, 0]);
    assert_eq!(gallery.position(&d, 3, |_| true), 2);
    assert_eq!(gallery.position(&d, 3, |i| i != 4), 1);
    assert_eq!(gallery.position(&d, 0, |_| true), 4);
}

#[test]
fn galleries_refuse_what_cannot_be_ranked() {
    let ids = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
    let refuse = |raw, labels, ids| Gallery::new(Metric::Euclidean, raw, labels, ids).err().unwrap();
    assert_eq!(refuse(cloud(1, 2, 7), vec![0], ids(1)).exit, audit_base::Exit::Empty);
    let twice = refuse(cloud(2, 2, 7), vec![0; 2], vec!["a".into(), "a".into()]);
    assert!(twice.message.contains("`a`") && twice.exit == audit_base::Exit::Usage);
    let mut nan = cloud(2, 2, 7);
    nan[[1, 0]] = f32::NAN;
    let nan = refuse(nan, vec![0; 2], ids(2));
    assert!(nan.message.contains("`1`") && nan.exit == audit_base::Exit::Untrusted);
}

/// A stratified sample of 400 of 1000 classes with two images each would have one of each class at most, and
/// no pair of one class. Class by class it has 200 pairs, whose mean distance is near that of all, 2 by hand:
/// the distances 1, 2 and 3 have a standard deviation of √(2/3), and the mean of 200 one of 0.058.
#[test]
fn samples_of_many_classes_have_pairs() {
    let labelled = |labels: Vec<usize>, at: &dyn Fn(usize) -> f32| {
        let n = labels.len();
        let raw = Array2::from_shape_fn((n, 1), |(i, _)| at(i));
        Gallery::new(Metric::Euclidean, raw, labels, (0..n).map(|i| i.to_string()).collect()).unwrap()
    };
    let at = |i: usize| (10 * (i / 2) + (i % 2) * (1 + i / 2 % 3)) as f32;
    let many = labelled((0..2000).map(|i| i / 2).collect(), &at);
    let (items, how) = sample_pairs(&many, 400, 1);
    assert_eq!((items.len(), how), (400, "class by class in random order"));
    assert!(items.chunks(2).all(|two| two[0] % 2 == 0 && two[1] == two[0] + 1), "{items:?}");
    let name = |label: usize| label.to_string();
    let found = geometry::spacing(&many, &items, &name, &mut |_| Ok(())).unwrap();
    assert!((found.within - 2.0).abs() < 4.0 * 0.058, "{}", found.within);
    assert_ne!(items, sample_pairs(&many, 400, 2).0);
    // The few classes with two images are among a thousand with one.
    let few = labelled((0..1020).map(|i| if i < 40 { i / 2 } else { i }).collect(), &|i| i as f32);
    let (items, _) = sample_pairs(&few, 400, 1);
    assert!((0..40).all(|i| items.contains(&i)) && items.len() == 400);
    // With few classes it is the stratified sample.
    let large = labelled((0..2000).map(|i| i % 40).collect(), &|i| i as f32);
    assert_eq!(sample_pairs(&large, 400, 1), (sample_candidates(&large, 400, 1), "stratified by class"));
}
