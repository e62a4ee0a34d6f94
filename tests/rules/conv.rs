//! Convolutions.

use crate::case::*;
use crate::{Pass, Processor, common, differentiate};
use audit::model::runtime;

pub fn samples() -> Vec<(&'static str, Sample)> {
    vec![entry("Col2Im", col2im), entry("Conv", conv), entry("ConvTranspose", conv_transpose)]
}

/// Channels that fill half a block, and groups that fill one or half of one: Conv has other gradients for
/// them at stride 1, depthwise at stride 2, and dense at stride 2 with large kernels.
fn conv_in_blocks(r: &mut Rng) -> Case {
    let (stride, depthwise) = (r.pick(&[1, 2]), r.bool());
    let small = stride == 1 || depthwise;
    let kernel: Vec<i64> = (0..2).map(|_| if small { r.int(1, 3) } else { r.int(5, 6) }).collect();
    let before: Vec<i64> = (0..2).map(|d| r.int(0, kernel[d] - 1)).collect();
    let y: Vec<i64> = (0..2).map(|_| r.int(2, 4)).collect();
    // The other pad, so that the image is `stride` times as large as the output, as in most nets that halve.
    let after: Vec<i64> =
        (0..2).map(|d| (y[d] - 1) * stride + kernel[d] - before[d] - stride * y[d]).collect();
    if after.iter().any(|&p| p < 0) {
        return conv_in_blocks(r);
    }
    let node = Node::new("Conv", &["x", "w"], "y").with("strides", vec![stride, stride]);
    let (channels, group) = match (depthwise, stride) {
        (true, _) => (8, 8),
        (false, 1) => r.pick(&[(8, 1), (8, 1), (16, 2), (32, 2)]),
        (false, _) => (8, 1),
    };
    let node = node.with("pads", [before, after].concat()).with("group", group);
    let dilations = if depthwise { r.int(1, 2) } else { 1 };
    let node = node.with("dilations", vec![dilations; 2]);
    // Dilated windows and odd sizes leave pixels over, or reach beyond the image.
    let odd = |r: &mut Rng, size: i64| {
        if depthwise { size + kernel.iter().sum::<i64>() + r.int(0, 2) } else { size }
    };
    let x = [1, channels, odd(r, stride * y[0]), odd(r, stride * y[1])];
    let w = [channels, channels / group, kernel[0], kernel[1]];
    Case::new(node).normal(r, "x", &x).constant("w", Tensor::f32(&w, &normal(r, &w)))
}

fn conv(r: &mut Rng) -> Case {
    if r.int(0, 2) == 0 {
        return conv_in_blocks(r);
    }
    let dims = r.pick(&[1usize, 2, 2, 2, 3]);
    let group = r.pick(&[1, 1, 2, 3]);
    let (per_in, per_out) = (if r.bool() { 1 } else { r.int(1, 3) }, r.int(1, 3));
    let most = if dims == 3 { 2 } else { 3 };
    let kernel: Vec<i64> = (0..dims).map(|_| r.int(1, most)).collect();
    let strides: Vec<i64> = (0..dims).map(|_| r.int(1, 4)).collect();
    let dilations: Vec<i64> = (0..dims).map(|_| r.int(1, 2)).collect();
    let extra = if dims == 3 { 3 } else { 7 };
    let space: Vec<i64> = (0..dims).map(|d| (kernel[d] - 1) * dilations[d] + 1 + r.int(0, extra)).collect();
    let x = [&[2, group * per_in], space.as_slice()].concat();
    let w = [&[group * per_out, per_in], kernel.as_slice()].concat();
    let bias = r.bool();
    let inputs: &[&str] = if bias { &["x", "w", "b"] } else { &["x", "w"] };
    let mut node = Node::new("Conv", inputs, "y").with("group", group).with("strides", strides);
    match r.int(0, 5) {
        0 => node = node.with("auto_pad", "SAME_UPPER"),
        1 => node = node.with("auto_pad", "SAME_LOWER"),
        2 => node = node.with("auto_pad", "VALID"),
        _ => node = node.with("pads", (0..2 * dims).map(|_| r.int(0, 2)).collect::<Vec<i64>>()),
    }
    // ONNX Runtime computes SAME padding for dilated kernels in its own way; no exporter writes that.
    if node.attrs.contains_key("pads") {
        node = node.with("dilations", dilations);
    }
    weighted(r, node, &x, &w, w[0])
}

/// Image, weights and bias, the latter two constant or differentiated.
fn weighted(r: &mut Rng, node: Node, x: &[i64], w: &[i64], channels: i64) -> Case {
    let bias = node.inputs.len() == 3;
    let case = Case::new(node).normal(r, "x", x).maybe(r, "w", w, normal);
    if bias { case.maybe(r, "b", &[channels], normal) } else { case }
}

fn conv_transpose(r: &mut Rng) -> Case {
    let dims = r.pick(&[1usize, 2, 2, 2, 3]);
    let group = r.pick(&[1, 1, 2, 3]);
    let (per_in, per_out) = (r.int(1, 3), if r.bool() { 1 } else { r.int(1, 3) });
    let most = if dims == 3 { 2 } else { 3 };
    let kernel: Vec<i64> = (0..dims).map(|_| r.int(1, most)).collect();
    let strides: Vec<i64> = (0..dims).map(|_| r.int(1, 3)).collect();
    let dilations: Vec<i64> = (0..dims).map(|_| r.int(1, 2)).collect();
    let space: Vec<i64> = (0..dims).map(|_| r.int(2, if dims == 3 { 3 } else { 5 })).collect();
    let x = [&[2, group * per_in], space.as_slice()].concat();
    let w = [&[group * per_in, per_out], kernel.as_slice()].concat();
    let inputs: &[&str] = if r.bool() { &["x", "w", "b"] } else { &["x", "w"] };
    let mut node =
        Node::new("ConvTranspose", inputs, "y").with("group", group).with("strides", strides.clone());
    match r.int(0, 6) {
        0 => node = node.with("auto_pad", "SAME_UPPER"),
        1 => node = node.with("auto_pad", "SAME_LOWER"),
        2 => node = node.with("auto_pad", "VALID"),
        3 => {
            let full = |d: usize| (space[d] - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1;
            // Inference gives up on outputs smaller than the input.
            let shape: Vec<i64> =
                (0..dims).map(|d| (full(d) + r.int(-2, strides[d] - 1)).max(space[d])).collect();
            node = node.with("output_shape", shape).with("dilations", dilations);
            if r.bool() {
                node = node.with("auto_pad", "VALID");
            }
        }
        _ => {
            let pads: Vec<i64> = (0..2 * dims).map(|d| r.int(0, (kernel[d % dims] - 1).min(1))).collect();
            let extra: Vec<i64> = strides.iter().map(|s| r.int(0, s - 1)).collect();
            node = node.with("pads", pads).with("output_padding", extra).with("dilations", dilations);
        }
    }
    weighted(r, node, &x, &w, group * per_out)
}

fn col2im(r: &mut Rng) -> Case {
    let image = [r.int(5, 7), r.int(5, 7)];
    let block = [r.int(1, 3), r.int(1, 3)];
    let (stride, dilation, pad) = (r.int(1, 2), r.int(1, 2), r.int(0, 1));
    let count = |d: usize| (image[d] + 2 * pad - (block[d] - 1) * dilation - 1) / stride + 1;
    let x = [2, 3 * block[0] * block[1], count(0) * count(1)];
    let node = Node::new("Col2Im", &["x", "image", "block"], "y")
        .with("strides", vec![stride; 2])
        .with("dilations", vec![dilation; 2])
        .with("pads", vec![pad; 4]);
    Case::new(node).normal(r, "x", &x).ints("image", &image).ints("block", &block)
}

/// CUDA's ConvTranspose needs equal pads at both ends of an axis (the library's own message says so); its
/// Conv takes any.
#[test]
fn on_a_gpu_a_conv_with_other_pads_at_its_end_has_conv_as_its_gradient() {
    common::load_runtime();
    for (kernel, pads, expected) in [
        ([3, 3], [1, 1, 1, 1], "ConvTranspose"),
        ([2, 2], [0, 0, 1, 1], "Conv"),
        ([1, 3], [0, 2, 0, 0], "Conv"),
        ([1, 1], [0, 0, 0, 0], "Conv"),
    ] {
        let values = vec![0.5; (64 * kernel[0] * kernel[1]) as usize];
        let weights = Tensor::f32(&[8, 8, kernel[0], kernel[1]], &values);
        let node = Node::new("Conv", &["x", "w"], "y").with("pads", pads.to_vec());
        let mut graph = Graph::new(vec![node], [("w".to_string(), weights)].into());
        graph.inputs.push(Value::new("x", DType::F32, &[1, 8, 5, 5]));
        graph.outputs.push(Value { name: "y".into(), dtype: DType::Other(0), shape: None });
        let types = runtime::infer(&graph).unwrap();
        let g = differentiate(&graph, &types, &["x"], Pass::Exact, Processor::Gpu).unwrap();
        let ops: Vec<&str> = g.backward.nodes.iter().map(|node| node.op.as_str()).collect();
        assert_eq!(
            ops.iter().filter(|op| op.starts_with("Conv")).collect::<Vec<_>>(),
            [&expected],
            "{kernel:?} {pads:?}"
        );
    }
}
