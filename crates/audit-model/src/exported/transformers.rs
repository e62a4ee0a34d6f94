//! Image processors of Hugging Face transformers.

use super::{Size, interpolation, number, size, stated, values};
use crate::card::{Card, Channels};
use audit_report::record::Crop;
use serde_json::Value as Json;

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
pub(super) fn processor(json: &Json) -> std::result::Result<Option<Card>, String> {
    json.get("image_processor").map_or(Ok(None), image_processor)
}

/// An image processor of Hugging Face transformers.
pub(super) fn image_processor(json: &Json) -> std::result::Result<Option<Card>, String> {
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
