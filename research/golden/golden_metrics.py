#!/usr/bin/env python3
"""Writes tests/golden/metrics.json: retrieval metrics of small random galleries by public libraries.

    pip install pytorch-metric-learning==2.9.0 scikit-learn numpy torch
    python research/golden/golden_metrics.py

- pytorch-metric-learning: mAP, mAP@R, R-precision, R@1 and MRR, and R@1 and mAP@R for each class; it skips queries
  without a match;
- scikit-learn: NMI, AMI, and mAP by its average precision;
- this script: CMC@k and mAP@C from the sorted lists, and rankings with cameras as in torchreid's `eval_market1501`
  (images of the query's identity by its camera are removed, queries without a match are skipped, AP is the mean
  precision at the matches).
"""

import json
from pathlib import Path

import numpy as np
import torch
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from sklearn.metrics import adjusted_mutual_info_score, average_precision_score, normalized_mutual_info_score

KS = (1, 2, 5, 10, 20)


def cloud(rng, labels, spread):
    centres = rng.normal(size=(labels.max() + 1, 6))
    # Multiples of 2^-10: exact in float32 and short in the file.
    points = centres[labels] + spread * rng.normal(size=(len(labels), 6))
    return (np.round(points * 1024) / 1024).astype(np.float32)


def sorted_matches(query, query_labels, gallery, gallery_labels, removed):
    """Returns for each query whether each gallery image matches, nearest first, without removed images."""
    for i, (z, label) in enumerate(zip(query, query_labels)):
        d = np.sqrt(((gallery.astype(np.float64) - z.astype(np.float64)) ** 2).sum(1))
        order = np.argsort(d, kind="stable")
        order = order[~removed(i)[order]]
        yield gallery_labels[order] == label


def counted(matches):
    found = [m for m in matches if m.any()]
    by_sklearn = [average_precision_score(m, -np.arange(len(m))) for m in found]
    precisions = [np.cumsum(m) / (np.arange(len(m)) + 1) for m in found]
    return {
        "queries": len(found),
        "cmc": {str(k): float(np.mean([m[:k].any() for m in found])) for k in KS},
        "map": float(np.mean(by_sklearn)),
        "map_at_c": float(np.mean([m[: m.sum() + 1].sum() / (m.sum() + 1) for m in found])),
    }


def by_library(query, query_labels, gallery, gallery_labels, shared):
    def scores(include, per_class):
        calculator = AccuracyCalculator(
            include=include,
            k=None if shared else len(gallery),
            return_per_class=per_class,
            knn_func=CustomKNN(LpDistance(normalize_embeddings=False)),
        )
        tensors = [torch.from_numpy(np.asarray(v)) for v in (query, query_labels, gallery, gallery_labels)]
        return calculator.get_accuracy(*tensors, ref_includes_query=shared)

    whole = ("precision_at_1", "r_precision", "mean_average_precision_at_r", "mean_average_precision",
             "mean_reciprocal_rank")
    result = {name: float(value) for name, value in scores(whole, False).items()}
    # One value per class with queries that have correct items, by rising label.
    by_class = scores(("precision_at_1", "mean_average_precision_at_r"), True)
    return {**result, **{f"{name}_by_class": value for name, value in by_class.items()}}


def case(name, rng):
    if name == "shared":
        labels = np.concatenate([rng.integers(0, 12, 100), [12, 13]])  # the last two have no match
        points = cloud(rng, labels, 0.9)
        matches = sorted_matches(points, labels, points, labels, lambda i: np.arange(len(labels)) == i)
        return {
            "points": points, "labels": labels, "roles": ["both"] * len(labels),
            **by_library(points, labels, points, labels, True), **counted(matches),
        }
    labels = np.concatenate([np.arange(8), np.arange(8), rng.integers(0, 10, 60), rng.integers(0, 8, 24)])
    points = cloud(rng, labels, 1.0)
    size = 76
    roles = ["gallery"] * size + ["query"] * (len(labels) - size)
    query, gallery = points[size:], points[:size]
    result = {"points": points, "labels": labels, "roles": roles}
    if name == "separate":
        matches = sorted_matches(query, labels[size:], gallery, labels[:size], lambda i: np.zeros(size, bool))
        return {**result, **by_library(query, labels[size:], gallery, labels[:size], False), **counted(matches)}
    cameras = rng.integers(0, 3, len(labels))
    cameras[:size][labels[:size] == 3] = 1
    cameras[size:][labels[size:] == 3] = 1  # these have no match left
    removed = lambda i: (labels[:size] == labels[size + i]) & (cameras[:size] == cameras[size + i])  # noqa: E731
    matches = sorted_matches(query, labels[size:], gallery, labels[:size], removed)
    return {**result, "cameras": cameras, **counted(matches)}


def clusterings(rng):
    for n, a, b in ((60, 4, 5), (200, 30, 25), (50, 1, 3), (40, 40, 8), (30, 1, 1), (24, 24, 24)):
        clusters, classes = (rng.integers(0, k, n) if k < n else np.arange(n) for k in (a, b))
        if n == 200:  # agree in part
            classes = np.where(rng.random(n) < 0.6, clusters % b, classes)
        yield {
            "clusters": clusters, "classes": classes,
            "nmi": normalized_mutual_info_score(classes, clusters),
            "ami": adjusted_mutual_info_score(classes, clusters),
        }


def plain(value):
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value


rng = np.random.default_rng(20)
golden = {
    "galleries": {name: case(name, rng) for name in ("shared", "separate", "cameras")},
    "clusterings": list(clusterings(rng)),
}
path = Path(__file__).resolve().parents[2] / "tests" / "golden" / "metrics.json"
path.write_text(json.dumps(plain(golden)) + "\n")
