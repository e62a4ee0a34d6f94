"""Scores models by the published protocol, and checks for masked gradients.

    python measure.py REFERENCE_AUDIT.py IMAGES MODEL.onnx...

REFERENCE_AUDIT.py is the protocol in PyTorch, from the shared folder beside the checkout. IMAGES are the
built-in images, exported at 28 × 28 grey. After the scores, prints R@1 of the first 100 queries under attacks
that maximise the embedding shift (ES), or that target the nearest image of another class (GTM): as published,
from a random start with more steps, and with each of the other models as surrogate. If one of the last two
leaves a clearly lower R@1 than the published attack, the published score is too high.
"""
import importlib.util
import os
import pathlib
import sys

import numpy as np
import onnx

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime
import torch
import torch.nn.functional as F
from onnx import numpy_helper
from PIL import Image


def load(path):
    """Returns a chain of convolutions, ReLUs and dense layers as a function of PyTorch, checked against ONNX Runtime."""
    graph = onnx.load(path).graph
    weights = {w.name: torch.from_numpy(numpy_helper.to_array(w).copy()) for w in graph.initializer}

    def layer(node):
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        rest = [weights[name] for name in node.input[1:]]
        match node.op_type:
            case "Conv":
                return lambda x: F.conv2d(x, *rest, stride=attributes["strides"], padding=attributes["pads"][:2])
            case "Gemm":
                return lambda x: F.linear(x, *rest)
            case "Relu":
                return F.relu
            case "Flatten":
                return lambda x: x.flatten(1)
        sys.exit(f"{path}: expected Conv, Relu, Flatten and Gemm, found {node.op_type}")

    layers = [layer(node) for node in graph.node]

    def model(x):
        for each in layers:
            x = each(x)
        return x

    images = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    expected, = onnxruntime.InferenceSession(path).run(None, {graph.input[0].name: images.numpy()})
    difference = np.abs(expected - model(images).numpy()).max()
    if not difference < 1e-4:
        sys.exit(f"{path}: ONNX Runtime and PyTorch differ by {difference}")
    return model


def recall_after(ra, model, source, images, labels, rows, goal, alpha, steps, random_start):
    """Returns R@1 of the rows under an attack with the gradients of `source`, and the share of zero gradients, in %."""
    start = images[rows]
    low, high = (start - ra.EPS28).clamp(min=0), (start + ra.EPS28).clamp(max=1)
    generator = torch.Generator().manual_seed(0)
    x = low + (high - low) * torch.rand(start.shape, generator=generator) if random_start else start
    gallery = ra.embed_all(source, images, "N")
    clean = gallery[rows]
    same = labels[rows][:, None] == labels[None]
    target = gallery[ra.dist(clean, gallery, "N").masked_fill(same, ra.BIG).argmin(1)]
    zero = []
    for _ in range(steps):
        x = x.detach().requires_grad_(True)
        z = ra.to_metric(source(x), "N")
        loss = -(z - clean - 1e-6).norm(dim=1) if goal == "ES" else (z - target).norm(dim=1)
        gradient, = torch.autograd.grad(loss.sum(), x)
        zero.append((gradient == 0).float().mean().item())
        x = (x - alpha * gradient.sign()).clamp(low, high)
    with torch.no_grad():
        gallery = ra.embed_all(model, images, "N")
        distance = ra.dist(ra.to_metric(model(x), "N"), gallery, "N")
    distance[torch.arange(len(rows)), rows] = ra.BIG
    hit = labels[distance.argmin(1)] == labels[rows]
    return round(100 * hit.float().mean().item()), round(100 * float(np.mean(zero)))


def main():
    reference, folder, *paths = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("reference_audit", reference)
    ra = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ra)
    torch.set_num_threads(1)
    files = sorted(pathlib.Path(folder).glob("*/*.png"))
    images = torch.from_numpy(np.stack([np.asarray(Image.open(f), np.float32) / 255 for f in files]))[:, None]
    labels = torch.from_numpy(np.unique([f.parent.name for f in files], return_inverse=True)[1])
    selections = ra.make_selections(len(images), 200, 0)
    rows = torch.tensor(selections["query"][:100])
    print(f"torch {torch.__version__}, numpy {np.__version__}, onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
    models = {path: load(path) for path in paths}
    for path, model in models.items():
        gallery = ra.embed_all(model, images, "N")
        benign, _ = ra.benign(gallery, labels, "N", nmi=False)
        trials = {a: ra.run_attack(model, images, labels, gallery, a, selections) for a in ra.ATTACKS}
        scores = ra.summarise(trials, len(images))
        print(f"{path}: R@1 {100 * benign['R1']:.1f}  mAP {100 * benign['mAP']:.1f}  ERS "
              f"{ra.ers(**ra.ers_inputs(scores)):.1f}  ARS {ra.ars(scores):.1f}", flush=True)
        for goal in ("ES", "GTM"):
            cases = [("published", model, ra.ALPHA28, ra.STEPS28, False), ("random start", model, 0.02, 200, True)]
            cases += [(f"made on {other}", models[other], 0.02, 50, False) for other in paths if other != path]
            for name, source, *how in cases:
                left, zero = recall_after(ra, model, source, images, labels, rows, goal, *how)
                print(f"  {goal} {name}: R@1 {left}, {zero} % of the gradient zero", flush=True)


if __name__ == "__main__":
    main()
