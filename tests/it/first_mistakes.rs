//! What a first use often gets wrong: each message names the mistake and what to write instead.

use crate::common::models::{Weights, free, grey, stage, value};
use crate::common::{Temp, bundled, bundled_path, one_line, run, says, words};
use crate::report_fixture::report as fixture;
use audit::judge::compare::of_reports;
use audit::judge::quantity::{CLEAN_R1, Quantity};
use onnx_grad::Graph;
use onnx_grad::graph::{Dim, Node};

/// A photograph of the gallery that the search gets wrong already: its own class is no success, and where
/// no third class is left, there is nothing to attack.
#[test]
fn the_right_class_of_a_photograph_is_no_success_of_an_attack() {
    for (classes, code) in [(2, 2), (6, 0)] {
        let dir = Temp::new();
        let images = format!("images --out gallery --size 40 --channels 1 --classes {classes} --samples 5");
        run(&dir, words(&images)).ended(0);
        // Of class01, and the image of class00 in fact.
        std::fs::copy(dir.join("gallery/class00/00.png"), dir.join("gallery/class01/09.png")).unwrap();
        let photograph = "gallery/class01/09.png";
        let flags = "--data gallery -q -o x.png -o x.html --eps 40/255";
        let model = bundled_path("plain.onnx");
        let ran = run(&dir, words(&format!("attack {model:?} {photograph} {flags}"))).ended(code);
        if code != 0 {
            let why = "all images of the gallery but the photograph itself have class `class00` or `class01`";
            assert!(ran.err.contains(why), "{}", ran.err);
            continue;
        }
        let lines: Vec<&str> = ran.out.lines().collect();
        assert!(lines[2].starts_with("clean     class00/00.png (class class00)"), "{}", ran.out);
        let note = "the photograph is of class `class01`: the search is wrong without an attack";
        assert_eq!(lines[3], format!("note      {note}"));
        let attacked = lines[4].strip_prefix("attacked  ").unwrap();
        assert!(!attacked.starts_with("class00") && !attacked.starts_with("class01"), "{attacked}");
        assert!(lines[5].starts_with("x.png finds another class than `class00` and `class01`: "));
        assert!(dir.text("x.html").contains("The photograph is of class <code>class01</code>"));
        // What is right without an attack has no note.
        let right = format!("attack {model:?} gallery/class03/00.png {flags}");
        assert!(!run(&dir, words(&right)).out.contains("note "));
    }
}

/// Mean and std of grey levels with pixels in [0, 1], as flags and in a card: refused before any image is
/// embedded, and the command that is named reads the model.
#[test]
fn a_mean_in_grey_levels_needs_their_range() {
    let dir = Temp::new();
    std::fs::copy(bundled("plain.onnx"), dir.join("m.onnx")).unwrap();
    let why = "mean 123.675 lies outside the range of the pixels, 0 to 1. If mean and std count from 0 to 255, \
               state --range 0,255 (in a card: range: [0, 255])";
    let line = "m.onnx --mean 123.675 --std 58.395 -q";
    let refused = run(&dir, words(line)).ended(2).err;
    says(&one_line(&refused), &[why, &format!("fix: audit {line} --range 0,255")]);
    dir.write("m.yaml", "mean: 123.675\nstd: 58.395\n");
    says(
        &one_line(&run(&dir, words("m.onnx -q")).ended(2).err),
        &[why, "fix: audit m.onnx -q --range 0,255"],
    );
    // A range that is stated is not replaced, and one that has the mean is right.
    dir.write("m.yaml", "mean: 123.675\nstd: 58.395\nrange: [0, 1]\n");
    assert!(!run(&dir, words("m.onnx -q")).ended(2).err.contains("fix: "));
    dir.write("m.yaml", "mean: 123.675\nstd: 58.395\nrange: [0, 255]\n");
    run(&dir, words("inspect m.onnx")).ended(0);
}

/// Grey images of 224 pixels to [N, `places`, `length`], by a convolution of 32 pixels.
fn in_places(places: i64, length: i64) -> Graph {
    let channels = places * length / 49;
    let nodes = vec![
        Node::new("Conv", &["image", "kernel"], "map").with("strides", vec![32i64, 32]),
        Node::new("Reshape", &["map", "shape"], "columns"),
        Node::new("Transpose", &["columns"], "output0").with("perm", vec![0i64, 2, 1]),
    ];
    let weights = Weights::new(1).normal("kernel", &[channels, 1, 32, 32], 0.03);
    let mut graph = grey(nodes, weights.ints("shape", &[-1, length, places]));
    graph.inputs = vec![value("image", free(), &[1, 224, 224])];
    graph.outputs = vec![value("output0", free(), &[places, length])];
    graph
}

/// Three anchors at each of 7 × 7 places, as of a small YOLO, are no tokens, unlike the 49 tokens of a Swin
/// transformer.
#[test]
fn boxes_of_one_grid_are_no_tokens() {
    let dir = Temp::new();
    for (places, length, looks) in [
        (147, 85, "a detector: its outputs are boxes"),
        (49, 96, "tokens or a feature map, not one vector an image"),
        (147, 96, "tokens or a feature map, not one vector an image"),
    ] {
        dir.write("m.onnx", in_places(places, length).encode());
        let found = run(&dir, words("inspect m.onnx --json")).ended(3).out;
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found["looks_like"], looks, "{places} x {length}");
        let detector = looks.starts_with("a detector");
        // An audit says so too, and advises no flag.
        let refused = one_line(&run(&dir, words("m.onnx -q")).ended(3).err);
        assert_eq!(
            refused.contains("It looks like a detector: its outputs are boxes; an audit is "),
            detector
        );
        assert_eq!(refused.contains("fix: audit"), !detector, "{refused}");
        assert_eq!(found["next"][0].as_str().unwrap().contains("--pooling cls"), !detector);
    }
    // Taken for tokens by force, the report has a warning.
    dir.write("m.onnx", in_places(147, 85).encode());
    run(&dir, words("images --out photos --size 32 --channels 1 --classes 4 --samples 5")).ended(0);
    let flags = "--pooling cls --suite smoke --max-queries 2 --allow-untrusted -q -o r.json";
    run(&dir, words(&format!("m.onnx --data photos {flags}"))).ended(0);
    let report = dir.json("r.json");
    let all = report["warnings"].as_array().unwrap();
    let scores = all.iter().find(|warning| warning["id"] == "class-scores").unwrap();
    says(scores["text"].as_str().unwrap(), &["a detector: the 85 values of the output `output0`"]);
}

/// A folder where a photograph is expected.
#[test]
fn a_folder_of_photographs_is_attacked_by_an_audit() {
    let dir = Temp::new();
    std::fs::create_dir(dir.join("photos")).unwrap();
    let model = bundled_path("plain.onnx");
    let refused = run(&dir, words(&format!("attack {model:?} photos -o x.png -q"))).ended(2).err;
    says(
        &one_line(&refused),
        &[
            "photos is a folder, and audit attack changes one photograph",
            "--data photos --space file --attacked-out FOLDER",
        ],
    );
}

/// Words of other tools: clap would suggest --journal for --json, and --quiet for --query.
#[test]
fn words_of_other_tools_lead_to_those_of_audit() {
    let dir = Temp::new();
    for (line, expected) in [
        ("m.onnx --json", "unknown flag --json; use -o FILE.json"),
        (
            "m.onnx --query q",
            "unknown flag --query; use --data FOLDER, with the folders query and gallery in it",
        ),
        ("m.onnx --device cpu", "unknown flag --device; use --ep cuda or --ep cpu"),
        (
            "report r.json -q",
            "audit report doesn't have -q, a flag of `audit MODEL`. Leave it out; `audit report --help` lists its flags",
        ),
        (
            "eval m.onnx",
            "there is no command eval. `audit m.onnx --data FOLDER` audits the model; `audit --help` lists the commands",
        ),
        (
            "m.onnx other.onnx",
            "other.onnx: audit takes one model at a time. `audit compare m.onnx other.onnx --data FOLDER` compares two",
        ),
    ] {
        assert_eq!(one_line(&run(&dir, words(line)).ended(2).err), format!("audit: {expected}"));
    }
}

/// Lists with blanks or brackets, and a bound without an equals sign.
#[test]
fn values_in_several_words_are_named_as_they_are_written() {
    let dir = Temp::new();
    let blanks =
        "--mean: its values are separated by commas, without blanks, such as --mean 0.485,0.456,0.406";
    let bound = "--fail-under takes METRIC=VALUE: --fail-under robust_r1=30".to_string();
    let numbers = |flag: &str, example: &str, found: &str| {
        format!("{flag}: expected numbers separated by commas, such as {flag} {example}; found `{found}`")
    };
    for (line, expected) in [
        (vec!["m.onnx", "--mean", "0.485", "0.456", "0.406"], blanks.to_string()),
        (vec!["inspect", "m.onnx", "--mean", "0.485", "0.456", "0.406"], blanks.to_string()),
        (vec!["m.onnx", "--fail-under", "robust_r1", "30"], bound.clone()),
        (vec!["gate", "r.json", "--fail-under", "robust_r1", "30"], bound),
        (vec!["m.onnx", "--mean", "0.4 0.4 0.4"], numbers("--mean", "0.485,0.456,0.406", "0.4 0.4 0.4")),
        (vec!["m.onnx", "--std", "[0.2,0.2,0.2]"], numbers("--std", "0.229,0.224,0.225", "[0.2")),
        (vec!["m.onnx", "--range", "0-255"], numbers("--range", "0,255", "0-255")),
    ] {
        let error = one_line(&run(&dir, &line).ended(2).err);
        assert_eq!(error, format!("audit: {expected}"), "{line:?}");
    }
}

/// Gates take the name that Python has for clean R@1.
#[test]
fn clean_r1_is_a_metric_of_gates() {
    assert!(Quantity::find("clean_r1").unwrap() == CLEAN_R1);
    assert_eq!(Quantity::find(" clean_map ").unwrap().name, "benign.map");
    assert!(Quantity::find("clean_r").is_err());
}

/// A baseline repeats the queries of its images: without them the audit is refused before the work, another
/// number of queries is said to have no effect, and a missing baseline is told how it is made.
#[test]
fn a_baseline_brings_its_queries_and_needs_its_images() {
    let dir = stage(5, 4);
    let line = "model.onnx --suite smoke --strong-sample off --progress json";
    run(&dir, words(&format!("{line} --data data --max-queries 12 -o base.json"))).ended(0);

    let missing = format!("{line} --baseline base.json");
    let refused = run(&dir, words(&missing)).ended(2).err;
    let why = "--data is missing: the baseline is of the images data, and without --data this audit takes generated ones";
    says(&refused, &[why, &format!("fix: audit {missing} --data data")]);
    assert!(!refused.contains("\"phase\""), "{refused}");

    let note = "--baseline repeats the 12 queries of base.json; --max-queries 5 has no effect";
    let both = |most: &str| {
        run(&dir, words(&format!("{line} --data data --baseline base.json --max-queries {most}"))).err
    };
    assert!(both("5").contains(note));
    assert!(!both("12").contains("has no effect"));

    let first = run(&dir, words(&format!("{line} --data data --baseline no.json"))).ended(2).err;
    says(
        &first,
        &["can't read no.json", "--save-baseline no.json in place of --baseline makes the first one"],
    );
}

/// Models of one file name are told apart by their folders, and of one path by their reports.
#[test]
fn compared_models_have_names_of_their_own() {
    let compared = |paths: [&str; 2], files: [&str; 2], strengths: [f64; 2]| {
        let reports = [0, 1].map(|i| {
            let mut report = fixture(strengths[i]);
            report.model.path = paths[i].into();
            report
        });
        of_reports(files.map(String::from).into(), &reports, None, false).unwrap()
    };
    for (paths, files, expected) in [
        (["a/m.onnx", "b/n.onnx"], ["r.json", "s.json"], ["m.onnx", "n.onnx"]),
        (["x/own/m.onnx", "x/clf/m.onnx"], ["r.json", "s.json"], ["own/m.onnx", "clf/m.onnx"]),
        (["m.onnx", "old/m.onnx"], ["r.json", "s.json"], ["m.onnx", "old/m.onnx"]),
        (["m.onnx", "m.onnx"], ["runs/1/before.json", "after.json"], ["before.json", "after.json"]),
        (["m.onnx", "m.onnx"], ["r.json", "r.json"], ["m.onnx", "m.onnx"]),
    ] {
        let comparison = compared(paths, files, [0.3, 0.6]);
        let names: Vec<&str> = comparison.models.iter().map(|model| model.model.as_str()).collect();
        assert_eq!(names, expected);
        assert!(!comparison.cautions.iter().any(|caution| caution.contains("the same results")));
    }
    let itself = compared(["m.onnx"; 2], ["r.json"; 2], [0.3, 0.3]);
    assert!(itself.cautions.contains(&"r.json and r.json hold the same results of one model".to_string()));
}

/// Both plans come before the images are embedded.
#[test]
fn a_comparison_of_models_begins_with_its_plans() {
    let dir = stage(5, 4);
    let told = run(
        &dir,
        words("compare model.onnx model.onnx --suite smoke --data data --strong-sample off --progress json"),
    );
    let events: Vec<serde_json::Value> =
        told.err.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let plans = events.iter().filter(|event| event["event"] == "plan" && event["seconds_a_query"].is_f64());
    assert_eq!(plans.count(), 2, "{}", told.err);
    let notes: String =
        events.iter().filter_map(|event| event["text"].as_str()).map(|text| one_line(text) + "\n").collect();
    says(&notes, &["about twice what their plans say\n"]);
}

/// A misspelt class is told with the nearest one, before anything is embedded.
#[test]
fn a_misspelt_class_of_find_is_told_with_the_nearest() {
    let dir = stage(9, 4);
    let line = "attack model.onnx data/class00/00.png --data data -o x.png --progress json";
    let refused = run(&dir, words(&format!("{line} --find clas04"))).ended(2).err;
    let why = "--find clas04: no class and no image of the gallery has this name (did you mean `class04`?). Classes are class00, ";
    says(&refused, &[why, "class07 and 1 more; an image is named as class00/00.png"]);
    assert!(!refused.contains("\"phase\":\"gallery\""), "{refused}");
}

/// A model whose size is open is no unknown kind of model.
#[test]
fn a_model_of_open_size_looks_like_an_embedding() {
    let dir = Temp::new();
    let nodes = vec![
        Node::new("Conv", &["image", "kernel"], "map"),
        Node::new("GlobalAveragePool", &["map"], "mean"),
        Node::new("Flatten", &["mean"], "embedding"),
    ];
    let mut graph = grey(nodes, Weights::new(1).normal("kernel", &[64, 1, 3, 3], 0.3));
    let open = |name: &str| Dim::Free(name.into());
    graph.inputs[0].shape = Some(vec![free(), Dim::Known(1), open("height"), open("width")]);
    graph.outputs = vec![value("embedding", free(), &[64])];
    dir.write("m.onnx", graph.encode());
    let found = run(&dir, words("inspect m.onnx --json")).ended(3).out;
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["looks_like"], "an embedding of images");
    assert_eq!(found["next"][0], "audit m.onnx --size 224 --max-queries 50 -o m-audit.html");
}
