//! `audit compare float.onnx int8.onnx`: two models on the same trials, and the attacks made on each measured
//! on the other.

use crate::common::transcript::Transcript;
use crate::common::{Temp, bundled, near, program, ran, run, says, words};
use audit::data::{BUILTIN_SEED, Dataset, Preparation};
use audit::judge::compare::Comparison;
use audit::judge::quantity::{Quantity, ROBUST};
use audit::record::Report;
use audit::{Exit, feature};
use std::path::{Path, PathBuf};

/// models/plain.onnx in 8 bits.
fn int8() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/precisions/plain-int8.onnx")
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().into()
}

/// 6 classes of 5 generated images, and the flags of small audits on them.
fn small(dir: &Temp) -> Vec<String> {
    of_suite(dir, "ers")
}

/// [`small`] with another suite.
fn of_suite(dir: &Temp, suite: &str) -> Vec<String> {
    let folder = dir.join("images");
    Dataset::generated(BUILTIN_SEED, 6, 5).export(&folder, &Preparation::new(1, 28, 28)).unwrap();
    let line = ["--suite", suite, "--steps", "4", "--eps", "12/255", "--seed", "3", "--data"];
    line.iter().map(|word| word.to_string()).chain([text(&folder)]).collect()
}

/// An audit without the strong search.
fn audit(model: &Path, small: &[String], more: &[&str]) -> Report {
    let words: Vec<&str> = small.iter().map(String::as_str).chain(more.iter().copied()).collect();
    crate::common::audit(&[&[text(model).as_str(), "--strong-sample", "off"], &words[..]].concat()).unwrap()
}

fn compare(models: [&Path; 2], small: &[String], more: &[&str]) -> audit::Result<Comparison> {
    let words: Vec<&str> = small.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let line = [&["audit", "compare", "-q", "--no-cache", "x.onnx", "y.onnx"], &words[..]].concat();
    let Some(audit::command::Command::Compare(args)) = crate::common::cli(&line).command else {
        panic!("another command")
    };
    let request = args.audits.request(models[0], &args.reports, &args.progress)?;
    feature::compare::run(models, &crate::common::here(request)).map(|(comparison, _)| comparison)
}

/// Four audits on the trials of the first: attacks on either model, measured on the first and on the second.
/// By the model that attacks were made on, and the one that they were measured on, as in the matrix.
fn separately(dir: &Temp, [first, second]: [&Path; 2], small: &[String]) -> [[Report; 2]; 2] {
    let trials = text(&dir.join("first.json"));
    let of_first = audit(first, small, &["-o", &trials]);
    let replayed =
        |model: &Path, more: &[&str]| audit(model, small, &[&["--trials", trials.as_str()], more].concat());
    let on_second = replayed(second, &["--surrogate", &text(first)]);
    let on_first = replayed(first, &["--surrogate", &text(second)]);
    [[of_first, on_second], [on_first, replayed(second, &[])]]
}

/// Each cell of the matrix equals an audit of its own: of each model, and with the other as `--surrogate`.
#[test]
fn the_matrix_is_what_four_audits_give() {
    let dir = Temp::new();
    let (small, float, int8) = (small(&dir), bundled("plain.onnx"), int8());
    let found = compare([&float, &int8], &small, &["--strong-sample", "4"]).unwrap();
    let crossed = found.crossed.as_ref().unwrap();

    let apart = separately(&dir, [&float, &int8], &small);
    let names = ["ers", "attack.ES:R", "attack.CA+", "attack.QA-", "attack.TMA", "attack.GTM"];
    for name in names {
        let metric = Quantity::find(name).unwrap();
        let row = crossed.transfer.iter().find(|row| row.metric == metric).unwrap();
        for (made, measured) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let (cell, report) = (&row.cells[made][measured], &apart[made][measured]);
            let expected = (metric.value(report), metric.row(report).interval);
            assert_eq!((cell.value, cell.interval), expected, "{name}");
            assert_eq!(cell.difference.is_some(), made != measured);
        }
        let change = row.cells[0][1].difference.unwrap();
        let value = |made: usize| row.cells[made][1].value.unwrap();
        assert!((change.value - (value(0) - value(1))).abs() < 1e-9, "{name}");
        assert!(change.interval.is_some(), "{name}");
        // The page's own rows are those of the two white-box audits, paired.
        let theirs = found.models[1].row(metric).unwrap();
        assert_eq!(theirs.value, metric.value(&apart[1][1]));
        assert!(theirs.difference.unwrap().interval.is_some());
    }
    assert!(found.models[0].row(ROBUST).is_some(), "the strong search ran on a sample");

    // The report says that quantised operators are passed straight through.
    let said = found.cautions.join("\n");
    says(&said, &["plain-int8.onnx: ", "as if nothing were rounded (straight-through estimator)"]);
    assert!(!said.contains("differ in"), "{said}");
    let shown = audit::feature::compare::render(&found, false);
    says(&shown, &["a → b: attacks made on a, measured on b", "cand. → base", "attack.ES:R"]);
    says(&shown, &["same image first", "218 kB"]);
    for (file, words) in [
        ("c.md", &["### Attacks of one on the other", "| attack.ES:R |", "95 %"][..]),
        ("c.html", &["What do attacks on one do to the other?", "cand. → cand."]),
        ("c.json", &["\"crossed\"", "\"same_first\"", "\"cells\""]),
    ] {
        let path = dir.join(file);
        audit::feature::compare::write(&found, &path).unwrap();
        says(&std::fs::read_to_string(path).unwrap(), words);
    }
}

/// Hubs, universal perturbations and decisions by a threshold: each cell equals an audit of its own.
#[test]
#[ignore = "slow"]
fn attacks_on_many_queries_and_on_pairs_are_measured_on_the_other_model() {
    let dir = Temp::new();
    let attacks = "form: corrected\nschedule: adaptive\nthreshold: far=0.05\n\
                   attacks: [HUB s=10, UAP, DODGE, IMPERSONATE, EVADE, COLLIDE]\n";
    let suite = text(&dir.write("many.yaml", attacks));
    let (small, float, int8) = (of_suite(&dir, &suite), bundled("plain.onnx"), int8());
    let found = compare([&float, &int8], &small, &["--strong-sample", "off"]).unwrap();
    let crossed = found.crossed.as_ref().unwrap();
    let apart = separately(&dir, [&float, &int8], &small);
    for name in ["HUB:10", "HUB:S", "UAP:R", "UAP:D", "DODGE", "IMPERSONATE", "EVADE", "COLLIDE"] {
        let metric = Quantity::find(&format!("attack.{name}")).unwrap();
        let row = crossed.transfer.iter().find(|row| row.metric == metric).expect(name);
        for (made, measured) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let expected = metric.value(&apart[made][measured]);
            assert_eq!(row.cells[made][measured].value, expected, "{name} {made} {measured}");
        }
        assert!(row.cells[0][1].difference.is_some(), "{name}");
    }
    // A change without an interval is neither better nor worse.
    let [[first, ..], ..] = apart;
    let mut other = first.clone();
    let benign = other.benign.as_mut().unwrap();
    benign.nmi = benign.nmi.map(|nmi| nmi / 2.0);
    let names = ["a", "b"].map(String::from).into();
    let two = audit::judge::compare::of_reports(names, &[first, other], None, false).unwrap();
    let row = two.models[1].row(Quantity::find("benign.nmi").unwrap()).unwrap();
    let change = row.difference.unwrap();
    assert!(change.value < -10.0 && change.interval.is_none() && row.direction == 0, "{row:?}");
    assert_eq!(row.word.text(), "no interval");
}

/// Foreign targets are the same points for both models. They don't count as images on which the models agree.
#[test]
fn foreign_targets_are_no_images_of_the_agreement() {
    let dir = Temp::new();
    let suite = text(&dir.write("tma.yaml", "form: corrected\nschedule: adaptive\nattacks: [TMA]\n"));
    let (mut small, float, int8) = (of_suite(&dir, &suite), bundled("plain.onnx"), int8());
    let without = compare([&float, &int8], &small, &["--strong-sample", "off"]).unwrap().crossed.unwrap();
    let mut rng = crate::common::Rng::new(5);
    let values: Vec<u8> = (0..12 * 128).flat_map(|_| rng.normal().to_le_bytes()).collect();
    let names: Vec<String> = (0..12).map(|i| format!("text {i}")).collect();
    dir.write("texts.csv", format!("id\n{}\n", names.join("\n")));
    let targets = dir.write("texts.npy", crate::common::npy("<f4", "(12, 128)", &values));
    small.extend(["--targets".into(), text(&targets)]);
    let with = compare([&float, &int8], &small, &["--strong-sample", "off"]).unwrap().crossed.unwrap();
    let [with_cosine, without_cosine] = [&with, &without].map(|c| c.agreement.cosine.unwrap());
    assert_eq!((with.agreement.images, with.agreement.queries), (30, 30));
    assert_eq!(
        (with_cosine.mean, with_cosine.lowest, with.agreement.same_first),
        (without_cosine.mean, without_cosine.lowest, without.agreement.same_first)
    );
    assert_ne!(with.transfer[0].cells[0][0].value, without.transfer[0].cells[0][0].value, "other targets");
}

/// The second audit can't begin, because a folder is at the path of its journal. The first one's trials are
/// kept.
#[test]
#[ignore = "slow"]
fn a_comparison_that_was_broken_off_goes_on() {
    let dir = Temp::new();
    let (small, float, int8) = (small(&dir), text(&bundled("plain.onnx")), text(&int8()));
    let run = |out: &str, more: &[&str]| {
        let fixed =
            format!("compare {float:?} {int8:?} --no-cache --strong-sample off --progress plain -o {out}");
        ran(program(&dir).args(words(&fixed)).args(&small).args(more))
    };
    std::fs::create_dir(dir.join("a.json.journal.2")).unwrap();
    let broken = run("a.json", &[]).ended(2);
    says(&broken.err, &["1 of 4: attacks on", "a.json.journal.2", "expected a file"]);
    assert!(dir.join("a.json.journal.1").is_file() && !dir.join("a.json").exists());
    std::fs::remove_dir(dir.join("a.json.journal.2")).unwrap();
    says(&run("a.json", &[]).err, &["finished trials", "--resume"]);
    let resumed = run("a.json", &["--resume"]).ended(0);
    says(&resumed.err, &["270 of 270 trials are done already", "4 of 4: attacks made on"]);
    run("b.json", &[]).ended(0);
    let lasting = |name: &str| {
        let mut value = dir.json(name);
        for cost in value["crossed"]["costs"].as_array_mut().unwrap() {
            cost.as_object_mut().unwrap().remove("image_steps_per_second");
        }
        value
    };
    assert_eq!(lasting("a.json"), lasting("b.json"));
    assert!(dir.names().iter().all(|name| !name.contains("journal")), "{:?}", dir.names());
}

/// precisions.py embeds the attacked images of an audit's evidence by the other model, in Python.
#[test]
#[ignore = "needs Python with onnxruntime, onnxconverter_common, PIL"]
fn attacked_images_say_the_same_in_python() {
    let dir = Temp::new();
    let (small, float, int8) = (small(&dir), bundled("plain.onnx"), int8());
    let half = dir.join("plain-fp16.onnx");
    let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/precisions.py");
    let script =
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')";
    let modules = "onnxruntime, onnxconverter_common, PIL";
    let python = |more: &[&str]| crate::report_fixture::python(modules, script, &[&[tool], more].concat());
    python(&["fp16", &text(&float), "-", &text(&half)]);
    std::fs::copy(int8.with_extension("yaml"), half.with_extension("yaml")).unwrap();
    let (json, zip) = (text(&dir.join("float.json")), text(&dir.join("evidence.zip")));
    let fixed = format!("{float:?} --strong-sample off -q --no-cache -o {json:?}");
    ran(program(&dir).args(words(&fixed)).args(&small)).ended(0);
    run(&dir, ["report", &json, "--bundle", &zip]).ended(0);
    for (other, tolerance) in [(&int8, 1e-4), (&half, 2e-3)] {
        let found = compare([&float, other], &small, &["--strong-sample", "off"]).unwrap();
        let crossed = found.crossed.as_ref().unwrap();
        let said = python(&["check", &zip, &text(&float), &text(other)]);
        let expected: serde_json::Value = serde_json::from_str(&said).unwrap();
        let cell = |name: &str| {
            let metric = Quantity::find(&format!("attack.{name}")).unwrap();
            crossed.transfer.iter().find(|row| row.metric == metric).unwrap().cells[0][1].value.unwrap()
        };
        let cosine = crossed.agreement.cosine.unwrap();
        for (name, found, tolerance) in [
            ("ES:R", cell("ES:R"), 1e-9),
            ("TMA", cell("TMA"), tolerance),
            ("mean", cosine.mean, tolerance),
            ("lowest", cosine.lowest, tolerance),
            ("same_first", crossed.agreement.same_first, 1e-9),
            ("r1_own", crossed.agreement.r1[0], 1e-9),
            ("r1_other", crossed.agreement.r1[1], 1e-9),
        ] {
            let expected = expected[name].as_f64().unwrap();
            near(found, expected, tolerance, &format!("{name} of {}", other.display()));
        }
        assert_eq!((crossed.agreement.images, crossed.agreement.queries), (30, 30));
    }
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let dir = Transcript::new(Temp::new());
    let small = small(&dir);
    let float = text(&bundled("plain.onnx"));
    let refused = |args: &[&str]| dir.note(&ran(program(&dir).arg("compare").args(args)).ended(2).err);
    dir.write("r.json", "{}");
    refused(&[&float, "r.json"]);
    refused(&[&float]);
    refused(&[&float, &float, &float]);
    refused(&["r.json", "r.json", "--data", "photos"]);
    refused(&[&float, &float, "--sort", "ars"]);
    refused(&[&float, &float, "--fail-under", "ars=3"]);
    for suite in ["strong", "hub", "faces", "threshold", "targets"] {
        refused(&[&float, &float, "--suite", suite]);
    }
    refused(&[&float, &float, "--suite", "corruptions"]);
    dir.write("files.yaml", "form: corrected\nattacks: [ES]\neps: 8/255\nspace: file\n");
    refused(&[&float, &float, "--suite", "files.yaml"]);
    refused(&["r.json", "r.json", "--paper", "CUB", "--all"]);
    refused(&[&float, &float, "-o", "page.csv"]);

    // Distances in another metric.
    let other = dir.join("other.onnx");
    std::fs::copy(bundled("plain.onnx"), &other).unwrap();
    let card = std::fs::read_to_string(int8().with_extension("yaml")).unwrap();
    dir.write("other.yaml", card.replace("normalized-euclidean", "euclidean"));
    let error = compare([&bundled("plain.onnx"), &other], &small, &[]).unwrap_err();
    assert_eq!(error.exit, Exit::Usage);
    dir.note(&error.message);
    insta::assert_snapshot!(dir.told());
}
