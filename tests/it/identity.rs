//! The identity of a model: two nets of one graph with different external weights are two models in every
//! output, and one net is one model however it is saved.

use crate::common::models::{self, small};
use crate::common::{Temp, one_line, run, says};
use audit::files::hex;
use onnx_grad::Graph;
use onnx_grad::graph::Encoded;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

const QUICK: [&str; 9] =
    ["--data", "data", "--suite", "smoke", "--max-queries", "3", "--strong-sample", "off", "-q"];

/// [`small`] with external weights, and the same graph with other weights.
fn two_nets() -> [Encoded; 2] {
    let other = |scale: f32| {
        let mut graph = small();
        let weights = graph.constants.get_mut("w2").unwrap();
        let values: Vec<f32> = weights.to_f32s().unwrap().iter().map(|v| v * scale).collect();
        *weights = onnx_grad::graph::Tensor::f32(&weights.shape.clone(), &values);
        graph.encode_external()
    };
    let nets = [1.0, 1.01].map(other);
    assert_eq!(nets[0].model, nets[1].model);
    assert_ne!(nets[0].weights, nets[1].weights);
    nets
}

fn stage() -> Temp {
    let dir = models::stage(5, 4);
    put(&dir, &two_nets()[0]);
    dir
}

fn put(dir: &Temp, net: &Encoded) {
    dir.write("model.onnx", &net.model);
    dir.write(Encoded::WEIGHTS, &net.weights);
}

fn inspected(dir: &Temp, model: &str) -> Json {
    serde_json::from_str(&run(dir, ["inspect", model, "--json"]).ended(0).out).unwrap()
}

/// The SHA-256 that docs/formats.md defines, of a model whose external data are these ranges.
fn by_hand(model: &[u8], ranges: &[&[u8]]) -> String {
    let mut hash = Sha256::new_with_prefix(model);
    for range in ranges {
        hash.update((range.len() as u64).to_le_bytes());
        hash.update(range);
    }
    hex(&hash.finalize())
}

#[test]
fn other_weights_beside_one_graph_are_another_model_on_every_surface() {
    let dir = stage();
    let nets = two_nets();
    let named = |net: &Encoded| {
        put(&dir, net);
        let formats = ["json", "html", "md", "cdx.json", "intoto.json", "csv"];
        let files = formats.map(|ending| format!("report.{ending}"));
        let to: Vec<&str> = files.iter().flat_map(|file| ["-o", file.as_str()]).collect();
        run(&dir, [&["model.onnx"], &QUICK[..], &to].concat()).ended(0);
        let images = ["--data", "data", "--suite", "smoke", "--max-queries", "3", "-q"];
        run(&dir, [&["geometry", "model.onnx", "-o", "geometry.json"], &images[..]].concat()).ended(0);
        let over = ["--over", "steps=1,2", "-o", "sweep.json"];
        run(&dir, [&["sweep", "model.onnx"], &QUICK[..], &over].concat()).ended(0);
        run(&dir, ["grad", "model.onnx", "-o", "grad.onnx"]).ended(0);
        let grad = Graph::load(&dir.join("grad.onnx")).unwrap().metadata["audit.model_sha256"].clone();
        let inspected = inspected(&dir, "model.onnx");
        let [sha256, net_sha256] =
            ["sha256", "net_sha256"].map(|key| inspected[key].as_str().unwrap().to_string());
        assert_eq!(sha256, by_hand(&net.model, &[&net.weights]));
        assert_eq!(grad, sha256);
        let bytes = (net.model.len() + net.weights.len()) as u64;
        assert_eq!(inspected["bytes"], bytes);
        assert_eq!(inspected["external_data"], serde_json::json!([Encoded::WEIGHTS]));
        let words = run(&dir, ["inspect", "model.onnx"]).ended(0).out;
        says(&words, &[&format!("with {}", Encoded::WEIGHTS), &sha256[..12], &net_sha256[..12]]);
        for name in files.iter().map(String::as_str).chain(["geometry.json", "sweep.json"]) {
            says(&dir.text(name), &[&sha256]);
            if name != "report.csv" {
                says(&dir.text(name), &[&net_sha256]);
            }
        }
        assert_eq!(dir.json("report.json")["model"]["bytes"], bytes);
        [sha256, net_sha256]
    };
    let [a, b] = [&nets[0], &nets[1]].map(named);
    assert!(a[0] != b[0] && a[1] != b[1], "{a:?} {b:?}");
}

#[test]
fn what_is_made_of_one_net_is_refused_for_the_other() {
    let dir = stage();
    let [first, second] = &two_nets();
    let audit = |args: &[&str]| run(&dir, [&["model.onnx"], &QUICK[..], args].concat());
    // The card of one model does not fit the other.
    run(&dir, ["inspect", "model.onnx", "--write-card"]).ended(0);
    audit(&["-o", "a.json"]).ended(0);
    // Parts of a run, and embeddings in a cache.
    audit(&["--partition", "hash:1/2", "-o", "1.json"]).ended(0);
    let embedded = audit(&["--cache", "cache", "-o", "cached.json"]).ended(0);
    assert!(!embedded.err.contains("computed again"), "{}", embedded.err);
    put(&dir, second);
    let refused = audit(&[]).ended(2);
    says(&refused.err, &["the model card is of another file", &by_hand(&second.model, &[&second.weights])]);
    // The hash of the graph's file alone does not fit either.
    dir.write("model.yaml", format!("sha256: {}\n", hex(&Sha256::digest(&second.model))));
    says(&one_line(&audit(&[]).ended(2).err), &["the model card is of another file", "leave the key out"]);
    std::fs::remove_file(dir.join("model.yaml")).unwrap();
    audit(&["--partition", "hash:2/2", "-o", "2.json"]).ended(0);
    says(&run(&dir, ["merge", "1.json", "2.json", "-o", "all.json"]).ended(13).err, &["model's SHA-256"]);
    // The cache of the first net does not serve the second, which gets its own file.
    let files = |dir: &Temp| std::fs::read_dir(dir.join("cache")).unwrap().count();
    assert_eq!(files(&dir), 1);
    audit(&["--cache", "cache", "-o", "b.json"]).ended(0);
    assert_eq!(files(&dir), 2);
    // A surrogate and a baseline are named by the same hash.
    dir.write("other/model.onnx", &first.model);
    dir.write(&format!("other/{}", Encoded::WEIGHTS), &first.weights);
    audit(&["--surrogate", "other/model.onnx", "-o", "c.json"]).ended(0);
    // Scores of 3 queries are undecided.
    audit(&["--baseline", "a.json", "--max-drop", "benign.r1=100", "-o", "d.json"]).ended(10);
    let sha256 = by_hand(&first.model, &[&first.weights]);
    assert_eq!(dir.json("c.json")["suite"]["surrogate"]["sha256"], sha256.as_str());
    assert_eq!(dir.json("d.json")["gate"]["baseline"]["sha256"], sha256.as_str());
    assert_ne!(dir.json("d.json")["model"]["sha256"], sha256.as_str());
}

/// The file's hash is `sha256sum`'s. The net's hash is equal with internal and external weights, and a card
/// may state either.
#[test]
fn one_net_has_one_name_however_it_is_saved() {
    let dir = stage();
    let bytes = small().encode();
    dir.write("inline.onnx", &bytes);
    let [inline, beside] = ["inline.onnx", "model.onnx"].map(|model| inspected(&dir, model));
    assert_eq!(inline["sha256"], hex(&Sha256::digest(&bytes)).as_str());
    assert_ne!(inline["sha256"], beside["sha256"]);
    assert_eq!(inline["net_sha256"], beside["net_sha256"]);
    assert_eq!((&inline["bytes"], &inline["external_data"]), (&bytes.len().into(), &serde_json::json!([])));
    dir.write("model.yaml", format!("sha256: {}\n", beside["net_sha256"].as_str().unwrap()));
    dir.write("inline.yaml", dir.text("model.yaml"));
    for model in ["inline.onnx", "model.onnx"] {
        run(&dir, [&[model], &QUICK[..]].concat()).ended(0);
    }
}

/// A file that an audit refuses has an identity too.
#[test]
fn a_refused_model_has_its_hash() {
    let dir = Temp::new();
    let mut graph = small();
    graph.inputs[0].name = "another".into();
    let bytes = graph.encode();
    dir.write("model.onnx", &bytes);
    let done = run(&dir, ["inspect", "model.onnx", "--json"]).ended(3);
    let found: Json = serde_json::from_str(&done.out).unwrap();
    assert!(found["problem"].is_string(), "{found}");
    assert_eq!(found["sha256"], hex(&Sha256::digest(&bytes)).as_str());
}

/// Input, preprocessing and embedding are the same, and described equally, with internal and external
/// weights.
#[test]
fn compare_counts_the_weights_beside_a_model() {
    let dir = stage();
    let bytes = small().encode();
    dir.write("inline.onnx", &bytes);
    run(&dir, [&["compare", "inline.onnx", "model.onnx", "-o", "c.json"], &QUICK[..]].concat()).ended(0);
    let net = &two_nets()[0];
    let costs = &dir.json("c.json")["crossed"]["costs"];
    assert_eq!(costs[0]["bytes"], bytes.len() as u64);
    assert_eq!(costs[1]["bytes"], (net.model.len() + net.weights.len()) as u64);
}
