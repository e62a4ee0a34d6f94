//! Universal perturbations: crafted on a sample, measured on other queries.

use super::*;

/// In one dimension the mean shift of a sample is largest under ±ε·sign(w), which moves every query by
/// ε·‖w‖₁, also queries that it was not crafted on. Whether these are correct then follows from the numbers
/// on the line.
#[test]
fn a_universal_perturbation_moves_queries_that_it_was_not_crafted_on() {
    let w = random(1, 3);
    let reach = reach(&w);
    let images = images(80, 4, 0.4, 0.6);
    let context = context(&Linear::new(w.clone(), 1), Metric::Euclidean, &images);
    let all: Vec<usize> = (0..80).collect();
    let found = select(&context, find("UAP"), 1, Form::Corrected, 1, &all).unwrap();
    // Four samples, each an eighth of half the queries.
    assert_eq!((found.trials.len(), found.skipped.len()), (40, 40));
    for search in [&PGD, &APGD, &COSINE] {
        let plan = Plan { search, restarts: 1, ..plan(Form::Corrected) };
        let by = |batch: usize, trials: &[Trial]| {
            go(&mut Linear::new(w.clone(), batch), &context, &images, trials, &plan)
        };
        let outcomes = by(7, &found.trials);
        assert_eq!(outcomes.len(), 40);
        for (trial, o) in found.trials.iter().zip(&outcomes) {
            assert_eq!(o.query, context.gallery.ids[trial.query]);
            assert!((o.shift - reach).abs() < 1e-4 * reach && o.linf <= 0.1 + 1e-6, "{search:?} {o:?}");
            assert!((0..4).contains(&o.shared.unwrap()));
            let correct = |by: f64| stays_correct(&context, trial.query, by);
            let after = o.after.hit.unwrap();
            assert!(after == correct(reach) || after == correct(-reach), "{search:?} {o:?}");
            assert_eq!(o.before.hit, Some(correct(0.0)));
        }
        let groups: HashSet<usize> = outcomes.iter().filter_map(|o| o.shared).collect();
        assert_eq!(groups.len(), 4);
        // Neither the batch nor its other trials matter: a perturbation follows from its sample alone.
        assert_eq!(by(3, &found.trials), outcomes);
        assert_eq!(by(7, &found.trials[5..9]), outcomes[5..9]);
    }
    let (_, _, five) = world(5, 4, 1);
    let few = select(&five, find("UAP"), 1, Form::Corrected, 1, &[0]).unwrap();
    assert!(few.skipped[0].why.contains("too few queries"), "{:?}", few.skipped);
}

/// In one dimension every start ends at +ε·sign(w) or −ε·sign(w), with equal mean shifts: R@1 of the sample
/// decides where the loss can't. Which end wins follows from the numbers on the line.
#[test]
fn of_universal_perturbations_the_one_that_breaks_most_of_its_sample_counts() {
    let w = random(1, 3);
    let reach = reach(&w);
    // Dense enough that one end of the line hides other queries than the other end does.
    let images = images(160, 4, 0.3, 0.7);
    let context = context(&Linear::new(w.clone(), 1), Metric::Euclidean, &images);
    let all: Vec<usize> = (0..160).collect();
    let trials = drawn(&context, "UAP", Form::Corrected, &all);
    let left = |sample: &[usize], by: f64| {
        sample.iter().filter(|&&query| stays_correct(&context, query, by)).count()
    };
    let samples = context.samples(find("UAP"));
    let mut decided = 0;
    for seed in 0..4 {
        let plan = Plan { restarts: 9, seed, ..plan(Form::Corrected) };
        let mut see = |event: Event| {
            let Event::Done(i, outcome, evidence) = event else { return ControlFlow::Continue(()) };
            let sample = &samples[outcome.shared.unwrap()];
            let moved = f64::from(evidence.point[0]) - coordinate(&context, trials[i].query);
            assert!((moved.abs() - reach).abs() < 1e-4 * reach, "{outcome:?}");
            let (this, other) = (left(sample, moved), left(sample, -moved));
            decided += usize::from(this < other);
            assert!(this <= other, "it leaves {this} of the sample, and the other end {other}");
            ControlFlow::Continue(())
        };
        watched(&mut Linear::new(w.clone(), 7), &context, &images, &trials, &plan, &mut see);
    }
    assert!(decided > 0, "both ends leave as many everywhere");
}
