//! Softened slopes of several nodes together: rows that are chosen by the position of a minimum.

use super::to;
use crate::case::*;
use crate::{common, passed};
use audit::model::runtime;
use onnx_grad::{Pass, Processor, differentiate};

/// The numbers that ArgMin and ReduceMin choose from below: two images, of two parts with three values each.
const SCORES: [f32; 12] = [0.3, 0.1, 0.14, 4.0, 9.0, 4.5, 1.0, 1.2, 1.05, 0.5, 0.4, 0.41];

/// Nodes that read "scores", [2, 2, 3], and write "y", of 8 values.
struct Chosen {
    nodes: Vec<Node>,
    constants: Vec<(&'static str, Tensor)>,
}

impl Chosen {
    fn new(nodes: Vec<Node>, constants: &[(&'static str, Tensor)]) -> Chosen {
        // Two rows of three for each part.
        let rows = [1.0, 2.0, 3.0, 5.0, 7.0, 11.0, -2.0, 4.0, 0.5, -1.0, 6.0, -3.0];
        let always = [
            ("table", Tensor::f32(&[6, 2], &rows)),
            ("parts", Tensor::f32(&[2, 3, 2], &rows)),
            ("offset", Tensor::ints(&[0, 3])),
            ("last", Tensor::ints(&[-1])),
        ];
        Chosen { nodes, constants: [&always[..], constants].concat() }
    }

    /// The nodes behind an Identity of x, as a case.
    fn case(&self, scores: Vec<f32>) -> Case {
        let mut nodes = self.nodes.clone();
        let mut case = Case::new(nodes.pop().unwrap());
        nodes.insert(0, Node::new("Identity", &["x"], "scores"));
        case.graph.nodes.splice(0..0, nodes);
        case.graph.constants = self.constants.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
        case.graph.prune();
        case.input("x", &[2, 2, 3], scores)
    }

    /// The case in softer operators.
    fn written(&self, scores: Vec<f32>) -> Case {
        let mut case = self.case(scores);
        let mut types = runtime::infer(&case.graph).unwrap();
        case.graph.write_in_softer_operators(&mut types);
        let made = case.graph.nodes.iter().flat_map(|node| &node.outputs);
        assert!(made.chain(case.graph.constants.keys()).all(|name| types.contains_key(name)));
        case
    }
}

/// The values of y.
fn value(case: &Case) -> Vec<f32> {
    let mut session = runtime::Session::new(&case.graph, common::CPU, runtime::Optimise::Off).unwrap();
    let found = session.run(&[("x", runtime::Input::Host(&[2, 2, 3], &case.points[0]))], &["y"]).unwrap();
    found[0].floats().unwrap().1.to_vec()
}

fn arg_min() -> Node {
    Node::new("ArgMin", &["scores"], "at").with("axis", -1i64).with("keepdims", 0i64)
}

/// A form of a product quantiser: its name, and its nodes.
type Form = (&'static str, Chosen);

/// The rows of a product quantiser, in the forms in which PyTorch and its exporters write them.
fn product_quantisers() -> Vec<Form> {
    by_position().into_iter().chain(by_marks()).chain(by_comparison()).collect()
}

/// The rows are taken out of a table by their positions.
fn by_position() -> Vec<Form> {
    let add = Node::new("Add", &["at", "offset"], "row");
    let pick = |at: &str| Node::new("Gather", &["table", at], "y");
    let shorts = Tensor { dtype: DType::I32, shape: vec![1, 2], bytes: vec![0, 0, 0, 0, 3, 0, 0, 0].into() };
    let short = vec![
        arg_min(),
        Node::new("Cast", &["at"], "short").with("to", to(DType::I32)),
        Node::new("Add", &["shorts", "short"], "row"),
        Node::new("Reshape", &["row", "last"], "list"),
        pick("list"),
    ];
    let across = vec![
        swapped("scores", "across"),
        Node::new("ArgMin", &["across"], "at").with("axis", 1i64),
        Node::new("Add", &["at", "offset"], "row"),
        pick("row"),
    ];
    let list = vec![
        arg_min(),
        add.clone(),
        Node::new("Unsqueeze", &["row", "last"], "list"),
        Node::new("GatherND", &["table", "list"], "y"),
    ];
    let coordinates = vec![
        arg_min(),
        Node::new("Unsqueeze", &["at", "last"], "within"),
        Node::new("Concat", &["part", "within"], "pair").with("axis", -1i64),
        Node::new("GatherND", &["parts", "pair"], "y"),
    ];
    let part = Tensor::i64(&[2, 2, 1], &[0, 1, 0, 1]);
    vec![
        ("Gather", Chosen::new(vec![arg_min(), add, pick("row")], &[])),
        ("Gather of a flat list of int32", Chosen::new(short, &[("shorts", shorts)])),
        ("Gather along the second axis", Chosen::new(across, &[])),
        ("GatherND", Chosen::new(list, &[])),
        ("GatherND of two coordinates", Chosen::new(coordinates, &[("part", part)])),
    ]
}

/// The rows are a product of one-hot vectors with the table.
fn by_marks() -> Vec<Form> {
    let depth = ("depth", Tensor::ints(&[3]));
    let one_hot = |to: &str| Node::new("OneHot", &["at", "depth", "marks"], to);
    let last = vec![arg_min(), one_hot("m"), float("m", "numbers")];
    let second = vec![arg_min(), one_hot("across").with("axis", 1i64), swapped("across", "numbers")];
    let scattered = vec![
        arg_min().with("keepdims", 1i64),
        Node::new("ScatterElements", &["zeros", "at", "ones"], "numbers").with("axis", -1i64),
    ];
    let zeros = Tensor::f32(&[2, 2, 3], &[0.0; 12]);
    let ones = Tensor::f32(&[2, 2, 1], &[1.0; 4]);
    vec![
        ("OneHot", times_parts(last, &[depth.clone(), ("marks", Tensor::ints(&[0, 1]))])),
        (
            "OneHot along the second axis",
            times_parts(second, &[depth, ("marks", Tensor::f32(&[2], &[0.0, 1.0]))]),
        ),
        ("ScatterElements", times_parts(scattered, &[("zeros", zeros), ("ones", ones)])),
    ]
}

/// The rows are a product of the table with what is equal to the minimum, or stands at its position.
fn by_comparison() -> Vec<Form> {
    let equal = |a: &str, b: &str| [Node::new("Equal", &[a, b], "m"), float("m", "numbers")];
    let column = vec![arg_min(), Node::new("Unsqueeze", &["at", "last"], "column")];
    let least = vec![Node::new("ReduceMin", &["scores", "last"], "least")];
    let put_back = vec![
        Node::new("ReduceMin", &["scores", "last"], "flat").with("keepdims", 0i64),
        Node::new("Unsqueeze", &["flat", "last"], "least"),
    ];
    let behind = |nodes: Vec<Node>, equal: [Node; 2], constants: &[(&'static str, Tensor)]| {
        times_parts(nodes.into_iter().chain(equal).collect(), constants)
    };
    let positions = ("positions", Tensor::ints(&[0, 1, 2]));
    vec![
        ("Equal with positions", behind(column, equal("column", "positions"), &[positions])),
        ("Equal with the minimum", behind(least, equal("least", "scores"), &[])),
        ("Equal with the minimum, its axis put back", behind(put_back, equal("scores", "least"), &[])),
    ]
}

/// Nodes that write "numbers", with a 1 for the chosen row of each part, times the rows of the parts.
fn times_parts(mut nodes: Vec<Node>, constants: &[(&'static str, Tensor)]) -> Chosen {
    nodes.push(Node::new("Unsqueeze", &["numbers", "minus 2"], "each"));
    nodes.push(Node::new("MatMul", &["each", "parts"], "y"));
    let own = [("minus 2", Tensor::ints(&[-2]))];
    Chosen::new(nodes, &[&own[..], constants].concat())
}

fn swapped(v: &str, to: &str) -> Node {
    Node::new("Transpose", &[v], to).with("perm", vec![0i64, 2, 1])
}

fn float(v: &str, name: &str) -> Node {
    Node::new("Cast", &[v], name).with("to", to(DType::F32))
}

/// No pass has a slope for a position. Written in softer operators, every form has the same value, and the
/// slope of PyTorch's autograd for softmax(−scores/τ) times the rows of the part, τ an eighth of the mean
/// distance of the part's scores from their mean and constant.
#[test]
fn chosen_rows_have_a_softened_slope_as_products() {
    common::load_runtime();
    let cotangent = vec![1.0, -2.0, 0.5, 3.0, 2.0, 1.0, -1.0, 0.25];
    let expected = [
        -8.387569e-7f32,
        -14.13016,
        14.13016,
        -7.319613,
        2.242656e-7,
        7.319613,
        12.47041,
        -8.186771e-7,
        -12.47041,
        -4.410442e-6,
        -129.1696,
        129.1696,
    ];
    for (form, chosen) in product_quantisers() {
        let plain = chosen.case(SCORES.to_vec());
        assert!(passed(&plain, Pass::Softened, |_| vec![cotangent.clone()]).is_err(), "{form}");
        let written = chosen.written(SCORES.to_vec());
        assert_eq!(value(&plain), [3.0, 5.0, -2.0, 4.0, 1.0, 2.0, 0.5, -1.0], "{form}");
        assert_eq!(value(&written), value(&plain), "{form}");
        let (_, _, gradients) = passed(&written, Pass::Softened, |_| vec![cotangent.clone()]).unwrap();
        for (found, expected) in gradients[0].iter().zip(expected) {
            let close = (found - expected).abs() <= 1e-3 * expected.abs() + 1e-4;
            assert!(close, "{form}: {found} where {expected} is expected");
        }
    }
}

/// The first of equal values is chosen by ArgMin, and all of them by Equal.
#[test]
fn equal_values_are_chosen_as_before() {
    common::load_runtime();
    let ties = [0.0, -0.0, 1.0, 2.0, 2.0, 2.0, 3.0, 1.0, 1.0, f32::INFINITY, 4.0, 4.0];
    for (form, chosen) in product_quantisers() {
        assert_eq!(value(&chosen.written(ties.to_vec())), value(&chosen.case(ties.to_vec())), "{form}");
    }
}

/// A row that is not finite, here the third of a part, would make a product NaN whichever row is chosen.
#[test]
fn rows_that_are_not_finite_are_picked_as_before() {
    common::load_runtime();
    for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        for (form, mut chosen) in by_position() {
            for (_, table) in chosen.constants.iter_mut().filter(|(_, t)| t.dtype == DType::F32) {
                let mut rows = table.to_f32s().unwrap();
                rows[4] = bad;
                *table = Tensor::f32(&table.shape, &rows);
            }
            let expected = [3.0, 5.0, -2.0, 4.0, 1.0, 2.0, 0.5, -1.0];
            assert_eq!(value(&chosen.case(SCORES.to_vec())), expected, "{form}");
            assert_eq!(value(&chosen.written(SCORES.to_vec())), expected, "{form}, {bad}");
        }
    }
}

/// A product of one-hot vectors with all rows of all parts would be as many times larger as there are parts.
#[test]
fn a_table_of_parts_is_shared_and_not_copied() {
    common::load_runtime();
    for (form, chosen) in by_position() {
        let tables: Vec<&Tensor> =
            chosen.constants.iter().map(|(_, t)| t).filter(|t| t.dtype == DType::F32).collect();
        let written = chosen.written(SCORES.to_vec()).graph;
        let floats: Vec<&Tensor> = written.constants.values().filter(|t| t.dtype == DType::F32).collect();
        let [table] = floats[..] else { panic!("{form}: {floats:?}") };
        assert!(tables.iter().any(|t| t.bytes.as_ptr() == table.bytes.as_ptr()), "{form}");
        assert_eq!(table.len(), 12, "{form}");
        let product = written.nodes.iter().find(|node| node.op == "MatMul").unwrap();
        let types = runtime::infer(&written).unwrap();
        let one_hot = &types[&product.inputs[0]].1;
        assert_eq!(one_hot.iter().product::<i64>(), 12, "{form}: {one_hot:?}");
    }
}

/// A vector quantiser that stands alone, of a table with more rows than there are to choose from; a table of
/// numbers; and Hardmax's name in results.
#[test]
fn one_chosen_row_has_a_softened_slope() {
    common::load_runtime();
    let of = |nodes: Vec<Node>, table: Tensor, out: &[i64]| {
        let mut graph = Graph::new(nodes, [("table".to_string(), table)].into());
        graph.inputs.push(Value::new("x", DType::F32, &[2, 3]));
        graph.outputs.push(Value::new("y", DType::F32, out));
        let mut types = runtime::infer(&graph).unwrap();
        let passed = |graph: &Graph, types: &onnx_grad::Types| {
            differentiate(graph, types, &["x"], Pass::Softened, Processor::Cpu)
        };
        assert!(passed(&graph, &types).unwrap_err().disconnected);
        graph.write_in_softer_operators(&mut types);
        assert_eq!(passed(&graph, &types).unwrap().softened, [r#"Hardmax "choice/y/1""#]);
        let mut session = runtime::Session::new(&graph, common::CPU, runtime::Optimise::All).unwrap();
        let x = [0.3f32, 0.1, 0.2, 4.0, 9.0, 1.0];
        let y = session.run(&[("x", runtime::Input::Host(&[2, 3], &x))], &["y"]).unwrap();
        y[0].floats().unwrap().1.to_vec()
    };
    let nodes = vec![
        Node::new("ArgMin", &["x"], "at").with("axis", -1i64).with("keepdims", 0i64),
        Node::new("Gather", &["table", "at"], "y"),
    ];
    let rows = [1.0, 2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0];
    assert_eq!(of(nodes.clone(), Tensor::f32(&[3, 2], &rows[..6]), &[2, 2]), [3.0, 5.0, 7.0, 11.0]);
    assert_eq!(of(nodes.clone(), Tensor::f32(&[4, 2], &rows), &[2, 2]), [3.0, 5.0, 7.0, 11.0]);
    assert_eq!(of(nodes, Tensor::f32(&[3], &rows[..3]), &[2]), [2.0, 3.0]);
}

/// What only looks like such a choice stays as it is.
#[test]
fn other_positions_and_masks_are_not_written_anew() {
    common::load_runtime();
    let min = arg_min;
    let pick = |at: &str| Node::new("Gather", &["table", at], "y");
    let add = |a: &str, b: &str, to: &str| Node::new("Add", &[a, b], to);
    let mark =
        |nodes: Vec<Node>| [nodes, vec![Node::new("Cast", &["m"], "y").with("to", to(DType::F32))]].concat();
    let one_hot = |inputs: &[&str]| mark(vec![min(), Node::new("OneHot", inputs, "m")]);
    let column = || vec![min(), Node::new("Unsqueeze", &["at", "last"], "column")];
    let equal = |a: &str, b: &str| Node::new("Equal", &[a, b], "m");
    let ints = |name: &'static str, values: &[i64]| (name, Tensor::ints(values));
    let least =
        |axes: &str, keep: i64| Node::new("ReduceMin", &["scores", axes], "least").with("keepdims", keep);
    let others = [
        (
            "the last of equal values",
            vec![min().with("select_last_index", 1i64), add("at", "offset", "r"), pick("r")],
        ),
        (
            "an offset that is computed",
            vec![min(), Node::new("Identity", &["offset"], "own"), add("at", "own", "r"), pick("r")],
        ),
        ("two offsets", vec![min(), add("at", "offset", "r"), add("r", "zeros", "s"), pick("s")]),
        ("parts in another order", vec![min(), add("at", "3 0", "r"), pick("r")]),
        ("rows beyond the table", vec![min(), add("at", "1 4", "r"), pick("r")]),
        ("rows from the end", vec![min(), add("at", "-6 -3", "r"), pick("r")]),
        ("columns", vec![min(), pick("at").with("axis", 1i64)]),
        ("a product of positions", vec![min(), Node::new("Mul", &["at", "offset"], "r"), pick("r")]),
        ("another depth", one_hot(&["at", "4", "marks"])),
        ("other values", one_hot(&["at", "3", "0 2"])),
        (
            "twos",
            vec![
                min().with("keepdims", 1i64),
                Node::new("ScatterElements", &["nothing", "at", "twos"], "y").with("axis", -1i64),
            ],
        ),
        ("positions from 1", mark([column(), vec![equal("column", "1 2 3")]].concat())),
        ("a position alone", mark([column(), vec![equal("column", "1")]].concat())),
        ("the minimum of all images", mark(vec![least("first", 0), equal("scores", "least")])),
        (
            "the minimum of other values",
            mark(vec![Node::new("Neg", &["scores"], "other"), least("last", 1), equal("other", "least")]),
        ),
    ];
    let constants = [
        ints("zeros", &[0, 0]),
        ints("3 0", &[3, 0]),
        ints("1 4", &[1, 4]),
        ints("-6 -3", &[-6, -3]),
        ints("4", &[4]),
        ints("3", &[3]),
        ints("1", &[1]),
        ints("marks", &[0, 1]),
        ints("0 2", &[0, 2]),
        ints("1 2 3", &[1, 2, 3]),
        ints("first", &[0]),
        ("nothing", Tensor::f32(&[2, 2, 3], &[0.0; 12])),
        ("twos", Tensor::f32(&[2, 2, 1], &[2.0; 4])),
    ];
    for (what, nodes) in others {
        let chosen = Chosen::new(nodes, &constants);
        assert_eq!(
            chosen.written(SCORES.to_vec()).graph.nodes,
            chosen.case(SCORES.to_vec()).graph.nodes,
            "{what}"
        );
    }
}
