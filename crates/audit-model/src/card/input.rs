//! Which input of a model takes images, and of which size.

use super::{Axes, Card, Channels};
use crate::remedy::{self, Flags};
use audit_base::{Error, Result};
use onnx_grad::graph::{Dim, Value};

/// The largest side of an input, in pixels. Files that state a larger one are damaged.
pub(super) const LARGEST: i64 = 1 << 15;

/// What transformers call the input of images.
const PIXEL_VALUES: &str = "pixel_values";

/// Dimensions of an input. A file that doesn't say how many there are may mean images.
fn dimensions(input: &Value) -> Vec<Dim> {
    input.shape.clone().unwrap_or_else(|| vec![Dim::Free(String::new()); 4])
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

/// Whether an input of images leaves height or width open, and the card doesn't state them.
pub fn open_sides(input: &Value, card: &Card) -> bool {
    let Some((layout, _)) = image_like(input, card) else { return false };
    let from = if layout == Axes::Nchw { 2 } else { 1 };
    let dims = dimensions(input);
    card.size.is_none() && dims.iter().skip(from).take(2).any(|side| matches!(side, Dim::Free(_)))
}

/// Height and width of a model's input.
pub(super) fn input_sides(input: &Value, layout: Axes, card: &Card) -> Result<[usize; 2]> {
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

/// An error about the model's input or about what is stated of it (exit code 2).
pub(super) fn wrong(input: &Value, what: impl std::fmt::Display) -> Error {
    Error::usage(format!("input {:?} {}: {what}", input.name, input.shape_text()))
}
