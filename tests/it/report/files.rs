//! Reports as files: by their ending, with their trials beside them, and as part of a model card.

use super::*;

#[test]
fn json_comes_back_as_it_went() {
    let json = rendered(&judged(), "json");
    assert!(rendered(&Report::parse(&json).unwrap(), "json") == json, "to the last bit");
}

#[test]
fn reports_of_a_newer_audit_and_other_files_are_refused_with_words() {
    let newer = rendered(&judged(), "json").replacen("\"schema_version\": 1", "\"schema_version\": 2", 1);
    let error = Report::parse(&newer).unwrap_err();
    assert_eq!(error.exit, audit::Exit::Usage);
    says(&error.message, &["newer", "reads up to 1"]);
    for other in ["", "{}", "[1]", "not json", "{\"schema_version\": 1}"] {
        assert_eq!(Report::parse(other).unwrap_err().exit, audit::Exit::Usage, "{other}");
    }
}

#[test]
fn the_files_extension_chooses_the_format() {
    let dir = Temp::new();
    for name in ["a.json", "a.junit.xml", "A.SARIF", "a.b.html", "metrics.json", "a.cdx.json"] {
        Target::open(&dir.join(name)).unwrap().write(&judged()).unwrap();
        assert!(dir.join(name).is_file());
    }
    let longest = dir.text("metrics.json");
    assert!(!longest.contains("schema_version"), "not the whole report");
    assert!(dir.names().iter().all(|name| !name.contains("partial")));
}

/// The block's form is that of Hugging Face's modelcard.md. python/tests reads it with huggingface_hub.
#[test]
fn a_model_card_keeps_all_but_its_block() {
    let dir = Transcript::new(Temp::new());
    let report = judged();
    let card = dir.join("README.md");
    let write = |text: Option<&str>| {
        if let Some(text) = text {
            std::fs::write(&card, text).unwrap();
        }
        report::model_card::write(&report, &card).map(|()| std::fs::read_to_string(&card).unwrap())
    };
    let new = write(None).unwrap();
    assert!(new.starts_with("---\nmodel-index:\n- name: "), "{new}");
    assert_eq!(write(None).unwrap(), new, "the same results again change nothing");
    let plain = write(Some("# Mine\n\ntext\n")).unwrap();
    assert!(plain.ends_with("---\n\n# Mine\n\ntext\n"));

    let [before, after] =
        ["---\nlicense: mit  # a remark\ntags:\n- audio\n", "language: fr\n---\nBody: model-index:\n---\n"];
    let theirs = "model-index:\n- name: mine\n  results:\n  - task: {type: retrieval}\n    dataset: {type: x, name: X}\n    metrics: \
        [{type: \"r 1\", value: 3}]\n";
    let updated = write(Some(&format!("{before}{theirs}{after}"))).unwrap();
    assert!(updated.starts_with(before) && updated.ends_with(after), "{updated}");
    for kept in ["name: \"mine\"", "type: \"r 1\"", "type: \"ars\""] {
        assert_eq!(updated.matches(kept).count(), 1, "{kept}: {updated}");
    }
    assert_eq!(write(None).unwrap(), updated);
    for broken in ["---\na: b\n", "---\nmodel-index: 3\n---\n"] {
        let error = write(Some(broken)).unwrap_err();
        assert_eq!(error.exit, audit::Exit::Usage);
        dir.note(&error.message);
        assert_eq!(std::fs::read_to_string(&card).unwrap(), broken);
    }
    insta::assert_snapshot!(dir.told());
}

#[test]
fn trials_go_into_a_file_of_their_own_and_come_back() {
    let dir = Transcript::new(Temp::new());
    let report = judged();
    let files = ["whole.json", "short.json", "short.csv"].map(|name| dir.join(name));
    Target::open(&files[0]).unwrap().write(&report).unwrap();
    let trials = dir.join("trials.json");
    let targets = Target::open_all(&files[1..]).unwrap();
    report::write_all(targets, report::open_trials(Some(&trials)).unwrap(), &report, true).unwrap();
    let [whole, short] = [&files[0], &files[1]].map(|file| std::fs::read_to_string(file).unwrap());
    assert!(short.len() < whole.len() / 10 && short.contains("\"path\": \"trials.json\""), "{short}");
    assert_eq!(rendered(&Report::load(&files[1]).unwrap(), "json"), whole);
    // A table has every trial, wherever the report stores them.
    assert_eq!(std::fs::read_to_string(&files[2]).unwrap(), rendered(&report, "csv"));
    // Both can be moved together; separately, or with the trials of another report, the report is refused by
    // name.
    let sub = dir.join("sub");
    std::fs::create_dir(&sub).unwrap();
    std::fs::copy(&files[1], sub.join("short.json")).unwrap();
    let lost = Report::load(&sub.join("short.json")).unwrap_err();
    assert_eq!(lost.exit, audit::Exit::Usage);
    dir.note(&lost.message);
    let other = std::fs::read_to_string(&trials).unwrap().replacen("\"start\":0", "\"start\":1", 1);
    std::fs::write(sub.join("trials.json"), other).unwrap();
    dir.note(&Report::load(&sub.join("short.json")).unwrap_err().message);
    std::fs::copy(&trials, sub.join("trials.json")).unwrap();
    Report::load(&sub.join("short.json")).unwrap();
    for name in ["t.csv", "none/t.json"] {
        dir.note(&report::open_trials(Some(&dir.join(name))).err().unwrap().message);
    }
    insta::assert_snapshot!(dir.told());
}

/// Everything that is computed from trials finds them in their file: replay, gate, comparison, merging, other
/// formats.
#[test]
fn commands_read_trials_from_their_file() {
    let dir = Temp::new();
    let model = bundled("hardened.onnx");
    let does = |line: &str| drop(run(&dir, words(line)).ended(0));
    let audit = format!("{model:?} --suite smoke --max-queries 6 --strong-sample off -q");
    does(&format!("{audit} -o short.json --trials-out trials.json"));
    let load = |name: &str| Report::load(&dir.join(name)).unwrap();
    let lasting = |mut report: Report| {
        (report.timing, report.command) = (Default::default(), None);
        rendered(&report, "json")
    };
    let short = lasting(load("short.json"));
    does(&format!("{audit} --trials short.json -o again.json"));
    assert_eq!(load("again.json").outcomes, load("short.json").outcomes);
    does("gate short.json --fail-under benign.r1=0 -o judged.json");
    assert_eq!(load("judged.json").outcomes.len(), load("short.json").outcomes.len());
    does("compare short.json again.json");
    does("report short.json -o whole.json -o short.csv");
    assert_eq!(dir.text("whole.json").matches("trials_file").count(), 0);
    for part in [1, 2] {
        does(&format!("{audit} --partition hash:{part}/2 -o part{part}.json --trials-out trials{part}.json"));
    }
    does("merge part1.json part2.json -o merged.json --trials-out all.json");
    assert_eq!(lasting(load("merged.json")), short);
    std::fs::remove_file(dir.join("trials.json")).unwrap();
    let err = run(&dir, words("gate short.json --fail-under benign.r1=0")).ended(2).err;
    says(&err, &["short.json", "trials.json", "make the report again"]);
}
