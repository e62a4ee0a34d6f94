//! Embeddings of any length: an audit is right, or says why there is none. A power of two scales floats
//! exactly, so everything that doesn't depend on the length must be equal to the last bit.

use crate::common::models::{Bench, DIM, small};
use crate::common::{says, warning, words};
use audit::Exit;
use audit::record::Report;
use onnx_grad::Graph;
use onnx_grad::graph::{Node, Tensor};

fn scaled(scale: f32) -> Graph {
    let mut graph = small();
    let last = graph.nodes.last_mut().unwrap();
    last.outputs = vec!["unscaled".into()];
    graph.constants.insert("scale".into(), Tensor::f32(&[1], &[scale]));
    graph.nodes.push(Node::new("Mul", &["unscaled", "scale"], "embedding"));
    graph
}

fn audited(graph: &Graph, flags: &str) -> audit::Result<Report> {
    let line = format!("--suite full --steps 4 --max-queries 6 --metric {flags}");
    Bench::new(graph, 5, 4, 1).audit(&words(&line))
}

#[test]
fn lengths_of_embeddings_are_right_or_refused() {
    // 2⁻³⁴ is 6e-11, 2⁶³ is 9e18, 2⁸⁸ is 3e26.
    for metric in ["normalized-euclidean", "cosine"] {
        let plain = audited(&scaled(1.0), metric).unwrap();
        for exponent in [-34, 63, 88] {
            let other = audited(&scaled(2f32.powi(exponent)), metric).unwrap();
            assert_eq!(other.outcomes, plain.outcomes, "{metric}, 2^{exponent}");
            let ids = |r: &Report| r.warnings.iter().map(|w| w.id.clone()).collect::<Vec<_>>();
            assert_eq!(ids(&other), ids(&plain), "{metric}, 2^{exponent}");
        }
        for scale in [1e-13, 1e-20, 1e-30, 1e33] {
            let error = audited(&scaled(scale), metric).unwrap_err();
            assert_eq!(error.exit, Exit::Untrusted, "{metric}, {scale}: {error}");
            says(&error.message, &["`class00/", "has length", "1e-12 to 1e30", metric]);
        }
    }
    let plain = audited(&scaled(1.0), "euclidean --strong-sample off").unwrap();
    for exponent in [20, 53] {
        let other = audited(&scaled(2f32.powi(exponent)), "euclidean --strong-sample off").unwrap();
        let ranks = |r: &Report| {
            let all = r.outcomes.iter().map(|o| (o.query.clone(), o.before.rank, o.after.rank));
            all.collect::<Vec<_>>()
        };
        // The loss of a rank is a margin of distances, without offset: the same steps at every length.
        let of = |r: &Report, code: &str| {
            let place: Vec<bool> = r.outcomes.iter().map(|o| o.attack == code).collect();
            ranks(r).into_iter().zip(place).filter(|(_, own)| *own).map(|(rank, _)| rank).collect::<Vec<_>>()
        };
        for code in ["CA+", "CA-", "QA+", "QA-"] {
            assert_eq!(of(&other, code), of(&plain, code), "2^{exponent}, {code}");
        }
        assert_eq!(other.benign.as_ref().unwrap().map, plain.benign.as_ref().unwrap().map);
    }
    for scale in [1e-8, 1e-12, 1e-20, 1e19, 1e33] {
        let error = audited(&scaled(scale), "euclidean").unwrap_err();
        assert_eq!(error.exit, Exit::Untrusted, "{scale}: {error}");
        says(&error.message, &["has length", "1e-6 to 1e18", "euclidean"]);
    }
}

/// Item 7 of the gallery is 0.
#[test]
fn embeddings_of_zero_are_named() {
    let bench = Bench::new(&small(), 5, 8, 1);
    let gallery: Vec<u8> = (0..40)
        .flat_map(|i: i32| {
            (0..DIM as i32).map(move |k| if i == 7 { 0.0 } else { ((i * 7 + k * 5) % 11) as f32 - 5.0 })
        })
        .flat_map(f32::to_le_bytes)
        .collect();
    bench.temp.write("gallery.npy", crate::common::npy("<f4", &format!("(40, {DIM})"), &gallery));
    let rows: String = (0..40).map(|i| format!("item{i},class{:02}\n", i / 8)).collect();
    bench.temp.write("gallery.csv", format!("id,label\n{rows}"));
    let file = bench.path("gallery.npy");
    for (metric, named) in [("normalized-euclidean", true), ("cosine", true), ("euclidean", false)] {
        let flags = ["--suite", "smoke", "--max-queries", "3", "--strong-sample", "off", "--metric", metric];
        let report = bench.audit(&[&flags[..], &["--gallery", &file]].concat()).unwrap();
        assert_eq!(report.warnings.iter().any(|w| w.id == "zero-embedding"), named, "{metric}");
        if named {
            says(&warning(&report, "zero-embedding"), &["1 of 80", "`item7`"]);
        }
    }
}
