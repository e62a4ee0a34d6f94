//! The smallest sufficient change, on whole audits: the ladder of ε and ε50.

use crate::common::{Temp, audit, bundled, lasting, rendered, request, says, words};
use audit::feature::merge;
use audit::judge::quantity::{EPS50, Quantity, ROBUST};
use audit::pipeline::Embedded;
use audit::record::{Outcome, Report};
use audit::report::terminal::{Paint, brief_with};
use audit::threat::objective::r1::R1;
use audit::threat::{Event, Further, Others, Passes, Strong, Trial};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

/// The strong search at ε alone.
const AT_EPS: &str = "form: corrected\nattacks: [R1]\n";

fn hardened(flags: &str) -> Report {
    audit(&words(&format!("{:?} --max-queries 30 {flags}", bundled("hardened.onnx")))).unwrap()
}

/// An audit with all defaults, which several tests look at.
static WHOLE: LazyLock<Report> = LazyLock::new(|| hardened(""));

/// Each query, and whether it is correct under attack.
fn left(report: &Report) -> BTreeMap<&str, Option<bool>> {
    report.outcomes.iter().map(|o| (o.query.as_str(), o.after.hit)).collect()
}

fn rungs(report: &Report) -> Vec<(f64, f64)> {
    let ladder = report.scores.robust_r1.as_ref().unwrap().ladder.as_ref().unwrap();
    ladder.rungs.iter().map(|rung| (f64::from(rung.eps), rung.r1)).collect()
}

/// The search for smaller changes doesn't change the search at ε, and its numbers follow from its results.
#[test]
#[ignore = "slow"]
fn the_ladder_begins_with_robust_r1_and_falls_as_outcomes_say() {
    let temp = Temp::new();
    let suite = temp.file("at_eps.yaml", AT_EPS);
    let found = &*WHOLE;
    let at_eps = hardened(&format!("--suite {suite:?}"));
    assert_eq!(left(found), left(&at_eps));
    assert_eq!(ROBUST.value(found), ROBUST.value(&at_eps));
    assert!(EPS50.value(&at_eps).is_none() && EPS50.value(found).is_some());

    let rungs = rungs(found);
    assert_eq!(rungs.len(), 6);
    assert_eq!(Some(rungs[0].1), ROBUST.value(found));
    assert!(
        rungs.is_sorted_by(|(more, fewer_left), (less, more_left)| more > less && fewer_left <= more_left)
    );
    let size = |o: &Outcome| o.enough.unwrap().size.map_or(f64::INFINITY, f64::from);
    for (eps, r1) in rungs {
        let withstand = found.outcomes.iter().filter(|o| size(o) > eps * (1.0 + 1e-5)).count();
        assert!((r1 - 100.0 * withstand as f64 / 30.0).abs() < 1e-9, "{eps}");
    }
    for o in &found.outcomes {
        let enough = o.enough.unwrap();
        // A query that was wrong needs no change, and one that withstood the search at ε is not made wrong
        // within it.
        assert_eq!(enough.size == Some(0.0), o.before.hit == Some(false), "{}", o.query);
        assert_eq!(enough.size.is_none(), o.after.hit == Some(true), "{}", o.query);
        if let Some((size, as_file)) = enough.size.zip(enough.as_file) {
            let larger = o.before.hit == Some(false) || as_file >= size * (1.0 - 1e-5);
            assert!(larger, "{}: {size} {as_file}", o.query);
        }
        let members: usize = o.members.iter().flatten().map(|m| m.steps).sum();
        assert_eq!(members + enough.steps, o.steps, "{}", o.query);
    }
    // Half of the correct queries have an ε* of at most ε50.
    let mut right: Vec<f64> =
        found.outcomes.iter().filter(|o| o.before.hit == Some(true)).map(|o| 255.0 * size(o)).collect();
    right.sort_by(f64::total_cmp);
    let half = right[right.len().div_ceil(2) - 1];
    assert!((EPS50.value(found).unwrap() - half).abs() < 1e-4, "{half}");
}

/// The whole search at a smaller ε leaves hardly fewer queries correct than the ladder does there.
#[test]
#[ignore = "slow"]
fn the_whole_search_at_a_rung_finds_hardly_more() {
    let temp = Temp::new();
    let suite = temp.file("at_eps.yaml", AT_EPS);
    let found = &*WHOLE;
    for (eps, r1) in &rungs(found)[1..3] {
        let whole = hardened(&format!("--suite {suite:?} --eps {eps}"));
        let other = ROBUST.value(&whole).unwrap();
        assert!((r1 - other).abs() < 3.4, "{eps}: {r1} on the ladder, {other} by the whole search");
        // The number can also be requested by its name.
        let named = Quantity::find(&format!("robust_r1@{}/255", 255.0 * eps)).unwrap();
        assert_eq!(named.value(found), Some(*r1));
    }
}

/// In the L2 ball too. There, steps from the clean image miss small changes of a net that was trained within
/// another ball. Before members of the strong search ran at the rungs, the ladder left two queries more than
/// the whole search at 0.75.
#[test]
#[ignore = "slow"]
fn the_whole_search_at_a_rung_of_the_euclidean_ball_finds_hardly_more() {
    let temp = Temp::new();
    let suite = temp.file("at_eps.yaml", AT_EPS);
    let found = hardened("--norm l2 --eps 3");
    let (eps, r1) = rungs(&found)[2];
    assert_eq!(eps, 0.75);
    let whole = hardened(&format!("--suite {suite:?} --norm l2 --eps {eps}"));
    let other = ROBUST.value(&whole).unwrap();
    assert!((r1 - other).abs() < 3.4, "{r1} on the ladder, {other} by the whole search");
}

/// ε* depends only on the trial: not on the batch, on threads, or on merged parts.
#[test]
#[ignore = "slow"]
fn parts_and_batches_find_the_same() {
    let temp = Temp::new();
    let whole = &*WHOLE;
    let other = hardened("--batch 3 --threads 2");
    assert_eq!(lasting(whole)["outcomes"], lasting(&other)["outcomes"]);
    let parts = [1, 2].map(|m| {
        let file = temp.join(&format!("{m}.json"));
        hardened(&format!("--partition hash:{m}/2 -o {file:?}"));
        file
    });
    let merged = merge::merge(&parts, "audit merge").unwrap();
    assert_eq!(merged.outcomes, whole.outcomes);
    assert_eq!(lasting(&merged)["scores"], lasting(whole)["scores"]);
}

/// Also in the L2 ball, in which no image is searched for as a file.
#[test]
fn a_ladder_in_the_euclidean_ball() {
    let found = hardened("--norm l2 --eps 4");
    let rungs = found.scores.robust_r1.as_ref().unwrap().ladder.as_ref().unwrap();
    assert!(rungs.rungs.iter().all(|rung| rung.as_file.is_none()));
    assert!(rungs.rungs[0].r1 < rungs.rungs[5].r1, "{rungs:?}");
    assert!(!rendered(&found, "md").contains("as an 8-bit file"));
    // A length is shown as it is, not as a number of grey levels. Half of the correct queries fail within it.
    let correct = found.outcomes.iter().filter(|o| o.before.hit == Some(true));
    let mut sizes: Vec<f64> =
        correct.map(|o| o.enough.unwrap().size.map_or(f64::INFINITY, f64::from)).collect();
    sizes.sort_by(f64::total_cmp);
    let half = audit::record::size("l2", sizes[sizes.len().div_ceil(2) - 1], 2);
    let length = half.trim_end_matches(" (l2)");
    for format in ["md", "html"] {
        let text = rendered(&found, format);
        says(&text, &["ε50 (l2)", length]);
        assert!(!text.contains("in 255ths") && !text.contains("× 255"), "{format}");
    }
    says(&audit::report::verdict(&found).unwrap(), &[&half]);
    let bill = rendered(&found, "cdx.json");
    let metric = bill.split("\"type\": \"eps50\"").nth(1).unwrap();
    says(metric.split('}').next().unwrap(), &[length]);
    // Bounds are in 255ths in every norm, and a verdict on one names the length too.
    let row = EPS50.row(&found);
    assert_eq!((row.norm.as_deref(), row.clone().as_length().number().as_str()), (Some("l2"), length));
    assert_eq!(row.number(), format!("{:.2}", 255.0 * sizes[sizes.len().div_ceil(2) - 1]));
    let as_file = Quantity::find("robust_r1_file@2/255").unwrap();
    assert_eq!(as_file.value(&found), None);
    says(&as_file.beside_ladder(&found).unwrap(), &["in the norm linf only, and this audit's is l2"]);
    // A gate takes each name that the report lists, also of an ε above 255/255.
    let names: Vec<&str> = Quantity::of(&found).map(|of| of.name).collect();
    assert!(names.contains(&"robust_r1@510/255"), "{names:?}");
    assert!(names.iter().all(|name| Quantity::find(name).is_ok()), "{names:?}");
    for o in found.outcomes.iter().filter(|o| o.before.hit == Some(true) && o.after.hit == Some(false)) {
        assert!(f64::from(o.enough.unwrap().size.unwrap()) <= 4.0 + 1e-4);
    }
}

/// The short report has at most 20 lines of 80 columns, the verdict last, and shows every rung however narrow
/// it is.
#[test]
#[ignore = "slow"]
fn the_short_report_fits_a_terminal() {
    let found = &*WHOLE;
    for columns in [40, 80, 120] {
        let text = brief_with(found, "more: -v", columns, Paint(false));
        assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
        assert!(columns < 80 || text.lines().count() <= 20, "{text}");
        for rung in ["77/255", "38.5/255", "19.25/255", "9.63/255", "4.81/255", "2.41/255"] {
            assert!(text.contains(rung), "{rung}: {text}");
        }
        let last: Vec<&str> = text.lines().rev().take(2).collect();
        assert!(last.iter().any(|line| line.contains("fail") || line.contains("enough")), "{text}");
    }
}

/// The forecast of the searches to come: the plan covers queries for which a small change is enough, and the
/// others are announced as soon as they are known. Counts passes, not seconds. Returns the announcements, and
/// the number of queries for which a small change is enough.
fn told_in_time(model: &str, queries: usize) -> (Vec<Further>, usize) {
    let asked = queries.to_string();
    let request = request(&[bundled(model).to_str().unwrap(), "--max-queries", &asked]);
    let Embedded { mut subject, setup, context, queries, .. } = audit::embed(&request).unwrap();
    let plan = &setup.plan;
    let trial = |&query: &usize| Trial { objective: &R1, query, targets: Vec::new() };
    let trials: Vec<Trial> = queries.iter().map(trial).collect();
    let images = |i: usize| subject.dataset.pixels(i, &subject.prep).map(|p| p.data.into());
    let others = Others { images: &images, shape: subject.model.shape() };
    let (context, largest) = (&context, subject.model.pixels());
    let strong =
        Strong { context, images: &images, trials: &trials, plan, effort: 1, others, largest, files: None };
    let forecast = strong.forecast(subject.model.workers()).unwrap().unwrap();
    let [mut correct, mut broken, mut reached] = [0; 3];
    let is_small = |further: &Further| further.eps <= plan.small_change();
    let (mut now, mut told, mut small) = (Passes::default(), Vec::<(Further, usize)>::new(), Vec::new());
    let mut watch = |event: Event| {
        match event {
            Event::Step { passes, .. } => {
                // Once it is known which queries need the last searches, the others no longer count. If a
                // worker is behind on a busy machine, its passes are not full, and a few more are left.
                if let Some((further, _)) = told.last().filter(|(further, _)| is_small(further)) {
                    assert!(4 * passes.left <= 5 * further.most, "{passes:?}: {further:?}");
                }
                now = passes;
            }
            Event::Further(further) => told.push((further, now.made)),
            Event::Broken(_) => broken += 1,
            Event::Done(_, outcome, _) => {
                correct += usize::from(outcome.before.hit == Some(true));
                let size = outcome.enough.and_then(|enough| enough.size).unwrap_or(f32::INFINITY);
                reached += usize::from(size.is_finite());
                if size > 0.0 && size <= plan.small_change() {
                    small.push(outcome.steps);
                }
            }
        }
        ControlFlow::Continue(())
    };
    strong.run(&mut subject.model.passes_for_search(), &mut watch).unwrap();
    let within_twice = |expected: usize, found: usize| (expected..=4 * expected).contains(&(2 * found));
    assert_eq!([forecast.queries, forecast.correct], [trials.len(), correct]);
    // Each broken query is told once.
    assert_eq!(broken, reached);
    let withstand = correct - small.len();
    // A sample of 16 stands for all.
    assert!(withstand.abs_diff(forecast.withstand) <= correct / 4, "{withstand}: {forecast:?}");
    let bounded = within_twice(forecast.usual[0], now.made) && now.made <= forecast.most[0];
    assert!(bounded, "{}: {forecast:?}", now.made);
    for (further, before) in &told {
        let made = now.made - before;
        // It is unknown beforehand which member of the ensemble succeeds.
        let right = match is_small(further) {
            true => within_twice(further.usual, made) && 4 * made <= 5 * further.most,
            false => 2 * made >= further.usual,
        };
        assert!(right, "{further:?}: {made}");
    }
    assert!(small.iter().all(|&steps| within_twice(plan.least_work(&R1), steps)), "{small:?}");
    (told.into_iter().map(|(further, _)| further).collect(), small.len())
}

/// Each query of the plain model is wrong at once at 77/255, and most withstand 1/255.
#[test]
fn the_plan_is_revised_once_queries_withstand_a_small_change() {
    let (told, small) = told_in_time("plain.onnx", 40);
    let [further] = told.as_slice() else { panic!("{told:?}") };
    assert!((255.0 * further.eps - 1.0).abs() < 1e-3 && further.trials > further.of / 2, "{further:?}");
    assert!(small > 0 && small + further.trials == further.of, "{small}: {further:?}");
}

/// Most queries of the hardened model withstand the first steps at 77/255 too.
#[test]
#[ignore = "slow"]
fn the_plan_is_revised_once_queries_withstand_the_first_steps() {
    let (told, _) = told_in_time("hardened.onnx", 30);
    assert_eq!(told.iter().map(|f| (255.0 * f.eps).round()).collect::<Vec<_>>(), [77.0, 1.0]);
}
