//! Whole audits of a bundled model on data other than class folders: separate queries with cameras, a gallery
//! given as embeddings, samples, and doubtful preprocessing.

use crate::common::models::{SIDE, Weights, free, grey, value};
use crate::common::{CPU, Temp, npy, says};
use audit::data::{BUILTIN_SEED, Dataset, Preparation};
use audit::model::Model;
use audit::model::card::{Axes, Card};
use audit::record::Report;
use onnx_grad::graph::Node;
use std::fs;
use std::path::{Path, PathBuf};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/plain.onnx");

fn run(data: &Path, flags: &[&str]) -> audit::Result<Report> {
    let data = data.to_str().unwrap();
    let line = ["--suite", "smoke", "--threads", "1", "--steps", "1", "--strong-sample", "off"];
    crate::common::audit(&[&line[..], &[MODEL, "--data", data], flags].concat())
}

/// 16 classes of 6 generated images as PNG files.
fn images(root: &Path) -> Dataset {
    let folder = root.join("images");
    Dataset::generated(BUILTIN_SEED, 16, 6).export(&folder, &Preparation::new(1, 28, 28)).unwrap();
    Dataset::open(&folder, None, None).unwrap()
}

#[test]
fn separate_queries_and_their_gallery_as_images_or_as_embeddings() {
    let root = Temp::new();
    let data = images(&root);
    // Of each class the first two are queries.
    let query = |i: usize| i % 6 < 2;
    let row = |i: usize| (data.items[i].id.clone(), data.classes[data.items[i].class].clone());
    let mut list = "id,path,label,is_query,is_gallery,camera\n".to_string();
    let mut queries = "id,path,label,camera\n".to_string();
    let mut beside = "id,label,camera\n".to_string();
    for i in 0..data.items.len() {
        let (id, label) = row(i);
        let camera = i % 3;
        list += &format!("{id},images/{id},{label},{},{},{camera}\n", query(i), !query(i));
        match query(i) {
            true => queries += &format!("{id},images/{id},{label},{camera}\n"),
            false => beside += &format!("{id},{label},{camera}\n"),
        }
    }
    root.write("all.csv", list);
    root.write("queries.csv", queries);
    root.write("gallery.csv", beside);

    let whole = run(&root.join("all.csv"), &["--max-queries", "8"]).unwrap();
    assert_eq!((whole.data.images, whole.data.gallery, whole.data.queries), (96, 64, 32));
    assert_eq!(whole.benign.as_ref().unwrap().queries, 32);
    assert_eq!(whole.benign.as_ref().unwrap().classes.len(), 16);
    assert_eq!(whole.suite.sampling.as_deref(), Some("8 of 32 queries, stratified by class, seed 0"));
    assert_eq!(whole.suite.queries, 8);
    // CA± perturbs items of the gallery, and its targets are queries. All other attacks perturb queries.
    let is_query = |id: &str| data.items.iter().position(|item| item.id == id).is_some_and(query);
    for (code, rows) in &whole.trials.attacks {
        let by_queries = code.starts_with("ca");
        assert_eq!(rows.len(), 8);
        assert!(rows.iter().all(|row| is_query(&row.query) != by_queries), "{code}");
        let targets = rows.iter().flat_map(|row| row.targets.iter().flatten());
        assert!({ targets }.all(|id| is_query(id) == by_queries), "{code}");
    }
    assert!(whole.warnings.iter().all(|w| w.id != "candidates-outside"));

    let mut model = Model::open(Path::new(MODEL), &Card::default(), CPU, None).unwrap();
    let mut values = Vec::new();
    let gallery: Vec<usize> = (0..data.items.len()).filter(|&i| !query(i)).collect();
    for some in gallery.chunks(model.batch()) {
        let prep = Preparation::new(1, 28, 28);
        let pixels: Vec<f32> = some.iter().flat_map(|&i| data.pixels(i, &prep).unwrap().data).collect();
        values.extend(model.embed(&pixels).unwrap().iter().flat_map(|v| v.to_le_bytes()));
    }
    let npy = |columns: usize| npy("<f4", &format!("({}, {columns})", values.len() / 4 / columns), &values);
    let file = root.join("gallery.npy");
    fs::write(&file, npy(model.info.dim)).unwrap();
    let flags = ["--max-queries", "8", "--gallery", file.to_str().unwrap()];
    let embedded = run(&root.join("queries.csv"), &flags).unwrap();
    assert_eq!((embedded.data.images, embedded.data.gallery, embedded.data.queries), (96, 64, 32));
    // Batches of other images round the last digit differently; trials and hits stay.
    let mut trials = [embedded.trials.clone(), whole.trials.clone()];
    trials.iter_mut().for_each(|list| list.attacks.retain(|code, _| !code.starts_with("ca")));
    assert_eq!(trials[0], trials[1]);
    // The gallery has no images: CA± perturbs those of the queries, and the report says so.
    assert!(embedded.trials.attacks["ca+"].iter().all(|row| is_query(&row.query)));
    says(&crate::common::warning(&embedded, "candidates-outside"), &["16 of 16 trials of CA+, CA-"]);
    assert_eq!(
        (embedded.benign.as_ref().unwrap().r1, embedded.benign.as_ref().unwrap().map),
        (whole.benign.as_ref().unwrap().r1, whole.benign.as_ref().unwrap().map)
    );

    // The same gallery as Parquet.
    let parquet = root.join("gallery.parquet");
    let numbers: Vec<f32> =
        values.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let with_camera = |&i: &usize| (row(i).0, row(i).1, (i % 3) as i32);
    let rows: Vec<(String, String, i32)> = gallery.iter().map(with_camera).collect();
    write_parquet(&parquet, &rows, &numbers);
    let flags = ["--max-queries", "8", "--gallery", parquet.to_str().unwrap()];
    let same = run(&root.join("queries.csv"), &flags).unwrap();
    assert_eq!((&same.trials, &same.outcomes), (&embedded.trials, &embedded.outcomes));
    assert_eq!(same.data.sha256, embedded.data.sha256);

    // Another dimension, and a class that the gallery lacks.
    let flags = ["--max-queries", "8", "--gallery", file.to_str().unwrap()];
    let rows = 64 * model.info.dim / (model.info.dim / 2);
    let beside: String = (0..rows).map(|i| format!("g{i},class00\n")).collect();
    fs::write(&file, npy(model.info.dim / 2)).unwrap();
    root.write("gallery.csv", format!("id,label\n{beside}"));
    let message = run(&root.join("queries.csv"), &flags).unwrap_err().message;
    says(&message, &["gallery.npy holds embeddings of", "dimensions"]);
    fs::write(&file, npy(model.info.dim)).unwrap();
    let beside: String = (0..64).map(|i| format!("g{i},class00\n")).collect();
    root.write("gallery.csv", format!("id,label\n{beside}"));
    let message = run(&root.join("queries.csv"), &flags).unwrap_err().message;
    let other_class = "queries.csv, line 4: query `class01/00.png` has class `class01`";
    says(&message, &[other_class, "gallery.npy holds no embedding. Its classes are `class00`"]);
}

/// A run is defined by its items, not by their order: the same rows in another order give the same report.
#[test]
fn the_order_of_rows_says_nothing() {
    let root = Temp::new();
    let data = images(&root);
    let last = data.items.len() - 1;
    let row = |i: usize| (data.items[i].id.clone(), data.classes[data.items[i].class].clone());
    let listed = |order: &dyn Fn(usize) -> usize| -> String {
        let rows = (0..=last).map(|i| row(order(i)));
        "path,label\n".to_string()
            + &rows.map(|(id, label)| format!("images/{id},{label}\n")).collect::<String>()
    };
    let flags = ["--max-queries", "8"];
    let at = root.write("all.csv", listed(&|i| i));
    let before = run(&at, &flags).unwrap();
    // 35 and 96 have no common divisor.
    for order in [&(|i| last - i) as &dyn Fn(usize) -> usize, &|i| i * 35 % 96] {
        root.write("all.csv", listed(order));
        assert_eq!(crate::common::lasting(&run(&at, &flags).unwrap()), crate::common::lasting(&before));
    }

    // A gallery of embeddings: row i has (i, 1).
    let gallery = |order: &dyn Fn(usize) -> usize| {
        let rows = (0..=last).map(order).map(|i| (i, row(i)));
        let text: String = rows.clone().map(|(_, (id, label))| format!("g/{id},{label}\n")).collect();
        root.write("gallery.csv", "id,label\n".to_string() + &text);
        let values = rows.flat_map(|(i, _)| [i as f32, 1.0]);
        let values: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        audit::data::vectors::read(&root.write("gallery.npy", npy("<f4", "(96, 2)", &values))).unwrap()
    };
    let before = gallery(&|i| i);
    let after = gallery(&|i| i * 35 % 96);
    assert_eq!((&after.ids, &after.labels), (&before.ids, &before.labels));
    assert_eq!(after.embeddings, before.embeddings);
}

/// A gallery of rows (id, label, camera) and their embeddings, by the crate's column writers.
fn write_parquet(path: &Path, rows: &[(String, String, i32)], values: &[f32]) {
    use parquet::data_type::{ByteArray, ByteArrayType, FloatType, Int32Type};
    use parquet::file::writer::SerializedFileWriter;
    let schema = "message gallery { REQUIRED BYTE_ARRAY id (STRING); REQUIRED BYTE_ARRAY label (STRING); \
                  REQUIRED INT32 camera; OPTIONAL group embedding (LIST) { REPEATED group list { OPTIONAL FLOAT element; } } }";
    let schema = std::sync::Arc::new(parquet::schema::parser::parse_message_type(schema).unwrap());
    let mut file =
        SerializedFileWriter::new(fs::File::create(path).unwrap(), schema, Default::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    let texts = |of: fn(&(String, String, i32)) -> &str| -> Vec<ByteArray> {
        rows.iter().map(|row| ByteArray::from(of(row))).collect()
    };
    for column in [texts(|row| &row.0), texts(|row| &row.1)] {
        let mut to = group.next_column().unwrap().unwrap();
        to.typed::<ByteArrayType>().write_batch(&column, None, None).unwrap();
        to.close().unwrap();
    }
    let mut to = group.next_column().unwrap().unwrap();
    let cameras: Vec<i32> = rows.iter().map(|row| row.2).collect();
    to.typed::<Int32Type>().write_batch(&cameras, None, None).unwrap();
    to.close().unwrap();
    let mut to = group.next_column().unwrap().unwrap();
    let dim = values.len() / rows.len();
    let repeated: Vec<i16> = (0..values.len()).map(|at| i16::from(at % dim > 0)).collect();
    to.typed::<FloatType>().write_batch(values, Some(&vec![3; values.len()]), Some(&repeated)).unwrap();
    to.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
}

/// Images of 12 classes: in one channel a pattern of the class between `low` and `high`, noise in the others.
fn coloured(root: &Path, channel: usize, (low, high): (f32, f32)) {
    let mut rng = crate::common::Rng::new(5);
    let side = SIDE as usize;
    for class in 0..12 {
        let pattern: Vec<f32> = (0..side * side).map(|_| rng.unit()).collect();
        for sample in 0..4 {
            let picture = image::RgbImage::from_fn(SIDE as u32, SIDE as u32, |x, y| {
                let mut pixel = [0, 1, 2].map(|_| rng.unit());
                let own = pattern[y as usize * side + x as usize];
                pixel[channel] = low + (high - low) * (0.85 * own + 0.15 * pixel[channel]);
                image::Rgb(pixel.map(|v| (255.0 * v).round() as u8))
            });
            let folder = root.join(format!("class{class:02}"));
            fs::create_dir_all(&folder).unwrap();
            picture.save(folder.join(format!("{sample}.png"))).unwrap();
        }
    }
}

/// A model that sees values between `low` and `high` in one channel of its input, and is saturated elsewhere.
fn seeing(root: &Path, layout: Axes, channel: i64, (low, high): (f32, f32)) -> PathBuf {
    let nhwc = layout == Axes::Nhwc;
    let nodes = vec![
        Node::new("Gather", &["image", "channel"], "plane").with("axis", if nhwc { 3i64 } else { 1 }),
        Node::new("Clip", &["plane", "low", "high"], "clipped"),
        Node::new("Flatten", &["clipped"], "seen"),
        // A small term, equal for all pixels, so that no gradient is ever zero.
        Node::new("ReduceMean", &["image", "but_batch"], "mean").with("keepdims", 0i64),
        Node::new("Mul", &["mean", "little"], "hint"),
        Node::new("Unsqueeze", &["hint", "one"], "column"),
        Node::new("Concat", &["seen", "column"], "embedding").with("axis", 1i64),
    ];
    let weights = Weights::new(1)
        .ints("channel", &[channel])
        .floats("low", &[], &[low])
        .floats("high", &[], &[high])
        .ints("but_batch", &[1, 2, 3])
        .floats("little", &[], &[1e-3])
        .ints("one", &[1]);
    let mut graph = grey(nodes, weights);
    graph.inputs = vec![value("image", free(), &if nhwc { [SIDE, SIDE, 3] } else { [3, SIDE, SIDE] })];
    graph.outputs = vec![value("embedding", free(), &[SIDE * SIDE + 1])];
    let path = root.join("seeing.onnx");
    fs::write(&path, graph.encode()).unwrap();
    path
}

/// Each common mistake, and the setting that the warning names; with the right setting there is no warning.
#[test]
#[ignore = "slow"]
fn common_mistakes_are_named() {
    crate::common::load_runtime();
    let imagenet = ["--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225"];
    // (pixels of the pattern, its channel of RGB, values that the model sees, its channel, right flags, wrong
    // flags, words)
    type Case<'a> = ((f32, f32), usize, (f32, f32), i64, &'a [&'a str], &'a [&'a str], &'a str);
    let cases: [Case; 7] = [
        ((0.0, 1.0), 0, (-9.0, 9.0), 2, &["--channels", "bgr"], &[], "--channels bgr"),
        ((0.0, 1.0), 0, (-9.0, 9.0), 0, &[], &["--channels", "bgr"], "--channels rgb"),
        // Dark pixels: below ImageNet's mean, so negative for a model with normalised input.
        ((0.1, 0.25), 0, (-1.7, -1.0), 0, &imagenet, &[], "ImageNet's mean and std"),
        ((0.05, 0.95), 0, (0.0, 1.0), 0, &[], &["--mean", "0.9", "--std", "0.05"], "--mean 0 --std 1"),
        ((0.1, 0.9), 0, (0.05, 0.95), 0, &[], &["--range", "0,255"], "--mean 0 --std 1"),
        ((0.1, 0.9), 0, (20.0, 235.0), 0, &["--range", "0,255"], &[], "--range 0,255"),
        ((0.02, 0.12), 0, (-0.98, -0.75), 0, &["--range=-1,1"], &[], "--range=-1,1"),
    ];
    for layout in [Axes::Nchw, Axes::Nhwc] {
        for (number, (pixels, channel, sees, at, right, wrong, words)) in cases.iter().enumerate() {
            let root = Temp::new();
            coloured(&root.join("images"), *channel, *pixels);
            let model = seeing(&root, layout, *at, *sees);
            let doubts = |flags: &[&str]| {
                let base = ["--suite", "smoke", "--strong-sample", "off", "--threads", "1", "--steps", "1"];
                let base = base.into_iter().chain(["--max-queries", "4", "--data"]);
                let images = root.join("images");
                let paths = [images.to_str().unwrap(), model.to_str().unwrap()];
                let line: Vec<&str> = base.chain(paths).chain(flags.iter().copied()).collect();
                let report = crate::common::audit(&line).unwrap_or_else(|e| panic!("case {number}: {e}"));
                assert_eq!(report.model.preprocessing.layout, layout);
                let doubt = report.warnings.into_iter().find(|w| w.id == "preprocessing-doubtful");
                (doubt.map(|w| w.text), report.benign.as_ref().unwrap().r1)
            };
            let (none, r1) = doubts(right);
            assert!(none.is_none() && r1 > 90.0, "case {number}: {none:?}, R@1 {r1}");
            let (text, r1) = doubts(wrong);
            let text = text.unwrap_or_else(|| panic!("case {number}: no doubt, R@1 {r1}"));
            assert!(text.contains(words), "case {number}: {text}");
        }
    }
}

#[test]
fn a_preprocessing_that_others_beat_is_doubted() {
    let root = Temp::new();
    images(&root);
    let doubts = |flags: &[&str]| {
        let report = run(&root.join("images"), flags).unwrap();
        report.warnings.into_iter().find(|w| w.id == "preprocessing-doubtful").map(|w| w.text)
    };
    assert_eq!(doubts(&[]), None);
    let text = doubts(&["--mean", "0.9", "--std=0.05"]).expect("doubted");
    assert!(text.contains("--mean 0 --std 1") && text.contains("R@1 is"), "{text}");
}
