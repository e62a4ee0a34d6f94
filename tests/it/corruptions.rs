//! Natural corruptions: each against SciPy, Pillow, colorsys and PyTorch
//! (research/golden/golden_corruptions.py), retrieval under them against NumPy, and reports, gate and merge
//! with them.

use crate::common::models::{Bench, SIDE, Weights, grey, trunk, trunk_weights};
use crate::common::{Temp, audit, bundled, bundled_path, numbers, rendered, run, says, words};
use crate::report_fixture::python;
use audit::corruption::crop::cropped;
use audit::corruption::rotation::rotated;
use audit::corruption::{CORRUPTIONS, Corruption, Picture};
use audit::data::{Dataset, Preparation};
use audit::judge::compare::mismatches;
use audit::judge::corruption;
use audit::record::Report;
use audit::report;
use onnx_grad::graph::Node;
use serde_json::Value;
use std::collections::BTreeSet;

fn golden() -> Value {
    serde_json::from_str(include_str!("../golden/corruptions.json")).unwrap()
}

fn off(a: &[f32], b: &[f64]) -> Vec<f64> {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).abs()).collect()
}

fn near(found: &[f32], expected: &Value, what: &str) {
    let worst = off(found, &numbers(expected)).into_iter().fold(0.0, f64::max);
    assert!(worst <= 1e-6, "{what}: off by {worst}");
}

/// The encoder of the crate `image` rounds coefficients to whole numbers before it divides them by the table,
/// and Pillow's doesn't: at high quality some fall to the next step. Their difference stays below a third of
/// JPEG's change, and below a level of 255.
fn near_after_jpeg(found: &[f32], expected: &Value, clean: &[f32], what: &str) {
    let expected = numbers(expected);
    let mean = |off: Vec<f64>| off.iter().sum::<f64>() / off.len() as f64;
    let (differs, changes) = (mean(off(found, &expected)), mean(off(clean, &expected)));
    assert!(
        differs < 0.33 * changes && differs < 1.0 / 255.0,
        "{what}: {differs} between encoders, {changes} by JPEG"
    );
}

/// Pixels as other libraries compute them. These compute in float64: only rounding to float32 differs, except
/// for JPEG.
#[test]
fn corruptions_agree_with_other_libraries() {
    let golden = golden();
    for case in golden["cases"].as_array().unwrap() {
        let pixels: Vec<f32> = numbers(&case["pixels"]).into_iter().map(|v| (v / 255.0) as f32).collect();
        let shape: Vec<usize> = numbers(&case["shape"]).into_iter().map(|v| v as usize).collect();
        let picture = Picture { data: &pixels, shape: [shape[0], shape[1], shape[2]] };
        for (name, by_strength) in case["corrupted"].as_object().unwrap() {
            let corruption = Corruption::find(name).unwrap();
            for (strength, expected) in by_strength.as_object().unwrap() {
                let made = corruption.apply(&picture, strength.parse().unwrap(), 3, "id").unwrap();
                let what = format!("{name} {strength}");
                if name == "jpeg" {
                    near_after_jpeg(&made, expected, &pixels, &what);
                } else {
                    near(&made, expected, &what);
                }
            }
        }
        for (degrees, expected) in case["rotated"].as_object().unwrap() {
            near(&rotated(&picture, degrees.parse().unwrap()), expected, degrees);
        }
        for part in case["cropped"].as_array().unwrap() {
            let pair = |key: &str| [0, 1].map(|i| numbers(&part[key])[i] as usize);
            let made = cropped(&picture, pair("start"), pair("size"));
            near(&made, &part["pixels"], "crop");
        }
    }
    for (name, side) in [("small", 32), ("large", 224)] {
        for (corruption, values) in golden[name].as_object().unwrap() {
            let corruption = Corruption::find(corruption).unwrap();
            let found: Vec<f64> = (1..=5).map(|strength| corruption.value(strength, side)).collect();
            assert_eq!(found, numbers(values), "{corruption:?} {name}");
        }
    }
}

/// Mean and variance of clipped normal noise, against numerical integration, within four standard errors. A
/// flat image of 30,000 values. Twelve uniform numbers stand for a normal one: their tails are a little
/// shorter, within these bounds.
#[test]
fn noise_has_the_moments_of_clipped_normal_numbers() {
    let noise = Corruption::find("noise").unwrap();
    for (i, case) in golden()["noise"].as_array().unwrap().iter().enumerate() {
        let of = |key: &str| case[key].as_f64().unwrap();
        let (n, level) = (30 * 1000, of("level") as f32);
        let data = vec![level; n];
        // Small by the table of CIFAR-10-C only in its longer side: many narrow images side by side.
        let mut values: Vec<f64> = Vec::new();
        for k in 0..n / 900 {
            let picture = Picture { data: &data[..900], shape: [1, 30, 30] };
            let made = noise.apply(&picture, of("strength") as usize, 5, &format!("{i} {k}")).unwrap();
            values.extend(made.into_iter().map(f64::from));
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
        let error = (of("variance") / count).sqrt();
        assert!((mean - of("mean")).abs() < 4.0 * error, "{case}: mean {mean}");
        assert!((variance / of("variance") - 1.0).abs() < 0.06, "{case}: variance {variance}");
    }
}

/// Embeds images, clean and corrupted, with ONNX Runtime in Python, and ranks them with NumPy: R@1 and mAP at
/// five strengths.
const PEER: &str = include_str!("corruptions.py");

/// An audit of two corruptions, and the folder of images in `folder`.
fn two_corruptions(folder: &Temp) -> (Report, String) {
    let images = Dataset::generated(11, 12, 5);
    let data = folder.join("data");
    assert_eq!(images.export(&data, &Preparation::new(1, 28, 28)).unwrap(), 60);
    let suite = "form: corrected\nattacks: [ES]\nsteps: 1\ncorruptions: [contrast, brightness]\n";
    let (suite, data) = (folder.file("two.yaml", suite), data.display().to_string());
    let line = format!("{:?} --suite {suite:?} --data {data:?} --strong-sample off", bundled("plain.onnx"));
    (audit(&words(&line)).unwrap(), data)
}

#[test]
fn a_suite_measures_retrieval_under_corruptions() {
    let (found, _) = two_corruptions(&Temp::new());
    let all = found.corruptions.as_ref().unwrap();
    assert_eq!((all.queries, all.rows.len(), found.corrupted.len()), (60, 10, 120));
    let clean = found.benign.as_ref().unwrap();
    assert!((all.clean_r1 - clean.r1).abs() < 1e-9 && (all.clean_map - clean.map).abs() < 1e-9);
    assert!(all.rows.iter().all(|row| row.same_eps.is_none()), "without MIN there is no ε");
    // With it there is one, but not for fewer than 10 queries, which have no interval.
    let with_eps = |report: &Report| {
        let all = corruption::corruptions(report).unwrap();
        all.rows.iter().filter(|row| row.same_eps.is_some()).count()
    };
    let mut smallest = found.clone();
    smallest.outcomes.iter_mut().for_each(|o| o.attack = "MIN".into());
    assert_eq!(with_eps(&smallest), 10);
    let few: BTreeSet<String> = smallest.outcomes.iter().take(9).map(|o| o.query.clone()).collect();
    smallest.corrupted.retain(|c| few.contains(&c.query));
    assert_eq!(with_eps(&smallest), 0);
}

/// Retrieval, against Python with ONNX Runtime and NumPy. A near tie may fall either way: one of 60 queries
/// is 1.7 points.
#[test]
#[ignore = "needs Python with numpy, onnxruntime, PIL"]
fn retrieval_under_corruptions_agrees_with_numpy() {
    let folder = Temp::new();
    let (found, data) = two_corruptions(&folder);
    let all = found.corruptions.as_ref().unwrap();
    let text = python("numpy, onnxruntime, PIL", PEER, &[&bundled_path("plain.onnx"), &data]);
    let peer: Value = serde_json::from_str(text.trim()).unwrap();
    let clean = numbers(&peer["clean"]);
    assert!((clean[0] - all.clean_r1).abs() < 1.7 && (clean[1] - all.clean_map).abs() < 0.05, "{clean:?}");
    for row in &all.rows {
        let expected = numbers(&peer[&row.corruption][row.strength - 1]);
        assert!((row.r1 - expected[0]).abs() < 1.7, "{row:?}, expected {expected:?}");
        assert!((row.map - expected[1]).abs() < 0.05, "{row:?}, expected {expected:?}");
    }
}

/// The built-in suite, with few queries and a short search.
fn audited(folder: &Temp, more: &[&str]) -> Report {
    let suite = include_str!("../../suites/corruptions.yaml").replace("steps: 210", "steps: 40");
    let suite = folder.file("few.yaml", suite);
    let line = format!("{:?} --suite {suite:?} --max-queries 24 --strong-sample off", bundled("plain.onnx"));
    audit(&[&words(&line), more].concat()).unwrap()
}

/// The built-in suite from end to end: its formats, its gate, and that no score depends on it.
#[test]
fn reports_gate_and_comparison_know_corruptions() {
    let folder = Temp::new();
    let page = folder.join("page.html");
    let gates = ["--fail-under", "corruption.noise@1.r1=0", "--fail-under", "corruption.map=100"];
    let found = audited(&folder, &[&gates[..], &["-o", page.to_str().unwrap()]].concat());
    let all = found.corruptions.as_ref().unwrap();
    assert_eq!((all.queries, all.rows.len()), (24, 35));
    assert!(found.scores.ers.is_none() && found.scores.ars.is_none());
    for row in &all.rows {
        let (low, high) = row.r1_interval.unwrap();
        assert!(low <= row.r1 && row.r1 <= high, "{row:?}");
        // At this ε the search makes as many queries wrong as the corruption, and at no smaller one.
        let same = row.same_eps.unwrap();
        let lost = |eps: f64| {
            let wrong = |o: &&audit::record::Outcome| {
                o.before.hit == Some(false)
                    || o.after.hit == Some(false) && f64::from(o.size.unwrap_or(o.linf)) <= eps
            };
            100.0 * found.outcomes.iter().filter(wrong).count() as f64 / 24.0
        };
        let eps = same.eps.unwrap_or(f64::INFINITY);
        assert!(lost(eps) >= 100.0 - row.r1 - 1e-9 || same.eps.is_none(), "{row:?}");
        assert!(eps == 0.0 || lost(eps * (1.0 - 1e-6)) < 100.0 - row.r1 - 1e-9, "{row:?}");
    }
    assert!(all.rows.iter().any(|row| row.same_eps.unwrap().eps.is_some_and(|eps| eps > 0.0)));
    let checks = &found.gate.as_ref().unwrap().checks;
    let results: Vec<(&str, &str)> = checks.iter().map(|c| (c.metric.as_str(), c.result.word())).collect();
    assert_eq!(results, [("corruption.noise@1.r1", "pass"), ("corruption.map", "FAIL")]);
    for extension in ["html", "md"] {
        let text = rendered(&found, extension);
        says(&text, &["atural corruptions of 24 queries, no attacker", "rotation", "ε of attack"]);
    }
    let text = rendered(&found, "md");
    assert!(text.lines().any(|line| line.contains("| ε of attack |") && line.contains("/255 |")), "{text}");
    let text = std::fs::read_to_string(&page).unwrap();
    assert_eq!(text.matches("alt=\"jpeg ").count(), 5, "a picture at each strength");
    says(&report::terminal::render(&found), &["Natural corruptions of 24 queries", "ε of attack"]);
    // The summary has no table to speak of.
    let brief = report::terminal::brief(&found, "");
    assert!(brief.contains("Natural corruptions of 24 queries") && !brief.contains("the table"), "{brief}");
    let other = audited(&folder, &["--seed", "1", "--trials", &saved(&folder, &found)]);
    assert_ne!(other.corrupted, found.corrupted, "the seed settles noise");
    assert_eq!(mismatches(&found, &other), ["seed of corruptions: 0 and 1 (set it by --seed)"]);
    let edited = folder.json("saved.json").to_string().replace("\"first\":[true", "\"first\":[false");
    let rows: Report = Report::parse(&edited).unwrap();
    assert_eq!(rows.corruptions, found.corruptions);

    // A report of another version may lack a strength. The others keep their columns.
    let mut fewer = found;
    fewer.corruptions.as_mut().unwrap().rows.retain(|row| row.strength != 2);
    let text = rendered(&fewer, "md");
    let line = text.lines().find(|line| line.starts_with("|  | R@1 |")).unwrap();
    let empty = |strength: usize| line.split('|').nth(2 + strength).unwrap().trim().is_empty();
    assert_eq!([1, 2, 3, 4, 5].map(empty), [false, true, false, false, false], "{line}");
    says(&report::terminal::render(&fewer), &["ε of attack"]);
}

fn saved(folder: &Temp, report: &Report) -> String {
    folder.file("saved.json", serde_json::to_string(report).unwrap())
}

/// One query's corruptions don't depend on the batch, the threads or the other queries, and parts make the
/// whole.
#[test]
fn corruptions_of_a_query_follow_from_it_alone() {
    let folder = Temp::new();
    let all = "noise, blur, jpeg, brightness, contrast, rotation, crop";
    let suite = format!("form: corrected\nattacks: [ES]\nsteps: 1\ncorruptions: [{all}]\n");
    let suite = folder.file("all.yaml", suite);
    let audited = |queries: usize, more: &str| {
        let fixed = format!("{:?} --suite {suite:?} --strong-sample off", bundled("plain.onnx"));
        audit(&words(&format!("{fixed} --max-queries {queries} {more}"))).unwrap()
    };
    let whole = audited(24, "");
    assert_eq!(audited(24, "--batch 3 --threads 1").corrupted, whole.corrupted);
    let fewer = audited(6, "");
    for one in &fewer.corrupted {
        let same = |c: &&audit::record::Corrupted| (&c.query, &c.corruption) == (&one.query, &one.corruption);
        assert_eq!(whole.corrupted.iter().find(same).unwrap_or(one), one);
    }
    for part in [1, 2] {
        let path = folder.join(&format!("{part}.json"));
        audited(24, &format!("--partition hash:{part}/2 -o {path:?}"));
    }
    run(&folder, words("merge 1.json 2.json -o whole.json")).ended(0);
    let merged = Report::load(&folder.join("whole.json")).unwrap();
    assert_eq!((merged.corrupted, merged.corruptions), (whole.corrupted, whole.corruptions));
    assert_eq!(CORRUPTIONS.len() * 5, merged.suite.corruptions.len() * 5);
}

#[test]
fn impossible_corruptions_are_refused() {
    let folder = Temp::new();
    let model = bundled_path("plain.onnx");
    let refused =
        |text: &str| audit(&[&model, "--suite", &folder.file("bad.yaml", text)]).unwrap_err().message;
    let es = "form: corrected\nattacks: [ES]\n";
    says(&refused(&format!("{es}corruptions: [bluur]\n")), &["line 3", "did you mean `blur`?"]);
    says(&refused(&format!("{es}corruptions: [blur, blur]\n")), &["line 3", "blur is listed twice"]);
    let candidates = refused("form: corrected\nattacks: [CA+]\ncorruptions: [blur]\n");
    says(&candidates, &["line 3", "add an attack on queries"]);
    let idle = audit(&[&model, "--fail-under", "corruption.r1=5"]).unwrap_err().message;
    says(&idle, &["corruption.r1", "suite robust doesn't measure"]);
}

/// The logarithm makes the embedding of an image NaN if its mean is above a limit, and all clean images are
/// below it. NaN has no rank.
#[test]
fn an_embedding_that_is_not_finite_is_refused() {
    let (classes, samples) = (6, 5);
    let images = Dataset::generated(7, classes, samples);
    let prep = Preparation::new(1, SIDE as usize, SIDE as usize);
    let mean = |i: usize| {
        let pixels = images.pixels(i, &prep).unwrap().data;
        pixels.iter().sum::<f32>() / pixels.len() as f32
    };
    let brightest = (0..classes * samples).map(mean).fold(0.0, f32::max);
    let mut nodes = trunk("image", "plain", "");
    nodes.extend([
        Node::new("GlobalAveragePool", &["image"], "pool"),
        Node::new("Flatten", &["pool"], "mean"),
        Node::new("Sub", &["limit", "mean"], "left"),
        Node::new("Log", &["left"], "log"),
        Node::new("Mul", &["log", "little"], "part"),
        Node::new("Add", &["plain", "part"], "embedding"),
    ]);
    let weights = trunk_weights(Weights::new(1), "", 1).floats("limit", &[1], &[brightest + 0.05]);
    let bench = Bench::new(&grey(nodes, weights.floats("little", &[1], &[0.01])), classes, samples, 1);
    let suite = "form: corrected\nattacks: [ES]\nsteps: 1\neps: 1/255\ncorruptions: [brightness]\n";
    let suite = bench.temp.file("bright.yaml", suite);
    let refused = bench.audit(&["--suite", &suite, "--strong-sample", "off"]).unwrap_err();
    assert_eq!(refused.exit, audit::Exit::Untrusted, "{refused}");
    says(&refused.message, &["brightness at strength", "of query `class", "not finite"]);
}
