//! What a new user sees first: `audit inspect`, the plan before the wait, the cached check, `--ep auto`,
//! samples.

use crate::common::models::{self, Weights, free, grey, small, trunk, trunk_weights, value};
use crate::common::transcript::{Transcript, portable};
use crate::common::{Temp, bundled, one_line, program, ran, run, says, words};
use onnx_grad::Graph;
use onnx_grad::graph::{Attr, Dim, Node, Value};
use serde_json::Value as Json;
use std::path::Path;

/// `audit inspect model.onnx` of a graph, as JSON, and its exit code.
fn inspected(dir: &Temp, graph: &Graph, args: &[&str]) -> (Json, Option<i32>) {
    dir.write("model.onnx", graph.encode());
    let done = run(dir, [&["inspect", "model.onnx", "--json"], args].concat());
    (serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}: {}{}", done.out, done.err)), done.code)
}

/// Notes what a model looks like, and the next steps.
fn told(dir: &Transcript, what: &str, graph: &Graph, args: &[&str], code: i32) -> Json {
    let (found, ended) = inspected(dir, graph, args);
    assert_eq!(ended, Some(code), "{found}");
    let lines = |key: &str| {
        found[key].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_string()).collect()
    };
    let next: Vec<String> = lines("next");
    let looks = found["looks_like"].as_str().unwrap_or("nothing");
    dir.note(&format!("# {what}{}\n{looks}\nnext: {}", args.join(" "), next.join("\nnext: ")));
    found
}

#[test]
fn a_model_is_described_as_an_audit_takes_it() {
    let dir = Transcript::new(Temp::new());
    // It is unknown whether the eight values are class scores.
    let found = told(&dir, "the plainest model", &small(), &[], 0);
    assert_eq!(found["embedding"]["name"], "embedding");
    assert_eq!(found["embedding"]["dim"], 8);
    assert_eq!(found["embedding"]["why"], "its only output");
    assert_eq!((&found["precision"], &found["fixed_batch"]), (&"float32".into(), &Json::Null));
    let nodes: u64 =
        found["operators"].as_array().unwrap().iter().map(|o| o["nodes"].as_u64().unwrap()).sum();
    assert!(nodes >= 3, "{found}");
    assert!(found["operators"].as_array().unwrap().iter().all(|o| o["gradient"] == "exact"), "{found}");
    for seconds in ["check_s", "image_s", "query_s", "attacks_50_s", "attacks_50_least_s"] {
        assert!(found["cost"][seconds].as_f64().unwrap() > 0.0, "{found}");
    }
    // 50 queries take fifty times as long as one.
    let ratio = found["cost"]["attacks_50_s"].as_f64().unwrap() / found["cost"]["query_s"].as_f64().unwrap();
    assert!((ratio - 50.0).abs() < 1e-6);
    let text = run(&dir, ["inspect", "model.onnx"]).out;
    says(&text, &["looks like", "any batch", "each has its gradient", "an audit", "next"]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_quantised_model_is_told_so() {
    let dir = Temp::new();
    let mut nodes = vec![
        Node::new("QuantizeLinear", &["image", "scale"], "q"),
        Node::new("DequantizeLinear", &["q", "scale"], "x"),
    ];
    nodes.extend(trunk("x", "embedding", ""));
    let weights = trunk_weights(Weights::new(1), "", 1).floats("scale", &[], &[0.01]);
    dir.write("model.onnx", grey(nodes, weights).encode());
    let text = one_line(&run(&dir, ["inspect", "model.onnx"]).ended(0).out);
    says(&text, &["float32, quantised; its gradient is the one without the rounding (straight-through)"]);
}

#[test]
fn a_classifier_is_told_so_with_the_value_before_its_classifier() {
    let dir = Transcript::new(Temp::new());
    let mut nodes = trunk("image", "features", "");
    nodes.push(Node::new("Gemm", &["features", "weight"], "logits"));
    nodes.push(Node::new("Softmax", &["logits"], "embedding"));
    let graph = grey(nodes, trunk_weights(Weights::new(1), "", 1).normal("weight", &[8, 10], 0.5));
    // An audit of it could be run; with the advised flag it has an embedding.
    told(&dir, "a classifier", &graph, &[], 0);
    let found = told(&dir, "a classifier, ", &graph, &["--output", "features"], 0);
    assert_eq!(found["embedding"]["dim"], 8);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_detector_and_tokens_are_told_so() {
    let dir = Transcript::new(Temp::new());
    let mut graph = small();
    graph.outputs = vec![value("boxes", free(), &[100, 4]), value("scores", free(), &[100])];
    graph.nodes.push(Node::new("Identity", &["embedding"], "boxes"));
    graph.nodes.push(Node::new("Identity", &["embedding"], "scores"));
    assert!(told(&dir, "a detector", &graph, &[], 3)["problem"].is_string());

    let map = Node::new("Conv", &["image", "kernel"], "embedding").with("strides", Attr::Ints(vec![3, 3]));
    let mut graph = grey(vec![map], Weights::new(1).normal("kernel", &[8, 1, 3, 3], 0.3));
    graph.outputs = vec![value("embedding", free(), &[8, 4, 4])];
    told(&dir, "a feature map", &graph, &[], 3);
    let found = told(&dir, "a feature map, ", &graph, &["--pooling", "mean"], 0);
    assert!(found["embedding"]["why"].as_str().unwrap().contains("pooled by mean"), "{found}");
    insta::assert_snapshot!(dir.told());
}

/// A grey image of 64 × 64 pixels to `outputs` by `nodes`; the file leaves their shapes open, as from
/// exporters.
fn open_shapes(nodes: Vec<Node>, weights: Weights, outputs: &[(&str, usize)]) -> Graph {
    let mut graph = grey(nodes, weights);
    graph.inputs = vec![value("image", free(), &[1, 64, 64])];
    let unknown = |(name, rank): &(&str, usize)| Value {
        shape: Some((0..*rank).map(|i| Dim::Free(format!("{name}_{i}"))).collect()),
        ..value(name, free(), &[])
    };
    graph.outputs = outputs.iter().map(unknown).collect();
    graph
}

/// What exporters write instead of an embedding: each message says so, with a next step.
#[test]
fn what_is_no_embedding_is_known_by_its_shapes() {
    let dir = Transcript::new(Temp::new());
    let conv = |out: &str| Node::new("Conv", &["image", "kernel"], out).with("pads", vec![1i64, 1, 1, 1]);
    let kernel = |channels: i64| Weights::new(1).normal("kernel", &[channels, 1, 3, 3], 0.3);

    // YOLO: its 84 positions are those of 8 × 8, 4 × 4 and 2 × 2 cells.
    let flat = || vec![Node::new("Flatten", &["image"], "flat"), Node::new("Gemm", &["flat", "w"], "all")];
    let reshape = Node::new("Reshape", &["all", "shape"], "output0");
    let weights = Weights::new(1).normal("w", &[4096, 504], 0.1).ints("shape", &[-1, 6, 84]);
    let yolo = open_shapes([flat(), vec![reshape]].concat(), weights, &[("output0", 3)]);
    told(&dir, "a detector of cells", &yolo, &[], 3);

    // SSD: boxes of all images together, and a score for each.
    let weights = Weights::new(1).normal("w", &[4096, 400], 0.1).ints("shape", &[-1, 4]).ints("rows", &[-1]);
    let boxes = Node::new("Reshape", &["all", "shape"], "5021");
    let scores = Node::new("Reshape", &["all", "rows"], "5022");
    let ssd = open_shapes([flat(), vec![boxes, scores]].concat(), weights, &[("5021", 2), ("5022", 1)]);
    told(&dir, "a detector of boxes", &ssd, &[], 0);

    told(&dir, "a segmentation", &open_shapes(vec![conv("map")], kernel(5), &[("map", 4)]), &[], 3);

    // Classes of each position, as from a text reader; Softmax isn't the last node.
    let reader = vec![
        Node::new("Reshape", &["image", "shape"], "rows"),
        Node::new("MatMul", &["rows", "w"], "logits"),
        Node::new("Softmax", &["logits"], "shares").with("axis", 2),
        Node::new("Identity", &["shares"], "out"),
    ];
    let weights = Weights::new(1).normal("w", &[128, 5000], 0.1).ints("shape", &[-1, 32, 128]);
    told(&dir, "a reader of texts", &open_shapes(reader, weights, &[("out", 3)]), &[], 3);

    let mut texts = open_shapes(
        vec![Node::new("MatMul", &["image", "w"], "text")],
        Weights::new(1).normal("w", &[77, 8], 0.1),
        &[("text", 2)],
    );
    texts.inputs = vec![value("image", free(), &[77])];
    told(&dir, "an encoder of texts", &texts, &[], 3);
    insta::assert_snapshot!(dir.told());
}

/// The written card has the same effect as no card: an audit with it has equal embeddings.
#[test]
fn a_card_is_written_once_and_read() {
    let dir = Transcript::new(models::stage(5, 4));
    let inspect = || inspected(&dir, &small(), &[]).0;
    let plain = inspect();
    let done = run(&dir, ["inspect", "model.onnx", "--write-card"]).ended(0);
    says(&done.out, &["model.yaml is written"]);
    let card = dir.text("model.yaml");
    insta::assert_snapshot!("card", portable(&card));
    let carded = inspect();
    for key in ["sha256", "preprocessing", "preprocessing_assumed"] {
        assert_eq!(plain[key], carded[key], "{card}");
    }
    dir.refused(&["inspect", "model.onnx", "--write-card"], 2);
    insta::assert_snapshot!(dir.told());
}

/// Assumptions stay assumptions: the card has them as comments.
#[test]
fn a_card_does_not_state_what_was_assumed() {
    let dir = Temp::new();
    let graph = models::colour();
    dir.write("model.onnx", graph.encode());
    run(&dir, ["inspect", "model.onnx", "--write-card"]).ended(0);
    let card = dir.text("model.yaml");
    insta::assert_snapshot!("card_of_assumptions", portable(&card));
    let (found, _) = inspected(&dir, &graph, &[]);
    assert_eq!(found["preprocessing_assumed"], true);
    // Without the comment marks they are stated, with the same values.
    let stated = card.replace("# range:", "range:").replace("# mean:", "mean:").replace("# std:", "std:");
    dir.write("model.yaml", stated);
    let (now, _) = inspected(&dir, &graph, &[]);
    assert_eq!(now["preprocessing_assumed"], false);
    let said = |found: &Json| found["preprocessing"].as_str().unwrap().replace(" (assumed)", "");
    assert_eq!(said(&now), said(&found));
}

const QUICK: [&str; 9] =
    ["model.onnx", "--suite", "smoke", "--max-queries", "3", "--data", "data", "--strong-sample", "off"];

/// Runs an audit with a cache folder; returns its report, and its output.
fn with_cache(dir: &Temp, args: &[&str]) -> (Json, String) {
    let mut command = program(dir.path());
    command.args(args).args(["-o", "report.json", "--progress", "plain"]);
    let done = ran(command.env("XDG_CACHE_HOME", dir.join("cache")).env("HOME", dir.path())).ended(0);
    (dir.json("report.json"), done.err)
}

/// [`with_cache`] of a quick audit.
fn cached(dir: &Temp, args: &[&str]) -> (Json, String) {
    with_cache(dir, &[&QUICK[..], args].concat())
}

/// A report without its timing and its command line.
fn lasting(mut report: Json) -> Json {
    (report["timing"], report["command"]) = (Json::Null, Json::Null);
    report
}

fn kept(report: &Json) -> bool {
    report["timing"]["check_kept"] == true
}

/// The result of the check at load is reused only if nothing that it depends on changed.
#[cfg(target_os = "linux")]
#[test]
fn the_check_is_kept_for_the_same_model_images_and_options() {
    let dir = models::stage(5, 4);
    let mut encoded = small().encode_external();
    dir.write("model.onnx", &encoded.model);
    dir.write(onnx_grad::graph::Encoded::WEIGHTS, &encoded.weights);
    let (first, said) = cached(&dir, &[]);
    assert!(!kept(&first) && !said.contains("--no-cache"), "{said}");
    let (second, said) = cached(&dir, &[]);
    assert!(kept(&second), "{said}");
    says(&said, &["--no-cache recomputes it"]);
    // A report doesn't depend on it.
    assert_eq!(lasting(first), lasting(second));
    let entries = || std::fs::read_dir(dir.join("cache/audit/check")).unwrap().map(|e| e.unwrap().path());
    assert_eq!(entries().count(), 1);
    assert!(!kept(&cached(&dir, &["--no-cache"]).0));
    for other in [&["--threads", "1"][..], &["--batch", "3"], &["--mean", "0.1", "--std", "1"]] {
        assert!(!kept(&cached(&dir, other).0), "{other:?}");
        assert!(kept(&cached(&dir, other).0), "{other:?}");
    }
    // Another model: the same file beside other weights. Other images.
    let value = f32::from_le_bytes(encoded.weights[..4].try_into().unwrap());
    encoded.weights[..4].copy_from_slice(&(value * 1.01).to_le_bytes());
    dir.write(onnx_grad::graph::Encoded::WEIGHTS, &encoded.weights);
    assert!(!kept(&cached(&dir, &[]).0));
    assert!(kept(&cached(&dir, &[]).0));
    std::fs::remove_dir_all(dir.join("data")).unwrap();
    models::images(&dir, "data", 6, 4, 1);
    assert!(!kept(&cached(&dir, &[]).0));
}

/// Clean retrieval in a gallery too large to rank completely is cached, for the same gallery and seed, and so
/// are the correct queries. Neither changes a result.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "slow"]
fn retrieval_in_a_large_gallery_is_kept() {
    let dir = models::stage(5, 4);
    // Just above the size that is clustered, with embeddings of 128 numbers.
    let run = |more: &[&str]| {
        let quick = "--suite smoke --max-queries 3 --strong-sample off --steps 1 --benign-sample 40";
        let large = "--data generated:4500x2 --cache embeddings --threads 2 --allow-untrusted";
        let line = format!("{:?} {quick} {large}", bundled("plain.onnx"));
        let (report, said) = with_cache(&dir, &[&words(&line), more].concat());
        (lasting(report), said.contains("retrieval: cached"))
    };
    let (first, kept) = run(&[]);
    assert!(!kept && first["benign"]["queries"] == 40, "{}", first["benign"]);
    assert_eq!(run(&[]), (first.clone(), true));
    assert_eq!(run(&["--no-cache"]), (first, false));
    assert!(!run(&["--seed", "1"]).1);
    // A part of a run needs it too, and so does another suite.
    assert!(run(&["--partition", "hash:1/2"]).1);
    assert!(run(&["--eps", "4/255"]).1);
    let correct = ["--sample", "correct"];
    let (right, kept) = run(&correct);
    assert!(!kept, "which queries are right was not asked for yet");
    assert_eq!(run(&correct), (right.clone(), true));
    assert_eq!(run(&[&correct[..], &["--no-cache"]].concat()), (right, false));
    let folder = dir.join("cache/audit/clean");
    for entry in std::fs::read_dir(&folder).unwrap() {
        std::fs::write(entry.unwrap().path(), "{}").unwrap();
    }
    assert!(!run(&[]).1, "a damaged entry is believed");
}

/// Damaged or foreign entries are not used.
#[cfg(target_os = "linux")]
#[test]
fn damaged_and_foreign_entries_are_measured_anew() {
    let dir = models::stage(5, 4);
    cached(&dir, &[]);
    let folder = dir.join("cache/audit/check");
    let entry = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&entry).unwrap();
    let mut other: Json = serde_json::from_str(&text).unwrap();
    other["basis"]["runtime"] = "another".into();
    for content in [text[..text.len() / 2].to_string(), String::new(), other.to_string()] {
        std::fs::write(&entry, content).unwrap();
        let (report, _) = cached(&dir, &[]);
        assert!(!kept(&report));
        assert!(kept(&cached(&dir, &[]).0), "it is written anew");
    }
    // A finding that stops an audit is not used even if it was written by hand.
    let mut condemned: Json = serde_json::from_str(&text).unwrap();
    condemned["checked"]["findings"][0]["severity"] = "error".into();
    std::fs::write(&entry, condemned.to_string()).unwrap();
    assert!(!kept(&cached(&dir, &[]).0));
}

#[test]
fn the_provider_is_chosen_and_the_report_says_why() {
    let dir = models::stage(5, 4);
    let report = |args: &[&str]| {
        let done = run(&dir, [&QUICK[..], &["-o", "report.json", "-qv"], args].concat()).ended(0);
        (dir.json("report.json"), done.out)
    };
    let (auto, text) = report(&[]);
    let provider = auto["tool"]["provider"].as_str().unwrap();
    // CUDA is not mentioned unless the library has it.
    let why = auto["tool"]["provider_why"].as_str();
    assert!(why.is_none_or(|why| why.contains("CUDA")), "{}", auto["tool"]);
    assert_eq!(text.contains("CUDA"), why.is_some(), "{text}");
    says(&text, &[&format!("on {provider}")]);
    // ONNX Runtime's version is a number, such as 1.31.0.
    let version = auto["tool"]["runtime"].as_str().unwrap().rsplit(' ').next().unwrap();
    let numbers: Vec<_> = version.split('.').map(str::parse::<u32>).collect();
    assert!(numbers.len() == 3 && numbers.iter().all(Result::is_ok), "{version}");
    let (cpu, _) = report(&["--ep", "cpu"]);
    assert_eq!((&cpu["tool"]["provider"], &cpu["tool"]["provider_why"]), (&"cpu".into(), &Json::Null));
    if provider == "cpu" {
        assert_eq!(auto["outcomes"], cpu["outcomes"]);
    }
}

#[test]
fn retrieval_on_a_sample_says_so() {
    let dir = models::stage(6, 5);
    let report = |args: &[&str]| {
        let done = run(&dir, [&QUICK[..], &["-o", "report.json", "-qv"], args].concat()).ended(0);
        (dir.json("report.json")["benign"].clone(), done.out)
    };
    let (all, _) = report(&[]);
    assert_eq!((&all["queries"], &all["sampling"]), (&30.into(), &Json::Null));
    let (some, text) = report(&["--benign-sample", "12"]);
    let sampling = "12 of 30 queries, stratified by class, seed 0";
    assert_eq!((&some["queries"], &some["sampling"]), (&12.into(), &sampling.into()));
    says(&one_line(&text), &["(of 12 of 30 queries"]);
    // NMI is about the gallery, and all of it is used.
    assert_eq!(all["nmi"], some["nmi"]);
    assert_eq!(report(&["--benign-sample", "all"]).0, all);
    assert_eq!(report(&["--benign-sample", "30"]).0, all);
}

/// For 868 of 960 generated images the plain model is correct at once: of 100 queries some are wrong, of the
/// preferred ones none.
#[test]
fn queries_that_are_right_are_preferred_on_request() {
    let dir = Temp::new();
    dir.write("suite.yaml", "form: published\nsteps: 1\nattacks: [ES]\n");
    let fixed = "--suite suite.yaml --strong-sample off -q -o report.json";
    let audit = |flags: &str| run(&dir, words(&format!("{:?} {fixed} {flags}", bundled("plain.onnx"))));
    let row = |flags: &str| {
        audit(flags).ended(0);
        let report = dir.json("report.json");
        let row = report["attacks"].as_array().unwrap().iter().find(|a| a["code"] == "ES:R").unwrap().clone();
        (row, report["suite"]["sampling"].as_str().unwrap_or_default().to_string())
    };
    let (any, stated) = row("--max-queries 100");
    assert!(any["counted"].as_u64().unwrap() < 100 && !stated.contains("right"), "{any}");
    let (right, stated) = row("--max-queries 100 --sample correct");
    assert_eq!((&right["counted"], &right["before"]), (&100.into(), &100.0.into()));
    assert!(stated.contains("100 of 960 queries, correct ones first"), "{stated}");
    let idle = audit("--sample correct").ended(2);
    says(&idle.err, &["--sample correct", "--max-queries"]);
}

#[test]
fn help_lists_layouts_and_wraps_once() {
    let dir = Temp::new();
    for columns in [80, 100] {
        let done = ran(program(dir.path()).arg("--help").env("COLUMNS", columns.to_string()));
        for layout in audit::data::LAYOUTS {
            says(&done.out, &[&format!("- {}:", layout.name)]);
        }
        // A paragraph that was wrapped before has short lines in its middle. The lines of the last paragraphs
        // are full.
        let codes: Vec<&str> = done.out.lines().skip_while(|l| !l.starts_with("Exit codes")).collect();
        let next_word = |line: &str| line.split(' ').next().unwrap_or_default().chars().count();
        for pair in codes.windows(2) {
            let used = pair[0].trim_end().chars().count();
            assert!(used + 1 + next_word(pair[1]) > columns, "{columns}: {:?}", pair);
        }
    }
}

/// A folder of tests/exported, written by research/golden/hugging_face.py, copied into `dir`.
fn exported(dir: &Temp, name: &str) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exported");
    let mut folders = vec![from.join(name)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            let place = entry.strip_prefix(&from).unwrap().to_str().unwrap();
            dir.write(place, std::fs::read(&entry).unwrap());
        }
    }
}

/// A whole CLIP and a ViT as Optimum exports them: the folder is enough. Input and embedding are found by
/// their names, and the preprocessing in the image processor.
#[test]
fn what_transformers_export_needs_no_flag() {
    let dir = Transcript::new(models::stage(4, 3));
    exported(&dir, "clip");
    exported(&dir, "vit");
    let crop = ["shorter side resized to 32, then a centre crop (bicubic)", "0.4815, 0.4578, 0.4082"];
    let stretch = ["stretched to this size (bilinear)", "less 0.5, divided by 0.5"];
    for (name, file, embedding, prepared) in [
        ("clip", "clip/model.onnx", "image_embeds", crop),
        ("vit", "vit/onnx/model.onnx", "pooler_output", stretch),
    ] {
        let out = run(&dir, ["inspect", name, "--json"]).ended(0).out;
        let found: Json = serde_json::from_str(&out).unwrap();
        assert_eq!((&found["model"], &found["embedding"]["name"]), (&file.into(), &embedding.into()));
        assert_eq!(found["preprocessing_assumed"], false);
        let images = found["preprocessing"].as_str().unwrap();
        says(images, &prepared);
        says(images, &["32 × 32 RGB", "from preprocessor_config.json"]);
        // An untrained net may count as collapsed.
        let flags = "--data data -q --max-queries 4 --allow-untrusted -o r.json";
        let done = run(&dir, words(&format!("{name} {flags}")));
        assert!(matches!(done.code, Some(0 | 12)), "{}{}", done.out, done.err);
        assert_eq!(dir.json("r.json")["model"]["preprocessing"]["taken_from"], "preprocessor_config.json");
    }
    // A written card says where transformers begins its crop.
    run(&dir, ["inspect", "clip", "--write-card"]).ended(0);
    says(&dir.text("clip/model.yaml"), &["\nresize_shorter: 32\n", "\ncrop: floor\n"]);
    std::fs::remove_file(dir.join("clip/model.yaml")).unwrap();
    // The user's own card overrides the file, and flags override both.
    dir.write("vit/onnx/model.yaml", "mean: 0.25\nstd: 0.5\nsize: 32\nchannels: rgb\n");
    let found = run(&dir, ["inspect", "vit", "--json"]).ended(0).out;
    assert!(found.contains("less 0.25") && !found.contains("preprocessor_config.json"), "{found}");
    let flagged = run(&dir, words("inspect clip --mean 0 --std 1 --json")).ended(0).out;
    says(&flagged, &["pixels in [0, 1], from flags and preprocessor_config.json"]);
    // Many programs have a config.json.
    dir.write("clip/config.json", "// not JSON");
    dir.write("vit/onnx/config.json", "[1, 2]");
    // Settings that no card can state are an error with a next step.
    let text = dir.text("clip/preprocessor_config.json");
    dir.write("clip/preprocessor_config.json", text.replace("\"resample\": 3", "\"resample\": 1"));
    dir.refused(&["inspect", "clip"], 2);
    // A folder is a model only if it has one.
    dir.refused(&["data", "-q"], 2);
    dir.write("two/a.onnx", "a");
    dir.write("two/b.onnx", "b");
    dir.refused(&["two", "-q"], 2);
    insta::assert_snapshot!(dir.told());
}

/// `audit inspect` has the flags of progress that all commands on a model have.
#[test]
fn inspect_is_quiet_or_tells_programs() {
    let dir = models::stage(2, 2);
    for flag in ["-q", "--quiet", "--progress none"] {
        let done = run(&dir, words(&format!("inspect model.onnx --json {flag}"))).ended(0);
        assert_eq!(done.err, "", "{flag}");
        let found: Json = serde_json::from_str(&done.out).unwrap();
        assert_eq!(found["embedding"]["name"], "embedding", "{flag}");
        // No audit is quiet because the inspection was.
        let next = found["next"].as_array().unwrap();
        let own = |step: &Json| step.as_str().unwrap().split_whitespace().any(|word| word == "-q");
        assert!(!next.iter().any(own), "{next:?}");
    }
    let err = run(&dir, words("inspect nowhere.onnx --progress json")).ended(2).err;
    let event: Json = serde_json::from_str(&err).unwrap();
    assert_eq!((&event["event"], &event["exit"]), (&Json::from("error"), &Json::from(2)));
}
