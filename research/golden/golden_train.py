#!/usr/bin/env python3
"""Writes crates/audit-train/tests/golden/train.json: parts of the trainer by PyTorch, torchvision and other
libraries.

    pip install pytorch-metric-learning==2.9.0 torch==2.11.0 torchvision==0.26.0 numpy
    python research/golden/golden_train.py

- losses, with their gradients: `torch.nn.TripletMarginLoss`, and ContrastiveLoss, MarginLoss,
  MultiSimilarityLoss (with its miner) and NTXentLoss of pytorch-metric-learning;
- samplers: the triplets that its TripletMarginMiner and BatchHardMiner find, and the weights that its
  DistanceWeightedMiner draws with (it leaves out what is farther than 1.4, where the trainer takes 1.4);
- samplers of HM's released code (robrank's miner.py), in NumPy: the probability of every triplet, and from it
  the mean and variance of hardness, in an embedding space of usual size and in a shrunken one;
- attack objectives of CA-TRIDE and ADML with their gradients: the definitions, differentiated by PyTorch; "released"
  follows CA-TRIDE's code (defenses/pnp.py), with PyTorch's pairwise_distance as there;
- eight steps of ANP and CAP of that code on a small net;
- names and shapes of torchvision's ResNets, and the outputs of all backbones on weights given by a formula;
- three steps of `torch.optim.Adam` on a small net and the triplet loss.
"""

import json
import math
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from pytorch_metric_learning import distances, losses, miners, reducers
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import nn

EUCLIDEAN = distances.LpDistance(normalize_embeddings=False)


def batch():
    """Unit embeddings of six classes, two each, and a triplet per class."""
    rng = np.random.default_rng(7)
    # Close enough together that no loss and no sampler is idle.
    centres = rng.normal(size=(1, 8)) + 0.6 * rng.normal(size=(6, 8))
    points = np.repeat(centres, 2, 0) + 0.5 * rng.normal(size=(12, 8))
    e = F.normalize(torch.tensor(points), dim=1).float()
    labels = torch.arange(12) // 2
    a = torch.arange(0, 12, 2)
    n = torch.tensor([3, 5, 0, 9, 11, 2])
    return e, labels, (a, a + 1, n)


def value_and_gradient(loss, *tensors):
    tensors = [t.clone().requires_grad_(True) for t in tensors]
    value = loss(*tensors)
    gradients = torch.autograd.grad(value, tensors, allow_unused=True)
    gradients = [torch.zeros_like(t) if g is None else g for t, g in zip(tensors, gradients)]
    return {"value": value.item(), "gradients": [g.tolist() for g in gradients]}


def the_losses(e, labels, triplets):
    a, p, n = triplets
    pairs = (a, p, a, n)
    mean = reducers.MeanReducer()

    def multi_similarity(e):
        found = miners.MultiSimilarityMiner(epsilon=0.1)(e, labels)
        return losses.MultiSimilarityLoss(alpha=2, beta=40, base=0.5)(e, labels, found)

    contrastive = losses.ContrastiveLoss(pos_margin=0, neg_margin=1, distance=EUCLIDEAN, reducer=mean)
    margin = losses.MarginLoss(margin=0.2, nu=0, beta=1.2, distance=EUCLIDEAN)
    by_name = {
        "triplet": lambda e: nn.TripletMarginLoss(margin=0.2, eps=0)(e[a], e[p], e[n]),
        "contrastive": lambda e: contrastive(e, labels, pairs),
        "margin": lambda e: margin(e, labels, (a, p, n)),
        "multi-similarity": multi_similarity,
        "info-nce": lambda e: losses.NTXentLoss(temperature=0.07)(e, labels),
    }
    return {name: value_and_gradient(loss, e) for name, loss in by_name.items()}


def the_samplers(e, labels):
    """For each anchor 2i with positive 2i + 1, the negatives that may be chosen; for `distance`, their weights."""
    out = {}
    for name, kind in (("semihard", "semihard"), ("softhard", "hard")):
        a, p, n = miners.TripletMarginMiner(margin=0.2, type_of_triplets=kind, distance=EUCLIDEAN)(e, labels)
        rows = [sorted(n[(a == i) & (p == i + 1)].tolist()) for i in range(0, 12, 2)]
        out[name] = rows
    a, p, n = miners.BatchHardMiner(distance=EUCLIDEAN)(e, labels)
    out["hardest"] = [n[a == i].tolist() for i in range(0, 12, 2)]

    # The miner doesn't return its weights: take them from its call of the draw.
    seen = []
    draw = lmu.get_random_triplet_indices

    def listen(*args, weights, **kwargs):
        seen.append(weights)
        return draw(*args, weights=weights, **kwargs)

    lmu.get_random_triplet_indices = listen
    miners.DistanceWeightedMiner(cutoff=0.5, nonzero_loss_cutoff=1.4)(e, labels)
    lmu.get_random_triplet_indices = draw
    return out, seen[0].tolist()


def the_samplers_of_hm():
    """Batches of pairs in 512 dimensions, of which two classes come twice, and what HM's samplers make of each anchor."""
    rng = np.random.default_rng(11)
    labels = np.repeat([0, 1, 2, 3, 4, 2, 5, 0], 2)
    out = {}
    for name, centre, spread in (("usual", 0.0, 0.75), ("shrunken", 12.0, 0.8)):
        classes = centre * rng.normal(size=(1, 512)) + rng.normal(size=(6, 512))
        points = classes[labels] + spread * rng.normal(size=(16, 512))
        points[4] = points[0] + 0.3 * rng.normal(size=512)
        unit = points / np.linalg.norm(points, axis=1, keepdims=True)
        far = np.linalg.norm(unit[:, None] - unit[None], axis=2)
        far = far.astype(np.float32).astype(np.float64)
        cases = {"distances": far.flatten().tolist(), "labels": labels.tolist(), "dim": 512, "samplers": {}}
        for sampler in ("random", "softhard", "distance"):
            rows = [of_hm(sampler, far, labels, 2 * i) for i in range(8)]
            # Hardness of one triplet of the batch, whose anchor is any of the eight.
            pairs = [
                (far[2 * i, p] - far[2 * i, n], wp * wn / 8)
                for i, (positives, negatives) in enumerate(rows)
                for p, wp in enumerate(positives)
                for n, wn in enumerate(negatives)
            ]
            mean = sum(h * w for h, w in pairs)
            cases["samplers"][sampler] = {
                "positives": [p.tolist() for p, _ in rows],
                "negatives": [n.tolist() for _, n in rows],
                "mean": mean,
                "variance": sum((h - mean) ** 2 * w for h, w in pairs),
            }
        out[name] = cases
    return out


def of_hm(sampler, far, labels, anchor):
    """Probabilities of all images as positive and as negative of an anchor."""
    own, other = labels == labels[anchor], labels != labels[anchor]
    d = far[anchor]

    def evenly(mask, otherwise):
        mask = mask if mask.any() else otherwise
        return mask / mask.sum()

    positive = np.eye(len(labels))[anchor + 1]
    if sampler == "random":
        return positive, evenly(other, other)
    if sampler == "softhard":
        # The anchor belongs to its class, at distance 0.
        return evenly(own & (d > d[other].min()), own), evenly(other & (d < d[own].max()), other)
    # The density of distances on the sphere, in logarithms; HM's code cuts it nowhere.
    dim = 512
    log = (dim - 2) * np.log(d[other]) + (dim - 3) / 2 * np.log(1 - d[other] ** 2 / 4)
    weight = np.exp(log.min() - log)
    negative = np.zeros(len(labels))
    negative[other] = weight / weight.sum()
    return positive, negative


def d(x, y):
    return (x - y).norm(dim=1)


def released_objective(side, a, p, n, origin, lam):
    """What CA-TRIDE's code descends: far samples weigh more, and ANP compares means of batches."""
    to_p, to_n = F.pairwise_distance(a, p), F.pairwise_distance(a, n)

    def weighed(x):
        w = torch.exp(lam * (x - x.max()))
        return (w * x).sum() / w.sum()

    c = weighed(to_p) - weighed(to_n)
    if side == "cap":
        return F.relu(-c)
    nearest = to_n.topk(len(to_n) // 2, largest=False).values.mean()
    factor = math.exp(-F.relu(-c).item())
    return F.relu(c) + factor * F.relu(nearest - F.pairwise_distance(a, origin).mean())


# Small, because this untrained net moves its embeddings far.
ATTACK_STEP = 0.1 / 255


def released_attacks():
    """Eight steps of either attack of CA-TRIDE's code: how many images moved, how far their embeddings, and the objective."""
    net = fill(small()).requires_grad_(False)
    # Positives look like their anchors.
    images = [torch.cat([image(1, 28, 0.7 * s + start) for s in range(8)]) for start in (0, 0.15, 2.4)]
    unit = lambda x: F.normalize(net(x))
    out = {}
    for side, moving in (("anp", [0]), ("cap", [1, 2])):
        start = torch.cat([images[i] for i in moving])
        x, values = start.clone(), []
        for _ in range(8):
            x.requires_grad_(True)
            parts = [unit(part) for part in images]
            for place, part in zip(moving, unit(x).chunk(len(moving))):
                parts[place] = part
            loss = released_objective(side, *parts, unit(images[0]), 2.0)
            values.append(loss.item())
            if loss < 1e-5:
                break
            (gradient,) = torch.autograd.grad(loss, [x])
            with torch.no_grad():
                x = (x - ATTACK_STEP * gradient.sign()).clamp(start - 77 / 255, start + 77 / 255).clamp(0, 1)
        moved = (x != start).flatten(1).any(1).float().mean().item()
        shift = d(unit(x), unit(start)).mean().item()
        out[side] = {"objective": values, "moved": moved, "shift": shift}
    return out


def collapse_objectives(e, triplets):
    a, p, n = (e[i] for i in triplets)
    rng = np.random.default_rng(8)
    origin = F.normalize(a + torch.tensor(0.05 * rng.normal(size=a.shape)).float(), dim=1)
    half = len(a) // 2

    def c(a, p, n, rate, detached):
        def mean(x):
            # The offset (the smallest or largest distance) cancels in the ratio.
            w = torch.exp(rate * x)
            w = w.detach() if detached else w
            return (w * x).sum() / w.sum()

        return mean(d(a, p)) - mean(d(a, n))

    def near(x):
        return x[x.detach().argsort()[:half]].mean()

    def working_anp(lam):
        def f(a, p, n):
            v = c(a, p, n, -lam, True)
            nearest = d(a, n).detach().argsort()[:half]
            gap = (d(a, n)[nearest] - d(a, origin)[nearest]).relu().mean()
            return -v + torch.exp(torch.minimum(v, torch.tensor(0.0))).detach() * gap

        return f

    def paper_anp(lam):
        # Equations 11 and 12: the top half of N, all of A and A0.
        def f(a, p, n):
            v = c(a, p, n, -lam, False)
            return torch.relu(-v + torch.exp(v.clamp(min=0)) * (near(d(a, n)) - d(a, origin).mean()))

        return f

    def released(side, lam):
        return lambda a, p, n: released_objective(side, a, p, n, origin, lam)

    def top_rank_loss(a, p, n):
        dp, dn = d(a, p), d(a, n)
        near_p, near_n = dp.detach().argsort()[:half], dn.detach().argsort()[:half]
        return 0.5 * torch.relu(dp[near_p].mean() - dn[near_n].mean() + 0.04)

    # Positives and negatives exchanged: these triplets are too easy for it.
    out = {"origin": origin.tolist(), "top-rank-loss": value_and_gradient(top_rank_loss, a, n, p)}
    for lam in (0.0, 2.0, 10.0):
        cases = {
            "cap working": lambda a, p, n: torch.relu(-c(a, p, n, -lam, True)),
            "cap paper": lambda a, p, n: torch.relu(-c(a, p, n, -lam, False)),
            "cap released": released("cap", lam),
            "anp working": working_anp(lam),
            "anp paper": paper_anp(lam),
            "anp released": released("anp", lam),
        }
        out[str(lam)] = {name: value_and_gradient(f, a, p, n) for name, f in cases.items()}
    return out


def adml_objectives(e, labels):
    rng = np.random.default_rng(9)
    moved = F.normalize(e + torch.tensor(0.3 * rng.normal(size=e.shape)).float(), dim=1)
    same = labels[:, None] == labels[None]
    other = ~torch.eye(len(e), dtype=torch.bool)

    def alignment(x):
        return -sum(((x[i] - e[j]) ** 2).sum() for i in range(12) for j in range(12) if same[i, j] and other[i, j])

    def uniformity(x):
        total = 0
        for i in range(12):
            terms = [torch.exp(-((x[i] - e[j]) ** 2).sum()) for j in range(12) if not same[i, j]]
            total = total + torch.stack(terms).mean()
        return -total

    return {
        "moved": moved.tolist(),
        "alignment": value_and_gradient(alignment, moved),
        "uniformity": value_and_gradient(uniformity, moved),
    }


def formula(name, shape):
    """Weights that both sides can make: depends on the name's bytes and the place."""
    start = sum(name.encode())
    count = math.prod(shape)
    wave = np.sin(0.37 * np.arange(count) + start)
    if name.endswith("running_var"):
        values = 1 + 0.5 * wave**2
    elif len(shape) == 1:
        # Around 1 for the weights of batch norm, around 0 for biases and means.
        values = 0.1 * wave + (1.0 if name.endswith("weight") else 0.0)
    else:
        values = wave * math.sqrt(2 / math.prod(shape[1:]))
    return torch.tensor(values.reshape(shape), dtype=torch.float32)


def image(channels, side, start):
    wave = np.sin(0.013 * np.arange(channels * side * side) ** 1.1 + start)
    return torch.tensor((0.5 + 0.5 * wave).reshape(1, channels, side, side), dtype=torch.float32)


def small():
    c1, c2 = nn.Conv2d(1, 16, 5, 2, 2), nn.Conv2d(16, 32, 5, 2, 2)
    layers = {"conv1": c1, "r1": nn.ReLU(), "conv2": c2, "r2": nn.ReLU(), "f": nn.Flatten(), "fc1": nn.Linear(32 * 49, 8)}
    return nn.Sequential(OrderedDict(layers))


def medium():
    layers = {
        "conv1": nn.Conv2d(1, 32, 5, 1, 2), "r1": nn.ReLU(), "p1": nn.MaxPool2d(2),
        "conv2": nn.Conv2d(32, 64, 5, 1, 2), "r2": nn.ReLU(), "p2": nn.MaxPool2d(2),
        "f": nn.Flatten(), "fc1": nn.Linear(64 * 49, 1024), "r3": nn.ReLU(), "fc2": nn.Linear(1024, 8),
    }
    return nn.Sequential(OrderedDict(layers))


def fill(model):
    state = model.state_dict()
    for name in state:
        if not name.endswith("num_batches_tracked"):
            state[name] = formula(name, tuple(state[name].shape))
    model.load_state_dict(state)
    return model.eval()


def the_backbones():
    mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    std = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    models = {
        "c2f1": (small(), 1, 28),
        "c2f2": (medium(), 1, 28),
        "resnet18": (torchvision.models.resnet18(num_classes=8), 3, 224),
        "resnet50": (torchvision.models.resnet50(num_classes=8), 3, 224),
    }
    out = {}
    for name, (model, channels, side) in models.items():
        fill(model)
        x = torch.cat([image(channels, side, s) for s in (0, 1)])
        with torch.no_grad():
            y = model((x - mean) / std if channels == 3 else x)
        shapes = {k: list(v.shape) for k, v in model.state_dict().items()}
        out[name] = {"weights": shapes, "embeddings": y.tolist()}
    return out


def the_optimiser():
    model = fill(small()).train()
    images = torch.cat([image(1, 28, s) for s in range(6)])
    optimiser = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=1e-3)
    values = []
    for _ in range(3):
        e = F.normalize(model(images), dim=1)
        loss = nn.TripletMarginLoss(margin=0.2, eps=0)(e[0:2], e[2:4], e[4:6])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        values.append(loss.item())
    after = {k: v.flatten()[:5].tolist() for k, v in model.state_dict().items()}
    return {"losses": values, "after": after}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    e, labels, triplets = batch()
    samplers, distance_weights = the_samplers(e, labels)
    golden = {
        "embeddings": e.tolist(),
        "labels": labels.tolist(),
        "triplets": [t.tolist() for t in triplets],
        "losses": the_losses(e, labels, triplets),
        "samplers": samplers,
        "distance_weights": distance_weights,
        "samplers_of_hm": the_samplers_of_hm(),
        "collapse": collapse_objectives(e, triplets),
        "released_attacks": released_attacks(),
        "adml": adml_objectives(e, labels),
        "backbones": the_backbones(),
        "adam": the_optimiser(),
    }
    path = Path(__file__).resolve().parents[2] / "crates/audit-train/tests/golden/train.json"

    def short(x):
        if isinstance(x, float):
            return float(f"{x:.7g}")
        if isinstance(x, dict):
            return {k: short(v) for k, v in x.items()}
        return [short(v) for v in x] if isinstance(x, list) else x

    path.write_text(json.dumps(short(golden), separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
