use super::*;
use crate::record::Measures;

const BASIS: Basis =
    Basis { ranked: 101, form: Form::Published, metric: Metric::NormalizedEuclidean, foreign: None };

fn score(outcomes: &[Outcome], skipped: &[Skipped], basis: &Basis, seed: u64) -> (Vec<Attack>, Scores) {
    super::score(outcomes, skipped, basis, &ScoreName::ALL, seed)
}

fn row<'a>(attacks: &'a [Attack], term: &str) -> &'a Attack {
    attacks.iter().find(|row| row.code == term).unwrap()
}

fn outcome(attack: &str, query: usize, before: Measures, after: Measures) -> Outcome {
    Outcome {
        attack: attack.into(),
        query: format!("q{query}"),
        targets: vec!["t".into()],
        shift: 0.8,
        shift_before_last: 0.6,
        before,
        after,
        ..Outcome::default()
    }
}

fn rank(r: f64) -> Measures {
    Measures { rank: Some(r), ..Measures::default() }
}

fn hit(h: bool) -> Measures {
    Measures { hit: Some(h), ..Measures::default() }
}

/// Every attack on two queries.
fn full() -> Vec<Outcome> {
    let cosine = |c| Measures { cosine: Some(c), ..Measures::default() };
    let retained = |r| Measures { retained: Some(r), ..Measures::default() };
    let mut all = Vec::new();
    for q in 0..2 {
        let f = q as f64;
        all.push(outcome("CA+", q, rank(50.0), rank(20.0 + 10.0 * f)));
        all.push(outcome("CA-", q, rank(f * 100.0), rank(60.0))); // the second has nothing to lose
        all.push(outcome("QA+", q, rank(40.0), rank(60.0 * f))); // the second backfires
        all.push(outcome("QA-", q, rank(0.0), rank(25.0)));
        all.push(outcome("TMA", q, cosine(0.0), cosine(0.9)));
        for attack in ["ES", "LTM", "GTM"] {
            all.push(outcome(attack, q, hit(true), hit(q == 0)));
        }
        all.push(outcome("GTT", q, retained(true), retained(false)));
    }
    all
}

#[test]
fn terms_and_both_resistances_by_hand() {
    let (attacks, scores) = score(&full(), &[], &BASIS, 0);
    let row = |term: &str| row(&attacks, term);
    let near = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-9, "{a:?} vs {b}");
    assert_eq!(attacks.len(), 10);
    near(row("CA+").after, 2500.0 / 101.0);
    near(row("CA+").resistance.per_trial, 50.0);
    near(row("CA+").resistance.table, 50.0);
    near(row("QA+").resistance.per_trial, (0.0 + 100.0) / 2.0); // 150 % clamped
    near(row("QA+").resistance.table, 75.0);
    assert_eq!(row("CA-").skipped, 1);
    // One of two queries has nothing to lose to CA-; both were correct before GTM.
    assert_eq!([row("CA-").counted, row("GTM").counted, row("TMA").counted], [Some(1), Some(2), None]);
    near(row("CA-").resistance.per_trial, 40.0);
    near(row("CA-").resistance.table, 80.0);
    near(row("QA-").resistance.per_trial, 75.0);
    near(row("ES:D").after, 0.6); // published: before the last step
    near(row("ES:R").resistance.table, 50.0);
    near(row("GTT").resistance.per_trial, 0.0);
    let p = 100.0 / 101.0;
    let ers = (50.0 * p + 100.0 - 60.0 * p + 60.0 * p + 100.0 - 25.0 * p + 10.0 + 70.0 + 150.0 + 0.0) / 10.0;
    near(scores.ers.as_ref().map(|e| e.value), ers);
    near(scores.ars.as_ref().map(|e| e.value), (50.0 + 40.0 + 50.0 + 75.0 + 150.0 + 0.0) / 8.0);
    near(scores.ars.as_ref().and_then(|e| e.table), (50.0 + 80.0 + 75.0 + 75.0 + 150.0 + 0.0) / 8.0);
    // Without R1 only the strong score is missing.
    assert!(
        scores.notes.len() == 1 && scores.notes[0].starts_with("no \"ARS, strong\": "),
        "{:?}",
        scores.notes
    );
    let (corrected, _) = score(&full(), &[], &Basis { ranked: 100, form: Form::Corrected, ..BASIS }, 0);
    near(super::tests::row(&corrected, "ES:D").after, 0.8);
}

/// R1 replaces ES:R, LTM and GTM: CA+, CA−, QA+, QA− and GTT have the resistances of the test above, and
/// of three queries that were correct without an attack one is left, a third.
#[test]
fn the_strong_score_counts_r1_three_times() {
    let mut outcomes = full();
    for (query, before, after) in [(0, true, true), (1, true, false), (2, true, false), (3, false, false)] {
        outcomes.push(outcome("R1", query, hit(before), hit(after)));
    }
    let of = |outcomes: &[Outcome]| score(outcomes, &[], &BASIS, 0).1.ars_strong.map(|e| e.value);
    let expected = (50.0 + 40.0 + 50.0 + 75.0 + 0.0 + 3.0 * 100.0 / 3.0) / 8.0;
    assert!((of(&outcomes).unwrap() - expected).abs() < 1e-9, "{:?}", of(&outcomes));
    // The three have no part in it, and R1 has none in the published score.
    let published = |outcomes: &[Outcome]| score(outcomes, &[], &BASIS, 0).1.ars.map(|e| e.value);
    assert_eq!(published(&outcomes), published(&full()));
    outcomes.retain(|o| !["TMA", "ES", "LTM", "GTM"].contains(&o.attack.as_str()));
    assert!((of(&outcomes).unwrap() - expected).abs() < 1e-9);
    outcomes.retain(|o| o.attack != "R1");
    assert_eq!(of(&outcomes), None);
}

#[test]
fn no_partial_scores() {
    let mut outcomes = full();
    outcomes.retain(|o| o.attack != "TMA");
    let (_, scores) = score(&outcomes, &[], &BASIS, 0);
    assert!(scores.ers.is_none() && scores.ars.is_some());
    assert!(scores.notes.iter().any(|n| n.contains("without a result: TMA")), "{:?}", scores.notes);
    outcomes.retain(|o| o.attack != "GTT");
    assert!(score(&outcomes, &[], &BASIS, 0).1.ars.is_none());

    let mut wide = full();
    wide.iter_mut().find(|o| o.attack == "CA+").unwrap().targets.push("u".into());
    let (_, scores) = score(&wide, &[], &BASIS, 0);
    assert!(scores.ers.is_none() && scores.ars.is_none() && scores.notes[0].contains("w = m = 1"));

    let (_, euclidean) = score(&full(), &[], &Basis { metric: Metric::Euclidean, ..BASIS }, 0);
    assert!(
        euclidean.ers.is_none() && euclidean.ars.is_some() && euclidean.notes[0].contains("no fixed scale")
    );
}

#[test]
fn undefined_is_not_zero() {
    let mut outcomes = full();
    outcomes.iter_mut().filter(|o| o.attack == "LTM").for_each(|o| o.before = hit(false));
    let (attacks, scores) = score(&outcomes, &[], &BASIS, 0);
    let ltm = &row(&attacks, "LTM").resistance;
    assert!(ltm.per_trial.is_none() && ltm.table.is_none() && scores.ars.is_none());
    assert!(scores.notes[0].contains("LTM is undefined"), "{:?}", scores.notes);
    assert!(scores.ers.is_some(), "ERS uses the values after the attack only");

    // A query alone in its class has no R@1. It is left out and counted.
    let mut outcomes = full();
    outcomes.iter_mut().filter(|o| o.attack == "ES" && o.query == "q1").for_each(|o| {
        o.before = Measures::default();
        o.after = Measures::default();
    });
    let skipped = Skipped { attack: "LTM".into(), query: "q7".into(), why: "alone".into() };
    let (attacks, _) = score(&outcomes, &[skipped], &BASIS, 0);
    let row = |term: &str| row(&attacks, term);
    assert_eq!((row("ES:R").queries, row("ES:R").skipped), (1, 1));
    assert_eq!((row("ES:D").queries, row("ES:D").skipped), (2, 0));
    assert_eq!((row("LTM").queries, row("LTM").skipped), (2, 1));
}

/// Under one of two perturbations every query is correct, under the other none: the mean of two draws of
/// them is 0, 50 or 100.
#[test]
fn intervals_resample_perturbations_that_queries_share() {
    let all = |shared: &dyn Fn(usize) -> Option<usize>| {
        let one = |q: usize| Outcome {
            shared: shared(q),
            ..outcome("UAP", q, hit(true), hit(q.is_multiple_of(2)))
        };
        let outcomes: Vec<Outcome> = (0..400).map(one).collect();
        row(&score(&outcomes, &[], &BASIS, 1).0, "UAP:R").clone()
    };
    let alone = all(&|_| None);
    let (low, high) = alone.after_interval.unwrap();
    assert!(alone.after == Some(50.0) && low > 44.0 && high < 56.0, "{low} {high}");
    assert_eq!(all(&|q| Some(q % 2)).after_interval, Some((0.0, 100.0)));
    // If all queries are wrong, Wilson's upper end is Z² / (400 + Z²).
    let one = |q: usize| Outcome { shared: Some(q % 2), ..outcome("UAP", q, hit(true), hit(false)) };
    let outcomes: Vec<Outcome> = (0..400).map(one).collect();
    let (low, high) = row(&score(&outcomes, &[], &BASIS, 1).0, "UAP:R").after_interval.unwrap();
    assert!(low == 0.0 && (high - 0.951229).abs() < 1e-5, "{low} {high}");
}

/// One image that captures 40 of 200 held-out queries: its share is binomial, with a standard error of
/// √(0.2·0.8/200). With two images of 10 % and 30 % the mean varies with the images too: by ±10 % / √2 on
/// average over resamples.
#[test]
fn intervals_of_hubs_resample_images_and_held_out_queries() {
    use crate::record::Captured;
    let of = |count: usize| Measures {
        captured: Some(Captured {
            sample: [0.0; 2],
            queries: 210,
            left_out: (200..210).collect(),
            first: (0..count).map(|place| (place, place % 2)).collect(),
        }),
        ..Measures::default()
    };
    let hub = |outcomes: &[Outcome]| {
        let (attacks, _) = score(outcomes, &[], &BASIS, 5);
        let row = row(&attacks, "HUB:10");
        let (low, high) = row.after_interval.unwrap();
        (row.before.unwrap(), row.after.unwrap(), (high - low) / 2.0 / 1.96)
    };
    let (before, after, error) = hub(&[outcome("HUB", 0, of(2), of(40))]);
    assert_eq!((before, after), (1.0, 20.0));
    let expected = 100.0 * (0.2f64 * 0.8 / 200.0).sqrt();
    assert!((error / expected - 1.0).abs() < 0.12, "{error}, expected {expected}");
    let (_, after, wider) = hub(&[outcome("HUB", 0, of(0), of(20)), outcome("HUB", 1, of(0), of(60))]);
    assert!((after - 20.0).abs() < 1e-9 && wider > 5.0, "{after} {wider}");
    // Two images that capture nothing: Wilson's upper end is Z² / (210 + Z²).
    let none = [outcome("HUB", 0, of(0), of(0)), outcome("HUB", 1, of(0), of(0))];
    let (low, high) = row(&score(&none, &[], &BASIS, 5).0, "HUB:10").after_interval.unwrap();
    assert!(low == 0.0 && (high - 1.796405).abs() < 1e-5, "{low} {high}");
    // At k = 1 only every other captured query counts.
    let (attacks, _) = score(&[outcome("HUB", 0, of(0), of(40))], &[], &BASIS, 5);
    assert_eq!(row(&attacks, "HUB:1").after, Some(10.0));
}

#[test]
fn intervals_cover_the_known_spread_and_ignore_order() {
    // 400 trials have ranks 0..=100 after the attack, in a fixed shuffle, so the mean's standard error is
    // known.
    let outcomes: Vec<Outcome> =
        (0..400).map(|q| outcome("CA+", q, rank(50.0), rank(f64::from((q as u32 * 37) % 101)))).collect();
    let first = |outcomes: &[Outcome], seed| score(outcomes, &[], &BASIS, seed).0.swap_remove(0);
    let found = first(&outcomes, 3);
    let (low, high) = found.after_interval.unwrap();
    let values: Vec<f64> = outcomes.iter().map(|o| o.after.rank.unwrap() * 100.0 / 101.0).collect();
    let mean = values.iter().sum::<f64>() / 400.0;
    let error = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 400.0 / 400.0).sqrt();
    assert!(((high - low) / (2.0 * 1.96 * error) - 1.0).abs() < 0.15, "{low}..{high}, error {error}");
    assert!(low < found.after.unwrap() && found.after.unwrap() < high);
    let mut reversed = outcomes.clone();
    reversed.reverse();
    let again = first(&reversed, 3).after_interval.unwrap();
    assert!((again.0 - low).abs() < 1e-9 && (again.1 - high).abs() < 1e-9);
    let other = first(&outcomes, 4).after_interval.unwrap();
    assert_ne!(other, (low, high), "another seed, other resamples");
}

#[test]
fn resamples_are_shared_by_attacks() {
    // Two attacks with the same values are perfectly correlated over resamples.
    let mut outcomes = Vec::new();
    for q in 0..30 {
        outcomes.push(outcome("CA+", q, rank(50.0), rank(q as f64)));
        outcomes.push(outcome("QA+", q, rank(50.0), rank(q as f64)));
    }
    let replicates = replicates(&outcomes, &BASIS, 20, 1);
    assert!(replicates.iter().all(|r| r.means[0] == r.means[1] && r.means[0].is_some()));
    assert!(replicates.windows(2).any(|w| w[0] != w[1]));
}

#[test]
fn nothing_gives_nothing() {
    let (attacks, scores) = score(&[], &[], &BASIS, 0);
    assert!(attacks.is_empty() && scores.ers.is_none() && scores.ars.is_none());
}
