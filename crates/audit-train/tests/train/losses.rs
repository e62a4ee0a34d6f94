//! Losses, objectives and the attacks that climb them.

use super::*;

#[test]
fn losses_and_their_gradients_are_those_of_pytorch_metric_learning() {
    let golden = golden();
    let [a, p, n] = golden.triplets.clone();
    let triplets = Triplets { a, p, n };
    // The other losses are in knobs.rs.
    for (name, case) in &golden.losses {
        let loss = Loss::find(name).unwrap();
        let e = leaf(&tensor(&golden.embeddings));
        // There, losses of pairs use cosine, which normalises.
        let seen = if loss.of_triplets { e.shallow_clone() } else { normalize(&e) };
        let classes = numbers(&golden.labels, &e);
        let value =
            (loss.of)(&Labelled { e: &seen, classes: &classes, triplets: &triplets, parameter: None });
        assert!(case.value > 0.0, "{name}: the case says nothing");
        same(&value, &[&e], case, name);
    }
}

#[test]
fn collapse_objectives_are_those_of_pytorch() {
    let golden = golden();
    let e = tensor(&golden.embeddings);
    let rows = golden.rows(&e);
    let case = |value: &serde_json::Value| Case::deserialize(value).unwrap();
    let origin = tensor(&Vec::<Vec<f32>>::deserialize(&golden.collapse["origin"]).unwrap());
    let mut told = 0;
    for lambda in ["0.0", "2.0", "10.0"] {
        for (name, reading) in
            [("working", Reading::Working), ("paper", Reading::Paper), ("released", Reading::Released)]
        {
            for (phase, kind) in [("cap", Side::Candidates), ("anp", Side::Anchors)] {
                let what = format!("{phase} {name} λ {lambda}");
                let expected = case(&golden.collapse[lambda][format!("{phase} {name}")]);
                let leaves = rows.each_ref().map(leaf);
                let [a, p, n] = &leaves;
                let found = objective([a, p, n], Some(&origin), kind, reading, lambda.parse().unwrap(), true);
                match found {
                    Some(loss) => {
                        same(&loss, &[a, p, n], &expected, &what);
                        told += 1;
                    }
                    None => assert!(expected.value <= 1e-5, "{what}: stopped at {}", expected.value),
                }
            }
        }
    }
    assert!(told >= 15, "{told} cases of 18 say something");
    let leaves = rows.each_ref().map(leaf);
    let [a, p, n] = &leaves;
    same(&top_rank_loss([a, n, p], 0.04, 0.5), &[a, n, p], &case(&golden.collapse["top-rank-loss"]), "L_TR");
}

/// Eight steps of each attack as in CA-TRIDE's released code, compared with PyTorch (golden_train.py).
#[test]
fn released_attacks_go_where_those_of_the_authors_code_go() {
    let net = filled(Backbone::find("c2f1").unwrap());
    let images = [0.0, 0.15, 2.4].map(|start| {
        Tensor::cat(&(0..8).map(|s| image(1, 28, 0.7 * f64::from(s) + start)).collect::<Vec<_>>(), 0)
    });
    let clean = images.each_ref().map(|part| net.unit_all(part, 8));
    let budget = PgdBudget { eps: 77.0 / 255.0, alpha: 0.1 / 255.0, steps: 8, random_start: false };
    for (name, expected) in golden().released_attacks {
        let (side, moving): (_, &[usize]) =
            if name == "anp" { (Side::Anchors, &[0]) } else { (Side::Candidates, &[1, 2]) };
        let start = Tensor::cat(&moving.iter().map(|&i| &images[i]).collect::<Vec<_>>(), 0);
        let mut values = vec![];
        let mut dice = Dice::new(0, "pgd", 0);
        let moved = pgd(&net, &net.frozen(), &start, &budget, &mut dice, |e, at| {
            let parts = e.chunk(moving.len() as i64, 0);
            let mut now = clean.each_ref();
            moving.iter().zip(&parts).for_each(|(&place, part)| now[place] = part);
            let origin = counts_clean_anchors(at, false, Reading::Released).then_some(&clean[0]);
            let loss = objective(now, origin, side, Reading::Released, 2.0, true)?;
            values.push(number(&loss.detach()));
            Some(loss)
        });
        assert_eq!(values.len(), expected.objective.len(), "{name}: {values:?}");
        for (found, expected) in values.iter().zip(&expected.objective) {
            assert!((found - expected).abs() < 2e-3 * expected, "{name}: {values:?}");
        }
        let still = (&moved.images - &start).abs().amax([1i64, 2, 3].as_slice(), false).eq(0.0);
        let share = 1.0 - number(&still.to_kind(Kind::Float).mean(Kind::Float));
        assert_eq!(share, expected.moved, "{name}");
        let after = net.unit_all(&moved.images, 16);
        let shift = number(&distance(&after, &net.unit_all(&start, 16)).mean(Kind::Float));
        assert!((shift / expected.shift - 1.0).abs() < 5e-3, "{name}: shift {shift}, not {}", expected.shift);
    }
}

#[test]
fn collapseness_without_lambda_is_mean_hardness() {
    let golden = golden();
    let e = tensor(&golden.embeddings);
    let [a, p, n] = golden.rows(&e);
    let h = number(&audit_train::loss::hardness(&a, &p, &n).mean(Kind::Float));
    assert!((number(&collapseness([&a, &p, &n], 0.0, true)) - h).abs() < 1e-6);
}

#[test]
fn adml_objectives_are_those_of_pytorch() {
    let golden = golden();
    let clean = tensor(&golden.embeddings);
    let moved = tensor(&Vec::<Vec<f32>>::deserialize(&golden.adml["moved"]).unwrap());
    for (name, target) in [("alignment", AdmlTarget::Alignment), ("uniformity", AdmlTarget::Uniformity)] {
        let x = leaf(&moved);
        let case = Case::deserialize(&golden.adml[name]).unwrap();
        let classes = same_class(&golden.labels, &clean);
        same(&adml::objective(target, &x, &clean, &classes, &Triplets::default()), &[&x], &case, name);
    }
}

#[test]
fn pgd_stays_in_the_box_and_leaves_weights_alone() {
    let net = filled(Backbone::find("c2f1").unwrap());
    let start = Dice::new(2, "images", 0).tensor(&[4, 1, 28, 28]);
    let clean = net.unit_all(&start, 4);
    let away = |e: &Tensor, _| Some(-(e - &clean).square().sum(Kind::Float));
    for random_start in [false, true] {
        let budget = PgdBudget { eps: 0.1, alpha: 0.03, steps: 6, random_start };
        let mut seen = vec![];
        let moved = pgd(&net, &net.frozen(), &start, &budget, &mut Dice::new(0, "pgd", 0), |e, at| {
            seen.push(number(&(e.detach() - &clean).square().sum(Kind::Float)));
            // At the image itself there is no direction.
            if at == 0 { Some(-(e - &clean + 1e-3).square().sum(Kind::Float)) } else { away(e, at) }
        });
        assert_eq!((moved.steps, moved.work), (6, 24));
        assert!(number(&(&moved.images - &start).abs().max()) <= 0.1 + 1e-6);
        assert!(number(&moved.images.min()) >= 0.0 && number(&moved.images.max()) <= 1.0);
        assert!(seen[5] > 1.5 * seen[1] && seen.is_sorted(), "the attack climbs: {seen:?}");
        assert!(net.trained().all(|(_, t)| !t.grad().defined()), "no gradient reaches a weight");
    }
    // A loss of exactly 0 moves nothing, a step size of 0 makes no step, and an objective may stop.
    let budget = PgdBudget { eps: 0.1, alpha: 0.03, steps: 3, random_start: false };
    let still = pgd(&net, &net.frozen(), &start, &budget, &mut Dice::new(0, "pgd", 0), |e, _| {
        Some((e * 0.0).sum(Kind::Float))
    });
    assert_eq!(number(&(still.images - &start).abs().max()), 0.0);
    let at_rest = PgdBudget { alpha: 0.0, ..budget };
    let none = pgd(&net, &net.frozen(), &start, &at_rest, &mut Dice::new(0, "pgd", 0), away);
    assert_eq!((none.steps, number(&(none.images - &start).abs().max())), (0, 0.0));
    let stopped = pgd(&net, &net.frozen(), &start, &budget, &mut Dice::new(0, "pgd", 0), |e, at| {
        (at < 2).then(|| away(e, at)).flatten()
    });
    assert_eq!((stopped.steps, stopped.work), (2, 8));
}
