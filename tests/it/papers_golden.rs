//! The attacks of Panum et al. (arXiv:2102.07265) and ADML, NES and Square attack against references: the
//! models, images and trials of tests/golden/papers.
//!
//! Expected values are those of float32 implementations in PyTorch, research/golden/reference_papers.py and
//! research/golden/reference_black_box.py, which write the files there. The tolerances are those that the
//! README of the golden trials states for two independent implementations, and narrower ones if trials are
//! compared one by one.

use crate::common::{CPU, load_runtime, plan, shared};
use audit::model::Model;
use audit::model::card::Card;
use audit::record::{Form, Metric, Outcome};
use audit::space::Gallery;
use audit::threat::{AttackContext, Ball, Event, PGD, Plan, Search, read_trials, run};
use serde_json::Value;
use std::ops::ControlFlow;

/// The reference's models, images and trials.
struct Reference {
    model: Model,
    images: Vec<Vec<f32>>,
    context: AttackContext,
    trials: String,
    expected: Value,
}

impl Reference {
    /// `file` is the name of the reference's trials and results. Batches of the number of trials waste no
    /// work.
    fn open(model: &str, file: &str, batch: usize) -> Reference {
        let shared = shared("models");
        load_runtime();
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/papers/");
        let text = std::fs::read_to_string(format!("{golden}{file}.json")).unwrap();
        let golden: Value = serde_json::from_str(&text).unwrap();
        let data = shared.join("data/omniglot28");
        let file = |name: &str| npyz::NpyFile::new(&*std::fs::read(data.join(name)).unwrap().leak()).unwrap();
        let bytes: Vec<u8> = file("test_images_u8.npy").into_vec().unwrap();
        let images: Vec<Vec<f32>> = bytes
            .chunks(28 * 28)
            .map(|image| image.iter().map(|&v| f32::from(v) / 255.0).collect())
            .collect();
        let labels: Vec<i64> = file("test_labels.npy").into_vec().unwrap();
        let names = std::fs::read_to_string(data.join("test_names.txt")).unwrap();
        let path = shared.join(format!("models/{model}.onnx"));
        let mut model = Model::open(&path, &Card::default(), CPU, Some(batch)).unwrap();
        let raw = model.embed(&images.concat()).unwrap();
        let labels = labels.into_iter().map(|l| l as usize).collect();
        let ids = names.lines().map(str::to_string).collect();
        let gallery = Gallery::new(Metric::NormalizedEuclidean, raw, labels, ids).unwrap();
        let (trials, expected) = (golden["trials"].to_string(), golden["result"].clone());
        Reference { model, images, context: crate::common::context(gallery), trials, expected }
    }

    /// The outcomes of the reference's trials of one attack.
    fn run(&mut self, code: &str, plan: &Plan) -> Vec<Outcome> {
        let file = read_trials("trials", &self.trials, &self.context).unwrap();
        let mut trials = file.selection.trials;
        trials.retain(|t| t.objective.code == code);
        let images = |i: usize| Ok(self.images[i].clone().into());
        let mut quiet = |_: Event| ControlFlow::Continue(());
        run(self.model.workers(), &self.context, &images, &trials, plan, &mut quiet).unwrap()
    }

    fn plan(&self, row: &str, search: &str) -> Plan {
        let number = |key: &str| self.expected[row][key].as_f64().unwrap();
        Plan {
            steps: number("steps") as usize,
            search: Search::find(search).unwrap(),
            ..plan(Form::Corrected, number("eps") as f32, number("alpha") as f32)
        }
    }

    /// Compares the outcomes of an attack with the reference's row.
    fn compare(&mut self, row: &str, code: &str) {
        let search = if row == "fgsm" { "fgsm" } else { PGD.name };
        let outcomes = self.run(code, &self.plan(row, search));
        let expected = &self.expected[row];
        let ids = |v: &Value| -> Vec<String> { serde_json::from_value(v.clone()).unwrap() };
        if let Some(targets) = expected["targets"].as_array() {
            for (o, targets) in outcomes.iter().zip(targets) {
                assert_eq!(o.targets, ids(targets), "{row} on {}", o.query);
            }
        }
        let n = outcomes.len() as f64;
        for (when, of) in [("before", 0), ("after", 1)] {
            let found: Vec<_> =
                outcomes.iter().map(|o| [&o.before, &o.after][of].retrieval.unwrap()).collect();
            let hits: Vec<bool> = serde_json::from_value(expected[when]["hit"].clone()).unwrap();
            assert_eq!(found.len(), hits.len());
            let share = |hits: &mut dyn Iterator<Item = bool>| 100.0 * hits.filter(|h| *h).count() as f64 / n;
            let (ours, theirs) =
                (share(&mut found.iter().map(|f| f.first)), share(&mut hits.iter().copied()));
            assert!((ours - theirs).abs() <= 0.5 + 1e-9, "{row} {when}: R@1 {ours} and {theirs}");
            let other = found.iter().zip(&hits).filter(|(f, hit)| f.first != **hit).count();
            assert!(other <= if when == "before" { 0 } else { 4 }, "{row} {when}: {other} hits differ");
            let mean = |of: &dyn Fn(usize) -> f64| (0..found.len()).map(of).sum::<f64>() / n;
            for (key, ours) in [
                ("map", mean(&|i| found[i].ap)),
                ("map_at_r", mean(&|i| found[i].ap_at_r)),
                ("map_at_c", mean(&|i| found[i].at_c)),
            ] {
                let theirs = expected[when][key].as_f64().unwrap();
                // Before the attack only rounding of embeddings differs.
                let tolerance = if when == "before" { 1e-4 } else { 5e-3 };
                assert!((ours - theirs).abs() < tolerance, "{row} {when}: {key} {ours} and {theirs}");
            }
        }
        let shift = outcomes.iter().map(|o| o.shift).sum::<f64>() / n;
        let theirs = expected["shift"].as_f64().unwrap();
        assert!((shift - theirs).abs() < 5e-3, "{row}: shift {shift} and {theirs}");
    }
}

fn agrees_with_the_reference(model: &str) {
    let mut reference = Reference::open(model, model, 50);
    for (row, code) in
        [("nn", "NN"), ("anc", "ANC"), ("fgsm", "NN"), ("ali", "ALI"), ("uni", "UNI"), ("tri", "TRI")]
    {
        reference.compare(row, code);
    }
    // Random starts differ: R@1 within two per cent.
    let outcomes = reference.run("NN", &reference.plan("nn", "fixed-random"));
    let ours = outcomes.iter().filter(|o| o.after.hit == Some(true)).count();
    let hits = &reference.expected["nn from a random start"]["after"]["hit"];
    let theirs = hits.as_array().unwrap().iter().filter(|h| **h == true).count();
    assert!(ours.abs_diff(theirs) <= 4, "from a random start: {ours} and {theirs} of 200 are right");
}

#[test]
#[ignore = "needs the reference data"]
fn agrees_with_the_reference_vanilla() {
    agrees_with_the_reference("vanilla");
}

#[test]
#[ignore = "needs the reference data"]
fn agrees_with_the_reference_hardened() {
    agrees_with_the_reference("hardened");
}

/// The norms of single queries: where a search stops depends on the last digits of many gradients. In the L∞
/// form of Carlini & Wagner they also decide which pixels are beyond τ, and τ falls by a tenth at a time.
#[test]
#[ignore = "needs the reference data"]
fn smallest_perturbations_agree_with_the_reference() {
    let mut reference = Reference::open("vanilla", "vanilla", 50);
    for (row, ball, search, eps, steps, near) in [
        ("bisection linf", "linf", "bisection", 0.5, 110, 0.02),
        ("bisection l2", "l2", "bisection", 10.0, 110, 0.02),
        ("cw l2", "l2", "cw", 10.0, 180, 0.02),
        ("cw linf", "linf", "cw", 0.1, 180, 0.1),
    ] {
        let plan = Plan {
            ball: Ball::find(ball).unwrap(),
            search: Search::find(search).unwrap(),
            eps,
            steps,
            ..reference.plan("nn", "fixed")
        };
        let outcomes = reference.run("MIN", &plan);
        let theirs: Vec<Option<f64>> =
            serde_json::from_value(reference.expected["min"][row].clone()).unwrap();
        assert_eq!(outcomes.len(), theirs.len());
        let mut close = 0;
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        for (o, theirs) in outcomes.iter().zip(theirs) {
            let ours = f64::from(o.size.unwrap_or(o.linf));
            let theirs = theirs.expect("every query has one");
            assert_eq!(ours == 0.0, theirs == 0.0, "{row} on {}", o.query);
            assert_eq!(o.after.hit, Some(false), "{row} on {}", o.query);
            if theirs > 0.0 {
                close += usize::from((ours / theirs - 1.0).abs() < near);
                found.push(ours);
                expected.push(theirs);
            }
        }
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let (ours, theirs) = (mean(&found), mean(&expected));
        assert!((ours / theirs - 1.0).abs() < 0.01, "{row}: mean {ours} and {theirs}");
        assert!(close * 10 >= found.len() * 9, "{row}: {close} of {} within {near}", found.len());
    }
}

/// The searches without gradients, trial by trial: the reference draws the same random numbers. Only rounding
/// differs, which decides a comparison of two losses, or the sign of a slope, in few trials.
fn agrees_without_gradients(model: &str) {
    let mut reference = Reference::open(model, &format!("black-box-{model}"), 8);
    for search in ["population", "nes", "random"] {
        for code in ["NN", "GTM"] {
            let row = format!("{search} {code}");
            let outcomes = reference.run(code, &reference.plan(&row, search));
            let expected = reference.expected[&row].clone();
            let theirs = |key: &str| -> Vec<f64> { serde_json::from_value(expected[key].clone()).unwrap() };
            let hits: Vec<bool> = serde_json::from_value(expected["hit"].clone()).unwrap();
            let (losses, shifts, linfs) = (theirs("loss"), theirs("shift"), theirs("linf"));
            assert_eq!(outcomes.len(), losses.len());
            let mut same = 0;
            for (i, o) in outcomes.iter().enumerate() {
                let near = |ours: f64, theirs: f64| (ours - theirs).abs() < 1e-4;
                same += usize::from(
                    near(o.loss_last, losses[i])
                        && near(o.shift, shifts[i])
                        && near(o.linf.into(), linfs[i])
                        && o.after.hit == Some(hits[i]),
                );
            }
            let n = outcomes.len();
            assert!(same + 1 >= n, "{row}: {same} of {n} trials are the reference's");
            let ours = outcomes.iter().map(|o| o.loss_last).sum::<f64>() / n as f64;
            let mean = losses.iter().sum::<f64>() / n as f64;
            assert!((ours - mean).abs() < 5e-3, "{row}: mean loss {ours} and {mean}");
        }
    }
}

#[test]
#[ignore = "needs the reference data"]
fn searches_without_gradients_agree_with_the_reference_vanilla() {
    agrees_without_gradients("vanilla");
}

#[test]
#[ignore = "needs the reference data"]
fn searches_without_gradients_agree_with_the_reference_hardened() {
    agrees_without_gradients("hardened");
}
