//! The runner: batches, threads, restarts, steps in place, shared perturbations, faults.

use super::*;

#[test]
fn outcomes_do_not_depend_on_the_batch() {
    let (images, context, trials) = stage();
    let plan = Plan { restarts: 1, ..plan(Form::Published) };
    let run = |batch| go(&mut Linear::random(batch), &context, &images, &trials, &plan);
    let one = run(1);
    for (o, t) in one.iter().zip(&trials) {
        let expected = (t.objective.code, &context.gallery.ids[t.query]);
        assert_eq!((o.attack.as_str(), &o.query), expected, "in the order of the trials");
    }
    for batch in [3, 64] {
        for (a, b) in one.iter().zip(run(batch)) {
            assert_eq!((&a.query, &a.targets, &a.before), (&b.query, &b.targets, &b.before));
            let (loss, shift) = (a.loss_last - b.loss_last, a.shift - b.shift);
            assert!(loss.abs() < 1e-4 && shift.abs() < 1e-3, "{a:?} {b:?}");
        }
    }
}

/// If a model is the only worker, the other threads decode images of later trials while it computes.
#[test]
fn images_are_decoded_during_steps() {
    let (images, context, mut trials) = stage();
    // A shared perturbation needs the images of its sample too.
    trials.retain(|t| t.objective.shared.is_none());
    let decoded = (Mutex::new(0), Condvar::new());
    let image = |i: usize| {
        *decoded.0.lock().unwrap() += 1;
        decoded.1.notify_all();
        Ok(images[i].clone().into())
    };
    let mut model = Linear::random(3);
    // Three images are decoded when the first step begins.
    model.wait = Some(Wait { others: &decoded, wanted: 4, counted: false, met: false });
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let plan = plan(Form::Published);
    let one: Vec<&mut dyn Differentiable> = vec![&mut model];
    let outcomes = pool.install(|| run(one, &context, &image, &trials, &plan, &mut quiet)).unwrap();
    assert!(model.wait.unwrap().met);
    assert_eq!(outcomes.len(), trials.len());
    assert_eq!(*decoded.0.lock().unwrap(), trials.len(), "one image for each trial");
}

/// Trials are taken from one list by whichever worker is free, with restarts of a trial in different workers.
#[test]
fn outcomes_do_not_depend_on_how_many_models_share_the_work() {
    let (images, context, trials) = stage();
    let plan = Plan { restarts: 2, ..plan(Form::Published) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let image = source(&images);
    let by = |count: usize, watch: &mut Watch| {
        let others = (Mutex::new(0), Condvar::new());
        let mut models: Vec<Linear> = (0..count).map(|_| Linear::random(3)).collect();
        for model in &mut models {
            model.wait = Some(Wait { others: &others, wanted: count.min(2), counted: true, met: false });
        }
        let each = models.iter_mut().map(|m| m as &mut dyn Differentiable).collect();
        let outcomes = pool.install(|| run(each, &context, &image, &trials, &plan, watch));
        (outcomes, models.iter().filter(|m| m.embeds > 0).count())
    };
    let one = by(1, &mut quiet).0.unwrap();
    assert_eq!(one.len(), trials.len());
    for count in [2, 3] {
        let (others, worked) = by(count, &mut quiet);
        assert!(worked >= 2);
        for (a, b) in one.iter().zip(others.unwrap()) {
            let same = |o: &Outcome| (o.attack.clone(), o.query.clone(), o.start, o.loss_last, o.shift);
            assert_eq!(same(a), same(&b));
        }
    }
    // A stop ends all workers, except for runs that are being measured, and what is finished is returned.
    for count in [1, 2] {
        let mut done = 0;
        let (some, _) = by(count, &mut |event| {
            done += usize::from(matches!(event, Event::Done(..)));
            if done >= 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let some = some.unwrap();
        assert!((3..trials.len() / 2).contains(&some.len()), "{} of {}", some.len(), trials.len());
        assert!(some.iter().all(|o| one.iter().any(|w| (&w.attack, &w.query) == (&o.attack, &o.query))));
    }
}

#[test]
fn batches_stay_full_and_closed_trials_leave() {
    let (images, mut model, context) = world(100, 11, 4);
    // Every second trial already has its goal: an item closer to itself than everything else. Its hinge is
    // closed.
    let target = |q: usize| if q.is_multiple_of(2) { q } else { 99 - q };
    let trial = |query| trial("QA+", query, &[target(query)]);
    let trials: Vec<Trial> = (0..20).map(trial).collect();
    let (mut last, mut finished) = (0, 0);
    let mut ahead = Ahead::default();
    let mut watch = |event: Event| {
        match event {
            Event::Step { done, passes, at } => {
                ahead.see(passes);
                assert!(done >= last && at.is_none_or(|(_, step)| step < 16));
                last = done;
            }
            Event::Further(_) | Event::Broken(_) => (),
            Event::Done(..) => finished += 1,
        }
        ControlFlow::Continue(())
    };
    let outcomes = watched(&mut model, &context, &images, &trials, &plan(Form::Published), &mut watch);
    assert_eq!(last, 20 * 16);
    assert_eq!(finished, 20);
    assert_eq!(ahead.last.unwrap().left, 0);
    for (q, o) in outcomes.iter().enumerate() {
        if q % 2 == 0 {
            assert_eq!((o.steps, o.linf, o.loss_last), (0, 0.0, 0.0), "{o:?}");
        } else {
            assert!(o.steps > 0);
        }
    }
    let made: usize = outcomes.iter().map(|o| o.steps).sum();
    assert!(model.steps * 4 < made + 20 + 4 * 16, "{} batches for {made} steps", model.steps);
}

#[test]
fn restarts_keep_the_run_with_the_most_success() {
    let (images, mut model, context) = world(100, 12, 8);
    let trials = trials(&context, Form::Corrected, &(0..100).step_by(7).collect::<Vec<_>>());
    let few = Plan { steps: 3, ..plan(Form::Corrected) };
    let clean = go(&mut model, &context, &images, &trials, &few);
    let more = go(&mut model, &context, &images, &trials, &Plan { restarts: 4, ..few.clone() });
    assert!(clean.iter().all(|o| o.start == 0));
    let success = |(trial, outcome): (&Trial, &Outcome)| {
        trial.objective.success(outcome, Form::Corrected, 99.0).expect("measured").1
    };
    let successes = |outcomes: &[Outcome]| Vec::from_iter(trials.iter().zip(outcomes).map(success));
    let gained = Vec::from_iter(successes(&clean).into_iter().zip(successes(&more)));
    assert!(gained.iter().all(|(few, more)| more >= few), "{gained:?}");
    let equal = clean.iter().zip(&more).zip(gained).filter(|(_, (few, more))| few == more);
    assert!(equal.map(|(outcomes, _)| outcomes).all(|(a, b)| b.loss_last <= a.loss_last));
    assert!(more.iter().any(|o| o.start > 0), "with 3 steps a random start must win now and then");
    let other = go(&mut model, &context, &images, &trials, &Plan { restarts: 4, seed: 8, ..few });
    assert!(more.iter().zip(&other).any(|(a, b)| a.loss_last != b.loss_last), "the seed draws the starts");
}

#[test]
fn nothing_to_do_is_no_crash() {
    let (images, mut model, context) = world(20, 13, 4);
    let trials = trials(&context, Form::Published, &[0, 1, 2]);
    for plan in [
        Plan { steps: 0, ..plan(Form::Published) },
        Plan { eps: 0.0, ..plan(Form::Published) },
        Plan { eps: 0.0, restarts: 2, steps: 1, ..plan(Form::Published) },
        Plan { eps: 0.0, search: &APGD, ..plan(Form::Published) },
        Plan { steps: 0, search: &APGD, ..plan(Form::Corrected) },
    ] {
        for o in go(&mut model, &context, &images, &trials, &plan) {
            assert_eq!((o.linf, &o.after), (0.0, &o.before), "{o:?}");
            assert!(o.shift < 1e-6);
        }
    }
    assert!(go(&mut model, &context, &images, &[], &plan(Form::Published)).is_empty());
}

/// Steps that the model makes in place equal steps on the host.
#[test]
fn steps_in_place_and_on_the_host_are_the_same() {
    let (images, context, trials) = stage();
    let plan = Plan { restarts: 1, ..plan(Form::Published) };
    let (mut on_host, mut in_place) = (Linear::random(3), Linear::random(3));
    in_place.in_place = Some(InPlace::default());
    let a = go(&mut on_host, &context, &images, &trials, &plan);
    let b = go(&mut in_place, &context, &images, &trials, &plan);
    assert!(a == b && !in_place.in_place.unwrap().slots.is_empty());
}

/// One perturbation for several queries. In one dimension, with one target far below all of them: δ =
/// −ε·sign(w) for each, and so for all together. If queries are drawn in two directions, the majority wins.
#[test]
fn queries_may_share_one_perturbation() {
    let w = random(1, 5);
    let reach = reach(&w);
    let mut images = images(10, 6, 0.4, 0.6);
    let sign: Vec<f32> = w.iter().map(|v| v.signum()).collect();
    // The images of the lowest and of the highest embedding.
    images[8] = sign.iter().map(|s| 0.5 - 0.5 * s).collect();
    images[9] = sign.iter().map(|s| 0.5 + 0.5 * s).collect();
    let mut model = Linear::new(w.clone(), 2);
    let context = context(&model, Metric::Euclidean, &images);
    let trial = |query, target| trial("GTM", query, &[target]);
    let trials = [trial(0, 8), trial(1, 8), trial(2, 8), trial(3, 9), trial(4, 8)];
    let image = source(&images);
    let at = |item| coordinate(&context, item);
    for search in SEARCHES {
        let plan = Plan { search, steps: 200, alpha: 0.01, ..plan(Form::Corrected) };
        let jobs = [vec![0, 1, 2, 3], vec![4]];
        let found = run_jobs(vec![&mut model], &context, &image, &trials, &jobs, &plan, &mut quiet).unwrap();
        let alone = run(vec![&mut model], &context, &image, &trials[4..], &plan, &mut quiet).unwrap();
        assert_eq!(found[4], alone[0], "a job of one trial is that trial");
        if !search.needs_gradient {
            // The perturbation makes most of the majority's way. Other searches make two moves, or none
            // together.
            for o in found[..3].iter().filter(|_| search == &NES) {
                let moved = o.loss_first - o.loss_last;
                assert!(moved > 0.75 * reach && o.linf <= 0.1 + 1e-6, "{search:?} {o:?}");
            }
            continue;
        }
        for (trial, o) in trials[..4].iter().zip(&found) {
            let target = at(trial.targets[0]);
            let moved = (at(trial.query) - reach - target).abs();
            assert!((o.loss_last - moved).abs() < 0.01 * reach, "{search:?} {o:?}: expected {moved}");
            assert!((o.shift - reach).abs() < 0.01 * reach && o.linf <= 0.1 + 1e-6, "{search:?} {o:?}");
        }
    }
}

#[test]
fn faults_are_named() {
    let images = images(20, 15, 0.2, 0.8);
    let model = || Linear::random(2);
    let context = context(&model(), Metric::Euclidean, &images);
    let trials = drawn(&context, "TMA", Form::Published, &[4]);
    let faulty = |fault: Option<f32>, scale: f32| {
        let in_place = Some(InPlace { fault, slots: vec![] });
        Linear { scale, in_place, ..model() }
    };
    let attempt = |mut model: Linear, image: &ImageSource| -> Error {
        run(vec![&mut model], &context, image, &trials, &plan(Form::Published), &mut quiet).unwrap_err()
    };
    let image = source(&images);
    let expect = |error: Error, exit, words: &str| {
        assert_eq!(error.exit, exit, "{error}");
        says(&error.message, &["item4", words]);
    };
    expect(attempt(faulty(None, f32::NAN), &image), Exit::Untrusted, "not finite");
    expect(attempt(faulty(Some(0.5), 1.0), &image), Exit::Internal, "left its bounds");
    expect(attempt(faulty(Some(f32::NAN), 1.0), &image), Exit::Untrusted, "not finite");
    expect(attempt(faulty(None, 1.0), &|_| Ok(vec![0.0; 5].into())), Exit::Internal, "5 values");
    expect(attempt(faulty(None, 1.0), &|_| Ok(vec![255.0; PIXELS].into())), Exit::Untrusted, "255");
    expect(attempt(faulty(None, 1.0), &|_| Err(Error::usage("gone"))), Exit::Usage, "gone");
    // Finite embeddings at infinite distances.
    let largest = context.gallery.point(4).iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let qa = drawn(&context, "QA+", Form::Published, &[4]);
    let mut huge = faulty(None, 3.3e38 / largest);
    let error = run(vec![&mut huge], &context, &image, &qa, &plan(Form::Published), &mut quiet).unwrap_err();
    expect(error, Exit::Untrusted, "the loss is");
}
