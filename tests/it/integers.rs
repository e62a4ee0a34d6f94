//! Models that take images as integers, with a Cast inside: they are differentiated behind it, and measured
//! on whole grey levels.

use crate::common::models::{SIDE, Weights, free, images, trunk, trunk_weights};
use crate::common::{CPU, Rng, Temp, audit, load_runtime, one_line, run, says, words};
use audit::model::Model;
use audit::model::card::Card;
use onnx_grad::Graph;
use onnx_grad::graph::{DType, Dim, Node, Tensor, Value};
use std::path::Path;

/// The operators between the input `x` and the Cast, and the constants that they read.
type Front<'f> = (&'f [Node], &'f [(&'f str, Tensor)]);

type Constants = Vec<(&'static str, Tensor)>;

/// A net of images `x` of a type, [N, 3, 12, 12] or [N, 12, 12, 3], from which `front` computes `levels`: 0
/// to 255 in float32, channels first.
fn net(dtype: DType, last: bool, (front, constants): Front) -> Graph {
    let weights = trunk_weights(Weights::new(1), "", 3).floats("most", &[], &[255.0]);
    let mut graph = crate::common::models::grey(trunk("pixels", "embedding", ""), weights);
    graph.nodes.splice(0..0, [front, &[Node::new("Div", &["levels", "most"], "pixels")]].concat());
    graph.constants.extend(constants.iter().map(|(name, t)| (name.to_string(), t.clone())));
    let shape = if last { [SIDE, SIDE, 3] } else { [3, SIDE, SIDE] };
    let shape = std::iter::once(free()).chain(shape.map(Dim::Known)).collect();
    graph.inputs = vec![Value { name: "x".into(), dtype, shape: Some(shape) }];
    graph
}

fn cast(from: &str, to: &str, dtype: DType) -> Node {
    Node::new("Cast", &[from], to).with("to", i64::from(dtype.code()))
}

/// The same net in floats, with pixels of 0 to 255.
fn of_floats() -> Graph {
    net(DType::F32, false, (&[Node::new("Identity", &["x"], "levels")], &[]))
}

fn one(dtype: DType, value: i64) -> Tensor {
    let size = dtype.size().unwrap();
    Tensor { dtype, shape: vec![], bytes: value.to_le_bytes()[..size].to_vec().into() }
}

/// Fronts as exporters write them, each with its input's type and layout.
fn fronts() -> Vec<(DType, bool, Vec<Node>, Constants)> {
    let straight = || vec![cast("x", "levels", DType::F32)];
    let turned = |from: &str, to: &str| Node::new("Transpose", &[from], to).with("perm", vec![0i64, 3, 1, 2]);
    let behind = vec![cast("x", "floats", DType::F32), turned("floats", "levels")];
    let in_front = vec![turned("x", "t"), cast("t", "levels", DType::F32)];
    let moved = vec![cast("x", "floats", DType::F32), Node::new("Add", &["floats", "middle"], "levels")];
    let wide = vec![cast("x", "wide", DType::I32), Node::new("Sub", &["wide", "some"], "less"), {
        Node::new("Add", &["less", "some"], "again")
    }];
    let quantised = vec![Node::new("DequantizeLinear", &["x", "scale", "zero"], "part"), {
        Node::new("Add", &["part", "middle"], "levels")
    }];
    let ints = |values: &[i64]| Tensor::ints(values);
    let cut = vec![
        Node::new("Slice", &["x", "from", "to", "axes"], "a"),
        Node::new("Slice", &["x", "to", "end", "axes"], "b"),
        Node::new("Concat", &["a", "b"], "joined").with("axis", 2i64),
        Node::new("Pad", &["joined", "none", "grey"], "padded"),
        cast("padded", "levels", DType::F32),
    ];
    let of_cut = vec![
        ("from", ints(&[0])),
        ("to", ints(&[5])),
        ("end", ints(&[i64::MAX])),
        ("axes", ints(&[2])),
        ("none", ints(&[0; 8])),
        ("grey", one(DType::U8, 114)),
    ];
    let middle = || ("middle", Tensor::f32(&[], &[128.0]));
    vec![
        (DType::U8, false, straight(), vec![]),
        (DType::U8, true, behind, vec![]),
        (DType::U8, true, in_front, vec![]),
        (DType::I32, false, straight(), vec![]),
        (DType::I64, false, straight(), vec![]),
        (DType::I8, false, moved, vec![middle()]),
        (
            DType::U8,
            false,
            [wide, vec![cast("again", "levels", DType::F32)]].concat(),
            vec![("some", one(DType::I32, 300))],
        ),
        (
            DType::U8,
            false,
            quantised,
            vec![("scale", Tensor::f32(&[], &[1.0])), ("zero", one(DType::U8, 128)), middle()],
        ),
        (DType::U8, false, cut, of_cut),
    ]
}

fn open(dir: &Temp, graph: &Graph, card: &Card) -> Model {
    Model::open(&dir.write("net.onnx", graph.encode()), card, CPU, Some(2)).unwrap()
}

fn near(a: &[f32], b: &[f32]) -> bool {
    let largest = b.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5 * largest)
}

/// Embeddings are those of the file at the nearest whole levels, and gradients those of the float net there,
/// whatever lies between the input and the first float.
#[test]
fn a_net_of_integers_is_the_net_of_floats_at_whole_levels() {
    load_runtime();
    let dir = Temp::new();
    let levels =
        Card { range: Some([0.0, 255.0]), mean: Some(vec![0.0]), std: Some(vec![1.0]), ..Card::default() };
    let mut floats = open(&dir, &of_floats(), &levels);
    let pixels = floats.pixels();
    let mut rng = Rng::new(3);
    let between: Vec<f32> = (0..2 * pixels).map(|_| rng.unit()).collect();
    let whole: Vec<f32> = between.iter().map(|v| (v * 255.0).round() / 255.0).collect();
    let cotangent = ndarray::Array2::from_shape_fn((2, floats.info.dim), |_| rng.normal());
    let (expected, slope) = floats.gradient(&whole, cotangent.view()).unwrap();
    let apart = floats.embed(&between).unwrap();
    assert!(!near(apart.as_slice().unwrap(), expected.as_slice().unwrap()));

    for (dtype, last, nodes, constants) in fronts() {
        let graph = net(dtype, last, (&nodes, &constants));
        let mut model = open(&dir, &graph, &Card::default());
        let what = format!("{} {nodes:?}", dtype.name());
        let words = model.info.preprocessing.words();
        let range = if dtype == DType::I8 { "-128 to 127" } else { "0 to 255" };
        assert!(words.contains(&format!("whole grey levels, {range} ({})", dtype.name())), "{words}");
        let file = model.reference().unwrap().embed(&between).unwrap().unwrap();
        let (found, gradient) = model.gradient(&between, cotangent.view()).unwrap();
        for e in [&model.embed(&between).unwrap(), &file, &found] {
            assert!(near(e.as_slice().unwrap(), expected.as_slice().unwrap()), "{what}: {e} {expected}");
        }
        assert!(near(&gradient, &slope), "{what}");
    }
}

/// Attacks move by whole levels, and their result is an image that a file can hold.
#[test]
fn attacked_images_hold_whole_levels() {
    load_runtime();
    let dir = Temp::new();
    let model =
        dir.write("net.onnx", net(DType::U8, false, (&[cast("x", "levels", DType::F32)], &[])).encode());
    let data = images(&dir, "data", 6, 5, 3);
    let round =
        dir.file("round.yaml", "form: corrected\nattacks: [ES, GTM]\nnorm: l2\neps: 0.05\nsteps: 4\n");
    let quick = format!("{model:?} --data {data:?} --max-queries 8");
    let more = [
        "--suite robust --eps 4.5/255",
        "--suite ers --eps 2.5/255 --alpha 0.7/255 --steps 4 --strong-sample off",
        "--suite ers --eps 0.9/255 --steps 4 --strong-sample off",
        &format!("--suite {round:?} --strong-sample off"),
    ];
    for (i, more) in more.into_iter().enumerate() {
        let report = audit(&words(&format!("{quick} {more}"))).unwrap();
        assert_eq!(report.model.preprocessing.integers.as_deref(), Some("uint8"));
        let mut moved = 0;
        for o in &report.outcomes {
            let sizes = o.enough.map_or(vec![], |e| [e.size, e.as_file].into_iter().flatten().collect());
            for size in sizes.into_iter().chain([o.linf]) {
                let levels = size * 255.0;
                assert!((levels - levels.round()).abs() < 1e-3, "{more}: {o:?}");
            }
            if let Some(e) = o.enough {
                assert_eq!(e.size, e.as_file, "{o:?}");
            }
            assert!(o.size.unwrap_or(o.linf) <= report.suite.eps + 1e-6, "{o:?}");
            moved += usize::from(o.linf > 0.0);
        }
        // Below a level there is no other image.
        assert_eq!(moved == 0, i == 2, "{more}: {moved}");
    }
}

/// The refusal of a net by the program.
fn refused(dir: &Temp, graph: &Graph, more: &[&str]) -> String {
    dir.write("net.onnx", graph.encode());
    let done = run(dir.path(), [&["net.onnx", "--max-queries", "2", "-q"], more].concat());
    assert!(matches!(done.code, Some(2 | 3)), "{:?} {}{}", done.code, done.out, done.err);
    one_line(&done.err)
}

#[test]
fn what_floats_do_not_compute_is_refused_by_name() {
    let dir = Temp::new();
    let most = ("whole", one(DType::I32, 2));
    let divided = [Node::new("Div", &["x", "whole"], "half"), cast("half", "levels", DType::F32)];
    let said = refused(&dir, &net(DType::I32, false, (&divided, &[most])), &[]);
    says(&said, &["input \"x\" is int32", "Div \"half\"", "Export the model with a Cast to float"]);

    let scales = ("scales", Tensor::f32(&[4], &[1.0, 1.0, 1.0, 1.0]));
    let resized = [
        Node::new("Resize", &["x", "", "scales"], "r").with("mode", "linear"),
        cast("r", "levels", DType::F32),
    ];
    let said = refused(&dir, &net(DType::U8, false, (&resized, &[scales])), &[]);
    says(&said, &["input \"x\" is uint8", "Resize \"r\""]);

    let narrowed = [cast("x", "n", DType::I8), cast("n", "levels", DType::F32)];
    says(&refused(&dir, &net(DType::U8, false, (&narrowed, &[])), &[]), &["Cast \"n\"", "doesn't hold all"]);

    let straight = [cast("x", "levels", DType::F32)];
    let said = refused(&dir, &net(DType::Bool, false, (&straight, &[])), &[]);
    says(&said, &["input \"x\" is bool", "integers"]);
    let said = refused(&dir, &net(DType::U8, false, (&straight, &[])), &["--mean", "0.5", "--std", "0.5"]);
    says(&said, &["it is uint8", "0 to 255", "--range=0,255 --mean 0 --std 1"]);
}

/// The model can be read with the card that `audit inspect --write-card` begins.
#[test]
fn the_card_of_a_net_of_integers_is_read() {
    let dir = Temp::new();
    dir.write("net.onnx", net(DType::U8, false, (&[cast("x", "levels", DType::F32)], &[])).encode());
    let inspect = |more: &[&str]| run(dir.path(), [&["inspect", "net.onnx"], more].concat()).ended(0).out;
    let first = inspect(&["--write-card"]);
    says(&first, &["uint8"]);
    assert!(Path::new(&dir.join("net.yaml")).is_file());
    says(&inspect(&[]), &["uint8"]);
}
