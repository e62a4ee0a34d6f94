#!/usr/bin/env python3
"""Reference implementation of the attacks of two papers, in PyTorch.

These are NN-push and related attacks (Panum et al., arXiv:2102.07265), and alignment, uniformity and triplet
(ADML).

    reference_papers.py SHARED OUT [MODEL ...]   # SHARED: the folder of models, data and selections beside the checkout

Independent of the program: follows the definitions in docs/attacks.md. Writes a file for each model to OUT:
the trials, in the format of `audit --trials`, and their results; tests/it/papers_golden.rs compares. Attacks
start at the clean image, so that trials are identical; only `NN from a random start` has random starts. Needs
torch, numpy and onnx.
"""
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import torch as th
import torch.nn.functional as F

EPS, STEPS = 0.05, 5                                  # NN-push: steps of 2ε/5
ADML = (8 / 255, 0.007, 7)                            # ε, α, steps
FEW = 30                                              # queries of the searches for the smallest perturbation
BISECTION, CW = 110, 180                              # their steps
BIG = 1e9


def net(path):
    """Returns the model as a function. Supports only the operators of the two reference models."""
    graph = onnx.load(path).graph
    w = {i.name: th.from_numpy(onnx.numpy_helper.to_array(i).copy()) for i in graph.initializer}
    rules = {
        "Conv": lambda x, k, b: F.conv2d(x, k, b, padding=k.shape[-1] // 2),
        "Relu": F.relu, "MaxPool": lambda x: F.max_pool2d(x, 2), "Flatten": lambda x: x.flatten(1),
        "Gemm": lambda x, k, b: x @ k.t() + b,
    }

    def embed(x):
        for node in graph.node:
            x = rules[node.op_type](x, *(w[name] for name in node.input[1:]))
        return F.normalize(x, dim=1)

    return embed


def far(z, gal):
    """Returns distances [B, N], computed from differences."""
    return th.cdist(z, gal, compute_mode="donot_use_mm_for_euclid_dist")


class Trials:
    """Queries, their galleries and targets. `still` are the queries that an attack skips."""

    def __init__(self, embed, images, labels, gal, queries):
        self.embed, self.gal, self.queries = embed, gal, queries
        self.x0, self.z0 = images[queries], gal[queries]
        rows = th.arange(len(queries))
        self.same = labels[None] == labels[queries][:, None]
        self.own = self.same.clone()
        self.own[rows, queries] = False
        d = far(self.z0, gal)
        d[rows, queries] = BIG
        self.nearest = d.argmin(1)
        self.still = ~self.same[rows, self.nearest]
        self.other = d.masked_fill(self.same, BIG).argmin(1)

    def margin(self, z):
        """Returns min d over other classes − min d over the query's class: negative if and only if the query is wrong."""
        d = far(z, self.gal)
        return d.masked_fill(self.same, BIG).min(1)[0] * (1 + 1e-6) - d.masked_fill(~self.own, BIG).min(1)[0]

    def gradient(self, loss, x):
        x = x.detach().requires_grad_(True)
        value = loss(self.embed(x))
        return value.detach(), th.autograd.grad(value.sum(), x)[0]


def pgd(t, loss, eps, alpha, steps, still=None, start=None):
    x = t.x0.clone() if start is None else start
    for _ in range(steps):
        _, g = t.gradient(loss, x)
        x = (x - alpha * g.sign())
        x = th.max(th.min(x, t.x0 + eps), t.x0 - eps).clamp(0, 1)
    return x if still is None else th.where(still[:, None, None, None], t.x0, x)


def size(x, x0, norm):
    delta = (x - x0).flatten(1)
    return delta.norm(dim=1) if norm == "l2" else delta.abs().max(1)[0]


def into_ball(x, x0, eps, norm):
    """The nearest images in balls of radius eps [B] around x0, [B, …]."""
    delta, eps = x - x0, eps[:, None, None, None]
    if norm == "linf":
        return (x0 + th.max(th.min(delta, eps), -eps)).clamp(0, 1)
    # The nearest point of a ball and a box, by the conditions of Karush, Kuhn and Tucker: x0 + s·delta, clipped, with
    # the largest s ≤ 1 that keeps it in the ball.
    at = lambda s: (x0 + s * delta).clamp(0, 1)
    inside = lambda s: (at(s) - x0).flatten(1).norm(dim=1)[:, None, None, None] <= eps
    low, high = th.zeros_like(eps), th.ones_like(eps)
    low = th.where(inside(high), high, low)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = th.where(inside(middle), middle, low), th.where(inside(middle), high, middle)
    return at(low)


def bisection(t, most, norm, steps=BISECTION, rounds=10):
    """Returns the smallest perturbation that PGD finds. Each query runs alone; a round stops at the first success."""
    per, found = steps // rounds - 1, [0.0 if s else float("inf") for s in t.still]
    for i in [i for i in range(len(t.queries)) if not t.still[i]]:
        one = Trials.__new__(Trials)
        one.embed, one.gal = t.embed, t.gal
        one.x0, one.same, one.own = t.x0[i:i + 1], t.same[i:i + 1], t.own[i:i + 1]
        low, eps, best, x = 0.0, most, None, one.x0
        for _ in range(rounds):
            ball = th.tensor([eps])
            for step in range(per + 1):
                value, g = one.gradient(one.margin, x)
                if value < 0 or step == per:
                    break
                if norm == "l2":    # pixels that would leave [0, 1] have no part of the step's length
                    g = th.where(((x <= 0) & (g > 0)) | ((x >= 1) & (g < 0)), th.zeros_like(g), g)
                    g = g / g.norm()
                else:
                    g = g.sign()
                x = into_ball(x - 2.5 * eps / per * g, one.x0, ball, norm)
            if value < 0:
                if best is None or size(x, one.x0, norm) < best[0]:
                    best = (float(size(x, one.x0, norm)), x)
            else:
                low = eps
            if best is None:
                break
            eps = (low + best[0]) / 2
            x = into_ball(best[1], one.x0, th.tensor([eps]), norm)
        found[i] = best[0] if best else float("inf")
    return found


def cw(t, most, steps=CW, rounds=9):
    """Carlini & Wagner's attack: minimises ‖δ‖² + c·[margin]₊ by Adam, with bisection over c and projected pixels."""
    n, per = len(t.queries), steps // rounds
    c, low, high = th.ones(n), th.zeros(n), th.full((n,), float("inf"))
    best, rate, ball = th.full((n,), float("inf")), min(0.01, 2.5 * most / per), th.full((n,), most)
    col = lambda v: v[:, None, None, None]
    for _ in range(rounds):
        x, m, v, hit = t.x0.clone(), th.zeros_like(t.x0), th.zeros_like(t.x0), th.zeros(n, dtype=th.bool)
        for k in range(1, per + 1):
            value, g = t.gradient(t.margin, x)
            hit |= value < 0
            best = th.where((value < 0) & (size(x, t.x0, "l2") < best), size(x, t.x0, "l2"), best)
            g = 2 * (x - t.x0) + col(th.where(value > 0, c, th.zeros(n))) * g
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            x = x - rate * (m / (1 - 0.9 ** k)) / ((v / (1 - 0.999 ** k)).sqrt() + 1e-8)
            x = into_ball(x, t.x0, ball, "l2")
        high, low = th.where(hit, c, high), th.where(hit, low, c)
        c = th.where(high.isinf(), c * 10, (low + high) / 2)
    return th.where(t.still, th.zeros(n), best).tolist()


def cw_linf(t, most, steps=CW, rounds=9):
    """Carlini & Wagner's attack in L∞: minimises Σ[|δ| − τ]₊ + c·[margin]₊ by Adam.

    If the image is wrong and within τ, τ becomes 0.9 times its size. After `per` iterations without such an
    image, c doubles, up to 20. The image is never reset to the start."""
    n, per = len(t.queries), steps // rounds
    c, tau, k = th.ones(n), th.full((n,), most), th.zeros(n)
    best, ball, over = th.full((n,), float("inf")), th.full((n,), most), th.zeros(n, dtype=th.bool)
    rate = th.minimum(th.full((n,), 0.01), 2.5 * tau / per)
    x, m, v = t.x0.clone(), th.zeros_like(t.x0), th.zeros_like(t.x0)
    col = lambda v: v[:, None, None, None]
    for _ in range(steps):
        value, g = t.gradient(t.margin, x)
        long = size(x, t.x0, "linf")
        best = th.where(~over & (value < 0) & (long < best), long, best)
        within = (value < 0) & (long <= tau)
        failed = ~within & (k == per)
        tau = th.where(within, 0.9 * long, tau)
        rate = th.where(within, th.minimum(th.full((n,), 0.01), 2.5 * tau / per), rate)
        c = th.where(failed, 2 * c, c)
        fresh = col(within | failed)
        m, v, k = th.where(fresh, 0 * m, m), th.where(fresh, 0 * v, v), th.where(within | failed, 0 * k, k) + 1
        delta = x - t.x0
        g = delta.sign() * (delta.abs() > col(tau)) + col(th.where(value > 0, c, th.zeros(n))) * g
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x = x - col(rate) * (m / (1 - 0.9 ** col(k))) / ((v / (1 - 0.999 ** col(k))).sqrt() + 1e-8)
        x = into_ball(x, t.x0, ball, "linf")
        over |= c > 20
    return th.where(t.still, th.zeros(n), best).tolist()


def finds(t, z):
    """Returns R@1, mAP, mAP@R and mAP@C of each query at z, without its clean copy, in double precision."""
    d = far(z.double(), t.gal.double())
    rows = th.arange(len(z))
    d[rows, t.queries] = BIG
    rel = th.gather(t.own, 1, d.argsort(dim=1, stable=True)).double()
    rank = th.arange(1, rel.shape[1] + 1, dtype=th.double)
    R = rel.sum(1)
    precision = rel.cumsum(1) / rank * rel
    within = lambda k: rank[None] <= k[:, None]
    return {
        "hit": (rel[:, 0] > 0).tolist(),
        "map": float((precision.sum(1) / R).mean()),
        "map_at_r": float(((precision * within(R)).sum(1) / R).mean()),
        "map_at_c": float(((rel * within(R + 1)).sum(1) / (R + 1)).mean()),
    }


def attacks(t, labels, rng):
    """Returns the losses to minimise, with budgets and skipped queries."""
    rows, gal = th.arange(len(t.queries)), t.gal
    d = lambda z, x: (z - gal[x]).norm(dim=1)
    pick = lambda mask: th.tensor([int(rng.choice(np.flatnonzero(m))) for m in mask.numpy()])
    positive = pick(t.own)
    # Most random negatives are too far for a loss: take one of the 100 nearest.
    near = far(t.z0, gal).masked_fill(t.same, BIG).argsort(dim=1)[:, :100]
    negative = near[rows, th.from_numpy(rng.integers(0, 100, len(rows)))]
    push = lambda z: -d(z, t.nearest)
    own, others = t.own.float(), (~t.same).float()
    square = lambda z: far(z, gal) ** 2
    return {
        "nn": (push, EPS, 2 * EPS / STEPS, STEPS, t.still, t.nearest[:, None]),
        "anc": (lambda z: push(z) + d(z, t.other), EPS, 2 * EPS / STEPS, STEPS, t.still,
                th.stack([t.nearest, t.other], 1)),
        "fgsm": (push, EPS, EPS, 1, t.still, t.nearest[:, None]),
        "ali": (lambda z: -(square(z) * own).sum(1) / own.sum(1), *ADML, None, None),
        "uni": (lambda z: -((-square(z)).exp() * others).sum(1).log(), *ADML, None, None),
        "tri": (lambda z: -F.relu(d(z, positive) ** 2 - d(z, negative) ** 2 + 0.2), *ADML, None,
                th.stack([positive, negative], 1)),
    }


def write(out, model, file, result):
    trials = {"protocol": "rob28", "form": "corrected", "metric": "normalized-euclidean", "attacks": file}
    text = json.dumps({"trials": trials, "result": result}, separators=(",", ":"))
    (out / f"{model}.json").write_text(text.replace("]},", "]},\n") + "\n")
    print(model, {k: np.mean(v["after"]["hit"]) for k, v in result.items() if "after" in v},
          {k: float(np.median([n for n in v if n])) for k, v in result.get("min", {}).items()})


def main(shared, out, models):
    data = shared / "data/omniglot28"
    images = th.from_numpy(np.load(data / "test_images_u8.npy")).float().reshape(-1, 1, 28, 28) / 255
    labels = th.from_numpy(np.load(data / "test_labels.npy")).long()
    names = (data / "test_names.txt").read_text().split("\n")
    queries = th.tensor(json.loads((shared / "golden/selections.json").read_text())["query"])
    for model in models:
        th.manual_seed(0)
        rng = np.random.default_rng(0)
        embed = net(shared / f"models/{model}.onnx")
        with th.no_grad():
            gal = embed(images)
        t = Trials(embed, images, labels, gal, queries)
        result, file = {}, {}
        for name, (loss, eps, alpha, steps, still, targets) in attacks(t, labels, rng).items():
            x = pgd(t, loss, eps, alpha, steps, still)
            with th.no_grad():
                z = embed(x)
            result[name] = {"eps": eps, "alpha": alpha, "steps": steps, "before": finds(t, t.z0), "after": finds(t, z),
                            "shift": float((z - t.z0).norm(dim=1).mean())}
            rows = [{"query": names[q]} for q in queries]
            if targets is not None:
                chosen = [[names[i] for i in row] for row in targets]
                result[name]["targets"] = [[] if still is not None and still[i] else c for i, c in enumerate(chosen)]
            if name == "tri":
                rows = [{**row, "targets": c} for row, c in zip(rows, chosen)]
            if name != "fgsm":
                file[name] = rows
        push, eps, alpha, steps, still, _ = attacks(t, labels, rng)["nn"]
        start = (t.x0 + (2 * th.rand_like(t.x0) - 1) * eps).clamp(0, 1)
        x = pgd(t, push, eps, alpha, steps, still, start)
        with th.no_grad():
            z = embed(x)
        result["nn from a random start"] = {"after": finds(t, z)}
        if model == "hardened":
            write(out, model, file, result)
            continue
        few = Trials(embed, images, labels, gal, queries[:FEW])
        file["min"] = [{"query": names[q]} for q in few.queries]
        result["min"] = {"bisection linf": bisection(few, 0.5, "linf"), "bisection l2": bisection(few, 10.0, "l2"),
                         "cw l2": cw(few, 10.0), "cw linf": cw_linf(few, 0.1)}
        for row in result["min"].values():
            row[:] = [None if v == float("inf") else v for v in row]
        write(out, model, file, result)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or ["vanilla", "hardened"])
