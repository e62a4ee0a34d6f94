//! The draft of a model card.

use crate::choice::Choice;
use crate::model::card::{Card, Preprocessing};
use crate::model::inspect::Taken;
use crate::pipeline::open::metric;
use crate::report::Destination;
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// Where the card goes: beside the model, unless there is one.
pub(super) fn card_file(model: &Path) -> Result<(Destination, PathBuf)> {
    let file = model.with_extension("yaml");
    if file.exists() {
        return Err(Error::usage(format!(
            "--write-card: {} is there already. Remove it, or edit it",
            file.display()
        )));
    }
    Ok((Destination::open("--write-card", &file)?, file))
}

/// A card with everything that is known, and what was assumed as comments to be filled in.
pub(super) fn card(path: &Path, card: &Card, taken: &Taken) -> String {
    let info = &taken.info;
    let p = &info.preprocessing;
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut out = format!(
        "# Model card of {}: what the file of weights doesn't say about its input and output.\n# Written by `audit inspect \
         --write-card`. Lines that begin with # are not read; docs/formats.md has every key.\n\n",
        path.file_name().unwrap_or_default().to_string_lossy()
    );
    out += "# The file that this card belongs to. An audit of another one is refused.\n";
    out += &format!("sha256: {}\n\n", info.identity.sha256);
    out += "# The value that is the embedding, and how tokens or a feature map become one vector (cls, mean, max).\n";
    out += &format!("output: {}\n", quoted(&info.output));
    match info.pooling {
        Some(pooling) => out += &format!("pooling: {}\n\n", pooling.name()),
        None => out += "# pooling: mean\n\n",
    }
    out += "# The input: height and width, order of dimensions (nchw, nhwc), order of channels (rgb, bgr, grey).\n";
    out += &format!(
        "size: [{}, {}]\nlayout: {}\nchannels: {}\n\n",
        p.height,
        p.width,
        p.layout.name(),
        p.order.name()
    );
    out += &written_preprocessing(p, card);
    out += "# The distance between embeddings: normalized-euclidean, euclidean or cosine.\n";
    out += &format!("metric: {}\n\n", metric(card));
    out += "# Both are copied into reports.\n";
    for (key, value) in [("licence", &card.licence), ("source", &card.source)] {
        out += &match value {
            Some(value) => format!("{key}: {}\n", quoted(value)),
            None => format!("# {key}:\n"),
        };
    }
    out
}

/// The part of a card about pixels.
fn written_preprocessing(p: &Preprocessing, card: &Card) -> String {
    let list = |values: Vec<f32>| format!("{values:?}");
    let (mean, std) = p.mean_and_std();
    let mark = if p.assumed || p.integers.is_some() { "# " } else { "" };
    let mut out = String::new();
    out += match p.assumed {
        _ if p.integers.is_some() => {
            "# Pixels: the input is one of integers and takes grey levels as they are. Range, mean and std are those of its graph.\n"
        }
        true => {
            "# Pixels: values of black and white (range), what is subtracted (mean) and divided by (std), in units of the range.\n# \
             ASSUMED: nothing states them, and an audit takes ImageNet's. See how the model was trained; then remove the #.\n"
        }
        false => {
            "# Pixels: values of black and white (range), what is subtracted (mean) and divided by (std), in units of the range.\n"
        }
    };
    out += &format!("{mark}range: [0, 1]\n{mark}mean: {}\n{mark}std: {}\n\n", list(mean), list(std));
    out += "# The size that images get before their middle is cut out (resize: [height, width]; or resize_shorter: N, which keeps\n# \
            their shape, as torchvision does), and how they are resized.\n";
    let assumed = card.resize.is_none() && card.resize_shorter.is_none();
    let mark = if assumed { "# " } else { "" };
    out += &match (p.resize, p.resize_shorter) {
        (_, Some(side)) => format!("{mark}resize_shorter: {side}\n"),
        (Some([h, w]), None) => format!("{mark}resize: [{h}, {w}]\n"),
        (None, None) => format!("# resize: [{}, {}]\n", p.height, p.width),
    };
    if !p.crop.is_usual() {
        out += &format!(
            "# Where the centre crop begins: transformers rounds half of an odd rest down.\ncrop: {}\n",
            p.crop.name()
        );
    }
    out + &format!("interpolation: {}\n\n", p.interpolation.name())
}
