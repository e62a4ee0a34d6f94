//! The preprocessing of an input's pixels: what a card states, what the graph says, and what is usual.

use super::input::{image_like, input_sides, unlike, wrong};
use super::{Axes, Card, Channels, Preprocessing};
use crate::{IMAGE, remedy};
use audit_base::Result;
use audit_base::choice::Choice;
use onnx_grad::Graph;
use onnx_grad::graph::{Attr, DType, Node, Tensor, Value};

/// Mean and std of ImageNet, which most models for photographs were trained with.
pub const IMAGENET: [[f32; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];

/// The largest side that images are resized to, in pixels. One such image takes 800 MB.
pub(super) const LARGEST_RESIZE: usize = 1 << 13;

/// Models with a smaller input than this, in pixels, are for digits and characters. They usually take pixels
/// as they are.
const PHOTOGRAPH: usize = 64;

/// The preprocessing of a model's input. What the card states comes first, then what the graph says of the
/// input, then what is usual. Errors (exit code 2): the input isn't a batch of images, leaves something open
/// that the card doesn't state, or contradicts the card.
pub fn preprocessing(input: &Value, card: &Card) -> Result<Preprocessing> {
    let wrong = |what: String| wrong(input, what);
    let Some((layout, channels)) = image_like(input, card) else {
        let unlike = unlike(input, card);
        return Err(wrong(format!("{}. {}", unlike.why(input), unlike.instead())).lacking(unlike.flags()));
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
            match channels {
                1 => format!("the input has 1 channel, but --{name} has {} values. State one value", v.len()),
                _ => format!(
                    "the input has {channels} channels, but --{name} has {} values. State one value or {channels}",
                    v.len()
                ),
            },
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

/// Puts the preprocessing in front of input `name` of a graph; the new input is [`IMAGE`].
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
    let mut at = IMAGE.to_string();
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
    graph.inputs.push(Value::new(IMAGE, DType::F32, &preprocessing.pixel_shape(batch)));
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
