#!/usr/bin/env python3
"""SPQA, FOA and SPFOA in PyTorch: golden_order.py IMAGES models/hardened.onnx > tests/golden/order.json

IMAGES has the built-in images, written by `audit images --out IMAGES`. The model is one of the bundled nets
(conv, ReLU, conv, ReLU, fc), whose weights are read from the file. Definitions: Zhou et al., T-PAMI 2024
(SPQA), and "Practical Relative Order Attack in Deep Ranking", ICCV 2021 (FOA, SPFOA). Distances are between
unit-norm embeddings. PGD has the settings of the published protocol for 28 pixels. tests/it/order.rs replays
the trials. Needs torch, onnx, Pillow.
"""
import json
import pathlib
import sys

import numpy as np
import onnx
import torch as th
import torch.nn.functional as F
from onnx import numpy_helper
from PIL import Image

th.set_num_threads(1)
EPS, ALPHA, STEPS, XI_K, QUERIES, KEPT = 0.30196, 0.011764, 32, 2e4, 24, 5
FORMS = ("published", "corrected")
BUDGET = {"published": (EPS, ALPHA), "corrected": (77 / 255, 3 / 255)}


def net(path):
    """The embedding as a function of images [n, 1, 28, 28], unit-norm."""
    graph = onnx.load(path).graph
    weights = {w.name: th.tensor(numpy_helper.to_array(w).copy()) for w in graph.initializer}
    steps = []
    for node in graph.node:
        at = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        args = [weights[name] for name in node.input if name in weights]
        if node.op_type == "Conv":
            pads, strides = at["pads"], at["strides"]
            assert pads[:2] == pads[2:]
            steps.append(lambda x, a=args, p=pads[:2], s=strides: F.conv2d(x, a[0], a[1], stride=s, padding=p))
        elif node.op_type == "Relu":
            steps.append(F.relu)
        elif node.op_type == "Flatten":
            steps.append(lambda x: x.flatten(1))
        elif node.op_type == "Gemm":
            steps.append(lambda x, a=args, t=at.get("transB", 0): x @ (a[0].t() if t else a[0]) + a[1])
        else:
            raise SystemExit(f"{path}: {node.op_type} is not among the operators of the bundled nets")

    def embed(x):
        for step in steps:
            x = step(x)
        return F.normalize(x, dim=1)

    return embed


def far(z, points):
    return (points - z).norm(dim=1)


def hinge(d, targets, sign):
    """mean over targets and all items of [sign (d_target - d_item)]+"""
    return F.relu(sign * (d[targets][:, None] - d[None, :])).mean() if len(targets) else d.sum() * 0


def main_loss(attack, d, targets):
    if attack.startswith("SPQA"):
        return hinge(d, targets, 1 if attack.endswith("+") else -1)
    at = d[targets]
    if len(targets) == 2:
        return F.relu(at[1] - at[0])
    return th.triu(F.relu(at[:, None] - at[None, :]), diagonal=1).mean()


def loss(attack, form, d, targets, kept, clean):
    value = main_loss(attack, d, targets)
    if attack.startswith("SP"):
        second = hinge(d, kept, 1)
        # The released code (robrank) never updates the weight of SPFOA on two targets during the attack.
        fixed = attack == "SPFOA2" and form == "published"
        sets = hinge(clean, kept, 1) if fixed else second
        value = value + min(np.exp(XI_K * sets.item()), 1e9) * second
    return value


def rank(d, items, own, form):
    order = th.argsort(d, stable=True).tolist()
    if form == "corrected":
        order.remove(own)
    return float(np.mean([order.index(i) for i in items])) if len(items) else None


def tau(d):
    sign = np.sign(np.subtract.outer(d, d))
    return float(-np.triu(sign, 1).sum() / (len(d) * (len(d) - 1) / 2))


def measured(attack, form, d, own, targets, kept):
    found = {}
    if attack.startswith("SPQA"):
        found["rank"] = rank(d, targets, own, form)
    elif len(targets) == 2:
        found["order"] = float(d[targets[1]] <= d[targets[0]])
    else:
        found["order"] = tau(d[targets].numpy())
    if attack.startswith("SP"):
        found["kept"] = rank(d, kept, own, form)
    return found


def select(attack, random, d, own):
    near = [i for i in th.argsort(d, stable=True).tolist() if i != own]
    if attack == "SPQA+":
        return [int(random.choice([i for i in range(len(d)) if i != own]))], near[:KEPT]
    m = 1 if attack == "SPQA-" else int(attack.removeprefix("SP").removeprefix("FOA"))
    # The nearest 1 % of the built-in images are fewer than 10 items; the loss and Kendall's tau don't depend
    # on how they are drawn.
    percent = near[: max(len(d) // 100, m)]
    targets = [int(i) for i in random.permutation(percent)[:m]]
    if m == 2:
        targets.sort(key=lambda i: d[i])
    return targets, [i for i in percent if i not in targets][:KEPT]


def main(images, model):
    files = sorted(pathlib.Path(images).rglob("*.png"), key=lambda p: p.relative_to(images).as_posix())
    ids = [p.relative_to(images).with_suffix("").as_posix() for p in files]
    pixels = th.tensor(np.stack([np.asarray(Image.open(p), dtype=np.float32) / 255 for p in files]))[:, None]
    embed, random = net(model), np.random.default_rng(18)
    with th.no_grad():
        points = embed(pixels)
    queries = sorted(int(i) for i in random.permutation(len(ids))[:QUERIES])
    out = {"model": pathlib.Path(model).name, "xi_k": XI_K, "trials": []}
    for attack in ["SPQA+", "SPQA-", "FOA2", "FOA5", "SPFOA2", "SPFOA5", "FOA10", "FOA25"]:
        for own in queries:
            clean = far(points[own], points)
            targets, kept = select(attack, random, clean, own)
            for form in FORMS:
                eps, alpha = BUDGET[form]
                start = pixels[own : own + 1]
                x = start.clone()
                for _ in range(STEPS):
                    x.requires_grad_(True)
                    value = loss(attack, form, far(embed(x)[0], points), targets, kept, clean)
                    (gradient,) = th.autograd.grad(value, x)
                    with th.no_grad():
                        x = x - alpha * gradient.sign()
                        x = th.max(th.min(x, start + eps), start - eps).clamp(0, 1)
                with th.no_grad():
                    after = far(embed(x)[0], points)
                out["trials"].append({
                    "attack": attack, "form": form, "query": ids[own], "targets": [ids[i] for i in targets],
                    "before": measured(attack, form, clean, own, targets, kept),
                    "after": measured(attack, form, after, own, targets, kept),
                })
    head = json.dumps({k: v for k, v in out.items() if k != "trials"})[:-1]
    print(head + ', "trials": [\n' + ",\n".join(map(json.dumps, out["trials"])) + "\n]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
