//! Nodes that depend on shapes: conditions, sizes that exporters compute, pools, and steps.

use super::*;

#[test]
fn a_condition_that_is_constant_is_folded() {
    let branch = |op: &str| subgraph(vec![Node::new(op, &["map"], "chosen")], vec![], &["chosen"]);
    let nodes = [
        // Known from the shape alone, as exporters write it.
        Node::new("Shape", &["map"], "shape"),
        Node::new("Size", &["shape"], "rank"),
        Node::new("Equal", &["rank", "four"], "is_map"),
        Node::new("If", &["is_map"], "y")
            .with("then_branch", branch("GlobalAveragePool"))
            .with("else_branch", branch("Identity")),
    ];
    let graph = mapped(BATCH, &nodes, &[("four", Tensor::i64(&[], &[4]))], &["y"]);
    agrees(&mut open("if", &graph, None, None).unwrap(), BATCH, 4);
}

/// A value that follows from shapes, the nodes from the map [N, 4, 3, 3] to "y" that use it, and their
/// constants.
type FromShapes = (&'static str, Vec<Node>, Vec<(&'static str, Tensor)>);

/// Sizes, scales, bounds and numbers of steps that follow from shapes, as exporters write them.
fn from_shapes() -> Vec<FromShapes> {
    let ints = |name: &'static str, values: &[i64]| (name, Tensor::ints(values));
    let one = |name: &'static str, value: i64| (name, Tensor::i64(&[], &[value]));
    let (float, int) = (i64::from(DType::F32.code()), i64::from(DType::I64.code()));
    let node = Node::new;
    let cast = |from: &str, to: &str, kind: i64| Node::new("Cast", &[from], to).with("to", kind);
    let tail = |of: &str, name: &str| Node::new("Shape", &[of], name).with("start", 2i64);
    let head = |of: &str, name: &str| Node::new("Shape", &[of], name).with("end", 2i64);
    let axis = |of: &str, at: &str, name: &str| {
        let shape = format!("{name}/shape");
        vec![Node::new("Shape", &[of], &shape), Node::new("Gather", &[&shape, at], name)]
    };
    let concat = |parts: &[&str], to: &str| Node::new("Concat", parts, to).with("axis", 0i64);
    let mut all: Vec<FromShapes> = Vec::new();
    let mut add = |what, nodes: &[&[Node]], constants: &[(&'static str, Tensor)]| {
        all.push((what, nodes.concat(), constants.to_vec()));
    };
    let scaled = [
        tail("x", "a"),
        tail("map", "b"),
        cast("a", "af", float),
        cast("b", "bf", float),
        node("Div", &["af", "bf"], "each"),
        concat(&["ones", "each"], "scales"),
        node("Resize", &["map", "", "scales"], "y").with("mode", "linear"),
    ];
    let ones = [("ones", Tensor::f32(&[2], &[1.0, 1.0]))];
    add("Resize by scales: the image's size by the map's", &[&scaled], &ones);
    let cubic = node("Resize", &["map", "", "", "sizes"], "y").with("mode", "cubic");
    let sized = [
        head("map", "front"),
        tail("x", "back"),
        concat(&["front", "back"], "sizes"),
        cubic.with("coordinate_transformation_mode", "align_corners"),
    ];
    add("Resize to the image's size", &[&sized], &[]);
    let floored = [
        head("map", "front"),
        tail("map", "back"),
        cast("back", "wide", float),
        node("Mul", &["wide", "factor"], "larger"),
        node("Floor", &["larger"], "whole"),
        cast("whole", "end", int),
        concat(&["front", "end"], "sizes"),
        node("Resize", &["map", "", "", "sizes"], "y").with("mode", "nearest"),
    ];
    let factor = [("factor", Tensor::f32(&[], &[1.7]))];
    add("Resize to the floor of a size times a factor", &[&floored], &factor);
    let step =
        vec![node("Tanh", &["s"], "t"), node("Add", &["t", "map"], "next"), node("Identity", &["go"], "on")];
    let inputs = vec![Value::new("i", DType::I64, &[]), Value::new("go", DType::Bool, &[]), untyped("s")];
    let body = subgraph(step, inputs, &["on", "next"]);
    let repeated =
        [node("Div", &["h", "two"], "count"), node("Loop", &["count", "", "map"], "y").with("body", body)];
    let (height, two) = (axis("x", "two", "h"), one("two", 2));
    let what = "Loop of as many steps as half the image is high";
    add(what, &[&height, &repeated], std::slice::from_ref(&two));
    let align = node("RoiAlign", &["map", "regions", "images"], "y").with("mode", "max");
    let align = align.with("output_height", 2i64).with("output_width", 2i64).with("sampling_ratio", 2i64);
    let regions = [
        node("Range", &["zero", "n", "one"], "images"),
        node("Unsqueeze", &["h", "first"], "h1"),
        node("Unsqueeze", &["width", "first"], "w1"),
        concat(&["none", "none", "w1", "h1"], "region"),
        cast("region", "wide", float),
        node("Unsqueeze", &["n", "first"], "n1"),
        concat(&["n1", "four"], "grid"),
        node("Expand", &["wide", "grid"], "regions"),
        align.with("spatial_scale", 0.375f32),
    ];
    let (batch, width) = (axis("map", "zero", "n"), axis("x", "three", "width"));
    let (three, first) = (one("three", 3), ints("first", &[0]));
    let [zero, one] = [one("zero", 0), one("one", 1)];
    let (none, four) = (ints("none", &[0]), ints("four", &[4]));
    let constants = [zero, one.clone(), two.clone(), three.clone(), first.clone(), none, four];
    let what = "RoiAlign by the largest, of a region for each image that the image's size bounds";
    add(what, &[&batch, &height, &width, &regions], &constants);
    let padded = [
        node("Mod", &["width", "two"], "over"),
        node("Unsqueeze", &["over", "first"], "more"),
        concat(&["nothing", "more"], "pads"),
        node("Pad", &["map", "pads"], "padded").with("mode", "reflect"),
        node("Shape", &["padded"], "whole"),
        node("Sub", &["whole", "ones"], "end"),
        node("Slice", &["padded", "starts", "end"], "cut"),
        node("Size", &["whole"], "rank"),
        node("Range", &["two", "rank", "one"], "axes"),
        node("ReduceMean", &["cut", "axes"], "y"),
    ];
    let lists = [ints("nothing", &[0; 7]), ints("ones", &[0, 0, 1, 1]), ints("starts", &[0; 4])];
    let constants = [&[one, two, three, first], &lists[..]].concat();
    let what = "Pad and Slice up to a multiple, mean over all axes behind the second";
    add(what, &[&axis("map", "three", "width"), &padded], &constants);
    all
}

/// Embeddings are those of ONNX Runtime, and gradients agree with finite differences of the file.
#[test]
fn what_follows_from_shapes_is_as_good_as_a_constant() {
    for (what, mut nodes, mut constants) in from_shapes() {
        nodes.extend([
            Node::new("Flatten", &["y"], "flat"),
            Node::new("Range", &["from", "until", "by"], "numbers"),
            Node::new("Gather", &["flat", "numbers"], "embedding").with("axis", 1i64),
        ]);
        constants
            .extend([("from", 0), ("until", 4), ("by", 1)].map(|(name, v)| (name, Tensor::i64(&[], &[v]))));
        for free in [false, true] {
            let mut graph = mapped(BATCH, &nodes, &constants, &["embedding"]);
            if free {
                graph.inputs[0].shape.as_mut().unwrap()[0] = Dim::Free("n".into());
            }
            let path = write("shapes", &graph.encode());
            let mut model = Model::open(&path, &Card::default(), CPU, free.then_some(BATCH as usize))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            agrees(&mut model, BATCH, 4);
            let error = measured(&mut model).0.expect("compared with finite differences");
            assert!(error < 1e-3, "{what}, batch free: {free}: {error}");
        }
    }
}

/// A window larger than its input has no output. It may be one path of several, which then has no gradient.
#[test]
fn a_pool_over_too_small_an_image_leaves_nothing() {
    let pool = || Node::new("AveragePool", &["x"], "p").with("kernel_shape", vec![2, SIDE + 1]);
    let nodes = vec![pool(), Node::new("Flatten", &["p"], "y")];
    insta::assert_snapshot!(refused("nothing", &grey(BATCH, nodes, &[], &["y"]), None));

    let both = vec![
        pool(),
        Node::new("Flatten", &["p"], "none"),
        Node::new("Flatten", &["x"], "all"),
        Node::new("Concat", &["none", "all"], "y").with("axis", 1),
    ];
    let mut model = open("one-path", &grey(BATCH, both, &[], &["y"]), None, None).unwrap();
    agrees(&mut model, BATCH, (SIDE * SIDE) as usize);
    let (e, g) = model
        .gradient(&pixels(BATCH), Array2::ones((BATCH as usize, (SIDE * SIDE) as usize)).view())
        .unwrap();
    assert_eq!(e.iter().copied().collect::<Vec<_>>(), pixels(BATCH));
    assert_eq!(g, vec![1.0; pixels(BATCH).len()]);
}

/// With ceil_mode a window that begins behind the input doesn't count (since opset 22 by shape inference
/// too). ONNX Runtime takes the file, but not the same graph in opset 21.
#[test]
fn a_pool_that_rounds_up_may_have_a_window_less() {
    for op in ["MaxPool", "AveragePool"] {
        let pool = Node::new(op, &["c"], "p").with("kernel_shape", vec![1, 2]).with("strides", vec![2, 2]);
        let nodes = vec![
            Node::new("Sigmoid", &["x"], "c"),
            pool.with("ceil_mode", 1),
            Node::new("Flatten", &["p"], "f"),
            Node::new("MatMul", &["f", "w"], "y"),
        ];
        let mut graph = grey(BATCH, nodes, &[("w", weights(&[16, 3]))], &["y"]);
        graph.opsets.insert(String::new(), 22);
        let mut model = open("rounds-up", &graph, None, None).unwrap();
        agrees(&mut model, BATCH, 3);
        assert!(measured(&mut model).0.is_some_and(|error| error < 1e-2));
    }
}

/// The window that doesn't count begins in the padding, and nothing that follows tells how many there are.
/// torch.onnx.export writes such pools.
#[test]
fn a_pool_that_rounds_up_may_have_a_window_less_in_its_padding() {
    for op in ["MaxPool", "AveragePool", "LpPool"] {
        let pool = Node::new(op, &["map"], "p").with("kernel_shape", vec![2, 2]).with("strides", vec![2, 2]);
        let mut pool = pool.with("pads", vec![1; 4]).with("ceil_mode", 1);
        if op == "AveragePool" {
            pool = pool.with("count_include_pad", 1);
        }
        let graph = mapped(BATCH, &[pool, Node::new("Flatten", &["p"], "y")], &[], &["y"]);
        let mut model = open(&format!("rounds-up-{op}"), &graph, None, None).unwrap();
        agrees(&mut model, BATCH, 16);
        assert!(measured(&mut model).0.is_some_and(|error| error < 1e-2), "{op}");
    }
}

/// Rows of the image as steps: a recurrent operator, and the same rows in a scan.
#[test]
fn models_with_steps_are_unfolded() {
    let rows = || {
        vec![
            Node::new("Squeeze", &["x", "one"], "s"),
            Node::new("Transpose", &["s"], "t").with("perm", vec![1, 0, 2]),
        ]
    };
    let mut lstm = Node::new("LSTM", &["t", "w", "r"], "").with("hidden_size", 3);
    lstm.outputs = vec![String::new(), "h".into()];
    let last = Node::new("Squeeze", &["h", "zero"], "y");
    let nodes = [rows(), vec![lstm, last]].concat();
    let axes = [("one", Tensor::ints(&[1])), ("zero", Tensor::ints(&[0]))];
    let constants = [&axes[..], &[("w", weights(&[1, 12, 8])), ("r", weights(&[1, 12, 3]))]].concat();

    let nodes_of_step = vec![
        Node::new("Add", &["state", "row"], "sum"),
        Node::new("Tanh", &["sum"], "next"),
        Node::new("Identity", &["next"], "shown"),
    ];
    let inputs = ["state", "row"].map(|name| Value::new(name, DType::F32, &[BATCH, SIDE])).to_vec();
    let body = subgraph(nodes_of_step, inputs, &["next", "shown"]);
    let mut scan = Node::new("Scan", &["start", "t"], "").with("num_scan_inputs", 1).with("body", body);
    scan.outputs = vec!["y".into(), "all".into()];
    let scanned = [rows(), vec![scan]].concat();
    let start = [&axes[..], &[("start", weights(&[BATCH, SIDE]))]].concat();

    let (lstm, scan) = (grey(BATCH, nodes, &constants, &["y"]), grey(BATCH, scanned, &start, &["y"]));
    for (name, graph, dim) in [("lstm", lstm, 3), ("scan", scan, 8)] {
        let mut model = open(name, &graph, None, None).unwrap();
        agrees(&mut model, BATCH, dim);
        assert!(measured(&mut model).0.is_some_and(|error| error < 1e-2), "{name}");
    }
}
