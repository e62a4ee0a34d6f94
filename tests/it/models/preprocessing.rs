//! What stands in front of a model: as it is stated, and as is usual.

use super::{audited, close, outputs, pixels};
use crate::common::models::{SIDE, Weights, free, grey, trunk, trunk_weights, value};
use crate::common::{load_runtime, says};
use audit::model::IMAGE;
use audit::model::card::{self, Axes, Card, Channels};
use onnx_grad::Graph;
use onnx_grad::graph::{DType, Dim, Node, Value};
use std::collections::BTreeMap;

/// A colour model: [N, 3, 12, 12], or with channels last, [N, 12, 12, 3].
fn colour(layout: Axes) -> Graph {
    let first = layout == Axes::Nchw;
    let mut nodes = trunk(if first { "image" } else { "planes" }, "embedding", "");
    if !first {
        nodes.insert(0, Node::new("Transpose", &["image"], "planes").with("perm", vec![0i64, 3, 1, 2]));
    }
    let mut graph = grey(nodes, trunk_weights(Weights::new(4), "", 3));
    let dims = if first { [3, SIDE, SIDE] } else { [SIDE, SIDE, 3] };
    graph.inputs = vec![value("image", free(), &dims)];
    graph
}

/// (value of black and white, mean, std) per channel of the input, as flags and as a card.
type Scaling = ([f32; 2], [f32; 3], [f32; 3]);
const SCALINGS: [Scaling; 4] = [
    ([0.0, 1.0], [0.0; 3], [1.0; 3]),
    ([0.0, 255.0], [104.0, 117.0, 123.0], [1.0; 3]),
    ([0.0, 1.0], [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ([-1.0, 1.0], [0.1, 0.0, -0.1], [0.5, 0.6, 0.7]),
];

/// Expected values follow from the definition: channel c of the input takes (low + v·(high − low) − mean[c])
/// / std[c], where v is the pixel of red, green or blue that c stands for.
#[test]
fn preprocessing_in_front_of_the_graph_is_what_is_stated() {
    load_runtime();
    let (n, h, w) = (2usize, 5usize, 4usize);
    let x = pixels(n * 3 * h * w);
    for layout in [Axes::Nchw, Axes::Nhwc] {
        for order in [Channels::Rgb, Channels::Bgr] {
            for (range, mean, std) in SCALINGS {
                let dims = if layout == Axes::Nchw { [2, 3, 5, 4] } else { [2, 5, 4, 3] };
                let input = Value::new("image", DType::F32, &dims);
                let card = Card {
                    channels: Some(order),
                    range: Some(range),
                    mean: Some(mean.into()),
                    std: Some(std.into()),
                    ..Default::default()
                };
                let p = card::preprocessing(&input, &card).unwrap();
                assert_eq!((p.layout, p.order, p.assumed), (layout, order, false));
                let mut graph = Graph::new(vec![Node::new("Identity", &["image"], "out")], BTreeMap::new());
                graph.inputs = vec![input];
                graph.outputs = vec![Value::new("out", DType::F32, &dims)];
                card::prepend(&p, &mut graph, "image", n);
                assert_eq!(graph.inputs[0].name, IMAGE);
                let found = outputs(&graph, &p.pixel_shape(n), &x);
                let mut expected = vec![0.0; x.len()];
                for (i, v) in x.iter().enumerate() {
                    let (image, colour, at) = (i / (3 * h * w), i / (h * w) % 3, i % (h * w));
                    let c = if order == Channels::Bgr { 2 - colour } else { colour };
                    let to = match layout {
                        Axes::Nchw => (image * 3 + c) * h * w + at,
                        Axes::Nhwc => (image * h * w + at) * 3 + c,
                    };
                    expected[to] = (range[0] + v * (range[1] - range[0]) - mean[c]) / std[c];
                }
                close(&found, &expected, 1e-5);
                close(&p.apply(&x), &expected, 1e-5);
            }
        }
    }
}

/// Defaults: the evaluation transforms of torchvision and timm for photographs (shorter side, centre crop),
/// the stretch of the papers' code for their benchmarks, unchanged pixels for characters.
#[test]
fn preprocessing_that_nobody_states_is_the_usual() {
    let input = |dims: &[i64]| Value::new("image", DType::F32, dims);
    let of = |dims: &[i64], card: &Card| card::preprocessing(&input(dims), card);
    let plain = Card::default();
    let p = of(&[1, 3, 224, 224], &plain).unwrap();
    let expected = (None, Some(256), Channels::Rgb, true);
    assert_eq!((p.resize, p.resize_shorter, p.order, p.assumed), expected);
    for (c, (mean, std)) in [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)].into_iter().enumerate() {
        assert!((p.scale[c] - 1.0 / std).abs() < 1e-6 && (p.shift[c] + mean / std).abs() < 1e-6, "{p:?}");
    }
    assert_eq!(of(&[1, 224, 224, 3], &plain).unwrap().layout, Axes::Nhwc);
    let framed = |dims: &[i64], card: &Card| of(dims, card).map(|p| (p.resize, p.resize_shorter)).unwrap();
    let stretched = Card { stretched: true, ..plain.clone() };
    let stated = Card { resize_shorter: Some(240), stretched: true, ..plain.clone() };
    assert_eq!(framed(&[1, 3, 224, 224], &stretched), (Some([256, 256]), None));
    assert_eq!(framed(&[1, 3, 224, 224], &stated), (None, Some(240)));
    // Faces of 112 pixels are not cropped. Re-identification stretches people; characters stay unchanged.
    assert_eq!(framed(&[1, 3, 112, 112], &plain), (None, Some(112)));
    assert_eq!(framed(&[1, 3, 112, 112], &stretched), (None, None));
    assert_eq!(framed(&[1, 3, 256, 128], &plain), (None, None));
    let small = of(&[1, 1, 28, 28], &plain).unwrap();
    assert_eq!((small.resize, small.assumed), (None, false));
    assert_eq!((&small.scale[..], &small.shift[..]), (&[1.0][..], &[0.0][..]));
    // Three channels at the end, all else open: the graph says channels last, whatever order is stated.
    let open = |name: &str| Dim::Free(name.into());
    let shape = vec![open("n"), open("h"), open("w"), Dim::Known(3)];
    let free = Value { name: "image".into(), dtype: DType::F32, shape: Some(shape) };
    for channels in [None, Some(Channels::Bgr)] {
        let card = Card { channels, size: Some([224, 224]), ..plain.clone() };
        assert_eq!(card::preprocessing(&free, &card).unwrap().layout, Axes::Nhwc, "{channels:?}");
    }
    // A crop larger than the image.
    let exact = Card { resize: Some([256, 200]), ..plain.clone() };
    for card in [exact, Card { resize_shorter: Some(200), ..plain.clone() }] {
        says(&of(&[1, 3, 224, 224], &card).unwrap_err().message, &["200", "smaller than the input"]);
    }
}

#[test]
fn layouts_channel_orders_and_ranges_are_audited_as_stated() {
    for (layout, flag) in [(Axes::Nchw, "nchw"), (Axes::Nhwc, "nhwc")] {
        let report = audited(&colour(layout), 3, &["--image-layout", flag]);
        assert_eq!(report.model.preprocessing.layout, layout);
    }
    let scaling = ["--range", "0,255", "--mean", "104,117,123", "--std", "57,58,59"];
    let args = [&["--channels", "bgr", "--output", "embedding"], &scaling[..]].concat();
    let report = audited(&colour(Axes::Nhwc), 3, &args);
    let p = &report.model.preprocessing;
    assert_eq!((p.layout, p.order), (Axes::Nhwc, Channels::Bgr));
    assert!((p.scale[0] - 255.0 / 57.0).abs() < 1e-6 && (p.shift[2] + 123.0 / 59.0).abs() < 1e-6, "{p:?}");
    // ε stays in pixel units, whatever the range: the largest change of a pixel is the protocol's.
    assert!(report.outcomes.iter().all(|o| o.linf <= report.suite.eps + 1e-6));
    let most = report.outcomes.iter().fold(0.0f32, |m, o| m.max(o.linf));
    assert!(most > 2.0 * report.suite.alpha, "{most}");
    // A model that expects 0..255 and gets 0..1 is another model.
    let other = audited(&colour(Axes::Nhwc), 3, &[]);
    assert_ne!(other.benign.as_ref().unwrap().map, report.benign.as_ref().unwrap().map);
}
