//! The attacks of Panum et al. (arXiv:2102.07265) and ADML, and what attacked queries find. Expected values
//! are computed by hand, or follow from the definitions.

use crate::common::{Temp, audit, bundled, bundled_path, line, on_terminal, rendered, run, says, words};
use crate::report_fixture::python;
use audit::judge::retrieval;
use audit::record::{Form, Metric, Outcome, Report, RetrievalMeans};
use audit::space::Gallery;
use audit::threat::{AttackContext, Loss, Objective, Targets, Trial, measure, select};
use ndarray::Array2;
use std::collections::BTreeMap;

fn find(code: &str) -> &'static Objective {
    Objective::find(code).unwrap()
}

fn targets(context: &AttackContext, code: &str, query: usize) -> Vec<usize> {
    let found = select(context, find(code), 1, Form::Corrected, 0, &[query]).unwrap();
    assert_eq!(found.skipped.len(), 0);
    found.trials[0].targets.clone()
}

/// The loss of an attack on item 0 at distances `d` from all items, and its slopes.
fn at_distances(context: &AttackContext, code: &str, targets: &[usize], d: &[f32]) -> (f64, Vec<f32>) {
    let trial = Trial { objective: find(code), query: 0, targets: targets.to_vec() };
    let Loss::Gallery(loss) = (trial.objective.loss)(context, Form::Corrected, &trial) else { panic!() };
    let mut weights = vec![0.0; d.len()];
    (loss(d, &mut weights), weights)
}

/// Items at 0 and 1 (class 0), 1.5 and 7 (class 1). Nearest to 0 is 1, of its class: the query is pushed away
/// from it. Nearest to 1 is 1.5, of another class: the query is left alone, and counts as a failure.
#[test]
fn nn_pushes_from_the_nearest_item_or_not_at_all() {
    let context: AttackContext = line([0.0, 1.0, 1.5, 7.0], [0, 0, 1, 1]).into();
    assert_eq!((targets(&context, "NN", 0), targets(&context, "NN", 1)), (vec![1], vec![]));
    assert_eq!((targets(&context, "ANC", 0), targets(&context, "ANC", 1)), (vec![1, 2], vec![]));
    assert!(targets(&context, "MIN", 1).is_empty());
    for (code, targets, at, loss, slope) in [
        ("NN", &[1][..], 0.2, -0.8, 1.0), // −d to 1
        ("ANC", &[1, 2], 0.2, 0.5, 0.0),  // −0.8 + 1.3: between the two, both move alike
        ("ANC", &[1, 2], 1.2, 0.1, -2.0), // −0.2 + 0.3
        ("ANC", &[1, 2], -1.0, 0.5, 0.0),
    ] {
        let trial = Trial { objective: find(code), query: 0, targets: targets.to_vec() };
        let Loss::Point(of) = (trial.objective.loss)(&context, Form::Corrected, &trial) else { panic!() };
        let mut gradient = [0.0];
        assert!((of(&[at], false, &mut gradient) - loss).abs() < 1e-6, "{code} at {at}");
        assert!((gradient[0] - slope).abs() < 1e-6, "{code} at {at}: {}", gradient[0]);
    }
    for code in ["NN", "ANC", "MIN"] {
        let trial = Trial { objective: find(code), query: 1, targets: vec![] };
        assert!(matches!((trial.objective.loss)(&context, Form::Corrected, &trial), Loss::Still), "{code}");
    }
}

/// By hand, for item 0 with classes 0 0 0 1 1: squared distances 1 and 4 to its class, 9 and 0.25 to the
/// others.
#[test]
fn alignment_uniformity_and_triplet_by_hand() {
    let context: AttackContext = line([0.0, 1.0, 2.0, 3.0, 0.5], [0, 0, 0, 1, 1]).into();
    let d = [0.0, 1.0, 2.0, 3.0, 0.5];
    let near = |found: (f64, Vec<f32>), loss: f64, weights: [f64; 5]| {
        assert!((found.0 - loss).abs() < 1e-6, "{} and {loss}", found.0);
        assert!(found.1.iter().zip(weights).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-6), "{:?}", found.1);
    };
    near(at_distances(&context, "ALI", &[], &d), -2.5, [0.0, -1.0, -2.0, 0.0, 0.0]);
    let (far, close) = ((-9.0f64).exp(), (-0.25f64).exp());
    let slopes = [0.0, 0.0, 0.0, 6.0 * far / (far + close), 1.0 * close / (far + close)];
    near(at_distances(&context, "UNI", &[], &d), -((far + close) / 2.0).ln(), slopes);
    // [1 − 0.25 + 0.2] is open, [1 − 9 + 0.2] is closed.
    near(at_distances(&context, "TRI", &[1, 4], &d), -0.95, [0.0, -2.0, 0.0, 0.0, 1.0]);
    near(at_distances(&context, "TRI", &[1, 3], &d), 0.0, [0.0; 5]);
    near(at_distances(&context, "TRI", &[1, 1, 3, 4], &d), -0.475, [0.0, -1.0, 0.0, 0.0, 0.5]);
}

/// A positive is drawn from the class, and a negative from the others, near ones more often: of items at
/// angles closer than 0.5 and at 1.2, in few dimensions, and never one beyond 1.4.
#[test]
fn negatives_are_drawn_by_distance() {
    let angle = |d: f32| 2.0 * (d / 2.0).asin();
    let at = [0.0, 0.1, angle(0.6), angle(1.2), angle(1.5)];
    let raw = Array2::from_shape_fn((5, 8), |(i, j)| match j {
        0 => at[i].cos(),
        1 => at[i].sin(),
        _ => 0.0,
    });
    let ids = (0..5).map(|i| i.to_string()).collect();
    let gallery = Gallery::new(Metric::NormalizedEuclidean, raw, vec![0, 0, 1, 2, 3], ids);
    let found = select(&gallery.unwrap().into(), find("TRI"), 300, Form::Corrected, 1, &[0]).unwrap();
    let drawn = &found.trials[0].targets;
    let count = |item: usize| drawn.iter().filter(|&&t| t == item).count();
    assert_eq!((drawn.len(), count(1), count(4)), (600, 300, 0));
    // 1/q by hand: (0.6⁶·0.91^2.5)⁻¹ to (1.2⁶·0.64^2.5)⁻¹ is 26.5 to 1.
    assert!((3..30).contains(&count(3)), "{} of 300, and 300/27.5 are 11", count(3));
}

/// Items on a line: the query 0 at −0.1 has its positives 1 and 3 at ranks 0 and 2 of four others, and at 2.4
/// at 1 and 2.
#[test]
fn what_a_query_finds_by_hand() {
    let context: AttackContext = line([0.0, 1.0, 2.0, 3.0, 9.0], [0, 0, 1, 0, 1]).into();
    let trial = Trial { objective: find("QA-"), query: 0, targets: vec![2] };
    for (at, first, ap, ap_at_r, at_c) in [
        (-0.1, true, (1.0 + 2.0 / 3.0) / 2.0, 0.5, 2.0 / 3.0),
        (2.4, false, (1.0 / 2.0 + 2.0 / 3.0) / 2.0, 0.25, 2.0 / 3.0),
    ] {
        let found = measure(&context, Form::Published, &trial, &[at]).retrieval.unwrap();
        assert_eq!((found.first, found.cluster), (first, None));
        for (found, expected) in [(found.ap, ap), (found.ap_at_r, ap_at_r), (found.at_c, at_c)] {
            assert!((found - expected).abs() < 1e-12, "{found} and {expected} at {at}");
        }
    }
    // A candidate's attack moves no query.
    let trial = Trial { objective: find("CA-"), query: 0, targets: vec![1] };
    assert_eq!(measure(&context, Form::Corrected, &trial, &[5.0]).retrieval, None);
    // Of centres at 0 and 8, the one at 8 is nearer to 5.
    let centres = Array2::from_shape_vec((2, 1), vec![0.0, 8.0]).unwrap();
    let context: AttackContext = context.gallery.with_centres(Some(centres)).into();
    let trial = Trial { objective: find("ES"), query: 0, targets: vec![] };
    let cluster = |at: f32| measure(&context, Form::Corrected, &trial, &[at]).retrieval.unwrap().cluster;
    assert_eq!((cluster(3.9), cluster(5.0)), (Some(0), Some(1)));
}

/// Means over queries; NMI from their classes and clusters.
#[test]
fn rows_of_retrieval() {
    let state = |first: bool, cluster| {
        serde_json::from_value(serde_json::json!({"hit": first, "retrieval":
            {"first": first, "ap": 0.5, "ap_at_r": 0.25, "at_c": f64::from(u8::from(first)), "cluster": cluster}}))
        .unwrap()
    };
    let outcomes: Vec<Outcome> =
        [("a", true, 0, 0), ("b", true, 0, 1), ("c", false, 1, 0), ("d", false, 1, 1)]
            .map(|(query, after, before, cluster)| {
                crate::common::outcome("NN", query, state(true, before), state(after, cluster))
            })
            .to_vec();
    let classes: BTreeMap<String, String> =
        [("a", "x"), ("b", "x"), ("c", "y"), ("d", "y")].map(|(q, c)| (q.into(), c.into())).into();
    let rows = retrieval::rows(&outcomes, &classes);
    assert_eq!((rows.len(), rows[0].attack.as_str(), rows[0].queries), (1, "NN", 4));
    let RetrievalMeans { r1, map, map_at_r, map_at_c, nmi } = rows[0].after;
    assert_eq!((r1, map, map_at_r, map_at_c), (50.0, 50.0, 25.0, 50.0));
    // Before the attack, clusters are the classes; under it, they are independent of them.
    assert!(nmi.unwrap().abs() < 1e-9 && (rows[0].before.nmi.unwrap() - 100.0).abs() < 1e-9);
    assert_eq!(retrieval::rows(&outcomes, &BTreeMap::new())[0].after.nmi, None, "classes are unknown");
}

/// A suite on built-in images, with a model of the repository.
fn audited(suite: &str, flags: &str) -> Report {
    line_audited(&format!("--suite {suite} --max-queries 12 --strong-sample off {flags}"))
}

fn line_audited(flags: &str) -> Report {
    audit(&words(&format!("{:?} {flags}", bundled("plain.onnx")))).unwrap()
}

/// For each attack: trials, and the row of what its queries find.
fn agrees_with_its_terms(report: &Report) {
    assert_eq!(report.retrieval.len(), report.attacks.len());
    for (row, attack) in report.retrieval.iter().zip(&report.attacks) {
        assert_eq!((&row.attack, row.queries), (&attack.code, attack.queries));
        // R@1 is measured for the term, too.
        assert!((row.before.r1 - attack.before.unwrap()).abs() < 1e-9, "{}", row.attack);
        assert!((row.after.r1 - attack.after.unwrap()).abs() < 1e-9, "{}", row.attack);
        assert!(row.before.nmi.is_some() && row.after.map < row.before.map, "{row:?}");
        assert!(report.labels.len() >= row.queries);
    }
}

#[test]
fn queries_that_are_wrong_are_left_alone_by_panum() {
    for (suite, eps) in [("panum", 0.01f32), ("panum-fgsm", 0.01)] {
        let report = audited(suite, "");
        agrees_with_its_terms(&report);
        let wrong = |o: &&Outcome| o.before.hit == Some(false);
        assert!(report.outcomes.iter().filter(wrong).count() > 0, "nothing to test");
        for o in &report.outcomes {
            match o.before.hit {
                Some(false) => {
                    assert_eq!((o.linf, &o.before), (0.0, &o.after), "{} on {}", o.attack, o.query)
                }
                _ => assert!(o.linf > 0.5 * eps && o.linf <= eps + 1e-6, "{} on {}", o.attack, o.query),
            }
        }
    }
}

#[test]
fn suites_of_the_papers_run() {
    let report = audited("adml", "");
    agrees_with_its_terms(&report);
    assert!(report.outcomes.iter().all(|o| o.attack != "TRI" || o.targets.len() == 2));
    let report = audited("panum-cw", "--steps 90");
    agrees_with_its_terms(&report);
    assert!(report.outcomes.iter().all(|o| o.linf <= 0.01 + 1e-6));
}

/// Bisection finds an image for every query, and smaller ones than the best of PGD in the ball of its ε. R@1
/// of the curve is at most that of PGD with this ε.
#[test]
#[ignore = "slow"]
fn the_smallest_perturbations_and_their_curve() {
    let report = audited("minimum", "");
    let found = report.smallest.as_ref().unwrap();
    assert_eq!((found.norm.as_str(), found.most, found.queries), ("linf", 0.5, 12));
    let r1 = 100.0 * found.right as f64 / 12.0;
    let (first, last) = (found.curve[0], *found.curve.last().unwrap());
    assert_eq!((first.eps, last.eps), (0.0, 0.5));
    assert!((first.r1 - r1).abs() < 1e-9 && last.r1 == 0.0, "{:?}", found.curve);
    let mut norms: Vec<f32> = report.outcomes.iter().map(|o| o.linf).filter(|n| *n > 0.0).collect();
    norms.sort_unstable_by(f32::total_cmp);
    assert_eq!(norms.len(), found.right);
    // Fewer norms than points: each has a point, at which its query is wrong.
    let inner: Vec<(f32, f64)> =
        found.curve[1..found.curve.len() - 1].iter().map(|p| (p.eps as f32, p.r1)).collect();
    let left = |n: &f32| 100.0 * norms.iter().filter(|other| *other > n).count() as f64 / 12.0;
    let mut expected: Vec<(f32, f64)> = norms.iter().map(|n| (*n, left(n))).collect();
    expected.dedup();
    assert_eq!(inner, expected);
    let median = f64::from(norms[(norms.len() - 1) / 2] + norms[norms.len() / 2]) / 2.0;
    assert!((found.median.unwrap() - median).abs() < 1e-6);
    assert!(median > 0.001 && median < 0.25, "{median}");
    // Every image makes its query wrong, and a search in half of the ball doesn't: --eps.
    assert!(report.outcomes.iter().all(|o| o.after.hit == Some(false)));
    let half = audited("minimum", &format!("--eps {}", median / 2.0)).smallest.unwrap();
    assert!(half.median.is_none() || half.median.unwrap() <= median / 2.0 + 1e-6, "{half:?}");
    // The Euclidean norm: both searches find similar sizes.
    let bisection = audited("minimum-l2", "").smallest.unwrap();
    let cw = audited("minimum-cw", "--steps 450").smallest.unwrap();
    assert_eq!((bisection.norm.as_str(), cw.norm.as_str()), ("l2", "l2"));
    let (a, b) = (bisection.median.unwrap(), cw.median.unwrap());
    assert!((a / b - 1.0).abs() < 0.1, "bisection {a}, Carlini & Wagner {b}");
}

/// Every image finds the named class, which is farther away than the nearest class, and reports name the
/// goal.
#[test]
#[ignore = "slow"]
fn the_smallest_perturbations_towards_a_class() {
    let report = audited("minimum-target", "");
    let found = report.smallest.as_ref().unwrap();
    assert_eq!((found.attack.as_str(), found.queries, found.right), ("TMIN", 12, 12));
    let untargeted = audited("minimum", "");
    let size = |report: &Report, query: &str| {
        let o = report.outcomes.iter().find(|o| o.query == query).unwrap();
        f64::from(o.size.unwrap_or(o.linf))
    };
    for o in &report.outcomes {
        assert_eq!((o.before.hit, o.after.hit, o.targets.len()), (Some(true), Some(false), 1), "{}", o.query);
        let (own, asked) = (&report.labels[&o.query], &report.labels[&o.targets[0]]);
        assert_ne!(own, asked);
        // Bisections of two losses end slightly apart.
        assert!(size(&report, &o.query) > 0.98 * size(&untargeted, &o.query), "{}", o.query);
    }
    assert!(found.median.unwrap() > untargeted.smallest.as_ref().unwrap().median.unwrap());
    let headline = "Half of the searches find a class that the attacker names under a change of at most";
    let table = "Smallest perturbation (linf) under which a query finds the class that the attacker names";
    for extension in ["html", "md"] {
        let text = rendered(&report, extension);
        says(&text, &[headline, table]);
        assert!(!text.contains("R@1 by ε"), "{extension}");
    }
    let terminal = on_terminal(&report, 300);
    says(&terminal, &[headline, "share that doesn't find the class by ε: 100.0 % at 0"]);
}

/// The script of the evidence confirms the results with its own embeddings.
#[test]
#[ignore = "needs Python with numpy, PIL, onnxruntime"]
fn the_evidence_of_a_named_class_is_confirmed() {
    let folder = Temp::new();
    let model = bundled_path("plain.onnx");
    let flags = "--suite minimum-target --max-queries 6 --steps 60 --strong-sample off -q -o r.json";
    run(&folder, words(&format!("{model:?} {flags}"))).ended(0);
    run(&folder, words("report r.json --bundle e.zip")).ended(0);
    let script = include_str!("../../src/feature/verify.py");
    let archive = folder.join("e.zip").display().to_string();
    says(&python("numpy, PIL, onnxruntime", script, &[&archive, &model]), &["confirmed: 6 outcomes"]);
}

/// The verdict of a search for the smallest perturbations is their median, and not robust R@1 at an ε at
/// which images are unrecognisable. Robust R@1 is always shown with its ε.
#[test]
fn the_verdict_of_the_smallest_perturbations_is_their_median() {
    let few = "--max-queries 16 --strong-sample 16";
    let report = line_audited(&format!("--suite minimum {few} --fail-under robust_r1=1"));
    let found = report.smallest.as_ref().unwrap();
    let median = audit::record::size("linf", found.median.unwrap(), 2);
    assert!(median.ends_with("/255"), "{median}");
    let headline = format!("Half of the correct searches fail under a change of at most {median}");
    let (robust, rows) = (report.scores.robust_r1.as_ref().unwrap(), &report.attacks);
    assert_eq!((robust.eps, robust.value), (Some(0.5), 0.0));
    assert!(rows.iter().any(|row| row.code == "R1"));
    for format in audit::report::FORMATS {
        let text = String::from_utf8_lossy(&(format.render)(&report).unwrap()).into_owned();
        assert!(!text.contains("Not robust"), "{}", format.extension);
        // A name without a number, as in the settings, needs no ε.
        for (at, _) in text.match_indices("obust R@1") {
            let rest: String = text[at + 9..].chars().take(60).collect();
            let rest = rest.replace("</dt><dd class=\"num\">", " ");
            let of_text = [" at 127.5/255", ", and gate on it", " at its ε"];
            assert!(of_text.iter().any(|words| rest.starts_with(words)), "{}: {rest}", format.extension);
        }
        match format.extension {
            "html" | "md" => says(&text, &[&headline]),
            "metrics.json" => says(&text, &["\"robust_r1_eps\": 0.5"]),
            "cdx.json" => says(&text, &["16 queries; ε 127.5/255"]),
            _ => {}
        }
    }
    let terminal = on_terminal(&report, 200);
    says(&terminal, &[&headline, "robust R@1 at 127.5/255"]);
    assert!(!terminal.contains("Not robust"), "{terminal}");
    says(&report.gate.as_ref().unwrap().render(), &["0.0 at 127.5/255", "below the required 1"]);
    // No other suite does so either at an ε far above the protocol's.
    let far = line_audited(&format!("--suite smoke {few} --eps 200/255"));
    let terminal = on_terminal(&far, 200);
    says(&terminal, &["No verdict: ε 200/255 is far above the protocol's 77/255"]);
    assert!(!terminal.contains("Not robust"), "{terminal}");
    let usual = line_audited(&format!("--suite smoke {few}"));
    says(&on_terminal(&usual, 200), &["Not robust: a change of at most 77/255 makes"]);
}

/// Attacks on a query without a defined R@1 are skipped with the reason.
#[test]
fn queries_without_a_match_are_skipped() {
    let context: AttackContext = line([0.0, 1.0, 2.0], [0, 0, 1]).into();
    for code in ["NN", "ANC", "MIN", "TMIN", "ALI", "UNI", "TRI"] {
        let found = select(&context, find(code), 1, Form::Corrected, 0, &[2]).unwrap();
        assert!(found.trials.is_empty() && found.skipped[0].why.contains("no other image"), "{code}");
        let query = audit::threat::Query { context: &context, index: 0, count: 1, form: Form::Corrected };
        let mut draw = audit::threat::Draw::new(0, code, "0", 0);
        assert!(matches!((find(code).targets)(&query, &mut draw).unwrap(), Targets::Chosen(_)), "{code}");
    }
}
