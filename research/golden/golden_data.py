#!/usr/bin/env python3
"""Writes tests/golden/cars/*.mat with SciPy, and tests/golden/pixels/ with torchvision.

    python research/golden/golden_data.py        (numpy, scipy, pillow, torch, torchvision as in tools/requirements.txt)

The .mat files have the structure of the annotations of Cars-196, in both packagings, with six rows. The
images are generated: smooth shapes with noise, of odd sizes, so that crops and scales need rounding.
"""

import json
from pathlib import Path

import numpy as np
import scipy.io
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import InterpolationMode as Mode

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"


def structs(rows):
    fields = [(name, object) for name in rows[0]]
    table = np.zeros((1, len(rows)), dtype=fields)
    for i, row in enumerate(rows):
        for name, value in row.items():
            table[0, i][name] = value
    return table


def cars():
    folder = GOLDEN / "cars"
    folder.mkdir(parents=True, exist_ok=True)
    names = np.empty((1, 100), dtype=object)
    for i in range(100):
        names[0, i] = f"Make Model {i + 1}"
    box = {f"bbox_{at}": np.uint8(9) for at in ("x1", "y1", "x2", "y2")}
    classes = [98, 99, 99, 100, 100, 1]
    together = [
        {"relative_im_path": f"car_ims/{i + 1:06}.jpg", **box, "class": np.uint8(c), "test": np.uint8(i % 2)}
        for i, c in enumerate(classes)
    ]
    scipy.io.savemat(
        folder / "cars_annos.mat", {"annotations": structs(together), "class_names": names}, do_compression=True
    )
    # Three classes of two images on either side of the zero-shot split, which a training needs.
    pairs = [1, 2, 3, 99, 100, 101]
    small = [
        {"relative_im_path": f"car_ims/{i + 1:06}.jpg", **box, "class": np.uint8(pairs[i // 2]), "test": np.uint8(0)}
        for i in range(12)
    ]
    more = np.empty((1, 101), dtype=object)
    for i in range(101):
        more[0, i] = f"Make Model {i + 1}"
    scipy.io.savemat(folder / "cars_pairs.mat", {"annotations": structs(small), "class_names": more}, do_compression=True)
    for part, chosen in (("train", classes[:3]), ("test", classes[3:])):
        rows = [{**box, "class": np.uint8(c), "fname": f"{i + 1:05}.jpg"} for i, c in enumerate(chosen)]
        name = "cars_train_annos.mat" if part == "train" else "cars_test_annos_withlabels.mat"
        scipy.io.savemat(folder / name, {"annotations": structs(rows)}, do_compression=part == "train")
    scipy.io.savemat(folder / "cars_meta.mat", {"class_names": names})
    for path in folder.glob("*.mat"):
        # The first 116 bytes are a text with the time.
        path.write_bytes(b"MATLAB 5.0 MAT-file, written by SciPy".ljust(116) + path.read_bytes()[116:])


def picture(height, width, seed):
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    planes = []
    for _ in range(3):
        a, b, c = rng.uniform(3, 25, 3)
        planes.append(0.5 + 0.3 * np.sin(a * x + b * y) + 0.2 * np.sign(np.sin(c * (x - y))))
    values = np.stack(planes, -1) + rng.normal(0, 0.05, (height, width, 3))
    return Image.fromarray((values.clip(0, 1) * 255).round().astype(np.uint8))


def along_rows_first(image, size, mode):
    """Resizes as Pillow did up to version 12. Since 13, it begins with the columns if that is cheaper."""
    pil = {Mode.BILINEAR: Image.BILINEAR, Mode.BICUBIC: Image.BICUBIC, Mode.NEAREST: Image.NEAREST}[mode]
    width, height = size
    return image.resize((width, image.height), pil).resize((width, height), pil)


def pixels():
    folder = GOLDEN / "pixels"
    folder.mkdir(parents=True, exist_ok=True)
    cases = []
    sources = {"wide.png": picture(61, 97, 1), "tall.png": picture(90, 41, 2), "small.png": picture(19, 23, 3)}
    for name, image in sources.items():
        image.save(folder / name, optimize=True)
    sources["wide.jpg"] = sources["wide.png"]
    sources["wide.jpg"].save(folder / "wide.jpg", quality=90)
    for name in sources:
        image = Image.open(folder / name).convert("RGB")
        tensor = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255
        for how, mode, antialias in (
            ("bilinear", Mode.BILINEAR, True),
            ("bilinear-aliased", Mode.BILINEAR, False),
            ("bicubic", Mode.BICUBIC, True),
            ("bicubic-aliased", Mode.BICUBIC, False),
            ("nearest", Mode.NEAREST, True),
        ):
            for resize in ([32, 32], 33):
                steps = [transforms.Resize(resize, mode, antialias=antialias), transforms.CenterCrop(24)]
                # PIL resizes images, always with antialiasing; torch resizes tensors.
                result = transforms.Compose(steps)(image if antialias else tensor)
                if not antialias:
                    levels = (result.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
                    result = Image.fromarray(levels)
                stem = f"{Path(name).stem}-{name[-3:]}-{how}-{resize if isinstance(resize, int) else 'exact'}"
                result.save(folder / f"{stem}.png", optimize=True)
                case = {"image": name, "interpolation": how, "resize": resize, "expected": f"{stem}.png"}
                if antialias:
                    rows_first = steps[1](along_rows_first(image, steps[0](image).size, mode))
                    if rows_first.tobytes() != result.tobytes():
                        rows_first.save(folder / f"{stem}-rows-first.png", optimize=True)
                        case["rows_first"] = f"{stem}-rows-first.png"
                cases.append(case)
    (folder / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")


cars()
pixels()
