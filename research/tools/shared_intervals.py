#!/usr/bin/env python3
"""How often intervals of universal perturbations and of hubs contain the true mean, in simulated audits.

    shared_intervals.py [REPEATS]        (needs numpy and scipy; 1000 repeats take some minutes on a core)

Each query is measured under one of four perturbations, which differ in strength; or each of a few hubs is
measured on the same held-out queries, which differ in how easily they are captured. Compared are: resamples
of both; these, but if all queries agree Wilson's interval for their number, or for that of the hubs if there
are more; and an interval from the variance of the sums over perturbations, or over hubs and over queries, with
Student's t. If all agree, the last candidate has Wilson's for the fewer of both.
"""
import sys

import numpy as np
from scipy.stats import norm, t

Z, RESAMPLES = norm.ppf(0.975), 400


def wilson(p, n):
    middle, half = p + Z * Z / (2 * n), Z * np.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return (middle - half) / (1 + Z * Z / n), (middle + half) / (1 + Z * Z / n)


def drawn(random, n):
    return random.multinomial(n, np.ones(n) / n, size=RESAMPLES).astype(float)


def sharing(hits, by, few):
    """Wilson's interval for as many independent queries as vary as much. `by`: arrays of indices that share."""
    n, residual = hits.size, hits.ravel() - hits.mean()
    if not residual.any():
        return wilson(hits.mean(), few)
    alone = (residual**2).sum()
    total = sum((np.bincount(of.ravel(), residual) ** 2).sum() for of in by) - (len(by) - 1) * alone
    wider = t.ppf(0.975, few - 1) / Z
    return wilson(hits.mean(), n / max(1, total / alone * few / (few - 1) * wider**2))


def joined(hits, ends, n):
    """The interval of resamples; if all agree, Wilson's for n."""
    return ends if hits.any() and not hits.all() else wilson(hits.mean(), n)


def universal(random, queries, spread, share):
    strength = 1 / (1 + np.exp(-np.log(share / (1 - share)) - spread * random.normal(size=4)))
    which = random.integers(4, size=queries)
    hits = (random.random(queries) < strength[which]).astype(float)
    weights = drawn(random, queries) * drawn(random, 4)[:, which]
    with np.errstate(invalid="ignore"):
        resampled = weights @ hits / weights.sum(1)
    ends = np.nanquantile(resampled, [0.025, 0.975])
    yield ends
    yield joined(hits, ends, queries)
    yield sharing(hits, [which], 4)


def hub(random, hubs, queries, spread, share):
    logit = np.log(share / (1 - share)) + spread * random.normal(size=(hubs, 1)) + spread * random.normal(size=queries)
    hits = (random.random((hubs, queries)) < 1 / (1 + np.exp(-logit))).astype(float)
    rows, columns = drawn(random, hubs), drawn(random, queries)
    ends = np.quantile((rows @ hits * columns).sum(1) / hubs / queries, [0.025, 0.975])
    yield ends
    yield joined(hits, ends, max(hubs, queries))
    yield sharing(hits, list(np.indices(hits.shape)), min(hubs, queries))


def show(name, truth, draw, repeats):
    found = [list(draw(np.random.default_rng(seed))) for seed in range(repeats)]
    cells = [(100 * np.mean([low <= truth <= high for low, high in of]), 50 * np.mean([high - low for low, high in of])) for of in zip(*found)]
    print(f"{name:58}" + "".join(f"{share:7.1f} ±{width:5.1f}" for share, width in cells), flush=True)


def main(repeats=1000):
    print(f"{'share of intervals that contain the true mean, in %':58} resampled       if all agree    variance")
    far = np.random.default_rng(0).normal(size=1_000_000)
    for queries in 60, 400:
        for share in 0.005, 0.02, 0.4:
            for spread in 0, 0.3, 0.6:
                true = np.mean(1 / (1 + np.exp(-np.log(share / (1 - share)) - spread * far)))
                show(f"universal: {queries} queries, share {share}, spread {spread}", true, lambda r: universal(r, queries, spread, share), repeats)
    for hubs, queries in (6, 10), (16, 100), (16, 900):
        for share in 0.005, 0.02, 0.3:
            for spread in 0.5, 1, 1.5:
                true = np.mean(1 / (1 + np.exp(-np.log(share / (1 - share)) - 2**0.5 * spread * far)))
                show(f"hub: {hubs} hubs, {queries} queries, share {share}, spread {spread}", true, lambda r: hub(r, hubs, queries, spread, share), repeats)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
