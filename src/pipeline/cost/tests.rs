use super::*;
use crate::threat::{Forecast, Further, Room};
use serde_json::json;

/// Every image is a query.
fn amount(images: usize) -> Amount {
    Amount {
        images,
        queries: images,
        parts: 1,
        may_shorten: true,
        checked: false,
        first: 8,
        tried: 0,
        ranking: 0.0,
    }
}

/// A suite of `ars` attacks each query 8 × 32 steps, and the strong search takes as long again: 512
/// steps. At 0.01 s a step a query takes 5.12 s, 100 queries 512 s.
#[test]
fn the_plan_adds_up() {
    let suite = Suite::load("ars").unwrap();
    let (_, plan) = suite.plan(28, 0).unwrap();
    let speed =
        Speed { room: Room { workers: 1, batch: 1 }, embed_s: 0.001, step_s: 0.01, photograph_s: 0.0 };
    let amount = amount(1000);
    let outlook = |max_queries| {
        let suite = Suite { max_queries, ..suite.clone() };
        Outlook::of(speed, amount, false, &suite, &plan, Some(StrongSample::Off))
    };
    let few = outlook(Some(100));
    assert!((few.query_s - 8.0 * 32.0 * 0.01).abs() < 1e-9, "{few:?}");
    assert!((few.phases.last().unwrap().seconds - 256.0).abs() < 1e-6);
    assert!((few.phases[1].seconds - 1.0).abs() < 1e-9);
    assert_eq!(few.phases.last().unwrap().shorter, "");
    // 1000 queries take 43 minutes; 350 of them 15.
    let many = outlook(None);
    assert_eq!(many.phases.last().unwrap().shorter, "--max-queries 350: 15 min");
    // A quarter of them takes a quarter of that, and fewer queries would be another run.
    let quarter = Outlook::of(
        speed,
        Amount { parts: 4, may_shorten: false, ..amount },
        false,
        &suite,
        &plan,
        Some(StrongSample::Off),
    );
    assert_eq!((quarter.queries, quarter.phases.last().unwrap().shorter.as_str()), (250, ""));
    assert_eq!(quarter.phases[1], many.phases[1], "every part embeds the gallery");
    // So does a quarter with the strong search beside it, whose sample is of the whole run.
    let whole = Outlook::of(speed, amount, false, &suite, &plan, Some(StrongSample::Most(100)));
    let part = Amount { parts: 4, may_shorten: false, ..amount };
    let part = Outlook::of(speed, part, false, &suite, &plan, Some(StrongSample::Most(100)));
    let attacks = |of: &Outlook| of.phases.last().unwrap().seconds;
    assert!((attacks(&part) - attacks(&whole) / 4.0).abs() < 1e-6 * attacks(&whole));
    let text = many.text().unwrap();
    assert!(text.contains("attacks on 1000 queries 43 min, 2.6 s a query"), "{text}");
    // Without the strong search every trial takes all its steps.
    assert!((many.most_s - 1000.0 * many.query_s).abs() < 1e-6);
    // The strong search takes as long as the suite, or 32 queries of it.
    let all = Outlook::of(speed, amount, false, &suite, &plan, None);
    let ratio = all.query_s / many.query_s;
    assert!((1.8..=2.01).contains(&ratio), "{ratio}");
    // Where it succeeds at once, an audit takes as long as without it.
    assert_eq!(all.least_s, many.query_s);
    // Where it breaks no query before its last step, it takes much longer than usual, and this is told.
    let usual = 1000.0 * all.query_s;
    assert!(all.most_s > 2.0 * usual, "{} against {usual}", all.most_s);
    assert_eq!(all.announcement().event["seconds_at_most"], (all.total() - usual + all.most_s).round());
    assert!(all.text().unwrap().contains(", at most "), "{:?}", all.text());
    // Photographs whose resize takes as long as the model's step: everything takes twice as long.
    let photographs = Speed { photograph_s: 0.01, ..speed };
    let in_files = Plan { space: Space::File, ..plan.clone() };
    let large = Outlook::of(photographs, amount, false, &suite, &in_files, None);
    assert!(
        (large.query_s - 2.0 * all.query_s).abs() < 1e-9 && (large.least_s - 2.0 * all.least_s).abs() < 1e-9
    );
    assert!((large.most_s - 2.0 * all.most_s).abs() < 1e-6 * all.most_s, "{} {}", large.most_s, all.most_s);
    let text = all.text().unwrap();
    let words = [
        "in all",
        "attacks on 1000 queries 43 min to 8",
        "2.6 s to 5",
        "less if the strong search succeeds early",
    ];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn a_second_plan_names_the_queries_that_need_more() {
    let further = Further { eps: 1.0 / 255.0, trials: 8, of: 15, usual: 1000, most: 3000 };
    let announced = revised(&further, 0.1, "linf");
    let text = "plan: 8 of 15 attacked queries withstand 1/255 so far; more attacks on them take about 2 min to 5 min";
    assert_eq!(announced.text.as_deref(), Some(text));
    let event = announced.event;
    assert_eq!(
        [&event["queries"], &event["seconds"], &event["seconds_at_most"]],
        [&json!(8), &json!(100.0), &json!(300.0)]
    );
    assert_eq!(revised(&further, 0.001, "linf").text, None);
}

#[test]
fn the_plan_is_made_again_from_embeddings_and_gradients() {
    let suite = Suite::load("robust").unwrap();
    let (_, plan) = suite.plan(224, 0).unwrap();
    let room = Room { workers: 1, batch: 8 };
    let speed = Speed { room, embed_s: 0.01, step_s: 0.03, photograph_s: 0.0 };
    // 34 steps of 0.03 s for each of 40 queries: 41 s. A forward pass of 8 images takes 0.08 s.
    let forecast = |correct: usize, withstand, usual| Forecast {
        queries: 40,
        correct,
        sample: correct.min(16),
        eps: 1.0 / 255.0,
        withstand,
        usual: [usual; 2],
        most: [10_000; 2],
    };
    let of = |correct, withstand, usual| foreseen(&forecast(correct, withstand, usual), speed, &plan);
    assert_eq!(of(38, 0, 500).text, None, "the first plan holds");
    let text = "plan: 11 of 40 queries are correct without an attack. By gradients at these, a change of 1/255 is enough for all of them: \
                the attacks take about 16 s, at most 14 min";
    assert_eq!(of(11, 0, 200).text.as_deref(), Some(text));
    let hard = of(40, 31, 5000);
    let text = hard.text.unwrap();
    assert!(text.contains("By gradients at 16 of these, a change of 1/255 is enough for about 9 of them: the attacks take about 7 min, at most 14 min"), "{text}");
    assert!(of(40, 40, 5000).text.unwrap().contains("enough for none of them"));
    assert!(of(0, 0, 0).text.unwrap().contains("nothing to attack"));
    let event = hard.event;
    assert_eq!(
        ["queries", "correct", "withstand", "seconds", "seconds_at_most"]
            .map(|key| event[key].as_f64().unwrap()),
        [40.0, 40.0, 31.0, 400.0, 800.0]
    );
    // Photographs whose resize takes as long as the model's step.
    let photographs = Speed { photograph_s: 0.03, ..speed };
    let forecast = Forecast { usual: [100, 600], most: [100, 600], ..forecast(40, 0, 0) };
    let seconds = foreseen(&forecast, photographs, &plan).event["seconds"].as_f64().unwrap();
    assert_eq!(seconds, 8.0 + 6.0);
}

#[test]
fn nobody_is_told_of_a_short_wait() {
    let suite = Suite { max_queries: Some(5), ..Suite::load("smoke").unwrap() };
    let (_, plan) = suite.plan(28, 0).unwrap();
    let speed = Speed { room: Room { workers: 1, batch: 1 }, embed_s: 1e-5, step_s: 3e-5, photograph_s: 0.0 };
    let amount = Amount { checked: true, ..amount(100) };
    let outlook = Outlook::of(speed, amount, false, &suite, &plan, None);
    assert_eq!(outlook.text(), None);
    assert_eq!(outlook.announcement().event["event"], "plan");
    assert_eq!(outlook.phases[0].seconds, 0.0);
}
