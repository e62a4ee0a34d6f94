//! Against the reference trials and scores in `golden` of the reference data: results of clean embeddings,
//! and the scores of known attacked numbers.

use crate::common::golden::Golden;
use crate::common::{benign, outcome, shared};
use audit::judge::score::{Basis, ars, ers, resistance, score};
use audit::record::{Form, Measures, Outcome, ScoreName};
use audit::space::clustering::nmi;
use audit::space::{Gallery, Metric};
use audit::threat::term::terms_of;
use audit::threat::{OBJECTIVES, Objective, Query};
use ndarray::Array2;
use serde_json::Value;

const MODELS: [&str; 2] = ["vanilla", "hardened"];

/// The gallery of the embeddings as the reference normalised them: under the Euclidean metric, since
/// normalising again would change last digits, and so ranks.
fn gallery(golden: &mut Golden) -> Gallery {
    let labels = golden.indices("labels");
    let embeddings: Vec<f32> = golden.array("embeddings_N");
    let raw = Array2::from_shape_vec((labels.len(), embeddings.len() / labels.len()), embeddings).unwrap();
    Gallery::new(Metric::Euclidean, raw, labels, golden.names.clone()).unwrap()
}

#[test]
#[ignore = "needs the reference data"]
fn benign_metrics() {
    for model in MODELS {
        let mut golden = Golden::open(model);
        let context = crate::common::context(gallery(&mut golden));
        let gallery = &context.gallery;
        let found = benign(gallery, Some(1));
        let expected = &golden.summary["benign_all_2120"];
        for (found, key) in [(found.r1 / 100.0, "R1"), (found.r2 / 100.0, "R2")] {
            let expected = expected[key].as_f64().unwrap();
            assert!((found - expected).abs() < 1e-6, "{model} {key}: {found} vs {expected}");
        }
        // The reference ranks in float32, in which a near tie may fall the other way, and two swapped
        // neighbours move mAP by a millionth. These are mAP and mAP@R in double precision, by
        // research/golden/golden_map.py.
        let exact = match model {
            "vanilla" => [0.413259171451819, 0.2960069135406826],
            _ => [0.4314057692856963, 0.31396130750930246],
        };
        for (found, exact) in [found.map / 100.0, found.map_at_r / 100.0].into_iter().zip(exact) {
            assert!((found - exact).abs() < 1e-9, "{model}: {found} vs {exact}");
        }
        assert_eq!((found.queries, found.without_positive), (2120, 0));
        // The formula on the reference's clusters; our own clustering within the variation of k-means.
        let expected = expected["NMI"].as_f64().unwrap();
        let clusters: Vec<usize> =
            golden.array::<i32>("kmeans_labels").into_iter().map(|c| c as usize).collect();
        let formula = nmi(&clusters, &gallery.labels);
        assert!((formula - expected).abs() < 1e-9, "{model}: {formula} vs {expected}");
        let own = found.nmi.unwrap() / 100.0;
        assert!((own - expected).abs() < 0.015, "{model}: {own} vs {expected}");
    }
}

/// The attacks of the reference.
fn published() -> impl Iterator<Item = &'static Objective> {
    OBJECTIVES.iter().filter(|objective| terms_of(ScoreName::Ers).any(|term| objective.judged_by(term)))
}

/// Targets that follow from the model alone are in `golden_replay.rs`.
#[test]
#[ignore = "needs the reference data"]
fn drawn_targets() {
    for model in MODELS {
        let mut golden = Golden::open(model);
        let context = crate::common::context(gallery(&mut golden));
        let queries = golden.selected("query");
        for (code, key) in [("CA-", "CA-_pos"), ("QA-", "QA-_pos")] {
            let expected = golden.indices(&format!("{code}/target"));
            let positions = golden.selected(key);
            for ((&q, &position), expected) in queries.iter().zip(&positions).zip(expected) {
                let query = Query { context: &context, index: q, count: 1, form: Form::Published };
                let top = query.top_percent();
                assert_eq!(top.len(), 21);
                assert_eq!(top[position], expected, "{model} {code} query {q}");
            }
        }
    }
}

/// The reference's own measurements, with our arithmetic.
#[test]
#[ignore = "needs the reference data"]
fn scores_of_known_outcomes() {
    for model in MODELS {
        let mut golden = Golden::open(model);
        let mut outcomes = Vec::new();
        for attack in published() {
            let code = attack.code;
            let query = golden.indices(&format!("{code}/query"));
            let (shift, previous): (Vec<f32>, Vec<f32>) =
                (golden.array(&format!("{code}/shift")), golden.array(&format!("{code}/shift_prev")));
            let mut states = |when: &str| -> Vec<Measures> {
                let none = Measures::default;
                let numbers =
                    |golden: &mut Golden, of: &str| golden.array::<f32>(&format!("{code}/{of}_{when}"));
                let flags =
                    |golden: &mut Golden, of: &str| golden.array::<bool>(&format!("{code}/{of}_{when}"));
                let rank = |r: f32| Measures { rank: Some(r.into()), ..none() };
                let cosine = |c: f32| Measures { cosine: Some(c.into()), ..none() };
                let retained = |r| Measures { retained: Some(r), ..none() };
                let hit = |h| Measures { hit: Some(h), ..none() };
                match code {
                    "CA+" | "CA-" | "QA+" | "QA-" => {
                        numbers(&mut golden, "rank").into_iter().map(rank).collect()
                    }
                    "TMA" => numbers(&mut golden, "cos").into_iter().map(cosine).collect(),
                    "GTT" => flags(&mut golden, "retain").into_iter().map(retained).collect(),
                    _ => flags(&mut golden, "hit1").into_iter().map(hit).collect(),
                }
            };
            let (before, after) = (states("before"), states("after"));
            for (i, (before, after)) in before.into_iter().zip(after).enumerate() {
                outcomes.push(Outcome {
                    shift: shift[i].into(),
                    shift_before_last: previous[i].into(),
                    ..outcome(code, &golden.names[query[i]], before, after)
                });
            }
        }
        let basis =
            Basis { ranked: 2120, form: Form::Published, metric: Metric::NormalizedEuclidean, foreign: None };
        let (attacks, scores) = score(&outcomes, &[], &basis, &ScoreName::ALL, 1);
        let expect = |found: Option<f64>, expected: &Value, what: &str| {
            let (found, expected) = (found.unwrap(), expected.as_f64().unwrap());
            let off = (found - expected).abs();
            assert!(off < 1e-4 * (1.0 + expected), "{model} {what}: {found} vs {expected}");
        };
        let golden = &golden.summary;
        let [ers, ars] = [scores.ers.unwrap(), scores.ars.unwrap()];
        expect(Some(ers.value), &golden["ERS"], "ERS");
        expect(Some(ars.value), &golden["ARS"], "ARS");
        for row in &attacks {
            let code = row.code.split(':').next().unwrap();
            if row.code != "TMA" && row.code != "ES:D" {
                expect(row.resistance.per_trial, &golden["summary"][code]["ars"], &row.code);
            }
            let skipped = golden["summary"][code]["ars_skipped"].as_u64().unwrap_or(0);
            assert_eq!((row.queries, row.skipped as u64), (200, skipped));
        }
        for (value, interval) in
            [(ers.value, ers.interval), (ars.value, ars.interval), (ars.table.unwrap(), ars.table_interval)]
        {
            let (low, high) = interval.unwrap();
            assert!(low < value && value < high && high - low < 10.0, "{low} {value} {high}");
        }
        // The ratio of means, as printed in the tables.
        let extra = std::fs::read_to_string(shared("golden").join("golden/extra.json")).unwrap();
        let extra: Value = serde_json::from_str(&extra).unwrap();
        for term in ["CA+", "CA-", "QA+", "QA-"] {
            let row = attacks.iter().find(|row| row.code == term).unwrap();
            expect(row.resistance.table, &extra[model][term]["ratio_of_means"], term);
        }
    }
}

#[test]
#[ignore = "needs the reference data"]
fn published_rows() {
    let shared = shared("golden");
    let tables: Value =
        serde_json::from_str(&std::fs::read_to_string(shared.join("golden/paper_tables.json")).unwrap())
            .unwrap();
    let rows = |table: &str| tables[table].as_array().unwrap().clone();
    let cell = |row: &Value, term: &str| row[term].as_f64();
    let named =
        |row: &Value| format!("{} {}", row["dataset"].as_str().unwrap(), row["defense"].as_str().unwrap());

    // ERS: within 0.07 of print, except for three rows whose cells are misprinted or rounded badly.
    let mut checked = 0;
    for row in rows("table2_ers") {
        let found = ers(|term| cell(&row, term.name)).unwrap();
        let slack = match named(&row).as_str() {
            "CARS N/A" => 0.28,
            "CUB Ours" => 0.2,
            "SOP N/A" => 0.11,
            _ => 0.0701,
        };
        let printed = cell(&row, "ERS").unwrap();
        assert!((found - printed).abs() <= slack, "{}: {found} vs {printed}", named(&row));
        checked += 1;
    }
    assert_eq!(checked, 12);

    // ARS: the mean of the printed cells within 0.05 in 8 of 12 rows, at most 0.35.
    let gaps: Vec<f64> = rows("table1_ars")
        .iter()
        .map(|row| {
            (ars(ScoreName::Ars, |term| cell(row, term.name)).unwrap() - cell(row, "ARS").unwrap()).abs()
        })
        .collect();
    assert_eq!(gaps.len(), 12);
    assert!(gaps.iter().all(|&gap| gap <= 0.3501), "{gaps:?}");
    assert!(gaps.iter().filter(|&&gap| gap <= 0.0501).count() >= 8, "{gaps:?}");

    // The `table` form: ARS cells from ERS cells, with nominal starts of 50 % and 1 %.
    let resistances = rows("table1_ars");
    let mut cells = 0;
    for (values, printed) in rows("table2_ers").iter().zip(&resistances) {
        assert_eq!(named(values), named(printed));
        if !["ACT", "HM"].contains(&values["defense"].as_str().unwrap()) {
            continue;
        }
        for term in audit::threat::term::terms_of(ScoreName::Ars).map(|t| t.name) {
            let after = cell(values, term).unwrap();
            let found = match term {
                "CA+" | "QA+" => resistance(50.0, after, 0.0),
                "CA-" | "QA-" => resistance(1.0, after, 100.0),
                "GTT" => resistance(100.0, after, 0.0),
                _ => resistance(cell(values, "R@1").unwrap(), after, 0.0),
            }
            .unwrap();
            let expected = cell(printed, term).unwrap();
            assert!((found - expected).abs() < 0.25, "{} {term}: {found} vs {expected}", named(values));
            cells += 1;
        }
    }
    assert_eq!(cells, 48);
}
