#!/usr/bin/env python3
"""Attacked files, checked and beside an attack that shares no code with audit: the tables of docs/files.md.

    audit images --out IMAGES --size 64 --channels 3 --classes 24 --samples 10
    file_peer.py make IMAGES DIR               DIR/gallery, and DIR/photos of many sizes and modes
    mkdir DIR/attacked; for p in DIR/photos/*; do name=${p##*/}; audit attack MODEL.onnx $p --data DIR/gallery \\
        --eps EPS/255 -o DIR/attacked/${name%.*}.png -q; echo "$? $name" >>DIR/outcomes; done
    file_peer.py check MODEL.onnx DIR          whether each attacked file finds another class than its photograph
    file_peer.py attack MODEL.onnx DIR EPS     another attack on the photographs that `outcomes` lists

The model of docs/files.md is rn32.onnx of the reference data. The attack is PGD with momentum towards each of the twelve nearest
classes, 100 steps from the photograph and 100 from a random start; the resize is torch's antialiased interpolation, and rounding is passed straight
through. What counts is Pillow's resize of the rounded image and onnxruntime. For nets of convolutions, ReLUs, sums and a matrix, whose input
takes pixels in [0, 1] and whose images are stretched to it. Prints how many photographs neither breaks, this attack alone, audit alone, and both.
"""

import os
import random
import sys
from pathlib import Path

import numpy as np
import onnx

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper
from PIL import Image, ImageOps

STEPS, CLASSES = 100, 12


def network(graph):
    weights = {w.name: torch.from_numpy(numpy_helper.to_array(w).copy()) for w in graph.initializer}

    def run(x):
        values = {**weights, graph.input[0].name: x}
        for node in graph.node:
            a = {t.name: helper.get_attribute_value(t) for t in node.attribute}
            i = [values[name] for name in node.input if name]
            if node.op_type == "Conv":
                out = F.conv2d(*i, stride=a.get("strides", [1, 1]), padding=a.get("pads", [0] * 4)[:2], groups=a.get("group", 1))
            elif node.op_type == "Relu":
                out = F.relu(i[0])
            elif node.op_type == "Add":
                out = i[0] + i[1]
            elif node.op_type == "Sub":
                out = i[0] - i[1]
            elif node.op_type == "Constant":
                out = torch.from_numpy(numpy_helper.to_array(a["value"]).copy())
            elif node.op_type == "ReduceMean":
                axes = a["axes"] if "axes" in a else i[1].tolist()
                out = i[0].mean(tuple(axes), keepdim=bool(a.get("keepdims", 1)))
            elif node.op_type == "Gemm":
                out = F.linear(i[0], i[1] if a.get("transB", 0) else i[1].t(), *i[2:])
            else:
                sys.exit(f"expected Conv, Relu, Add, Sub, Constant, ReduceMean and Gemm, found {node.op_type}")
            values[node.output[0]] = out
        return values[graph.output[0].name].flatten(1)

    return run


def make(images, folder):
    """The first six images of each class are the gallery; photographs are made of the others."""
    random.seed(1)
    images, folder, number = Path(images), Path(folder), 0
    (folder / "photos").mkdir(parents=True)
    sizes = [(64, 64), (20, 20), (33, 77), (120, 90), (300, 200), (64, 48), (31, 32), (150, 400)]
    for file in sorted(images.glob("*/*.png")):
        image = Image.open(file).convert("RGB")
        if int(file.stem) < 6:
            place = folder / "gallery" / file.parent.name
            place.mkdir(parents=True, exist_ok=True)
            image.save(place / file.name)
            continue
        height, width = random.choice(sizes)
        image = image.resize((width, height), Image.BICUBIC)
        mode = random.choice(["RGB", "RGB", "L", "RGBA", "P", "EXIF", "JPEG", "LA"])
        path = folder / f"photos/{number:03}-{file.parent.name}-{mode}.png"
        number += 1
        if mode == "EXIF":
            exif = Image.Exif()
            exif[0x0112] = random.choice([2, 3, 5, 6, 8])
            image.save(path.with_suffix(".jpg"), quality=95, exif=exif)
        elif mode == "JPEG":
            image.save(path.with_suffix(".jpg"), quality=90)
        elif mode == "P":
            image.quantize(64).save(path)
        elif mode in ("RGBA", "LA"):
            image = image.convert(mode)
            image.putalpha(Image.linear_gradient("L").resize((width, height)))
            image.save(path)
        else:
            image.convert(mode).save(path)


def main(command, model, folder, eps="0"):
    torch.manual_seed(0)
    folder, graph = Path(folder), onnx.load(model).graph
    net, session = network(graph), onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    side = [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim][2:]
    eps = int(eps) / 255

    def opened(path):
        return ImageOps.exif_transpose(Image.open(path)).convert("RGB")

    def pixels(image):
        return torch.from_numpy((np.asarray(image, np.float32) / 255).transpose(2, 0, 1)[None])

    def embedding(image):
        x = pixels(image.resize(side[::-1], Image.BILINEAR))
        return F.normalize(torch.from_numpy(session.run(None, {graph.input[0].name: x.numpy()})[0].reshape(1, -1)))[0]

    files = sorted((folder / "gallery").glob("*/*"))
    points = torch.stack([embedding(opened(path)) for path in files])
    labels = np.array([path.parent.name for path in files])
    with torch.no_grad():
        own = F.normalize(net(pixels(opened(files[0]).resize(side[::-1], Image.BILINEAR))))[0]
    assert (own - points[0]).abs().max() < 1e-4, "the net read from the file is another one"

    def nearest(image):
        return labels[int((points - embedding(image)).norm(dim=1).argmin())]

    def broken(photograph):
        first, here = pixels(photograph), nearest(photograph)
        distances = (points - embedding(photograph)).norm(dim=1)
        others = [c for c in dict.fromkeys(labels[distances.argsort().numpy()]) if c != here][:CLASSES]
        targets = torch.stack([torch.from_numpy(labels == c) for c in others])
        mine = torch.from_numpy(labels == here)
        for restart in range(2):
            x = first.repeat(len(targets), 1, 1, 1)
            if restart:
                x = (x + torch.empty_like(x).uniform_(-eps, eps)).clamp(0, 1)
            momentum = torch.zeros_like(x)
            for step in range(STEPS):
                x.requires_grad_()
                file = x + ((x * 255).round() / 255 - x).detach()
                z = F.normalize(net(F.interpolate(file, size=side, mode="bilinear", antialias=True)))
                d = torch.cdist(z, points)
                margin = d.masked_fill(~targets, 9).amin(1) - d.masked_fill(~mine[None], 9).amin(1)
                (gradient,) = torch.autograd.grad(margin.sum(), x)
                x = x.detach()
                if step % 10 == 9:
                    for k in (margin < 0.01).nonzero().flatten().tolist():
                        image = (x[k] * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
                        if nearest(Image.fromarray(image)) != here:
                            return True
                momentum = 0.9 * momentum + gradient / (gradient.abs().mean((1, 2, 3), keepdim=True) + 1e-12)
                alpha = eps / 4 * (1 + np.cos(np.pi * step / STEPS))
                x = torch.max(torch.min(x - alpha * momentum.sign(), first + eps), first - eps).clamp(0, 1)
        return False

    outcomes = [line.split(" ", 1) for line in (folder / "outcomes").read_text().splitlines()]
    if command == "check":
        found = [name for code, name in outcomes if code == "0"]
        of = lambda name: nearest(opened(folder / "attacked" / f"{Path(name).stem}.png"))
        wrong = [name for name in found if of(name) == nearest(opened(folder / "photos" / name))]
        print(f"{len(found)} of {len(outcomes)} photographs have a file; {len(found) - len(wrong)} of these are confirmed", *wrong)
        return
    count = [0, 0, 0, 0]
    for code, name in outcomes:
        count[2 * (code == "0") + broken(opened(folder / "photos" / name))] += 1
    print("neither {}, this attack alone {}, audit alone {}, both {}".format(*count))


if __name__ == "__main__":
    make(*sys.argv[2:]) if sys.argv[1] == "make" else main(*sys.argv[1:])
