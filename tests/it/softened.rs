//! Softened backward passes on `models/plain.onnx` behind masks that hide its gradient.

use crate::common::masked::{MASKS, MISLEADING, Mask};
use crate::common::models::{SIDE, Weights, grey, small};
use crate::common::{CPU, Temp, bundled, load_runtime, says};
use audit::data::{Dataset, Preparation};
use audit::model::card::Card;
use audit::model::{Differentiable, Model, Route};
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use onnx_grad::Graph;
use onnx_grad::graph::{Node, Tensor};

const BATCH: usize = 8;
/// Height and width of the images of the bundled models.
const WIDTH: usize = 28;
const PIXELS: usize = WIDTH * WIDTH;
const SOFT: [Route; 2] = [Route::Softened, Route::StraightThrough];

/// Built-in images, each of another class.
fn images(from: usize) -> Vec<f32> {
    let prep = Preparation::new(1, WIDTH, WIDTH);
    let dataset = Dataset::builtin(0);
    (0..BATCH).flat_map(|i| dataset.pixels(from + 20 * i, &prep).unwrap().data).collect()
}

/// The images and, for each, one of another class that an attack aims at.
fn images_and_aims() -> [Vec<f32>; 2] {
    [images(3), images(64)]
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(1e-300)
}

/// The median over images.
fn median_cosine(a: &[f32], b: &[f32]) -> f64 {
    let mut all: Vec<f64> = a.chunks(PIXELS).zip(b.chunks(PIXELS)).map(|(a, b)| cosine(a, b)).collect();
    all.sort_by(f64::total_cmp);
    all[BATCH / 2]
}

/// The share of pixels where both have the same sign.
fn same_signs(g: &[f32], other: &[f32]) -> f64 {
    let same = g.iter().zip(other).filter(|(g, o)| **g != 0.0 && **o != 0.0 && g.signum() == o.signum());
    same.count() as f64 / g.len() as f64
}

fn largest(g: &[f32]) -> f32 {
    g.iter().fold(0.0f32, |m, v| m.max(v.abs()))
}

fn opened(temp: &Temp, name: &str, graph: &Graph) -> Model {
    load_runtime();
    let path = temp.write(&format!("{name}.onnx"), graph.encode());
    Model::open(&path, &Card::default(), CPU, Some(BATCH)).unwrap()
}

/// ∂/∂x of the cosine between the embeddings of x and of `aims`, up to a positive factor for each image.
fn towards(worker: &mut dyn Differentiable, x: &[f32], aims: &Array2<f32>) -> Vec<f32> {
    let mut cotangent = |e: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| {
        for (i, (e, aim)) in e.outer_iter().zip(aims.outer_iter()).enumerate() {
            out.row_mut(i).assign(&(&aim * e.dot(&e) - &e * e.dot(&aim)));
        }
    };
    let mut gradient = vec![0.0; x.len()];
    worker.gradient(x, &[0.0; BATCH], &mut cotangent, &mut gradient).unwrap();
    gradient
}

/// What each mask hides, measured on 8 images: the exact gradient is (nearly) zero at nearly all pixels, or
/// at most 2 % as large as the unmasked model's, because only a leak of it is left. Two masks behind the
/// embedding hide less. The softened gradients agree with the unmasked model's. An image's threshold at 0.5
/// alone changes so much that a sign agrees at 70 % of the pixels and the cosine is 0.65: the most that can
/// be expected if a mask turns grey into black and white.
#[test]
fn masks_hide_the_gradient_and_softened_passes_find_it() {
    let temp = Temp::new();
    let graph = Graph::load(&bundled("plain.onnx")).unwrap();
    let [x, aims] = images_and_aims();
    let mut plain = opened(&temp, "plain", &graph);
    let to = plain.embed(&aims).unwrap();
    let own = towards(plain.workers()[0], &x, &to);
    // If nothing is masked, the rectifiers' leak is all that softening changes.
    for route in SOFT {
        let mut softened = plain.softened(route).unwrap().unwrap();
        assert_eq!(softened.nodes, [r#"Relu "relu1""#, r#"Relu "relu3""#]);
        let cosine = median_cosine(&towards(softened.workers()[0], &x, &to), &own);
        assert!(cosine > 0.95, "{cosine}");
    }
    for mask in MASKS.iter().filter(|mask| !MISLEADING.contains(&mask.name)) {
        let name = mask.name;
        let mut model = opened(&temp, name, &mask.apply(&graph));
        let to = model.embed(&aims).unwrap();
        let exact = towards(model.workers()[0], &x, &to);
        let top = largest(&exact);
        let none = exact.iter().filter(|v| v.abs() <= 1e-4 * top).count() as f64 / exact.len() as f64;
        let hidden = none > 0.8 || top < 0.02 * largest(&own);
        assert!(hidden || ["tanh-100", "sign-leak"].contains(&name), "{name}: {none:.2} of it 0, {top}");
        let cosines = SOFT.map(|route| {
            let mut softened = model.softened(route).unwrap().expect(name);
            let g = towards(softened.workers()[0], &x, &to);
            let signs = same_signs(&g, &own);
            assert!(signs > 0.6 && g.iter().all(|v| v.is_finite()), "{name}, {route:?}: signs {signs:.2}");
            median_cosine(&g, &own)
        });
        // Rectifiers that form a step have most weight at its middle; elsewhere little more than signs is
        // right.
        let enough = if name == "relu-step" { 0.05 } else { 0.3 };
        assert!(cosines.iter().any(|cosine| *cosine > enough), "{name}: {cosines:.2?}");
    }
}

/// 24 signed steps of 3/255 within 77/255: measured by the exact model, softened steps get nearer to their
/// aims.
#[test]
fn an_attack_along_a_softened_gradient_gets_further() {
    let temp = Temp::new();
    let graph = Graph::load(&bundled("plain.onnx")).unwrap();
    let [x, aims] = images_and_aims();
    for name in ["sigmoid-200", "softmax-300"] {
        let mut model = opened(&temp, name, &Mask::named(name).apply(&graph));
        let to = model.embed(&aims).unwrap();
        let attacked = |worker: &mut dyn Differentiable| {
            let mut moved = x.clone();
            for _ in 0..24 {
                let g = towards(worker, &moved, &to);
                for ((v, g), x) in moved.iter_mut().zip(&g).zip(&x) {
                    let step = if *g == 0.0 { 0.0 } else { 3.0 / 255.0 * g.signum() };
                    *v = (*v + step).clamp(x - 77.0 / 255.0, x + 77.0 / 255.0).clamp(0.0, 1.0);
                }
            }
            moved
        };
        let mut softened = model.softened(Route::Softened).unwrap().unwrap();
        let (soft, exact) = (attacked(softened.workers()[0]), attacked(model.workers()[0]));
        let [start, soft, exact] = [&x, &soft, &exact].map(|images| {
            let e = model.embed(images).unwrap();
            let rows = e.outer_iter().zip(to.outer_iter());
            rows.map(|(e, t)| cosine(&e.to_vec(), &t.to_vec())).sum::<f64>() / BATCH as f64
        });
        assert!(
            soft - start > 1.5 * (exact - start),
            "{name}: from {start:.3} to {exact:.3}, softened {soft:.3}"
        );
    }
}

/// A product quantiser as PyTorch exports it (16 parts of 8 values with 8 centres each, all in one table),
/// with −0.001·z added to the quantised embedding. The exact gradient has this share alone.
#[test]
fn a_product_quantiser_of_one_table_has_a_softened_slope() {
    let temp = Temp::new();
    let mut graph = Graph::load(&bundled("plain.onnx")).unwrap();
    let embedding = graph.outputs[0].name.clone();
    graph.rename(&embedding, "z");
    graph.outputs[0].name = embedding.clone();
    let centres: Vec<f32> = (0..1024).map(|i| ((i * 37 % 101) as f32 / 50.0 - 1.0) * 0.2).collect();
    let starts: Vec<i64> = (0..16).map(|part| 8 * part).collect();
    let constants = [
        ("parts", Tensor::ints(&[-1, 16, 1, 8])),
        ("centres", Tensor::f32(&[16, 8, 8], &centres)),
        ("table", Tensor::f32(&[128, 8], &centres)),
        ("last", Tensor::ints(&[-1])),
        ("starts", Tensor::ints(&starts)),
        ("flat", Tensor::ints(&[-1, 128])),
        ("share", Tensor::f32(&[], &[-0.001])),
    ];
    graph.constants.extend(constants.map(|(name, tensor)| (name.to_string(), tensor)));
    graph.nodes.extend([
        Node::new("Reshape", &["z", "parts"], "by part"),
        Node::new("Sub", &["by part", "centres"], "apart"),
        Node::new("Mul", &["apart", "apart"], "square"),
        Node::new("ReduceSum", &["square", "last"], "distance").with("keepdims", 0i64),
        Node::new("ArgMin", &["distance"], "nearest").with("axis", -1i64).with("keepdims", 0i64),
        Node::new("Add", &["nearest", "starts"], "row"),
        Node::new("Gather", &["table", "row"], "picked"),
        Node::new("Reshape", &["picked", "flat"], "quantised"),
        Node::new("Mul", &["z", "share"], "rest"),
        Node::new("Add", &["quantised", "rest"], &embedding),
    ]);
    let mut model = opened(&temp, "quantised", &graph);
    let [x, aims] = images_and_aims();
    let to = model.embed(&aims).unwrap();
    let exact = towards(model.workers()[0], &x, &to);
    let own = model.embed(&x).unwrap();
    for route in SOFT {
        let mut softened = model.softened(route).unwrap().unwrap();
        says(&softened.nodes.join(", "), &["Hardmax"]);
        let found = softened.workers()[0].embed(&x).unwrap();
        let top = largest(own.as_slice().unwrap());
        assert!(own.iter().zip(&found).all(|(a, b)| (a - b).abs() <= 1e-5 * top), "{route:?}");
        let g = towards(softened.workers()[0], &x, &to);
        assert!(largest(&g) > 5.0 * largest(&exact), "{route:?}: {} and {}", largest(&g), largest(&exact));
    }
}

#[test]
fn softened_workers_are_as_the_models_own() {
    let temp = Temp::new();
    let graph = Graph::load(&bundled("plain.onnx")).unwrap();
    let mut model = opened(&temp, "masked", &Mask::named("where-leak").apply(&graph));
    let [x, aims] = images_and_aims();
    let to = model.embed(&aims).unwrap();
    let mut softened = model.softened(Route::Softened).unwrap().unwrap();
    assert_eq!(softened.route, Route::Softened);
    says(&softened.nodes.join(", "), &["Greater", "Where", "relu1"]);
    assert_eq!(softened.workers().len(), model.workers().len());
    let worker = &mut softened.workers()[0];
    assert_eq!((worker.batch(), worker.shape()), (BATCH, [1, WIDTH, WIDTH]));
    let (own, found) = (model.embed(&x).unwrap(), worker.embed(&x).unwrap());
    let top = largest(own.as_slice().unwrap());
    assert!(own.iter().zip(&found).all(|(a, b)| (a - b).abs() <= 1e-5 * top));
    // The gradient of an image doesn't depend on the others of its batch.
    let all = towards(*worker, &x, &to);
    let mut others = aims.clone();
    others[..PIXELS].copy_from_slice(&x[..PIXELS]);
    assert_eq!(towards(*worker, &others, &to)[..PIXELS], all[..PIXELS]);
}

/// Behind an operator that turns grey into black and white, the net is differentiated at values that it never
/// saw. The widened model's gradient agrees with the unmasked model's more than a softened pass does. Its
/// images are still measured by the model.
#[test]
fn a_surrogate_sees_the_net_behind_a_saturated_operator() {
    let temp = Temp::new();
    let graph = Graph::load(&bundled("hardened.onnx")).unwrap();
    let [x, aims] = images_and_aims();
    let mut bare = opened(&temp, "bare", &graph);
    assert!(bare.softened(Route::Widened).unwrap().is_none(), "nothing saturates");
    let to = bare.embed(&aims).unwrap();
    let own = towards(bare.workers()[0], &x, &to);
    for name in ["sigmoid-200", "hard-sigmoid", "clip", "erf"] {
        let mut model = opened(&temp, name, &Mask::named(name).apply(&graph));
        let mut nearness = |route: Route| {
            let mut other = model.softened(route).unwrap().expect(name);
            let same = (model.embed(&x).unwrap(), other.workers()[0].embed(&x).unwrap());
            let top = largest(same.0.as_slice().unwrap());
            assert!(
                same.0.iter().zip(&same.1).all(|(a, b)| (a - b).abs() <= 1e-5 * top),
                "{name}, {route:?}"
            );
            median_cosine(&towards(other.workers()[0], &x, &to), &own)
        };
        let (softened, surrogate) = (nearness(Route::Softened), nearness(Route::Widened));
        assert!(surrogate > softened + 0.1, "{name}: softened {softened:.2}, surrogate {surrogate:.2}");
    }
}

#[test]
fn there_is_no_softened_pass_where_it_would_be_the_exact_one() {
    let temp = Temp::new();
    let nodes = vec![Node::new("Flatten", &["image"], "f"), Node::new("MatMul", &["f", "w"], "embedding")];
    let linear = grey(nodes, Weights::new(1).normal("w", &[SIDE * SIDE, 8], 0.1));
    let model = opened(&temp, "linear", &linear);
    for route in [Route::Exact, Route::Softened, Route::StraightThrough, Route::Widened] {
        assert!(model.softened(route).unwrap().is_none(), "{route:?}");
    }
    let path = temp.write("small.onnx", small().encode());
    let model = Model::open(&path, &Card::default(), CPU, Some(2)).unwrap();
    assert!(model.softened(Route::Exact).unwrap().is_none());
    assert!(model.softened(Route::Softened).unwrap().is_some());
    let estimated = Model::open_estimated(&path, &Card::default(), CPU, Some(2), 0).unwrap();
    assert!(estimated.softened(Route::Softened).unwrap().is_none());
    // Another model under the same name is no other backward pass of this model.
    std::fs::write(&path, linear.encode()).unwrap();
    let error = model.softened(Route::Softened).map(|_| ()).unwrap_err();
    says(&error.to_string(), &["small.onnx", "has changed since it was loaded"]);
}
