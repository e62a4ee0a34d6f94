use super::*;
use audit_report::record::Crop;

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
    assert!(read("config.json", &timm.replace("center", "border")).unwrap_err().contains("crop_mode border"));
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
