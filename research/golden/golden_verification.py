#!/usr/bin/env python3
"""Verification, dodging, impersonation, evasion and collision in PyTorch and NumPy.

    golden_verification.py IMAGES models/plain.onnx > tests/golden/verification.json   (needs torch, onnx, Pillow)

IMAGES has the built-in images, written by `audit images --out IMAGES`. The model is one of the bundled nets.
Pairs are random; images that genuine pairs connect have the same identity. Distances are between unit-norm
embeddings, and a pair is accepted if d <= t. All rates are counted directly. tests/it/verification.rs replays
the trials.
"""
import json
import pathlib
import sys

import numpy as np
import torch as th
from golden_order import net
from PIL import Image

EPS, ALPHA, STEPS, FAR = 77 / 255, 3 / 255, 32, 0.01
GENUINE, IMPOSTOR, QUERIES = 240, 1000, 24
GROUPS = ["north", "south", "west"]


def rates(genuine, impostor, t):
    """Returns FAR and the share of rejected genuine pairs."""
    return np.mean([d <= t for d in impostor]), np.mean([d > t for d in genuine])


def at_far(impostor, far):
    """Returns the upper bound of the thresholds with this FAR: the smallest impostor distance that must be rejected."""
    return min(d for d in impostor if np.mean([e <= d for e in impostor]) > far + 1e-12)


def eer(genuine, impostor):
    found = [rates(genuine, impostor, t) for t in sorted([*genuine, *impostor])]
    best = min(abs(far - frr) for far, frr in found)
    return next((far + frr) / 2 for far, frr in found if abs(far - frr) <= best + 1e-12)


def pairs_of(ids, random):
    classes = {}
    for i, name in enumerate(ids):
        classes.setdefault(name.split("/")[0], []).append(i)
    names, found = sorted(classes), {}
    while sum(found.values()) < GENUINE:
        a, b = random.permutation(classes[names[sum(found.values()) % len(names)]])[:2]
        found.setdefault((int(a), int(b)), True)
    while len(found) < GENUINE + IMPOSTOR:
        a, b = (int(i) for i in random.integers(len(ids), size=2))
        if ids[a].split("/")[0] != ids[b].split("/")[0]:
            found.setdefault((a, b), False)
    return [(a, b, same, GROUPS[int(random.integers(3))]) for (a, b), same in found.items()]


def identities(pairs):
    """Returns for each image the images that genuine pairs connect it with, including itself."""
    connected = {i: {i} for a, b, *_ in pairs for i in (a, b)}
    for a, b, same, _ in pairs:
        if same and connected[a] is not connected[b]:
            whole = connected[a] | connected[b]
            for i in whole:
                connected[i] = whole
    return connected


def attack(embed, points, image, items, sign):
    """Runs PGD on `sign` times the distance to the nearest of the items."""
    start = image[None]
    x = start.clone()
    for _ in range(STEPS):
        x.requires_grad_(True)
        (gradient,) = th.autograd.grad(sign * (embed(x)[0] - points[items]).norm(dim=1).min(), x)
        with th.no_grad():
            x = x - ALPHA * gradient.sign()
            x = th.max(th.min(x, start + EPS), start - EPS).clamp(0, 1)
    with th.no_grad():
        return (embed(x)[0].double() - points[items].double()).norm(dim=1).min().item()


def main(images, model):
    files = sorted(pathlib.Path(images).rglob("*.png"), key=lambda p: p.relative_to(images).as_posix())
    ids = [p.relative_to(images).with_suffix("").as_posix() for p in files]
    pixels = th.tensor(np.stack([np.asarray(Image.open(p), dtype=np.float32) / 255 for p in files]))[:, None]
    embed, random = net(model), np.random.default_rng(23)
    with th.no_grad():
        points = embed(pixels)
    wide = points.double().numpy()
    far = lambda a, b: float(np.linalg.norm(wide[a] - wide[b]))
    pairs = pairs_of(ids, random)
    d = {same: [far(a, b) for a, b, s, _ in pairs if s == same] for same in (True, False)}
    limit = at_far(d[False], FAR)
    t = np.nextafter(limit, 0)
    accepted, refused = rates(d[True], d[False], t)
    out = {
        "model": pathlib.Path(model).name, "far": FAR, "threshold": limit, "accepted": float(accepted), "tar": float(1 - refused),
        "eer": float(eer(d[True], d[False])),
    }
    connected = identities(pairs)
    everyone = sorted(connected)
    trials, after, before = [], {}, {}
    for code, same in [("DODGE", True), ("IMPERSONATE", False), ("EVADE", None), ("COLLIDE", None)]:
        sign = -1 if code in ("DODGE", "EVADE") else 1
        mine = {}
        for a, b, s, group in pairs:
            if same is None or s == same:
                mine.setdefault(a, (b, group))
        if code == "EVADE":
            mine = {a: v for a, v in mine.items() if len(connected[a]) > 1}
        for own in sorted(int(i) for i in random.permutation(sorted(mine))[:QUERIES]):
            other, group = mine[own]
            items = {
                "EVADE": sorted(connected[own] - {own}),
                "COLLIDE": [i for i in everyone if i not in connected[own]],
            }.get(code, [other])
            start = min(far(own, i) for i in items)
            end = attack(embed, points, pixels[own], items, sign)
            targets = [] if same is None else [ids[other]]
            before.setdefault(code, []).append(start)
            after.setdefault(code, []).append(end)
            row = {"attack": code, "query": ids[own], "targets": targets, "before": start, "after": end}
            trials.append(row if same is None else row | {"group": group})
    g, i = "DODGE", "IMPERSONATE"
    out["attacked_eer"] = [
        float(eer((after if dodged else before)[g], (after if impersonated else before)[i]))
        for dodged, impersonated in [(False, False), (True, False), (False, True), (True, True)]
    ]
    head = json.dumps(out)[:-1]
    rows = [json.dumps([ids[a], ids[b], same, group]) for a, b, same, group in pairs]
    print(head + ', "pairs": [\n' + ",\n".join(rows) + '\n], "trials": [\n' + ",\n".join(map(json.dumps, trials)) + "\n]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
