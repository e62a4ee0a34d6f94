#!/usr/bin/env python3
"""Writes tests/golden/exported/: images as transformers, timm and open_clip prepare them by their own files.

    pip install numpy pillow torch torchvision transformers==5.23.0 timm==1.0.31 open_clip_torch==3.3.0
    python research/golden/golden_exported.py

Each case has a file as it lies beside a model, the model's input, the mean and std that the library takes,
and an image of tests/golden/pixels. NAME.png is that image before mean and std.
"""

import json
from pathlib import Path

import numpy as np
import timm.data
import transformers
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
IMAGES = ("wide.png", "tall.png")


def hugging_face(text):
    """The processor that the file names, on Pillow, as audit resizes."""
    name = text.get("image_processor_type") or text["feature_extractor_type"].replace("FeatureExtractor", "ImageProcessor")
    processor = getattr(transformers, name + "Pil").from_dict(dict(text))
    return lambda image: processor(images=image, return_tensors="np")["pixel_values"][0], processor.image_mean, processor.image_std


def of_timm(text):
    config = timm.data.resolve_data_config(pretrained_cfg=text["pretrained_cfg"])
    transform = timm.data.create_transform(**config)
    return lambda image: transform(image).numpy(), config["mean"], config["std"]


def open_clip(text):
    config = PreprocessCfg(**text["preprocess_cfg"])
    transform = image_transform_v2(config, is_train=False)
    return lambda image: transform(image).numpy(), config.mean, config.std


def nested(text):
    return hugging_face(text["image_processor"])


NORMAL = {"do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.3, 0.25, 0.2]}
MEAN = {"mean": [0.5, 0.4, 0.3], "std": [0.3, 0.25, 0.2]}
CLIP = {**NORMAL, "image_processor_type": "CLIPImageProcessor", "do_center_crop": True, "resample": 3}

# Name, file, its text, height and width of the input.
PREPROCESSOR, PROCESSOR, OPEN_CLIP = "preprocessor_config.json", "processor_config.json", "open_clip_config.json"
TIMM = "config.json"
CASES = [
    # Three rows or columns are cut off: transformers begins at 1, torchvision at 2.
    ("clip", PREPROCESSOR, {**CLIP, "size": {"shortest_edge": 33}, "crop_size": {"height": 30, "width": 30}}, [30, 30]),
    ("stretched", PREPROCESSOR, {**CLIP, "size": {"height": 43, "width": 47}, "crop_size": {"height": 40, "width": 40}}, [40, 40]),
    ("convnext", PREPROCESSOR, {**NORMAL, "image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 29}, "crop_pct": 0.9, "resample": 3}, [29, 29]),
    # A number is a square for DeiT; LeViT resizes to 256/224 of its size.
    ("deit", PREPROCESSOR, {**NORMAL, "feature_extractor_type": "DeiTFeatureExtractor", "do_center_crop": True, "size": 37, "crop_size": 30, "resample": 3}, [30, 30]),
    ("levit", PREPROCESSOR, {**CLIP, "image_processor_type": "LevitImageProcessor", "size": {"shortest_edge": 28}, "crop_size": {"height": 28, "width": 28}}, [28, 28]),
    # As transformers 5 saves a CLIPProcessor.
    ("nested", PROCESSOR, {"image_processor": {**CLIP, "size": {"shortest_edge": 37}, "crop_size": {"height": 30, "width": 30}}}, [30, 30]),
    # As `model.visual.preprocess_cfg` of open_clip is: two numbers.
    ("squash", OPEN_CLIP, {"preprocess_cfg": {"size": [32, 40], "resize_mode": "squash", "interpolation": "bilinear", **MEAN}}, [32, 40]),
    ("shortest", OPEN_CLIP, {"preprocess_cfg": {"size": [30, 30], "resize_mode": "shortest", **MEAN}}, [30, 30]),
    ("center", TIMM, {"pretrained_cfg": {"input_size": [3, 30, 30], "crop_pct": 0.9, "crop_mode": "center", **MEAN}}, [30, 30]),
    ("not-square", TIMM, {"pretrained_cfg": {"input_size": [3, 40, 24], "crop_pct": 0.9, "crop_mode": "squash", **MEAN}}, [40, 24]),
    # Mean and std are left out.
    ("clip-mean", OPEN_CLIP, {"preprocess_cfg": {"size": 24}}, [24, 24]),
    ("timm-mean", TIMM, {"pretrained_cfg": {"input_size": [3, 24, 24]}}, [24, 24]),
]
LIBRARIES = {PREPROCESSOR: hugging_face, PROCESSOR: nested, OPEN_CLIP: open_clip, TIMM: of_timm}


def main():
    folder = GOLDEN / "exported"
    folder.mkdir(parents=True, exist_ok=True)
    cases = []
    for name, file, text, sides in CASES:
        prepare, mean, std = LIBRARIES[file](text)
        for source in IMAGES:
            pixels = np.asarray(prepare(Image.open(GOLDEN / "pixels" / source).convert("RGB")), np.float64)
            levels = (pixels.transpose(1, 2, 0) * std + mean) * 255
            assert list(levels.shape[:2]) == sides, (name, levels.shape)
            assert np.abs(levels - levels.round()).max() < 1e-2, name
            stem = f"{name}-{source[:-4]}"
            Image.fromarray(levels.round().clip(0, 255).astype(np.uint8)).save(folder / f"{stem}.png", optimize=True)
            case = {"name": stem, "image": source, "input": sides, "mean": list(mean), "std": list(std)}
            cases.append({**case, "file": file, "text": text})
    (folder / "cases.json").write_text("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]\n")


if __name__ == "__main__":
    main()
