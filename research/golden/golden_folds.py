#!/usr/bin/env python3
"""Prints the accuracies of LFW's protocol for crates/audit-gallery/src/space/verification.rs.

    python research/golden/golden_folds.py        (needs no package)

Distances are computed from integers, so both sides get the same values. A pair is accepted if d <= t. For
each fold, t is the smallest distance of the other folds' pairs that decides most of these pairs correctly."""
from statistics import mean, stdev

FOLDS, EACH = 10, 20
GENUINE = [(37 * i * i + 11 * i) % 101 / 100 for i in range(FOLDS * EACH)]
IMPOSTOR = [0.35 + (53 * i * i + 29 * i) % 97 / 100 for i in range(FOLDS * EACH)]


def right(pairs, t):
    return sum((d <= t) == same for d, same in pairs)


def fold(k):
    mine = slice(EACH * k, EACH * (k + 1))
    return [(d, True) for d in GENUINE[mine]] + [(d, False) for d in IMPOSTOR[mine]]


found = []
for k in range(FOLDS):
    others = [pair for j in range(FOLDS) if j != k for pair in fold(j)]
    most = max(right(others, t) for t, _ in others)
    t = min(t for t, _ in others if right(others, t) == most)
    found.append(100 * right(fold(k), t) / (2 * EACH))
print(found, mean(found), stdev(found) / FOLDS**0.5)
