#!/usr/bin/env python3
"""Compares robust top-1 of `audit` with an attack in PyTorch on the same queries.

    python research/tools/peer_top1.py --audit PATH --eps EPS --queries N MODEL.onnx=IMAGES ...

IMAGES is a folder of class folders with PNG files of the model's size, from 0 to 255 without further
preprocessing. Without labels, a query is correct if its nearest image is that of the clean query, or a near
copy of it. The other attack is PGD with momentum on the distance to that image minus the distance to the
nearest other image: untargeted, and towards each of the 12 nearest other images, from the clean image and
from random starts. Results are measured by ONNX Runtime with the original file. Prints how many queries each
attack breaks.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent))
from peer_attacks import converted  # noqa: E402

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime  # noqa: E402

COPY = 0.999
TARGETS = 12


def images_of(folder):
    files = sorted(folder.glob("*/*.png"))
    pixels = np.stack([np.atleast_3d(np.asarray(Image.open(f), np.float32)) for f in files])
    return [f"{f.parent.name}/{f.name}" for f in files], torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy() / np.float32(255))


def embedded(session, images):
    name = session.get_inputs()[0].name
    z = np.concatenate([session.run(None, {name: batch.numpy()})[0].reshape(len(batch), -1) for batch in images.split(32)])
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def attack(net, gallery, image, query, correct, target, eps, start, steps):
    """The images of a run, the last one of the largest margin: [1, C, H, W]."""
    wrong = torch.ones(len(gallery), dtype=torch.bool)
    wrong[[query, *correct]] = False
    low, high = (image - eps).clamp(min=0), (image + eps).clamp(max=1)
    x = image if start == 0 else torch.min(torch.max(image + eps * (2 * torch.rand_like(image) - 1), low), high)
    momentum, best, least = torch.zeros_like(image), image, float("inf")
    for step in range(steps):
        x = x.detach().requires_grad_(True)
        d = torch.cdist(torch.nn.functional.normalize(net(x).flatten(1)), gallery)[0]
        loss = (d[target] if target is not None else d[wrong].min()) - d[correct].min()
        if loss.item() < least:
            least, best = loss.item(), x.detach()
        if least < -1e-6:
            break
        (gradient,) = torch.autograd.grad(loss, x)
        momentum = 0.75 * momentum + gradient / gradient.abs().mean().clamp(min=1e-20)
        size = 2 * eps * (1 - step / steps) ** 1.5 / 5
        x = torch.min(torch.max(x.detach() - size * momentum.sign(), low), high)
    return best


def compare(audit, model, folder, eps, queries, steps, starts):
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "report.json"
        flags = ["--labels", "none", "--eps", eps, "--max-queries", str(queries), "-q", "-o", str(out)]
        subprocess.run([audit, model, "--data", str(folder), *flags], stdout=subprocess.DEVNULL, check=False)
        report = json.loads(out.read_text())
    names, images = images_of(folder)
    at = {name: i for i, name in enumerate(names)}
    net, _ = converted(model, images)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    clean = embedded(session, images)
    gallery, size = torch.from_numpy(clean), report["suite"]["eps"]
    table = {"neither": 0, "peer alone": 0, "audit alone": 0, "both": 0}
    for outcome in report["outcomes"]:
        query = at[outcome["query"]]
        far = np.linalg.norm(clean - clean[query], axis=1)
        far[query] = np.inf
        first = int(far.argmin())
        correct = [i for i in range(len(names)) if i != query and clean[i] @ clean[first] >= COPY]
        stated = sorted(at[name] for name in outcome["targets"])
        if stated != sorted(correct):
            sys.exit(f"peer_top1.py: {outcome['query']}: expected the targets {correct}, found {stated}")
        others = [i for i in far.argsort() if i != query and i not in correct][:TARGETS]
        broken = False
        for target in [None, *others]:
            for start in range(starts):
                found = attack(net, gallery, images[query : query + 1], query, correct, target, size, start, steps)
                d = np.linalg.norm(clean - embedded(session, found), axis=1)
                d[query] = np.inf
                broken |= int(d.argmin()) not in correct and float((found - images[query]).abs().max()) <= size + 1e-6
                if broken:
                    break
            if broken:
                break
        ours = not outcome["after"]["hit"]
        table["both" if ours and broken else "audit alone" if ours else "peer alone" if broken else "neither"] += 1
    print(f"{model} at {eps}: {len(report['outcomes'])} queries; broken by " + ", ".join(f"{k} {v}" for k, v in table.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx=IMAGES")
    parser.add_argument("--audit", required=True)
    parser.add_argument("--eps", required=True, help="such as 8/255")
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--starts", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for word in args.models:
        model, _, folder = word.partition("=")
        if Fraction(args.eps) <= 0 or not Path(folder).is_dir():
            sys.exit(f"peer_top1.py: {word}: expected MODEL.onnx=FOLDER and an ε above 0")
        compare(args.audit, model, Path(folder), args.eps, args.queries, args.steps, args.starts)


if __name__ == "__main__":
    main()
