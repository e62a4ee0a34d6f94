"""Captured queries of hubs, and ranks of foreign targets, in NumPy, for tests/golden/threats.json.
python research/golden/golden_threats.py > tests/golden/threats.json

The embeddings are random points on the unit sphere in float64. A hub, which takes the place of a gallery
image, captures a query at k if it is among the query's k nearest images.
"""

import json

import numpy as np

random = np.random.default_rng(23)
points = np.round(random.normal(size=(90, 5)), 4)
unit = points / np.linalg.norm(points, axis=1, keepdims=True)
labels = [i % 6 for i in range(90)]


def rank(query, point, own):
    """Returns how many images are nearer to the query than the point, without the query and the image it replaces."""
    others = [i for i in range(90) if i not in (query, own)]
    return int((np.linalg.norm(unit[others] - unit[query], axis=1) < np.linalg.norm(point - unit[query])).sum())


cases = []
for own, label in [(3, None), (40, None), (77, None), (10, 2), (55, 3)]:
    asked = [q for q in range(90) if label in (None, labels[q])]
    sample = [int(q) for q in random.permutation([q for q in asked if q != own])[: 20 if label is None else 6]]
    held_out = [q for q in asked if q != own and q not in sample]
    # In the middle of the sample, and elsewhere.
    for point in (unit[sample].mean(axis=0), random.normal(size=5)):
        point = np.round(point, 4)
        at = point / np.linalg.norm(point)
        share = lambda queries, k: float(np.mean([rank(q, at, own) < k for q in queries]))
        cases.append(
            {"own": own, "class": label, "sample": sample, "point": point.tolist(), "held_out": len(held_out)}
            | {"captured_1": share(held_out, 1), "captured_10": share(held_out, 10), "sample_1": share(sample, 1), "sample_10": share(sample, 10)}
        )


def best(k, label):
    """Returns the largest share of queries that have the same clean image among their k nearest."""
    asked = [q for q in range(90) if label in (None, labels[q])]
    counts = np.zeros(90)
    for q in asked:
        d = np.linalg.norm(unit - unit[q], axis=1)
        d[q] = np.inf
        counts[np.argsort(d, kind="stable")[:k]] += 1
    return float(counts.max() / len(asked))


# Foreign targets: separate points. A query ranks them among themselves.
targets = np.round(random.normal(size=(30, 5)), 4)
far = targets / np.linalg.norm(targets, axis=1, keepdims=True)
foreign = []
for own, aimed, sample in [(3, [7], range(0, 12)), (40, [0, 29], range(5, 15)), (77, [11], range(10, 30, 2))]:
    point = np.round(unit[own] + 0.7 * random.normal(size=5), 4)
    at = point / np.linalg.norm(point)
    d = np.linalg.norm(far - at, axis=1)
    gaps = d[aimed][:, None] - d[None]
    held_out = [t for t in range(30) if t not in sample]
    # The item is at the point among the images, and targets are the queries.
    ranks = {t: int((np.linalg.norm(np.delete(unit, own, 0) - far[t], axis=1) < np.linalg.norm(at - far[t])).sum()) for t in range(30)}
    share = lambda queries, k: float(np.mean([ranks[t] < k for t in queries]))
    foreign.append(
        {"own": own, "point": point.tolist(), "aimed": aimed, "rank": float(np.mean([(d < d[t]).sum() for t in aimed])), "cosine": float(at @ far[aimed[0]])}
        | {"raise": float(np.maximum(gaps, 0).mean()), "lower": float(np.maximum(-gaps, 0).mean()), "nearest": int(np.linalg.norm(far - unit[own], axis=1).argmin())}
        | {"sample": list(sample), "captured_1": share(held_out, 1), "captured_10": share(held_out, 10), "sample_10": share(sample, 10)}
    )

clean = [{"class": label, "best": [best(1, label), best(10, label)]} for label in (None, 2, 3)]
print(json.dumps({"points": points.tolist(), "labels": labels, "cases": cases, "clean": clean, "targets": targets.tolist(), "foreign": foreign}))
