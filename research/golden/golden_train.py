#!/usr/bin/env python3
"""Makes crates/audit-train/tests/golden/train.json: what PyTorch, torchvision and pytorch-metric-learning make of the trainer's parts.

    pip install pytorch-metric-learning==2.9.0 torch==2.11.0 torchvision==0.26.0 numpy
    python research/golden/golden_train.py

- losses, with their gradients: `torch.nn.TripletMarginLoss`, and ContrastiveLoss, MarginLoss, MultiSimilarityLoss (with
  its miner) and NTXentLoss of pytorch-metric-learning;
- samplers: the triplets that its TripletMarginMiner and BatchHardMiner find, and the weights that its
  DistanceWeightedMiner draws with (it leaves out what is farther than 1.4, where the trainer takes 1.4);
- attack objectives of CA-TRIDE and ADML with their gradients, written down here from the definitions and
  differentiated by PyTorch;
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
    # Close enough together that every loss and every sampler has something to do.
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

    # The miner keeps its weights to itself: take them on their way to its draw.
    seen = []
    draw = lmu.get_random_triplet_indices

    def listen(*args, weights, **kwargs):
        seen.append(weights)
        return draw(*args, weights=weights, **kwargs)

    lmu.get_random_triplet_indices = listen
    miners.DistanceWeightedMiner(cutoff=0.5, nonzero_loss_cutoff=1.4)(e, labels)
    lmu.get_random_triplet_indices = draw
    return out, seen[0].tolist()


def d(x, y):
    return (x - y).norm(dim=1)


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

    def gap(a, n):
        near = d(a, n).detach().argsort()[:half]
        return d(a, n)[near] - d(a, origin)[near]

    def working_anp(lam):
        def f(a, p, n):
            v = c(a, p, n, -lam, True)
            return -v + torch.exp(torch.minimum(v, torch.tensor(0.0))).detach() * gap(a, n).relu().mean()

        return f

    def paper_anp(lam):
        def f(a, p, n):
            v = c(a, p, n, -lam, False)
            return torch.relu(-v + torch.exp(v.clamp(min=0)) * gap(a, n).mean())

        return f

    def released_anp(lam):
        def f(a, p, n):
            v = c(a, p, n, lam, False)
            return torch.relu(v) + torch.exp(-torch.relu(-v)).detach() * gap(a, n).relu().mean()

        return f

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
            "cap released": lambda a, p, n: torch.relu(-c(a, p, n, lam, False)),
            "anp working": working_anp(lam),
            "anp paper": paper_anp(lam),
            "anp released": released_anp(lam),
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
        "collapse": collapse_objectives(e, triplets),
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
