//! Searches reach minima that are known.

use super::*;

/// One dimension, no clipping at 0 or 1: the worst case within the box is ε·‖w‖₁ away.
#[test]
fn known_worst_cases_are_reached() {
    let w = random(1, 3);
    let reach = reach(&w);
    let images = images(40, 4, 0.4, 0.6);
    for (steps, search) in [(1, &PGD), (16, &PGD), (1, &APGD), (16, &APGD)] {
        for form in FORMS {
            let mut model = Linear::new(w.clone(), 3);
            let context = context(&model, Metric::Euclidean, &images);
            let plan = Plan { steps, search, ..plan(form) };
            let es = drawn(&context, "ES", form, &[0, 17, 39]);
            for o in go(&mut model, &context, &images, &es, &plan) {
                assert!((o.shift - reach).abs() < 1e-5, "{} vs {reach}", o.shift);
                assert!((o.linf - 0.1).abs() < 1e-6);
                assert!((o.loss_last + reach).abs() < 1e-5);
                assert_eq!(o.steps, steps);
            }
            // A target out of reach: GTM gets nearer by ε·‖w‖₁, and no more.
            let order = |a: &usize, b: &usize| coordinate(&context, *a).total_cmp(&coordinate(&context, *b));
            let (target, query) = ((0..40).max_by(order).unwrap(), (0..40).min_by(order).unwrap());
            let far = coordinate(&context, target) - coordinate(&context, query);
            let gtm = [trial("GTM", query, &[target])];
            let o = &go(&mut model, &context, &images, &gtm, &plan)[0];
            assert!((o.loss_first - far).abs() < 1e-5);
            let off = (o.loss_last - (far - reach).abs()).abs();
            assert!(off < 2e-5 || far < reach, "{} {far} {reach}", o.loss_last);
        }
    }
}

#[test]
fn adaptive_steps_find_lower_losses() {
    let (images, mut model, context) = world(100, 18, 8);
    let trials = trials(&context, Form::Corrected, &(0..100).step_by(5).collect::<Vec<_>>());
    let fixed = Plan { steps: 32, ..plan(Form::Corrected) };
    let adaptive = Plan { search: &APGD, ..fixed.clone() };
    let [fixed, adaptive] = [fixed, adaptive].map(|plan| go(&mut model, &context, &images, &trials, &plan));
    let total = |outcomes: &[Outcome], code| -> f64 {
        outcomes.iter().filter(|o| o.attack == code).map(|o| o.loss_last).sum()
    };
    for attack in OBJECTIVES {
        let (fixed, adaptive) = (total(&fixed, attack.code), total(&adaptive, attack.code));
        assert!(adaptive <= fixed + 1e-3 * fixed.abs(), "{attack:?}: {adaptive} vs {fixed}");
    }
    // If the minimum lies within the box, a fixed step circles around it.
    assert!(total(&adaptive, "GTM") < 0.6 * total(&fixed, "GTM"));
    assert!(total(&adaptive, "LTM") < 0.95 * total(&fixed, "LTM"));
    assert!(adaptive.iter().all(|o| o.loss_last <= o.loss_first + 1e-6), "the best image seen counts");
}

/// By hand, see [`Toy`]. A search along gradients gets there at its first step of size ε, a random search
/// finds the side of each of the 12 pixels, and estimated gradients are right about the pixels that count.
#[test]
fn every_search_of_the_ensemble_finds_a_known_minimum() {
    for (search, steps, short) in [(&COSINE, 2, 1e-5), (&RANDOM, 400, 1e-5), (&NES, 1600, 0.02)] {
        let Toy { mut model, images, context, trials, lowest, reach } = toy(find("GTM"));
        let plan = Plan { search, steps, alpha: 0.1, ..plan(Form::Corrected) };
        let o = &go(&mut model, &context, &images, &trials, &plan)[0];
        let off = (o.loss_last - lowest) / reach;
        assert!(off > -1e-5 && off < short, "{search:?}: {off} of the way are left");
        assert!((o.loss_first - lowest - reach).abs() < 1e-4 || search == &RANDOM, "{o:?}");
    }
}

/// Images of two pixels that are their own embeddings: the query 0, and items of three classes.
fn plane() -> (Linear<'static>, Vec<Vec<f32>>, AttackContext) {
    let at = [[0.3, 0.45], [0.2, 0.5], [0.6, 0.7], [0.6, 0.3], [0.8, 0.5], [0.9, 0.9]];
    let images: Vec<Vec<f32>> = at.iter().map(|x| x.to_vec()).collect();
    let model = Linear::new(Array2::eye(2), 4);
    let context = classes(&model, Metric::Euclidean, &images, vec![0, 0, 1, 1, 2, 2]);
    (model, images, context)
}

/// By hand. Class 1 begins at the bisector of the items 1 and 3, through (0.4, 0.4) along the normal (2, −1):
/// the query is 0.25/√5 from it, and 0.25/3 in the largest pixel. Class 2 begins at the bisectors of 4 and
/// its neighbours 2 and 3, x − y = 0.1 and x + y = 1.1, which meet at (0.6, 0.5): of all points beyond both,
/// this is the nearest to the query, √(0.3² + 0.05²) away, and 0.3 in the largest pixel.
#[test]
fn the_smallest_perturbation_towards_a_class_is_a_known_one() {
    let (mut model, images, context) = plane();
    let drawn = |query| {
        let of = |seed| {
            select(&context, find("TMIN"), 1, Form::Corrected, seed, &[query]).unwrap().trials[0].targets[0]
        };
        (0..60).map(of).collect::<HashSet<usize>>()
    };
    // The query finds its class, item 2 finds class 2 before its own, and item 4 finds class 1.
    assert_eq!(drawn(0), HashSet::from([2, 3, 4, 5]));
    assert_eq!(drawn(2), HashSet::from([0, 1]));
    assert_eq!(drawn(4), HashSet::from([0, 1]));
    for (code, target, l2, linf) in [
        ("MIN", 1, 0.25 / 5f32.sqrt(), 0.25 / 3.0),
        ("TMIN", 3, 0.25 / 5f32.sqrt(), 0.25 / 3.0),
        ("TMIN", 4, 0.0925f32.sqrt(), 0.3),
    ] {
        for (ball, expected) in BALLS.iter().map(|ball| (ball, if ball.is_box { linf } else { l2 })) {
            for search in SEARCHES.iter().filter(|search| search.smallest) {
                let trials = [trial(code, 0, &[target])];
                let plan = Plan { ball, search, eps: 0.6, steps: 900, ..plan(Form::Corrected) };
                let o = &go(&mut model, &context, &images, &trials, &plan)[0];
                let size = o.size.unwrap_or(o.linf);
                let what = format!("{code} {target} {ball:?} {search:?}: {size}, by hand {expected}");
                assert_eq!((o.before.hit, o.after.hit), (Some(true), Some(false)), "{what}");
                // Only bisection comes near the point where two borders meet.
                let most = if target == 4 && search != &BISECTION { 1.5 } else { 1.03 };
                assert!(size > expected * 0.9999 && size < expected * most, "{what}");
            }
        }
    }
}

/// Every search stays above the smallest change by any point of a fine grid, and most come near to it, in a
/// gallery whose classes have many separate regions.
#[test]
fn smallest_perturbations_towards_a_class_agree_with_a_grid() {
    let mut next = numbers(12);
    let images: Vec<Vec<f32>> = (0..18).map(|_| vec![next(), next()]).collect();
    let mut model = Linear::new(Array2::eye(2), 4);
    let labels: Vec<usize> = (0..18).map(|i| i % 3).collect();
    let context = classes(&model, Metric::Euclidean, &images, labels.clone());
    let queries: Vec<usize> = (0..18).collect();
    let trials = select(&context, find("TMIN"), 1, Form::Corrected, 3, &queries).unwrap().trials;
    assert!(trials.len() == 18);
    let (cells, far) = (400, |a: &[f32], b: &[f32]| {
        (f64::from(a[0] - b[0]).powi(2) + f64::from(a[1] - b[1]).powi(2)).sqrt()
    });
    let points = (0..=cells)
        .flat_map(|i| (0..=cells).map(move |j| [i as f32 / cells as f32, j as f32 / cells as f32]));
    let mut least = vec![[f64::INFINITY; 2]; 18];
    for x in points {
        for (trial, least) in trials.iter().zip(&mut least) {
            let others = (0..18).filter(|&i| i != trial.query);
            let nearest =
                others.min_by(|&a, &b| far(&images[a], &x).total_cmp(&far(&images[b], &x))).unwrap();
            if labels[nearest] == labels[trial.targets[0]] {
                let q = &images[trial.query];
                let largest = f64::from((q[0] - x[0]).abs().max((q[1] - x[1]).abs()));
                *least = [least[0].min(largest), least[1].min(far(q, &x))];
            }
        }
    }
    for (k, ball) in BALLS.iter().enumerate() {
        let plan = Plan { ball, search: &BISECTION, eps: 1.5, steps: 420, ..plan(Form::Corrected) };
        let found = go(&mut model, &context, &images, &trials, &plan);
        let broken = found.iter().zip(&least).filter(|(o, _)| o.after.hit == Some(false));
        let sizes: Vec<(f64, f64)> =
            broken.map(|(o, least)| (f64::from(o.size.unwrap_or(o.linf)), least[k])).collect();
        // The grid's point is at most one cell's diagonal farther than the border.
        let cell = 1.5 / f64::from(cells);
        assert!(sizes.iter().all(|(size, least)| *size > least - cell), "{ball:?}: {sizes:?}");
        let near = sizes.iter().filter(|(size, least)| *size < 1.05 * least + cell).count();
        assert!(near >= 15, "{ball:?}: {near} of {} found of 18: {sizes:?}", sizes.len());
    }
}
