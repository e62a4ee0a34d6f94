//! Files beside the model: suites, reports, trials, journals, pipes, and those of a demo.

use super::*;

/// A pipe that nobody writes to and a device that never ends: each would stop the program for ever.
#[cfg(unix)]
#[test]
fn pipes_and_devices_are_not_read() {
    let dir = stage();
    let made = Command::new("mkfifo").arg(dir.join("pipe")).arg(dir.join("data/class00/pipe.png")).status();
    assert!(made.unwrap().success());
    let with = |args: &[&str]| {
        let args = [&["model.onnx", "-q", "--suite", "smoke", "--max-queries", "3"], args].concat();
        dir.refused(&args, USAGE);
    };
    for path in ["pipe", "/dev/zero"] {
        with(&["--card", path]);
        with(&["--trials", path]);
        with(&["--baseline", path]);
        dir.refused(&[path, "-q"], USAGE);
        dir.refused(&["gate", path, "--fail-under", "ars=1"], USAGE);
        dir.refused(&["report", path], USAGE);
        let data = ["model.onnx", "-q", "--data", path, "--layout", "csv"];
        dir.refused(&data, USAGE);
    }
    std::os::unix::fs::symlink("/dev/zero", dir.join("zero.yaml")).unwrap();
    dir.refused(&["model.onnx", "-q", "--suite", "zero.yaml"], USAGE);
    std::os::unix::fs::symlink("/dev/zero", dir.join("zero.npy")).unwrap();
    with(&["--data", "data", "--gallery", "zero.npy"]);

    // Among images they are left out like damaged ones.
    let noted = |of: &str| dir.note(&finding(&dir, of, "unreadable-images"));
    works(&dir, "model.onnx", &["-o", "smoke.json"]);
    noted("smoke.json");
    // So are they by a suite that looks at the sizes of files first.
    let robust = words("model.onnx -q --suite robust --max-queries 3 --data data -o robust.json");
    run(&dir, robust).ended(0);
    noted("robust.json");
    let mut rows = "path,label\n/dev/zero,class00\n".to_string();
    for class in 0..5 {
        rows += &(0..4).map(|i| format!("data/class{class:02}/{i:02}.png,c{class}\n")).collect::<String>();
    }
    dir.write("rows.csv", rows);
    let line = "model.onnx -q --suite smoke --max-queries 3 --data rows.csv -o rows.json";
    run(&dir, words(line)).ended(0);
    noted("rows.json");
    insta::assert_snapshot!(dir.told());
}

#[test]
fn mistakes_in_a_suite_file_are_located_and_files_have_a_largest_size() {
    let dir = stage();
    for keys in ["attacks: [ES]\nmax_query: 5", "attacks:\n  - ES\n  - XYZ", "attacks: [ES]\neps: 3"] {
        dir.write("mine.yaml", format!("form: published\n{keys}\n"));
        dir.refused(&words("model.onnx --data data --suite mine.yaml"), USAGE);
    }
    dir.refused(&words("model.onnx --suite arss"), USAGE);
    std::fs::File::create(dir.join("big.yaml")).unwrap().set_len(20 << 20).unwrap();
    dir.refused(&["model.onnx", "-q", "--card", "big.yaml"], USAGE);
    dir.refused(&["model.onnx", "-q", "--suite", "big.yaml"], USAGE);
    dir.write("mine.yaml", "form: published\nattacks: [ES]\nmax_queries: 3\nsteps: 2\n");
    let ran = run(&dir, words("model.onnx --data data --suite mine.yaml --strong-sample off")).ended(0);
    says(&ran.out, &["suite mine"]);
    insta::assert_snapshot!(dir.told());
}

/// The model doesn't exist: an error about the report's path shows that the path is checked first.
#[test]
fn a_report_that_cannot_be_written_is_found_before_the_work() {
    let dir = stage();
    std::fs::create_dir(dir.join("folder.json")).unwrap();
    for path in ["missing/report.json", "model.onnx/report.json", "folder.json", "report.docx", "report"] {
        dir.refused(&["nowhere.onnx", "-o", path], USAGE);
        // A good path beside the bad one leaves no file either.
        dir.refused(&["nowhere.onnx", "-o", "good.json", "-o", path], USAGE);
    }
    insta::assert_snapshot!(dir.told());
}

/// The journal is removed in the end, and two reports at one path would overwrite each other.
#[test]
fn a_file_has_one_purpose() {
    let dir = stage();
    for args in [
        &["-o", "r.json", "--journal", "r.json"][..],
        &["-o", "r.json", "-o", "./r.json"],
        &["-o", "r.html", "--save-baseline", "r.html"],
    ] {
        dir.refused(&[&["nowhere.onnx"], args].concat(), USAGE);
    }
    // A file of the user's is not taken for a journal.
    let sum = format!("{}  photos.tar", "ab".repeat(32));
    dir.write("sum.txt", &sum);
    dir.refused(&["model.onnx", "-q", "--data", "data", "--journal", "sum.txt"], USAGE);
    assert_eq!(dir.text("sum.txt"), sum);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_failed_audit_leaves_an_earlier_report_as_it_was() {
    let dir = stage();
    dir.write("report.json", "earlier");
    dir.refused(&["nowhere.onnx", "-q", "-o", "report.json"], USAGE);
    assert_eq!(dir.text("report.json"), "earlier");
    works(&dir, "model.onnx", &["-o", "report.json"]);
    assert_eq!(dir.json("report.json")["schema_version"], 1);
    assert_eq!(dir.names(), ["data", "model.onnx", "report.json"]);
    insta::assert_snapshot!(dir.told());
}

/// The keys that issue 2 names, and the values that the command line fixes.
#[test]
fn the_report_has_every_key() {
    let dir = stage();
    works(&dir, "model.onnx", &["-o", "report.json", "--seed", "11"]);
    let report = dir.json("report.json");
    let has = |at: &str, keys: &str| {
        let value = report.pointer(at).unwrap_or_else(|| panic!("no {at}"));
        for key in keys.split_whitespace() {
            assert!(value.get(key).is_some(), "no {key} in {at}");
        }
    };
    has("", "schema_version tool model data suite seed benign attacks scores trials warnings timing");
    has("/model", "path sha256 inputs output metric");
    has("/data", "source images classes sha256");
    has("/suite", "name form");
    has("/benign", "r1 r2 map map_at_r nmi");
    has("/scores/ers", "value");
    has("/scores/ars", "value table");
    has("/trials", "protocol form metric attacks");
    let codes: Vec<&str> =
        report["attacks"].as_array().unwrap().iter().map(|a| a["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["CA+", "CA-", "QA+", "QA-", "TMA", "ES:D", "ES:R", "LTM", "GTM", "GTT"]);
    for i in 0..codes.len() {
        has(&format!("/attacks/{i}"), "code form queries skipped before after ers_term resistance");
        has(&format!("/attacks/{i}/resistance"), "per_trial table");
    }
    let warnings = report["warnings"].as_array().unwrap();
    assert!(!warnings.is_empty());
    for i in 0..warnings.len() {
        has(&format!("/warnings/{i}"), "id severity text");
    }
    assert_eq!(report["seed"], 11);
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["tool"]["name"], "audit");
    assert_eq!((&report["data"]["images"], &report["data"]["classes"]), (&20.into(), &5.into()));
    assert_eq!(report["model"]["metric"], "normalized-euclidean");
    assert_eq!(report["model"]["output"], "embedding");
    assert_eq!(report["model"]["inputs"][0], "image [batch, 1, 12, 12]");
    let sha = audit::files::hex(&<sha2::Sha256 as sha2::Digest>::digest(small().encode()));
    assert_eq!(report["model"]["sha256"], sha.as_str());
}

#[test]
fn trials_of_something_else_are_refused() {
    let dir = stage();
    works(&dir, "model.onnx", &["-o", "report.json"]);
    let replay_on = |data: &str, extra: &[&str]| {
        let args = ["model.onnx", "-q", "--data", data, "--suite", "smoke", "--trials", "report.json"];
        dir.refused(&[&args[..], extra].concat(), USAGE);
    };
    replay_on("data", &["--form", "corrected"]);
    replay_on("data", &["--protocol", "rob224"]);
    replay_on("data", &["--metric", "cosine"]);
    images(&dir, "other", 3, 3, 1);
    for (from, to) in [("class00", "zero"), ("class01", "one"), ("class02", "two")] {
        std::fs::rename(dir.join("other").join(from), dir.join("other").join(to)).unwrap();
    }
    replay_on("other", &[]);
    dir.write("report.json", "{}");
    replay_on("data", &[]);
    insta::assert_snapshot!(dir.told());
}

/// A demo that can't be made leaves nothing, and an interrupted one can be made again.
#[test]
fn a_demo_that_fails_leaves_nothing() {
    let dir = Transcript::new(Temp::new());
    let mut without_runtime = program(&dir);
    without_runtime
        .env("ORT_DYLIB_PATH", dir.join("no-runtime.so"))
        .args(["demo", "-q", "--out", "new/demo"]);
    says(&ran(&mut without_runtime).ended(USAGE).err, &["no-runtime.so"]);
    assert_eq!(dir.names(), Vec::<String>::new());
    // A folder with anything in it is not touched.
    dir.write("mine/plain.onnx", b"x");
    dir.refused(&["demo", "-q", "--out", "mine"], USAGE);
    assert_eq!(dir.text("mine/plain.onnx"), "x");
    insta::assert_snapshot!(dir.told());
}

/// A demo needs no model, images or network, and overwrites nothing.
#[test]
#[ignore = "slow"]
fn a_demo_audits_both_models_and_sets_them_side_by_side() {
    let dir = Transcript::new(Temp::new());
    let done = run(&dir, ["demo", "-q"]).ended(0);
    let pages = ["comparison.html", "plain.html", "hardened.html"].map(|page| format!("audit-demo/{page}"));
    let said = one_line(&done.out);
    says(&said, &["plain.onnx: Not robust", "hardened.onnx: Not robust", "audit model.onnx --data photos/"]);
    for page in &pages {
        says(&said, &[page]);
        assert!(dir.text(page).starts_with("<!DOCTYPE html>"), "{page}");
    }
    says(&dir.text(&pages[0]), &["plain.onnx", "hardened.onnx", "eps50"]);
    dir.refused(&["demo", "-q"], USAGE);
    run(&dir, ["audit-demo/plain.onnx", "-q", "--max-queries", "12"]).ended(0);
    insta::assert_snapshot!(dir.told());
}
