//! Every file of the fuzzers' corpus, through the functions that the fuzzers call: none panics. The corpus
//! has a few valid files of each kind, and the findings of fuzzers.

#[path = "../../fuzz/entries.rs"]
mod entries;

use std::path::Path;

#[test]
fn no_file_of_the_corpus_panics() {
    for (name, entry) in entries::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let mut count = 0;
        for file in std::fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            // Shown if the test fails.
            eprintln!("{}", path.display());
            entry(&std::fs::read(&path).unwrap());
            count += 1;
        }
        assert!(count > 0, "{} is empty", folder.display());
    }
}

/// The seeds are valid, so that a fuzzer begins behind the first checks.
#[test]
fn sound_files_of_the_corpus_are_taken() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let text = |name: &str| std::fs::read_to_string(corpus.join(name)).unwrap();
    onnx_grad::Graph::load(&corpus.join("model/conv.onnx")).unwrap();
    onnx_grad::Graph::load(&corpus.join("model/loop.onnx")).unwrap();
    onnx_grad::Graph::load(&corpus.join("model/masked.onnx")).unwrap();
    audit::yaml::read::<audit::model::card::Card>("all.yaml", &text("card/all.yaml")).unwrap();
    audit::suite::Suite::parse("ars.yaml", &text("suite/ars.yaml")).unwrap();
    // It is read up to the images, which are missing.
    let list = corpus.join("image_list/quoted.csv");
    let missing = audit::data::Dataset::open(&list, None, None).err().unwrap();
    assert!(missing.to_string().contains("a,1.png is listed, but missing"), "{missing}");
    audit::record::Report::parse(&text("report/small.json")).unwrap();
    // The lines of a journal, without their checksums.
    let lines = text("journal/lines.json");
    let signed: String =
        lines.lines().map(|l| format!("{} {l}\n", audit::shards::journal::checksum(l.as_bytes()))).collect();
    let temp = crate::common::Temp::new();
    let path = temp.write("a.journal", &signed);
    let refused =
        audit::shards::journal::Journal::open(&path, false).err().expect("it holds trials").to_string();
    assert!(refused.contains("finished trials"), "{refused}");
}

/// fuzz/ is a workspace of its own, whose lock file no other build reads: `cargo xtask fuzz` needs every
/// dependency in it.
#[test]
fn the_fuzzers_lock_file_has_every_dependency() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let lock = read("fuzz/Cargo.lock");
    let crates =
        ["attack", "base", "gallery", "model", "render", "report"].map(|name| format!("audit-{name}"));
    let beside = crates.iter().map(String::as_str).chain(["onnx-grad"]);
    let manifests = beside.map(|name| (name, format!("crates/{name}/Cargo.toml")));
    for (package, manifest) in [("audit", "Cargo.toml".into())].into_iter().chain(manifests) {
        let manifest = read(&manifest);
        let section = manifest.split("\n[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
        let named =
            section.lines().filter_map(|line| Some(line.split_once(" = ")?.0.trim_end_matches(".workspace")));
        let block =
            lock.split("[[package]]").find(|b| b.contains(&format!("name = \"{package}\"\n"))).unwrap();
        let missing: Vec<&str> = named.filter(|name| !block.contains(&format!("\n \"{name}"))).collect();
        assert!(missing.is_empty(), "{missing:?} of {package}: `cargo metadata` in fuzz/ adds them");
    }
}
