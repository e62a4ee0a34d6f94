#!/usr/bin/env python3
"""An attack on photographs that shares no code with audit, beside `audit attack`.

    file_peer.py MODEL.onnx GALLERY PHOTOS OUTCOMES EPS

GALLERY has a folder of images for each class, PHOTOS the photographs. OUTCOMES has a line for each photograph, as a shell prints it:
`audit attack MODEL.onnx PHOTOS/name … --eps EPS/255; echo "$? name"`. The attack is PGD with momentum towards each of the twelve nearest
classes, 100 steps from the photograph and 100 from a random start; the resize is torch's antialiased interpolation, and rounding is passed straight
through. What counts is Pillow's resize of the rounded image and onnxruntime. For nets of convolutions, ReLUs, sums and a matrix, whose input
takes pixels in [0, 1] and whose images are stretched to it. Prints how many photographs neither breaks, this attack alone, audit alone, and both.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
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


def main():
    model, gallery, photos, outcomes, eps = sys.argv[1:]
    torch.manual_seed(0)
    graph = onnx.load(model).graph
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

    files = sorted(Path(gallery).glob("*/*"))
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

    count = [0, 0, 0, 0]
    for line in Path(outcomes).read_text().splitlines():
        code, name = line.split(" ", 1)
        count[2 * (code == "0") + broken(opened(Path(photos) / name))] += 1
    print("neither {}, this attack alone {}, audit alone {}, both {}".format(*count))


if __name__ == "__main__":
    main()
