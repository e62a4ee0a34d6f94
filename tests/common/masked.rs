//! Models with a mask: operators that saturate or are flat, so that the model retrieves as without the mask
//! and its gradient is zero almost everywhere. A mask adds no robustness; it hides the gradient (obfuscated
//! gradients, Athalye et al., ICML 2018). Tests and `examples/masked.rs` share this file.
#![allow(dead_code)]

use onnx_grad::Graph;
use onnx_grad::graph::{DType, Node, Tensor};

/// A mask: nodes in front of a model or behind it.
pub struct Mask {
    /// Name of the masked variant, as a file's stem.
    pub name: &'static str,
    pub place: Place,
    /// The mask's function, in words.
    pub formula: &'static str,
    /// Appends the mask's nodes; they read [`FROM`] and write [`TO`].
    nodes: fn(&mut Chain),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Between the images and the model.
    Input,
    /// Behind the embedding.
    Output,
}

/// The value that a mask reads.
const FROM: &str = "mask/from";
/// The value that a mask writes.
const TO: &str = "mask/to";

pub const MASKS: &[Mask] = &[
    input("sigmoid-200", "sigmoid(200·(x − 0.5))", |c| sigmoid(c, 200.0)),
    input("sigmoid-120", "sigmoid(120·(x − 0.5))", |c| sigmoid(c, 120.0)),
    input("threshold-leak", "(x > 0.5) + 0.003·x", |c| {
        c.push("Greater", &[FROM, "0.5"], "on");
        c.cast("on", DType::F32, "high");
        c.leak("high", 0.003);
    }),
    input("relu6-leak", "clip(1000·(x − 0.5), 0, 6)/6 + 0.01·x", |c| {
        steep(c, 1000.0);
        c.push("Clip", &["steep", "0", "6"], "clipped");
        c.push("Div", &["clipped", "6"], "high");
        c.leak("high", 0.01);
    }),
    output("softmax-300", "softmax(300·z)", |c| {
        c.push("Mul", &[FROM, "300"], "steep");
        c.with("Softmax", "steep", TO, &[]);
    }),
    output("tanh-100", "tanh(100·z)", |c| {
        c.push("Mul", &[FROM, "100"], "steep");
        c.push("Tanh", &["steep"], TO);
    }),
    output("sign-leak", "sign(z) + 0.001·z", |c| {
        c.push("Sign", &[FROM], "sign");
        c.leak("sign", 0.001);
    }),
    input("tanh-in", "(1 + tanh(100·(x − 0.5)))/2", |c| {
        steep(c, 100.0);
        c.push("Tanh", &["steep"], "turn");
        halve(c);
    }),
    input("erf", "(1 + erf(100·(x − 0.5)))/2", |c| {
        steep(c, 100.0);
        c.push("Erf", &["steep"], "turn");
        halve(c);
    }),
    input("sign", "(1 + sign(x − 0.5))/2", |c| {
        steep(c, 1.0);
        c.push("Sign", &["steep"], "turn");
        halve(c);
    }),
    input("hard-sigmoid", "clip(100·(x − 0.5) + 0.5, 0, 1)", |c| {
        c.push("Sub", &[FROM, "0.5"], "centred");
        c.with("HardSigmoid", "centred", TO, &[("alpha", 100.0), ("beta", 0.5)]);
    }),
    input("clip", "clip(100·(x − 0.5) + 0.5, 0, 1)", |c| {
        steep(c, 100.0);
        c.push("Add", &["steep", "0.5"], "raised");
        c.push("Clip", &["raised", "0", "1"], TO);
    }),
    input("relu-step", "relu(1000·(x − 0.5)) − relu(1000·(x − 0.5) − 1)", |c| {
        steep(c, 1000.0);
        c.push("Sub", &["steep", "1"], "lowered");
        c.push("Relu", &["steep"], "rise");
        c.push("Relu", &["lowered"], "fall");
        c.push("Sub", &["rise", "fall"], TO);
    }),
    input("where-leak", "(x > 0.5 ? 1 : 0) + 0.003·x", |c| {
        c.push("Greater", &[FROM, "0.5"], "on");
        c.push("Where", &["on", "1", "0"], "high");
        c.leak("high", 0.003);
    }),
    input("logic-leak", "(not (x < 0.5 or x <= 0.4)) + 0.003·x", |c| {
        c.push("Less", &[FROM, "0.5"], "low");
        c.push("LessOrEqual", &[FROM, "0.4"], "lower");
        c.push("Or", &["low", "lower"], "off");
        c.push("Not", &["off"], "on");
        c.cast("on", DType::F32, "high");
        c.leak("high", 0.003);
    }),
    input("round-8", "round(8·x)/8", |c| {
        c.push("Mul", &[FROM, "8"], "levels");
        c.push("Round", &["levels"], "whole");
        c.push("Div", &["whole", "8"], TO);
    }),
    input("floor-8", "floor(8·x + 0.5)/8", |c| {
        c.push("Mul", &[FROM, "8"], "levels");
        c.push("Add", &["levels", "0.5"], "raised");
        c.push("Floor", &["raised"], "whole");
        c.push("Div", &["whole", "8"], TO);
    }),
    input("cast-8-leak", "(8·x + 0.5 as int32)/8 + 0.003·x", |c| {
        c.push("Mul", &[FROM, "8"], "levels");
        c.push("Add", &["levels", "0.5"], "raised");
        c.cast("raised", DType::I32, "integers");
        c.cast("integers", DType::F32, "whole");
        c.push("Div", &["whole", "8"], "high");
        c.leak("high", 0.003);
    }),
    // Gradients in arbitrary directions: the wave is small, but its slope is not.
    input("sine", "x + 0.03·sin(1000·x)", |c| wave(c, 0.03, 1000.0)),
    output("sine-out", "z + 0.01·sin(2000·z)", |c| wave(c, 0.01, 2000.0)),
    // Falls except at its jumps, so that the gradient points the wrong way everywhere.
    input("sawtooth", "x − 1.5·(16·x − floor(16·x))/16", |c| {
        c.push("Mul", &[FROM, "16"], "levels");
        c.push("Floor", &["levels"], "whole");
        c.push("Sub", &["levels", "whole"], "rest");
        c.push("Mul", &["rest", "0.09375"], "tooth");
        c.push("Sub", &[FROM, "tooth"], TO);
    }),
    input("two-sigmoids", "sigmoid(40·(sigmoid(40·(x − 0.5)) − 0.5))", |c| {
        steep(c, 40.0);
        c.push("Sigmoid", &["steep"], "once");
        c.push("Sub", &["once", "0.5"], "middle");
        c.push("Mul", &["middle", "40"], "steeper");
        c.push("Sigmoid", &["steeper"], TO);
    }),
    // Like JPEG: the cosine transform of blocks of 4 pixels, rounded.
    input(
        "jpeg-leak",
        "blocks of 4×4 pixels whose cosine transform is rounded to whole numbers + 0.003·x",
        |c| {
            c.tensor("waves", &[16, 1, 4, 4], &cosines());
            c.with_ints("Conv", &[FROM, "waves"], "spectrum", &[("strides", &[4, 4])]);
            c.push("Mul", &["spectrum", "2"], "levels");
            c.push("Round", &["levels"], "whole");
            c.push("Div", &["whole", "2"], "coarse");
            c.with_ints("ConvTranspose", &["coarse", "waves"], "image", &[("strides", &[4, 4])]);
            c.leak("image", 0.003);
        },
    ),
    output("round-leak", "round(20·z)/20 + 0.001·z", |c| {
        c.push("Mul", &[FROM, "20"], "levels");
        c.push("Round", &["levels"], "whole");
        c.push("Div", &["whole", "20"], "coarse");
        c.leak("coarse", 0.001);
    }),
    output("winners", "z > 0.1 ? z : 0.001·z", |c| {
        c.push("Greater", &[FROM, "0.1"], "on");
        c.push("Mul", &[FROM, "0.001"], "little");
        c.push("Where", &["on", FROM, "little"], TO);
    }),
];

/// A mask that is none at a large ε: its gradient, −0.3, points the wrong way, and integers hide the steps of
/// 0.03 that turn it. A large change crosses them whatever its direction.
pub const WHOLE_DIVISION: Mask = input("whole-division", "x − 1.3·(x mod 0.03)", |c| {
    c.push("Mul", &[FROM, "100000"], "many");
    c.cast("many", DType::I64, "whole");
    c.cast("3000", DType::I64, "by");
    c.push("Div", &["whole", "by"], "quotient");
    c.cast("quotient", DType::F32, "count");
    c.push("Mul", &["count", "0.03"], "steps");
    c.push("Sub", &[FROM, "steps"], "rest");
    c.push("Mul", &["rest", "1.3"], "tooth");
    c.push("Sub", &[FROM, "tooth"], TO);
});

/// Masks whose gradient isn't small but points elsewhere.
pub const MISLEADING: [&str; 4] = ["sine", "sine-out", "sawtooth", "winners"];

/// share·sin(factor·x) added to x.
fn wave(c: &mut Chain, share: f32, factor: f32) {
    c.push("Mul", &[FROM, &factor.to_string()], "fast");
    c.push("Sin", &["fast"], "sine");
    c.push("Mul", &["sine", &share.to_string()], "wave");
    c.push("Add", &[FROM, "wave"], TO);
}

/// The 16 orthonormal cosine waves of a block of 4×4 pixels (DCT-II), one after another.
fn cosines() -> Vec<f32> {
    let wave = |k: usize, x: usize| {
        let scale = if k == 0 { 0.5 } else { 0.5f32.sqrt() };
        scale * (std::f32::consts::PI * (2 * x + 1) as f32 * k as f32 / 8.0).cos()
    };
    (0..256).map(|i| wave(i / 64, i / 4 % 4) * wave(i / 16 % 4, i % 4)).collect()
}

const fn input(name: &'static str, formula: &'static str, nodes: fn(&mut Chain)) -> Mask {
    Mask { name, place: Place::Input, formula, nodes }
}

const fn output(name: &'static str, formula: &'static str, nodes: fn(&mut Chain)) -> Mask {
    Mask { name, place: Place::Output, formula, nodes }
}

/// factor·(x − 0.5) as the value "steep".
fn steep(c: &mut Chain, factor: f32) {
    c.push("Sub", &[FROM, "0.5"], "centred");
    c.push("Mul", &["centred", &factor.to_string()], "steep");
}

fn sigmoid(c: &mut Chain, factor: f32) {
    steep(c, factor);
    c.push("Sigmoid", &["steep"], TO);
}

/// (1 + the value "turn")/2.
fn halve(c: &mut Chain) {
    c.push("Add", &["turn", "1"], "lifted");
    c.push("Mul", &["lifted", "0.5"], TO);
}

/// The nodes of a mask. Their values are named within the mask; a name that is a number is a constant of this
/// value.
#[derive(Default)]
struct Chain {
    nodes: Vec<Node>,
    numbers: Vec<String>,
    tensors: Vec<(String, Tensor)>,
}

impl Chain {
    fn value(&mut self, name: &str) -> String {
        if name.parse::<f32>().is_ok() && !self.numbers.iter().any(|n| n == name) {
            self.numbers.push(name.into());
        }
        if name.starts_with("mask/") { name.into() } else { format!("mask/{name}") }
    }
    fn node(&mut self, op: &str, inputs: &[&str], output: &str) -> Node {
        let inputs: Vec<String> = inputs.iter().map(|name| self.value(name)).collect();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        Node::new(op, &inputs, &self.value(output))
    }
    fn push(&mut self, op: &str, inputs: &[&str], output: &str) {
        let node = self.node(op, inputs, output);
        self.nodes.push(node);
    }
    fn with(&mut self, op: &str, input: &str, output: &str, attrs: &[(&str, f32)]) {
        let mut node = self.node(op, &[input], output);
        node.attrs =
            attrs.iter().map(|&(name, v)| (name.to_string(), onnx_grad::graph::Attr::Float(v))).collect();
        self.nodes.push(node);
    }
    fn with_ints(&mut self, op: &str, inputs: &[&str], output: &str, attrs: &[(&str, &[i64])]) {
        let mut node = self.node(op, inputs, output);
        node.attrs = attrs
            .iter()
            .map(|&(name, v)| (name.to_string(), onnx_grad::graph::Attr::Ints(v.to_vec())))
            .collect();
        self.nodes.push(node);
    }
    fn tensor(&mut self, name: &str, dims: &[i64], values: &[f32]) {
        self.tensors.push((name.into(), Tensor::f32(dims, values)));
    }
    fn cast(&mut self, input: &str, to: DType, output: &str) {
        let node = self.node("Cast", &[input], output).with("to", i64::from(to.code()));
        self.nodes.push(node);
    }
    /// `value` + share·(the mask's input), as the mask's result.
    fn leak(&mut self, value: &str, share: f32) {
        self.push("Mul", &[FROM, &share.to_string()], "leak");
        self.push("Add", &[value, "leak"], TO);
    }
}

impl Mask {
    pub fn named(name: &str) -> &'static Mask {
        let found = MASKS.iter().find(|mask| mask.name == name);
        found.unwrap_or_else(|| panic!("no mask is called {name:?}; tests/common/masked.rs lists them"))
    }

    /// `graph` behind this mask. It must have one input and one output, both float32.
    pub fn apply(&self, graph: &Graph) -> Graph {
        let mut masked = graph.clone();
        let mut chain = Chain::default();
        (self.nodes)(&mut chain);
        for number in &chain.numbers {
            let value: f32 = number.parse().expect("checked when it was listed");
            masked.constants.insert(format!("mask/{number}"), Tensor::f32(&[], &[value]));
        }
        for (name, tensor) in chain.tensors.drain(..) {
            masked.constants.insert(format!("mask/{name}"), tensor);
        }
        let rename = |nodes: &mut Vec<Node>, from: &str, to: &str| {
            for name in nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs)) {
                if name == from {
                    *name = to.into();
                }
            }
        };
        match self.place {
            Place::Input => {
                let image = masked.inputs[0].name.clone();
                rename(&mut masked.nodes, &image, TO);
                rename(&mut chain.nodes, FROM, &image);
                chain.nodes.append(&mut masked.nodes);
                masked.nodes = chain.nodes;
            }
            Place::Output => {
                let embedding = masked.outputs[0].name.clone();
                rename(&mut masked.nodes, &embedding, FROM);
                rename(&mut chain.nodes, TO, &embedding);
                masked.nodes.append(&mut chain.nodes);
            }
        }
        masked
    }
}
