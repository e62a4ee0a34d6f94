//! Samplers of triplets.

use super::*;

#[test]
fn samplers_take_what_pytorch_metric_learning_takes() {
    let golden = golden();
    let mined = sampler::mined(&tensor(&golden.embeddings), &golden.labels, 0.2).unwrap();
    for (name, rows) in &golden.samplers {
        let sampler = sampler::find(name).unwrap();
        assert!(rows.iter().any(|row| !row.is_empty()), "{name}: the case says nothing");
        for (i, expected) in rows.iter().enumerate() {
            let weights = sampler.weights(&mined, 2 * i, 2 * i + 1);
            let taken: Vec<usize> = (0..weights.len()).filter(|&c| weights[c] > 0.0).collect();
            assert_eq!(&taken, expected, "{name}, anchor {}", 2 * i);
        }
    }
    let sampler = sampler::find("distance-clamped").unwrap();
    for (anchor, row) in golden.distance_weights.iter().enumerate() {
        let ours = sampler.weights(&mined, anchor, anchor ^ 1);
        let total: f64 = (0..row.len()).filter(|&c| row[c] > 0.0).map(|c| ours[c]).sum();
        for c in (0..row.len()).filter(|&c| row[c] > 0.0) {
            assert!((ours[c] / total - row[c]).abs() < 1e-4 * row[c], "anchor {anchor}, candidate {c}");
        }
    }
    // Of the other two, `distance` is compared below, and `random` allows every image of another class.
    assert_eq!(SAMPLERS.len(), golden.samplers.len() + 3);
    let all = sampler::find("random").unwrap().weights(&mined, 0, 1);
    assert_eq!(all, (0..12).map(|c| if c < 2 { 0.0 } else { 1.0 }).collect::<Vec<_>>());
}

/// golden_train.py computes probabilities and moments in NumPy, as HM's released code does.
#[test]
fn samplers_draw_what_those_of_hms_code_draw() {
    for (space, batch) in &golden().samplers_of_hm {
        let BatchOfHm { distances, labels, dim, samplers } = batch;
        let mined = Mined { distances: distances.clone(), labels: labels.clone(), dim: *dim, eta: 0.2 };
        for (name, expected) in samplers {
            let sampler = sampler::find(name).unwrap();
            for (i, (positives, negatives)) in expected.positives.iter().zip(&expected.negatives).enumerate()
            {
                let what = format!("{name}, {space} space, anchor {}", 2 * i);
                let taken: Vec<usize> = (0..16).filter(|&c| positives[c] > 0.0).collect();
                assert_eq!((sampler.positives)(&mined, 2 * i), taken, "{what}");
                let mut weights = sampler.weights(&mined, 2 * i, 2 * i + 1);
                if weights.iter().all(|w| *w == 0.0) {
                    weights = sampler::find("random").unwrap().weights(&mined, 2 * i, 2 * i + 1);
                }
                let total: f64 = weights.iter().sum();
                for (c, (found, expected)) in weights.iter().zip(negatives).enumerate() {
                    let off = (found / total - expected).abs();
                    // Distances have seven digits, and are raised to the power of 510.
                    assert!(
                        off < 1e-3 * expected + 1e-12,
                        "{what}, candidate {c}: {} {expected}",
                        found / total
                    );
                }
            }
            // Four standard errors of 16,000 triplets; that of the variance is at most that of a normal
            // quantity, times a margin.
            let mut dice = Dice::new(0, name, 0);
            let mut h = vec![];
            for _ in 0..2000 {
                let Triplets { a, p, n } = sampler::mine(sampler, &mined, Anchors::Pairs, &mut dice);
                let at = |i: i64, j: i64| mined.distance(i as usize, j as usize);
                h.extend((0..a.len()).map(|k| at(a[k], p[k]) - at(a[k], n[k])));
            }
            let count = h.len() as f64;
            let mean = h.iter().sum::<f64>() / count;
            let variance = h.iter().map(|h| (h - mean).powi(2)).sum::<f64>() / count;
            let error = 4.0 * (expected.variance / count).sqrt();
            assert!(
                (mean - expected.mean).abs() < error,
                "{name}, {space}: mean {mean}, not {}",
                expected.mean
            );
            assert!((variance / expected.variance - 1.0).abs() < 0.1, "{name}, {space}: variance {variance}");
        }
        // `distance` is harder than `random`, shrunk or not.
        assert!(samplers["distance"].mean > samplers["random"].mean, "{space}");
    }
}

/// Identical images and opposite ones have a weight too, although their density is 0.
#[test]
fn distance_weighted_negatives_are_drawn_where_the_density_is_0() {
    let near = [0.0, 0.7, 0.0, 1.2, 0.7, 0.0, 0.7, 1.2, 0.0, 0.7, 0.0, 2.0, 1.2, 1.2, 2.0, 0.0];
    let mined =
        Mined { distances: near.map(|d| d as f32).to_vec(), labels: vec![0, 0, 1, 1], dim: 512, eta: 0.2 };
    let sampler = sampler::find("distance").unwrap();
    assert_eq!(sampler.weights(&mined, 0, 1), [0.0, 0.0, 1.0, 0.0], "a copy of another class");
    let of_opposite = sampler.weights(&mined, 2, 3);
    assert_eq!((of_opposite[0], of_opposite.iter().all(|w| w.is_finite())), (1.0, true));
}

#[test]
fn samplers_fall_back_and_choose_by_weight() {
    // Two classes far apart: nothing is semi-hard, so that any image of another class is drawn.
    let e = Tensor::from_slice(&[1f32, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0]).view([4, 2]);
    let mined = sampler::mined(&e, &[0, 0, 1, 1], 0.2).unwrap();
    let triplets = sampler::mine(
        sampler::find("semihard").unwrap(),
        &mined,
        Anchors::Pairs,
        &mut Dice::new(0, "test", 0),
    );
    assert_eq!((triplets.a, triplets.p), (vec![0, 2], vec![1, 3]));
    assert!([2, 3].contains(&triplets.n[0]) && [0, 1].contains(&triplets.n[1]));
    // 4,000 draws follow the weights, within four standard deviations.
    let mut dice = Dice::new(0, "test", 1);
    let mut counts = [0.0; 3];
    (0..4000).for_each(|_| counts[dice.random().weighted(&[1.0, 0.0, 3.0]).unwrap()] += 1.0);
    assert!(
        counts[1] == 0.0 && (counts[2] - 3000.0f64).abs() < 4.0 * (4000.0f64 * 0.1875).sqrt(),
        "{counts:?}"
    );
    assert_eq!(dice.random().weighted(&[0.0, 0.0]), None);
    // Equation 32 at both ends and in the middle.
    assert_eq!([0.0, 0.5, 1.0].map(|share| scheduled(0.2, share)), [0.2, 0.2 * 0.9375, 0.2 * 0.75]);
}
