#!/usr/bin/env python3
"""Prints mAP and mAP@R of the reference embeddings in double precision: golden_map.py TRIALS.npz ... (needs
numpy).

The reference ranks in float32, which decides near ties by rounding. tests/it/golden.rs compares audit with
these values."""
import sys
import numpy as np

for path in sys.argv[1:]:
    z = np.load(path)
    e, labels, total = z["embeddings_N"].astype(np.float64), z["labels"], np.zeros(2)
    for i in range(len(e)):
        d = np.sqrt(((e - e[i]) ** 2).sum(1))
        d[i] = np.inf
        relevant = (labels[np.argsort(d, kind="stable")[:-1]] == labels[i]).astype(float)
        precision = relevant.cumsum() / np.arange(1, len(e)) * relevant
        positives = int(relevant.sum())
        total += precision.sum() / positives, precision[:positives].sum() / positives
    print(path.rsplit("/", 1)[-1], (total / len(e)).tolist())
