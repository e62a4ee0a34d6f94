//! Which wrong gradients the check at load detects: right gradients made wrong. docs/trust.md has the table.

use crate::common::models::{DIM, SIDE, Weights, free, grey, trunk, trunk_weights, value};
use crate::common::{CPU, Rng, Temp};
use audit::check::gradient::{Errors, SMOOTH, compare};
use audit::model::Model;
use audit::model::card::Card;
use ndarray::Array2;
use onnx_grad::Graph;
use onnx_grad::graph::Node;

const BATCH: usize = 8;

fn colour(nodes: Vec<Node>, weights: Weights) -> Graph {
    let mut graph = grey(nodes, weights);
    graph.inputs = vec![value("image", free(), &[3, SIDE, SIDE])];
    graph
}

fn weights() -> Weights {
    trunk_weights(trunk_weights(Weights::new(1), "a/", 3), "b/", 3)
}

/// Two paths from the image, added; and each alone.
fn branches() -> [Graph; 3] {
    let sum = Node::new("Add", &["a", "b"], "embedding");
    [
        colour([trunk("image", "a", "a/"), trunk("image", "b", "b/"), vec![sum]].concat(), weights()),
        colour(trunk("image", "embedding", "a/"), weights()),
        colour(trunk("image", "embedding", "b/"), weights()),
    ]
}

struct Bench {
    model: Model,
    images: Vec<f32>,
    cotangent: Array2<f32>,
    right: Vec<f32>,
    parts: [Vec<f32>; 2],
}

impl Bench {
    fn new(temp: &Temp) -> Bench {
        let [whole, a, b] = branches().map(|graph| Bench::of(temp, &graph));
        Bench { parts: [a.right, b.right], ..whole }
    }

    /// A bench of a model of one part.
    fn of(temp: &Temp, graph: &Graph) -> Bench {
        crate::common::load_runtime();
        let card = Card { mean: Some(vec![0.0; 3]), std: Some(vec![1.0; 3]), ..Card::default() };
        let path = temp.write(&format!("{}.onnx", graph.nodes.len()), graph.encode());
        let mut model = Model::open(&path, &card, CPU, Some(BATCH)).unwrap();
        let mut r = Rng::new(4);
        let images = r.units(BATCH * model.pixels());
        let cotangent = Array2::from_shape_fn((BATCH, DIM as usize), |_| r.normal());
        let right = model.gradient(&images, cotangent.view()).unwrap().1;
        Bench { model, images, cotangent, right, parts: [vec![], vec![]] }
    }

    fn errors(&self, gradient: &[f32]) -> Errors {
        let mut reference = self.model.reference().unwrap();
        let side = (self.model.pixels() / 3).isqrt();
        let shape = [BATCH, 3, side, side];
        compare(&mut reference, &self.images, self.cotangent.view(), gradient, shape, &mut |_| {})
            .unwrap()
            .unwrap()
    }

    /// The right gradient plus `share` of its length orthogonal to it: `like(i)` less its part along the
    /// gradient.
    fn across(&self, share: f64, mut like: impl FnMut(usize) -> f32) -> Vec<f32> {
        let pixels = self.model.pixels();
        let mut out = self.right.clone();
        for (image, g) in self.right.chunks(pixels).enumerate() {
            let e: Vec<f64> = (0..pixels).map(|i| f64::from(like(i))).collect();
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let g: Vec<f64> = g.iter().map(|v| f64::from(*v)).collect();
            let along = dot(&e, &g) / dot(&g, &g);
            let e: Vec<f64> = e.iter().zip(&g).map(|(e, g)| e - along * g).collect();
            let scale = share * (dot(&g, &g) / dot(&e, &e)).sqrt();
            for (out, e) in out[image * pixels..].iter_mut().zip(&e) {
                *out += (scale * e) as f32;
            }
        }
        out
    }
}

/// Wrong gradients, each with its error.
fn wrong(bench: &Bench) -> Vec<(&'static str, Vec<f32>)> {
    let side = SIDE as usize;
    let each = |f: &dyn Fn(usize, f32) -> f32| -> Vec<f32> {
        bench.right.iter().enumerate().map(|(i, v)| f(i, *v)).collect()
    };
    let branch = |by: f32| -> Vec<f32> {
        bench.parts[0].iter().zip(&bench.parts[1]).map(|(a, b)| by * a + b).collect()
    };
    let mut r = Rng::new(8);
    let mut fine = |share: f64| bench.across(share, |_| r.normal());
    let outermost = |i: usize| {
        let (y, x) = (i / side % side, i % side);
        y.min(x) == 0 || y.max(x) == side - 1
    };
    let border = |by: f32| each(&|i, v| if outermost(i) { by * v } else { v });
    // As from a wrong padding.
    let mut shifted = bench.right.clone();
    shifted.chunks_mut(side).for_each(|row| row.rotate_right(1));
    vec![
        ("all of it 10 % too long", each(&|_, v| 1.1 * v)),
        ("all of it 2 % too long", each(&|_, v| 1.02 * v)),
        ("all of it 0.5 % too long", each(&|_, v| 1.005 * v)),
        ("the sign of one channel of three", each(&|i, v| if i / (side * side) % 3 == 1 { -v } else { v })),
        ("one of two branches 10 % too long", branch(1.1)),
        ("one of two branches without gradient", branch(0.0)),
        ("a pixel too far to the right", shifted),
        ("fine noise across, half as long as the gradient", fine(0.5)),
        ("fine noise across, a fifth as long", fine(0.2)),
        ("fine noise across, a twentieth as long", fine(0.05)),
        ("no gradient at the outermost pixels", border(0.0)),
        ("the outermost pixels 20 % too long", border(1.2)),
        ("the outermost pixels 5 % too long", border(1.05)),
    ]
}

/// The cells of a row of a table in Markdown.
fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// Injects each error and compares the check's results with the table of docs/trust.md, row by row.
/// `--nocapture` prints the table.
#[test]
fn the_table_of_wrong_gradients_is_what_the_check_sees() {
    let temp = Temp::new();
    let bench = Bench::new(&temp);
    let right = bench.errors(&bench.right);
    assert!(right.accepted() && right.deviations().next().is_none(), "{right:?}");
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/trust.md")).unwrap();
    let rows = docs.lines().skip_while(|line| !line.starts_with("| what is wrong |")).skip(2);
    let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
    let cases = wrong(&bench);
    let mut differ = Vec::new();
    for (i, (what, gradient)) in cases.iter().enumerate() {
        let e = bench.errors(gradient);
        let caught = match (e.accepted(), e.deviations().next()) {
            (false, _) => "error",
            (true, Some(_)) => "warning",
            (true, None) => "no",
        };
        let found: Vec<String> = e.along.iter().map(|along| percent(100.0 * along.off)).collect();
        let row = format!("| {what} | {} | {caught} |", found.join(" | "));
        println!("{row}");
        let written = rows.get(i).copied().unwrap_or_default();
        let near = |(a, b): (&&str, &&str)| match [a, b]
            .map(|s| s.strip_suffix(" %").and_then(|n| n.parse::<f64>().ok()))
        {
            // Rounding differs between processors.
            [Some(a), Some(b)] => (a - b).abs() <= 0.1 + 0.1 * b.abs(),
            _ => a == b,
        };
        let (own, theirs) = (cells(&row), cells(written));
        if own.len() != theirs.len() || !own.iter().zip(&theirs).all(near) {
            differ.push(format!("expected {row}\n   found {written}"));
        }
        assert!(caught != "no", "{what}: {e:?}");
    }
    assert!(differ.is_empty() && rows.len() == cases.len(), "docs/trust.md:\n{}", differ.join("\n"));
    // ‖e‖² / (‖g‖² + ‖e‖²) = 0.04 / 1.04
    let e = bench.errors(&cases[8].1);
    assert!((e.own() - 0.04 / 1.04).abs() < 5e-3, "{e:?}");
}

fn percent(value: f64) -> String {
    if value < 9.95 { format!("{value:.1} %") } else { format!("{value:.0} %") }
}

/// If the right gradient is smooth, as it tends to be on large images, the smoothed one has almost no fine
/// noise: only the gradient's own direction shows it.
#[test]
fn smooth_directions_alone_would_miss_fine_errors_on_large_images() {
    const LARGE: i64 = 128;
    let temp = Temp::new();
    let weights = Weights::new(2).normal("w", &[3 * 8 * 8, DIM], 0.1);
    let nodes = vec![
        Node::new("AveragePool", &["image"], "coarse")
            .with("kernel_shape", vec![16i64, 16])
            .with("strides", vec![16i64, 16]),
        Node::new("Flatten", &["coarse"], "flat"),
        Node::new("MatMul", &["flat", "w"], "product"),
        Node::new("Tanh", &["product"], "embedding"),
    ];
    let mut graph = grey(nodes, weights);
    graph.inputs = vec![value("image", free(), &[3, LARGE, LARGE])];
    let bench = Bench::of(&temp, &graph);
    let mut r = Rng::new(5);
    let wrong = bench.across(0.5, |_| r.normal());
    let e = bench.errors(&wrong);
    println!("fine noise of half its length, {LARGE}² pixels: {e:?}");
    assert!(e.smooth() < SMOOTH.most && !e.accepted() && (e.own() - 0.2).abs() < 0.02, "{e:?}");
}

/// The smallest model, with an embedding of ones plus `share` of its own.
fn hardly(share: f32) -> Graph {
    let weights = weights().floats("one", &[1], &[1.0]).floats("share", &[1], &[share]);
    let mut nodes = trunk("image", "seen", "a/");
    nodes.push(Node::new("Mul", &["seen", "share"], "little"));
    nodes.push(Node::new("Add", &["little", "one"], "embedding"));
    colour(nodes, weights)
}

/// As in CaiT with layer scale 1e-5: finite differences at small steps show only rounding. The right gradient
/// isn't called wrong there, and a wrong one is, if a larger step shows more than rounding.
#[test]
fn where_rounding_decides_no_gradient_is_called_wrong() {
    let temp = Temp::new();
    for share in [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-9] {
        let bench = Bench::of(&temp, &hardly(share));
        let right = bench.errors(&bench.right);
        let flipped: Vec<f32> = bench.right.iter().map(|v| -v).collect();
        let wrong = bench.errors(&flipped);
        println!("share {share:e}: {right:?}; flipped {wrong:?}");
        assert!(right.accepted() || right.rounding, "{share}: {right:?}");
        assert!(!wrong.accepted(), "{share}: {wrong:?}");
        // With 1e-5, a step of 0.1 moves the embedding by 1e-6, ten times the rounding. With 1e-9, nothing is
        // left.
        assert!(share < 5e-6 || (right.accepted() && !wrong.rounding), "{share}: {right:?}, {wrong:?}");
        assert!(share > 1e-8 || right.rounding, "{right:?}");
    }
}

/// Pixels at the border with so little weight that their changes are only rounding, as behind a vignette:
/// along the border finite differences say nothing, and that is no error of the gradient.
#[test]
fn where_the_border_counts_for_little_the_gradient_is_not_called_wrong() {
    let temp = Temp::new();
    let outermost = |i: i64| [0, SIDE - 1].iter().any(|edge| [i % SIDE, i / SIDE].contains(edge));
    for little in [1e-3, 1e-5, 1e-7, 1e-9, 0.0] {
        let mask: Vec<f32> = (0..SIDE * SIDE).map(|i| if outermost(i) { little } else { 1.0 }).collect();
        let weights = weights().floats("mask", &[SIDE, SIDE], &mask);
        let nodes =
            [vec![Node::new("Mul", &["image", "mask"], "seen")], trunk("seen", "embedding", "a/")].concat();
        let bench = Bench::of(&temp, &colour(nodes, weights));
        let e = bench.errors(&bench.right);
        println!("{little:e}: {e:?}");
        assert!(e.accepted() && e.deviations().next().is_none(), "{little:e}: {e:?}");
    }
}
