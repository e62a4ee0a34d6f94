//! Files that a run reads, writes and continues from: inputs are not replaced, a journal and a folder of
//! another run are refused, a report can't name code, and caches cost no audit.

use crate::common::models::{self, Weights, free, grey, small, value};
use crate::common::{Ran, Temp, lasting_text, program, ran, run, says, words};
use crate::long_runs::signals::{ended_by, interrupted, send, slow_to_load};
use crate::long_runs::started;
use audit::data::embedded::Embedded;
use audit::shards::journal::Journal;
use onnx_grad::Graph;
use onnx_grad::graph::Node;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

const SUITE: &str = "form: published\nattacks: [QA-, ES]\nsteps: 2\n";
const QUICK: &str = "--suite suite.yaml --data data --strong-sample off --max-queries 4 -q";

fn stage() -> Temp {
    let dir = models::stage(3, 4);
    dir.write("suite.yaml", SUITE);
    dir
}

fn audit(dir: &Temp, flags: &str) -> Ran {
    run(dir, words(&format!("model.onnx {QUICK} {flags}")))
}

/// Waits until there is such a file.
fn wait_for(child: &mut Child, dir: &Temp, name: &str) {
    while !dir.join(name).exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before there was {name}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs an audit whose report can't be written, as its folder `out` is removed: all trials stay in the
/// journal `j`. Returns its messages.
fn unfinished(dir: &Temp, flags: &str) -> String {
    std::fs::create_dir(dir.join("out")).unwrap();
    let line = format!("{flags} -o out/r.json --journal j");
    let mut child = started(program(dir).args(words(&line)));
    // The journal is claimed before the model is loaded.
    wait_for(&mut child, dir, "j");
    std::fs::remove_dir(dir.join("out")).unwrap();
    let (code, err) = ended_by(child, &[]);
    assert_eq!(code, Some(1), "{err}");
    says(&err, &["can't write out/r.json", "All trials are done and saved in j"]);
    std::fs::create_dir(dir.join("out")).unwrap();
    err
}

/// Grey images to a feature map of 8 channels, which is no embedding before it is pooled.
fn feature_map() -> Graph {
    let map = Node::new("Conv", &["image", "kernel"], "embedding").with("strides", vec![3i64, 3]);
    let mut graph = grey(vec![map], Weights::new(1).normal("kernel", &[8, 1, 3, 3], 0.3));
    graph.outputs = vec![value("embedding", free(), &[8, 4, 4])];
    graph
}

/// Images without classes have no R@1 that would differ.
#[test]
fn a_journal_of_another_pooling_is_refused() {
    let dir = stage();
    dir.write("model.onnx", feature_map().encode());
    let flags = "model.onnx --data data --labels none --max-queries 3 --allow-untrusted -q --pooling";
    unfinished(&dir, &format!("{flags} mean"));
    let resumed = format!("{flags} max -o out/r.json --journal j --resume");
    says(&run(&dir, words(&resumed)).ended(2).err, &["the journal of another run", "pooling: mean and max"]);
}

/// A card of the surrogate changes the attacked images, and no number without an attack.
#[test]
fn a_journal_of_another_card_of_the_surrogate_is_refused() {
    let dir = stage();
    dir.write("other.onnx", small().encode());
    let flags = format!("model.onnx {QUICK} --surrogate other.onnx");
    unfinished(&dir, &flags);
    dir.write("other.yaml", "range: [0, 255]\n");
    let resumed = format!("{flags} -o out/r.json --journal j --resume");
    says(&run(&dir, words(&resumed)).ended(2).err, &["the journal of another run", "surrogate's reading"]);
}

/// The command line of a report may be a stranger's. It chooses what is attacked, and neither code nor files.
#[test]
fn a_report_names_no_code_and_no_file_to_write() {
    let dir = stage();
    audit(&dir, "-o r.json").ended(0);
    let mut report = dir.json("r.json");
    let command = report["command"].as_str().unwrap();
    let longer = format!("{command} --ort-lib ./libevil.so --memory 1B --cache kept --journal j --resume");
    report["command"] = longer.into();
    dir.write("r.json", serde_json::to_string_pretty(&report).unwrap());
    dir.write("libevil.so", "no library");
    let before = dir.names();
    // It would be loaded before ORT_DYLIB_PATH's.
    let bundled = run(&dir, words("report r.json --bundle e.zip")).ended(0);
    says(&bundled.err, &["libevil.so", "not loaded", "ORT_DYLIB_PATH"]);
    let new: Vec<String> = dir.names().into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(new, ["e.zip"]);
    // A model that needs more than is free could not be bundled: who makes the evidence states another limit.
    run(&dir, words("report r.json --bundle m.zip --memory 1B")).ended(3);
    assert!(!dir.join("m.zip").exists());
    run(&dir, words("report r.json --bundle m.zip --memory 1G")).ended(0);
    assert!(dir.join("m.zip").exists());
    run(&dir, words("report r.json --memory 1G")).ended(2);
    // Nor do the commands that a page advises to paste.
    run(&dir, words("report r.json -o r.html")).ended(0);
    let page = dir.text("r.html").replace("<span class=\"flag\">", "").replace("</span>", "");
    let lines: Vec<&str> = page.split("<code class=\"line\">audit ").skip(1).collect();
    let lines: Vec<&str> = lines.iter().filter_map(|part| Some(part.split_once("</code>")?.0)).collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| !line.contains("libevil")), "{lines:?}");
}

/// Each command refuses to replace a file that it reads, before any work.
#[test]
fn an_input_is_not_replaced() {
    let dir = stage();
    let list = |folder: &str| format!("path,label\n{folder}/00.png,a\n{folder}/01.png,a\n");
    dir.write("list.csv", list("data/class00"));
    for name in ["list.json", "images.parquet", "part.json", "mask.json"] {
        dir.write(name, "an input");
    }
    let content = |name: String| (std::fs::read(dir.join(&name)).ok(), name);
    let contents = || dir.names().into_iter().map(content).collect::<Vec<_>>();
    let before = contents();
    let photo = std::fs::read(dir.join("data/class00/00.png")).unwrap();
    let flags = "--suite suite.yaml -q";
    for (line, says_that) in [
        ("model.onnx -q --data list.csv -o list.csv", "-o list.csv: this is the file of --data"),
        ("model.onnx -q --data list.csv -o ./data/../list.csv", "this is the file of --data"),
        ("model.onnx -q --data data --mask mask.json --trials-out mask.json", "this is the file of --mask"),
        ("model.onnx -q --data list.json --save-baseline list.json", "--save-baseline list.json: this is"),
        ("model.onnx -q --data data --save-baseline data/class00/00.png", "Name a file that ends in .json"),
        ("grad model.onnx -o model.onnx", "-o model.onnx: this is the model"),
        ("embed model.onnx -q --data images.parquet -o images.parquet", "this is the file of --data"),
        ("doctor model.onnx -q --data data --trials part.json -o part.json", "this is the file of --trials"),
        ("compare part.json part.json -o part.json", "-o part.json: this is a report to compare"),
        ("merge part.json -o part.json", "-o part.json: this is a part"),
        ("report part.json --bundle part.json", "--bundle part.json: this is the report"),
    ] {
        says(&run(&dir, words(line)).ended(2).err, &[says_that]);
    }
    for command in
        ["sweep model.onnx --over eps=1/255,2/255", "geometry model.onnx", "compare model.onnx model.onnx"]
    {
        let line = format!("{command} {flags} --data list.json -o list.json");
        says(&run(&dir, words(&line)).ended(2).err, &["-o list.json: this is the file of --data"]);
    }
    assert_eq!(contents(), before);
    assert_eq!(std::fs::read(dir.join("data/class00/00.png")).unwrap(), photo);
}

/// An audit may replace the report whose trials it repeats, and its baseline.
#[test]
fn a_report_of_the_same_audit_may_be_replaced() {
    let dir = stage();
    audit(&dir, "-o r.json --save-baseline base.json").ended(0);
    audit(&dir, "--trials r.json -o r.json").ended(0);
    audit(&dir, "--baseline base.json --save-baseline base.json").ended(0);
}

/// A folder of attacked files is continued by the audit that began it, and by no other.
#[test]
fn attacked_files_of_another_audit_are_refused() {
    let dir = stage();
    dir.write("suite.yaml", "form: corrected\nattacks: [ES]\nsteps: 3\neps: 16/255\nspace: file\n");
    audit(&dir, "--attacked-out out -o a.json").ended(0);
    let resumed = |flags: &str| audit(&dir, &format!("--attacked-out out --resume {flags}"));
    let other = resumed("--seed 5 -o b.json").ended(2);
    says(&other.err, &["--attacked-out out: its files are of another audit", "Name a new folder"]);
    let list = dir.text("out/attacked.csv");
    std::fs::remove_file(dir.join("out/attacked.csv")).unwrap();
    resumed("-o a.json").ended(0);
    assert_eq!(dir.text("out/attacked.csv"), list);
    std::fs::remove_file(dir.join("out/attacked.run")).unwrap();
    says(&resumed("-o a.json").ended(2).err, &["its files are of an unknown audit"]);
    // A folder that only an interrupted audit claimed is as good as new.
    dir.write("new/.run", "another\n");
    audit(&dir, "--attacked-out new -o c.json").ended(0);
}

/// An audit that has written no file yet keeps others out of its folder: here this test holds the claim.
#[test]
fn a_folder_of_attacked_files_has_one_writer() {
    let dir = stage();
    dir.write("suite.yaml", "form: corrected\nattacks: [ES]\nsteps: 3\neps: 16/255\nspace: file\n");
    dir.write("out/attacked.run", "another\n");
    let claim = std::fs::File::open(dir.join("out/attacked.run")).unwrap();
    claim.lock().unwrap();
    let err = audit(&dir, "--attacked-out out -o a.json").ended(2).err;
    says(&err, &["--attacked-out out: another audit is writing there", "name a new folder"]);
    drop(claim);
    audit(&dir, "--attacked-out out -o a.json").ended(0);
}

/// Boxes of `data/` in COCO's form: of each class two images, of this width.
fn boxes(width: usize) -> String {
    let places: Vec<(usize, usize)> = (0..3).flat_map(|class| [(class, 0), (class, 1)]).collect();
    let all = |row: &dyn Fn(usize, usize, usize) -> String| {
        let rows = places.iter().enumerate().map(|(at, &(class, sample))| row(at, class, sample));
        rows.collect::<Vec<_>>().join(", ")
    };
    let files = all(&|at, class, sample| {
        format!(r#"{{"id": {at}, "file_name": "data/class{class:02}/{sample:02}.png"}}"#)
    });
    let cut = all(&|at, class, _| {
        format!(r#"{{"id": {at}, "image_id": {at}, "category_id": {class}, "bbox": [0, 0, {width}, 12]}}"#)
    });
    let classes = r#"{"id": 0, "name": "a"}, {"id": 1, "name": "b"}, {"id": 2, "name": "c"}"#;
    format!(r#"{{"images": [{files}], "annotations": [{cut}], "categories": [{classes}]}}"#)
}

/// The image files are the same; the part of them that is an image is not.
#[test]
fn cached_embeddings_are_of_the_same_parts_of_files() {
    let dir = stage();
    let fixed = "model.onnx --suite suite.yaml --data coco.json --strong-sample off --max-queries 4";
    let audit = |flags: &str| run(&dir, words(&format!("{fixed} {flags}")));
    dir.write("coco.json", boxes(12));
    audit("-q --cache kept -o first.json").ended(0);
    run(&dir, words("embed model.onnx --data coco.json -q -o g.parquet")).ended(0);
    // Earlier versions saved no part: whether it is another is unknown, and the refusal doesn't say that it
    // is.
    let mut saved = Embedded::read(&dir.join("g.parquet")).unwrap();
    assert!(saved.images.iter().all(|image| image.part.is_some()));
    saved.images.iter_mut().for_each(|image| image.part = None);
    saved.write(&dir.join("earlier.parquet")).unwrap();
    let told = audit("-q --gallery-cache earlier.parquet").ended(2).err;
    says(&told, &["doesn't say which part of its file `data/class00/00.png#0` is", "Remove the file"]);
    dir.write("coco.json", boxes(6));
    audit("-q --cache kept -o second.json").ended(0);
    audit("-q -o own.json").ended(0);
    assert_eq!(lasting_text(&dir, "second.json"), lasting_text(&dir, "own.json"));
    let stale = audit("-q --gallery-cache g.parquet").ended(2);
    says(&stale.err, &["g.parquet: `data/class00/00.png#0` is another part of its file", "Remove the file"]);
    // A file in the cache that doesn't fit costs its time, and not the audit.
    let files = Temp::names_in(&dir.join("kept"));
    assert_eq!(files.len(), 2, "{files:?}");
    let [a, b] = [0, 1].map(|at| dir.join("kept").join(&files[at]));
    let (of_a, of_b) = (std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
    std::fs::write(&a, &of_b).unwrap();
    std::fs::write(&b, &of_a).unwrap();
    let again = audit("--progress plain --cache kept -o third.json").ended(0);
    says(&again.err, &["--cache: kept/", "is another part of its file", "All images are embedded again"]);
    assert!(!again.err.contains("Remove the file"), "{}", again.err);
    assert_eq!(lasting_text(&dir, "third.json"), lasting_text(&dir, "own.json"));
    // It was replaced.
    let whole = audit("--progress plain --cache kept -o fourth.json").ended(0);
    says(&whole.err, &["computed again and agree"]);
}

/// The folder of a cache is tried before the model is read, and a full disk costs the cache alone.
#[test]
fn a_cache_that_cannot_be_written_costs_no_audit() {
    let dir = stage();
    for (folder, why) in [
        ("suite.yaml/kept", "can't make the folder: suite.yaml is a file"),
        ("data/kept", "it lies in data, and the next audit would list its files among the images"),
        ("/proc/kept", "can't write there"),
    ] {
        let line = format!("nowhere.onnx {QUICK} --cache {folder}");
        says(&run(&dir, words(&line)).ended(2).err, &[&format!("--cache {folder}: {why}")]);
    }
    let program = program(&dir);
    let mut shell = Command::new("sh");
    // No file may be longer than 512 bytes: a full disk.
    shell.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"]).arg(program.get_program());
    shell.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?)))).stdin(Stdio::null());
    let line = format!("model.onnx {QUICK} --cache kept");
    let done = ran(shell.current_dir(dir.path()).args(words(&line))).ended(0);
    says(&done.err, &["--cache: can't write kept/", "The embeddings are not cached"]);
}

/// A file that is a mount, as in containers, can't be replaced: that is told before the work. `unshare` makes
/// one, where the system lets it.
#[test]
#[cfg(target_os = "linux")]
fn a_mounted_file_is_refused_before_the_work() {
    let dir = stage();
    dir.write("r r.json", "");
    let program = program(&dir);
    let mounted = |command: &[&str]| {
        let mut unshare = Command::new("unshare");
        let script = "mount --bind suite.yaml 'r r.json' && exec \"$@\"";
        unshare.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).args(command);
        unshare.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
        unshare.current_dir(dir.path()).stdin(Stdio::null()).output()
    };
    if !mounted(&["true"]).is_ok_and(|done| done.status.success()) {
        eprintln!("no mount can be made here");
        return;
    }
    let audit = program.get_program().to_str().unwrap();
    let done = mounted(&[audit, "nowhere.onnx", "-q", "-o", "r r.json"]).unwrap();
    assert_eq!(done.status.code(), Some(2));
    says(&String::from_utf8(done.stderr).unwrap(), &["-o r r.json: it is a mount of its own"]);
}

/// A file that can't be written in the end: the message says how to write another from the same trials.
#[test]
fn a_report_that_cannot_be_written_goes_to_another_file() {
    let dir = stage();
    let flags = format!("model.onnx {QUICK}");
    let err = unfinished(&dir, &flags);
    says(&err, &["To write another file: --journal j --resume -o OTHER"]);
    let other = format!("{flags} --journal j --resume -o other.json").replace(" -q", "");
    says(&run(&dir, words(&other)).ended(0).err, &["trials are done already"]);
    assert!(dir.join("other.json").exists() && !dir.join("j").exists());
}

/// Another process removes a journal between the two calls that open and lock it: nobody then writes to a
/// file without a name.
#[test]
fn one_process_has_a_journal_at_a_time() {
    let dir = Temp::new();
    let (path, holders) = (dir.join("j"), AtomicUsize::new(0));
    let open_often = || {
        for _ in 0..500 {
            // Without a trial it is removed when it is dropped.
            if let Ok(journal) = Journal::open(&path, false) {
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                std::thread::yield_now();
                assert!(path.exists());
                holders.fetch_sub(1, Ordering::SeqCst);
                drop(journal);
            }
        }
    };
    std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(open_often))));
}

/// An audit whose journal was removed while it ran doesn't remove the journal of another one in its place.
#[test]
#[cfg(unix)]
fn a_journal_that_was_removed_takes_no_other_with_it() {
    let dir = Temp::new();
    let path = dir.join("j");
    let first = Journal::open(&path, false).unwrap();
    std::fs::remove_file(&path).unwrap();
    let second = Journal::open(&path, false).unwrap();
    drop(first);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
}

/// The order of `-o` may change: the journal beside any of them is continued.
#[test]
fn the_journal_beside_any_report_is_found() {
    let dir = stage();
    unfinished(&dir, &format!("model.onnx {QUICK}"));
    let resumed = || {
        let flags = QUICK.replace(" -q", "");
        run(&dir, words(&format!("model.onnx {flags} -o a.json -o b.html --resume")))
    };
    for name in ["a.json.journal", "b.html.journal"] {
        std::fs::copy(dir.join("j"), dir.join(name)).unwrap();
    }
    says(&resumed().ended(2).err, &["a.json.journal and b.html.journal are both there", "--journal"]);
    std::fs::remove_file(dir.join("a.json.journal")).unwrap();
    says(&resumed().ended(0).err, &["trials are done already"]);
    assert!(!dir.join("b.html.journal").exists());
}

/// Sends SIGTERM once this process says `begun` on stderr; its last line there.
fn ended_at(command: &mut Command, begun: &str) -> String {
    let mut child = started(command);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().any(|line| line.unwrap().contains(begun)), "it never said {begun}");
    send(&child, &["TERM"]);
    let last = lines.last().unwrap().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{last}");
    last
}

/// The trials of an earlier process are saved, whenever this one ends.
#[test]
fn an_interrupted_start_says_where_earlier_trials_are() {
    let dir = stage();
    unfinished(&dir, &format!("model.onnx {QUICK}"));
    dir.write("model.onnx", slow_to_load().encode());
    let flags = QUICK.replace(" -q", "");
    let line = format!("model.onnx {flags} -o out/r.json --journal j --resume --progress json");
    let last = ended_at(program(&dir).args(words(&line)), "\"model\"");
    says(&last, &["interrupted while the model was loaded", "saved in j", "--resume continues"]);
    assert!(!last.contains("starts from the beginning"), "{last}");
}

/// The first point's trials are saved while the second has none.
#[test]
fn an_interrupted_sweep_says_where_earlier_trials_are() {
    let dir = stage();
    let line = format!("sweep model.onnx {QUICK} --over steps=2,100000 -o sw.json");
    let mut child = started(program(&dir).args(words(&line)));
    wait_for(&mut child, &dir, "sw.json.journal.2");
    let words = ["audit: interrupted", "saved in sw.json.journal.1", "--resume continues"];
    let err = interrupted(child, &["TERM"], &words);
    assert!(!err.contains("starts from the beginning"), "{err}");
    assert!(dir.join("sw.json.journal.1").exists() && !dir.join("sw.json.journal.2").exists());
}

/// Commands without a journal end with a message of their own, and write nothing.
#[test]
fn an_interrupted_doctor_inspection_or_gradient_ends_cleanly() {
    let dir = stage();
    let line =
        "doctor model.onnx --suite suite.yaml --data data --steps 100000 --max-queries 4 --only restarts";
    let last = ended_at(program(&dir).args(words(line)).args(["--progress", "json"]), "\"checks\"");
    says(&last, &["interrupted while checks attacked. Run the same command again"]);
    dir.write("slow.onnx", slow_to_load().encode());
    let before = dir.names();
    for (line, when) in [
        ("inspect slow.onnx", "interrupted while the model was inspected"),
        ("grad slow.onnx -o g.onnx", "interrupted while the graph was made"),
    ] {
        let child = started(program(&dir).args(words(line)));
        // Loading the model takes longer than this.
        std::thread::sleep(Duration::from_millis(1500));
        interrupted(child, &["TERM"], &[when, "Run the same command again"]);
    }
    assert_eq!(dir.names(), before);
}

/// The user's cache doesn't grow for ever: what was written 90 days ago is removed when a result is added.
#[test]
fn old_results_are_removed_from_the_cache() {
    let dir = stage();
    let day = Duration::from_secs(24 * 3600);
    let folder = "cache/audit/check";
    for (name, days) in [("old.json", 91), ("old.json.x.partial", 91), ("new.json", 89), ("old.txt", 91)] {
        let path = dir.write(&format!("{folder}/{name}"), "{}");
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - days * day).unwrap();
    }
    let mut command = program(&dir);
    command.env("XDG_CACHE_HOME", dir.join("cache")).env("HOME", dir.path());
    ran(command.args(words(&format!("model.onnx {QUICK}")))).ended(0);
    // macOS has its caches elsewhere.
    if cfg!(target_os = "linux") {
        let names = Temp::names_in(&dir.join(folder));
        assert!(names.len() == 3 && names.contains(&"new.json".into()), "{names:?}");
        assert!(names.contains(&"old.txt".into()), "{names:?}");
    }
}
