//! Threats beyond the published suites, as users meet them: perturbations bounded by a length, and within a
//! mask or a patch.

use crate::common::transcript::{Transcript, part};
use crate::common::{
    Temp, as_json, audit, bundled, bundled_path, finding, numbers, on_terminal, one_line, rendered, run,
    says, words,
};
use audit::judge::compare::mismatches;
use audit::record::Report;
use audit::record::{Form, Metric};
use audit::report;
use audit::space::Gallery;
use audit::threat::{AttackContext, ContextSettings, Objective, Trial, measure};
use ndarray::Array2;
use serde_json::Value;

/// An audit of the bundled net with a suite of three attacks, few queries and few steps, and further flags.
fn audited(folder: &Temp, more: &str) -> audit::Result<Report> {
    let suite = folder.file("three.yaml", "form: corrected\nattacks: [CA+, ES, LTM]\n");
    let fixed = format!("{:?} --suite {suite:?}", bundled("plain.onnx"));
    audit(&words(&format!("{fixed} --max-queries 4 --strong-sample off --steps 8 {more}")))
}

/// A mask of the bundled nets' input, 28 × 28, whose upper half is white.
fn half(folder: &Temp) -> String {
    let path = folder.join("half.png");
    let mask = image::GrayImage::from_fn(28, 28, |_, y| image::Luma([if y < 14 { 255 } else { 0 }]));
    mask.save(&path).unwrap();
    path.to_str().unwrap().into()
}

/// Every format that names ε also names its bounds, and reports under other bounds don't compare.
#[test]
fn reports_say_what_bounds_perturbations() {
    let folder = Temp::new();
    let mask = half(&folder);
    let usual = audited(&folder, "").unwrap();
    let length = audited(&folder, "--norm l2 --eps 2.0").unwrap();
    let within = audited(&folder, &format!("--mask {mask:?}")).unwrap();
    let patch = audited(&folder, "--patch 0.1 --norm l2 --eps 1.5").unwrap();
    assert_eq!((usual.suite.norm.as_str(), &usual.suite.mask), ("linf", &None));
    assert_eq!((length.suite.norm.as_str(), length.suite.eps, length.suite.alpha), ("l2", 2.0, 0.625));
    assert!(length.outcomes.iter().all(|o| o.size.unwrap() <= 2.0001) && length.outcomes.len() == 12);
    assert!(length.outcomes.iter().any(|o| o.size.unwrap() > 1.9), "ε is used");
    let found = within.suite.mask.as_ref().unwrap();
    assert_eq!((within.suite.eps, found.share, found.path.as_deref()), (1.0, 0.5, Some(mask.as_str())));
    assert!(within.outcomes.iter().any(|o| o.linf > 0.9), "ε is 1 inside");
    assert_eq!(patch.suite.mask.as_ref().unwrap().path, None);
    for (found, bounds) in [
        (&length, "2.00000 (l2)"),
        (&within, &format!("1.00000 (255/255) within the mask {mask} (50.0 % of the area)")),
        (&patch, "1.50000 (l2) within a patch of 10.0 % of the area, at a place drawn for each query"),
    ] {
        says(&one_line(&report::terminal::render(found)), &[bounds]);
        for extension in ["html", "md"] {
            says(&one_line(&rendered(found, extension)), &[bounds]);
        }
        assert!(!rendered(found, "cdx.json").contains(" in l2"));
    }
    for (i, a) in [&usual, &length, &within, &patch].iter().enumerate() {
        for b in [&usual, &length, &within, &patch].iter().skip(i + 1) {
            let differs = mismatches(a, b).join("; ");
            assert!(differs.contains("norm: ") || differs.contains("mask: "), "{differs}");
        }
    }
}

/// On 16 of these 40 queries an attack in PyTorch evaded the threshold: PGD with momentum in a ball that
/// shrinks to ε (2026-11-29; `research/tools/peer_goals.py` makes the same attack, on images of files, whose
/// pairs and threshold differ). The search has other random starts, and may miss some of the 16. It evaded on
/// 8 while its random starts stayed in the ball.
#[test]
#[ignore = "slow"]
fn evasion_in_the_euclidean_ball_keeps_up_with_pytorch() {
    let folder = Temp::new();
    let suite =
        folder.file("evade.yaml", "form: corrected\nattacks: [EVADE]\neffort: 1\nthreshold: far=0.02\n");
    let flags = "--norm l2 --eps 1 --strong-sample off --max-queries 40";
    let found = audit(&words(&format!("{:?} --suite {suite:?} {flags}", bundled("hardened.onnx")))).unwrap();
    assert_eq!(found.outcomes.len(), 40);
    let evaded = found.outcomes.iter().filter(|o| o.after.accepted == Some(false)).count();
    assert!(evaded >= 13, "{evaded} of 40");
}

/// The strong search and the doctor keep to length and mask too: the runner refuses an image outside its
/// bounds, and the doctor's plans widen ε up to the largest distance between two images, √784 = 28.
#[test]
fn the_strong_search_and_the_doctor_keep_to_the_bounds() {
    let folder = Temp::new();
    let mask = half(&folder);
    let model = bundled_path("plain.onnx");
    let strong = folder.file("strong.yaml", "form: corrected\nattacks: [QA+, R1]\neffort: 1\npatch: 0.05\n");
    let found = audit(&words(&format!("{model:?} --suite {strong:?} --max-queries 1"))).unwrap();
    assert!(found.outcomes.iter().all(|o| o.members.is_some()));
    assert_eq!((found.suite.eps, found.outcomes.len()), (1.0, 2));
    folder.write("one.yaml", "form: corrected\nattacks: [ES]\nnorm: l2\neps: 1.5\nmask: half.png\n");
    assert!(mask.ends_with("half.png"), "the path in a suite is relative to the suite");
    let flags = "--suite one.yaml --max-queries 12 --steps 10 -q -o findings.json";
    let found = run(&folder, words(&format!("doctor {model:?} {flags}")));
    let findings = folder.json("findings.json");
    says(&one_line(&found.out), &["ε 1.50000 (l2) within the mask"]);
    for (check, words) in [("unbounded", "with ε = 28 and 40 steps"), ("step-size", " ε/10: ")] {
        says(finding(&findings, check)["found"].as_str().unwrap(), &[words]);
    }
    assert!(!findings["findings"].to_string().contains("/255"), "{findings}");
}

/// The check of the evidence shows where images changed.
#[test]
fn evidence_holds_the_masks() {
    let folder = Temp::new();
    folder.write("es.yaml", "form: corrected\nattacks: [ES]\npatch: 0.2\n");
    let flags = "-q --suite es.yaml --max-queries 3 --steps 4 --strong-sample off -o report.json";
    run(&folder, words(&format!("{:?} {flags}", bundled("plain.onnx")))).ended(0);
    run(&folder, words("report report.json --bundle evidence.zip")).ended(0);
    let bytes = std::fs::read(folder.join("evidence.zip")).unwrap();
    let names = |name: &str| bytes.windows(name.len()).filter(|w| *w == name.as_bytes()).count();
    assert!(names("masks/000002.png") > 0 && names("masks/000003.png") == 0);
}

/// Steps keep their ratio to ε, and reports say so. A step that the user states stays, unless it leaves the
/// ball.
#[test]
fn the_step_size_follows_eps() {
    let folder = Transcript::new(Temp::new());
    let small = audited(&folder, "--eps 1/255").unwrap();
    let from = small.suite.alpha_scaled_from.unwrap();
    let near = |a: f32, b: f32| (a / b - 1.0).abs() < 1e-5;
    assert!(near(from.alpha, 3.0 / 255.0) && near(from.eps, 77.0 / 255.0), "{from:?}");
    assert!(near(small.suite.alpha, 3.0 / 77.0 / 255.0), "{}", small.suite.alpha);
    let scaled = "α 0.00015, 8 steps, α in proportion to ε (0.01176 at 0.30196)";
    says(&on_terminal(&small, 300), &[scaled]);
    says(&rendered(&small, "html"), &[scaled]);
    assert!(as_json(&small, "json")["suite"]["alpha_scaled_from"]["eps"].is_number());
    // At the protocol's ε there is no note, and no difference.
    for eps in ["", "--eps 77/255"] {
        let usual = audited(&folder, eps).unwrap();
        assert_eq!((usual.suite.alpha, usual.suite.alpha_scaled_from), (3.0 / 255.0, None));
        assert!(!rendered(&usual, "json").contains("alpha_scaled_from"));
    }
    // The ratio is the same wherever it comes from.
    let stated = audited(&folder, &format!("--eps 1/255 --alpha {}", small.suite.alpha)).unwrap();
    assert_eq!((&stated.outcomes, stated.suite.alpha_scaled_from), (&small.outcomes, None));
    let long = audited(&folder, "--eps 1/255 --alpha 3/255").unwrap_err();
    assert_eq!(long.exit, audit::Exit::Usage);
    folder.note(&long.message);
    folder.note(&audited(&folder, "--norm l2 --eps 1 --alpha 2").unwrap_err().message);
    insta::assert_snapshot!(folder.told());
}

/// Impossible combinations are refused by name, with the next step.
#[test]
fn impossible_bounds_are_refused() {
    let folder = Transcript::new(Temp::new());
    let mask = half(&folder);
    let refused = |more: &str| folder.note(&audited(&folder, more).unwrap_err().message);
    for flags in ["--norm l2", "--norm l1", "--patch 2", "--mask nowhere.png"] {
        refused(flags);
    }
    let model = bundled_path("plain.onnx");
    refused(&format!("--mask {model:?}"));
    let small = folder.join("small.png");
    image::GrayImage::from_pixel(14, 28, image::Luma([255])).save(&small).unwrap();
    refused(&format!("--mask {small:?}"));
    let both = run(&folder, ["model.onnx", "--mask", &mask, "--patch", "0.1"]).ended(2);
    folder.note(&both.err);
    // A suite's ε is a size in its own norm.
    folder.note(&audit(&[&model, "--suite", "adml", "--norm", "l2"]).unwrap_err().message);
    insta::assert_snapshot!(folder.told());
}

/// The queries that a point captures agree with NumPy's distances (research/golden/golden_threats.py).
#[test]
fn captured_shares_agree_with_numpy() {
    let golden: Value = serde_json::from_str(include_str!("../golden/threats.json")).unwrap();
    let places = |value: &Value| -> Vec<usize> { numbers(value).into_iter().map(|v| v as usize).collect() };
    let rows: Vec<f32> =
        golden["points"].as_array().unwrap().iter().flat_map(numbers).map(|v| v as f32).collect();
    let context = |class: &Value| {
        let raw = Array2::from_shape_vec((90, 5), rows.clone()).unwrap();
        let ids = (0..90).map(|i| i.to_string()).collect();
        let gallery = Gallery::new(Metric::NormalizedEuclidean, raw, places(&golden["labels"]), ids).unwrap();
        let hub_class = class.as_u64().map(|class| class as usize);
        let settings = ContextSettings { hub_class, ..Default::default() };
        AttackContext::new(gallery, &[Objective::find("HUB").unwrap()], settings).unwrap()
    };
    for case in golden["cases"].as_array().unwrap() {
        let context = context(&case["class"]);
        let query = case["own"].as_u64().unwrap() as usize;
        let trial =
            Trial { objective: Objective::find("HUB").unwrap(), query, targets: places(&case["sample"]) };
        let mut z: Vec<f32> = numbers(&case["point"]).into_iter().map(|v| v as f32).collect();
        let length = z.iter().map(|v| f64::from(v * v)).sum::<f64>().sqrt();
        z.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
        let found = measure(&context, Form::Corrected, &trial, &z).captured.unwrap();
        assert_eq!((found.queries - found.left_out.len()) as u64, case["held_out"].as_u64().unwrap());
        for (share, name) in [
            (found.share(1, |_| 1.0).unwrap(), "captured_1"),
            (found.share(10, |_| 1.0).unwrap(), "captured_10"),
            (found.sample[0], "sample_1"),
            (found.sample[1], "sample_10"),
        ] {
            let expected = case[name].as_f64().unwrap();
            assert!((share - expected).abs() < 1e-9, "{name}: {share}, expected {expected} of {case}");
        }
    }
    for case in golden["clean"].as_array().unwrap() {
        let context = context(&case["class"]);
        for (k, expected) in [1, 10].into_iter().zip(numbers(&case["best"])) {
            let best = context.heads.as_ref().unwrap().best(&context.gallery, k);
            assert!((best - expected).abs() < 1e-9, "{best}, expected {expected} of {case}");
        }
    }
}

/// A hub from end to end: its sample is disjoint from the queries that it is measured on, and reports, gate
/// and comparison have its numbers.
#[test]
#[ignore = "slow"]
fn hubs_are_measured_on_queries_that_they_were_not_crafted_on() {
    let folder = Transcript::new(Temp::new());
    let model = bundled_path("plain.onnx");
    let suite = folder.file("hubs.yaml", "form: corrected\nattacks: [HUB s=40]\nmax_queries: 2\neffort: 1\n");
    let args = [model.as_str(), "--suite", &suite, "--strong-sample", "off"];
    let run = |more: &[&str]| audit(&[&args, more].concat());
    let found = run(&["--fail-over", "attack.HUB:10=100"]).unwrap();
    let hub = found.hub.as_ref().unwrap();
    assert_eq!((hub.queries, hub.sample, found.outcomes.len()), (960, 40, 2));
    assert!(hub.best_clean[0] > 0.0 && hub.best_clean[0] < hub.best_clean[1] && hub.best_clean[1] < 20.0);
    for o in &found.outcomes {
        let captured = o.after.captured.as_ref().unwrap();
        // The sample and the image itself.
        assert_eq!((o.targets.len(), captured.left_out.len(), captured.queries), (40, 41, 960));
        assert!(!o.targets.contains(&o.query));
        assert!(captured.first.iter().all(|(place, _)| !captured.left_out.contains(place)));
    }
    let row = |name: &str| found.attacks.iter().find(|a| a.code == name).unwrap();
    let (first, ten) = (row("HUB:1"), row("HUB:10"));
    assert!(first.after <= ten.after && ten.before.unwrap() < 100.0 * 10.0 / 900.0 + 2.0);
    let (low, high) = ten.after_interval.unwrap();
    assert!(low <= ten.after.unwrap() && ten.after.unwrap() <= high && low < high, "{low} {high}");
    assert!(row("HUB:S").after > row("HUB:S").before, "the attack works on its sample");
    assert_eq!(found.gate.as_ref().unwrap().checks[0].metric, "attack.HUB:10");
    for extension in ["html", "md"] {
        let text = rendered(&found, extension);
        says(&text, &["HUB:10"]);
        folder.note(&part(&text, "ubs: 2 images", "captures by chance"));
    }
    says(&report::terminal::render(&found), &["HUB:1"]);
    // Queries of one class: its images are no candidates, and the run differs from that of all queries.
    let class = found.labels.values().next().unwrap().clone();
    let of_class = run(&["--hub-class", &class]).unwrap();
    assert!(of_class.hub.as_ref().unwrap().queries <= 20);
    assert!(of_class.outcomes.iter().all(|o| o.targets.iter().all(|t| of_class.labels[t] == class)));
    assert!(of_class.outcomes.iter().all(|o| of_class.labels[&o.query] != class));
    assert!(mismatches(&found, &of_class).join("; ").contains("hub class: all and "));
    folder.note(&run(&["--hub-class", "nobody"]).unwrap_err().message);
    folder.note(&audit(&[&model, "--hub-class", &class]).unwrap_err().message);
    insta::assert_snapshot!(folder.told());
}

/// A universal perturbation from end to end. A part of the run crafts the same perturbations.
#[test]
fn a_universal_perturbation_is_measured_on_the_queries_that_are_left() {
    let folder = Transcript::new(Temp::new());
    let model = bundled_path("plain.onnx");
    let suite = folder.file("all.yaml", "form: corrected\nattacks: [UAP]\nschedule: adaptive\nsteps: 5\n");
    let args = [model.as_str(), "--suite", &suite, "--strong-sample", "off"];
    let run = |more: &[&str]| audit(&[&args, more].concat());
    let found = run(&["--fail-under", "attack.UAP:R=0"]).unwrap();
    let of = found.universal.unwrap();
    assert_eq!((of.perturbations, of.sample), (4, 100));
    assert_eq!((found.outcomes.len(), found.skipped.len()), (560, 400));
    assert!(found.skipped.iter().all(|s| s.why == "a perturbation is crafted on it"));
    let row = |name: &str| found.attacks.iter().find(|a| a.code == name).unwrap();
    assert!(row("UAP:R").after < row("UAP:R").before && row("UAP:D").after.unwrap() > 0.1);
    assert!(row("UAP:R").after_interval.is_some());
    assert_eq!(found.gate.as_ref().unwrap().checks[0].metric, "attack.UAP:R");
    for extension in ["html", "md"] {
        let text = rendered(&found, extension);
        says(&text, &["UAP:R"]);
        folder.note(&part(&text, "niversal perturbations: ", "under one of them"));
    }
    let part = run(&["--partition", "hash:1/4"]).unwrap();
    assert!(part.outcomes.len() > 80 && part.outcomes.len() < 200);
    for o in &part.outcomes {
        assert_eq!(Some(o), found.outcomes.iter().find(|whole| whole.query == o.query));
    }
    let strong = folder.file("strong.yaml", "form: corrected\nattacks: [UAP]\neffort: 1\n");
    folder.note(&audit(&[&model, "--suite", &strong]).unwrap_err().message);
    insta::assert_snapshot!(folder.told());
}
