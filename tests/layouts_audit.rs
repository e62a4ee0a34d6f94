//! Whole audits of a bundled model on data that isn't class folders: separate queries with cameras, a gallery given as
//! embeddings, samples, and doubt about the preprocessing.

mod common;

use audit::attack::Differentiable;
use audit::cli::Cli;
use audit::data::{BUILTIN_SEED, Dataset, Preparation};
use audit::model::Model;
use audit::model::card::Card;
use audit::model::runtime::{Options, Provider};
use audit::report::Report;
use clap::Parser;
use std::fs;
use std::path::{Path, PathBuf};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/plain.onnx");

fn folder(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("layouts-audit").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn run(data: &Path, flags: &[&str]) -> audit::Result<Report> {
    common::load_runtime();
    let mut line = vec!["audit", "--suite", "smoke", "-q", "--threads", "1", "--steps", "1", MODEL, "--data"];
    line.push(data.to_str().unwrap());
    audit::audit::run(&Cli::try_parse_from(line.into_iter().chain(flags.iter().copied())).unwrap().run)
}

/// 16 classes of 6 generated images as PNG files.
fn images(root: &Path) -> Dataset {
    Dataset::generated(BUILTIN_SEED, 16, 6)
        .export(&root.join("images"), &Preparation::new(1, 28, 28))
        .unwrap();
    Dataset::open(&root.join("images"), None, None).unwrap()
}

#[test]
fn separate_queries_and_their_gallery_as_images_or_as_embeddings() {
    let root = folder("separate");
    let data = images(&root);
    // Of each class the first two are queries.
    let query = |i: usize| i % 6 < 2;
    let row = |i: usize| (data.items[i].id.clone(), data.classes[data.items[i].class].clone());
    let mut manifest = "id,path,label,is_query,is_gallery,camera\n".to_string();
    let mut queries = "id,path,label,camera\n".to_string();
    let mut beside = "id,label,camera\n".to_string();
    for i in 0..data.items.len() {
        let (id, label) = row(i);
        let camera = i % 3;
        manifest += &format!("{id},images/{id},{label},{},{},{camera}\n", query(i), !query(i));
        match query(i) {
            true => queries += &format!("{id},images/{id},{label},{camera}\n"),
            false => beside += &format!("{id},{label},{camera}\n"),
        }
    }
    fs::write(root.join("all.csv"), manifest).unwrap();
    fs::write(root.join("queries.csv"), queries).unwrap();
    fs::write(root.join("gallery.csv"), beside).unwrap();

    let whole = run(&root.join("all.csv"), &["--max-queries", "8"]).unwrap();
    assert_eq!((whole.data.images, whole.data.gallery, whole.data.queries), (96, 64, 32));
    assert_eq!(whole.benign.queries, 32);
    assert_eq!(whole.benign.classes.len(), 16);
    assert_eq!(whole.suite.sampling.as_deref(), Some("8 of 32 queries, stratified by class, seed 0"));
    assert_eq!(whole.suite.queries, 8);

    let card = Card::default();
    let mut model =
        Model::open(Path::new(MODEL), &card, Options { provider: Provider::Cpu, threads: 1 }, None).unwrap();
    let mut values = Vec::new();
    let gallery: Vec<usize> = (0..data.items.len()).filter(|&i| !query(i)).collect();
    for some in gallery.chunks(model.batch()) {
        let prep = Preparation::new(1, 28, 28);
        let pixels: Vec<f32> = some.iter().flat_map(|&i| data.pixels(i, &prep).unwrap().data).collect();
        values.extend(model.embed(&pixels).unwrap().iter().flat_map(|v| v.to_le_bytes()));
    }
    let npy = |columns: usize| {
        let header = format!(
            "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {columns}), }}\n",
            values.len() / 4 / columns
        );
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend(&values);
        bytes
    };
    let file = root.join("gallery.npy");
    fs::write(&file, npy(model.info.dim)).unwrap();
    let flags = ["--max-queries", "8", "--gallery", file.to_str().unwrap()];
    let embedded = run(&root.join("queries.csv"), &flags).unwrap();
    assert_eq!((embedded.data.images, embedded.data.gallery, embedded.data.queries), (96, 64, 32));
    // Batches of other images round the last digit differently; what is attacked and found stays.
    assert_eq!(embedded.trials, whole.trials);
    assert_eq!((embedded.benign.r1, embedded.benign.map), (whole.benign.r1, whole.benign.map));

    // Another dimension, and a class that the gallery lacks.
    let rows = 64 * model.info.dim / (model.info.dim / 2);
    let beside: String = (0..rows).map(|i| format!("g{i},class00\n")).collect();
    fs::write(&file, npy(model.info.dim / 2)).unwrap();
    fs::write(root.join("gallery.csv"), format!("id,label\n{beside}")).unwrap();
    let message = run(&root.join("queries.csv"), &flags).unwrap_err().message;
    assert!(
        message.contains("gallery.npy holds embeddings of") && message.contains("dimensions"),
        "{message}"
    );
    fs::write(&file, npy(model.info.dim)).unwrap();
    let beside: String = (0..64).map(|i| format!("g{i},class00\n")).collect();
    fs::write(root.join("gallery.csv"), format!("id,label\n{beside}")).unwrap();
    let message = run(&root.join("queries.csv"), &flags).unwrap_err().message;
    assert!(message.contains("has class `class01`") && message.contains("holds no item"), "{message}");
}

#[test]
fn a_preprocessing_that_others_beat_is_doubted() {
    let root = folder("doubt");
    images(&root);
    let doubts = |flags: &[&str]| {
        let report = run(&root.join("images"), flags).unwrap();
        report.warnings.into_iter().find(|w| w.id == "preprocessing-doubtful").map(|w| w.text)
    };
    assert_eq!(doubts(&[]), None);
    let text = doubts(&["--mean", "0.9", "--std=0.05"]).expect("doubted");
    assert!(text.contains("--mean 0 --std 1") && text.contains("R@1 is"), "{text}");
}
