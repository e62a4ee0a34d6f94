//! The script of the evidence refuses what was changed, whatever hashes the archive states.

use crate::common::{Temp, bundled, models, one_line, run, says, words};
use crate::report_fixture::python;
use audit::threat::OBJECTIVES;
use serde_json::{Value, json};

const VERIFY: &str = include_str!("../../src/feature/verify.py");

/// The script knows what every attack is measured by, if it can confirm that. An archive can't tell it.
#[test]
fn the_script_knows_every_measure() {
    for objective in OBJECTIVES {
        let start = format!("    \"{}\": (", objective.measure.name);
        let row = VERIFY.lines().find(|line| line.starts_with(&start)).unwrap_or_default();
        let attacks = row.rsplit('"').nth(1).unwrap_or_default();
        let known = attacks.split(' ').any(|code| code == objective.code);
        assert_eq!(known, objective.measure.confirmed, "{}: {row}", objective.code);
    }
}

/// The trials are run again as the command line says: a report that states other settings or results than it
/// leads to has no evidence.
#[test]
fn reports_that_were_changed_get_no_evidence() {
    let dir = models::stage(3, 4);
    dir.write("suite.yaml", "form: published\nattacks: [ES]\nsteps: 2\n");
    let line = "model.onnx --suite suite.yaml --data data --strong-sample off --max-queries 4 -q -o r.json";
    run(&dir, words(line)).ended(0);
    let report = dir.json("r.json");
    let refused = |exit: i32, why: &str, change: &dyn Fn(&mut Value)| {
        let mut changed = report.clone();
        change(&mut changed);
        dir.write("changed.json", changed.to_string());
        let ran = run(&dir, words("report changed.json --bundle e.zip")).ended(exit);
        says(&one_line(&ran.err), &[why]);
        assert!(!dir.join("e.zip").exists());
    };
    refused(2, "the report and its command line differ in eps: 0.75 and 0.3", &|report: &mut Value| {
        report["suite"]["eps"] = json!(0.75)
    });
    refused(2, "differ in seed: 9 and 0", &|report: &mut Value| report["seed"] = json!(9));
    refused(2, "differ in steps: 3 and 2", &|report: &mut Value| report["suite"]["steps"] = json!(3));
    refused(12, "ends differently from the report: loss_last ", &|report: &mut Value| {
        report["outcomes"][0]["loss_last"] = json!(9.5)
    });
    run(&dir, words("report r.json --bundle e.zip")).ended(0);
}

/// A forger may compute new hashes, but not leave out what speaks against the report.
#[test]
#[ignore = "needs Python with numpy, onnxruntime, PIL"]
fn forged_evidence_is_refused() {
    let folder = Temp::new();
    std::fs::copy(bundled("plain.onnx"), folder.join("net.onnx")).unwrap();
    run(&folder, words("images --out photos --size 40 --channels 1 --classes 8 --samples 6")).ended(0);
    folder.write("suite.yaml", "form: corrected\nattacks: [R1, GTM]\neps: 6/255\nspace: file\n");
    let line = "net.onnx --suite suite.yaml --data photos --max-queries 16 --no-cache -q -o r.json";
    run(&folder, words(line)).ended(0);
    let report = folder.json("r.json");
    let robust = report["scores"]["robust_r1"]["value"].as_f64().unwrap();
    assert!((1.0..99.0).contains(&robust), "{robust}");
    run(&folder, words("report r.json --bundle evidence.zip")).ended(0);

    let arguments = [folder.path().to_str().unwrap(), VERIFY, "outcomes"];
    let told = python("numpy, onnxruntime, PIL", include_str!("forged.py"), &arguments);
    let refused = [
        ("fewer_trials", "robust_r1 is not of the first queries of seed 0"),
        ("fewer_trials_than_written", "robust_r1 is not of the first queries of seed 0"),
        ("skipped_trials", "robust_r1 is not of the first queries of seed 0"),
        ("a_file_twice", "an image file is listed twice"),
        ("more_images", "roles and size of the gallery differ"),
        ("a_deep_image", "grey levels from the archive's image"),
        ("equal_embeddings", "trials are at a tie before the attack: nothing is confirmed"),
        ("no_score", "robust_r1 is missing, or has no trials"),
        ("a_renamed_search", "robust_r1 is missing, or has no trials"),
        ("another_value in scores", "robust_r1 is not that of its trials: value"),
        ("another_value in numbers", "robust_r1 is not that of its trials: value"),
        ("another_interval in scores", "robust_r1 is not that of its trials: interval"),
        ("another_interval in numbers", "robust_r1 is not that of its trials: interval"),
        ("another_queries in scores", "robust_r1 is not that of its trials: queries"),
        ("another_queries in numbers", "robust_r1 is not that of its trials: queries"),
        ("another_clean in scores", "robust_r1 is not that of its trials: clean"),
        ("another_eps in scores", "robust_r1 is not that of its trials: eps"),
        ("another_outcome", "True after the attack, where False to False is found"),
        ("missing_measures", "measures after the attack are missing"),
        ("fewer_masks", "trials or images are missing, or others are there"),
        ("another_attack", "an attack that this script doesn't know"),
        ("an_image_as_its_own_reference", "is no reference for it"),
        ("a_trial_twice", "a trial is there twice"),
        ("a_smaller_gallery", "roles and size of the gallery differ"),
        ("another_pooling", "pooling mean is not the report's"),
        ("a_missing_file", "it can't be verified: KeyError: 'attacked/000000.png'"),
        ("a_palette", "an image of mode P"),
        ("another_format", "it can't be verified: UnidentifiedImageError"),
        ("another_photograph", "grey levels from the archive's image"),
        ("compressed", "the files of the archive are larger than the archive"),
        ("no archive", "the archive is damaged"),
    ];
    for (what, why) in refused {
        let line = told.lines().find(|line| line.starts_with(&format!("{what}: refused: ")));
        says(line.unwrap_or_else(|| panic!("{what} is not refused: {told}")), &[why]);
    }
    let whole =
        |what: &str| told.lines().find(|line| line.starts_with(&format!("{what}: confirmed: "))).unwrap();
    says(whole("trials_of_a_list"), &["not confirmed: the choice of queries, every other number"]);
    says(whole("fewer_images"), &["47 image files are the report's; 47 were decoded", "1 others are there"]);
    // A query that any attack of the report breaks counts as broken.
    says(&told, &["a_weaker_search: confirmed: ", "without photographs: confirmed: "]);
    // What a report states can't look like a line of the script.
    says(&told, &["forged_lines: confirmed: ", "net.onnx\\u{a}  evidence sha256 0\\u{1b}[2K"]);
}
