//! Foreign targets (`--targets`): aims and measures against NumPy (research/golden/golden_threats.py) and
//! ONNX Runtime in Python, and that targets are identified by name, not by row.

use crate::common::transcript::{Transcript, part};
use crate::common::{Temp, audit, bundled, bundled_path, finding, npy, numbers, rendered, run, words};
use crate::report_fixture::python;
use audit::columns::{self, Column};
use audit::judge::compare::mismatches;
use audit::random::Random;
use audit::record::{Form, Metric, Report};
use audit::report;
use audit::space::Gallery;
use audit::threat::objective::rank;
use audit::threat::{AttackContext, Loss, Objective, Trial, measure, select};
use ndarray::Array2;
use serde_json::{Value, json};

fn places(value: &Value) -> Vec<usize> {
    numbers(value).into_iter().map(|v| v as usize).collect()
}

fn matrix(value: &Value) -> Array2<f32> {
    let rows: Vec<Vec<f64>> = value.as_array().unwrap().iter().map(numbers).collect();
    Array2::from_shape_fn((rows.len(), rows[0].len()), |(i, k)| rows[i][k] as f32)
}

/// The gallery of the golden values: 90 images, then 30 targets.
fn context(golden: &Value) -> AttackContext {
    let ids = (0..90).map(|i| i.to_string()).collect();
    let names = (0..30).map(|i| format!("text {i}")).collect();
    let images = matrix(&golden["points"]);
    let gallery = Gallery::new(Metric::NormalizedEuclidean, images, places(&golden["labels"]), ids).unwrap();
    crate::common::context(gallery.with_targets(matrix(&golden["targets"]), names).unwrap())
}

fn unit(values: Vec<f64>) -> Vec<f32> {
    let length = values.iter().map(|v| v * v).sum::<f64>().sqrt();
    values.into_iter().map(|v| (v / length) as f32).collect()
}

fn loss_at(loss: &Loss, z: &[f32], gradient: &mut [f32]) -> f64 {
    match loss {
        Loss::Point(loss) => loss(z, false, gradient),
        _ => panic!("losses of foreign targets are functions of the point"),
    }
}

/// Ranks among the targets, cosines, hinges, and the targets that an image captures, against NumPy.
#[test]
fn measures_and_losses_agree_with_numpy() {
    let golden: Value = serde_json::from_str(include_str!("../golden/threats.json")).unwrap();
    let context = context(&golden);
    let gallery = &context.gallery;
    assert_eq!((gallery.len(), gallery.queries().len(), gallery.targets()), (90, 90, 90..120));
    for case in golden["foreign"].as_array().unwrap() {
        let of = |key: &str| case[key].as_f64().unwrap();
        let query = of("own") as usize;
        let trial = |code: &str, key: &str| {
            let targets = places(&case[key]).into_iter().map(|t| 90 + t).collect();
            Trial { objective: Objective::find(code).unwrap(), query, targets }
        };
        let z = unit(numbers(&case["point"]));
        let at = |code: &str, key: &str| measure(&context, Form::Corrected, &trial(code, key), &z);
        let near = |found: f64, key: &str| assert!((found - of(key)).abs() < 1e-6, "{found}: {case}");
        near(at("QA+", "aimed").rank.unwrap(), "rank");
        near(at("QA-", "aimed").rank.unwrap(), "rank");
        near(at("TMA", "aimed").cosine.unwrap(), "cosine");
        let captured = at("HUB", "sample").captured.unwrap();
        near(captured.share(1, |_| 1.0).unwrap(), "captured_1");
        near(captured.share(10, |_| 1.0).unwrap(), "captured_10");
        near(captured.sample[1], "sample_10");
        for (code, key) in [("QA+", "raise"), ("QA-", "lower")] {
            let trial = trial(code, "aimed");
            let loss = (trial.objective.loss)(&context, Form::Corrected, &trial);
            near(loss_at(&loss, &z, &mut [0.0; 5]), key);
            // Smooth ranks approach the rank.
            let smooth = rank::smooth(gallery, Form::Corrected, &trial, 1e-9);
            let missing = loss_at(&smooth, &z, &mut [0.0; 5]);
            let targets = trial.targets.len() as f64;
            let rank = if code == "QA+" { of("rank") } else { 30.0 - targets - of("rank") };
            // Items of equal distance, the targets themselves, are left out of the sum.
            assert!((missing * 30.0 - rank).abs() < targets + 1e-3, "{code}: {missing}, expected {rank}");
            // Away from ties the gradient is the slope of the loss.
            for k in 0..5 {
                let moved = |by: f32| {
                    let mut z = z.clone();
                    z[k] += by;
                    loss_at(&loss, &z, &mut [0.0; 5])
                };
                let mut gradient = [0.0; 5];
                loss_at(&loss, &z, &mut gradient);
                let slope = (moved(1e-3) - moved(-1e-3)) / 2e-3;
                assert!((slope - f64::from(gradient[k])).abs() < 2e-3, "{code}: {slope} {gradient:?}");
            }
        }
        let lower =
            select(&context, Objective::find("QA-").unwrap(), 1, Form::Corrected, 0, &[query]).unwrap();
        assert_eq!(lower.trials[0].targets, [90 + of("nearest") as usize]);
    }
}

/// 40 targets of the bundled nets' 128 dimensions, drawn from a stream.
fn targets() -> (Vec<String>, Vec<f32>) {
    let mut random = Random::seeded(5);
    let names = (0..40).map(|i| format!("a photo of {}", (i * 7) % 40)).collect();
    (names, (0..40 * 128).map(|_| random.normal()).collect())
}

fn parquet(folder: &Temp, name: &str, names: &[String], values: &[f32]) -> String {
    let ids = Column::Text(names.iter().cloned().map(Some).collect());
    let columns = [("id", ids), ("embedding", Column::Vectors(values, values.len() / names.len()))];
    folder.file(name, columns::write("targets", &columns).unwrap())
}

/// An audit of TMA and QA± on a few queries.
fn audited(folder: &Temp, targets: &str, flags: &str) -> audit::Result<Report> {
    let text =
        "form: corrected\nattacks: [TMA, QA+ m=2, QA-]\nschedule: adaptive\nsteps: 12\nmax_queries: 6\n";
    let fixed = format!("{:?} --suite {:?}", bundled("plain.onnx"), folder.file("aim.yaml", text));
    audit(&words(&format!("{fixed} --strong-sample off --targets {targets:?} {flags}")))
}

/// Clean queries and targets, with ONNX Runtime in Python: the cosine and the mean rank before the attack.
const PEER: &str = include_str!("foreign.py");

fn with_images() -> (Temp, String) {
    let folder = Temp::new();
    let data = folder.join("data");
    let images = audit::data::Dataset::generated(11, 12, 5);
    images.export(&data, &audit::data::Preparation::new(1, 28, 28)).unwrap();
    (folder, data.display().to_string())
}

/// A run from end to end: names in trials and formats, no scores, and an effect of the attack.
#[test]
fn queries_are_aimed_at_foreign_targets() {
    let (folder, data) = with_images();
    let folder = Transcript::new(folder);
    folder.note(&audited(&folder, "nowhere.npy", &format!("--data {data:?}")).unwrap_err().message);
    let (names, values) = targets();
    let file = parquet(&folder, "texts.parquet", &names, &values);
    let page = folder.join("page.html");
    let found = audited(&folder, &file, &format!("--data {data:?} -o {page:?}")).unwrap();
    let of = found.targets.as_ref().unwrap();
    assert_eq!((of.count, of.path.as_str(), found.outcomes.len()), (40, file.as_str(), 18));
    assert!(found.outcomes.iter().all(|o| o.targets.iter().all(|t| names.contains(t))));
    assert!(found.labels.keys().all(|id| !names.contains(id)));
    assert!(found.scores.ers.is_none() && found.scores.ars.is_none());
    let row = |name: &str| found.attacks.iter().find(|a| a.code == name).unwrap();
    assert!(row("TMA").after.unwrap() > row("TMA").before.unwrap() + 0.05);
    assert!(row("QA+").after < row("QA+").before && row("QA-").after > row("QA-").before);
    // A rank of 39 among 40 is 97.5 %.
    let worst = found.outcomes.iter().filter(|o| o.attack == "QA-").map(|o| o.before.rank.unwrap());
    assert!(worst.clone().all(|rank| rank == 0.0), "QA- aims at the nearest");
    let texts = [rendered(&found, "html"), rendered(&found, "md"), report::terminal::render(&found)];
    texts.iter().for_each(|text| folder.note(&part(text, "ttacks aim at", "instead of images")));
    insta::assert_snapshot!(folder.told());
}

#[test]
#[ignore = "needs Python with numpy, onnxruntime, PIL"]
fn distances_to_foreign_targets_agree_with_numpy() {
    let (folder, data) = with_images();
    let (names, values) = targets();
    let file = parquet(&folder, "texts.parquet", &names, &values);
    let found = audited(&folder, &file, &format!("--data {data:?}")).unwrap();
    let outcomes = found.outcomes.iter().map(|o| {
        let before = o.before.cosine.or(o.before.rank);
        json!({ "attack": o.attack, "query": o.query, "targets": o.targets, "before": before })
    });
    let [outcomes, names, values] =
        [outcomes.collect(), json!(names), json!(values)].map(|value: Value| value.to_string());
    let arguments = [&bundled_path("plain.onnx"), data.as_str(), &outcomes, &names, &values];
    assert_eq!(python("numpy, onnxruntime, PIL", PEER, &arguments), "agrees\n");
}

/// The doctor attacks the audit with targets by other means. It is unknown whether an image can come near a
/// target, so no attack is blamed for falling short with ε = 1: these targets are random directions, and no
/// image comes near them.
#[test]
fn the_doctor_looks_into_attacks_on_foreign_targets() {
    let folder = Transcript::new(Temp::new());
    let (names, values) = targets();
    let file = parquet(&folder, "texts.parquet", &names, &values);
    folder.write("aim.yaml", "form: corrected\nattacks: [TMA, QA+]\nsteps: 8\n");
    let model = bundled_path("plain.onnx");
    let flags = format!("--suite aim.yaml --max-queries 3 --targets {file:?} -q -o findings.json");
    let doctor = |more: &str| run(&folder, words(&format!("doctor {model:?} {flags} {more}")));
    let found = doctor("");
    let findings = folder.json("findings.json");
    let unbounded = finding(&findings, "unbounded");
    assert_eq!(unbounded["severity"], "info", "{}{}", found.out, found.err);
    folder.note(unbounded["found"].as_str().unwrap());
    folder.note(&doctor(&format!("--surrogate {model:?}")).ended(2).err);
    insta::assert_snapshot!(folder.told());
}

/// The order of rows and the format of the file don't matter; other embeddings are another run; trials are
/// replayed by name.
#[test]
#[ignore = "slow"]
fn names_say_what_a_target_is() {
    let folder = Transcript::new(Temp::new());
    let (names, values) = targets();
    let first = parquet(&folder, "a.parquet", &names, &values);
    let whole = audited(&folder, &first, "").unwrap();
    let backwards: Vec<String> = names.iter().rev().cloned().collect();
    let turned: Vec<f32> = values.chunks(128).rev().flatten().copied().collect();
    let bytes: Vec<u8> = turned.iter().flat_map(|v| v.to_le_bytes()).collect();
    let array = folder.file("b.npy", npy("<f4", "(40, 128)", &bytes));
    folder.write("b.csv", format!("id\n{}\n", backwards.join("\n")));
    let same = audited(&folder, &array, "--batch 3 --threads 1").unwrap();
    assert_eq!((&same.outcomes, &same.trials), (&whole.outcomes, &whole.trials));
    let sums = [&whole, &same].map(|r| r.targets.as_ref().unwrap().sha256.clone());
    assert_eq!(sums[0], sums[1]);
    let swapped = parquet(&folder, "c.parquet", &backwards, &values);
    let other = audited(&folder, &swapped, "").unwrap();
    assert!(mismatches(&whole, &other).join("; ").contains("targets of another kind: 40 of"));
    // A report's trials are replayed with the same targets, and refused without them.
    let saved = folder.file("saved.json", serde_json::to_string(&whole).unwrap());
    let again = audited(&folder, &first, &format!("--trials {saved:?}")).unwrap();
    assert!(again.outcomes.len() == 18 && again.outcomes.iter().all(|o| whole.outcomes.contains(o)));
    let suite = folder.join("aim.yaml");
    let without = format!("{:?} --suite {suite:?}", bundled("plain.onnx"));
    folder.note(&audit(&words(&format!("{without} --trials {saved:?}"))).unwrap_err().message);
    let images = audit(&words(&format!("{without} --strong-sample off"))).unwrap();
    let images = folder.file("images.json", serde_json::to_string(&images).unwrap());
    folder.note(&audited(&folder, &first, &format!("--trials {images:?}")).unwrap_err().message);
    insta::assert_snapshot!(folder.told());
}

/// A hub for foreign queries: crafted on some targets, measured on the others.
#[test]
fn hubs_capture_foreign_queries() {
    let folder = Transcript::new(Temp::new());
    let (names, values) = targets();
    let file = parquet(&folder, "texts.parquet", &names, &values);
    let suite = folder.file("hub.yaml", "form: corrected\nattacks: [HUB s=10]\nmax_queries: 2\neffort: 1\n");
    let line = format!("{:?} --suite {suite:?} --targets {file:?}", bundled("plain.onnx"));
    let page = folder.join("page.html");
    let found = audit(&words(&format!("{line} --strong-sample off -o {page:?}"))).unwrap();
    assert_eq!(found.hub.as_ref().unwrap().queries, 40);
    for o in &found.outcomes {
        let captured = o.after.captured.as_ref().unwrap();
        assert_eq!((o.targets.len(), captured.left_out.len(), captured.queries), (10, 10, 40));
        assert!(o.targets.iter().all(|t| names.contains(t)));
    }
    let row = found.attacks.iter().find(|a| a.code == "HUB:S").unwrap();
    assert!(row.after > row.before, "the attack works on its sample");
    folder.note(&audit(&words(&format!("{line} --hub-class class00"))).unwrap_err().message);
    folder.write("report.json", serde_json::to_string(&found).unwrap());
    folder.note(&run(&folder, words("report report.json --bundle e.zip")).ended(2).err);
    insta::assert_snapshot!(folder.told());
}

/// Every error has the file, the row and the next step.
#[test]
fn files_of_targets_are_checked() {
    let folder = Transcript::new(Temp::new());
    let (names, mut values) = targets();
    let refused = |file: &str, flags: &str| match audited(&folder, file, flags) {
        Ok(_) => panic!("{file} {flags} is accepted"),
        Err(error) => folder.note(&error.message),
    };
    refused(&parquet(&folder, "short.parquet", &names, &values[..40 * 7]), "");
    let mut twice = names.clone();
    twice[4] = twice[1].clone();
    refused(&parquet(&folder, "twice.parquet", &twice, &values), "");
    values[3 * 128] = f32::NAN;
    refused(&parquet(&folder, "nan.parquet", &names, &values), "");
    values[3 * 128..4 * 128].fill(0.0);
    refused(&parquet(&folder, "zero.parquet", &names, &values), "");
    values[3 * 128] = 1.0;
    let good = parquet(&folder, "good.parquet", &names, &values);
    let bare = folder.file("bare.npy", npy("<f4", "(2, 128)", &[0; 2 * 128 * 4]));
    refused(&bare, "");
    folder.write("bare.csv", "id\none\n");
    refused(&bare, "");
    refused("texts.txt", "");
    let model = bundled_path("hardened.onnx");
    let idle = audit(&[&model, "--suite", "universal", "--targets", &good]).unwrap_err().message;
    folder.note(&idle);
    refused(&good, &format!("--surrogate {model:?}"));
    refused(&parquet(&folder, "one.parquet", &names[..1], &values[..128]), "");
    insta::assert_snapshot!(folder.told());
}
