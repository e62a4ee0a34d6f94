//! Retrieval metrics against other people's code (tests/golden/metrics.json, made by
//! research/golden/golden_metrics.py), and the effect of separate queries and cameras on metrics, attacks and
//! samples.

use crate::common::benign;
use audit::data::Role;
use audit::record::Form;
use audit::space::clustering::{ami, nmi};
use audit::space::{Gallery, Metric};
use audit::threat::{OBJECTIVES, Objective, Trial, measure, read_trials, sample_queries, select};
use ndarray::Array2;
use serde::Deserialize;
use std::collections::HashMap;

#[derive(Deserialize)]
struct Golden {
    galleries: HashMap<String, Case>,
    clusterings: Vec<Clustering>,
}

#[derive(Deserialize)]
struct Case {
    points: Vec<Vec<f32>>,
    labels: Vec<usize>,
    roles: Vec<String>,
    #[serde(default)]
    cameras: Vec<u32>,
    queries: usize,
    map: f64,
    map_at_c: f64,
    cmc: HashMap<String, f64>,
    mean_average_precision: Option<f64>,
    mean_average_precision_at_r: Option<f64>,
    mean_reciprocal_rank: Option<f64>,
    precision_at_1: Option<f64>,
    r_precision: Option<f64>,
    precision_at_1_by_class: Option<Vec<f64>>,
    mean_average_precision_at_r_by_class: Option<Vec<f64>>,
}

#[derive(Deserialize)]
struct Clustering {
    clusters: Vec<usize>,
    classes: Vec<usize>,
    nmi: f64,
    ami: f64,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../golden/metrics.json")).unwrap()
}

impl Case {
    fn gallery(&self) -> Gallery {
        let (n, d) = (self.points.len(), self.points[0].len());
        let raw = Array2::from_shape_vec((n, d), self.points.concat()).unwrap();
        let ids = (0..n).map(|i| format!("item{i}")).collect();
        let role = |role: &String| match role.as_str() {
            "both" => Role::Both,
            "query" => Role::Query,
            _ => Role::Gallery,
        };
        let roles: Vec<Role> = self.roles.iter().map(role).collect();
        let cameras = (0..n).map(|i| self.cameras.get(i).copied()).collect();
        let gallery = Gallery::new(Metric::Euclidean, raw, self.labels.clone(), ids).unwrap();
        gallery.with_roles(&roles, cameras).unwrap()
    }
}

fn near(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() < 1e-6, "{what}: {found} vs {expected}");
}

#[test]
fn metrics_are_those_of_other_implementations() {
    for (name, case) in golden().galleries {
        let found = benign(&case.gallery(), None);
        assert_eq!(found.queries, case.queries, "{name}");
        assert_eq!(found.without_positive > 0, name != "separate", "{name}");
        let near_share = |found: f64, expected: f64, what: &str| near(found / 100.0, expected, what);
        near_share(found.map, case.map, "mAP");
        near_share(found.map_at_c.unwrap(), case.map_at_c, "mAP@C");
        near_share(found.r2, case.cmc["2"], "R@2");
        found.cmc.iter().for_each(|point| near_share(point.value, case.cmc[&point.k.to_string()], "CMC"));
        for (what, found, expected) in [
            ("R@1", found.r1, case.precision_at_1),
            ("mAP", found.map, case.mean_average_precision),
            ("mAP@R", found.map_at_r, case.mean_average_precision_at_r),
            ("MRR", found.mrr.unwrap(), case.mean_reciprocal_rank),
            ("R-precision", found.r_precision.unwrap(), case.r_precision),
        ] {
            assert_eq!(expected.is_some(), name != "cameras");
            expected.inspect(|&expected| near_share(found, expected, what));
        }
        let map_at_r_by_class = case.mean_average_precision_at_r_by_class;
        for (what, found, expected) in [
            ("R@1", found.classes.iter().map(|c| c.r1).collect::<Vec<_>>(), case.precision_at_1_by_class),
            ("mAP@R", found.classes.iter().map(|c| c.map_at_r).collect(), map_at_r_by_class),
        ] {
            assert_eq!(expected.is_some(), name != "cameras");
            expected.inspect(|expected| {
                assert_eq!(found.len(), expected.len(), "{name}: classes");
                found.iter().zip(expected).for_each(|(&found, &expected)| near_share(found, expected, what));
            });
        }
        // Classes add up to the whole.
        let sum: f64 = found.classes.iter().map(|c| c.queries as f64 * c.map_at_r).sum();
        near(sum / found.queries as f64, found.map_at_r, "classes");
    }
}

#[test]
fn clusterings_agree_as_scikit_learn_has_it() {
    for Clustering { clusters, classes, nmi: expected, ami: adjusted } in golden().clusterings {
        near(nmi(&clusters, &classes), expected, "NMI");
        near(ami(&clusters, &classes), adjusted, "AMI");
    }
}

/// Separate queries, and cameras: targets and counted items are never those that the query may not rank.
#[test]
fn attacks_obey_the_protocol() {
    for name in ["separate", "cameras"] {
        let context = crate::common::context(golden().galleries[name].gallery());
        let gallery = &context.gallery;
        let n = gallery.len();
        assert!(gallery.queries().iter().all(|&q| q >= n));
        for attack in OBJECTIVES {
            for form in [Form::Published, Form::Corrected] {
                let count = if attack.code.ends_with("QA-") { 1 } else { 4 };
                let found = select(&context, attack, count, form, 3, gallery.queries()).unwrap();
                let too_few = gallery.len() < 200 && attack.measure.orders;
                assert_eq!(found.trials.is_empty(), too_few, "{name} {}", attack.code);
                let by_queries = attack.measure.moves_candidate;
                for trial in &found.trials {
                    let z = gallery.point(trial.query);
                    for &target in &trial.targets {
                        assert_eq!(target >= n, by_queries, "{name} {}", attack.code);
                        assert!(!gallery.same_view(trial.query, target), "{name} {}", attack.code);
                        assert!(form == Form::Published || target != trial.query);
                    }
                    let m = measure(&context, form, trial, z);
                    assert!(m.rank.is_none_or(|rank| rank <= n as f64));
                    assert!(attack.measure.name != "retained" || m.retained == Some(true));
                }
            }
        }
        // Without the rule, half of the random targets of QA+ would be of the wrong camera: such items exist.
        let views = gallery.queries().iter().flat_map(|&q| (0..n).map(move |i| (q, i)));
        assert_eq!(views.filter(|&(q, i)| gallery.same_view(q, i)).count() > 50, name == "cameras");
    }
}

/// On a line: query at 0 (class 0, camera 1); items at 1 (its class and camera), 2 (its class, camera 2), 3
/// (class 1, camera 1).
#[test]
fn the_same_camera_by_hand() {
    let raw = Array2::from_shape_vec((4, 1), vec![1.0, 2.0, 3.0, 0.0]).unwrap();
    let ids = ["a", "b", "c", "q"].map(String::from).to_vec();
    let roles = [Role::Gallery, Role::Gallery, Role::Gallery, Role::Query];
    let cameras = [1, 2, 1, 1].map(Some).to_vec();
    let gallery = Gallery::new(Metric::Euclidean, raw, vec![0, 0, 1, 0], ids).unwrap();
    let context = crate::common::context(gallery.with_roles(&roles, cameras).unwrap());
    let gallery = &context.gallery;
    assert_eq!((gallery.len(), gallery.queries()), (3, &[3][..]));
    assert_eq!(gallery.positives(3).collect::<Vec<_>>(), [1]);
    let at = |code: &str, targets: &[usize], z: f32| {
        let trial = Trial { objective: Objective::find(code).unwrap(), query: 3, targets: targets.to_vec() };
        measure(&context, Form::Published, &trial, &[z])
    };
    // Without the item at 1, the item at 2 comes first.
    assert_eq!(at("QA+", &[1], 0.0).rank, Some(0.0));
    assert_eq!(at("GTM", &[2], 0.0).hit, Some(true));
    // At 1 exactly, the removed item would be the nearest and of the correct class; at 3 the other class is.
    assert_eq!(at("GTM", &[2], 3.0).hit, Some(false));
    let found = benign(gallery, None);
    assert_eq!((found.r1, found.map, found.queries), (100.0, 100.0, 1));
    let trials = r#"{"protocol":"rob28","form":"published","metric":"euclidean",
        "attacks":{"qa+":[{"query":"q","targets":["q"]}]}}"#;
    let refused = read_trials("t.json", trials, &context).unwrap_err().message;
    assert!(refused.contains("row 1") && refused.contains("not in the gallery"), "{refused}");
}

#[test]
fn samples_are_stratified_and_nested() {
    // Classes of 4, 40, 400 items.
    let labels: Vec<usize> = (0..444).map(|i| usize::from(i >= 4) + usize::from(i >= 44)).collect();
    let raw = Array2::from_shape_fn((444, 1), |(i, _)| i as f32);
    let ids = (0..444).map(|i| format!("item{i}")).collect();
    let gallery = Gallery::new(Metric::Euclidean, raw, labels.clone(), ids).unwrap();
    let mut before = Vec::new();
    for most in [11, 111, 222, 444] {
        let sample = sample_queries(&gallery, Some(most), 5);
        assert!(sample.len() == most && sample.windows(2).all(|w| w[0] < w[1]));
        assert!(before.iter().all(|q| sample.contains(q)), "a smaller sample is part of a larger one");
        for (class, size) in [(0, 4), (1, 40), (2, 400)] {
            let share = (most * size) as f64 / 444.0;
            let found = sample.iter().filter(|&&q| labels[q] == class).count() as f64;
            assert!((found - share).abs() <= 2.0, "{found} of class {class} in {most}, share {share}");
        }
        before = sample;
    }
    assert_eq!([None, Some(500)].map(|most| sample_queries(&gallery, most, 5).len()), [444; 2]);
    assert_ne!(sample_queries(&gallery, Some(50), 5), sample_queries(&gallery, Some(50), 6));
}
