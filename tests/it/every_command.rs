//! Rules that all commands share: embeddings that are drawn at random, images that change each other's
//! embeddings, models that take one image at a time, and integer kernels. The files of `tests/reported` are
//! made after reports of exporters' users.

use crate::common::models::{DIM, SIDE, Weights, before, grey, trunk, trunk_weights};
use crate::common::{Ran, Rng, Temp, finding, one_line, program, ran, run, says, warning, words};
use audit::data::{Dataset, Preparation};
use onnx_grad::Graph;
use onnx_grad::graph::{Attr, DType, Node, Tensor};
use serde_json::Value as Json;

/// A quick audit that prints all tables.
const QUICK: &str = "model.onnx -v --suite ars --data data --max-queries 2 --steps 2 --strong-sample off";

/// A folder with a model and square images for it, with this number of channels and this side.
struct Stage(Temp);

impl Stage {
    fn new(model: &[u8], channels: usize, side: usize) -> Stage {
        let temp = Temp::new();
        temp.write("model.onnx", model);
        let prep = Preparation::new(channels, side, side);
        Dataset::generated(7, 4, 3).export(&temp.join("data"), &prep).unwrap();
        Stage(temp)
    }

    fn reported(name: &str) -> Stage {
        let path = format!("{}/tests/reported/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
        let side = if ["arcface_mbf", "spatial0_zoo"].contains(&name) { 112 } else { 32 };
        Stage::new(&std::fs::read(path).unwrap(), 3, side)
    }

    fn grey(graph: &Graph) -> Stage {
        Stage::new(&graph.encode(), 1, SIDE as usize)
    }

    /// Every command that opens a model, by name. The names of their files begin with "out".
    fn commands(&self, more: &[&str]) -> Vec<(&'static str, Ran)> {
        let data = "--data data --no-cache --max-queries 2 --mean 0 --std 1";
        let all = [
            ("audit", format!("model.onnx -v --suite ars {data} --steps 2 --strong-sample off")),
            ("inspect", "inspect model.onnx".into()),
            ("embed", "embed model.onnx --data data -o out.parquet".into()),
            ("grad", "grad model.onnx -o out.onnx".into()),
            (
                "doctor",
                format!("doctor model.onnx --suite ars --only eight-bit --steps 2 -o doctor.json {data}"),
            ),
            ("compare", format!("compare model.onnx model.onnx {data} --steps 2 --strong-sample off")),
            ("geometry", format!("geometry model.onnx {data} --steps 2")),
            ("sweep", format!("sweep model.onnx --over steps=1,2 {data} --strong-sample off")),
        ];
        let run = |(name, line): (&'static str, String)| {
            let mut done = ran(program(&self.0).args(words(&line)).args(more));
            // Its table breaks sentences.
            if name == "doctor" && self.0.join("doctor.json").exists() {
                done.out += &self.0.text("doctor.json").replace("\\\"", "\"");
            }
            (name, done)
        };
        all.into_iter().map(run).collect()
    }

    /// Every command ends with exit code 12, says these words and writes nothing.
    #[track_caller]
    fn refused(&self, words: &[&str]) {
        for (name, done) in self.commands(&[]) {
            let said = output(&done);
            assert_eq!(done.code, Some(12), "{name}: {said}");
            for word in words {
                assert!(said.contains(word), "{name}: no {word:?} in {said}");
            }
            assert!(!said.contains("report this"), "{name}: {said}");
            plain(name, &said);
        }
        assert!(self.0.names().iter().all(|name| !name.starts_with("out")), "{:?}", self.0.names());
    }

    /// Every command takes the model. An untrained net may count as collapsed, and the doctor may find more.
    #[track_caller]
    fn taken(&self, more: &[&str]) -> Vec<(&'static str, String)> {
        let said = self.commands(more).into_iter().map(|(name, done)| {
            let said = output(&done);
            let collapsed = done.code == Some(12) && said.contains("(collapse)");
            assert!(done.code == Some(0) || name == "doctor" || collapsed, "{name} {:?}: {said}", done.code);
            plain(name, &said);
            (name, said)
        });
        said.collect()
    }

    /// The doctor's report. [`taken`](Self::taken) leaves one too, in `doctor.json`.
    fn doctor(&self, more: &[&str]) -> Json {
        let line = "doctor model.onnx --suite ars --data data --max-queries 2 --steps 2 --only eight-bit -q \
                    -o doctor.json";
        run(&self.0, [&words(line), more].concat());
        self.0.json("doctor.json")
    }
}

/// The state (passed, failed, not checked) or severity of a check in the doctor's report, and its text.
fn found(doctor: &Json, check: &str, key: &str) -> (String, String) {
    let text = |key: &str| finding(doctor, check)[key].as_str().unwrap().to_string();
    (text(key), text("found"))
}

fn output(done: &Ran) -> String {
    one_line(&format!("{}{}", done.out, done.err))
}

/// No C++ reaches the user.
#[track_caller]
fn plain(name: &str, said: &str) {
    for raw in ["onnxruntime_src", "Status Message", "Non-zero status", "onnxruntime::"] {
        assert!(!said.contains(raw), "{name}: {raw:?} in {said}");
    }
}

/// An input of integers, with a Cast inside.
#[test]
fn an_input_of_integers_is_taken_by_every_command() {
    let stage = Stage::reported("u8nhwc");
    for (command, said) in stage.taken(&[]) {
        if ["audit", "inspect", "grad"].contains(&command) {
            assert!(said.contains("uint8"), "{command}: {said}");
        }
    }
    let doctor = stage.0.json("doctor.json");
    for check in ["parity", "gradient"] {
        let (state, text) = found(&doctor, check, "state");
        assert_eq!(state, "passed", "{check}: {text}");
    }
}

#[test]
fn a_dropout_that_trains_is_refused_by_every_command() {
    let stage = Stage::reported("traindrop");
    stage.refused(&["drawn at random", "Dropout \"dr\"", "training_mode", "--output fl", "inference mode"]);
    let found: Json = serde_json::from_str(&run(&stage.0, ["inspect", "model.onnx", "--json"]).out).unwrap();
    assert_eq!(found["embedding"]["name"], "y");
    assert_eq!(found["next"].as_array().unwrap().len(), 1, "{found}");
    says(found["next"][0].as_str().unwrap(), &["--output fl"]);
    stage.taken(&["--output", "fl"]);
    // With --allow-untrusted the report says so.
    let done = run(&stage.0, words(&format!("{QUICK} --allow-untrusted --no-cache"))).ended(0);
    says(&done.out, &["[randomised]"]);
}

#[test]
fn a_sampled_latent_is_refused_by_every_command_which_name_its_mean() {
    let stage = Stage::reported("vae");
    stage.refused(&["drawn at random", "RandomNormalLike \"n\"", "--output mu"]);
    let estimated = ["model.onnx", "--data", "data", "--gradient", "estimate", "--no-cache"];
    says(&run(&stage.0, estimated).ended(12).err, &["drawn at random", "--output mu"]);
    stage.taken(&["--output", "mu"]);
}

#[test]
fn batch_normalisation_in_training_mode_is_refused_as_before() {
    let stage = Stage::reported("trainbn");
    for (name, done) in stage.commands(&[]) {
        let said = output(&done);
        assert!(matches!(done.code, Some(3 | 12)), "{name}: {said}");
        says(&said, &["BatchNormalization \"n\"", "training mode"]);
        plain(name, &said);
    }
}

/// Sequences of known length are expanded. Nothing is said of what the model doesn't do.
#[test]
fn a_sequence_that_is_split_is_taken_by_every_command() {
    for (name, said) in Stage::reported("seq").taken(&[]) {
        assert!(!said.contains("at random") && !said.contains("one image at a time"), "{name}: {said}");
    }
}

/// MXNet's spatial = 0 beside one mean for each channel, which ONNX Runtime takes as spatial = 1 when it
/// optimises the graph.
#[test]
fn batch_normalisation_of_old_files_has_one_mean_for_each_channel() {
    let stage = Stage::reported("spatial0_zoo");
    stage.taken(&[]);
    let doctor = stage.0.json("doctor.json");
    for (check, expected) in
        [("parity", "passed"), ("gradient", "passed"), ("runtime-optimiser", "not-checked")]
    {
        let (state, text) = found(&doctor, check, "state");
        assert_eq!(state, expected, "{check}: {text}");
    }
    let path = stage.0.join("model.onnx");
    let mut graph = Graph::decode_as_is(std::fs::read(&path).unwrap().into(), &path).unwrap();
    let each = |t: &Tensor| Tensor { shape: vec![16, 1, 1], ..t.clone() };
    for name in ["bs", "bb", "bm", "bv"] {
        let of_positions = each(&graph.constants[name]);
        graph.constants.insert(name.into(), of_positions);
    }
    stage.0.write("model.onnx", graph.encode());
    for (name, done) in stage.commands(&[]) {
        let said = output(&done);
        assert_eq!(done.code, Some(3), "{name}: {said}");
        says(&said, &["BatchNormalization \"bn_data\": spatial = 0", "one value for each channel"]);
    }
}

#[test]
#[ignore = "slow"]
fn images_that_change_each_others_embeddings_are_told_first() {
    for (name, node) in
        [("mixbatch", "Softmax \"at\""), ("mixbatch2", "ReduceMean \"mu\""), ("mixbatch3", "Reshape \"q\"")]
    {
        let stage = Stage::reported(name);
        stage.refused(&["images of a batch change each other's embeddings", node, "--batch 1"]);
        let doctor = stage.doctor(&[]);
        let (severity, text) = found(&doctor, "batch-dependence", "severity");
        assert_eq!(severity, "error", "{text}");
        for check in ["parity", "batch-size", "gradient"] {
            let (state, text) = found(&doctor, check, "state");
            assert_eq!(state, "not-checked", "{check}: {text}");
        }
        // The deviation of one image from its own mean is zero.
        if name != "mixbatch2" {
            stage.taken(&["--batch", "1"]);
        }
        let (severity, text) = found(&stage.doctor(&["--batch", "1"]), "batch-dependence", "severity");
        assert_eq!(severity, "warning", "{text}");
        says(&text, &["one image at a time", node]);
    }
}

/// A softmax over the images, images that attend to each other, and quantisation by the extremes of a whole
/// batch.
#[test]
#[ignore = "slow"]
fn other_operators_that_mix_images_are_told_alike() {
    let softmax = vec![
        Node::new("Softmax", &["e"], "share").with("axis", 0i64),
        Node::new("Mul", &["e", "share"], "embedding"),
    ];
    let attention = vec![
        Node::new("Transpose", &["e"], "t").with("perm", vec![1i64, 0]),
        Node::new("MatMul", &["e", "t"], "between"),
        Node::new("Softmax", &["between"], "share").with("axis", -1i64),
        Node::new("MatMul", &["share", "e"], "embedding"),
    ];
    for (nodes, node) in [(softmax, "Softmax \"share\""), (attention, "MatMul \"between\"")] {
        let stage = Stage::grey(&before(nodes, Weights::new(1)));
        stage.refused(&["images of a batch change each other's embeddings", node, "--batch 1"]);
        stage.taken(&["--batch", "1"]);
    }
    let stage = Stage::grey(&dynamic());
    let mixed = "images of a batch change each other's embeddings";
    stage.refused(&[mixed, "DynamicQuantizeLinear", "--batch 1"]);
    stage.taken(&["--batch", "1"]);
    let (severity, text) = found(&stage.0.json("doctor.json"), "batch-dependence", "severity");
    assert_eq!(severity, "warning", "{text}");
    says(&text, &["one image at a time", "DynamicQuantizeLinear"]);
}

/// The smallest model with its last layer as written by onnxruntime.quantization.quantize_dynamic.
fn dynamic() -> Graph {
    let mut nodes = trunk("image", "float", "");
    nodes.pop();
    let mut quantise = Node::new("DynamicQuantizeLinear", &["f1"], "q");
    quantise.outputs.extend(["scale".to_string(), "zero".to_string()]);
    nodes.extend([
        quantise,
        Node::new("MatMulInteger", &["q", "wq", "zero"], "sum"),
        Node::new("Cast", &["sum"], "sums").with("to", DType::F32.code() as i64),
        Node::new("Mul", &["scale", "ws"], "unit"),
        Node::new("Mul", &["sums", "unit"], "scaled"),
        Node::new("Add", &["scaled", "b2"], "embedding"),
    ]);
    let weights = trunk_weights(Weights::new(1), "", 1).floats("ws", &[], &[0.002]);
    let mut graph = grey(nodes, weights);
    let mut rng = Rng::new(5);
    graph.constants.insert("wq".into(), int8(&[4 * 36, DIM], &mut rng));
    graph.prune();
    graph
}

/// Weights between −112 and 112.
fn int8(shape: &[i64], rng: &mut Rng) -> Tensor {
    let bytes: Vec<u8> = (0..shape.iter().product()).map(|_| rng.int(-112, 112) as i8 as u8).collect();
    Tensor { dtype: DType::I8, shape: shape.to_vec(), bytes: bytes.into() }
}

#[test]
#[ignore = "slow"]
fn a_model_that_takes_one_image_is_taken_one_at_a_time() {
    for name in ["arcface_mbf", "nonebatch"] {
        let stage = Stage::reported(name);
        for (command, said) in stage.taken(&[]) {
            // A graph's shape shows it: [1, 3, 32, 32].
            let word = if command == "grad" { "float32 [1, 3," } else { "one image at a time" };
            assert!(said.contains(word), "{command}: {said}");
        }
        let done = run(&stage.0, words(&format!("{QUICK} -q -o report.json"))).ended(0);
        says(&done.out, &["[batch-size]", "one image at a time"]);
        says(&found(&stage.0.json("doctor.json"), "batch-size", "state").1, &["one image at a time"]);
    }
}

/// The file allows any batch, but its nodes only 2.
#[test]
fn a_batch_that_must_be_stated_is_asked_for_in_plain_words() {
    let mut nodes = trunk("fixed", "embedding", "");
    nodes.insert(0, Node::new("Reshape", &["image", "shape"], "fixed"));
    let stage =
        Stage::grey(&grey(nodes, trunk_weights(Weights::new(1), "", 1).ints("shape", &[2, 1, SIDE, SIDE])));
    for (name, done) in stage.commands(&[]) {
        let said = output(&done);
        assert_eq!(done.code, Some(3), "{name}: {said}");
        says(&said, &[if name == "inspect" { "embedding [2, 8]" } else { "Reshape" }, "--batch N"]);
        if name == "grad" {
            says(&said, &["a batch of 8"]);
            assert_eq!(said.matches("model.onnx").count(), 1, "{said}");
        }
        plain(name, &said);
    }
    stage.taken(&["--batch", "2"]);
}

/// Layers of [`deep`].
const LAYERS: usize = 12;

/// Twelve quantised convolutions, as integer kernels (with a sum by `com.microsoft`) or in float between
/// quantisers. Scales are equal and weights multiples of 1/512, so that many values lie halfway between two
/// integers, and rounding adds up.
fn deep(integers: bool) -> Graph {
    let mut rng = Rng::new(11);
    let weights = Weights::new(3).normal("head", &[DIM, 8 * SIDE * SIDE], 0.05);
    let scales = [("s", 0.1), ("ws0", 1.0 / 64.0), ("ws", 1.0 / 512.0)];
    let weights = scales.into_iter().fold(weights, |all, (name, scale)| all.floats(name, &[], &[scale]));
    let mut nodes = vec![Node::new("QuantizeLinear", &["image", "s", "z"], "q0")];
    let plain = |name: &str| format!("{name}/float");
    let float = |nodes: &mut Vec<Node>, name: &str, scale: &str, zero: &str| {
        nodes.push(Node::new("DequantizeLinear", &[name, scale, zero], &plain(name)));
    };
    let mut constants = Vec::new();
    for k in 0..LAYERS {
        let (x, w, y) = (format!("q{k}"), format!("w{k}"), format!("q{}", k + 1));
        constants.push((w.clone(), int8(&[8, if k == 0 { 1 } else { 8 }, 3, 3], &mut rng)));
        let ws = if k == 0 { "ws0" } else { "ws" };
        let pads: Attr = vec![1i64, 1, 1, 1].into();
        if integers {
            let inputs = [&x, "s", "z", &w, ws, "wz", "s", "z"];
            nodes.push(Node::new("QLinearConv", &inputs, &y).with("pads", pads));
        } else {
            float(&mut nodes, &x, "s", "z");
            float(&mut nodes, &w, ws, "wz");
            nodes.push(Node::new("Conv", &[&plain(&x), &plain(&w)], &format!("c{k}")).with("pads", pads));
            nodes.push(Node::new("QuantizeLinear", &[&format!("c{k}"), "s", "z"], &y));
        }
    }
    let (last, before) = (format!("q{LAYERS}"), format!("q{}", LAYERS - 1));
    if integers {
        let mut sum = Node::new("QLinearAdd", &[&last, "s", "z", &before, "s", "z", "s", "z"], "q");
        sum.domain = "com.microsoft".into();
        nodes.push(sum);
    } else {
        float(&mut nodes, &last, "s", "z");
        // The convolution before the last already has its DequantizeLinear.
        nodes.push(Node::new("Add", &[&plain(&last), &plain(&before)], "sum"));
        nodes.push(Node::new("QuantizeLinear", &["sum", "s", "z"], "q"));
    }
    nodes.push(Node::new("DequantizeLinear", &["q", "s", "z"], "y"));
    nodes.push(Node::new("Flatten", &["y"], "f"));
    nodes.push(Node::new("Gemm", &["f", "head"], "embedding").with("transB", 1i64));
    let mut graph = grey(nodes, weights);
    graph.constants.extend(constants);
    let zero = |dtype, byte: u8| Tensor { dtype, shape: vec![], bytes: vec![byte].into() };
    graph.constants.insert("z".into(), zero(DType::U8, 128));
    graph.constants.insert("wz".into(), zero(DType::I8, 0));
    graph.opsets.insert("com.microsoft".into(), 1);
    graph
}

#[test]
#[ignore = "slow"]
fn integer_kernels_are_audited_as_the_same_net_in_float_between_quantisers() {
    let mut found = Vec::new();
    for integers in [false, true] {
        let stage = Stage::grey(&deep(integers));
        stage.taken(&[]);
        run(&stage.0, words(&format!("{QUICK} -q --no-cache -o report.json"))).ended(0);
        let report = audit::record::Report::load(&stage.0.join("report.json")).unwrap();
        let said = warning(&report, "runtime-optimiser");
        says(&said, &["integer kernels", "of the largest value", "cosine at least 0.9"]);
        found.push(said);
        // Without a backward pass, this program uses integer kernels too.
        run(&stage.0, words(&format!("{QUICK} --gradient estimate --no-cache"))).ended(0);
        let (severity, parity) = self::found(&stage.doctor(&[]), "parity", "severity");
        assert_eq!(severity, if integers { "info" } else { "ok" }, "{parity}");
    }
    // ONNX Runtime runs both forms bit for bit alike.
    assert!(found.iter().all(|said| *said == found[0]), "{found:#?}");
}
