//! Quantisation.

use crate::case::*;
use crate::{Pass, Processor, common, differentiate, gradient};
use audit::model::runtime;

pub fn samples() -> Vec<(&'static str, Sample)> {
    vec![entry("DequantizeLinear", dequantize)]
}

/// Quantised integers as constants, differentiated by the scale; the path through them has its own test.
fn dequantize(r: &mut Rng) -> Case {
    let shape = [r.int(1, 3), r.int(2, 4), r.int(1, 4)];
    let per_axis = r.bool();
    let scale = if per_axis { vec![shape[1]] } else { vec![] };
    let bytes: Vec<u8> = (0..size(&shape)).map(|_| r.int(0, 255) as u8).collect();
    let zero: Vec<u8> = (0..size(&scale)).map(|_| r.int(0, 255) as u8).collect();
    let q = Tensor { dtype: DType::I8, shape: shape.to_vec(), bytes: bytes.into() };
    let zero = Tensor { dtype: DType::I8, shape: scale.clone(), bytes: zero.into() };
    Case::new(Node::new("DequantizeLinear", &["q", "s", "z"], "y").with("axis", 1))
        .constant("q", q)
        .input("s", &scale, positive(r, &scale))
        .constant("z", zero)
}

fn quantised(middle: Option<Node>) -> Vec<Node> {
    let after = if middle.is_some() { "moved" } else { "q" };
    let mut nodes = vec![Node::new("QuantizeLinear", &["x", "s", "z"], "q")];
    nodes.extend(middle);
    nodes.push(Node::new("DequantizeLinear", &[after, "s", "z"], "y"));
    nodes
}

#[test]
fn quantisation_passes_gradients_straight_through_where_nothing_is_clipped() {
    common::load_runtime();
    let byte = |dtype, v: u8| Tensor { dtype, shape: vec![], bytes: vec![v].into() };
    let scale = ("s", Tensor::f32(&[], &[0.1]));
    // Eight bits without sign around 128: -12.8 to 12.7.
    let constants = [scale.clone(), ("z", byte(DType::U8, 128))];
    let x = [-13.0, -12.8, 0.03, 12.7, 12.8, 99.0];
    let (_, g, grad) = gradient(quantised(None), &constants, &[6], &x, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let close = |g: &[f32], expected: &[f32]| g.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(close(&g, &[0.0, 2.0, 3.0, 4.0, 0.0, 0.0]), "{g:?}");
    assert!(grad.notes.len() == 1 && grad.notes[0].straight_through, "{:?}", grad.notes);
    // Halves are rounded to even: -0.5 to 0, which is not clipped, and 255.5 to 256. PyTorch's
    // fake_quantize_per_tensor_affine(x, 0.5, 0, 0, 255) has the gradient [1, 0, 1, 0].
    let constants = [("s", Tensor::f32(&[], &[0.5])), ("z", byte(DType::U8, 0))];
    let x = [-0.25, -0.75, 0.3, 127.75];
    let (_, g, _) = gradient(quantised(None), &constants, &[4], &x, &[1.0; 4]);
    assert!(close(&g, &[1.0, 0.0, 1.0, 0.0]), "{g:?}");
    // With sign, through an operator that moves integers.
    let constants =
        [scale, ("z", byte(DType::I8, 0)), ("axes", Tensor::ints(&[0])), ("flip", Tensor::ints(&[-1]))];
    let ends = ("ends", Tensor::ints(&[i64::MIN]));
    let constants = [constants.as_slice(), &[ends]].concat();
    let flip = Node::new("Slice", &["q", "flip", "ends", "axes", "flip"], "moved");
    let (_, g, _) = gradient(quantised(Some(flip)), &constants, &[2], &[0.5, 20.0], &[1.0, 2.0]);
    assert!(close(&g, &[2.0, 0.0]), "{g:?}");
}

/// Operators that ONNX Runtime's quantiser leaves on integers. They move values, or drop half of them;
/// expected gradients follow from where each value goes.
#[test]
fn integers_that_move_have_the_gradient_of_where_they_go() {
    common::load_runtime();
    let zero = Tensor { dtype: DType::U8, shape: vec![], bytes: vec![128].into() };
    let x: Vec<f32> = (0..8).map(|i| 0.1 * i as f32).collect();
    let cotangent: Vec<f32> = (1..9).map(|i| i as f32).collect();
    let to_space = Node::new("DepthToSpace", &["q"], "deep").with("blocksize", 2i64);
    let to_depth = Node::new("SpaceToDepth", &["deep"], "moved").with("blocksize", 2i64);
    let crop = Node::new("Pad", &["q", "crop"], "inner");
    let nearest = |scales: &str, from: &str, to: &str| {
        let asked = Node::new("Resize", &[from, "", scales], to).with("mode", "nearest");
        asked.with("coordinate_transformation_mode", "asymmetric").with("nearest_mode", "floor")
    };
    let line = |values: [f32; 8]| values.to_vec();
    let cases = [
        // There and back.
        (vec![to_space, to_depth], line([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])),
        // The second column of two, twice: for each row both cotangents.
        (
            vec![crop, Node::new("Tile", &["inner", "twice"], "moved")],
            line([0.0, 3.0, 0.0, 7.0, 0.0, 11.0, 0.0, 15.0]),
        ),
        // The first column of two, twice.
        (
            vec![nearest("half", "q", "small"), nearest("double", "small", "moved")],
            line([3.0, 0.0, 7.0, 0.0, 11.0, 0.0, 15.0, 0.0]),
        ),
    ];
    let scales = |last: f32| Tensor::f32(&[4], &[1.0, 1.0, 1.0, last]);
    for (middle, expected) in cases {
        let mut nodes = quantised(None);
        nodes.splice(1..1, middle);
        nodes.last_mut().unwrap().inputs[0] = "moved".into();
        let constants = [
            ("s", Tensor::f32(&[], &[0.1])),
            ("z", zero.clone()),
            ("crop", Tensor::ints(&[0, 0, 0, -1, 0, 0, 0, 0])),
            ("twice", Tensor::ints(&[1, 1, 1, 2])),
            ("half", scales(0.5)),
            ("double", scales(2.0)),
        ];
        let named: Vec<String> = nodes.iter().map(Node::label).collect();
        let (_, g, _) = gradient(nodes, &constants, &[1, 4, 1, 2], &x, &cotangent);
        let close = g.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(close, "{named:?}: {g:?}, {expected:?} expected");
    }
}

/// Values and gradients of tests/golden/quantise.json, by PyTorch's fake quantisation
/// (research/golden/golden_quantise.py).
#[test]
fn quantisation_is_that_of_pytorch() {
    common::load_runtime();
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/quantise.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&text).unwrap();
    let numbers = |v: &serde_json::Value| -> Vec<f32> {
        v.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
    };
    let shape: Vec<i64> = numbers(&golden["shape"]).iter().map(|d| *d as i64).collect();
    let cases = golden["cases"].as_object().unwrap();
    assert_eq!(cases.len(), 4);
    for (name, case) in cases {
        let [scale, zero, x, cotangent] = ["scale", "zero", "x", "cotangent"].map(|key| numbers(&case[key]));
        let [y, expected] = ["y", "gradient"].map(|key| numbers(&case[key]));
        let signed = case["low"].as_i64() == Some(-128);
        let n = if scale.len() == 1 { vec![] } else { vec![scale.len() as i64] };
        let zero: Vec<u8> = zero.iter().map(|z| if signed { *z as i8 as u8 } else { *z as u8 }).collect();
        let dtype = if signed { DType::I8 } else { DType::U8 };
        let zero = Tensor { dtype, shape: n.clone(), bytes: zero.into() };
        let constants = [("s", Tensor::f32(&n, &scale)), ("z", zero)];
        let (values, gradient, _) = gradient(quantised(None), &constants, &shape, &x, &cotangent);
        let close =
            |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5 * b.abs().max(1.0));
        assert!(close(&values, &y), "{name}: values");
        assert!(close(&gradient, &expected), "{name}: gradient");

        // Also the scale: the input is values and scales, and so is the output, so that its cotangent ends
        // with zeros.
        let (count, scales) = (size(&shape) as i64, scale.len() as i64);
        let mut split = Node::new("Split", &["x", "sizes"], "flat").with("axis", 0);
        split.outputs.push("own".into());
        let mut nodes = vec![split, Node::new("Reshape", &["flat", "shape"], "v")];
        nodes.push(Node::new("Reshape", &["own", "scales"], "s"));
        nodes.extend(quantised(None));
        nodes[3].inputs[0] = "v".into();
        nodes[4].outputs[0] = "back".into();
        nodes.push(Node::new("Reshape", &["back", "line"], "values"));
        nodes.push(Node::new("Concat", &["values", "own"], "y").with("axis", 0));
        let lists = [("sizes", Tensor::ints(&[count, scales])), ("shape", Tensor::ints(&shape))];
        let more = [("scales", Tensor::ints(&n)), ("line", Tensor::ints(&[-1])), constants[1].clone()];
        let constants = [lists.as_slice(), &more].concat();
        let (x, zeros) = ([x, scale.clone()].concat(), vec![0.0; scale.len()]);
        let (_, gradient, _) =
            self::gradient(nodes, &constants, &[count + scales], &x, &[cotangent, zeros].concat());
        let (of_values, of_scales) = gradient.split_at(count as usize);
        let scales_close = of_scales.iter().zip(numbers(&case["scale_gradient"]));
        assert!(close(of_values, &expected), "{name}: gradient beside the scale's");
        for (a, b) in scales_close {
            // Sums of products of up to 255 and 1, from rounding at float32.
            assert!(
                (a - b).abs() < 1e-3 * b.abs().max(1.0),
                "{name}: gradient of the scale: {a}, {b} expected"
            );
        }
    }
}

/// The output of onnxruntime's dynamic quantisation: the gradient is that of the product with the numbers
/// that the integers stand for.
#[test]
fn products_of_integers_have_the_gradient_of_the_numbers_they_stand_for() {
    common::load_runtime();
    let float = DType::F32.code() as i64;
    let mut quantise = Node::new("DynamicQuantizeLinear", &["x"], "q");
    quantise.outputs.extend(["s".into(), "z".into()]);
    let tail = |op: &str, inputs: &[&str]| {
        vec![
            quantise.clone(),
            Node::new(op, inputs, "sum"),
            Node::new("Cast", &["sum"], "number").with("to", float),
            Node::new("Mul", &["s", "ws"], "unit"),
            Node::new("Mul", &["number", "unit"], "y"),
        ]
    };
    let bytes = |shape: &[i64], v: &[i8]| Tensor {
        dtype: DType::I8,
        shape: shape.to_vec(),
        bytes: v.iter().map(|v| *v as u8).collect(),
    };
    // Weights (q − zero) · 0.5: [[1, −2], [0.5, 3]].
    let constants =
        [("w", bytes(&[2, 2], &[4, -2, 3, 8])), ("wz", bytes(&[], &[2])), ("ws", Tensor::f32(&[], &[0.5]))];
    let nodes = tail("MatMulInteger", &["q", "w", "z", "wz"]);
    let (_, g, grad) = gradient(nodes, &constants, &[1, 2], &[0.3, -1.0], &[1.0, 10.0]);
    let close = |g: &[f32], expected: &[f32]| g.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4);
    assert!(close(&g, &[1.0 - 20.0, 0.5 + 30.0]), "{g:?}");
    assert!(grad.notes.iter().all(|n| n.straight_through) && grad.notes.len() == 2, "{:?}", grad.notes);
    // The same weights with a zero point for each column, [1, 2], in the shape of a row: [[1, −2], [0.5, 3]].
    let constants = [
        ("w", bytes(&[2, 2], &[3, -2, 2, 8])),
        ("wz", bytes(&[1, 2], &[1, 2])),
        ("ws", Tensor::f32(&[], &[0.5])),
    ];
    let nodes = tail("MatMulInteger", &["q", "w", "z", "wz"]);
    let (_, g, _) = gradient(nodes, &constants, &[1, 2], &[0.3, -1.0], &[1.0, 10.0]);
    assert!(close(&g, &[1.0 - 20.0, 0.5 + 30.0]), "{g:?}");
    // A kernel (q − zero) · 0.5 of [1, −2, 0.5] over three places, padded: y has as many.
    let constants =
        [("w", bytes(&[1, 1, 3], &[4, -2, 3])), ("wz", bytes(&[], &[2])), ("ws", Tensor::f32(&[], &[0.5]))];
    let mut nodes = tail("ConvInteger", &["q", "w", "z", "wz"]);
    nodes[1] = nodes[1].clone().with("pads", vec![1, 1]);
    let (_, g, _) = gradient(nodes, &constants, &[1, 1, 3], &[0.3, -1.0, 0.7], &[1.0, 10.0, 100.0]);
    assert!(close(&g, &[-2.0 + 10.0, 0.5 - 20.0 + 100.0, 5.0 - 200.0]), "{g:?}");
    // A kernel of one pixel, 1, with a longer stride. ONNX Runtime's own output shows which pixels it copies.
    for (auto_pad, size, stride) in [("SAME_UPPER", 9, 3), ("SAME_UPPER", 8, 4), ("SAME_LOWER", 8, 4)] {
        let constants = [
            ("w", bytes(&[1, 1, 1], &[3])),
            ("wz", bytes(&[], &[1])),
            ("ws", Tensor::f32(&[], &[0.5])),
            ("times", Tensor::ints(&[1, 1, stride])),
        ];
        let mut nodes = tail("ConvInteger", &["q", "w", "z", "wz"]);
        nodes[1] = nodes[1].clone().with("auto_pad", auto_pad).with("strides", vec![stride]);
        nodes[4].outputs = vec!["copied".into()];
        nodes.push(Node::new("Tile", &["copied", "times"], "y"));
        let x: Vec<f32> = (0..size).map(|i| 0.1 * i as f32).collect();
        let cotangent: Vec<f32> = (1..=size).map(|c| c as f32).collect();
        let (y, g, _) = gradient(nodes, &constants, &[1, 1, size], &x, &cotangent);
        let mut expected = vec![0.0; size as usize];
        y.iter().zip(&cotangent).for_each(|(y, c)| expected[(y / 0.1).round() as usize] += c);
        assert!(close(&g, &expected), "{auto_pad}, {stride}: {g:?}, {expected:?} expected");
    }
}

#[test]
fn computing_with_quantised_integers_is_refused() {
    common::load_runtime();
    let byte = Tensor { dtype: DType::U8, shape: vec![], bytes: vec![3].into() };
    let constants = [("s".to_string(), Tensor::f32(&[], &[0.1])), ("z".to_string(), byte)];
    let nodes = quantised(Some(Node::new("Max", &["q", "q"], "moved")));
    let mut graph = Graph::new(nodes, constants.into());
    graph.inputs.push(Value::new("x", DType::F32, &[2]));
    graph.outputs.push(Value::new("y", DType::F32, &[2]));
    let types = runtime::infer(&graph).unwrap();
    let refused = differentiate(&graph, &types, &["x"], Pass::Exact, Processor::Cpu).unwrap_err();
    assert!(refused.to_string().contains("Max \"moved\": computes with quantised integers"), "{refused}");
}
