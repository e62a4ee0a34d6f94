use super::*;
use crate::{DType, Tensor};

/// The gradient of one node x → y; the constants are its other inputs.
fn of_node(
    node: Node,
    shapes: [&[i64]; 2],
    constants: &[(&str, Tensor)],
) -> Result<Differentiated, Unsupported> {
    let constants = constants.iter().map(|(name, t)| (name.to_string(), t.clone())).collect();
    let mut graph = Graph::new(vec![node], constants);
    graph.inputs.push(Value::new("x", DType::F32, shapes[0]));
    graph.outputs.push(Value::new("y", DType::F32, shapes[1]));
    let mut types: Types =
        graph.constants.iter().map(|(name, t)| (name.clone(), (t.dtype, t.shape.clone()))).collect();
    types.insert("x".into(), (DType::F32, shapes[0].to_vec()));
    types.insert("y".into(), (DType::F32, shapes[1].to_vec()));
    differentiate(&graph, &types, &["x"], Pass::Exact, Processor::Cpu)
}

fn operators(found: &Differentiated) -> Vec<&str> {
    found.backward.nodes.iter().map(|node| node.op.as_str()).collect()
}

/// A file that `audit grad` wrote has such names, and may be differentiated once more.
#[test]
fn names_of_the_graph_are_not_given_again() {
    for weight in ["backward/Mul_1", "gradient/x", "cotangent/y"] {
        let node = Node::new("Mul", &["x", weight], "y");
        let found = of_node(node, [&[1], &[1]], &[(weight, Tensor::f32(&[1], &[3.0]))]).unwrap();
        let made = found.backward.nodes.iter().flat_map(|node| &node.outputs);
        assert!(!made.chain(&found.cotangents).any(|name| name == weight), "{weight}");
        assert_eq!(found.backward.constants[weight].to_f32s(), Some(vec![3.0]), "{weight}");
    }
    // The rule of MaxPool adds the output of positions to a pool that has none, with such a name.
    let pool = Node::new("MaxPool", &["x"], "p").with("kernel_shape", vec![1i64, 2]);
    let pool = pool.with("strides", vec![1i64, 1_000_000]);
    let (scale, shape, wide) = ("p/output1", [1, 1, 1, 3], [1, 1, 1, 2_000_002]);
    let mut graph = Graph::new(
        vec![pool, Node::new("Mul", &["p", scale], "y")],
        [(scale.to_string(), Tensor::f32(&[1], &[2.0]))].into(),
    );
    graph.inputs.push(Value::new("x", DType::F32, &wide));
    graph.outputs.push(Value::new("y", DType::F32, &shape));
    let of = |name: &str, shape: &[i64]| (name.to_string(), (DType::F32, shape.to_vec()));
    let types: Types = [of("x", &wide), of("p", &shape), of("y", &shape), of(scale, &[1])].into();
    let found = differentiate(&graph, &types, &["x"], Pass::Exact, Processor::Cpu).unwrap();
    let positions = found.forward.nodes[0].output(1).unwrap();
    assert!(positions != scale && found.residuals.iter().any(|name| name == positions));
}

/// PyTorch's clamp(x, 0, 1) of [0, 0.5, 1, 1.5, -1] has the gradient [1, 1, 1, 0, 0], and its hardtanh
/// [0, 1, 0, 0, 0]: a Clip of the image compares its input, and any other its output.
#[test]
fn a_clip_of_the_image_is_a_clamp() {
    let ints = |name, values: &[i64]| (name, Tensor::ints(values));
    let constants = [
        ("low", Tensor::f32(&[], &[0.0])),
        ("high", Tensor::f32(&[], &[1.0])),
        ("scales", Tensor::f32(&[1], &[1.0])),
        ints("order", &[4, 3, 2, 1, 0]),
        ints("last", &[-1]),
        ints("begin", &[i64::MIN]),
        ints("axis", &[0]),
        ints("none", &[0, 0]),
        ints("parts", &[2, 3]),
    ];
    let clip = |from: &str, to: &str| Node::new("Clip", &[from, "low", "high"], to);
    let alone = of_node(clip("x", "y"), [&[5], &[5]], &constants).unwrap();
    assert!(operators(&alone).contains(&"GreaterOrEqual") && operators(&alone).contains(&"LessOrEqual"));
    let after = |first: &[Node]| {
        let mut graph = Graph::new([first, &[clip("h", "y")]].concat(), Default::default());
        graph.constants.extend(constants.clone().map(|(name, t)| (name.to_string(), t)));
        graph.inputs.push(Value::new("x", DType::F32, &[5]));
        graph.outputs.push(Value::new("y", DType::F32, &[5]));
        let of = |name: &str, n: i64| (name.to_string(), (DType::F32, vec![n]));
        let values = [of("x", 5), of("g", 5), of("h", 5), of("y", 5), of("a", 2), of("b", 3), of("t", 3)];
        let known = constants.clone().map(|(name, t)| (name.to_string(), (t.dtype, t.shape)));
        let types: Types = values.into_iter().chain(known).collect();
        let found = differentiate(&graph, &types, &["x"], Pass::Exact, Processor::Cpu).unwrap();
        operators(&found).iter().filter(|op| **op == "GreaterOrEqual").count()
    };
    let mut split = Node::new("Split", &["x", "parts"], "a");
    split.outputs.push("b".into());
    let images = [
        vec![Node::new("Mul", &["x", "high"], "h")],
        // The tool's own change from RGB to BGR.
        vec![Node::new("Gather", &["x", "order"], "h")],
        vec![Node::new("Slice", &["x", "last", "begin", "axis", "last"], "h")],
        vec![Node::new("Pad", &["x", "none"], "h").with("mode", "reflect")],
        vec![Node::new("Resize", &["x", "", "scales"], "h").with("mode", "linear")],
        vec![Node::new("Neg", &["x"], "g"), Node::new("Add", &["g", "high"], "h")],
        vec![Node::new("Sum", &["x"], "h")],
        vec![split.clone(), Node::new("Concat", &["b", "a"], "h").with("axis", 0)],
    ];
    for nodes in &images {
        assert_eq!(after(nodes), 1, "{nodes:?}");
    }
    assert_eq!(after(&[clip("x", "h")]), 2);
    let bent = Node::new("Tanh", &["b"], "t");
    for other in [
        vec![Node::new("Tanh", &["x"], "h")],
        vec![Node::new("Mul", &["x", "x"], "h")],
        vec![split, bent, Node::new("Concat", &["a", "t"], "h").with("axis", 0)],
    ] {
        assert_eq!(after(&other), 0, "{other:?}");
    }
}

/// Otherwise a pool with a stride of 1,000,000 would be split into as many parts.
#[test]
fn pools_of_large_strides_use_positions() {
    let pool = |stride: i64| {
        let node = Node::new("MaxPool", &["x"], "y")
            .with("kernel_shape", vec![1i64, 2])
            .with("strides", vec![1, stride]);
        of_node(node, [&[1, 1, 1, 2 * stride + 2], &[1, 1, 1, 3]], &[]).unwrap()
    };
    assert!(!operators(&pool(32)).contains(&"ScatterElements"));
    let large = pool(1_000_000);
    assert!(operators(&large).contains(&"ScatterElements") && operators(&large).len() < 20);
}

#[test]
fn matrices_beside_the_limit_of_memory_are_refused() {
    let resize = |size: i64| {
        let node = Node::new("Resize", &["x", "", "scales"], "y").with("mode", "linear");
        let scales = Tensor::f32(&[4], &[1.0, 1.0, 1.0, 0.5]);
        of_node(node, [&[1, 1, 1, size], &[1, 1, 1, size / 2]], &[("scales", scales)])
    };
    assert!(resize(512).is_ok());
    let refused = resize(4098).unwrap_err().to_string();
    assert!(refused.contains("Resize \"y\"") && refused.contains("4098 x 4098"), "{refused}");
}
