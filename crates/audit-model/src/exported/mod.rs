//! Preprocessing as other programs write it beside a model: Hugging Face transformers and Optimum, timm,
//! open_clip.

#[cfg(test)]
mod tests;
mod transformers;

use super::card::{Card, IMAGENET};
use super::runtime::list;
use audit_base::{Error, Result, files};
use audit_report::record::Interpolation;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use transformers::{image_processor, processor};

/// A file that says how images are prepared.
struct Kind {
    name: &'static str,
    /// Whether programs without models use this file name too: a file that isn't JSON is then ignored.
    common: bool,
    /// Its card; `None` if it is not about images. Errors: a setting that no card can express.
    read: fn(&Json) -> std::result::Result<Option<Card>, String>,
}

/// Every kind, by priority.
const KINDS: [Kind; 4] = [
    Kind { name: "processor_config.json", common: false, read: processor },
    Kind { name: "preprocessor_config.json", common: false, read: image_processor },
    Kind { name: "open_clip_config.json", common: false, read: open_clip },
    Kind { name: "config.json", common: true, read: timm },
];

/// The card in the first of these files that lies beside the model, or beside its folder if that is called
/// `onnx`, as on the Hugging Face Hub. `None` if there is none. Errors (exit code 2): it can't be read, or no
/// card can say what it says.
pub fn card_beside(model: &Path) -> Result<Option<Card>> {
    let Some(folder) = model.parent() else { return Ok(None) };
    let above = folder.parent().filter(|_| folder.file_name().is_some_and(|name| name == "onnx"));
    let folders = [Some(folder), above];
    for (kind, folder) in KINDS.iter().flat_map(|kind| folders.iter().flatten().map(move |f| (kind, f))) {
        let path = folder.join(kind.name);
        if !path.is_file() {
            continue;
        }
        let wrong = |why: String| {
            Error::usage(format!(
                "{}: {why}. State the preprocessing in a card, {}, which goes before this file",
                path.display(),
                model.with_extension("yaml").display()
            ))
        };
        let text =
            files::read_text(&path, files::BY_HAND).map_err(|e| wrong(format!("can't read it: {e}")))?;
        let json = match serde_json::from_str(&text) {
            Err(_) if kind.common => continue,
            json => json.map_err(|e| wrong(format!("expected JSON: {e}")))?,
        };
        if let Some(card) = (kind.read)(&json).map_err(wrong)? {
            return Ok(Some(Card { taken_from: Some(kind.name.into()), ..card }));
        }
    }
    Ok(None)
}

/// The file of a model that is named by it or by its folder: `model.onnx` there, the only .onnx file, or one
/// of these in its folder `onnx`. Errors (exit code 2): the folder has no model, or several.
pub fn file_of(folder: &Path) -> Result<PathBuf> {
    if !folder.is_dir() {
        return Ok(folder.to_path_buf());
    }
    let mut all = Vec::new();
    for place in [folder.to_path_buf(), folder.join("onnx")] {
        let mut found = list(&place);
        found.retain(|path| path.extension().is_some_and(|e| e == "onnx"));
        let usual = place.join("model.onnx");
        match found.as_slice() {
            [] => continue,
            _ if found.contains(&usual) => return Ok(usual),
            [one] => return Ok(one.clone()),
            _ => all.extend(found),
        }
    }
    let names: Vec<String> = all.iter().map(|path| path.display().to_string()).collect();
    Err(Error::usage(match names.as_slice() {
        [] => format!("{} is a folder without an .onnx file: give the path of a model", folder.display()),
        _ => format!("{} has several models: give the path of one of {}", folder.display(), names.join(", ")),
    }))
}

/// A side, or both: 224, [224, 224], {"height": 224, "width": 224}, {"shortest_edge": 224}.
#[derive(Clone, Copy)]
enum Size {
    Both([usize; 2]),
    Shorter(usize),
    /// A number alone, which means either.
    One(usize),
}

impl Size {
    /// Height and width, of a square if there is one number.
    fn sides(self) -> [usize; 2] {
        match self {
            Size::Both(sides) => sides,
            Size::One(side) | Size::Shorter(side) => [side; 2],
        }
    }
}

/// Mean and std of OpenAI's CLIP, which open_clip takes if a file states none.
const OPENAI: [[f32; 3]; 2] = [[0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.2613026, 0.2757771]];

/// A card of models whose pixels are in [0, 1] before `mean` and `std` of the file, or the library's `usual`
/// ones.
fn normalised(of: &Json, size: [usize; 2], usual: [[f32; 3]; 2]) -> std::result::Result<Card, String> {
    let either = |key: &str, usual: [f32; 3]| match stated(&[of.get(key)]) {
        None => Ok(usual.to_vec()),
        Some(json) => values(json).ok_or_else(|| format!("{key} {json} isn't covered")),
    };
    let (mean, std) = (Some(either("mean", usual[0])?), Some(either("std", usual[1])?));
    Ok(Card { size: Some(size), mean, std, range: Some([0.0, 1.0]), ..Card::default() })
}

fn number(json: &Json) -> Option<usize> {
    json.as_u64().and_then(|n| usize::try_from(n).ok())
}

fn size(json: &Json) -> Option<Size> {
    let of = |name: &str| json.get(name).and_then(number);
    // The longer side has a limit too.
    if of("longest_edge").is_some() {
        return None;
    }
    let list: Option<Vec<usize>> = json.as_array().and_then(|list| list.iter().map(number).collect());
    match (number(json), list.as_deref(), of("height").zip(of("width")), of("shortest_edge")) {
        (Some(side), ..) | (_, Some(&[side]), ..) => Some(Size::One(side)),
        (_, Some(&[height, width]), ..) | (_, _, Some((height, width)), _) => {
            Some(Size::Both([height, width]))
        }
        (.., Some(side)) => Some(Size::Shorter(side)),
        _ => None,
    }
}

/// The first of these that is stated; `null` is not.
fn stated<'j>(all: &[Option<&'j Json>]) -> Option<&'j Json> {
    all.iter().flatten().copied().find(|json| !json.is_null())
}

/// Height and width of an input of timm and open_clip, whose default is 224. Errors: it is stated in a form
/// that isn't known.
fn input_sides(key: &str, json: Option<&Json>) -> std::result::Result<[usize; 2], String> {
    let Some(json) = json else { return Ok([224; 2]) };
    // timm's begins with the number of channels.
    let sides = match json.as_array().map(Vec::as_slice) {
        Some([_, height, width]) => number(height).zip(number(width)).map(|(height, width)| [height, width]),
        _ => size(json).map(Size::sides),
    };
    sides.ok_or_else(|| format!("{key} {json} isn't covered"))
}

fn values(json: &Json) -> Option<Vec<f32>> {
    let one = |json: &Json| json.as_f64().map(|v| v as f32);
    match json.as_array() {
        Some(all) => all.iter().map(one).collect(),
        None => one(json).map(|v| vec![v]),
    }
}

/// An interpolation by its name. Pillow's are antialiased, as ours are.
fn interpolation(name: &str) -> std::result::Result<Interpolation, String> {
    match name {
        "bilinear" => Ok(Interpolation::Bilinear),
        "bicubic" => Ok(Interpolation::Bicubic),
        "nearest" => Ok(Interpolation::Nearest),
        other => Err(format!("interpolation {other} isn't covered")),
    }
}

/// An error: images are resized until they cover an input that is not square, and no card can say this.
fn covers(mode: &str, [height, width]: [usize; 2]) -> String {
    format!("{mode} isn't covered for inputs that aren't square ({height} x {width})")
}

/// A model of timm: `pretrained_cfg` of its config.json.
fn timm(json: &Json) -> std::result::Result<Option<Card>, String> {
    let Some(of) = json.get("pretrained_cfg") else { return Ok(None) };
    let text = |key: &str| of.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
    let sides @ [height, width] = input_sides("input_size", stated(&[of.get("input_size")]))?;
    let share = of.get("crop_pct").and_then(Json::as_f64).filter(|share| *share > 0.0).unwrap_or(0.875);
    let mut card = normalised(of, sides, IMAGENET)?;
    let larger = |side: usize| (side as f64 / share) as usize;
    match text("crop_mode").unwrap_or("center") {
        "center" if height == width => card.resize_shorter = Some(larger(height)),
        "center" => return Err(covers("crop_mode center", sides)),
        "squash" => card.resize = Some([larger(height), larger(width)]),
        other => return Err(format!("crop_mode {other} isn't covered")),
    }
    card.interpolation = Some(interpolation(text("interpolation").unwrap_or("bicubic"))?);
    Ok(Some(card))
}

/// A CLIP of open_clip: its open_clip_config.json.
fn open_clip(json: &Json) -> std::result::Result<Option<Card>, String> {
    let Some(of) = json.get("preprocess_cfg") else { return Ok(None) };
    let text = |key: &str| of.get(key).and_then(Json::as_str);
    // The model's size goes before that of the preprocessing, as in open_clip.
    let side = json.pointer("/model_cfg/vision_cfg/image_size");
    let sides @ [height, width] = input_sides("size", stated(&[side, of.get("size")]))?;
    let mut card = normalised(of, sides, OPENAI)?;
    match text("resize_mode").unwrap_or("shortest") {
        "shortest" if height == width => card.resize_shorter = Some(height),
        "shortest" => return Err(covers("resize_mode shortest", sides)),
        "squash" => card.resize = Some(sides),
        other => return Err(format!("resize_mode {other} isn't covered")),
    }
    card.interpolation = Some(interpolation(text("interpolation").unwrap_or("bicubic"))?);
    Ok(Some(card))
}
