//! Compares the trainer with the papers. Expected values are closed forms, or a few lines of plain arithmetic
//! here.

use crate::batch::{Batch, recipe};
use audit_train::defence::collapse::{Side, counts_clean_anchors, objective};
use audit_train::defence::{adml, number};
use audit_train::dice::Dice;
use audit_train::loss::{distance, same_class};
use audit_train::net::{Norms, normalize};
use audit_train::sampler::{self, Anchors, Triplets, scheduled, scheduled_as_released};
use audit_train::settings::{AdmlTarget, Reading, References};
use tch::{Kind, Tensor};

/// Rows of unit length.
fn points(rows: &[[f64; 2]]) -> Tensor {
    Tensor::from_slice(&rows.concat()).view([rows.len() as i64, 2]).to_kind(Kind::Float)
}

/// A point of the unit circle at a distance from (1, 0).
fn at_distance(d: f64) -> [f64; 2] {
    let angle = 2.0 * (d / 2.0).asin();
    [angle.cos(), angle.sin()]
}

// Fault 1.
#[test]
fn a_progressive_step_size_needs_more_than_one_epoch() {
    for method in ["cap", "anp", "ca-tride", "hm --progressive on"] {
        let Err(e) = recipe(&format!("{method} --epochs 1 --batch 16"), 100) else {
            panic!("{method} would train without an attack")
        };
        assert!(e.message.contains("it would train without an attack"), "{e}");
        assert!(recipe(&format!("{method} --epochs 2 --batch 16"), 100).is_ok());
        assert!(
            recipe(&format!("{method} --steps 7 --batch 16"), 100).is_ok(),
            "a second epoch of one batch"
        );
    }
    assert!(recipe("cap --progressive off --epochs 1 --batch 16", 100).is_ok());
}

// Fault 2.
#[test]
fn the_steps_of_an_attack_reach_the_side_of_its_box() {
    let pixel = 1.0 / 255.0;
    for (words, expected) in [
        // Published for 28 pixels: 32 steps of 3/255, which reach 77/255.
        ("est", 3.0 * pixel),
        ("hm --pgd-steps 26", 3.0 * pixel),
        // Fewer steps can't reach it.
        ("hm --pgd-steps 25", 2.5 * 77.0 * pixel / 25.0),
        ("ca-tride", 2.5 * 77.0 * pixel / 16.0),
        ("adml", 2.5 * 77.0 * pixel / 7.0),
        ("adml --eps 21/255", 3.0 * pixel),
        ("act --alpha 1/255", pixel),
        // Photographs.
        ("ca-tride --backbone resnet18 --pretrained x", pixel),
        ("hm --backbone resnet18 --pretrained x --pgd-steps 8", pixel),
        ("hm --backbone resnet18 --pretrained x --pgd-steps 4", 5.0 * pixel),
        ("adml --backbone resnet18 --pretrained x", 0.007),
        // Panum et al.: 2ε/i.
        ("panum", 0.004),
        ("panum --eps 0.1 --pgd-steps 10", 0.02),
    ] {
        let s =
            recipe(&format!("{words} --batch 16"), 100).unwrap_or_else(|e| panic!("{words}: {e}")).settings;
        assert!((s.alpha - expected).abs() < 1e-7, "{words}: {} instead of {expected}", s.alpha);
    }
}

// Fault 3.
#[test]
fn panum_and_mined_adml_losses_take_every_image_as_an_anchor() {
    for (words, anchors) in [
        ("panum", Anchors::Every),
        ("adml", Anchors::Every),
        ("hm", Anchors::Pairs),
        ("act", Anchors::Pairs),
        ("cap", Anchors::Pairs),
    ] {
        assert_eq!(recipe(&format!("{words} --batch 16"), 100).unwrap().settings.anchors, anchors, "{words}");
    }
    let e = normalize(&Dice::new(2, "points", 0).tensor(&[8, 4]));
    let mined = sampler::mined(&e, &[0, 0, 1, 1, 2, 2, 3, 3], 0.2).unwrap();
    let Triplets { a, p, n } = sampler::mine(
        sampler::find("distance").unwrap(),
        &mined,
        Anchors::Every,
        &mut Dice::new(0, "test", 0),
    );
    assert_eq!(a, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(p, [1, 0, 3, 2, 5, 4, 7, 6]);
    assert!(a.iter().zip(&n).all(|(a, n)| a / 2 != n / 2));
    // Every positive is moved, 5 steps each.
    assert_eq!(Batch::new("panum --gamma 1", 16).update().seen.image_steps, 16 * 5);
}

// Fault 4.
#[test]
fn adml_targets_compare_with_the_same_references() {
    let e = normalize(&(Dice::new(2, "points", 0).tensor(&[6, 3]) - 0.5));
    let clean = normalize(&(Dice::new(3, "points", 0).tensor(&[6, 3]) - 0.5));
    let labels = [0, 0, 1, 1, 2, 2];
    let same = same_class(&labels, &e);
    let triplets =
        Triplets { a: vec![0, 1, 2, 3, 4, 5], p: vec![1, 0, 3, 2, 5, 4], n: vec![2, 4, 5, 0, 1, 3] };
    let square = |x: usize, references: &Tensor, y: usize| {
        (0..3)
            .map(|k| (e.double_value(&[x as i64, k]) - references.double_value(&[y as i64, k])).powi(2))
            .sum::<f64>()
    };
    for references in [&clean, &e] {
        let (mut alignment, mut uniformity, mut triplet) = (0.0, 0.0, 0.0);
        for x in 0..6 {
            alignment += square(x, references, x ^ 1);
            let others = (0..6).filter(|y| labels[*y] != labels[x]);
            uniformity += others.map(|y| (-square(x, references, y)).exp()).sum::<f64>() / 4.0;
            let (p, n) = (triplets.p[x] as usize, triplets.n[x] as usize);
            triplet += (square(x, references, p).sqrt() - square(x, references, n).sqrt() + 0.2f64).max(0.0);
        }
        for (target, expected) in [
            (AdmlTarget::Alignment, alignment),
            (AdmlTarget::Uniformity, uniformity),
            (AdmlTarget::AlignmentUniformity, alignment + uniformity),
            (AdmlTarget::Triplet, triplet),
        ] {
            let found = -number(&adml::objective(target, &e, references, &same, &triplets));
            assert!(
                expected > 0.1 && (found - expected).abs() < 1e-5,
                "{target:?}: {found} instead of {expected}"
            );
        }
    }
    assert_eq!(recipe("adml --batch 16", 100).unwrap().settings.refs, References::Clean);
    let moved = |words: &str| {
        Batch::new(&format!("adml {words} --eps 0.1 --loss margin"), 16).update().seen.hardness_after
    };
    for target in ["alignment", "uniformity", "alignment-uniformity", "triplet"] {
        let (clean, joint) =
            (moved(&format!("--target {target}")), moved(&format!("--target {target} --refs joint")));
        assert_ne!(clean, joint, "{target}: the references make no difference");
    }
}

// Fault 6.
#[test]
fn the_released_reading_has_the_released_margin() {
    // 0.2 → 0.05 in the code, 0.2 → 0.15 in the paper.
    assert_eq!([0.0, 0.5, 1.0].map(|share| scheduled_as_released(0.2, share)), [0.2, 0.2 * 0.5625, 0.05]);
    assert_eq!(scheduled(0.2, 1.0), 0.2 * 0.75);
    // Positives at 0.5; images 2 and 3 are 0.03 farther, 4 and 5 0.1: all four are within 0.15, the first two
    // within 0.05.
    let (near, far) = (at_distance(0.53), at_distance(0.6));
    let e = points(&[[1.0, 0.0], at_distance(0.5), near, near, far, far]);
    let taken = |reading: &str| {
        let mut batch = Batch::new(&format!("ca-tride --reading {reading}"), 6);
        batch.labels = vec![0, 0, 1, 1, 2, 2];
        let mut step = batch.step(1.0);
        let mut found: Vec<i64> = (0..60).map(|_| step.mine(&e).unwrap().n[0]).collect();
        found.sort();
        found.dedup();
        found
    };
    assert_eq!(taken("paper"), [2, 3, 4, 5]);
    assert_eq!(taken("released"), [2, 3]);
}

// Faults 7 and 9.
#[test]
fn defaults_are_those_of_the_published_rows() {
    let settings = |words: &str| recipe(&format!("{words} --batch 16"), 100).unwrap().settings;
    assert_eq!(settings("est").sampler, "random");
    assert!(
        settings("panum").random_start && !settings("hm").random_start && !settings("ca-tride").random_start
    );
    assert!(!settings("panum --random-start off").random_start && settings("hm --random-start").random_start);
}

// Fault 8: the logged triplets are those of the loss, mined once.
#[test]
fn what_is_logged_is_what_is_trained_on() {
    for sampler in ["random", "semihard", "distance"] {
        let seen = Batch::new(&format!("none --sampler {sampler}"), 32).update().seen;
        assert!(seen.loss_adversarial > 0.01);
        assert!((seen.loss_clean - seen.loss_adversarial).abs() < 1e-6, "{sampler}: {seen:?}");
    }
    // With hardly any attack, triplets don't change.
    let seen = Batch::new("est --eps 0.0000001 --alpha 0.0000001 --pgd-steps 1", 32).update().seen;
    assert!((seen.loss_clean - seen.loss_adversarial).abs() < 1e-4, "{seen:?}");
}

// Fault 8: shifts are between embeddings of one mode.
#[test]
fn training_batch_norm_is_no_shift() {
    let words = "est --backbone resnet18 --norms train --eps 0.0000001 --alpha 0.0000001 --pgd-steps 1";
    let seen = Batch::new(words, 4).update().seen;
    assert!(seen.shift < 1e-3, "an attack of 1e-7 moves nothing: {seen:?}");
}

/// As in robrank, which embeds both in training mode.
#[test]
fn the_running_statistics_of_est_are_of_clean_and_of_moved_images() {
    let words = "est --backbone resnet18 --norms train --eps 0.0000001 --alpha 0.0000001 --pgd-steps 1";
    let mut est = Batch::new(words, 4);
    est.update();
    let once = Batch::new(words, 4);
    drop(tch::no_grad(|| once.net.unit(&once.net.weights, &once.images, Norms::Train)));
    let [two, one] = [&est, &once].map(|batch| batch.net.weights["bn1.running_mean"].detach());
    // From 0 with a momentum of 0.1, on images that hardly differ.
    let scale = number(&one.abs().max());
    assert!(scale > 1e-3, "{scale}");
    assert!(number(&(two - one * 1.9).abs().max()) < 1e-3 * scale);
}

/// robrank's noise of −1, 0 or 1 times 1e-7 per coordinate, not the same direction for all images.
#[test]
fn the_first_step_of_a_shift_has_a_direction_for_each_image() {
    let mut batch = Batch::new("est", 16);
    let step = batch.step(0.5);
    let clean = step.clean();
    let noise = (step.beside(&clean) - &clean) * 1e7;
    let rows: Vec<Vec<f32>> = (0..16).map(|i| Vec::<f32>::try_from(noise.get(i)).unwrap()).collect();
    let signs: Vec<Vec<i32>> =
        rows.iter().map(|row| row.iter().map(|value| value.round() as i32).collect()).collect();
    assert!([-1, 0, 1].iter().all(|sign| signs[0].contains(sign)), "{:?}", signs[0]);
    assert!(signs.iter().flatten().all(|sign| sign.abs() <= 1) && signs[0] != signs[1]);
    assert!(step.beside(&clean) == step.beside(&clean), "the same in a resumed run");
}

// Fault 10.
#[test]
fn the_first_step_of_anp_does_not_follow_rounding() {
    let e = normalize(&(Dice::new(2, "points", 0).tensor(&[24, 8]) + 0.5));
    let parts = e.chunk(3, 0);
    // Each anchor is between its own class and the other: hardness is below 0, and the attack goes on.
    let [a, p] = [&parts[0], &parts[1]].map(Tensor::shallow_clone);
    let (p, n) = (normalize(&(&a * 4.0 + p)), parts[2].shallow_clone());
    let gradient = |origin: Option<&Tensor>, reading: Reading| {
        let moving = a.detach().set_requires_grad(true);
        let loss = objective([&moving, &p, &n], origin, Side::Anchors, reading, 2.0, true).unwrap();
        Tensor::run_backward(&[loss], &[&moving], false, false)[0].shallow_clone()
    };
    let noise = (Dice::new(9, "noise", 0).tensor(&[8, 8]) - 0.5) * 1e-6;
    let origins = [&a + &noise, &a - &noise];
    assert!(number(&distance(&a, &origins[0]).max()) < 3e-6);
    let [one, other] = origins.each_ref().map(|origin| gradient(Some(origin), Reading::Working));
    assert!(
        number(&(&one - &other).abs().max()) > 0.01,
        "rounding decides where d(A, A0) counts at the start"
    );
    // Closed form of the first step: −C + e^C·mean d(A, N_near), without A0.
    let moving = a.detach().set_requires_grad(true);
    let to_negative = distance(&moving, &n);
    let mean = |d: &Tensor| ((d.detach() * -2.0).softmax(0, Kind::Float) * d).sum(Kind::Float);
    let c = mean(&distance(&moving, &p)) - mean(&to_negative);
    let near = to_negative.detach().argsort(0, false).narrow(0, 0, 4);
    let loss = to_negative.index_select(0, &near).mean(Kind::Float) * number(&c.detach()).exp() - &c;
    assert!(number(&c.detach()) < 0.0);
    let expected = Tensor::run_backward(&[loss], &[&moving], false, false)[0].shallow_clone();
    let found = gradient(None, Reading::Working);
    assert!(number(&(found - expected).abs().max()) < 1e-5);
}

// Fault 10 for the attack on a batch: its only step follows the signs of the closed form's gradient, −C +
// e^C·mean d(A, N_near). The clean anchors are embedded in one batch with the positives, the moving ones in a
// separate batch, so that in batches of some sizes they differ by rounding: with d(A, A0) in this step, many
// signs would be those of rounding.
#[test]
fn an_attack_of_anp_begins_without_the_clean_anchors() {
    let counts = [(0, false), (1, false), (0, true)]
        .map(|(at, start)| counts_clean_anchors(at, start, Reading::Working));
    assert_eq!(counts, [false, true, true]);
    let mut apart = 0;
    for count in [16, 18, 20, 22, 24, 26] {
        let mut batch =
            Batch::new("anp --progressive off --pgd-steps 1 --eps 0.1 --alpha 0.1 --lambda 2", count);
        let found = batch.update().seen;
        let mut step = batch.step(0.5);
        let clean = step.clean();
        let triplets = step.mine(&clean).unwrap();
        let [_, p, n] = triplets.of(&clean);
        let [images, ..] = triplets.of(step.images);
        let moving = images.detach().set_requires_grad(true);
        let a = step.net.unit(&step.frozen, &moving, Norms::Frozen);
        let [before, ..] = triplets.of(&clean);
        apart += usize::from(number(&(a.detach() - before).abs().max()) > 0.0);
        let to_negative = distance(&a, &n);
        let mean = |d: &Tensor| ((d.detach() * -2.0).softmax(0, Kind::Float) * d).sum(Kind::Float);
        let c = mean(&distance(&a, &p)) - mean(&to_negative);
        assert!(number(&c.detach()) < 0.0, "the attack makes a step");
        let near = to_negative.detach().argsort(0, false).narrow(0, 0, count / 4);
        let loss = to_negative.index_select(0, &near).mean(Kind::Float) * number(&c.detach()).exp() - &c;
        let slope = Tensor::run_backward(&[loss], &[&moving], false, false)[0].sign();
        let moved = (images - slope * 0.1).clamp(0.0, 1.0);
        let after = step.net.unit(&step.frozen, &moved, Norms::Frozen);
        let [before, ..] = triplets.of(&clean);
        for (what, found, expected) in [
            ("shift", found.shift, distance(&before, &after)),
            ("hardness", found.hardness_after, distance(&after, &p) - distance(&after, &n)),
        ] {
            let expected = number(&expected.mean(Kind::Float));
            // A few signs of gradients near 0 are due to rounding.
            assert!((found - expected).abs() < 1e-4, "{count}: {what} {found} instead of {expected}");
        }
    }
    if apart == 0 {
        eprintln!(
            "skipped in part: this processor rounds alike in batches of all these sizes, so that the fault would not show"
        );
    }
}
