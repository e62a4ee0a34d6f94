"""Natural corruptions by SciPy, Pillow, colorsys and PyTorch, for tests/golden/corruptions.json.
python research/golden/golden_corruptions.py > tests/golden/corruptions.json  (numpy, scipy, pillow, torch)

Constants are those of Hendrycks & Dietterich's code (CIFAR-10-C and ImageNet-C), which has no rotation and no
crop. The images are small, so the constants of CIFAR-10-C apply. Angles and crops are fixed instead of
random.
"""

import colorsys
import io
import json
import sys

import numpy as np
import torch
from PIL import Image
from scipy import ndimage
from scipy.stats import norm

SMALL = {
    "noise": [0.04, 0.06, 0.08, 0.09, 0.10],
    "blur": [0.4, 0.6, 0.7, 0.8, 1],
    "jpeg": [80, 65, 58, 50, 40],
    "brightness": [0.05, 0.1, 0.15, 0.2, 0.3],
    "contrast": [0.75, 0.5, 0.4, 0.3, 0.15],
}
LARGE = {
    "noise": [0.08, 0.12, 0.18, 0.26, 0.38],
    "blur": [1, 2, 3, 4, 6],
    "jpeg": [25, 18, 15, 10, 7],
    "brightness": [0.1, 0.2, 0.3, 0.4, 0.5],
    "contrast": [0.4, 0.3, 0.2, 0.1, 0.05],
}


def blur(x, sigma):
    return np.stack([ndimage.gaussian_filter(c, sigma, mode="nearest", truncate=4.0) for c in x])


def jpeg(x, quality):
    pixels = np.round(255 * x).astype(np.uint8).transpose(1, 2, 0).squeeze()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality, subsampling=0)
    back = np.asarray(Image.open(file), np.float64) / 255
    return back.reshape(*x.shape[1:], x.shape[0]).transpose(2, 0, 1)


def brightness(x, c):
    if len(x) == 1:
        return np.clip(x + c, 0, 1)
    out = np.empty_like(x)
    for at in np.ndindex(x.shape[1:]):
        h, s, v = colorsys.rgb_to_hsv(*x[(slice(None), *at)])
        out[(slice(None), *at)] = colorsys.hsv_to_rgb(h, s, min(v + c, 1))
    return out


def contrast(x, c):
    means = x.mean(axis=(1, 2), keepdims=True)
    return np.clip((x - means) * c + means, 0, 1)


def rotated(x, degrees):
    """ndimage.rotate turns the first of two axes towards the second: counter-clockwise as rows go down."""
    return np.stack([ndimage.rotate(c, degrees, reshape=False, order=1, mode="nearest") for c in x])


def cropped(x, start, size):
    part = x[:, start[0] : start[0] + size[0], start[1] : start[1] + size[1]]
    whole = torch.nn.functional.interpolate(torch.tensor(part)[None], x.shape[1:], mode="bilinear", align_corners=False)
    return whole[0].numpy()


def flat(x):
    return np.round(x.ravel(), 7).tolist()


random = np.random.default_rng(7)
cases = []
for shape in ((3, 17, 13), (1, 12, 20)):
    # Smooth like photographs, with an edge and a black corner.
    x = np.stack([ndimage.gaussian_filter(random.random(shape[1:]), 1.5) for _ in range(shape[0])])
    x = (x - x.min()) / (x.max() - x.min())
    x[:, 8:, 6:] = 1 - x[:, 8:, 6:]
    x[:, :3, :3] = 0
    x = np.round(255 * x) / 255
    case = {"shape": list(shape), "pixels": np.round(255 * x).astype(int).ravel().tolist(), "corrupted": {}}
    for make in (blur, jpeg, brightness, contrast):
        name = make.__name__
        case["corrupted"][name] = {str(s): flat(make(x, SMALL[name][s - 1])) for s in (1, 3, 5)}
    case["rotated"] = {str(degrees): flat(rotated(x, degrees)) for degrees in (2.0, -10.0)}
    parts = [([1, 0], [9, 11]), ([2, 2], [10, 8])]
    case["cropped"] = [{"start": a, "size": b, "pixels": flat(cropped(x, a, b))} for a, b in parts]
    cases.append(case)

# Mean and variance of clip(x + σz, 0, 1) for a flat image, by numerical integration.
noise = []
grid = np.linspace(-8, 8, 200_001)
density = norm.pdf(grid) / norm.pdf(grid).sum()
for level in (0.0, 0.3, 0.95):
    for strength in (1, 5):
        values = np.clip(level + SMALL["noise"][strength - 1] * grid, 0, 1)
        mean = (density * values).sum()
        noise.append({"level": level, "strength": strength, "mean": mean, "variance": (density * (values - mean) ** 2).sum()})

json.dump({"small": SMALL, "large": LARGE, "cases": cases, "noise": noise}, sys.stdout)
