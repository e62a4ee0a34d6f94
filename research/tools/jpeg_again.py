#!/usr/bin/env python3
"""Counts attacked JPEG files whose nearest image has another class, as they are and after another JPEG
encoding.

    jpeg_again.py MODEL.onnx IMAGES ATTACKED

ATTACKED is the folder of --attacked-out of an audit with R1, --space file and --jpeg; IMAGES has the audited
PNG files in folders of classes. The model takes RGB images in [0, 1], stretched to its input, and its
embeddings are compared by their angle.
"""

import csv, io, os, sys
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime uploads otherwise; it reads this when it is imported
import numpy as np
import onnxruntime
from PIL import Image

QUALITIES = (95, 90, 75, 50, 30)
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
entry, images, attacked = session.get_inputs()[0], Path(sys.argv[2]), Path(sys.argv[3])
height, width = entry.shape[2:]


def point(image):
    image = image.convert("RGB")
    image = image.resize((width, image.size[1]), Image.BILINEAR).resize((width, height), Image.BILINEAR)
    pixels = np.asarray(image, np.float32).transpose(2, 0, 1)[None] / np.float32(255)
    found = session.run(None, {entry.name: pixels})[0].reshape(-1).astype(np.float64)
    return found / np.linalg.norm(found)


def encoded(image, quality, subsampling):
    image.save(file := io.BytesIO(), "JPEG", quality=quality, subsampling=subsampling)
    return Image.open(file)


files = {f"{path.parent.name}/{path.name}": path for path in sorted(images.glob("*/*.png"))}
gallery = np.stack([point(Image.open(path)) for path in files.values()])
labels, places = np.array([name.split("/")[0] for name in files]), {name: i for i, name in enumerate(files)}


def margin(image, row):  # distance to the nearest image of the own class, minus that of another class
    distances = np.linalg.norm(gallery - point(image), axis=1)
    distances[places[row["source"]]] = np.inf
    own = labels == row["label"]
    return distances[own].min() - distances[~own].min()


with open(attacked / "attacked.csv", encoding="utf-8") as file:
    rows = [row for row in csv.DictReader(file) if row["attack"] == "R1" and margin(Image.open(files[row["source"]]), row) < 0]
broken = [row for row in rows if float(row["success"]) >= 100]
found = [Image.open(attacked / row["path"]).convert("RGB") for row in broken]


def count(change):
    return sum(margin(change(image), row) > 0 for image, row in zip(found, broken))


margins = sorted(margin(image, row) for image, row in zip(found, broken))
print(f"{len(rows)} correct queries, {len(broken)} files find another class; as Pillow reads them {count(lambda image: image)}, median margin {np.median(margins):.3f}")
for name, subsampling in (("4:4:4", 0), ("4:2:0", 2)):
    print(f"encoded again, {name}:", ", ".join(f"{count(lambda image: encoded(image, q, subsampling))} at {q}" for q in QUALITIES))
