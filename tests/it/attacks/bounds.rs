//! Balls, masks, and the range of pixels.

use super::*;

/// Black and white images: the box ends at 0 and 1. Attacked images outside it would be refused.
#[test]
fn pixels_stay_in_range() {
    let mut images = images(20, 19, 0.0, 0.05);
    images.iter_mut().flatten().step_by(2).for_each(|v| *v = 1.0 - *v);
    for search in [&PGD, &APGD] {
        let mut model = Linear::random(3);
        let context = context(&model, N, &images);
        let trials = trials(&context, Form::Published, &[0, 9]);
        let plan = Plan { restarts: 1, search, ..plan(Form::Published) };
        let outcomes = go(&mut model, &context, &images, &trials, &plan);
        assert!(outcomes.iter().any(|o| o.linf > 0.09));
        assert!(model.seen.iter().all(|(x, _)| x.iter().all(|v| (0.0..=1.0).contains(v))));
    }
}

/// Which of the 12 pixels may change in the tests below.
fn open(pixel: usize) -> bool {
    (3..8).contains(&pixel)
}

/// A mask whose free pixels are those of [`open`], read from a file as a user's would be.
fn mask() -> Mask {
    let folder = Temp::new();
    let white: Vec<u8> = (0..PIXELS).map(|i| if open(i) { 255 } else { 0 }).collect();
    let path = folder.join("mask.png");
    image::GrayImage::from_raw(PIXELS as u32, 1, white).unwrap().save(&path).unwrap();
    Mask::read(&path).unwrap()
}

/// In one dimension an embedding w·x moves at most by ε times the dual norm of the weights of the free
/// pixels: ‖w‖₁ for the largest change of a pixel, ‖w‖₂ for the length. Steps in the model and on the host
/// both reach it.
#[test]
fn the_worst_case_within_a_ball_and_a_mask_is_reached() {
    let w = random(1, 3);
    let images = images(40, 4, 0.4, 0.6);
    let all = 0..PIXELS;
    let masks = [(None, all.clone().collect::<Vec<_>>()), (Some(mask()), all.filter(|i| open(*i)).collect())];
    for (ball, (mask, open)) in BALLS[..2].iter().flat_map(|ball| masks.iter().map(move |m| (ball, m))) {
        let weights = || open.iter().map(|i| f64::from(w[[0, *i]]));
        let reach = match ball.is_box {
            true => 0.1 * weights().map(f64::abs).sum::<f64>(),
            false => 0.1 * weights().map(|v| v * v).sum::<f64>().sqrt(),
        };
        for (search, in_place) in [(&PGD, false), (&PGD, true), (&APGD, false), (&COSINE, false)] {
            let mut model = Linear::new(w.clone(), 3);
            model.in_place = in_place.then(InPlace::default);
            let context = context(&model, Metric::Euclidean, &images);
            let plan = Plan { ball, search, mask: mask.clone(), ..plan(Form::Corrected) };
            let es = drawn(&context, "ES", Form::Corrected, &[0, 17, 39]);
            for o in go(&mut model, &context, &images, &es, &plan) {
                let what = format!("{ball:?} {mask:?} {search:?} {in_place}");
                assert!((o.shift - reach).abs() < 1e-4 * reach, "{what}: {} of {reach}", o.shift);
                let largest = if ball.is_box { (o.linf - 0.1).abs() < 1e-6 } else { o.linf < 0.1 };
                assert!(largest && o.size.is_none_or(|size| (size - 0.1).abs() < 1e-4), "{what}: {o:?}");
            }
        }
    }
}

/// Every search of every objective, along gradients and without, lowers the loss within every ball, and
/// leaves pixels outside a mask or a patch unchanged. The random search never asks for a gradient.
#[test]
fn every_search_lowers_the_loss_within_its_bounds() {
    let images = images(60, 11, 0.2, 0.8);
    let bounds = BALLS.iter().flat_map(|ball| [(ball, None), (ball, Some(mask()))]);
    for (ball, mask) in bounds.chain([(&BALLS[0], Some(Mask::Patch { share: 0.3 }))]) {
        for search in SEARCHES {
            let mut model = Linear::random(4);
            let context = context(&model, N, &images);
            let mut trials = trials(&context, Form::Corrected, &[0, 21, 42]);
            // A smallest perturbation is the result even if a larger one has a lower loss.
            trials.retain(|t| search.smallest == t.objective.smallest.is_some());
            let restarts = usize::from(mask.is_some());
            let plan =
                Plan { ball, search, steps: 128, mask: mask.clone(), restarts, ..plan(Form::Corrected) };
            let what = format!("{ball:?} {search:?} {mask:?}");
            let mut moved = 0;
            let mut see = |event: Event| {
                if let Event::Done(i, _, evidence) = event {
                    let query = trials[i].query;
                    let free =
                        plan.free([1, 1, PIXELS], trials[i].objective, &context.gallery.ids[query]).unwrap();
                    let changed = |p: usize| evidence.image[p].to_bits() != images[query][p].to_bits();
                    let open = |p: usize| free.as_ref().is_none_or(|free| free[p]);
                    assert!((0..PIXELS).all(|p| open(p) || !changed(p)), "{what}");
                    moved += usize::from((0..PIXELS).any(changed));
                }
                ControlFlow::Continue(())
            };
            let found = watched(&mut model, &context, &images, &trials, &plan, &mut see);
            let still = Plan { steps: 0, restarts: 0, search: &PGD, ..plan.clone() };
            let still = go(&mut Linear::random(4), &context, &images, &trials, &still);
            let sum = |all: &[Outcome]| all.iter().map(|o| o.loss_last).sum::<f64>();
            assert!(moved > 0 && sum(&found) < sum(&still), "{what}");
            assert!(found.iter().all(|o| o.size.unwrap_or(o.linf) <= 0.1 + 1e-5), "{what}");
            assert!(search != &RANDOM || model.seen.is_empty());
            if mask.is_none() {
                // Again, in other batches.
                let again = go(&mut Linear::random(7), &context, &images, &trials, &plan);
                assert!(found.iter().zip(&again).all(|(a, b)| a.loss_last == b.loss_last), "{what}");
            }
        }
    }
}

/// A model that moves a pixel outside the mask is detected.
#[test]
fn a_step_outside_of_the_mask_is_a_fault() {
    let (images, context, _) = stage();
    let trials = drawn(&context, "ES", Form::Corrected, &[0]);
    let mut model = Linear::random(1);
    model.in_place = Some(InPlace { fault: Some(1e-4), ..InPlace::default() });
    let plan = Plan { mask: Some(mask()), ..plan(Form::Corrected) };
    let e = run(vec![&mut model], &context, &source(&images), &trials, &plan, &mut quiet).unwrap_err();
    says(&e.message, &["ES on query `item0`", "value 0", "outside of the mask"]);
    let plan = Plan { mask: Some(Mask::Patch { share: 0.3 }), ..plan };
    assert!(plan.free([1, 2, PIXELS], find("ES"), "item0").unwrap().unwrap().contains(&true));
    let plan = Plan { mask: Some(mask()), ..plan };
    says(&plan.free([1, 2, PIXELS], find("ES"), "item0").unwrap_err().message, &["12 × 1 pixels", "12 × 2"]);
}
