//! `--space file`: attacks on photographs of different sizes, measured from the changed files.

mod column;
mod jpeg;

use crate::common::models;
use crate::common::transcript::Transcript;
use crate::common::{
    CPU, Ran, Temp, distance, lasting_text, levels, load_runtime, one_line, program, ran, run, says, unit,
    words,
};
use crate::report_fixture::python;
use audit::data::{Dataset, Preparation};
use audit::model::Model;
use audit::model::card::Card;
use audit::shards::journal::checksum;
use image::imageops::FilterType;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// 4 classes of 5 grey images, of five sizes in each class: square, tall, wide, smaller than the model's 12
/// pixels on one side, and 12 pixels.
const SIZES: [(u32, u32); 5] = [(40, 40), (33, 57), (64, 14), (10, 30), (12, 12)];
/// What the script of evidence imports.
const PACKAGES: &str = "numpy, onnx, onnxruntime, PIL";
/// The script of evidence.
const VERIFY: &str = include_str!("../../src/feature/verify.py");
/// A suite of two attacks with few steps.
const SUITE: &str = "form: corrected\nattacks: [ES, QA+]\nsteps: 6\neps: 16/255\nspace: file\n";

fn stage() -> Temp {
    let folder = models::stage(1, 1);
    run(&folder, words("images --out square --size 64 --channels 1 --classes 4 --samples 5")).ended(0);
    for class in 0..4 {
        let to = folder.join(&format!("photos/class{class}"));
        std::fs::create_dir_all(&to).unwrap();
        for (k, (width, height)) in SIZES.into_iter().enumerate() {
            let from = folder.join(&format!("square/class{class:02}/{k:02}.png"));
            let image = image::open(from).unwrap().resize_exact(width, height, FilterType::Triangle);
            image.save(to.join(format!("{k}.png"))).unwrap();
        }
    }
    folder.write("suite.yaml", SUITE);
    folder
}

/// An audit of the photographs by the suite.
fn audit(folder: &Temp, flags: &str) -> Ran {
    let fixed = "model.onnx --suite suite.yaml --data photos --strong-sample off --no-cache -q";
    run(folder, words(&format!("{fixed} {flags}")))
}

/// The evidence of a report is confirmed by its script from the files: `said` of it.
#[track_caller]
fn confirmed(evidence: &Path, model: &Path, images: &Path, said: &[&str]) {
    let files = [evidence, model, images].map(|path| path.to_str().unwrap());
    says(&python(PACKAGES, VERIFY, &files), said);
}

/// The nets and photographs that `attack_file.py` makes.
fn made_by_python() -> Temp {
    let folder = Temp::new();
    python(PACKAGES, include_str!("attack_file.py"), &["make", folder.path().to_str().unwrap()]);
    folder
}

/// The rows of a list of changed files, by column name.
fn listed(folder: &Temp, name: &str) -> Vec<BTreeMap<String, String>> {
    let text = folder.text(name);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let name = |row: &[&str]| rows[0].iter().zip(row).map(|(k, v)| (k.to_string(), v.to_string())).collect();
    rows[1..].iter().map(|row| name(row)).collect()
}

/// The embeddings, of length 1, of the files in a folder of classes, by id: read as the program reads every
/// data set.
fn embeddings(folder: &Temp, data: &str) -> BTreeMap<String, Vec<f64>> {
    load_runtime();
    let mut model = Model::open(&folder.join("model.onnx"), &Card::default(), CPU, Some(4)).unwrap();
    let [channels, height, width] = model.shape();
    let prep = Preparation::new(channels, height, width);
    let dataset = Dataset::open(&folder.join(data), None, None).unwrap();
    let point = |i: usize| {
        let point = model.embed(&dataset.pixels(i, &prep).unwrap().data).unwrap();
        (dataset.items[i].id.clone(), unit(&point))
    };
    (0..dataset.items.len()).map(point).collect()
}

/// Every file has its photograph's size and lies within ε. Its embedding, read by the program from the list,
/// is the report's.
#[test]
fn outcomes_are_those_of_the_written_files() {
    let folder = stage();
    audit(&folder, "-o r.json --attacked-out out --batch 4").ended(0);
    let report = folder.json("r.json");
    assert_eq!(report["suite"]["space"], "file");
    let rows = listed(&folder, "out/attacked.csv");
    let outcomes = report["outcomes"].as_array().unwrap();
    assert_eq!((rows.len(), outcomes.len()), (40, 40));
    let clean = embeddings(&folder, "photos");
    let attacked = ["ES", "QA+"].map(|attack| (attack, embeddings(&folder, &format!("out/{attack}"))));
    let grey = |name: String| image::open(folder.join(&name)).unwrap().into_luma8();
    let mut moved = 0;
    for (row, outcome) in rows.iter().zip(outcomes) {
        let query = outcome["query"].as_str().unwrap();
        assert_eq!((&*row["source"], &*row["attack"]), (query, outcome["attack"].as_str().unwrap()));
        let [before, after] = [format!("photos/{query}"), format!("out/{}", row["path"])].map(&grey);
        let levels = levels(&before, &after);
        assert_eq!(row["levels"], levels.to_string());
        assert!((1..=16).contains(&levels), "{query}: {levels}");
        let of_attack = &attacked.iter().find(|(attack, _)| *attack == row["attack"]).unwrap().1;
        let (found, stated) =
            (distance(&clean[query], &of_attack[query]), outcome["shift"].as_f64().unwrap());
        assert!((found - stated).abs() < 1e-5, "{query}: {found}, and the report says {stated}");
        moved += usize::from(stated > 0.01);
    }
    assert!(moved > 30, "{moved} of 40 moved");
    // The list is one that `--data` takes.
    let dataset = Dataset::open(&folder.join("out/attacked.csv"), None, None).unwrap();
    assert_eq!((dataset.items.len(), dataset.classes.len()), (40, 4));
}

/// The list is read back if the name of a photograph has a line break.
#[test]
#[cfg(unix)]
fn names_with_line_breaks_are_read_back() {
    let folder = stage();
    let odd = "photos/class1/3\nb.png";
    std::fs::rename(folder.join("photos/class1/3.png"), folder.join(odd)).unwrap();
    audit(&folder, "-o r.json --attacked-out out").ended(0);
    let dataset = Dataset::open(&folder.join("out/attacked.csv"), None, None).unwrap();
    assert_eq!(dataset.items.len(), 40);
    assert!(dataset.items.iter().any(|item| item.id == "ES/class1/3\nb.png"));
}

/// Photographs of all sizes share batches; the others of a batch change nothing. A resumed run makes the
/// missing files.
#[test]
fn parts_and_runs_that_go_on_give_the_report_of_one() {
    let folder = stage();
    audit(&folder, "-o whole.json --attacked-out whole --batch 4").ended(0);
    for m in [1, 2] {
        audit(&folder, &format!("-o {m}.json --partition hash:{m}/2 --batch 4")).ended(0);
    }
    run(&folder, words("merge 1.json 2.json -o merged.json")).ended(0);
    assert_eq!(lasting_text(&folder, "merged.json"), lasting_text(&folder, "whole.json"));
    let files = |name: &str| {
        let rows = listed(&folder, &format!("{name}/attacked.csv"));
        rows.into_iter().map(|row| (row["path"].clone(), row["sha256"].clone())).collect::<Vec<_>>()
    };
    // A folder that is not empty is refused, unless the run is resumed.
    std::fs::remove_file(folder.join("whole/ES/class1/3.png")).unwrap();
    let again = "-o again.json --attacked-out whole --batch 4";
    says(&audit(&folder, again).ended(2).err, &["--attacked-out whole: the folder is not empty"]);
    let whole = files("whole");
    audit(&folder, &format!("{again} --resume")).ended(0);
    assert_eq!(files("whole"), whole);
    assert_eq!(lasting_text(&folder, "again.json"), lasting_text(&folder, "whole.json"));
}

/// The report may lie in the folder of the changed files, and its journal too while the audit runs.
#[test]
fn a_report_may_lie_beside_its_files() {
    let folder = stage();
    std::fs::create_dir(folder.join("out")).unwrap();
    audit(&folder, "-o out/r.json --attacked-out out --max-queries 3").ended(0);
    let names = Temp::names_in(&folder.join("out"));
    assert_eq!(names, ["ES", "QA+", "attacked.csv", "attacked.run", "r.json"]);
}

/// If the list of the files can't be written, no trial is lost, and the error says how to continue.
#[test]
fn an_audit_without_its_list_can_be_continued() {
    let folder = stage();
    let flags = "-o r.json --attacked-out out --max-queries 3";
    audit(&folder, flags).ended(0);
    std::fs::remove_file(folder.join("out/attacked.csv")).unwrap();
    folder.write("out/attacked.csv/in-the-way", "");
    let err = audit(&folder, &format!("{flags} --resume")).ended(1).err;
    let said = ["can't write out/attacked.csv", "All trials are done and saved in r.json.journal"];
    says(&one_line(&err), &said);
    std::fs::remove_dir_all(folder.join("out/attacked.csv")).unwrap();
    audit(&folder, &format!("{flags} --resume")).ended(0);
    assert_eq!(listed(&folder, "out/attacked.csv").len(), 6);
}

#[test]
fn what_has_no_file_is_refused_by_name() {
    let folder = Transcript::new(stage());
    // Images that an 8-bit file can't hold.
    for class in ["a", "b"] {
        std::fs::create_dir_all(folder.join("deep").join(class)).unwrap();
        for k in 0..2u16 {
            let image = image::ImageBuffer::from_fn(30, 30, |x, y| image::Luma([(x * y) as u16 * (k + 7)]));
            image.save(folder.join(&format!("deep/{class}/{k}.png"))).unwrap();
        }
    }
    for flags in [
        "--space file",
        "--space file --data generated:4x5",
        "--space file --data deep",
        "--space file --data photos --norm l2 --eps 1",
        "--space file --data photos --eps 0.5/255",
        "--space file --data photos --suite universal",
        "--space file --data photos --suite corruptions",
        "--space file --data photos --surrogate model.onnx",
        "--space file --data photos --attacked-out photos/out",
        "--space file --data photos --attacked-out suite.yaml/out",
        "--data photos --jpeg 90",
        "--data photos --attacked-out out",
    ] {
        folder.refused(&words(&format!("model.onnx -q {flags}")), 2);
    }
    // Commands that attack the model's input.
    folder.write("files.yaml", SUITE);
    for command in ["doctor", "geometry"] {
        let line = format!("{command} model.onnx -q --data photos --suite files.yaml");
        folder.refused(&words(&line), 2);
    }
    insta::assert_snapshot!(folder.told());
}

/// A report of files has no baseline of inputs.
#[test]
fn numbers_of_files_and_of_inputs_are_not_compared() {
    let folder = stage();
    audit(&folder, "-o file.json").ended(0);
    folder.write("suite.yaml", SUITE.replace("space: file\n", ""));
    audit(&folder, "-o input.json").ended(0);
    let report = folder.json("input.json");
    assert_eq!(report["suite"]["space"], Value::Null);
    let judged = run(&folder, words("gate file.json --baseline input.json --max-drop benign.r1=1"));
    says(&judged.ended(2).err, &["the reports differ in space: input and file"]);
}

/// Decisions on pairs are those of the written files: `faces` in file space.
#[test]
fn decisions_on_pairs_are_those_of_the_written_files() {
    let folder = stage();
    let photos: Vec<(usize, String)> = (0..4)
        .flat_map(|class| (0..5).map(move |k| (class, format!("photos/class{class}/{k}.png"))))
        .collect();
    let mut list = "path_a,path_b,same\n".to_string();
    for (i, (class, probe)) in photos.iter().enumerate() {
        for (other, reference) in &photos[..i] {
            list += &format!("{probe},{reference},{}\n", class == other);
        }
    }
    folder.write("pairs.csv", list);
    let line = "model.onnx --suite faces --data pairs.csv --threshold far=0.1 --space file --eps 16/255";
    run(&folder, words(&format!("{line} --attacked-out out --no-cache -q -o r.json"))).ended(0);
    let report = folder.json("r.json");
    assert_eq!(report["suite"]["space"], "file");
    let threshold = report["verification"]["threshold"].as_f64().unwrap();
    let clean = embeddings(&folder, "photos");
    let below = |id: &str| id.strip_prefix("photos/").unwrap().to_string();
    let attacked =
        ["DODGE", "IMPERSONATE"].map(|attack| (attack, embeddings(&folder, &format!("out/{attack}/photos"))));
    let (mut reached, mut count) = ([0, 0], 0);
    for outcome in report["outcomes"].as_array().unwrap() {
        let text = |key: &str| outcome[key].as_str().unwrap();
        let of = attacked.iter().position(|(attack, _)| *attack == text("attack")).unwrap();
        let (query, reference) = (below(text("query")), below(outcome["targets"][0].as_str().unwrap()));
        for (at, points) in [("before", &clean), ("after", &attacked[of].1)] {
            let d = distance(&points[&query], &clean[&reference]);
            let stated = outcome[at]["distance"].as_f64().unwrap();
            assert!((d - stated).abs() < 1e-5, "{query}: {d}, and the report says {stated}");
            assert_eq!(outcome[at]["accepted"], stated <= threshold, "{query}");
        }
        let accepted = ["before", "after"].map(|at| outcome[at]["accepted"].as_bool().unwrap());
        reached[of] += usize::from(accepted[0] != accepted[1]);
        count += 1;
    }
    assert!(count > 20 && reached.iter().all(|n| *n > 0), "{reached:?} of {count}");
}

/// An audit that fails before its first attack leaves no folder behind.
#[test]
fn a_run_that_fails_at_its_start_leaves_nothing() {
    let folder = stage();
    let before = folder.names();
    let fixed =
        "model.onnx --data photos --space file -q -o r.json --attacked-out new/out --trials-out t.json";
    let mut command = program(&folder);
    command.env("ORT_DYLIB_PATH", folder.join("no-runtime.so")).args(words(fixed));
    says(&ran(&mut command).ended(2).err, &["no-runtime.so"]);
    assert_eq!(folder.names(), before);
    // Neither does an audit without any attack for these images.
    let none = format!("{fixed} --suite faces --threshold far=0.1 --hub-class nobody");
    run(&folder, words(&none)).ended(2);
    assert_eq!(folder.names(), before);
}

/// The plan counts the resize: a step on a photograph of four megapixels takes many times as long as one of a
/// net of 12 pixels.
#[test]
fn the_plan_knows_how_large_photographs_are() {
    let folder = stage();
    for class in 0..2 {
        let to = folder.join(&format!("large/class{class}"));
        std::fs::create_dir_all(&to).unwrap();
        for k in 0..2 {
            let file = format!("class{class}/{k}.png");
            let image = image::open(folder.join(&format!("photos/{file}"))).unwrap();
            image
                .resize_exact(2000, 2000, FilterType::Nearest)
                .save(folder.join(&format!("large/{file}")))
                .unwrap();
        }
    }
    let a_query = |data: &str| {
        let fixed = "model.onnx --suite suite.yaml --strong-sample off --max-queries 1 --no-cache";
        let line = format!("{fixed} --data {data} --progress json --allow-untrusted");
        let ran = run(&folder, words(&line)).ended(0);
        let events = ran.err.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let plan =
            events.into_iter().find(|event| event["event"] == "plan" && event["seconds_a_query"].is_f64());
        plan.unwrap()["seconds_a_query"].as_f64().unwrap()
    };
    let (small, large) = (a_query("photos"), a_query("large"));
    // Each step reads and moves four million values, and writes as many.
    assert!(large > 5.0 * small, "{small} s and {large} s");
}

/// A mask is scaled to each photograph, and a patch has its share of it: the other pixels keep their values.
#[test]
fn masks_and_patches_lie_in_the_photograph() {
    let folder = stage();
    // The left half of the model's input, as a picture of four pixels.
    image::GrayImage::from_fn(2, 2, |x, _| image::Luma([if x == 0 { 255 } else { 0 }]))
        .save(folder.join("mask.png"))
        .unwrap();
    for (flag, value) in [("--mask", "mask.png"), ("--patch", "0.25")] {
        let out = flag.trim_start_matches('-');
        audit(&folder, &format!("-o r.json --attacked-out {out} {flag} {value} --eps 200/255")).ended(0);
        for row in listed(&folder, &format!("{out}/attacked.csv")) {
            let [before, after] = [format!("photos/{}", row["source"]), format!("{out}/{}", row["path"])]
                .map(|name| image::open(folder.join(&name)).unwrap().into_luma8());
            let changed = || after.enumerate_pixels().filter(|(x, y, v)| before.get_pixel(*x, *y) != *v);
            assert!(changed().count() > 0, "{}", row["path"]);
            let (width, height) = before.dimensions();
            if flag == "--mask" {
                assert!(changed().all(|(x, _, _)| x < width.div_ceil(2)), "{}", row["path"]);
            } else {
                let span = |of: &dyn Fn((u32, u32)) -> u32| {
                    let all = || changed().map(|(x, y, _)| of((x, y)));
                    all().max().unwrap() - all().min().unwrap() + 1
                };
                let (wide, high) = (span(&|(x, _)| x), span(&|(_, y)| y));
                assert!(wide <= width.div_ceil(2) && high <= height.div_ceil(2), "{wide} × {high}");
            }
        }
    }
}

/// A file that was changed between two processes is written again: the list and its hashes are those of the
/// audit.
#[test]
fn changed_files_are_written_again() {
    let folder = stage();
    let flags = "-o r.json --attacked-out out --max-queries 3";
    audit(&folder, flags).ended(0);
    let list = folder.text("out/attacked.csv");
    let rows = listed(&folder, "out/attacked.csv");
    let [first, second] = [0, 1].map(|at| folder.join(&format!("out/{}", rows[at]["path"])));
    let written = std::fs::read(&first).unwrap();
    // All trials are in the journal of an audit that could not write its list.
    std::fs::remove_file(folder.join("out/attacked.csv")).unwrap();
    folder.write("out/attacked.csv/in-the-way", "");
    audit(&folder, &format!("{flags} --resume")).ended(1);
    std::fs::remove_dir_all(folder.join("out/attacked.csv")).unwrap();
    std::fs::copy(&second, &first).unwrap();
    assert_ne!(std::fs::read(&first).unwrap(), written);
    audit(&folder, &format!("{flags} --resume")).ended(0);
    assert_eq!(std::fs::read(&first).unwrap(), written);
    assert_eq!(folder.text("out/attacked.csv"), list);
}

/// A file that is made again brings its outcome: the processor of the first one may round otherwise.
#[test]
fn a_file_that_is_made_again_is_the_one_that_is_reported() {
    let folder = stage();
    let flags = "-o r.json --attacked-out out --max-queries 3";
    audit(&folder, flags).ended(0);
    let expected = lasting_text(&folder, "r.json");
    std::fs::remove_file(folder.join("out/attacked.csv")).unwrap();
    folder.write("out/attacked.csv/in-the-way", "");
    audit(&folder, &format!("{flags} --resume")).ended(1);
    std::fs::remove_dir_all(folder.join("out/attacked.csv")).unwrap();
    let journal = folder.text("r.json.journal");
    let mut lines: Vec<String> = journal.lines().map(String::from).collect();
    let (_, trial) = lines[1].split_once(' ').unwrap();
    let (place, mut outcome): (usize, Value) = serde_json::from_str(trial).unwrap();
    outcome["loss_last"] = Value::from(9.5);
    let file = format!("out/{}/{}", outcome["attack"].as_str().unwrap(), outcome["query"].as_str().unwrap());
    let trial = serde_json::to_string(&(place, outcome)).unwrap();
    lines[1] = format!("{} {trial}", checksum(trial.as_bytes()));
    folder.write("r.json.journal", lines.join("\n") + "\n");
    std::fs::remove_file(folder.join(&file)).unwrap();
    audit(&folder, &format!("{flags} --resume")).ended(0);
    assert_eq!(lasting_text(&folder, "r.json"), expected);
}

/// Photographs of many sizes and modes (RGB, grey, alpha, palette, turned by EXIF, JPEG; enlarged and
/// reduced): the evidence is confirmed from the files by Pillow, numpy and onnxruntime.
#[test]
#[ignore = "needs Python with numpy, onnx, onnxruntime, PIL"]
fn evidence_is_confirmed_from_the_files() {
    let folder = made_by_python();
    for name in Temp::names_in(&folder.join("photos")) {
        let class = name[..2].parse::<usize>().unwrap() % 6;
        let to = folder.join(&format!("gallery/class{class}/{name}"));
        std::fs::copy(folder.join("photos").join(&name), to).unwrap();
    }
    let line = "net.onnx --data gallery --space file --eps 16/255 --max-queries 20 --no-cache -q -o r.json";
    run(&folder, words(line)).ended(0);
    let outcomes = folder.json("r.json")["outcomes"].as_array().unwrap().len();
    assert_eq!(outcomes, 20);
    run(&folder, words("report r.json --bundle evidence.zip")).ended(0);
    let [evidence, net, gallery] = ["evidence.zip", "net.onnx", "gallery"].map(|name| folder.join(name));
    confirmed(&evidence, &net, &gallery, &["confirmed: 20 outcomes"]);

    // Decisions on pairs: the same photographs against one image of each class.
    let mut list = "path_a,path_b,same\n".to_string();
    let probes: Vec<String> = (0..6)
        .flat_map(|class| {
            let names = Temp::names_in(&folder.join(&format!("gallery/class{class}")));
            let probes = names.into_iter().filter(|name| name != "0.png");
            probes.map(move |name| format!("class{class}/{name}"))
        })
        .collect();
    for (probe, class) in probes.iter().flat_map(|probe| (0..6).map(move |class| (probe, class))) {
        let same = probe.starts_with(&format!("class{class}/"));
        list += &format!("gallery/{probe},gallery/class{class}/0.png,{same}\n");
    }
    folder.write("pairs.csv", list);
    let line = "net.onnx --data pairs.csv --suite faces --threshold far=0.1 --space file --eps 16/255";
    run(&folder, words(&format!("{line} --max-queries 20 --no-cache -q -o f.json"))).ended(0);
    run(&folder, words("report f.json --bundle pairs.zip")).ended(0);
    // The folder of the list, and the list itself.
    for images in [folder.path(), &folder.join("pairs.csv")] {
        confirmed(&folder.join("pairs.zip"), &net, images, &["confirmed: 40 outcomes"]);
    }
}
