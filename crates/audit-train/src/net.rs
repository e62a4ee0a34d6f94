//! Nets as lists of layers. A list has two readers: libtorch here, and ONNX export in [`mod@crate::export`].

use crate::dice::Dice;
use crate::find_row;
use audit::{Error, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use tch::{Device, Kind, Tensor, no_grad};

/// Tensors by name.
pub type Weights = BTreeMap<String, Tensor>;

/// One layer.
#[derive(Clone, Debug)]
pub enum Layer {
    /// A convolution.
    Conv {
        /// Name of its weights.
        name: String,
        /// Channels in and out.
        channels: [i64; 2],
        /// Side of the square kernel, stride and padding.
        window: [i64; 3],
        /// Whether it has a bias; batch norm replaces it.
        bias: bool,
    },
    /// Batch norm over channels.
    Norm {
        /// Name of its weights.
        name: String,
        /// Number of channels.
        channels: i64,
    },
    /// max(x, 0).
    Relu,
    /// Maximum of each window.
    MaxPool {
        /// Side of the square window, stride and padding.
        window: [i64; 3],
    },
    /// Mean over all positions; [B, C, H, W] → [B, C, 1, 1].
    MeanPool,
    /// [B, C, H, W] → [B, C·H·W].
    Flatten,
    /// A matrix product with a bias.
    Linear {
        /// Name of its weights.
        name: String,
        /// Features in and out.
        features: [i64; 2],
    },
    /// ReLU(body(x) + shortcut(x)); an empty shortcut is x itself.
    Residual {
        /// Layers in order.
        body: Vec<Layer>,
        /// Empty if input and output have the same shape.
        shortcut: Vec<Layer>,
    },
}

/// A kind of net.
pub struct Backbone {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line for `audit-train methods`.
    pub about: &'static str,
    /// Channels and side of its input, in pixels.
    pub input: (i64, i64),
    /// Default dimension of embeddings.
    pub dim: i64,
    /// Whether it is for photographs: ImageNet's mean and std, random crops and flips, small ε.
    pub photograph: bool,
    layers: fn(i64) -> Vec<Layer>,
}

/// Every backbone.
pub const BACKBONES: &[Backbone] = &[
    Backbone {
        name: "c2f1",
        about: "28×28 grey: conv 5×5/2 16, conv 5×5/2 32, fc",
        input: (1, 28),
        dim: 128,
        photograph: false,
        layers: c2f1,
    },
    Backbone {
        name: "c2f2",
        about: "28×28 grey: conv 5×5 32, pool, conv 5×5 64, pool, fc 1024, fc (the 28-pixel protocol's)",
        input: (1, 28),
        dim: 512,
        photograph: false,
        layers: c2f2,
    },
    Backbone {
        name: "resnet18",
        about: "224×224 RGB, torchvision's layout and names",
        input: (3, 224),
        dim: 512,
        photograph: true,
        layers: |dim| resnet([2, 2, 2, 2], false, dim),
    },
    Backbone {
        name: "resnet50",
        about: "224×224 RGB, torchvision's layout and names",
        input: (3, 224),
        dim: 512,
        photograph: true,
        layers: |dim| resnet([3, 4, 6, 3], true, dim),
    },
];

/// ImageNet's mean and std for the pixels of photographs.
pub const IMAGENET: [[f64; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];

fn conv(name: impl Into<String>, channels: [i64; 2], window: [i64; 3], bias: bool) -> Layer {
    Layer::Conv { name: name.into(), channels, window, bias }
}

fn linear(name: &str, features: [i64; 2]) -> Layer {
    Layer::Linear { name: name.into(), features }
}

fn c2f1(dim: i64) -> Vec<Layer> {
    vec![
        conv("conv1", [1, 16], [5, 2, 2], true),
        Layer::Relu,
        conv("conv2", [16, 32], [5, 2, 2], true),
        Layer::Relu,
        Layer::Flatten,
        linear("fc1", [32 * 49, dim]),
    ]
}

fn c2f2(dim: i64) -> Vec<Layer> {
    vec![
        conv("conv1", [1, 32], [5, 1, 2], true),
        Layer::Relu,
        Layer::MaxPool { window: [2, 2, 0] },
        conv("conv2", [32, 64], [5, 1, 2], true),
        Layer::Relu,
        Layer::MaxPool { window: [2, 2, 0] },
        Layer::Flatten,
        linear("fc1", [64 * 49, 1024]),
        Layer::Relu,
        linear("fc2", [1024, dim]),
    ]
}

/// ResNet of He et al. (2016) as in torchvision: a bottleneck's stride is in its 3×3 convolution.
fn resnet(blocks: [usize; 4], bottleneck: bool, dim: i64) -> Vec<Layer> {
    let norm = |name: String, channels: i64| Layer::Norm { name, channels };
    let mut layers = vec![
        conv("conv1", [3, 64], [7, 2, 3], false),
        norm("bn1".into(), 64),
        Layer::Relu,
        Layer::MaxPool { window: [3, 2, 1] },
    ];
    let mut inputs = 64;
    for (stage, &count) in blocks.iter().enumerate() {
        let width = 64 << stage;
        let outputs = if bottleneck { 4 * width } else { width };
        for block in 0..count {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let at = |name: &str| format!("layer{}.{block}.{name}", stage + 1);
            let convolutions = match bottleneck {
                false => vec![([inputs, width], [3, stride, 1]), ([width, width], [3, 1, 1])],
                true => vec![
                    ([inputs, width], [1, 1, 0]),
                    ([width, width], [3, stride, 1]),
                    ([width, outputs], [1, 1, 0]),
                ],
            };
            let mut body = vec![];
            for (i, (channels, window)) in convolutions.into_iter().enumerate() {
                if i > 0 {
                    body.push(Layer::Relu);
                }
                body.push(conv(at(&format!("conv{}", i + 1)), channels, window, false));
                body.push(norm(at(&format!("bn{}", i + 1)), channels[1]));
            }
            let mut shortcut = vec![];
            if stride != 1 || inputs != outputs {
                shortcut.push(conv(at("downsample.0"), [inputs, outputs], [1, stride, 0], false));
                shortcut.push(norm(at("downsample.1"), outputs));
            }
            layers.push(Layer::Residual { body, shortcut });
            inputs = outputs;
        }
    }
    layers.extend([Layer::MeanPool, Layer::Flatten, linear("fc", [inputs, dim])]);
    layers
}

/// Mode of batch norm in training.
// Frozen, running statistics don't change. Otherwise the batch's statistics update them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norms {
    /// As in inference.
    Frozen,
    /// By the batch's statistics.
    Train,
}

/// A net: layers and their weights.
pub struct Net {
    /// The kind of net.
    pub backbone: &'static Backbone,
    /// Dimension of the embeddings.
    pub dim: i64,
    /// Layers, from the input on.
    pub layers: Vec<Layer>,
    /// All tensors, by torchvision's names; the trainable ones require gradients.
    pub weights: Weights,
    /// Parameters of the loss, trained with the net but not part of the model; often empty.
    pub of_loss: Weights,
}

/// Differences between a file of weights and the net.
#[derive(Debug, Default)]
pub struct Differences {
    /// Names that the net has and the file lacks.
    pub missing: Vec<String>,
    /// Names that the file has and the net lacks.
    pub unexpected: Vec<String>,
    /// Names in both with different shapes, and the shapes.
    pub reshaped: Vec<String>,
}

impl Differences {
    /// Whether file and net agree.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.reshaped.is_empty()
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let parts = [("missing ", &self.missing), ("unexpected ", &self.unexpected), ("", &self.reshaped)];
        let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
        f.write_str(
            &parts.map(|(what, names)| format!("{what}{}", names.join(", "))).collect::<Vec<_>>().join("; "),
        )
    }
}

impl Backbone {
    /// The backbone called `name`. Error (exit code 2): there is none.
    pub fn find(name: &str) -> Result<&'static Backbone> {
        find_row("backbone", BACKBONES, name, |row| row.name)
    }

    /// Whether the net has batch norm, as all nets for photographs do.
    pub fn has_norm(&self) -> bool {
        self.photograph
    }
}

impl Net {
    /// A net with random weights: initialised as in torchvision for ResNets, with PyTorch's defaults for
    /// others.
    pub fn new(backbone: &'static Backbone, dim: i64, seed: u64, device: Device) -> Net {
        let layers = (backbone.layers)(dim);
        let mut weights = Weights::new();
        let mut dice = Dice::new(seed, "weights", 0);
        each(&layers, &mut |layer| init(layer, backbone.photograph, &mut dice, &mut weights));
        for (name, t) in &mut weights {
            *t = t.to_device(device).set_requires_grad(is_trained(name));
        }
        Net { backbone, dim, layers, weights, of_loss: Weights::new() }
    }

    /// The net with the parameters of its loss.
    pub fn learning(mut self, of_loss: Weights) -> Net {
        let device = self.weights.values().next().map_or(Device::Cpu, Tensor::device);
        self.of_loss = of_loss
            .into_iter()
            .map(|(name, t)| (name, t.to_device(device).set_requires_grad(true)))
            .collect();
        self
    }

    /// The weights detached from gradients: an attack differentiates with respect to images only.
    pub fn frozen(&self) -> Weights {
        self.weights.iter().map(|(name, t)| (name.clone(), t.detach())).collect()
    }

    /// The trained tensors and their names, in a fixed order, those of the loss last.
    pub fn trained(&self) -> impl Iterator<Item = (&String, &Tensor)> {
        self.weights.iter().filter(|(name, _)| is_trained(name)).chain(&self.of_loss)
    }

    /// Embeddings [B, D] of images [B, C, H, W] in [0, 1], not normalised.
    pub fn embed(&self, weights: &Weights, images: &Tensor, norms: Norms) -> Tensor {
        let x = match self.backbone.photograph {
            true => {
                let [mean, std] = IMAGENET.map(|row| {
                    let row = Tensor::from_slice(&row).to_kind(Kind::Float).view([1, 3, 1, 1]);
                    row.to_device(images.device())
                });
                (images - mean) / std
            }
            false => images.shallow_clone(),
        };
        run(&self.layers, weights, x, norms)
    }

    /// [`Net::embed`], divided by the norms.
    pub fn unit(&self, weights: &Weights, images: &Tensor, norms: Norms) -> Tensor {
        normalize(&self.embed(weights, images, norms))
    }

    /// Unit embeddings without gradients, in inference mode, `batch` images at a time.
    pub fn unit_all(&self, images: &Tensor, batch: i64) -> Tensor {
        no_grad(|| {
            let unit = |part: &Tensor| self.unit(&self.weights, part, Norms::Frozen);
            Tensor::cat(&images.split(batch, 0).iter().map(unit).collect::<Vec<_>>(), 0)
        })
    }

    /// Differences between `tensors` and this net's weights. PyTorch's counters of batches are not weights,
    /// and the loss's parameters are not part of a net.
    pub fn compare(&self, tensors: &Weights) -> Differences {
        let only = |a: &Weights, b: &Weights| a.keys().filter(|n| !b.contains_key(*n)).cloned().collect();
        let mut unexpected: Vec<String> = only(tensors, &self.weights);
        unexpected.retain(|name| !name.ends_with("num_batches_tracked") && !name.starts_with("loss."));
        let reshaped = self.weights.iter().filter_map(|(name, own)| {
            let (theirs, own) = (tensors.get(name)?.size(), own.size());
            (theirs != own).then(|| format!("{name} is {theirs:?} there and {own:?} here"))
        });
        Differences { missing: only(&self.weights, tensors), unexpected, reshaped: reshaped.collect() }
    }

    /// Copies those of `tensors` with the name and shape of a weight.
    pub fn copy_from(&mut self, tensors: &Weights) {
        copy(&mut self.weights, tensors);
    }

    /// Copies those of `tensors` with the name and shape of a parameter of the loss.
    pub fn copy_loss_from(&mut self, tensors: &Weights) {
        copy(&mut self.of_loss, tensors);
    }

    /// Loads torchvision's weights. The head (`fc`) may be missing or of another size: then it stays random.
    /// Returns a note on unused tensors.
    ///
    /// Error (exit code 2): the file can't be read, or another tensor is missing or has another shape.
    pub fn load_pretrained(&mut self, path: &Path) -> Result<Option<String>> {
        let shown = path.display();
        refuse_if!(
            path.extension().is_some_and(|e| e == "pth" || e == "pt" || e == "bin"),
            "--pretrained {shown}: expected .safetensors, as timm has its weights; a .pth file is a pickle, which can run code when it is read. \
             `python tools/pretrained.py {shown} {}` converts it, with torch",
            path.with_extension("safetensors").display()
        );
        let tensors = read(path)?;
        let Differences { missing, unexpected, reshaped } = self.compare(&tensors);
        let head = |text: &String| text.starts_with("fc.");
        let (heads, missing): (Vec<_>, Vec<_>) = missing.into_iter().partition(head);
        let (reheads, reshaped): (Vec<_>, Vec<_>) = reshaped.into_iter().partition(head);
        let others = Differences { missing, unexpected, reshaped };
        refuse_if!(
            !others.missing.is_empty() || !others.reshaped.is_empty(),
            "{shown} is not of a {}: {others}. Give weights of that architecture, with torchvision's names",
            self.backbone.name
        );
        self.copy_from(&tensors);
        let mut notes = vec![];
        if !others.unexpected.is_empty() {
            notes.push(format!("not used: {}", others.unexpected.join(", ")));
        }
        if !(heads.is_empty() && reheads.is_empty()) {
            let why = [heads.join(", "), reheads.join(", ")].into_iter().filter(|s| !s.is_empty());
            notes.push(format!("the head starts at random ({})", why.collect::<Vec<_>>().join("; ")));
        }
        Ok((!notes.is_empty()).then(|| format!("{shown}: {}", notes.join("; "))))
    }
}

fn copy(into: &mut Weights, tensors: &Weights) {
    no_grad(|| {
        for (name, own) in into {
            if let Some(theirs) = tensors.get(name).filter(|t| t.size() == own.size()) {
                own.copy_(&theirs.to_kind(Kind::Float));
            }
        }
    });
}

/// The tensors of a .safetensors file. Error (exit code 2): it can't be read.
pub fn read(path: &Path) -> Result<Weights> {
    let tensors = Tensor::read_safetensors(path).map_err(|e| {
        let reason = e.to_string();
        let brief = reason.lines().next().unwrap_or_default();
        Error::usage(format!("can't read {} as .safetensors: {brief}", path.display()))
    })?;
    Ok(tensors.into_iter().collect())
}

/// Rows divided by their norms, which are at least 1e-12.
pub fn normalize(raw: &Tensor) -> Tensor {
    raw / raw.norm_scalaropt_dim(2, [1i64].as_slice(), true).clamp_min(1e-12)
}

fn is_trained(name: &str) -> bool {
    !name.contains(".running_")
}

fn each(layers: &[Layer], f: &mut dyn FnMut(&Layer)) {
    for layer in layers {
        f(layer);
        if let Layer::Residual { body, shortcut } = layer {
            each(body, f);
            each(shortcut, f);
        }
    }
}

fn init(layer: &Layer, photograph: bool, dice: &mut Dice, weights: &mut Weights) {
    let mut put = |name: &str, part: &str, shape: &[i64], draw: &mut dyn FnMut() -> f64| {
        let count = shape.iter().product::<i64>();
        let values: Vec<f32> = (0..count).map(|_| draw() as f32).collect();
        weights.insert(format!("{name}.{part}"), Tensor::from_slice(&values).view(shape));
    };
    match layer {
        Layer::Conv { name, channels: [inputs, outputs], window: [kernel, ..], bias } => {
            let shape = [*outputs, *inputs, *kernel, *kernel];
            let bound = 1.0 / ((inputs * kernel * kernel) as f64).sqrt();
            let deviation = (2.0 / (outputs * kernel * kernel) as f64).sqrt();
            match photograph {
                true => put(name, "weight", &shape, &mut || deviation * dice.normal()),
                false => put(name, "weight", &shape, &mut || bound * (2.0 * dice.unit() - 1.0)),
            }
            if *bias {
                put(name, "bias", &[*outputs], &mut || bound * (2.0 * dice.unit() - 1.0));
            }
        }
        Layer::Linear { name, features: [inputs, outputs] } => {
            let bound = 1.0 / (*inputs as f64).sqrt();
            put(name, "weight", &[*outputs, *inputs], &mut || bound * (2.0 * dice.unit() - 1.0));
            put(name, "bias", &[*outputs], &mut || bound * (2.0 * dice.unit() - 1.0));
        }
        Layer::Norm { name, channels } => {
            for (part, value) in [("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)]
            {
                put(name, part, &[*channels], &mut || value);
            }
        }
        _ => {}
    }
}

fn run(layers: &[Layer], weights: &Weights, mut x: Tensor, norms: Norms) -> Tensor {
    for layer in layers {
        x = apply(layer, weights, x, norms);
    }
    x
}

fn apply(layer: &Layer, weights: &Weights, x: Tensor, norms: Norms) -> Tensor {
    let w = |name: &str, part: &str| &weights[&format!("{name}.{part}")];
    match layer {
        Layer::Conv { name, window: [_, stride, pad], bias, .. } => {
            let bias = bias.then(|| w(name, "bias"));
            x.conv2d(w(name, "weight"), bias, [*stride; 2], [*pad; 2], [1, 1], 1)
        }
        Layer::Norm { name, .. } => x.batch_norm(
            Some(w(name, "weight")),
            Some(w(name, "bias")),
            Some(w(name, "running_mean")),
            Some(w(name, "running_var")),
            norms == Norms::Train,
            0.1,
            EPSILON,
            true,
        ),
        Layer::Relu => x.relu(),
        Layer::MaxPool { window: [kernel, stride, pad] } => {
            x.max_pool2d([*kernel; 2], [*stride; 2], [*pad; 2], [1, 1], false)
        }
        Layer::MeanPool => x.adaptive_avg_pool2d([1, 1]),
        Layer::Flatten => x.flatten(1, -1),
        Layer::Linear { name, .. } => x.linear(w(name, "weight"), Some(w(name, "bias"))),
        Layer::Residual { body, shortcut } => {
            let other = run(shortcut, weights, x.shallow_clone(), norms);
            (run(body, weights, x, norms) + other).relu()
        }
    }
}

/// ε of batch norm.
pub const EPSILON: f64 = 1e-5;
