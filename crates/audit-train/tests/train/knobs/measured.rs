//! What a training measures on its way.

use super::{close, distance, mean, rows};
use crate::batch::Batch;
use crate::words::words;
use crate::{rows as epochs, runtime_folder};
use audit::data::{Dataset, Preparation};
use audit_train::cli::Cli;
use audit_train::dice::Dice;
use audit_train::images::LabelledImages;
use audit_train::monitor::measure;
use audit_train::net::{Backbone, Net, Norms};
use clap::Parser;
use tch::{Device, Tensor};

#[test]
fn separability_of_a_batch() {
    let mut batch = Batch::new("act --pgd-steps 1", 16);
    let step = batch.step(0.5);
    let point = |angle: f64| Tensor::from_slice(&[angle.cos() as f32, angle.sin() as f32]).view([1, 2]);
    let triplet = |angles: [f64; 3]| angles.map(point);
    let apart = |[a, p, n]: [f64; 3]| {
        let d = |x: f64, y: f64| 2.0 * ((x - y).abs() / 2.0).sin();
        (d(a, n) - d(a, p)) / ((d(a, p) + d(a, n) + d(p, n)) / 3.0)
    };
    let (before, after) = ([0.0, 0.3, 1.1], [0.0, 0.9, 0.7]);
    let seen = step.seen(&triplet(before), &triplet(after), [false, true, true], None);
    close(seen.separability_before, apart(before), "before");
    close(seen.separability_after, apart(after), "after");
    assert!(seen.separability_after < 0.0);
}

#[test]
fn distances_within_and_between_classes() {
    let net = Net::new(Backbone::find("c2f1").unwrap(), 8, 3, Device::Cpu);
    let images = Dice::new(1, "images", 0).tensor(&[9, 1, 28, 28]);
    let labels: Vec<usize> = (0..9).map(|i| i / 3).collect();
    let e = rows(&tch::no_grad(|| net.unit(&net.weights, &images, Norms::Frozen)));
    let of = |same: bool| {
        let all = (0..9).flat_map(|i| (0..9).map(move |j| (i, j)));
        let chosen = all.filter(|(i, j)| i != j && (labels[*i] == labels[*j]) == same);
        mean(&chosen.map(|(i, j)| distance(&e[i], &e[j])).collect::<Vec<_>>())
    };
    let (within, between) = (of(true), of(false));
    let found = measure(&net, &LabelledImages { images, labels });
    close(found.within, within, "within");
    close(found.between, between, "between");
    close(found.entanglement, within / between, "entanglement");
}

#[test]
fn ers_on_the_way_is_that_of_an_audit() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (folder.path().join("images"), folder.path().join("net.onnx"));
    Dataset::generated(5, 6, 8).export(&data, &Preparation::new(1, 28, 28)).unwrap();
    let runtime = runtime_folder();
    let lib = runtime.as_ref().map_or(String::new(), |dir| format!("--ort-lib {dir:?}"));
    let line = format!(
        "audit-train none --loss proxy-anchor -q --threads 1 --data {data:?} --out {out:?} --batch 12 --epochs 4 --ers-every 2 --ers-queries 6 {lib}"
    );
    audit_train::run(&Cli::parse_words(words(&line)).unwrap().run).unwrap();
    let rows = epochs(&out.with_extension("jsonl"));
    let measured: Vec<(u64, bool)> = rows.iter().map(|r| (r.epoch, r.ers.is_some())).collect();
    assert_eq!(measured, [(0, false), (1, false), (2, true), (3, false), (4, true)]);
    // After the last epoch the net is the model.
    let line = format!(
        "audit -q --suite ers --strong-sample off --allow-untrusted --max-queries 6 --threads 1 --data {data:?} {out:?}"
    );
    let mut request = audit::command::Cli::try_parse_from(words(&line)).unwrap().run.request().unwrap();
    request.compute.library = request.compute.library.or(runtime);
    let ers = audit::run(&request).unwrap().scores.ers.unwrap().value;
    assert_eq!(rows[4].ers, Some(ers));
    assert!(!folder.path().join("net.probe.onnx").exists() && !folder.path().join("net.probe.yaml").exists());
}
