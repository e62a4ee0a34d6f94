//! Models that are damaged, ambiguous or without gradient.

use super::*;

#[test]
fn files_that_are_no_models_are_refused() {
    let dir = stage();
    for (name, content) in [
        ("text.onnx", &b"hello"[..]),
        ("picture.onnx", b"\x89PNG\r\n\x1a\n0000"),
        ("empty.onnx", b""),
        ("pointer.onnx", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
    ] {
        dir.write(name, content);
        refused_quick(&dir, name, MODEL);
    }
    refused_quick(&dir, "nowhere.onnx", USAGE);
    refused_quick(&dir, "data", USAGE);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_model_cut_short_anywhere_is_refused() {
    let dir = stage();
    let whole = small().encode();
    for length in 0..whole.len() {
        let cut = Graph::decode(whole[..length].to_vec().into(), Path::new("cut.onnx"));
        let Err(error) = cut else { panic!("{length} of {} bytes passed for a model", whole.len()) };
        let error = audit::model::refused(error);
        assert_eq!(error.exit as i32, MODEL, "{error}");
        assert!(error.message.starts_with("cut.onnx: "), "{error}");
        assert!(length == 0 || error.message.contains("truncated"), "{length}: {error}");
    }
    for length in [1, 2, whole.len() / 2, whole.len() - 1] {
        dir.write("cut.onnx", &whole[..length]);
        refused_quick(&dir, "cut.onnx", MODEL);
    }
    insta::assert_snapshot!(dir.told());
}

#[test]
fn external_data_must_be_there_and_whole() {
    let dir = stage();
    let Encoded { model, weights } = small().encode_external();
    dir.write("model.onnx", &model);
    refused_quick(&dir, "model.onnx", MODEL);
    dir.write(Encoded::WEIGHTS, &weights[..weights.len() - 1]);
    refused_quick(&dir, "model.onnx", MODEL);
    dir.write(Encoded::WEIGHTS, &weights);
    works(&dir, "model.onnx", &[]);
    insta::assert_snapshot!(dir.told());
}

/// The files exist and are long enough: only their place is refused.
#[test]
fn external_data_outside_of_the_models_folder_is_refused() {
    let dir = stage();
    let Encoded { model, weights } = small().encode_external();
    dir.write("xweights", [weights.clone(), vec![0; 4096]].concat());
    let images = dir.join("data").display().to_string();
    for place in ["../xweights", "/etc/passwd", "a/../../etc"] {
        // As long as the name that it replaces, so that the lengths in the file stay right.
        assert_eq!(place.len(), Encoded::WEIGHTS.len());
        let at = model.windows(place.len()).position(|w| w == Encoded::WEIGHTS.as_bytes()).unwrap();
        let mut elsewhere = model.clone();
        elsewhere[at..at + place.len()].copy_from_slice(place.as_bytes());
        dir.write("sub/model.onnx", elsewhere);
        let args = ["sub/model.onnx", "--suite", "smoke", "--data", &images];
        dir.refused(&args, MODEL);
    }
    insta::assert_snapshot!(dir.told());
}

/// A link that stays in the folder is followed, and so are model and data that are both links into another,
/// as in caches of downloads. A link of the data alone may lead anywhere.
#[cfg(unix)]
#[test]
fn external_data_behind_a_link_out_of_the_folder_is_refused() {
    use std::os::unix::fs::symlink;
    let dir = stage();
    let Encoded { model, weights } = small().encode_external();
    dir.write("secret", &weights);
    dir.write("sub/model.onnx", &model);
    dir.write("sub/real", &weights);
    let images = dir.join("data").display().to_string();
    let flags = ["--suite", "smoke", "--max-queries", "3", "-q", "--data", &images];
    let link = dir.join("sub").join(Encoded::WEIGHTS);
    symlink("../secret", &link).unwrap();
    dir.refused(&[&["sub/model.onnx"], &flags[..]].concat(), MODEL);
    std::fs::remove_file(&link).unwrap();
    symlink("real", &link).unwrap();
    let ran_as = |model: &str| run(&dir, [&[model], &flags[..]].concat());
    ran_as("sub/model.onnx").ended(0);
    dir.write("blobs/m", &model);
    dir.write("blobs/w", &weights);
    std::fs::create_dir(dir.join("snapshot")).unwrap();
    symlink("../blobs/m", dir.join("snapshot/model.onnx")).unwrap();
    symlink("../blobs/w", dir.join("snapshot").join(Encoded::WEIGHTS)).unwrap();
    ran_as("snapshot/model.onnx").ended(0);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn models_that_cannot_be_audited_are_refused_with_the_reason() {
    let dir = stage();
    let weights = Weights::new(1).normal("w", &[10, models::DIM], 1.0).normal("b", &[models::DIM], 1.0);
    let mut graph = grey(vec![Node::new("Gemm", &["features", "w", "b"], "embedding")], weights);
    graph.inputs = vec![value("features", free(), &[10])];
    refused_model(&dir, &graph, &[], MODEL);
    refused_model(&dir, &small(), &["--input", "picture"], MODEL);
    let refused = |change: &dyn Fn(&mut Graph)| {
        let mut graph = small();
        change(&mut graph);
        refused_model(&dir, &graph, &[], MODEL);
    };
    refused(&|graph| graph.outputs = vec![value("r1", free(), &[4, 6, 6])]);
    refused(&|graph| graph.opsets = [(String::new(), 6)].into());
    // Damage must not crash the loader.
    refused(&|graph| drop(graph.nodes[0].attrs.insert("strides".into(), Attr::Ints(vec![0, 0]))));
    refused(&|graph| graph.nodes[3].inputs[0] = "nobody".into());
    insta::assert_snapshot!(dir.told());
}

/// Two towers: `left` and `right` to `left_embedding` and `right_embedding`.
fn towers() -> Graph {
    let weights = ["left/", "right/"].into_iter().fold(Weights::new(5), |w, side| trunk_weights(w, side, 1));
    let tower = |side: &str| trunk(side, &format!("{side}_embedding"), &format!("{side}/"));
    let mut graph = grey([tower("left"), tower("right")].concat(), weights);
    graph.inputs = ["left", "right"].map(|n| value(n, free(), &[1, SIDE, SIDE])).into();
    graph.outputs = ["left_embedding", "right_embedding"].map(|n| value(n, free(), &[models::DIM])).into();
    graph
}

#[test]
fn of_several_image_inputs_a_flag_chooses() {
    let dir = stage();
    refused_model(&dir, &towers(), &[], MODEL);
    works(&dir, "model.onnx", &["--input", "right", "--output", "right_embedding"]);
    // An embedding that needs both images can't be computed from one.
    let mut joined = towers();
    joined.nodes.push(Node::new("Add", &["left_embedding", "right_embedding"], "embedding"));
    joined.outputs = vec![value("embedding", free(), &[models::DIM])];
    refused_model(&dir, &joined, &["--input", "left"], MODEL);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn of_several_embeddings_a_flag_chooses() {
    let dir = stage();
    let mut graph = small();
    graph.nodes.push(Node::new("Relu", &["embedding"], "positive"));
    graph.outputs.push(value("positive", free(), &[models::DIM]));
    refused_model(&dir, &graph, &[], MODEL);
    works(&dir, "model.onnx", &["--output", "embedding"]);
    // A value inside the graph works too.
    works(&dir, "model.onnx", &["--output", "f1"]);
    refused_model(&dir, &graph, &["--output", "logits"], MODEL);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn an_output_as_long_as_imagenet_has_classes_is_remarked_on() {
    let dir = stage();
    assert!(!works(&dir, "model.onnx", &[]).contains("class-scores"));
    let weights = trunk_weights(Weights::new(1), "", 1).normal("head", &[models::DIM, 1000], 0.1);
    let mut graph = grey(trunk("image", "features", ""), weights);
    graph.nodes.push(Node::new("MatMul", &["features", "head"], "embedding"));
    graph.outputs = vec![value("embedding", free(), &[1000])];
    dir.write("model.onnx", graph.encode());
    works(&dir, "model.onnx", &["-o", "report.json"]);
    let report = Report::load(&dir.join("report.json")).unwrap();
    assert_eq!(report.model.before_classifier.as_deref(), Some("features"));
    insta::assert_snapshot!(finding(&dir, "report.json", "class-scores"));
}

#[test]
fn operators_without_a_gradient_are_all_named_with_their_nodes() {
    let dir = stage();
    let node = |op: &str, name: &str, inputs: &[&str], output: &str| {
        let mut node = Node::new(op, inputs, output);
        node.name = name.into();
        node.domain = "com.microsoft".into();
        node
    };
    let weights = Weights::new(1).floats("rois", &[1, 4], &[0.0, 0.0, 1.0, 1.0]).ints("flat", &[-1, 144]);
    let weights = weights.ints("all", &[1; 144]).ints("side", &[12, 12]).ints("first", &[0]);
    let weights = weights.ints("map", &[1, 1, 12, 12]);
    let int32 = |input: &str, output: &str| Node::new("Cast", &[input], output).with("to", 6);
    let pool = |name: &str, input: &str, output: &str| {
        node("MaxpoolWithMask", name, &[input, "mask"], output).with("kernel_shape", vec![1, 1])
    };
    let mut graph = grey(
        vec![
            int32("all", "ones"),
            Node::new("Reshape", &["ones", "map"], "mask"),
            int32("side", "size"),
            int32("first", "of"),
            pool("neck/first", "image", "a"),
            pool("neck/second", "a", "b"),
            node("CropAndResize", "neck/third", &["b", "rois", "of", "size"], "c"),
            Node::new("Reshape", &["b", "flat"], "whole"),
            Node::new("Reshape", &["c", "flat"], "crop"),
            Node::new("Add", &["whole", "crop"], "embedding"),
        ],
        weights,
    );
    graph.opsets.insert("com.microsoft".into(), 1);
    refused_model(&dir, &graph, &[], MODEL);
    // Of other people's domains.
    let mut graph = small();
    graph.opsets.insert("com.example".into(), 1);
    for (at, op, name) in [("c1", "Twist", "neck/twist"), ("f1", "Fold", "neck/fold")] {
        let mut node = Node::new(op, &[at], &format!("{at}/odd"));
        node.domain = "com.example".into();
        node.name = name.into();
        for reader in &mut graph.nodes {
            reader.inputs.iter_mut().filter(|i| *i == at).for_each(|i| *i = format!("{at}/odd"));
        }
        let after = graph.nodes.iter().position(|n| n.outputs[0] == at).unwrap();
        graph.nodes.insert(after + 1, node);
    }
    refused_model(&dir, &graph, &[], MODEL);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_batch_that_the_model_does_not_take_is_refused() {
    let dir = stage();
    let mut graph = small();
    graph.inputs = vec![value("image", onnx_grad::graph::Dim::Known(4), &[1, SIDE, SIDE])];
    refused_model(&dir, &graph, &["--batch", "3"], USAGE);
    works(&dir, "model.onnx", &[]);
    works(&dir, "model.onnx", &["--batch", "4"]);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn embeddings_that_are_not_finite_are_not_audited() {
    let dir = stage();
    let root = vec![Node::new("Sub", &["e", "far"], "low"), Node::new("Sqrt", &["low"], "embedding")];
    let graph = before(root, Weights::new(1).floats("far", &[], &[1000.0]));
    refused_model(&dir, &graph, &[], UNTRUSTED);

    // Only on one image, which the check of the first batch doesn't see: log(max) of a black one.
    let nodes = vec![
        Node::new("ReduceMax", &["image", "all"], "max").with("keepdims", 1i64),
        Node::new("Flatten", &["max"], "peak"),
        Node::new("Log", &["peak"], "log"),
        Node::new("Add", &["e", "log"], "embedding"),
    ];
    let graph = before(nodes, Weights::new(1).ints("all", &[1, 2, 3]));
    dir.write("model.onnx", graph.encode());
    works(&dir, "model.onnx", &[]);
    std::fs::create_dir(dir.join("data/night")).unwrap();
    for name in ["1.png", "2.png"] {
        image::GrayImage::new(SIDE as u32, SIDE as u32).save(dir.join("data/night").join(name)).unwrap();
    }
    refused_model(&dir, &graph, &[], UNTRUSTED);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_model_card_of_another_file_is_refused() {
    let dir = stage();
    dir.write("model.yaml", "sha256: 00ff\n");
    refused_quick(&dir, "model.onnx", USAGE);
    dir.write("model.yaml", "metrik: cosine\n");
    refused_quick(&dir, "model.onnx", USAGE);
    dir.write("model.yaml", "metric: cosine\nlicence: CC0\n");
    works(&dir, "model.onnx", &["-o", "report.json"]);
    let report = dir.json("report.json");
    assert_eq!((&report["model"]["metric"], &report["model"]["licence"]), (&"cosine".into(), &"CC0".into()));
    insta::assert_snapshot!(dir.told());
}
