"""Converts a model to another precision, and checks the results of `audit compare float.onnx int8.onnx`.

    python tests/it/precisions.py int8 models/plain.onnx IMAGES tests/precisions/plain-int8.onnx
    python tests/it/precisions.py fp16 models/plain.onnx IMAGES plain-fp16.onnx
    python tests/it/precisions.py check evidence.zip MODEL.onnx OTHER.onnx

`int8` is static quantisation of ONNX Runtime (QDQ, weights and activations of 8 bits), calibrated on every
fifth PNG file below IMAGES; `audit images --out IMAGES` writes the built-in set. `fp16` is
onnxconverter-common's conversion. tests/precisions/plain-int8.onnx was made so with onnxruntime 1.31.1.

`check` takes what `audit report --bundle` wrote of an audit of one model, embeds its clean and its attacked
images by that model and by OTHER in ONNX Runtime, graphs as they are written, and prints as JSON what the
attacks made on the model leave on the other: R@1 after ES and the cosine after TMA. (Other attacks choose
targets by the model that they are measured on.) Besides: the cosines between both models' embeddings, the
share of queries with the same nearest image, and R@1 of both without an attack.
"""

import io
import json
import os
import pathlib
import sys
import zipfile

import numpy as np

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime as ort
from PIL import Image


def pixels(file):
    return np.asarray(Image.open(file).convert("L"), np.float32)[None, None] / 255


def int8(model, images, out):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    name = ort.InferenceSession(model).get_inputs()[0].name

    class Reader(CalibrationDataReader):
        rest = iter(sorted(pathlib.Path(images).rglob("*.png"))[::5])

        def get_next(self):
            file = next(self.rest, None)
            return None if file is None else {name: pixels(file)}

    kinds = dict(activation_type=QuantType.QInt8, weight_type=QuantType.QInt8)
    quantize_static(model, out, Reader(), quant_format=QuantFormat.QDQ, **kinds)


def fp16(model, out):
    import onnx
    from onnxconverter_common import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(model), keep_io_types=True), out)


def check(bundle, model, other):
    archive = zipfile.ZipFile(bundle)
    report, manifest = (json.loads(archive.read(name)) for name in ("report.json", "manifest.json"))

    def image(name):
        data = io.BytesIO(archive.read(name))
        return np.load(data)[None] if name.endswith(".npy") else pixels(data)

    def embed(file, names):
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        points = np.concatenate([session.run(None, {name: image(n)})[0] for n in names]).astype(np.float64)
        return points / np.linalg.norm(points, axis=1, keepdims=True)

    labels = np.array([item["label"] for item in manifest["items"]])
    index = {item["id"]: i for i, item in enumerate(manifest["items"])}
    own, theirs = (embed(file, manifest["images"]) for file in (model, other))

    def first(points, z, query):
        distances = np.linalg.norm(points - z, axis=1)
        distances[query] = np.inf
        return distances.argmin()

    hits, cosines = [], []
    for outcome, z in zip(report["outcomes"], embed(other, manifest["attacked"])):
        query = index[outcome["query"]]
        if outcome["attack"] == "ES":
            hits.append(labels[first(theirs, z, query)] == labels[query])
        if outcome["attack"] == "TMA":
            cosines.append(z @ theirs[index[outcome["targets"][0]]])
    both = np.sum(own * theirs, axis=1)
    firsts = np.array([[first(own, own[i], i), first(theirs, theirs[i], i)] for i in range(len(own))])
    same, correct = firsts[:, 0] == firsts[:, 1], labels[firsts] == labels[:, None]
    r1 = 100 * correct.mean(0)
    found = {"r1_own": r1[0], "r1_other": r1[1], "ES:R": 100 * np.mean(hits), "TMA": np.mean(cosines), "mean": both.mean(), "lowest": both.min(), "same_first": 100 * np.mean(same)}
    print(json.dumps({name: float(value) for name, value in found.items()}))


if __name__ == "__main__":
    {"int8": int8, "fp16": lambda model, _, out: fp16(model, out), "check": check}[sys.argv[1]](*sys.argv[2:])
