//! The model card: what a model file doesn't say about its input, and the preprocessing that follows from it.

use super::remedy::{self, Flags};
use audit_base::choice::Choice;
use audit_base::{Error, Result};
pub use audit_report::record::{Axes, Channels, Preprocessing};
use audit_report::record::{Crop, Interpolation, Metric};
use onnx_grad::Graph;
use onnx_grad::graph::{Attr, DType, Dim, Node, Tensor, Value};
use serde::{Deserialize, Serialize};

/// How the tokens or the positions of a feature map are pooled to one embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The first token.
    Cls,
    /// The mean over tokens or positions.
    Mean,
    /// The maximum over tokens or positions, per dimension.
    Max,
}

impl Choice for Pooling {
    const ALL: &'static [(Pooling, &'static str, &'static str)] = &[
        (Pooling::Cls, "cls", "The first token"),
        (Pooling::Mean, "mean", "The mean over tokens or positions"),
        (Pooling::Max, "max", "The maximum over tokens or positions, per dimension"),
    ];
}

/// The content of `model.yaml` beside `model.onnx`, or of flags. Missing keys are read from the graph, if it
/// states them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Card {
    /// Name of the input for the images.
    pub input: Option<String>,
    /// Name of the embedding. It may be any value of the graph.
    pub output: Option<String>,
    /// How tokens or the positions of a feature map are pooled to one embedding.
    pub pooling: Option<Pooling>,
    /// Height and width of the input in pixels, for models that leave them open.
    #[serde(default, deserialize_with = "sides", skip_serializing_if = "Option::is_none")]
    pub size: Option<[usize; 2]>,
    /// Whether channels come first or last.
    pub layout: Option<Axes>,
    /// Channel order.
    pub channels: Option<Channels>,
    /// What pixel values 0 and 255 become before mean and std are applied: [0, 1] (default), [0, 255] or
    /// [-1, 1].
    pub range: Option<[f32; 2]>,
    /// Subtracted, per channel, in units of `range`.
    #[serde(default, deserialize_with = "channels", skip_serializing_if = "Option::is_none")]
    pub mean: Option<Vec<f32>>,
    /// Divided by, per channel, in units of `range`.
    #[serde(default, deserialize_with = "channels", skip_serializing_if = "Option::is_none")]
    pub std: Option<Vec<f32>>,
    /// Height and width that images are resized to before the centre crop to the input's size.
    #[serde(default, deserialize_with = "sides", skip_serializing_if = "Option::is_none")]
    pub resize: Option<[usize; 2]>,
    /// Length in pixels that the shorter side is resized to before the centre crop; the longer side keeps its
    /// proportion. It excludes `resize`.
    pub resize_shorter: Option<usize>,
    /// Where the centre crop begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crop: Option<Crop>,
    /// How images are resized.
    pub interpolation: Option<Interpolation>,
    /// Distance between embeddings.
    pub metric: Option<Metric>,
    /// The model's licence, which is copied into reports.
    pub licence: Option<String>,
    /// Source of the model; copied into reports.
    pub source: Option<String>,
    /// SHA-256 of the model file that the card belongs to. Another file is refused.
    pub sha256: Option<String>,
    /// The file of another program that it was read from ([`super::exported`]), and whether flags changed it.
    /// No card in YAML has it.
    #[serde(skip)]
    pub taken_from: Option<String>,
    /// The file that states `size`; `None` if a flag does. No card in YAML has it.
    #[serde(skip)]
    pub size_from: Option<String>,
    /// Whether images are stretched to the input's size if nothing is stated, as evaluation code of
    /// benchmarks does. No card in YAML has it.
    #[serde(skip)]
    pub stretched: bool,
}

/// Cards that the program knows by name: name and YAML.
pub const CARDS: [(&str, &str); 2] = [
    ("face-bgr", include_str!("../../../cards/face-bgr.yaml")),
    ("face-rgb", include_str!("../../../cards/face-rgb.yaml")),
];

/// One value for all, or a list, as the flags take them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Few<T> {
    One(T),
    All(Vec<T>),
}

fn channels<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Option<Vec<f32>>, D::Error> {
    let wrong = |_| {
        serde::de::Error::custom(
            "expected a number, or a list of one for each channel, such as [0.5, 0.5, 0.5]",
        )
    };
    Ok(Some(match Few::deserialize(from).map_err(wrong)? {
        Few::One(value) => vec![value],
        Few::All(values) => values,
    }))
}

fn sides<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Option<[usize; 2]>, D::Error> {
    let wrong =
        || serde::de::Error::custom("expected [height, width], such as [256, 256], or one number for both");
    match Few::deserialize(from).map_err(|_: D::Error| wrong())? {
        Few::One(side) => Ok(Some([side; 2])),
        Few::All(both) => both.try_into().map(Some).map_err(|_| wrong()),
    }
}

impl Card {
    /// Refuses sides that no image can be resized to (exit code 2). `file` is what errors call the card.
    pub fn check(&self, file: &str) -> Result<()> {
        let pair = |sides: Option<[usize; 2]>| sides.map_or(0, |[h, w]| h.max(w));
        let sides = [
            ("size", pair(self.size), LARGEST as usize),
            ("resize", pair(self.resize), LARGEST_RESIZE),
            ("resize_shorter", self.resize_shorter.unwrap_or(0), LARGEST_RESIZE),
        ];
        match sides.iter().find(|(_, side, most)| side > most) {
            None => Ok(()),
            Some((key, side, most)) => Err(Error::usage(format!(
                "{file}: {key} is {side} pixels, and at most {most} are supported. State the size that the model was trained with"
            ))),
        }
    }

    /// This card, with the gaps filled from another one.
    pub fn or(self, other: Card) -> Card {
        Card {
            input: self.input.or(other.input),
            output: self.output.or(other.output),
            pooling: self.pooling.or(other.pooling),
            size: self.size.or(other.size),
            layout: self.layout.or(other.layout),
            channels: self.channels.or(other.channels),
            range: self.range.or(other.range),
            mean: self.mean.or(other.mean),
            std: self.std.or(other.std),
            // The two keys for the size before the crop exclude each other: a card that states one has no gap
            // at the other.
            resize: self.resize.or(other.resize.filter(|_| self.resize_shorter.is_none())),
            resize_shorter: self.resize_shorter.or(other.resize_shorter.filter(|_| self.resize.is_none())),
            crop: self.crop.or(other.crop),
            interpolation: self.interpolation.or(other.interpolation),
            metric: self.metric.or(other.metric),
            licence: self.licence.or(other.licence),
            source: self.source.or(other.source),
            sha256: self.sha256.or(other.sha256),
            taken_from: self.taken_from.or(other.taken_from),
            size_from: self.size_from.or(other.size_from),
            stretched: self.stretched || other.stretched,
        }
    }
}

/// Mean and std of ImageNet, which most models for photographs were trained with.
pub(super) const IMAGENET: [[f32; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];

/// The largest side of an input, in pixels. Files that state a larger one are damaged.
const LARGEST: i64 = 1 << 15;

/// The largest side that images are resized to, in pixels. One such image takes 800 MB.
const LARGEST_RESIZE: usize = 1 << 13;

/// Models with a smaller input than this, in pixels, are for digits and characters. They usually take pixels
/// as they are.
const PHOTOGRAPH: usize = 64;

/// Height and width of a model's input.
fn input_sides(input: &Value, layout: Axes, card: &Card) -> Result<[usize; 2]> {
    let dims = dimensions(input);
    let at = if layout == Axes::Nchw { 2 } else { 1 };
    let taken = |i: usize| match (&dims[at + i], card.size) {
        (Dim::Free(_), Some(size)) => size[i] as i64,
        (Dim::Known(n), _) => *n,
        (Dim::Free(_), None) => 0,
    };
    let side = |i: usize, name: &str| match (&dims[at + i], card.size.map(|size| size[i])) {
        (Dim::Known(n), Some(size)) if *n != size as i64 => Err(wrong(
            input,
            match &card.size_from {
                None => format!("the {name} is fixed to {n}, but --size states {size}. Leave --size out"),
                Some(file) => format!(
                    "the {name} is fixed to {n}, but {file} states {size}. If the file is this model's, add {}",
                    fitting(card, [taken(0), taken(1)])
                ),
            },
        )),
        (Dim::Known(n), _) if !(1..=LARGEST).contains(n) => Err(wrong(
            input,
            format!(
                "the {name} is {n}, and 1 to {LARGEST} are supported. The file is damaged; export it again"
            ),
        )),
        (Dim::Known(n), _) => Ok(*n as usize),
        (Dim::Free(_), Some(size)) if size as i64 <= LARGEST => Ok(size),
        (Dim::Free(_), Some(size)) => {
            Err(wrong(input, format!("--size states {size}, and at most {LARGEST} are supported")))
        }
        (Dim::Free(_), None) => {
            Err(wrong(input, format!("the {name} is left open. State --size, for instance --size 224")))
        }
    };
    Ok([side(0, "height")?, side(1, "width")?])
}

/// Flags that fit what a card states of the size to an input of these sides.
fn fitting(card: &Card, [height, width]: [i64; 2]) -> String {
    match card.resize_shorter {
        Some(_) if height == width => format!("--size {height} --resize-shorter {height}"),
        _ => format!("--size {height}x{width} --resize {height}x{width}"),
    }
}

/// Whether an input of images leaves height or width open, and the card doesn't state them.
pub fn open_sides(input: &Value, card: &Card) -> bool {
    let Some((layout, _)) = image_like(input, card) else { return false };
    let from = if layout == Axes::Nchw { 2 } else { 1 };
    let dims = dimensions(input);
    card.size.is_none() && dims.iter().skip(from).take(2).any(|side| matches!(side, Dim::Free(_)))
}

/// Scale and shift of each channel, which make the model's values of pixels in [0, 1]. With `imagenet`, a
/// card that states no mean and std has those of ImageNet.
fn scale_and_shift(
    input: &Value,
    card: &Card,
    channels: usize,
    order: Channels,
    imagenet: bool,
) -> Result<(Vec<f32>, Vec<f32>)> {
    let alone = |stated: &str, other: &str, none: &str| {
        Err(wrong(
            input,
            format!("--{stated} is stated without --{other}. State both; --{other} {none} means none"),
        ))
    };
    match (&card.mean, &card.std) {
        (Some(_), None) => return alone("mean", "std", "1"),
        (None, Some(_)) => return alone("std", "mean", "0"),
        _ => {}
    }
    let per_channel = |values: &Option<Vec<f32>>, default: f32, usual: [f32; 3], name: &str| match values {
        Some(v) if v.len() == channels => Ok(v.clone()),
        Some(v) if v.len() == 1 => Ok(vec![v[0]; channels]),
        Some(v) => Err(wrong(
            input,
            format!(
                "the input has {channels} channels, but --{name} has {} values. State one value or {channels}",
                v.len()
            ),
        )),
        None if imagenet && order == Channels::Bgr => Ok(usual.into_iter().rev().collect()),
        None if imagenet => Ok(usual.to_vec()),
        None => Ok(vec![default; channels]),
    };
    let mean = per_channel(&card.mean, 0.0, IMAGENET[0], "mean")?;
    let std = per_channel(&card.std, 1.0, IMAGENET[1], "std")?;
    if let Some(bad) = std.iter().find(|s| !s.is_finite() || **s <= 0.0) {
        return Err(wrong(input, format!("--std must be above 0, and is {bad}")));
    }
    let [low, high] = card.range.unwrap_or([0.0, 1.0]);
    // Mean and std count from 0 to 255, but the pixels don't.
    if let Some(mean) = mean.iter().find(|mean| high <= 1.0 && **mean > high) {
        let range = card.range.is_none().then(|| remedy::row("--range", "0,255"));
        let what = format!(
            "mean {mean} lies outside the range of the pixels, {low} to {high}. If mean and std count from 0 to 255, state --range 0,255 \
             (in a card: range: [0, 255])"
        );
        return Err(wrong(input, what).lacking(range));
    }
    let scale: Vec<f32> = std.iter().map(|s| (high - low) / s).collect();
    let shift: Vec<f32> = mean.iter().zip(&std).map(|(m, s)| (low - m) / s).collect();
    if !scale.iter().chain(&shift).all(|v| v.is_finite()) {
        return Err(wrong(
            input,
            format!(
                "with range {low} to {high}, mean {mean:?} and std {std:?}, pixels have values that are not finite"
            ),
        ));
    }
    Ok((scale, shift))
}

/// Scale and shift of each channel of an input of integers, whose black and white are `levels`. Errors: the
/// card states others.
fn grey_levels(
    input: &Value,
    card: &Card,
    channels: usize,
    order: Channels,
    levels: [f32; 2],
) -> Result<(Vec<f32>, Vec<f32>)> {
    let [low, high] = levels;
    let usual = (vec![high - low; channels], vec![low; channels]);
    if card.range.is_none() && card.mean.is_none() && card.std.is_none() {
        return Ok(usual);
    }
    let stated = scale_and_shift(
        input,
        &Card { range: card.range.or(Some(levels)), ..card.clone() },
        channels,
        order,
        false,
    )?;
    let both = |(scale, shift): &(Vec<f32>, Vec<f32>)| [scale.clone(), shift.clone()].concat();
    match both(&stated).iter().zip(both(&usual)).all(|(a, b)| (a - b).abs() < 1e-3) {
        true => Ok(usual),
        false => Err(wrong(
            input,
            format!(
                "it is {}, and takes the grey levels {low} to {high} as they are: what is subtracted and divided lies in the graph. Leave \
                 range, mean and std out, or state --range={low},{high} --mean 0 --std 1",
                input.dtype.name()
            ),
        )),
    }
}

/// What images are resized to before the centre crop to the input's `sides`: `resize` and `resize_shorter` of
/// [`Preprocessing`].
///
/// If the card states neither, photographs for a square input keep their aspect ratio: the shorter side
/// becomes the input's, or 256 for an input of 224, as torchvision's and timm's evaluation transforms do.
/// Inputs that are not square (re-identification), line images and benchmarks are stretched.
fn resized(
    input: &Value,
    card: &Card,
    sides: [usize; 2],
    photograph: bool,
) -> Result<(Option<[usize; 2]>, Option<usize>)> {
    let [height, width] = sides;
    let from = card.taken_from.as_ref().map_or(String::new(), |from| format!(" ({from})"));
    let too_small = |what: String, enough: String| {
        let smaller = format!("{what}{from}, which is smaller than the input of {height}x{width}");
        Err(wrong(input, format!("{smaller}. State at least {enough}")))
    };
    let larger = if height == 224 { 256 } else { height };
    match (card.resize, card.resize_shorter) {
        (Some(_), Some(_)) => {
            Err(wrong(input, "resize and resize_shorter are both stated. Leave one of them out"))
        }
        (None, Some(side)) if side < height.max(width) => too_small(
            format!("resize_shorter resizes the shorter side of images to {side}"),
            format!("--resize-shorter {}", height.max(width)),
        ),
        (Some([h, w]), _) if h < height || w < width => {
            too_small(format!("resize makes images {h}x{w}"), format!("--resize {height}x{width}"))
        }
        (None, None) if !photograph || height != width => Ok((None, None)),
        (None, None) if card.stretched => Ok(((larger != height).then_some([larger; 2]), None)),
        (None, None) => Ok((None, Some(larger))),
        stated => Ok(stated),
    }
}

/// An error about the model's input or about what is stated of it (exit code 2).
fn wrong(input: &Value, what: impl std::fmt::Display) -> Error {
    Error::usage(format!("input {:?} {}: {what}", input.name, input.shape_text()))
}

/// The preprocessing of a model's input. What the card states comes first, then what the graph says of the
/// input, then what is usual. Errors (exit code 2): the input isn't a batch of images, leaves something open
/// that the card doesn't state, or contradicts the card.
pub fn preprocessing(input: &Value, card: &Card) -> Result<Preprocessing> {
    let wrong = |what: String| wrong(input, what);
    let Some((layout, channels)) = image_like(input, card) else {
        let unlike = unlike(input, card);
        return Err(wrong(unlike.words(input)).lacking(unlike.flags()));
    };
    let [height, width] = input_sides(input, layout, card)?;
    let order = match (card.channels, channels) {
        (None, 1) => Channels::Grey,
        (None, _) => Channels::Rgb,
        (Some(order), _) if (order == Channels::Grey) != (channels == 1) => {
            return Err(wrong(format!(
                "the input has {channels} channels, which don't fit --channels {}",
                order.name()
            )));
        }
        (Some(order), _) => order,
    };
    let photograph = channels == 3 && height.min(width) >= PHOTOGRAPH;
    let levels = input.dtype.grey_levels();
    let assumed = levels.is_none() && photograph && card.mean.is_none() && card.range.is_none();
    let (scale, shift) = match levels {
        None => scale_and_shift(input, card, channels, order, assumed)?,
        Some(levels) => grey_levels(input, card, channels, order, levels)?,
    };
    let (resize, resize_shorter) = resized(input, card, [height, width], photograph)?;
    let crops = resize_shorter.is_some() || resize.is_some_and(|sides| sides != [height, width]);
    Ok(Preprocessing {
        channels,
        height,
        width,
        layout,
        order,
        scale,
        shift,
        resize,
        resize_shorter,
        crop: card.crop.filter(|_| crops).unwrap_or_default(),
        interpolation: card.interpolation.unwrap_or_default(),
        assumed,
        taken_from: card.taken_from.clone(),
        size_found: false,
        integers: levels.map(|_| input.dtype.name().to_string()),
    })
}

/// Puts the preprocessing in front of input `name` of a graph; the new input is [`super::IMAGE`].
pub fn prepend(preprocessing: &Preprocessing, graph: &mut Graph, name: &str, batch: usize) {
    let c = preprocessing.channels as i64;
    type Step = (&'static str, Option<Tensor>, Option<(&'static str, Attr)>);
    let mut steps: Vec<Step> = Vec::new();
    if preprocessing.order == Channels::Bgr {
        steps.push(("Gather", Some(Tensor::ints(&[2, 1, 0])), Some(("axis", Attr::Int(1)))));
    }
    if preprocessing.scale.iter().any(|s| *s != 1.0) {
        steps.push(("Mul", Some(Tensor::f32(&[1, c, 1, 1], &preprocessing.scale)), None));
    }
    if preprocessing.shift.iter().any(|s| *s != 0.0) {
        steps.push(("Add", Some(Tensor::f32(&[1, c, 1, 1], &preprocessing.shift)), None));
    }
    if preprocessing.layout == Axes::Nhwc {
        steps.push(("Transpose", None, Some(("perm", Attr::Ints(vec![0, 2, 3, 1])))));
    }
    if steps.is_empty() {
        steps.push(("Identity", None, None));
    }
    let count = steps.len();
    // A file that `audit grad` wrote has such names.
    let prefix = graph.free_prefix("audit/preprocessing");
    let mut at = super::IMAGE.to_string();
    let mut nodes = Vec::with_capacity(count);
    for (i, (op, constant, attr)) in steps.into_iter().enumerate() {
        // The last of these nodes takes the place of the model's own input.
        let out = if i + 1 == count { name.to_string() } else { format!("{prefix}{op}/{i}") };
        let mut node = Node::new(op, &[&at], &out);
        if let Some(t) = constant {
            let key = format!("{prefix}{i}");
            graph.constants.insert(key.clone(), t);
            node.inputs.push(key);
        }
        node.attrs.extend(attr.map(|(key, value)| (key.to_string(), value)));
        nodes.push(node);
        at = out;
    }
    graph.nodes.splice(0..0, nodes);
    graph.inputs.retain(|i| i.name != name);
    graph.inputs.push(Value::new(super::IMAGE, DType::F32, &preprocessing.pixel_shape(batch)));
}

/// Other preprocessings that models with such an input are often trained with, each with a name and its
/// flags. There are none for one of integers, whose graph has its own.
pub fn usual_others(preprocessing: &Preprocessing) -> Vec<(&'static str, Preprocessing)> {
    if preprocessing.integers.is_some() {
        return Vec::new();
    }
    let with = |mean: &[f32], std: &[f32], [low, high]: [f32; 2]| {
        let at =
            |c: usize| if preprocessing.order == Channels::Bgr { preprocessing.channels - 1 - c } else { c };
        let (mean, std) = (|c: usize| mean[at(c) % mean.len()], |c: usize| std[at(c) % std.len()]);
        let scale = (0..preprocessing.channels).map(|c| (high - low) / std(c)).collect();
        let shift = (0..preprocessing.channels).map(|c| (low - mean(c)) / std(c)).collect();
        Preprocessing { scale, shift, ..preprocessing.clone() }
    };
    let plain = |range| with(&[0.0], &[1.0], range);
    let mut all = vec![
        ("pixels as they are (--mean 0 --std 1)", plain([0.0, 1.0])),
        ("pixels in [-1, 1] (--range=-1,1)", plain([-1.0, 1.0])),
        ("pixels in [0, 255] (--range 0,255)", plain([0.0, 255.0])),
    ];
    match preprocessing.order {
        Channels::Grey => all.push((
            "dark and light exchanged (invert the images)",
            Preprocessing {
                scale: preprocessing.scale.iter().map(|s| -s).collect(),
                shift: preprocessing
                    .shift
                    .iter()
                    .zip(&preprocessing.scale)
                    .map(|(shift, scale)| shift + scale)
                    .collect(),
                ..preprocessing.clone()
            },
        )),
        order => {
            all.push((
                "ImageNet's mean and std (--mean 0.485,0.456,0.406 --std 0.229,0.224,0.225)",
                with(&IMAGENET[0], &IMAGENET[1], [0.0, 1.0]),
            ));
            let (name, order) = match order {
                Channels::Bgr => {
                    ("red, green, blue instead of blue, green, red (--channels rgb)", Channels::Rgb)
                }
                _ => ("blue, green, red instead of red, green, blue (--channels bgr)", Channels::Bgr),
            };
            all.push((name, Preprocessing { order, ..preprocessing.clone() }));
        }
    }
    let same = |other: &Preprocessing| {
        let close =
            |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-3 * b.abs().max(1e-3));
        other.order == preprocessing.order
            && close(&other.scale, &preprocessing.scale)
            && close(&other.shift, &preprocessing.shift)
    };
    all.retain(|(_, other)| !same(other));
    all
}

/// What transformers call the input of images.
const PIXEL_VALUES: &str = "pixel_values";

/// Dimensions of an input. A file that doesn't say how many there are may mean images.
fn dimensions(input: &Value) -> Vec<Dim> {
    input.shape.clone().unwrap_or_else(|| vec![Dim::Free(String::new()); 4])
}

/// What keeps an input from being a batch of images, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unlike {
    /// The card states another layout.
    Layout,
    /// How many channels there are is left open, and where.
    Open,
    /// Channels of other numbers than 1 and 3.
    Channels(i64),
    /// Five dimensions.
    Frames,
    /// Another number of dimensions than four.
    Dimensions(usize),
}

/// What keeps an input that is not [`image_like`] from being a batch of images.
pub fn unlike(input: &Value, card: &Card) -> Unlike {
    let dims = dimensions(input);
    match dims[..] {
        _ if image_like(input, &Card { layout: None, ..card.clone() }).is_some() => Unlike::Layout,
        [_, Dim::Known(a), _, Dim::Known(b)] => Unlike::Channels(a.min(b)),
        [_, Dim::Known(channels), Dim::Free(_), Dim::Free(_)]
        | [_, Dim::Free(_), Dim::Free(_), Dim::Known(channels)] => Unlike::Channels(channels),
        [_, _, _, _] => Unlike::Open,
        [_, _, _, _, _] => Unlike::Frames,
        _ => Unlike::Dimensions(dims.len()),
    }
}

impl Unlike {
    /// Of an input, and what to do about it.
    fn words(&self, input: &Value) -> String {
        format!("{}. {}", self.why(input), self.instead())
    }

    /// Of an input.
    pub fn why(&self, input: &Value) -> String {
        match self {
            Unlike::Layout => "not as --image-layout states".into(),
            Unlike::Open if input.shape.is_none() => "the file doesn't say its shape".into(),
            Unlike::Open => "the number of channels is left open".into(),
            Unlike::Channels(n) => format!("{n} channels, and images have 1 or 3"),
            Unlike::Frames => "five dimensions, as of the frames of a video or of several views".into(),
            Unlike::Dimensions(n) => format!("{n} dimensions, and images have 4"),
        }
    }

    /// What to do about it.
    pub fn instead(&self) -> &'static str {
        match self {
            Unlike::Layout => "Leave --image-layout out",
            Unlike::Open => "State --channels, and --image-layout nhwc if they come last",
            Unlike::Channels(_) => {
                "Export the model with the step inside that makes these channels of an image, such as joining it with its mirror image"
            }
            Unlike::Frames => "Export the part that embeds one frame or view, [N, C, H, W]",
            Unlike::Dimensions(_) => {
                "Export the model with an input of images, [N, C, H, W]; of a model of images and texts, its image encoder"
            }
        }
    }

    /// Flags that may read it.
    pub fn flags(&self) -> Vec<Flags> {
        if *self != Unlike::Open {
            return Vec::new();
        }
        let each = ["rgb", "grey"].map(|channels| {
            let first = remedy::row("--channels", channels);
            let last = [first.clone(), remedy::row("--image-layout", "nhwc")].concat();
            [first, last]
        });
        each.into_iter().flatten().collect()
    }
}

/// Order of axes and number of channels of an input that looks like a batch of images; `None` for other
/// inputs.
pub fn image_like(input: &Value, card: &Card) -> Option<(Axes, usize)> {
    let dims = dimensions(input);
    if dims.len() != 4 {
        return None;
    }
    let stated = card.channels.map(|c| if c == Channels::Grey { 1 } else { 3 });
    let channels = |d: &Dim| match (d, stated) {
        (Dim::Known(n @ (1 | 3)), _) => Some(*n as usize),
        (Dim::Known(_), _) => None,
        (Dim::Free(_), stated) => stated,
    };
    // As transformers and Optimum name the input and its axes.
    let says = |d: &Dim| matches!(d, Dim::Free(name) if name.to_lowercase().contains("channel"));
    let last = matches!(dims[3], Dim::Known(1 | 3));
    let first = !last && (says(&dims[1]) || (input.name == PIXEL_VALUES && matches!(dims[1], Dim::Free(_))));
    match card.layout {
        None if first => Some((Axes::Nchw, stated.unwrap_or(3))),
        None if says(&dims[3]) => Some((Axes::Nhwc, stated.unwrap_or(3))),
        Some(Axes::Nchw) => Some((Axes::Nchw, channels(&dims[1])?)),
        Some(Axes::Nhwc) => Some((Axes::Nhwc, channels(&dims[3])?)),
        None => match (channels(&dims[1]), channels(&dims[3])) {
            // A dimension that the graph fixes counts for more than one that it leaves open.
            (Some(_), Some(c)) if matches!((&dims[1], &dims[3]), (Dim::Free(_), Dim::Known(_))) => {
                Some((Axes::Nhwc, c))
            }
            (Some(c), _) => Some((Axes::Nchw, c)),
            (None, Some(c)) => Some((Axes::Nhwc, c)),
            (None, None) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_an_image_is_said_as_it_was_stated() {
        let stated = |range: [f32; 2], [mean, std]: [f32; 2]| Card {
            range: Some(range),
            mean: Some(vec![mean]),
            std: Some(vec![std]),
            interpolation: Some(Interpolation::BicubicAliased),
            ..Card::default()
        };
        let words_of =
            |card: &Card| preprocessing(&Value::new("x", DType::F32, &[1, 1, 28, 28]), card).unwrap().words();
        let words = words_of(&stated([0.0, 1.0], [0.1307, 0.3081]));
        assert_eq!(
            words,
            "28 × 28 grey, stretched to this size (bicubic-aliased); pixels in [0, 1] less 0.1307, divided by 0.3081"
        );
        // 1/255, not 0.
        assert!(words_of(&stated([0.0, 255.0], [0.0, 1.0])).ends_with("less 0, divided by 0.003922"));
    }

    /// The size of a file is not called a flag, and what an error advises works.
    #[test]
    fn errors_about_sizes_name_who_states_them() {
        let input = Value::new("x", DType::F32, &[1, 3, 518, 518]);
        let card = |size: usize, shorter: usize| Card {
            size: Some([size; 2]),
            resize_shorter: Some(shorter),
            taken_from: Some("preprocessor_config.json".into()),
            ..Card::default()
        };
        let why = |card: Card| preprocessing(&input, &card).unwrap_err().message;
        let file = Card { size_from: Some("preprocessor_config.json".into()), ..card(224, 256) };
        let message = why(file);
        assert!(message.contains("fixed to 518, but preprocessor_config.json states 224"), "{message}");
        assert!(message.ends_with("add --size 518 --resize-shorter 518"), "{message}");
        assert!(why(card(224, 256)).ends_with("--size states 224. Leave --size out"));
        let small = why(card(518, 256));
        assert!(small.contains("to 256 (preprocessor_config.json)"), "{small}");
        assert!(small.ends_with("State at least --resize-shorter 518"), "{small}");
        preprocessing(&input, &card(518, 518)).unwrap();
    }

    /// Reports and saved embeddings of earlier versions stay comparable.
    #[test]
    fn the_usual_crop_is_left_out_of_reports() {
        let input = Value::new("x", DType::F32, &[1, 3, 224, 224]);
        let json = |card: Card| serde_json::to_string(&preprocessing(&input, &card).unwrap()).unwrap();
        let cropped = Card { resize_shorter: Some(256), ..Card::default() };
        assert!(!json(cropped.clone()).contains("crop"));
        let floor = Card { crop: Some(Crop::Floor), ..cropped };
        assert!(json(floor.clone()).contains(r#""crop":"floor""#));
        // Nothing is cut off.
        assert!(!json(Card { resize: Some([224; 2]), resize_shorter: None, ..floor }).contains("crop"));
    }
}
