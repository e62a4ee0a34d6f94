//! Photographs without classes: the model's result for the clean image counts as correct, and robust top-1
//! replaces robust R@1.

use crate::common::transcript::Transcript;
use crate::common::{Temp, bundled, bundled_path, run, says, words};
use crate::report_fixture::python;
use audit::data::{BUILTIN_SEED, Dataset, Preparation, Wanted};
use audit::record::Report;
use std::fs;

/// Generated images of 8 classes in one folder, and in class folders; one image is there twice.
fn images() -> Temp {
    let folder = Temp::new();
    let classes = folder.join("classes");
    Dataset::generated(BUILTIN_SEED, 8, 4).export(&classes, &Preparation::new(1, 28, 28)).unwrap();
    fs::create_dir(folder.join("flat")).unwrap();
    for item in Dataset::open(&classes, None, None).unwrap().items {
        fs::copy(classes.join(&item.id), folder.join("flat").join(item.id.replace('/', "_"))).unwrap();
    }
    let first = &Temp::names_in(&folder.join("flat"))[0];
    fs::copy(folder.join("flat").join(first), folder.join("flat/zz_copy.png")).unwrap();
    folder
}

fn audited(folder: &Temp, data: &str, flags: &str) -> Report {
    let (model, data) = (bundled("hardened.onnx"), folder.join(data));
    crate::common::audit(&words(&format!("{model:?} --data {data:?} {flags}"))).unwrap()
}

/// The targets are the nearest image and its near copies, by the gallery's embeddings; the stated numbers
/// follow from the outcomes.
#[test]
fn robust_top1_takes_the_place_of_robust_r1() {
    let folder = images();
    let report = audited(&folder, "flat", "--max-queries 33");
    assert_eq!((report.data.images, report.data.classes, report.suite.queries), (33, 0, 33));
    assert!(report.benign.is_none() && report.scores.robust_r1.is_none() && report.labels.is_empty());
    let robust = report.scores.robust_top1.as_ref().unwrap();
    let left = report.outcomes.iter().filter(|o| o.after.hit == Some(true)).count();
    assert!((robust.value - 100.0 * left as f64 / 33.0).abs() < 1e-9 && robust.clean == 100.0);
    let ladder = robust.ladder.as_ref().unwrap();
    assert!(ladder.eps50.is_some() && ladder.rungs.len() == 6 && ladder.rungs[0].r1 == robust.value);
    assert!(ladder.rungs[5].r1 > robust.value);
    for outcome in &report.outcomes {
        assert_eq!((outcome.attack.as_str(), outcome.before.hit), ("TOP1", Some(true)));
        assert!(!outcome.targets.is_empty() && !outcome.targets.contains(&outcome.query), "{outcome:?}");
    }
    // A photograph that is there twice is found by its copy, and what finds either of the two finds both.
    let copy = report.outcomes.iter().find(|o| o.query == "zz_copy.png").unwrap();
    assert_eq!(copy.targets.len(), 1, "{:?}", copy.targets);
    let either = |o: &&audit::record::Outcome| {
        o.query != "zz_copy.png" && o.targets.iter().any(|t| t == "zz_copy.png")
    };
    let both: Vec<_> = report.outcomes.iter().filter(either).filter(|o| o.query != copy.targets[0]).collect();
    assert!(both.iter().all(|o| o.targets.len() == 2 && o.targets.contains(&copy.targets[0])), "{both:?}");
    let noted = report.warnings.iter().find(|w| w.id == "near-copies");
    assert_eq!(noted.is_some(), !both.is_empty());

    // The same images with classes: another question, with another name.
    let with = audited(&folder, "classes", "--max-queries 2");
    assert!(with.scores.robust_top1.is_none() && with.scores.robust_r1.is_some());
    // Whatever the layout says.
    let none = audited(&folder, "classes", "--max-queries 2 --labels none");
    assert!(none.scores.robust_top1.is_some() && none.data.classes == 0);
    assert_ne!(none.data.sha256, with.data.sha256);
}

/// The files of a report say top-1 instead of R@1, and a gate accepts its name.
#[test]
fn every_surface_says_top_1() {
    let folder = images();
    let line = "--data flat --max-queries 12 --fail-under robust_top1@2.40625/255=20";
    let files = ["r.json", "r.html", "r.md", "r.junit.xml", "r.sarif", "r.metrics.json"];
    let line = format!("{:?} {line} -o {}", bundled("hardened.onnx"), files.join(" -o "));
    let done = run(&folder, words(&line));
    says(&done.out, &["33 images, no classes", "robust top-1 at 77/255", "half of the searches"]);
    assert_eq!(folder.json("r.json")["suite"]["sampling"], "12 of 33 queries, seed 0");
    for file in files {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        assert!(text.contains("top-1") || text.contains("top1"), "{file}");
        for other in ["robust R@1", "clean R@1", "robust_r1", "benign"] {
            assert!(!text.contains(other), "{file}: {other}");
        }
    }
    // Preprocessings could not be compared, which is no sign against this one.
    let page = fs::read_to_string(folder.join("r.html")).unwrap();
    assert!(page.contains("preprocessing-doubtful") && !page.contains("Check the preprocessing"), "{page}");
    let told = run(&folder, ["gate", "r.json", "--fail-under", "robust_r1=10"]);
    says(&told.err, &["this report has no `robust_r1`: the images have no classes"]);
    let all = run(&folder, ["report", "r.json"]);
    says(&all.out, &["so that R@1 and mAP were not", "without an attack 100 by definition"]);
}

/// A photograph of a gallery without classes finds another image.
#[test]
fn one_photograph_finds_another_image() {
    let folder = images();
    let flags = "--data flat --eps 64/255 -o attacked.png -q";
    let line = format!("attack {:?} flat/zz_copy.png {flags}", bundled("plain.onnx"));
    let done = run(&folder, words(&line)).ended(0);
    says(&done.out, &["flat: 32 images without classes", "attacked.png finds another image than `"]);
    assert!(!done.out.contains("class "), "{}", done.out);
    assert!(folder.join("attacked.png").is_file());
    let found = run(&folder, words(&format!("{line} --find nobody.png")));
    says(&found.err, &["--find nobody.png: no image of the gallery has this name. They are named as "]);
}

/// Lists without a class for an image are read if no class is needed, and otherwise refused with a solution.
#[test]
fn a_list_needs_no_labels() {
    let folder = images();
    let names = Temp::names_in(&folder.join("flat"));
    let table = |head: &str, row: &dyn Fn(&str) -> String| {
        let rows: Vec<String> = names.iter().map(|name| row(&format!("flat/{name}"))).collect();
        [head, &rows.join("\n"), "\n"].concat()
    };
    let size = "\"width\": 28, \"height\": 28";
    let roles = |path: &str| u8::from(path.contains("copy"));
    let lists = [
        ("paths.txt", table("", &|path| path.into())),
        ("captions.csv", table("path,caption,width\n", &|path| format!("{path},a sign,28"))),
        ("empty.csv", table("path,label\n", &|path| format!("{path},"))),
        ("rows.jsonl", table("", &|path| format!("{{\"file_name\": \"{path}\", {size}}}"))),
        ("queries.csv", table("path,is_query,is_gallery\n", &|path| format!("{path},{},1", roles(path)))),
    ];
    for (name, text) in lists {
        let at = folder.write(name, text);
        let refused = Dataset::open(&at, None, None).unwrap_err();
        says(&refused.message, &[name, "label", "audit MODEL --labels none asks"]);
        let data = Dataset::open_as(&at, &Wanted { classless: true, ..Wanted::default() }).unwrap();
        assert!(data.classless && data.items.len() == names.len(), "{name}");
        let ids: Vec<&str> = data.items.iter().map(|item| item.id.trim_start_matches("flat/")).collect();
        if name != "queries.csv" {
            assert_eq!(ids, names, "{name}");
        }
    }
    let report = audited(&folder, "paths.txt", "--max-queries 4 --labels none");
    assert_eq!((report.data.images, report.data.classes, report.suite.queries), (33, 0, 4));
}

/// Commands that need classes are refused by name, before the work.
#[test]
fn what_needs_classes_is_refused() {
    let folder = Transcript::new(images());
    let model = bundled("hardened.onnx");
    folder.write("top1.yaml", "form: corrected\nattacks: [TOP1]\n");
    folder.write("pairs.txt", "flat/class00_00.png flat/zz_copy.png 1\n");
    let refused = |line: &str| folder.refused(&words(&line.replace("MODEL", &format!("{model:?}"))), 2);
    for line in [
        "MODEL --data flat --suite ars -q",
        "MODEL --data flat --fail-under benign.r1=3 -q",
        "MODEL --data flat --sample correct -q",
        "doctor MODEL --data flat -q",
        "MODEL --data classes --fail-under robust_top1=3 -q",
        "MODEL --data classes --suite top1.yaml -q",
        "MODEL --data pairs.txt --labels none -q",
    ] {
        refused(line);
    }
    // A list beside the images may hold their classes.
    folder.write("flat/labels.csv", "path,label\n");
    refused("MODEL --data flat -q");
    insta::assert_snapshot!(folder.told());
}

/// The evidence of robust top-1 is confirmed by numpy and onnxruntime.
#[test]
#[ignore = "needs Python with numpy, PIL, onnxruntime"]
fn the_evidence_is_confirmed() {
    let folder = images();
    let model = bundled_path("hardened.onnx");
    run(&folder, words(&format!("{model:?} --data flat --max-queries 12 -o r.json -q"))).ended(0);
    run(&folder, words("report r.json --bundle e.zip")).ended(0);
    let program = "import sys, zipfile; exec(zipfile.ZipFile(sys.argv[1]).read('verify.py'))";
    let at = |name: &str| folder.join(name).display().to_string();
    let told = python("numpy, PIL, onnxruntime", program, &[&at("e.zip"), &model, &at("flat")]);
    says(&told, &["confirmed: 12 outcomes", "33 image files are the report's"]);
}
