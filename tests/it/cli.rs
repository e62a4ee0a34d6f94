//! The program as its users meet it: every bad input with its exit code and message, what is printed, what is
//! left behind. Exit codes are those of the README; error messages are compared with the files in snapshots/.

use crate::common::models::{self, SIDE, Weights, free, grey, images, small, trunk, trunk_weights, value};
use crate::common::transcript::Transcript;
use crate::common::{Temp, encoded, one_line, program, ran, run, says, words};
use audit::command::{Cli, SHORT};
use audit::record::Report;
use audit::threat::OBJECTIVES;
use clap::CommandFactory;
use image::ImageFormat;
use onnx_grad::Graph;
use onnx_grad::graph::{Attr, Encoded, Node};
use std::path::Path;
use std::process::{Command, Stdio};

const USAGE: i32 = 2;
const MODEL: i32 = 3;
const EMPTY: i32 = 4;
const UNTRUSTED: i32 = 12;
/// Enough to be an audit, few enough to be quick.
const QUICK: [&str; 8] =
    ["--suite", "smoke", "--max-queries", "3", "--data", "data", "--strong-sample", "off"];

/// `audit <model> <QUICK> -v <args>` must work; returns what it printed.
#[track_caller]
fn works(dir: &Temp, model: &str, args: &[&str]) -> String {
    let ran = run(dir, [&[model, "-q", "-v"], &QUICK[..], args].concat()).ended(0);
    assert_eq!(ran.err, "");
    assert!(ran.out.contains("ARS") && ran.out.contains("ERS"), "{}", ran.out);
    ran.out
}

/// 5 classes of 4 images.
fn stage() -> Transcript {
    Transcript::new(models::stage(5, 4))
}

/// Fails unless the audit with quick settings is refused.
#[track_caller]
fn refused_quick(dir: &Transcript, model: &str, code: i32) {
    dir.refused(&[&[model], &QUICK[..]].concat(), code);
}

/// Fails unless the audit of this graph as `model.onnx` with quick settings is refused.
#[track_caller]
fn refused_model(dir: &Transcript, graph: &Graph, args: &[&str], code: i32) {
    dir.write("model.onnx", graph.encode());
    dir.refused(&[&["model.onnx", "-q"], &QUICK[..], args].concat(), code);
}

#[test]
fn a_good_run_says_what_it_found() {
    let dir = stage();
    let out = works(&dir, "model.onnx", &[]);
    says(&out, &["model.onnx", "20 images", "5 classes", "3 queries", "R@1", "CA+", "GTT", "few-queries"]);
}

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

/// A pipe that nobody writes to and a device that never ends: each would stop the program for ever.
#[cfg(unix)]
#[test]
fn pipes_and_devices_are_not_read() {
    let dir = stage();
    let made = Command::new("mkfifo").arg(dir.join("pipe")).arg(dir.join("data/class00/pipe.png")).status();
    assert!(made.unwrap().success());
    let with = |args: &[&str]| {
        let args = [&["model.onnx", "-q", "--suite", "smoke", "--max-queries", "3"], args].concat();
        dir.refused(&args, USAGE);
    };
    for path in ["pipe", "/dev/zero"] {
        with(&["--card", path]);
        with(&["--trials", path]);
        with(&["--baseline", path]);
        dir.refused(&[path, "-q"], USAGE);
        dir.refused(&["gate", path, "--fail-under", "ars=1"], USAGE);
        dir.refused(&["report", path], USAGE);
        let data = ["model.onnx", "-q", "--data", path, "--layout", "csv"];
        dir.refused(&data, USAGE);
    }
    std::os::unix::fs::symlink("/dev/zero", dir.join("zero.yaml")).unwrap();
    dir.refused(&["model.onnx", "-q", "--suite", "zero.yaml"], USAGE);
    std::os::unix::fs::symlink("/dev/zero", dir.join("zero.npy")).unwrap();
    with(&["--data", "data", "--gallery", "zero.npy"]);

    // Among images they are left out like damaged ones.
    says(&works(&dir, "model.onnx", &[]), &["unreadable-images", "pipe.png", "regular file"]);
    // So are they by a suite that looks at the sizes of files first.
    let robust = words("model.onnx -qv --suite robust --max-queries 3 --data data");
    says(&run(&dir, robust).ended(0).out, &["unreadable-images", "pipe.png"]);
    let mut rows = "path,label\n/dev/zero,class00\n".to_string();
    for class in 0..5 {
        rows += &(0..4).map(|i| format!("data/class{class:02}/{i:02}.png,c{class}\n")).collect::<String>();
    }
    dir.write("rows.csv", rows);
    let done = run(&dir, words("model.onnx -qv --suite smoke --max-queries 3 --data rows.csv")).ended(0);
    says(&done.out, &["unreadable-images", "/dev/zero"]);
    insta::assert_snapshot!(dir.told());
}

/// A card of 20 MB is no card.
#[test]
fn files_have_a_largest_size() {
    let dir = stage();
    std::fs::File::create(dir.join("big.yaml")).unwrap().set_len(20 << 20).unwrap();
    dir.refused(&["model.onnx", "-q", "--card", "big.yaml"], USAGE);
    dir.refused(&["model.onnx", "-q", "--suite", "big.yaml"], USAGE);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_model_without_image_input_is_refused_with_its_inputs() {
    let dir = stage();
    let weights = Weights::new(1).normal("w", &[10, models::DIM], 1.0).normal("b", &[models::DIM], 1.0);
    let mut graph = grey(vec![Node::new("Gemm", &["features", "w", "b"], "embedding")], weights);
    graph.inputs = vec![value("features", free(), &[10])];
    refused_model(&dir, &graph, &[], MODEL);
    refused_model(&dir, &small(), &["--input", "picture"], MODEL);
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
    says(&works(&dir, "model.onnx", &[]), &["class-scores", "num_classes=0"]);
}

#[test]
fn a_model_whose_outputs_are_maps_asks_how_to_pool_them() {
    let dir = stage();
    let mut graph = small();
    graph.outputs = vec![value("r1", free(), &[4, 6, 6])];
    refused_model(&dir, &graph, &[], MODEL);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn operators_without_a_rule_are_all_named_with_their_nodes() {
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
    insta::assert_snapshot!(dir.told());
}

#[test]
fn operators_of_other_peoples_domains_are_named_with_their_nodes() {
    let dir = stage();
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
fn opsets_too_old_are_refused_with_a_way_out() {
    let dir = stage();
    let mut graph = small();
    graph.opsets.insert(String::new(), 6);
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
fn images_without_a_class_of_two_leave_nothing_to_evaluate() {
    let dir = stage();
    images(&dir, "lone", 6, 1, 1);
    dir.refused(&["model.onnx", "--data", "lone"], EMPTY);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn an_empty_class_folder_is_named() {
    let dir = stage();
    std::fs::create_dir(dir.join("data/hollow")).unwrap();
    dir.refused(&["model.onnx", "--data", "data"], EMPTY);
    std::fs::create_dir(dir.join("bare")).unwrap();
    dir.refused(&["model.onnx", "--data", "bare"], EMPTY);
    dir.refused(&["model.onnx", "--data", "nowhere"], USAGE);
    insta::assert_snapshot!(dir.told());
}

/// The checksum of a PNG's chunks (ISO 3309).
fn crc32(bytes: &[u8]) -> u32 {
    let bit = |c: u32| if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 };
    !bytes.iter().fold(!0u32, |c, &b| (0..8).fold(c ^ u32::from(b), |c, _| bit(c)))
}

#[test]
fn unreadable_images_are_left_out_and_named_or_fatal() {
    let dir = stage();
    dir.write("data/class00/broken.png", b"no image");
    let out = works(&dir, "model.onnx", &["-o", "report.json"]);
    says(&out, &["20 images", "unreadable-images"]);
    let report = dir.json("report.json");
    let named = report["data"]["unreadable"].as_array().unwrap();
    assert!(named.len() == 1 && named[0].as_str().unwrap().contains("broken.png"), "{named:?}");
    // A header of 30 bytes may claim any size: a PNG's, of 30,000 × 30,000.
    let mut files = dir.join("data/class00").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut bomb = std::fs::read(files.find(|path| !path.ends_with("broken.png")).unwrap()).unwrap();
    bomb[16..24].copy_from_slice(&[0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30]);
    let sum = crc32(&bomb[12..29]).to_be_bytes();
    bomb[29..33].copy_from_slice(&sum);
    dir.write("data/class00/broken.png", bomb);
    says(&works(&dir, "model.onnx", &[]), &["30000 x 30000 pixels"]);
    dir.refused(&[&["model.onnx", "-q", "--strict-data"], &QUICK[..]].concat(), USAGE);
    // None can be read.
    for image in ["a/1", "a/2", "b/1", "b/2"] {
        dir.write(&format!("junk/{image}.png"), b"no image");
    }
    dir.refused(&["model.onnx", "-q", "--data", "junk"], EMPTY);
    insta::assert_snapshot!(dir.told());
}

/// An image of two classes, as a copy of the file and as another file of the same pixels, whatever is cached.
#[test]
fn images_of_two_classes_are_named() {
    let dir = stage();
    let finding = |args: &[&str]| {
        works(&dir, "model.onnx", &[args, &["-o", "report.json"]].concat());
        let warnings = Report::load(&dir.join("report.json")).unwrap().warnings;
        warnings.into_iter().find(|w| w.id == "two-classes").map(|w| w.text)
    };
    assert_eq!(finding(&[]), None);
    // A copy within a class says nothing about classes.
    let first = std::fs::read(dir.join("data/class00/00.png")).unwrap();
    dir.write("data/class00/copy.png", &first);
    assert_eq!(finding(&[]), None);
    let other = encoded(image::load_from_memory(&first).unwrap(), ImageFormat::Bmp);
    dir.write("data/class01/pixels.bmp", other);
    for args in [&[][..], &["--cache", "kept"], &["--cache", "kept"]] {
        let text = finding(args).unwrap();
        says(&text, &["3 images", "`class00/00.png` of class `class00`", "same pixels"]);
        says(&text, &["`class01/pixels.bmp` of class `class01`"]);
    }
    dir.write("data/class01/file.png", &first);
    says(&finding(&[]).unwrap(), &["4 images", "class01/file.png", "same bytes"]);
}

/// Images that were cut off, as by an interrupted copy: decoders fill up what a JPEG lacks.
#[test]
fn images_that_are_cut_off_are_left_out_and_named_or_fatal_whatever_is_cached() {
    let dir = stage();
    for number in 0..7 {
        let image =
            image::GrayImage::from_fn(SIDE as u32, SIDE as u32, |x, y| image::Luma([(x * y + number) as u8]));
        let file = encoded(image, ImageFormat::Jpeg);
        dir.write(&format!("data/class00/cut{number}.jpg"), &file[..file.len() - 20]);
        dir.write(&format!("data/class01/whole{number}.jpg"), file);
    }
    dir.write("data/class02/foreign.avif", b"\0\0\0\x1cftypavif");
    let mut texts = Vec::new();
    for args in [&[][..], &["--cache", "kept"], &["--cache", "kept"], &["--resume"]] {
        let out = works(&dir, "model.onnx", &[args, &["-o", "report.json"]].concat());
        says(&out, &["27 images", "7 images can't be read and were left out", "cut0.jpg", "and 2 more"]);
        let report = Report::load(&dir.join("report.json")).unwrap();
        let named = &report.data.unreadable;
        assert!(named.len() == 7 && named.iter().all(|why| why.contains("cut off")), "{named:?}");
        let found: Vec<_> = report.warnings.iter().filter(|w| w.id == "unreadable-images").collect();
        assert_eq!(found.len(), 1);
        texts.push(found[0].text.clone());
        let all = format!("{:?}", report.warnings);
        says(&all, &["foreign.avif", "AVIF is not read", "Convert it to PNG"]);
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:#?}");
    for args in [&[][..], &["--cache", "kept"]] {
        let args = [&["model.onnx", "-q", "--strict-data"], &QUICK[..], args].concat();
        dir.refused(&args, USAGE);
    }
    // A mask is an image too.
    let white = image::GrayImage::from_pixel(SIDE as u32, SIDE as u32, image::Luma([255]));
    let mask = encoded(white, ImageFormat::Jpeg);
    dir.write("mask.jpg", &mask[..mask.len() - 2]);
    dir.refused(&[&["model.onnx", "-q", "--mask", "mask.jpg"], &QUICK[..]].concat(), USAGE);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn embeddings_that_are_not_finite_are_not_audited() {
    let dir = stage();
    let root = vec![Node::new("Sub", &["e", "far"], "low"), Node::new("Sqrt", &["low"], "embedding")];
    let weights = trunk_weights(Weights::new(1), "", 1).floats("far", &[], &[1000.0]);
    let mut graph = grey([trunk("image", "e", ""), root].concat(), weights);
    refused_model(&dir, &graph, &[], UNTRUSTED);

    // Only on one image, which the check of the first batch doesn't see: log(max) of a black one.
    graph.nodes.truncate(4);
    graph.nodes.extend([
        Node::new("ReduceMax", &["image", "all"], "max").with("keepdims", 1i64),
        Node::new("Flatten", &["max"], "peak"),
        Node::new("Log", &["peak"], "log"),
        Node::new("Add", &["e", "log"], "embedding"),
    ]);
    let weights = Weights::new(1).ints("all", &[1, 2, 3]);
    let graph = grey(graph.nodes, trunk_weights(weights, "", 1));
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
fn mistakes_in_a_suite_file_are_located() {
    let dir = stage();
    for keys in ["attacks: [ES]\nmax_query: 5", "attacks:\n  - ES\n  - XYZ", "attacks: [ES]\neps: 3"] {
        dir.write("mine.yaml", format!("form: published\n{keys}\n"));
        dir.refused(&words("model.onnx --data data --suite mine.yaml"), USAGE);
    }
    dir.refused(&words("model.onnx --suite arss"), USAGE);
    dir.write("mine.yaml", "form: published\nattacks: [ES]\nmax_queries: 3\nsteps: 2\n");
    let ran = run(&dir, words("model.onnx --data data --suite mine.yaml --strong-sample off")).ended(0);
    says(&ran.out, &["suite mine"]);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn flags_out_of_range_are_refused() {
    let dir = stage();
    for eps in ["8", "1.01", "0", "-1", "256/255", "nan", "x"] {
        let flag = format!("--eps={eps}");
        dir.refused(&["model.onnx", "--data", "data", &flag], USAGE);
    }
    let flags = "--alpha=2 --steps=0 --max-queries=0 --steps=1000000000000 --resize=1000000 --resize-shorter=100000 \
                 --size=4000000000 --range=0,inf --protocol=rob29 --range=255,0 --mean=0.5 --std=0.5 \
                 --trials=nowhere.json --card=nowhere.yaml";
    for flag in words(flags) {
        dir.refused(&["model.onnx", "-q", "--data", "data", flag], USAGE);
    }
    dir.refused(&["model.onnx", "-q", "--layout", "folder"], USAGE);
    dir.refused(&["images", "--out", "coloured", "--channels", "2"], USAGE);
    assert!(!dir.join("coloured").exists());
    for flags in [
        "ars-strict --alpha 1/255",
        "strong --alpha=1/255",
        "strong --steps=5",
        "strong --strong-sample 20",
        "robust --alpha=1/255",
        "robust --steps=5",
        "robust --strong-sample 20",
        // Without the strong search there is no robust R@1.
        "ars --strong-sample off --fail-under robust_r1=1",
    ] {
        dir.refused(&words(&format!("model.onnx -q --data data --suite {flags}")), USAGE);
    }
    // Clap's own errors: flags and values it doesn't know, a missing model.
    for line in [
        "model.onnx --epz 1",
        "model.onnx --metric manhattan",
        "model.onnx --layout heap",
        "model.onnx --partition hash:1/1000000000000",
        "model.onnx --threads 10000",
        "model.onnx --batch 100000000000",
        "model.onnx --batch 0",
        "doctor model.onnx --threads 10000",
        "grad model.onnx -o g.onnx --threads 10000",
        "images --out images --size 1000000",
        "model.onnx --strong-sample 0",
        "model.onnx --strong-sample x",
        "model.onnx --strong-sample=-1",
    ] {
        dir.refused(&words(line), USAGE);
    }
    insta::assert_snapshot!(dir.told());
}

/// The model doesn't exist: an error about the report's path shows that the path is checked first.
#[test]
fn a_report_that_cannot_be_written_is_found_before_the_work() {
    let dir = stage();
    std::fs::create_dir(dir.join("folder.json")).unwrap();
    for path in ["missing/report.json", "model.onnx/report.json", "folder.json", "report.docx", "report"] {
        dir.refused(&["nowhere.onnx", "-o", path], USAGE);
        // A good path beside the bad one leaves no file either.
        dir.refused(&["nowhere.onnx", "-o", "good.json", "-o", path], USAGE);
    }
    insta::assert_snapshot!(dir.told());
}

/// The journal is removed in the end, and two reports at one path would overwrite each other.
#[test]
fn a_file_has_one_purpose() {
    let dir = stage();
    for args in [
        &["-o", "r.json", "--journal", "r.json"][..],
        &["-o", "r.json", "-o", "./r.json"],
        &["-o", "r.html", "--save-baseline", "r.html"],
    ] {
        dir.refused(&[&["nowhere.onnx"], args].concat(), USAGE);
    }
    // A file of the user's is not taken for a journal.
    let sum = format!("{}  photos.tar", "ab".repeat(32));
    dir.write("sum.txt", &sum);
    dir.refused(&["model.onnx", "-q", "--data", "data", "--journal", "sum.txt"], USAGE);
    assert_eq!(dir.text("sum.txt"), sum);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_failed_audit_leaves_an_earlier_report_as_it_was() {
    let dir = stage();
    dir.write("report.json", "earlier");
    dir.refused(&["nowhere.onnx", "-q", "-o", "report.json"], USAGE);
    assert_eq!(dir.text("report.json"), "earlier");
    works(&dir, "model.onnx", &["-o", "report.json"]);
    assert_eq!(dir.json("report.json")["schema_version"], 1);
    assert_eq!(dir.names(), ["data", "model.onnx", "report.json"]);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_missing_runtime_names_the_command_that_fetches_it() {
    let dir = stage();
    let args = [&["model.onnx"], &QUICK[..]].concat();
    let mut command = program(dir.path());
    command.env("ORT_DYLIB_PATH", "/nowhere/libonnxruntime.so").args(&args);
    // The rest of these messages is the operating system's.
    let words = ["ORT_DYLIB_PATH", "/nowhere/libonnxruntime.so", "cargo xtask setup"];
    says(&dir.refused_by(&mut command, USAGE), &words);
    let nowhere = [&args[..], &["--ort-lib", "nowhere.so"]].concat();
    says(&dir.refused(&nowhere, USAGE), &["--ort-lib", "nowhere.so", "cargo xtask setup"]);
    dir.write("libfake.so", b"no library");
    let fake = [&args[..], &["--ort-lib", "./libfake.so"]].concat();
    says(&dir.refused(&fake, USAGE), &["can't load", "libfake.so", "cargo xtask setup"]);
    // No variable names a library, and none lies beside the executable.
    let copy = Temp::new();
    // Deep enough that the folders above it, which are searched too, are the test's own.
    let exe = copy.join("a/b/c/audit");
    crate::common::copy_program(&exe);
    let mut command = Command::new(exe);
    command.current_dir(dir.path()).env_remove("ORT_DYLIB_PATH").args(&args);
    let at = copy.join("a/b/onnxruntime").display().to_string();
    let places = ["beside the program", &at, "the program's Python environment", "conda", "the system"];
    let words =
        [&["`cargo xtask setup`", "pip install", "--ort-lib", "ORT_DYLIB_PATH"], &places[..]].concat();
    says(&dir.refused_by(&mut command, USAGE), &words);
}

/// `pip install ".[cpu]"` puts the program and the library where this test puts them.
#[test]
#[ignore = "needs what `cargo xtask setup` fetches"]
fn the_runtime_of_the_python_environment_serves() {
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/../onnxruntime");
    let dir = stage();
    let environment = Temp::new();
    let exe = environment.join("a/b/bin/audit");
    crate::common::copy_program(&exe);
    let run = |library: &str, whole: bool| {
        let at = environment.write(library, "no library");
        if whole {
            let from = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
            let library = from.into_iter().find(|p| p.to_string_lossy().contains("libonnxruntime.")).unwrap();
            std::fs::copy(library, at).unwrap();
        }
        let mut command = Command::new(&exe);
        command.current_dir(dir.path()).env_remove("ORT_DYLIB_PATH").env_remove("CONDA_PREFIX");
        ran(command.arg("model.onnx").args(QUICK))
    };
    // A library that doesn't load is named, and the search continues.
    let place = |python: &str, version: &str| {
        format!("a/b/lib/{python}/site-packages/onnxruntime/capi/libonnxruntime.so.{version}")
    };
    let broken = run(&place("python3.12", "1.30.0"), false).ended(USAGE);
    says(&broken.err, &["libonnxruntime.so.1.30.0 doesn't load"]);
    run(&place("python3.11", "1.31.1"), true).ended(0);
}

/// First tries of people who know other tools: each error names a next step.
#[test]
fn a_wrong_command_line_leads_on() {
    let dir = stage();
    let refused = |line: &str| drop(dir.refused(&words(line), USAGE));
    for line in [
        "",
        "rnu model.onnx",
        "help rnu",
        "model.onnx data",
        // Flags may come before the model.
        "-q model.onnx data",
        "--suite ars",
        "model.onnx inspect",
        "--suite ars model.onnx --forse",
        "model.onnx --epsilon 8/255",
        "model.onnx --device cuda",
    ] {
        refused(line);
    }
    // Flags of audits without a meaning for a command.
    for (command, flags) in [
        ("doctor", "--baseline --fail-under --journal --trials-out --strong-sample --attack-precision"),
        ("sweep", "--fail-under --partition --trials --trials-out --save-baseline"),
        ("geometry", "--partition --resume --surrogate --gallery --hub-class --nmi --sample"),
        ("compare", "--partition --trials --attack-precision --surrogate --gallery --baseline"),
        ("embed", "--suite --eps --seed --max-queries"),
    ] {
        words(flags).into_iter().for_each(|flag| refused(&format!("{command} model.onnx {flag} 1")));
    }
    refused("model.onnx --max-queries -12");
    refused("model.onnx --max-queries=-12");
    refused("model.onnx --max-queries few");
    refused("gate model.onnx --fail-under robust_r1");
    refused("report model.onnx");
    dir.write("lone/only/a.png", std::fs::read(dir.join("data/class00/00.png")).unwrap());
    dir.write("lone/only/b.png", std::fs::read(dir.join("data/class00/01.png")).unwrap());
    dir.refused(&["model.onnx", "--data", "lone"], EMPTY);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn lists_print_every_row() {
    let dir = Temp::new();
    let lines = |args: &[&str]| {
        let ran = run(&dir, args);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        ran.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let starts = |lines: &[String], word: &str| {
        assert!(lines.iter().any(|l| l.split_whitespace().next() == Some(word)), "no {word} in {lines:?}");
    };
    let attacks = lines(&["attacks"]);
    // A long row continues on further lines.
    assert_eq!(attacks.iter().filter(|line| !line.starts_with(' ')).count(), OBJECTIVES.len());
    assert!(attacks.iter().all(|line| line.chars().count() <= 80), "{attacks:?}");
    OBJECTIVES.iter().for_each(|a| starts(&attacks, a.code));
    let suites = lines(&["suites"]);
    for name in ["ers", "ars", "full", "ers-strict", "ars-strict", "smoke"] {
        starts(&suites, name);
    }
    // The operators that issue 2 names, except those that loading rewrites (Dropout).
    let ops = lines(&["ops"]);
    for op in "Conv BatchNormalization Relu LeakyRelu PRelu Clip Sigmoid HardSigmoid HardSwish Tanh Softmax Add Sub Mul \
               Div Pow Sqrt Exp Log Neg Abs MaxPool AveragePool GlobalAveragePool GlobalMaxPool ReduceMean ReduceSum \
               ReduceL2 Gemm MatMul Flatten Reshape Transpose Squeeze Unsqueeze Concat Split Slice Gather Pad Identity \
               Cast Expand LpNormalization"
        .split_whitespace()
    {
        starts(&ops, op);
    }
    assert!(lines(&["--version"])[0].contains(env!("CARGO_PKG_VERSION")));
}

/// Nor does progress that nobody reads any more end an audit.
#[test]
fn a_closed_pipe_is_no_error() {
    let dir = stage();
    let audit = env!("CARGO_BIN_EXE_audit");
    let line = format!(
        "set -o pipefail; {audit:?} model.onnx {} --progress plain 2>&1 | head -n 1",
        QUICK.join(" ")
    );
    let done = ran(Command::new("bash").args(["-c", &line]).current_dir(dir.path())).ended(0);
    assert_eq!(done.out.lines().count(), 1, "{}", done.out);
    for args in [&["ops"][..], &[&["model.onnx", "-q"], &QUICK[..]].concat()] {
        let mut command = program(dir.path());
        let mut child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

/// The keys that issue 2 names, and the values that the command line fixes.
#[test]
fn the_report_has_every_key() {
    let dir = stage();
    works(&dir, "model.onnx", &["-o", "report.json", "--seed", "11"]);
    let report = dir.json("report.json");
    let has = |at: &str, keys: &str| {
        let value = report.pointer(at).unwrap_or_else(|| panic!("no {at}"));
        for key in keys.split_whitespace() {
            assert!(value.get(key).is_some(), "no {key} in {at}");
        }
    };
    has("", "schema_version tool model data suite seed benign attacks scores trials warnings timing");
    has("/model", "path sha256 inputs output metric");
    has("/data", "source images classes sha256");
    has("/suite", "name form");
    has("/benign", "r1 r2 map map_at_r nmi");
    has("/scores/ers", "value");
    has("/scores/ars", "value table");
    has("/trials", "protocol form metric attacks");
    let codes: Vec<&str> =
        report["attacks"].as_array().unwrap().iter().map(|a| a["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["CA+", "CA-", "QA+", "QA-", "TMA", "ES:D", "ES:R", "LTM", "GTM", "GTT"]);
    for i in 0..codes.len() {
        has(&format!("/attacks/{i}"), "code form queries skipped before after ers_term resistance");
        has(&format!("/attacks/{i}/resistance"), "per_trial table");
    }
    let warnings = report["warnings"].as_array().unwrap();
    assert!(!warnings.is_empty());
    for i in 0..warnings.len() {
        has(&format!("/warnings/{i}"), "id severity text");
    }
    assert_eq!(report["seed"], 11);
    assert_eq!(report["schema_version"], 1);
    assert_eq!(report["tool"]["name"], "audit");
    assert_eq!((&report["data"]["images"], &report["data"]["classes"]), (&20.into(), &5.into()));
    assert_eq!(report["model"]["metric"], "normalized-euclidean");
    assert_eq!(report["model"]["output"], "embedding");
    assert_eq!(report["model"]["inputs"][0], "image [batch, 1, 12, 12]");
    let sha = audit::files::hex(&<sha2::Sha256 as sha2::Digest>::digest(small().encode()));
    assert_eq!(report["model"]["sha256"], sha.as_str());
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

#[test]
fn trials_of_something_else_are_refused() {
    let dir = stage();
    works(&dir, "model.onnx", &["-o", "report.json"]);
    let replay_on = |data: &str, extra: &[&str]| {
        let args = ["model.onnx", "-q", "--data", data, "--suite", "smoke", "--trials", "report.json"];
        dir.refused(&[&args[..], extra].concat(), USAGE);
    };
    replay_on("data", &["--form", "corrected"]);
    replay_on("data", &["--protocol", "rob224"]);
    replay_on("data", &["--metric", "cosine"]);
    images(&dir, "other", 3, 3, 1);
    for (from, to) in [("class00", "zero"), ("class01", "one"), ("class02", "two")] {
        std::fs::rename(dir.join("other").join(from), dir.join("other").join(to)).unwrap();
    }
    replay_on("other", &[]);
    dir.write("report.json", "{}");
    replay_on("data", &[]);
    insta::assert_snapshot!(dir.told());
}

/// An impossible attribute must not crash the loader.
#[test]
fn damage_inside_a_model_ends_with_a_message() {
    let dir = stage();
    let mut graph = small();
    graph.nodes[0].attrs.insert("strides".into(), Attr::Ints(vec![0, 0]));
    refused_model(&dir, &graph, &[], MODEL);
    let mut graph = small();
    graph.nodes[3].inputs[0] = "nobody".into();
    refused_model(&dir, &graph, &[], MODEL);
    insta::assert_snapshot!(dir.told());
}

/// Files without an image's extension are left out, and the report names them.
#[test]
fn other_files_among_images_are_named() {
    let dir = stage();
    assert!(!works(&dir, "model.onnx", &[]).contains("other-files"));
    dir.write("data/class00/moving.avif", b"\0\0\0\x1cftypavif");
    dir.write("data/class00/noending", b"x");
    dir.write("data/class01/deeper/00.png", b"x");
    dir.write("data/class01/.hidden", b"x");
    let words =
        ["other-files", "3 files or folders", "class00/moving.avif", "class00/noending", "class01/deeper/"];
    let out = works(&dir, "model.onnx", &[]);
    // The table breaks lines at blanks.
    says(&one_line(&out), &words);
    dir.write("avifs/class00/moving.avif", b"\0\0\0\x1cftypavif");
    dir.refused(&["model.onnx", "--data", "avifs"], EMPTY);
    insta::assert_snapshot!(dir.told());
}

/// A demo that can't be made leaves nothing, and an interrupted one can be made again.
#[test]
fn a_demo_that_fails_leaves_nothing() {
    let dir = Transcript::new(Temp::new());
    let mut without_runtime = program(&dir);
    without_runtime
        .env("ORT_DYLIB_PATH", dir.join("no-runtime.so"))
        .args(["demo", "-q", "--out", "new/demo"]);
    says(&ran(&mut without_runtime).ended(USAGE).err, &["no-runtime.so"]);
    assert_eq!(dir.names(), Vec::<String>::new());
    // A folder with anything in it is not touched.
    dir.write("mine/plain.onnx", b"x");
    dir.refused(&["demo", "-q", "--out", "mine"], USAGE);
    assert_eq!(dir.text("mine/plain.onnx"), "x");
    insta::assert_snapshot!(dir.told());
}

/// A demo needs no model, images or network, and overwrites nothing.
#[test]
#[ignore = "slow"]
fn a_demo_audits_both_models_and_sets_them_side_by_side() {
    let dir = Transcript::new(Temp::new());
    let done = run(&dir, ["demo", "-q"]).ended(0);
    let pages = ["comparison.html", "plain.html", "hardened.html"].map(|page| format!("audit-demo/{page}"));
    let said = one_line(&done.out);
    says(&said, &["plain.onnx: Not robust", "hardened.onnx: Not robust", "audit model.onnx --data photos/"]);
    for page in &pages {
        says(&said, &[page]);
        assert!(dir.text(page).starts_with("<!DOCTYPE html>"), "{page}");
    }
    says(&dir.text(&pages[0]), &["plain.onnx", "hardened.onnx", "eps50"]);
    dir.refused(&["demo", "-q"], USAGE);
    run(&dir, ["audit-demo/plain.onnx", "-q", "--max-queries", "12"]).ended(0);
    insta::assert_snapshot!(dir.told());
}

/// `-h` fits a screen, names every command, and names only flags and commands that exist.
#[test]
fn short_help_fits_a_screen() {
    let dir = Temp::new();
    let said = run(&dir, ["-h"]).ended(0).out;
    assert_eq!(said, SHORT);
    assert!(said.lines().count() <= 50, "{}", said.lines().count());
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    let mut cli = Cli::command();
    cli.build();
    let words: Vec<&str> = said.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).collect();
    for word in words.iter().filter(|word| word.starts_with("--")) {
        assert!(cli.get_arguments().any(|arg| arg.get_long() == Some(&word[2..])), "{word}");
    }
    for command in cli.get_subcommands().map(|command| command.get_name()) {
        assert!(words.contains(&command) || ["run", "help"].contains(&command), "{command}");
    }
}
