//! Files that commands write: to none that they read, each only once, and with names that people see.

use crate::common::{Temp, cli, models, run, says, words};
use audit::Request;
use audit::command::Command;
use audit::shards::journal::Journals;

/// An audit that replaced its baseline by its own report would let the next regression pass. Only
/// --save-baseline may, as it saves nothing if the gate fails.
#[test]
fn a_baseline_is_not_replaced_by_a_report() {
    let dir = models::stage(3, 4);
    for name in ["base.json", "part.json", "suite.json"] {
        dir.write(name, "an input");
    }
    let before = dir.names();
    for (line, says_that) in [
        ("nowhere.onnx -q --baseline base.json -o base.json", "-o base.json: this is the file of --baseline"),
        ("nowhere.onnx -q --baseline base.json --trials-out base.json", "this is the file of --baseline"),
        ("gate part.json --baseline base.json -o ./base.json", "this is the file of --baseline"),
        ("gate part.json --suite suite.json -o suite.json", "this is the file of --suite"),
        ("merge part.json -o whole.json --trials-out part.json", "--trials-out part.json: this is a part"),
        ("report part.json -o r.json --trials-out part.json", "--trials-out part.json: this is the report"),
        ("merge part.json -o r.json --trials-out r.json", "-o and --trials-out both name r.json"),
        ("report part.json -o r.json --trials-out r.json", "-o and --trials-out both name r.json"),
        ("report part.json -o r.md --model-card r.md", "-o and --model-card both name r.md"),
    ] {
        says(&run(&dir, words(line)).ended(2).err, &[says_that]);
    }
    assert_eq!(dir.names(), before);
    for name in ["base.json", "part.json", "suite.json"] {
        assert_eq!(dir.text(name), "an input");
    }
}

/// `cp FOLDER/*` and uploads of artifacts leave hidden files behind: the folder could then not be continued.
#[test]
fn the_record_of_attacked_files_is_not_hidden() {
    let dir = models::stage(3, 4);
    dir.write("suite.yaml", "form: corrected\nattacks: [ES]\nsteps: 3\neps: 16/255\nspace: file\n");
    let audit = |flags: &str| {
        let fixed = "model.onnx --suite suite.yaml --data data --strong-sample off --max-queries 4 -q";
        run(&dir, words(&format!("{fixed} --attacked-out out -o a.json {flags}")))
    };
    audit("").ended(0);
    assert_eq!(Temp::names_in(&dir.join("out")), ["ES", "attacked.csv", "attacked.run"]);
    // The name that earlier versions gave it is still read.
    std::fs::rename(dir.join("out/attacked.run"), dir.join("out/.run")).unwrap();
    audit("--resume").ended(0);
    audit("--resume --seed 5").ended(2);
}

/// The runs of a sweep have numbered journals: the refusal names files that are there, and a base for
/// --journal.
#[test]
fn journals_of_a_sweep_are_refused_by_their_own_names() {
    let dir = Temp::new();
    let paths = |names: [&str; 2]| names.map(|name| dir.join(name).display().to_string());
    for path in paths(["a.json.journal.1", "b.html.journal.1"]) {
        std::fs::write(path, "").unwrap();
    }
    let [a, b] = paths(["a.json", "b.html"]);
    let mut request = Request::model("model.onnx").report(&a).report(&b);
    request.run.resume = true;
    let error = Journals::settle(&mut request).err().unwrap();
    let there = format!("{a}.journal.1 and {b}.journal.1 are both there");
    says(&error.message, &[&there, &format!("--journal {a}.journal")]);
}

/// As for the files of other commands.
#[test]
fn folders_are_named_by_the_short_flag_too() {
    for flag in ["-o", "--out", "--output"] {
        let folder = |command: &str| match cli(&["audit", command, flag, "first"]).command {
            Some(Command::Demo(args)) => args.out,
            Some(Command::Images(args)) => args.out,
            _ => panic!("{command}"),
        };
        assert!(["demo", "images"].map(folder).iter().all(|folder| folder.as_os_str() == "first"), "{flag}");
    }
}
