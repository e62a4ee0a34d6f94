#!/usr/bin/env python3
"""Checks attacked files without audit, and compares them with an independent attack: the tables of
docs/files.md.

    audit images --out IMAGES --size 64 --channels 3 --classes 24 --samples 9
    file_peer.py make IMAGES DIR [224]         DIR/images/gallery, and photographs of many sizes and modes in DIR/images/query; 224: larger
    file_peer.py run AUDIT MODEL.onnx DIR EPS WAY ...      attacks them by the program AUDIT; a way is a suite that has R1, or `attack`: one by one
    file_peer.py attack MODEL.onnx DIR EPS     attacks them in PyTorch and judges all files
    file_peer.py decode EVIDENCE.zip DIR       compares the photographs of the evidence of a suite with what Pillow decodes

`run` and `attack` skip what an earlier call has finished. The models of docs/files.md are rn32.onnx of the
reference data, and a net by resnet224.py. EPS is in grey levels.

The attack is PGD with momentum on the margin: 40 steps from the photograph towards each of the twelve nearest
classes, then 100 steps towards the best four, from the photograph and from two random starts, on a GPU if
PyTorch has one. It resizes with torch's antialiased interpolation, and passes gradients straight through the
rounding. All files, audit's too, are judged by Pillow's resize and onnxruntime. Supports nets of
convolutions, ReLUs, sums and a matrix, with pixels in [0, 1] and images stretched to the input. Photographs
that are wrong without an attack are left out. Prints for each WAY how many photographs are broken by neither
attack, by this one only, by audit only, and by both, and lists those broken by this one only.
"""

import csv
import io
import json
import os
import random
import subprocess
import sys
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper
from PIL import Image, ImageOps

CLASSES, NEAREST, FIRST, STEPS = 12, 4, 40, 100
WHERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.backends.cudnn.allow_tf32 = False


def network(graph):
    weights = {w.name: torch.from_numpy(numpy_helper.to_array(w).copy()).to(WHERE) for w in graph.initializer}

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
                out = torch.from_numpy(numpy_helper.to_array(a["value"]).copy()).to(WHERE)
            elif node.op_type == "ReduceMean":
                axes = a["axes"] if "axes" in a else i[1].tolist()
                out = i[0].mean(tuple(axes), keepdim=bool(a.get("keepdims", 1)))
            elif node.op_type == "Flatten":
                out = i[0].flatten(1)
            elif node.op_type == "Gemm":
                out = F.linear(i[0], i[1] if a.get("transB", 0) else i[1].t(), *i[2:])
            else:
                sys.exit(f"expected Conv, Relu, Add, Sub, Constant, ReduceMean, Flatten and Gemm, found {node.op_type}")
            values[node.output[0]] = out
        return values[graph.output[0].name].flatten(1)

    return run


def make(images, folder, side="32"):
    """The first six images of each class are the gallery; photographs are made of the others."""
    random.seed(1)
    images, folder = Path(images), Path(folder) / "images"
    sizes = {
        "32": [(64, 64), (20, 20), (33, 77), (120, 90), (300, 200), (64, 48), (31, 32), (150, 400)],
        "224": [(300, 300), (240, 320), (256, 192), (160, 213), (224, 224), (336, 252), (180, 120), (120, 300)],
    }[side]
    for number, file in enumerate(sorted(images.glob("*/*.png"))):
        image, group = Image.open(file).convert("RGB"), "gallery" if int(file.stem) < 6 else "query"
        place = folder / group / file.parent.name
        place.mkdir(parents=True, exist_ok=True)
        if group == "gallery":
            image.save(place / file.name)
            continue
        width, height = random.choice(sizes)
        image = image.resize((width, height), Image.BICUBIC)
        mode = random.choice(["RGB", "RGB", "L", "RGBA", "P", "EXIF", "JPEG", "LA"])
        path = place / f"{number:03}-{mode}.png"
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


def run(audit, model, folder, eps, *ways):
    """Writes the files of each way into DIR/WAY-EPS. Exit code 14 of `audit attack`: it found no file."""
    folder, flags = Path(folder), ["--space", "file", "--max-queries", "100000"]
    for way in ways:
        out, level = folder / f"{Path(way).stem}-{eps}", ["--eps", f"{eps}/255", "-q"]
        if way == "attack":
            for photograph in sorted((folder / "images/query").glob("*/*")):
                file = out / f"{photograph.stem}.png"
                if not file.with_suffix(".done").exists():
                    out.mkdir(exist_ok=True)
                    words = ["attack", model, photograph, "--data", folder / "images/gallery", "-o", file]
                    done = subprocess.run([audit, *words, *level], capture_output=True, text=True)
                    if done.returncode not in (0, 14):
                        sys.exit(f"{photograph}: audit attack ended with {done.returncode}: {done.stderr}")
                    file.with_suffix(".done").touch()
        elif not (out / "attacked.csv").exists():
            words = [model, "--suite", way, "--data", folder / "images", "--attacked-out", out, "--resume", "-o", f"{out}.json"]
            done = subprocess.run([audit, *words, *flags, *level], capture_output=True, text=True)
            if not (out / "attacked.csv").exists():
                sys.exit(f"audit --suite {way} ended with {done.returncode}: {done.stderr}")


def decode(evidence, folder):
    """Prints, for each mode, outcomes, photographs and the largest difference of a pixel."""
    archive = zipfile.ZipFile(evidence)
    outcomes, names = json.loads(archive.read("report.json"))["outcomes"], json.loads(archive.read("manifest.json"))["photographs"]
    found = defaultdict(list)
    for outcome, name in zip(outcomes, names, strict=True):
        photograph = Path(folder) / "images" / outcome["query"]
        held = np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB"), int)
        change = np.abs(held - np.asarray(opened(photograph), int)).max()
        found[photograph.stem.split("-")[1]].append((photograph, change))
    for mode, rows in sorted(found.items()):
        print(f"{mode:5} {len(rows)} outcomes, {len({row[0] for row in rows})} photographs, differ by {max(row[1] for row in rows)} at most")


def opened(path):
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def main(model, folder, levels):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder, graph = Path(folder), onnx.load(model).graph
    net, session = network(graph), onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    side = [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim][2:]
    eps = int(levels) / 255

    def pixels(image):
        return torch.from_numpy((np.asarray(image, np.float32) / 255).transpose(2, 0, 1)[None])

    def embedding(image):
        x = pixels(image.resize(side[::-1], Image.BILINEAR))
        return F.normalize(torch.from_numpy(session.run(None, {graph.input[0].name: x.numpy()})[0].reshape(1, -1)))[0]

    files = sorted((folder / "images/gallery").glob("*/*"))
    points = torch.stack([embedding(opened(path)) for path in files])
    labels = np.array([path.parent.name for path in files])
    with torch.no_grad():
        own = F.normalize(net(pixels(opened(files[0]).resize(side[::-1], Image.BILINEAR)).to(WHERE)))[0]
    points_there = points.to(WHERE)
    assert (own - points_there[0]).abs().max() < 1e-4, "the net read from the file is another one"

    def nearest(image):
        return labels[int((points - embedding(image)).norm(dim=1).argmin())]

    def search(first, starts, here, targets, steps):
        """The file that breaks, if there is one, and the lowest margin of each start."""
        x, momentum = starts.clone(), torch.zeros_like(starts)
        low, high = (first - eps).clamp(0, 1), (first + eps).clamp(0, 1)
        mine, lowest = torch.from_numpy(labels == here).to(WHERE), torch.full((len(starts),), 9.0, device=WHERE)
        for step in range(steps + 1):
            file = (x * 255).round_().div_(255).requires_grad_()
            z = F.normalize(net(F.interpolate(file, size=side, mode="bilinear", antialias=True)))
            d = torch.cdist(z, points_there)
            margin = d.masked_fill(~targets, 9).amin(1) - d.masked_fill(~mine[None], 9).amin(1)
            (gradient,) = torch.autograd.grad(margin.sum(), file)
            margin = margin.detach()
            lowest = torch.minimum(lowest, margin)
            if step % 10 == 0:
                for k in (margin < 0.01).nonzero().flatten().tolist():
                    image = Image.fromarray((x[k] * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy())
                    if nearest(image) != here:
                        return image, lowest
            momentum.mul_(0.9).add_(gradient.div_(gradient.abs().mean((1, 2, 3), keepdim=True) + 1e-12))
            alpha = eps / 4 * (1 + np.cos(np.pi * step / steps))
            x.sub_(momentum.sign().mul_(alpha)).clamp_(low, high)
        return None, lowest

    def broken(photograph, here):
        first, distances = pixels(photograph).to(WHERE), (points - embedding(photograph)).norm(dim=1)
        others = [c for c in dict.fromkeys(labels[distances.argsort().numpy()]) if c != here][:CLASSES]
        targets = torch.stack([torch.from_numpy(labels == c) for c in others]).to(WHERE)
        image, lowest = search(first, first.repeat(len(targets), 1, 1, 1), here, targets, FIRST)
        if image:
            return image
        targets = targets[lowest.argsort()[:NEAREST]].repeat(3, 1)
        starts = first.repeat(len(targets), 1, 1, 1)
        starts[NEAREST:] += torch.empty_like(starts[NEAREST:]).uniform_(-eps, eps)
        return search(first, starts.clamp(0, 1), here, targets, STEPS)[0]

    def breaks(photograph, here, file):
        """Whether a file of audit is within ε of its photograph, up to the decoder of JPEG, and finds another class."""
        image = opened(file)
        change = np.abs(np.asarray(image, int) - np.asarray(opened(photograph), int)).max()
        lossless = photograph.suffix == ".png"
        assert not lossless or change <= int(levels), f"{file} differs by {change} grey levels from {photograph}"
        return nearest(image) != here

    ways = {}  # a suite writes its list last
    for out in sorted(folder.glob(f"*-{levels}")):
        way, listed = out.name.removesuffix(f"-{levels}"), out / "attacked.csv"
        if way == "attack":
            ways[way] = {done.stem: done.with_suffix(".png") for done in out.glob("*.done")}
        elif listed.exists():
            rows = [row for row in csv.DictReader(listed.open()) if row["attack"] == "R1" and row["success"] == "100.00"]
            ways[way] = {Path(row["source"]).stem: out / row["path"] for row in rows}
    peer = folder / f"pytorch-{levels}"
    peer.mkdir(exist_ok=True)
    right, count, alone = 0, {way: np.zeros(4, int) for way in ways}, []
    photographs = sorted((folder / "images/query").glob("*/*"))
    for photograph in photographs:
        here = nearest(opened(photograph))
        if here != photograph.parent.name:
            continue
        right, file = right + 1, peer / f"{photograph.stem}.png"
        if not file.with_suffix(".done").exists():
            if image := broken(opened(photograph), here):
                image.save(file)
            file.with_suffix(".done").touch()
        for way, listed in ways.items():
            audits = listed.get(photograph.stem)
            broke = bool(audits and audits.exists()) and breaks(photograph, here, audits)
            if audits and audits.exists() and not broke:
                print(f"  {audits} finds {here}, as its photograph does")
            count[way][2 * broke + file.exists()] += 1
            alone += [f"{way}: {photograph}"] * (file.exists() and not broke)
    print(f"eps {levels}/255: {right} of {len(photographs)} photographs are right without an attack")
    for way, (neither, this, audits, both) in count.items():
        print(f"  {way:8} neither {neither}, PyTorch alone {this}, audit alone {audits}, both {both}")
    for name in alone:
        print(f"  PyTorch alone, not {name}")


if __name__ == "__main__":
    commands = {"make": make, "run": run, "attack": main, "decode": decode}
    if len(sys.argv) < 4 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
