//! Losses and their gradients.

use super::*;

#[test]
fn the_first_step_of_es_has_the_published_direction() {
    let images = images(20, 5, 0.4, 0.6);
    for (form, sign) in [(Form::Published, -1.0), (Form::Corrected, 1.0)] {
        let mut model = Linear::random(1);
        let context = context(&model, Metric::Euclidean, &images);
        let es = drawn(&context, "ES", form, &[3]);
        go(&mut model, &context, &images, &es, &plan(form));
        // z − e0 is 0: −1e-7 from the anchor, +1e-6 from the pairwise distance's offset in the published
        // form.
        let first = &model.seen[0].1;
        let alike = |g: &f32| g.signum() == sign && (g / first[0] - 1.0).abs() < 1e-3;
        assert!(first.iter().all(alike), "{form}: {first:?}");
    }
}

/// The gradient of the loss of `trials` by the pixels of `image`, which isn't the query's own: from the
/// cotangent that the model gets, and by central differences.
#[track_caller]
fn agrees_with_differences(
    model: &mut Linear,
    context: &AttackContext,
    trials: &[Trial],
    image: &[f32],
    form: Form,
    what: &str,
) {
    // The loss at any image: no steps, and an image that isn't the query's own.
    let mut still = |image: &[f32], steps| {
        let still = Plan { steps, alpha: 0.0, eps: 1.0, ..plan(form) };
        let image = |_| Ok(image.to_vec().into());
        model.seen.clear();
        run(vec![model], context, &image, trials, &still, &mut quiet).unwrap()
    };
    let h = 2e-3;
    let mut numeric = Vec::new();
    for j in 0..PIXELS {
        let mut loss = |by: f32| {
            let mut image = image.to_vec();
            image[j] += by;
            still(&image, 0)[0].loss_last
        };
        numeric.push((loss(h) - loss(-h)) / f64::from(2.0 * h));
    }
    // Two steps without movement: the first step of ES is special.
    still(image, 2);
    let cotangent = &model.seen[1].1;
    let found: Vec<f64> =
        (0..PIXELS).map(|j| (0..DIM).map(|k| f64::from(model.w[[k, j]] * cotangent[k])).sum()).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (nn, ff) = (dot(&numeric, &numeric).sqrt(), dot(&found, &found).sqrt());
    let what = format!("{what}: {numeric:?} vs {found:?}");
    assert!(nn > 1e-4, "a flat loss tests nothing: {what}");
    let cosine = dot(&numeric, &found) / (nn * ff);
    assert!(cosine > 0.9995, "{cosine} {what}");
    // The loop scales cotangents by powers of two, which signs don't notice.
    let power = (ff / nn).log2();
    assert!((power - power.round()).abs() < 0.02, "{power} {what}");
}

/// The cotangent that reaches the model against central differences of the loss, for every attack, metric and
/// form.
#[test]
fn gradients_agree_with_finite_differences() {
    let clean = images(200, 6, 0.2, 0.8);
    let other = images(1, 61, 0.2, 0.8).remove(0);
    for metric in Metric::ALL {
        for form in FORMS {
            let mut model = Linear::random(1);
            let context = context(&model, metric, &clean);
            for count in [1, 2] {
                // UAP has the loss of ES, and no trial on this query.
                let several = |a: &&Objective| count == 1 || a.several.is_some();
                for attack in OBJECTIVES.iter().filter(|a| a.shared.is_none()).filter(several) {
                    let mut trials = at_work(&context, attack, count, form, &[42]);
                    // The nearest 1 % are 2 items, too few to order 5 or more.
                    if attack.measure.orders && trials.is_empty() {
                        continue;
                    }
                    let what = format!("{attack:?} {metric} {form} x{count}");
                    // One of the two orders has a loss at this image.
                    let z = metric.into_space(model.raw(&other));
                    let far =
                        |t: usize| metric.distance(context.gallery.point(t), z.row(0).to_slice().unwrap());
                    if attack.measure.orders && far(trials[0].targets[1]) < far(trials[0].targets[0]) {
                        trials[0].targets.reverse();
                    }
                    agrees_with_differences(&mut model, &context, &trials, &other, form, &what);
                }
            }
        }
    }
}

/// R1 towards items of class 3 only, as in members of the strong search that aim at a class.
static AT_CLASS_3: Objective =
    Objective { loss: |context, form, trial| r1::margin(context, form, trial, Some(3)), ..r1::R1 };

/// The margin towards any other class is a loss of [`OBJECTIVES`] and tested with the others.
#[test]
fn the_margin_towards_a_class_agrees_with_finite_differences() {
    let clean = images(60, 6, 0.2, 0.8);
    let other = images(1, 61, 0.2, 0.8).remove(0);
    for metric in Metric::ALL {
        let mut model = Linear::random(1);
        let context = context(&model, metric, &clean);
        let trials = [Trial { objective: &AT_CLASS_3, query: 42, targets: vec![] }];
        let what = format!("{metric}");
        agrees_with_differences(&mut model, &context, &trials, &other, Form::Corrected, &what);
    }
}

/// By hand: items on a line at 0 and 1 (class 0), 3 and 7 (class 1), 12 (class 2). The query is item 0 and
/// leaves itself out.
#[test]
fn the_margin_is_that_of_the_nearest_items() {
    let context = crate::common::context(line([0.0, 1.0, 3.0, 7.0, 12.0], [0, 0, 1, 1, 2]));
    let [first, lone] = [0, 4].map(|query| trial("R1", query, &[]));
    // At 2.5: 1 is 1.5 away, 3 is 0.5, 12 is 9.5.
    let d = [2.5, 1.5, 0.5, 4.5, 9.5];
    for (class, other, margin) in [(None, 2, -1.0), (Some(1), 2, -1.0), (Some(2), 4, 8.0)] {
        let Loss::Gallery(of) = r1::margin(&context, Form::Corrected, &first, class) else { panic!() };
        let mut weights = [0.0; 5];
        // The rounding of the distance to the other class is added.
        assert!((of(&d, &mut weights) - margin).abs() < 1e-4);
        let mut expected = [0.0; 5];
        (expected[other], expected[1]) = (1.0, -1.0);
        assert_eq!(weights, expected, "{class:?}");
    }
    assert_eq!(r1::nearest_classes(&context.gallery, &first, 5), [1, 2]);
    // A class of one item besides the query's: no own item is near.
    assert_eq!(r1::nearest_classes(&context.gallery, &lone, 1), [1]);
    let Loss::Gallery(of) = r1::margin(&context, Form::Corrected, &lone, None) else { panic!() };
    assert_eq!(of(&d, &mut [0.0; 5]), 0.0);
}

#[test]
fn ltm_leaves_the_query_out_of_its_class_or_not() {
    let context = crate::common::context(line([0.0, 1.0, 3.0, 7.0, 12.0], [0, 0, 1, 1, 0]));
    let trial = trial("LTM", 0, &[]);
    // At 2: distances 2, 1, 1, 5, 10. Far: item 3. Near: item 1 in both forms; at -1 the query itself if it
    // counts.
    for (d, form, loss, near) in [
        ([2.0, 1.0, 1.0, 5.0, 10.0], Form::Published, 4.0, 1),
        ([2.0, 1.0, 1.0, 5.0, 10.0], Form::Corrected, 4.0, 1),
        ([1.0, 2.0, 4.0, 8.0, 13.0], Form::Published, 7.0, 0),
        ([1.0, 2.0, 4.0, 8.0, 13.0], Form::Corrected, 6.0, 1),
    ] {
        let Loss::Gallery(of) = (trial.objective.loss)(&context, form, &trial) else { panic!() };
        let mut weights = [0.0; 5];
        assert_eq!(of(&d, &mut weights), loss);
        let mut expected = [0.0; 5];
        (expected[3], expected[near]) = (1.0, -1.0);
        assert_eq!(weights, expected);
    }
}
