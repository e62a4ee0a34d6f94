"""What hubs capture, by NumPy alone: tests/golden/threats.json.  python tools/golden_threats.py > tests/golden/threats.json

Random points on the unit sphere, in float64 as tests read them. An item is captured at k by the queries among whose first k items a
point comes, if it stands in the item's place.
"""

import json

import numpy as np

random = np.random.default_rng(23)
points = np.round(random.normal(size=(90, 5)), 4)
unit = points / np.linalg.norm(points, axis=1, keepdims=True)
labels = [i % 6 for i in range(90)]


def rank(query, point, own):
    """How many items the query finds before the point; neither the query itself nor the item in whose place it stands counts."""
    others = [i for i in range(90) if i not in (query, own)]
    return int((np.linalg.norm(unit[others] - unit[query], axis=1) < np.linalg.norm(point - unit[query])).sum())


cases = []
for own, label in [(3, None), (40, None), (77, None), (10, 2), (55, 3)]:
    asked = [q for q in range(90) if label in (None, labels[q])]
    sample = [int(q) for q in random.permutation([q for q in asked if q != own])[: 20 if label is None else 6]]
    held_out = [q for q in asked if q != own and q not in sample]
    # In the middle of the sample, and somewhere else.
    for point in (unit[sample].mean(axis=0), random.normal(size=5)):
        point = np.round(point, 4)
        at = point / np.linalg.norm(point)
        share = lambda queries, k: float(np.mean([rank(q, at, own) < k for q in queries]))
        cases.append(
            {"own": own, "class": label, "sample": sample, "point": point.tolist(), "held_out": len(held_out)}
            | {"captured_1": share(held_out, 1), "captured_10": share(held_out, 10), "sample_1": share(sample, 1), "sample_10": share(sample, 10)}
        )


def best(k, label):
    """The largest share of the queries that one clean item is among the first k of."""
    asked = [q for q in range(90) if label in (None, labels[q])]
    counts = np.zeros(90)
    for q in asked:
        d = np.linalg.norm(unit - unit[q], axis=1)
        d[q] = np.inf
        counts[np.argsort(d, kind="stable")[:k]] += 1
    return float(counts.max() / len(asked))


clean = [{"class": label, "best": [best(1, label), best(10, label)]} for label in (None, 2, 3)]
print(json.dumps({"points": points.tolist(), "labels": labels, "cases": cases, "clean": clean}))
