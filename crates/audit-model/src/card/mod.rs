//! The model card: what a model file doesn't say about its input, and the preprocessing that follows from it.

mod input;
mod pixels;

pub(super) use input::{Unlike, image_like, open_sides, unlike};
pub(super) use pixels::IMAGENET;
pub use pixels::{prepend, preprocessing, usual_others};

use audit_base::choice::Choice;
use audit_base::{Error, Result};
pub use audit_report::record::{Axes, Channels, Preprocessing};
use audit_report::record::{Crop, Interpolation, Metric};
use input::LARGEST;
use pixels::LARGEST_RESIZE;
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
    ("face-bgr", include_str!("../../../../cards/face-bgr.yaml")),
    ("face-rgb", include_str!("../../../../cards/face-rgb.yaml")),
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

#[cfg(test)]
mod tests {
    use super::*;
    use onnx_grad::graph::{DType, Value};

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
