//! Preprocessing as other programs write it beside a model: Hugging Face transformers and Optimum, timm,
//! open_clip.

use super::card::{Card, Channels, IMAGENET};
use super::runtime::list;
use audit_base::{Error, Result, files};
use audit_report::record::{Crop, Interpolation};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

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

/// Keys of image processors that are read, or that change no pixel of the input.
const KEYS: [&str; 43] = [
    "_valid_processor_keys",
    "apply_ocr",
    "auto_map",
    "crop_pct",
    "crop_size",
    "data_format",
    "default_to_square",
    "device",
    "disable_grouping",
    "do_center_crop",
    "do_convert_annotations",
    "do_convert_rgb",
    "do_flip_channel_order",
    "do_normalize",
    "do_pad",
    "do_reduce_labels",
    "do_rescale",
    "do_resize",
    "do_resize_and_center_crop",
    "feature_extractor_type",
    "format",
    "image_mean",
    "image_processor_type",
    "image_seq_length",
    "image_std",
    "include_top",
    "input_data_format",
    "input_size_patches",
    "mask_size",
    "max_patches",
    "min_patches",
    "ocr_lang",
    "processor_class",
    "reduce_labels",
    "resample",
    "rescale_factor",
    "rescale_offset",
    "return_tensors",
    "size",
    "tesseract_config",
    "total_mask_patches",
    "use_covering_area_grid",
    "use_fast",
];

/// Beginnings of such keys: FLAVA's second input and its masks.
const PREFIXES: [&str; 2] = ["codebook_", "mask_group_"];

/// Beginnings of the classes for which a size of one number is the shorter side. For others it is a square.
const SHORTER: [&str; 8] =
    ["Bit", "ChineseCLIP", "CLIP", "Levit", "Llava", "MobileNet", "MobileViT", "Siglip"];

/// Beginnings of the classes that exchange channels, crop first or interpolate otherwise, without a key that
/// says so.
const OTHERWISE: [&str; 5] = ["LayoutLMv2", "PPDocLayout", "PPLCNet", "Perceiver", "UVDoc"];

/// The first key of an image processor that may change pixels and is not known. A key that is off changes
/// none.
fn unknown_key(json: &Json) -> Option<&str> {
    let off = |key: &str, value: &Json| match key {
        "ensure_multiple_of" => value.as_u64() == Some(1),
        _ => value.is_null() || value.as_bool() == Some(false),
    };
    let known = |key: &str| KEYS.contains(&key) || PREFIXES.iter().any(|prefix| key.starts_with(prefix));
    json.as_object()?.iter().find(|(key, value)| !known(key) && !off(key, value)).map(|(key, _)| key.as_str())
}

/// Pillow's numbers of filters.
const FILTERS: [&str; 6] = ["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"];

/// What transformers saves since version 5 of a model of images and texts. It takes these settings before
/// those of a `preprocessor_config.json`. Earlier files of this name have none.
fn processor(json: &Json) -> std::result::Result<Option<Card>, String> {
    json.get("image_processor").map_or(Ok(None), image_processor)
}

/// An image processor of Hugging Face transformers.
fn image_processor(json: &Json) -> std::result::Result<Option<Card>, String> {
    let known = ["image_mean", "do_normalize", "do_resize", "image_processor_type", "feature_extractor_type"];
    if known.iter().all(|key| json.get(key).is_none()) {
        return Ok(None);
    }
    if does(json, "do_pad", false) {
        return Err("do_pad is true, and padding isn't covered".into());
    }
    let class = ["image_processor_type", "feature_extractor_type"];
    let class = class.iter().find_map(|key| json.get(*key).and_then(Json::as_str)).unwrap_or("");
    if is_one_of(class, &OTHERWISE) {
        return Err(format!("{class} prepares images in a way that isn't covered"));
    }
    if let Some(key) = unknown_key(json) {
        return Err(format!("the key {key} isn't covered"));
    }
    if !does(json, "do_resize", true) {
        return Err("do_resize is false, and images of other sizes than the input's aren't covered".into());
    }
    Ok(Some(with_values(json, class, Card { crop: Some(Crop::Floor), ..sized(json, class)? })?))
}

/// Whether an image processor does something. What a file leaves out, its class decides. Those of vision
/// models resize, rescale and normalise.
fn does(json: &Json, key: &str, usual: bool) -> bool {
    json.get(key).and_then(Json::as_bool).unwrap_or(usual)
}

fn is_one_of(class: &str, all: &[&str]) -> bool {
    all.iter().any(|name| class.starts_with(name))
}

/// A card with the sizes to which an image processor resizes and crops.
fn sized(json: &Json, class: &str) -> std::result::Result<Card, String> {
    let sides = |key: &str| {
        let of = |json: &Json| size(json).ok_or_else(|| format!("{key} {json} isn't covered"));
        stated(&[json.get(key)]).map(of).transpose()
    };
    let crops = does(json, "do_center_crop", false);
    let cropped = if crops { sides("crop_size")?.map(Size::sides) } else { None };
    // ConvNeXT crops a larger image to this share of its side.
    let share = json.get("crop_pct").and_then(Json::as_f64).filter(|share| *share > 0.0);
    let share = share.or(class.contains("ConvNext").then_some(224.0 / 256.0));
    let mut card = Card::default();
    let size = sides("size")?.ok_or("size is left out")?;
    let shorter = match size {
        Size::Shorter(side) => Some(side),
        Size::One(side)
            if share.is_some() || !does(json, "default_to_square", !is_one_of(class, &SHORTER)) =>
        {
            Some(side)
        }
        Size::One(_) | Size::Both(_) => None,
    };
    match (shorter, share) {
        (Some(side), Some(share)) => {
            card.size = Some([side; 2]);
            // Large inputs are stretched and not cropped.
            if side < 384 {
                card.resize_shorter = Some((side as f64 / share) as usize);
            } else {
                card.resize = Some([side; 2]);
            }
        }
        (Some(side), None) if crops => {
            // LeViT crops an image of 256 to 224, whatever it is called.
            let larger = if class.starts_with("Levit") { 256.0 / 224.0 } else { 1.0 };
            (card.resize_shorter, card.size) = (Some((larger * side as f64) as usize), cropped);
        }
        (Some(side), None) => {
            return Err(format!(
                "the shorter side is resized to {side} and nothing is cropped, and inputs of any shape aren't covered"
            ));
        }
        (None, _) => (card.resize, card.size) = (Some(size.sides()), cropped.or(Some(size.sides()))),
    }
    Ok(card)
}

/// The card with the filter of an image processor, and what it makes of the values of pixels.
fn with_values(json: &Json, class: &str, mut card: Card) -> std::result::Result<Card, String> {
    if let Some(filter) = json.get("resample").and_then(number) {
        let name = FILTERS.get(filter).ok_or_else(|| format!("resample {filter} is no filter of Pillow"))?;
        card.interpolation = Some(interpolation(name)?);
    }
    let factor = json.get("rescale_factor").and_then(Json::as_f64).unwrap_or(1.0 / 255.0);
    // EfficientNet's `rescale_offset` subtracts 1 after the scaling.
    let offset: f64 = if does(json, "rescale_offset", false) { 1.0 } else { 0.0 };
    card.range = Some(match does(json, "do_rescale", true) {
        true => [(0.0 - offset) as f32, (255.0 * factor - offset) as f32],
        false => [0.0, 255.0],
    });
    for key in ["image_mean", "image_std"] {
        if does(json, "do_normalize", false) && json.get(key).and_then(values).is_none() {
            return Err(format!("do_normalize is true, and {key} is left out"));
        }
    }
    let normalises = does(json, "do_normalize", true);
    let std = json.get("image_std").and_then(values);
    card.mean = Some(json.get("image_mean").and_then(values).filter(|_| normalises).unwrap_or(vec![0.0]));
    // EfficientNet's `include_top` divides by image_std after the normalisation, so then once more.
    let top = does(json, "include_top", class.starts_with("EfficientNet"));
    let std: Option<Vec<f32>> = std.map(|std| match (normalises, top) {
        (true, true) => std.iter().map(|s| s * s).collect(),
        (true, false) | (false, true) => std,
        (false, false) => vec![1.0],
    });
    card.std = Some(std.unwrap_or(vec![1.0]));
    card.channels = does(json, "do_flip_channel_order", false).then_some(Channels::Bgr);
    Ok(card)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: &str, text: &str) -> std::result::Result<Option<Card>, String> {
        let json = serde_json::from_str(text).unwrap();
        (KINDS.iter().find(|k| k.name == kind).unwrap().read)(&json)
    }

    /// The settings of a `preprocessor_config.json`: size, resize, and resize of the shorter side.
    fn sizes(text: &str) -> (Option<[usize; 2]>, Option<[usize; 2]>, Option<usize>) {
        let card = read("preprocessor_config.json", text).unwrap().unwrap();
        (card.size, card.resize, card.resize_shorter)
    }

    /// openai/clip-vit-base-patch32: as transformers 4 saves it, as it was before sizes had names, and as
    /// `CLIPProcessor.save_pretrained` of transformers 5.23 saves it, within the settings for texts. The
    /// `processor_config.json` of transformers 4 has none for images, which are in a file beside it.
    #[test]
    fn clip_resizes_the_shorter_side_and_crops() {
        let new = r#"{"crop_size": {"height": 224, "width": 224}, "do_center_crop": true, "do_convert_rgb": true, "do_normalize": true,
            "do_rescale": true, "do_resize": true, "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_processor_type": "CLIPImageProcessor", "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3,
            "rescale_factor": 0.00392156862745098, "size": {"shortest_edge": 224}}"#;
        let old = r#"{"crop_size": 224, "do_center_crop": true, "do_normalize": true, "do_resize": true,
            "feature_extractor_type": "CLIPFeatureExtractor", "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3, "size": 224}"#;
        let within = format!(r#"{{"image_processor": {new}, "processor_class": "CLIPProcessor"}}"#);
        for (kind, text) in [
            ("preprocessor_config.json", new),
            ("preprocessor_config.json", old),
            ("processor_config.json", within.as_str()),
        ] {
            let card = read(kind, text).unwrap().unwrap();
            assert_eq!((card.size, card.resize, card.resize_shorter), (Some([224; 2]), None, Some(224)));
            assert_eq!(card.crop, Some(Crop::Floor));
            assert_eq!((card.interpolation, card.range), (Some(Interpolation::Bicubic), Some([0.0, 1.0])));
            assert_eq!(card.mean.unwrap()[0], 0.48145466);
        }
        assert_eq!(read("processor_config.json", r#"{"processor_class": "CLIPProcessor"}"#).unwrap(), None);
    }

    /// google/vit-base-patch16-224 stretches to 224 × 224, and facebook/convnext-tiny-224 keeps 7/8 of an
    /// image of 256. Without a crop the size is that of the input.
    #[test]
    fn others_stretch_or_keep_a_share() {
        let vit = r#"{"do_normalize": true, "do_rescale": true, "do_resize": true, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
            "image_processor_type": "ViTImageProcessor", "resample": 2, "rescale_factor": 0.00392156862745098, "size": {"height": 224, "width": 224}}"#;
        assert_eq!(sizes(vit), (Some([224; 2]), Some([224; 2]), None));
        let convnext = r#"{"crop_pct": 0.875, "do_normalize": true, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
            "feature_extractor_type": "ConvNextFeatureExtractor", "resample": 3, "size": {"shortest_edge": 224}}"#;
        // The form before sizes had names, and a class whose share is its default: 224/256.
        let old = convnext.replace(r#"{"shortest_edge": 224}"#, "224");
        let usual = old.replace(r#""crop_pct": 0.875, "#, "");
        for text in [convnext, &old, &usual] {
            assert_eq!(sizes(text), (Some([224; 2]), None, Some(256)), "{text}");
        }
        // From 384 on, ConvNeXT stretches.
        let large = old.replace("224}", "384}");
        assert_eq!(sizes(&large), (Some([384; 2]), Some([384; 2]), None));
        let raw = r#"{"do_rescale": false, "do_normalize": false, "size": 224, "image_processor_type": "X"}"#;
        let card = read("preprocessor_config.json", raw).unwrap().unwrap();
        assert_eq!((card.range, card.mean, card.size), (Some([0.0, 255.0]), Some(vec![0.0]), Some([224; 2])));
    }

    /// facebook/deit-base-distilled-patch16-224 in the form before sizes had names: 256 is a square for its
    /// class, and the shorter side for CLIP's. LeViT resizes the shorter side to 256/224 of what it states.
    #[test]
    fn the_class_decides_what_a_size_means() {
        let deit = r#"{"crop_size": 224, "do_center_crop": true, "do_normalize": true, "do_resize": true,
            "feature_extractor_type": "DeiTFeatureExtractor", "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
            "resample": 3, "size": 256}"#;
        assert_eq!(sizes(deit), (Some([224; 2]), Some([256; 2]), None));
        assert_eq!(sizes(&deit.replace("DeiT", "CLIP")), (Some([224; 2]), None, Some(256)));
        let levit = deit.replace("DeiT", "Levit").replace("256", "224");
        assert_eq!(sizes(&levit), (Some([224; 2]), None, Some(256)));
    }

    /// google/efficientnet-b0 divides by image_std twice: by hand, a white pixel of red is
    /// (1 − 0.485)/0.47853944² = 2.249. With rescale_offset and a factor of 1/127.5, pixels lie in [−1, 1].
    #[test]
    fn efficientnet_divides_twice_and_moves_the_range() {
        let config = r#"{"do_normalize": true, "do_rescale": true, "do_resize": true, "image_mean": [0.485, 0.456, 0.406],
            "image_processor_type": "EfficientNetImageProcessor", "image_std": [0.47853944, 0.4732864, 0.47434163], "include_top": true,
            "resample": 0, "rescale_factor": 0.00392156862745098, "rescale_offset": false, "size": {"height": 224, "width": 224}}"#;
        let card_of = |text: &str| read("preprocessor_config.json", text).unwrap().unwrap();
        let card = card_of(config);
        assert_eq!((card.range, card.mean.unwrap()[0]), (Some([0.0, 1.0]), 0.485));
        assert!((card.std.unwrap()[0] - 0.229).abs() < 1e-6);
        // include_top is true unless stated.
        let usual = card_of(&config.replace(r#""include_top": true,"#, ""));
        assert!((usual.std.unwrap()[0] - 0.229).abs() < 1e-6);
        let features = card_of(&config.replace(r#""include_top": true"#, r#""include_top": false"#));
        assert_eq!(features.std.unwrap()[0], 0.47853944);
        let only_top = card_of(&config.replace(r#""do_normalize": true"#, r#""do_normalize": false"#));
        assert_eq!((only_top.mean.unwrap(), only_top.std.unwrap()[0]), (vec![0.0], 0.47853944));
        let moved = config.replace("0.00392156862745098", "0.00784313725490196").replace("false", "true");
        let [black, white] = card_of(&moved).range.unwrap();
        assert_eq!(black, -1.0);
        assert!((white - 1.0).abs() < 1e-6);
        // Other classes have no second division.
        let vit = card_of(&config.replace("EfficientNet", "ViT").replace(r#""include_top": true,"#, ""));
        assert_eq!(vit.std.unwrap()[0], 0.47853944);
    }

    /// timm/mobilenetv3_large_100.ra_in1k: 224 of 256, as torchvision does; squash stretches.
    #[test]
    fn timm_and_open_clip_are_read() {
        let timm = r#"{"architecture": "mobilenetv3_large_100", "num_classes": 1000, "pretrained_cfg": {"tag": "ra_in1k", "input_size": [3, 224, 224],
            "fixed_input_size": false, "interpolation": "bicubic", "crop_pct": 0.875, "crop_mode": "center", "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225]}}"#;
        let card = read("config.json", timm).unwrap().unwrap();
        assert_eq!((card.size, card.resize, card.resize_shorter), (Some([224; 2]), None, Some(256)));
        let squash = timm.replace("center", "squash").replace("0.875", "1.0");
        assert_eq!(read("config.json", &squash).unwrap().unwrap().resize, Some([224; 2]));
        assert!(
            read("config.json", &timm.replace("center", "border")).unwrap_err().contains("crop_mode border")
        );
        assert_eq!(read("config.json", r#"{"model_type": "vit"}"#).unwrap(), None);
        let clip = r#"{"model_cfg": {"embed_dim": 512, "vision_cfg": {"image_size": 256}}, "preprocess_cfg": {"mean": [0.5, 0.5, 0.5],
            "std": [0.5, 0.5, 0.5], "interpolation": "bicubic", "resize_mode": "squash"}}"#;
        let card = read("open_clip_config.json", clip).unwrap().unwrap();
        assert_eq!((card.size, card.resize, card.mean), (Some([256; 2]), Some([256; 2]), Some(vec![0.5; 3])));
    }

    /// Two numbers, as open_clip's own settings have, are read. What is left out is the library's default,
    /// and never this program's.
    #[test]
    fn sizes_of_timm_and_open_clip() {
        let of = |file: &str, settings: &str| {
            let key = if file == "config.json" { "pretrained_cfg" } else { "preprocess_cfg" };
            read(file, &format!(r#"{{"{key}": {{{settings}}}}}"#)).map(|card| {
                let card = card.unwrap();
                (card.size.unwrap(), card.resize, card.resize_shorter)
            })
        };
        let clip = |settings: &str| of("open_clip_config.json", settings);
        assert_eq!(
            clip(r#""size": [192, 160], "resize_mode": "squash""#),
            Ok(([192, 160], Some([192, 160]), None))
        );
        assert_eq!(clip(r#""size": [192, 192]"#), Ok(([192; 2], None, Some(192))));
        assert_eq!(clip(r#""size": null"#), Ok(([224; 2], None, Some(224))));
        assert!(clip(r#""size": "large""#).unwrap_err().contains("size \"large\""));
        let sides =
            r#"{"model_cfg": {"vision_cfg": {"image_size": [240, 240]}}, "preprocess_cfg": {"size": 224}}"#;
        assert_eq!(read("open_clip_config.json", sides).unwrap().unwrap().size, Some([240; 2]));
        assert_eq!(of("config.json", ""), Ok(([224; 2], None, Some(256))));
        // Both libraries would cover an input that is not square. Only a squash can be said.
        let tall = r#""input_size": [3, 256, 128], "crop_pct": 1.0, "crop_mode": "squash""#;
        assert_eq!(of("config.json", tall), Ok(([256, 128], Some([256, 128]), None)));
        let covered = of("config.json", &tall.replace("squash", "center")).unwrap_err();
        assert!(covered.contains("center") && covered.contains("256 x 128"), "{covered}");
        assert!(clip(r#""size": [256, 128]"#).unwrap_err().contains("shortest"));
        assert!(of("config.json", r#""input_size": [3, "all", 4]"#).unwrap_err().contains("input_size"));
    }

    /// The defaults of timm 1.0.31 (`IMAGENET_DEFAULT_MEAN`) and open_clip 3.3.0 (`OPENAI_DATASET_MEAN`).
    #[test]
    fn mean_and_std_that_are_left_out_are_the_librarys() {
        let card = read("config.json", r#"{"pretrained_cfg": {"mean": null}}"#).unwrap().unwrap();
        assert_eq!((card.mean.unwrap()[0], card.std.unwrap()[0]), (0.485, 0.229));
        let card = read("open_clip_config.json", r#"{"preprocess_cfg": {"std": 0.5}}"#).unwrap().unwrap();
        assert_eq!((card.mean.unwrap()[0], card.std.unwrap()), (0.48145466, vec![0.5]));
        let wrong = read("config.json", r#"{"pretrained_cfg": {"mean": "inception"}}"#).unwrap_err();
        assert!(wrong.contains("mean"), "{wrong}");
    }

    /// What no card can say is not guessed.
    #[test]
    fn what_is_not_covered_is_an_error() {
        let lanczos = r#"{"image_mean": [0.5], "image_std": [0.5], "resample": 1, "size": 224}"#;
        assert!(read("preprocessor_config.json", lanczos).unwrap_err().contains("lanczos"));
        let of = |keys: &str| {
            let text = format!(r#"{{"image_mean": [0.5], "image_std": [0.5], {keys}}}"#);
            read("preprocessor_config.json", &text).map(|_| ()).unwrap_err()
        };
        for (keys, named) in [
            (r#""size": 224, "resize_short": 256"#, "resize_short"),
            (r#""size": 224, "max_image_size": 980"#, "max_image_size"),
            (r#""size": 224, "crop_to_patches": true"#, "crop_to_patches"),
            (r#""size": 224, "image_processor_type": "PPLCNetImageProcessor""#, "PPLCNet"),
            (r#""size": {"shortest_edge": 800, "longest_edge": 1333}"#, "longest_edge"),
            (r#""size": {"shortest_edge": 224}"#, "nothing is cropped"),
            (r#""size": 224, "do_resize": false"#, "do_resize"),
            (r#""do_center_crop": true"#, "size is left out"),
            (r#""size": 224, "do_normalize": true, "image_mean": null"#, "image_mean is left out"),
        ] {
            assert!(of(keys).contains(named), "{}", of(keys));
        }
        // What is off, and what changes no pixel, is no obstacle.
        let more = r#"{"image_mean": [0.5], "image_std": [0.5], "size": 224, "crop_to_patches": false, "max_pixels": null,
            "codebook_size": 112, "data_format": "channels_first"}"#;
        assert!(read("preprocessor_config.json", more).unwrap().is_some());
        let padded = r#"{"do_pad": true, "image_mean": [0.5]}"#;
        assert!(read("preprocessor_config.json", padded).unwrap_err().contains("do_pad"));
        assert_eq!(read("preprocessor_config.json", r#"{"feature_size": 80}"#).unwrap(), None);
    }
}
