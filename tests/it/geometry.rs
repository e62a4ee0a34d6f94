//! `audit geometry`: distances, energies, triplets and t-SNE against an independent implementation, and the
//! command as a user runs it.
//!
//! Expected values are those of research/golden/golden_geometry.py: NumPy and SciPy in double precision for
//! distances and triplets, scikit-learn for t-SNE, PyTorch for attacks on triplets. Tests on them need the
//! models, images and golden trials of the reference data.

use crate::common::golden::Golden;
use crate::common::models::{Weights, free, grey, stage, trunk, trunk_weights, value};
use crate::common::transcript::Transcript;
use crate::common::{CPU, Temp, load_runtime, plan, program, ran, says, shared};
use audit::command::Command;
use audit::feature::geometry as command;
use audit::feature::geometry::{Geometry, ShiftRow};
use audit::model::Model;
use audit::model::card::Card;
use audit::record::{Form, Metric, TripletState};
use audit::space::{Gallery, geometry, tsne};
use audit::threat::triplets::{MOVING, harden};
use ndarray::{Array2, s};
use serde_json::Value;

const MODELS: [&str; 2] = ["vanilla", "hardened"];

fn reference(model: &str) -> (Gallery, Value) {
    let mut golden = Golden::open(model);
    let path = format!("{}/tests/golden/geometry/{model}.json", env!("CARGO_MANIFEST_DIR"));
    let expected: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let labels = golden.indices("labels");
    let values: Vec<f32> = golden.array("embeddings_N");
    let points = Array2::from_shape_vec((labels.len(), values.len() / labels.len()), values).unwrap();
    let gallery = Gallery::new(Metric::NormalizedEuclidean, points, labels, golden.names.clone()).unwrap();
    (gallery, expected)
}

#[track_caller]
fn near(ours: f64, expected: &Value, tolerance: f64, what: &str) {
    let theirs = expected.as_f64().unwrap_or_else(|| panic!("no {what}"));
    assert!((ours - theirs).abs() <= tolerance, "{what}: {ours} and {theirs}");
}

#[track_caller]
fn same_state(ours: &TripletState, expected: &Value, tolerance: f64, what: &str) {
    let values = [
        ("hardness", ours.hardness),
        ("collapseness", ours.collapseness),
        ("separability", ours.separability),
        ("distance", ours.distance),
    ];
    for (key, value) in values {
        near(value, &expected[key], tolerance, &format!("{what}: {key}"));
    }
}

#[test]
#[ignore = "needs the reference data"]
fn distances_and_energies_are_those_of_the_papers() {
    for model in MODELS {
        let (gallery, expected) = reference(model);
        let all: Vec<usize> = (0..gallery.len()).collect();
        let found = geometry::spacing(&gallery, &all, &|label| label.to_string(), &mut |_| Ok(())).unwrap();
        let of = &expected["spacing"];
        // Rounding of float32 products in distances, which energies of s = 1 enlarge.
        for (key, value) in [
            ("distance", found.distance),
            ("within", found.within),
            ("between", found.between),
            ("entanglement", found.entanglement),
            ("separability", found.separability),
            ("alignment", found.alignment),
            ("he_0", found.he_0.unwrap()),
            ("he_1", found.he_1.unwrap()),
            ("g_he", found.g_he.unwrap()),
        ] {
            near(value, &of[key], 2e-5, &format!("{model}: {key}"));
        }
        assert_eq!(found.coincident, of["coincident"].as_u64().unwrap());
        for (key, bins) in
            [("within_histogram", &found.histogram.within), ("between_histogram", &found.histogram.between)]
        {
            let theirs = of[key].as_array().unwrap();
            assert_eq!(bins.len(), theirs.len());
            // A pair on the edge of two bins may fall into either.
            bins.iter().zip(theirs).for_each(|(ours, theirs)| near(*ours, theirs, 0.02, key));
        }
        let classes = expected["classes"].as_array().unwrap();
        assert_eq!(found.classes.len(), classes.len());
        for class in classes {
            let label = class["label"].to_string();
            let ours = found.classes.iter().find(|c| c.class == label).unwrap();
            near(ours.within, &class["within"], 2e-5, "within");
            near(ours.between, &class["between"], 2e-5, "between");
            assert_eq!(ours.neighbour, class["neighbour"].to_string(), "class {}", ours.class);
        }
        assert!(found.classes.windows(2).all(|two| two[0].entanglement >= two[1].entanglement));
    }
}

/// The tolerances of attacks are those that the README of the golden trials states for two implementations in
/// float32: signs of tiny gradients differ, and paths with them.
#[test]
#[ignore = "needs the reference data"]
fn triplets_are_as_hard_as_pytorch_makes_them() {
    for name in MODELS {
        let (gallery, expected) = reference(name);
        let shared = shared("models");
        load_runtime();
        let mut model =
            Model::open(&shared.join(format!("models/{name}.onnx")), &Card::default(), CPU, Some(50))
                .unwrap();
        let bytes = std::fs::read(shared.join("data/omniglot28/test_images_u8.npy")).unwrap();
        let pixels: Vec<u8> = npyz::NpyFile::new(&*bytes).unwrap().into_vec().unwrap();
        let image = |i: usize| -> Vec<f32> {
            pixels[i * 784..(i + 1) * 784].iter().map(|&v| f32::from(v) / 255.0).collect()
        };
        let triplets: Vec<[usize; 3]> = serde_json::from_value(expected["triplets"].clone()).unwrap();
        let part = |k: usize| geometry::points(&gallery, triplets.iter().map(|t| t[k]));
        let clean = [part(0), part(1), part(2)];
        let view = |parts: &[Array2<f32>; 3]| geometry::state_of([0, 1, 2].map(|k| parts[k].view()));
        same_state(&view(&clean), &expected["clean"], 1e-6, name);
        let plan = plan(Form::Corrected, 77.0 / 255.0, 3.0 / 255.0);
        for moving in MOVING {
            let mut steps = 0;
            let after = harden(
                &mut model,
                &gallery,
                &|i| Ok(image(i).into()),
                &triplets,
                moving,
                &plan,
                &mut |done| {
                    steps = done;
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(steps, 32 * triplets.len() * moving.count());
            let of = &expected["attacks"][moving.method];
            same_state(&view(&after), of, 5e-3, &format!("{name}: {}", moving.method));
            for k in 0..3 {
                assert_eq!(after[k] == clean[k], !moving.parts[k], "{}: part {k}", moving.method);
            }
        }
    }
}

/// P, the divergence and its gradient are scikit-learn's, and a finished map is no worse than the worst of
/// three of its fits.
#[test]
#[ignore = "needs the reference data"]
fn maps_are_those_of_scikit_learn() {
    let (gallery, expected) = reference("vanilla");
    let of = &expected["tsne"];
    let count = of["gradient"].as_array().unwrap().len();
    let points = gallery.points.slice(s![..count, ..]);
    let p = tsne::affinities(points, 30.0);
    for (j, theirs) in of["p_row"].as_array().unwrap().iter().enumerate() {
        near(p[[0, j]], theirs, 1e-7, "P");
    }
    near(p.iter().map(|v| v * v).sum(), &of["p_squares"], 1e-6, "ΣP²");
    let places: Vec<[f64; 2]> = (0..count).map(|i| [(i as f64).sin(), (1.7 * i as f64).cos()]).collect();
    near(tsne::divergence(&p, &places), &of["divergence"], 1e-4, "KL");
    for (ours, theirs) in tsne::gradient(&p, &places, 1.0).iter().zip(of["gradient"].as_array().unwrap()) {
        (0..2).for_each(|k| near(ours[k], &theirs[k], 1e-5, "gradient"));
    }
    let map = tsne::layout(points, 0, &mut |_| {});
    let worst = of["fits"].as_array().unwrap().iter().filter_map(Value::as_f64).fold(0.0, f64::max);
    assert!(map.divergence < 1.05 * worst, "KL {} and {worst}", map.divergence);
    assert_eq!(map, tsne::layout(points, 0, &mut |_| {}));
    assert_ne!(map.places, tsne::layout(points, 1, &mut |_| {}).places);
}

/// λ = 0 is mean hardness (CA-TRIDE, section 4.4), and a larger λ counts only near samples. A batch holds two
/// images of a class.
#[test]
fn batches_and_collapseness_are_as_defined() {
    let (near, far) = ([0.2, 0.6, 1.0], [0.4, 0.8, 1.5]);
    let c = |lambda| geometry::collapseness(&near, &far, lambda);
    assert!((c(0.0) - (0.6 - 0.9)).abs() < 1e-12);
    assert!((c(1e4) - (0.2 - 0.4)).abs() < 1e-12);
    let labels: Vec<usize> = (0..40).map(|i| i / 4).collect();
    let points = Array2::from_shape_fn((40, 6), |(i, k)| ((i * 6 + k) as f32 * 0.37).sin());
    let ids = (0..40).map(|i| i.to_string()).collect();
    let gallery = Gallery::new(Metric::NormalizedEuclidean, points, labels, ids).unwrap();
    let batches = geometry::Batches::new(&gallery, 3).unwrap();
    assert_eq!(batches.size(), 20);
    let batch = batches.draw(7);
    for pair in batch.items.chunks(2) {
        assert!(pair[0] != pair[1] && gallery.labels[pair[0]] == gallery.labels[pair[1]]);
    }
    assert_eq!(batch.items, batches.draw(7).items);
    assert_ne!(batch.items, batches.draw(8).items);
    let (rows, states) = geometry::hardness(&batches, 60, 5, &mut |_| Ok(())).unwrap();
    let of = |name: &str| rows.iter().find(|r| r.sampler == name).unwrap();
    assert_eq!(states.len(), 5);
    // The nearest negative is the hardest, and one farther than the positive is never above 0.
    assert!(rows.iter().all(|r| r.mean <= of("hardest").mean) && of("hardest").mean > of("random").mean);
    assert!(of("softhard").hard >= of("random").hard);
}

fn found(dir: &Temp, more: &[&str]) -> audit::Result<Geometry> {
    let path = |name: &str| dir.join(name).display().to_string();
    let files = [path("model.onnx"), path("data")];
    let line = ["audit", "geometry", &files[0], "--data", &files[1], "-q", "--steps", "3"];
    let line = [&line[..], more].concat();
    let Some(Command::Geometry(args)) = crate::common::cli(&line).command else { panic!("no geometry") };
    command::run(&crate::common::here(args.request()?))
}

#[test]
fn the_command_measures_any_model_and_writes_a_page() {
    let dir = stage(6, 5);
    let line = ["geometry", "model.onnx", "--data", "data", "-q", "--steps", "3", "--max-queries", "8"];
    let done = ran(program(&dir).args(line).args(["-o", "g.html", "-o", "g.json"])).ended(0);
    says(&done.out, &["entanglement, within ÷ between", "softhard", "CAP positives", "ALI", "nearest class"]);
    let file: Geometry = serde_json::from_value(dir.json("g.json")).unwrap();
    let again = found(&dir, &["--max-queries", "8"]).unwrap();
    let numbers = |g: &Geometry| {
        serde_json::json!([g.spacing, g.samplers, g.batches, g.triplets, g.shifts, g.map, g.suite, g.mining])
    };
    assert_eq!(numbers(&file), numbers(&again), "a run depends on its seed only");
    assert_ne!(numbers(&file), numbers(&found(&dir, &["--max-queries", "8", "--seed", "1"]).unwrap()));
    assert_eq!((file.triplets.triplets.len(), file.triplets.attacks.len()), (8, 3));
    assert_eq!(file.map.queries.len(), 8);
    assert_eq!(file.spacing.classes.len(), 6);
    // An attack makes triplets harder, and moves the images that it names.
    for row in &file.triplets.attacks {
        assert!(row.shift > 0.0 && row.state.hardness > file.triplets.clean.hardness, "{}", row.moved);
    }
    let html = dir.text("g.html");
    says(
        &html,
        &["How are classes placed?", "Pairs by distance", "Which classes are entangled?", "KL divergence"],
    );
    // 30 small dots on both maps, and 8 queries before and after.
    let maps =
        &html[html.find("embeddings before the attack").unwrap()..html.find("How far do attacks").unwrap()];
    assert_eq!((maps.matches("<circle").count(), maps.matches("<line").count()), (2 * (30 + 8), 8));
    assert!(!html.contains("http:") && !html.contains("https:"), "one file without network access");
}

/// Under the metric cosine, an outcome's shift is 1 − cos, and d̄ is Euclidean like all distances of a
/// geometry: the shift of a query is that under the normalised Euclidean metric, under which the steps are
/// the same.
#[test]
fn shifts_are_euclidean_under_every_metric() {
    let dir = stage(6, 5);
    let one = |metric: &str| found(&dir, &["--max-queries", "1", "--metric", metric]).unwrap();
    let (cosine, euclidean) = (one("cosine"), one("normalized-euclidean"));
    assert_eq!(cosine.shifts.len(), 3);
    for (ours, theirs) in cosine.shifts.iter().zip(&euclidean.shifts) {
        let of = |row: &ShiftRow| [row.shift, row.relative];
        for (a, b) in of(ours).into_iter().zip(of(theirs)) {
            assert!((a - b).abs() < 1e-3 * b + 1e-6, "{}: {a} and {b}", ours.attack);
        }
    }
    // NN doesn't move a query that is wrong without an attack.
    assert!(euclidean.shifts.iter().filter(|row| row.shift > 0.1).count() >= 2, "{:?}", euclidean.shifts);
}

/// A gallery may have one image of a class. Its queries have something to find, and are attacked.
#[test]
fn queries_with_one_image_in_the_gallery_are_attacked() {
    let dir = stage(3, 2);
    let data = dir.join("data");
    let place = |part: &str, class: &str| data.join(part).join(class);
    for class in ["class00", "class01", "class02"] {
        std::fs::create_dir_all(data.join("gallery")).unwrap();
        std::fs::rename(data.join(class), place("gallery", class)).unwrap();
    }
    std::fs::create_dir_all(place("query", "class02")).unwrap();
    let name = &Temp::names_in(&place("gallery", "class02"))[0];
    let [from, to] = ["gallery", "query"].map(|part| place(part, "class02").join(name));
    std::fs::rename(from, to).unwrap();
    let found = found(&dir, &["--allow-untrusted"]).unwrap();
    assert_eq!((found.data.gallery, found.data.queries, found.map.queries.len()), (5, 1, 1));
    assert!(found.shifts.iter().all(|row| row.queries == 1), "{:?}", found.shifts);
    assert!(found.shifts.iter().any(|row| row.attack == "ES" && row.shift > 0.0), "{:?}", found.shifts);
}

/// Panum et al., figure 2: two-dimensional embeddings are drawn as they are. Under the usual metric they lie
/// on the unit circle, also the attacked ones; a map by t-SNE is centred at 0 and lies on no circle.
#[test]
fn a_plane_is_drawn_as_it_is() {
    let dir = stage(6, 5);
    let weights =
        trunk_weights(Weights::new(1), "", 1).normal("w2", &[2, 4 * 36], 0.1).normal("b2", &[2], 0.1);
    let mut graph = grey(trunk("image", "embedding", ""), weights);
    graph.outputs = vec![value("embedding", free(), &[2])];
    dir.write("model.onnx", graph.encode());
    let html = dir.join("g.html").display().to_string();
    let map = found(&dir, &["--max-queries", "8", "-o", &html]).unwrap().map;
    assert_eq!((map.perplexity, map.divergence, map.items.len(), map.queries.len()), (None, None, 30, 8));
    let ends = map.queries.iter().flat_map(|q| [q.from, q.to]);
    for [x, y] in map.items.iter().map(|p| p.at).chain(ends) {
        assert!((x.hypot(y) - 1.0).abs() < 1e-5, "({x}, {y})");
    }
    assert!(map.queries.iter().any(|q| q.from != q.to));
    let page = std::fs::read_to_string(html).unwrap();
    says(&page, &["in the plane of their embeddings", "Distances on the map are those of the space"]);
    assert!(!page.contains("t-SNE") && !page.contains("KL divergence"));
}

#[test]
fn what_has_no_part_in_a_geometry_is_refused() {
    let dir = Transcript::new(stage(6, 5));
    for flags in [["--suite", "strong"], ["-o", "g.csv"]] {
        let refused = found(&dir, &flags).unwrap_err();
        assert_eq!(refused.exit, audit::Exit::Usage, "{refused}");
        dir.note(&refused.message);
    }
    insta::assert_snapshot!(dir.told());
}
