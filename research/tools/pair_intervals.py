#!/usr/bin/env python3
"""How often intervals of error rates of pairs contain the true rate, in simulated verification.

    pair_intervals.py [REPEATS [few]]        (needs numpy and scipy; 400 repeats take about 15 minutes on a core)

People have a point in 8 dimensions, images scatter about it, some people more than others, and some people
look like many others. Each repeat draws new people and images; the true rates are those of very many people.
Compared are the intervals as if no two pairs shared an identity, and those of `audit`
(crates/audit-gallery/src/space/sharing.rs and crates/audit-report/src/judge/verification.rs). With `few`,
data sets have 20, 50 and 100 pairs of each kind, as audits of few attacked pairs have.
"""
import functools
import sys

import numpy as np
from scipy.stats import norm, t

Z, FAR, RESAMPLES = norm.ppf(0.975), (0.1, 0.01), 200


def people(random, count, each):
    """Returns images of unit length, those of a person one after the other."""
    near = random.beta(4, 2, size=(count, 1))
    centre = random.normal(size=(count, 8))
    centre *= 1.3 * near / np.linalg.norm(centre, axis=1, keepdims=True)
    centre[:, 0] += 1 - near[:, 0]
    spread = 0.24 * np.exp(0.35 * random.normal(size=(count, 1, 1)) + 0.3 * random.normal(size=(count, each, 1)))
    images = (centre[:, None] + spread * random.normal(size=(count, each, 8))).reshape(-1, 8)
    return images / np.linalg.norm(images, axis=1, keepdims=True)


def every(count, each, random):
    return np.triu_indices(count * each, 1)


def some(count, each, random, pairs=300):
    """So many genuine and about as many impostor pairs."""
    person = random.choice(count, pairs, replace=count < pairs)
    pair = random.permuted(np.tile(np.arange(each), (pairs, 1)), axis=1)[:, :2] + person[:, None] * each
    other = random.integers(count * each, size=(pairs, 2))
    other = other[other[:, 0] // each != other[:, 1] // each]
    return np.concatenate([pair, other]).T


def wilson(p, n):
    middle, half = p + Z * Z / (2 * n), Z * np.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return (middle - half) / (1 + Z * Z / n), (middle + half) / (1 + Z * Z / n)


def disjoint(pairs):
    degree = np.bincount(pairs.ravel()) - np.bincount(pairs[pairs[:, 0] == pairs[:, 1], 0], minlength=pairs.max() + 1)
    taken, count = set(), 0
    for a, b in pairs[np.lexsort((pairs[:, 1], pairs[:, 0], degree[pairs].sum(1)))].tolist():
        if a not in taken and b not in taken:
            taken |= {a, b}
            count += 1
    return count


def inflation(pairs, values):
    m = len(np.unique(pairs))
    if m < 10 or not values.any():
        return len(pairs) / disjoint(pairs)
    two = pairs[:, 0] != pairs[:, 1]
    size = pairs.max() + 1
    sums = np.bincount(pairs[:, 0], values, size) + np.bincount(pairs[two, 1], values[two], size)
    shared = (sums**2).sum() - (values[two] ** 2).sum()
    return max(1, shared / (values**2).sum() * m / (m - 1) * (t.ppf(0.975, m - 1) / Z) ** 2)


def curve(genuine, impostor, weights, far):
    """Threshold, TAR and EER for each resample; distances are ascending."""
    true, false = (np.c_[np.zeros(len(w)), np.cumsum(w, 1)] / w.shape[1] for w in weights)
    first = (false[:, 1:] > np.floor(far * len(impostor) + 1e-9) / len(impostor) + 1e-12).argmax(1)
    limit, row = np.nextafter(impostor[first], 0), np.arange(len(true))
    tar = true[row, np.searchsorted(genuine, limit, "right")]
    at = np.unique(np.r_[genuine, impostor])
    at = at[:: max(1, len(at) // 3000)]
    frr, fa = (1 - true[:, np.searchsorted(genuine, at, "right")], false[:, np.searchsorted(impostor, at, "right")])
    best = np.abs(frr - fa).argmin(1)
    return limit, tar, (frr[row, best] + fa[row, best]) / 2


def intervals(genuine, g, impostor, i, limits, random):
    """Yields (name, interval of independent pairs, interval of audit); g and i are identities."""
    order, other = np.argsort(genuine), np.argsort(impostor)
    genuine, g, impostor, i = genuine[order], g[order], impostor[other], i[other]
    residual = lambda d, limit: (d <= limit) - np.mean(d <= limit)
    for name, d, pairs, limit in [("TAR", genuine, g, limits[0]), *((f"FAR {f}", impostor, i, v) for f, v in zip(FAR, limits))]:
        p = np.mean(d <= limit)
        yield name, wilson(p, len(d)), wilson(p, len(d) / inflation(pairs, residual(d, limit)))
    draw = lambda n: np.stack([np.bincount(random.integers(n, size=n), minlength=n) for _ in range(RESAMPLES)])
    weights = [draw(len(genuine)), draw(len(impostor))]
    once = [np.ones((1, len(genuine))), np.ones((1, len(impostor)))]
    below = lambda far: np.nextafter(impostor[min(int(far * len(impostor) + 1e-9), len(impostor) - 1)], 0)

    def along(far):
        low, high = (below(end) for end in wilson(far, len(impostor)))
        run, rise = (np.mean(d <= high) - np.mean(d <= low) for d in (impostor, genuine))
        parts = run * residual(genuine, below(far)) / len(genuine), -rise * residual(impostor, below(far)) / len(impostor)
        return inflation(np.concatenate([g, i]), np.concatenate(parts))

    def widened(value, resampled, factor):
        low, high = np.quantile(resampled, [0.025, 0.975])
        return (low, high), (value - (value - low) * factor**0.5, value + (high - value) * factor**0.5)

    for far in (far for far in FAR if far * len(impostor) >= 1):
        (limit,), (tar,), (eer,) = curve(genuine, impostor, once, far)
        found = curve(genuine, impostor, weights, far)
        low, high = wilson(far, len(impostor) / inflation(i, residual(impostor, limit)))
        known = low * len(impostor) >= 1
        yield f"t at {far}", np.quantile(found[0], [0.025, 0.975]), (below(low - 1 / len(impostor)) if known else 0, below(high))
        alone, (least, most) = widened(tar, found[1], along(far))
        yield f"TAR at {far}", alone, (least if known else 0, most)
        if far == FAR[0]:
            yield "EER", *widened(eer, found[2], along(eer))


def truth():
    random = np.random.default_rng(0)
    pairs = people(random, 200_000, 2)
    genuine = np.sort(np.linalg.norm(pairs[::2] - pairs[1::2], axis=1))
    single = people(random, 8000, 1)
    impostor = np.sort(np.sqrt(np.maximum(2 - 2 * single[:3000] @ single[3000:].T, 0)).ravel())
    share = lambda d, limit: np.searchsorted(d, limit) / len(d)
    limits = np.quantile(impostor, FAR)
    at = np.linspace(0.01, 1.9, 4000)
    far, frr = share(impostor, at), 1 - share(genuine, at)
    best = np.abs(far - frr).argmin()
    true = {"TAR": share(genuine, limits[0]), "EER": (far[best] + frr[best]) / 2}
    for far, limit in zip(FAR, limits):
        true |= {f"FAR {far}": far, f"t at {far}": limit, f"TAR at {far}": share(genuine, limit)}
    return limits, true


MANY = [
    ("12 people, 5 images, all pairs", 12, 5, every), ("48 people, 4 images, all pairs", 48, 4, every),
    ("60 people, 300 pairs of each kind", 60, 4, some), ("400 people, 300 pairs of each kind", 400, 4, some),
]
FEW = [
    (f"{count} people, {pairs} pairs of each kind", count, 4, functools.partial(some, pairs=pairs))
    for pairs in (20, 50, 100) for count in (400, 30)
]


def main(repeats=400, which="many"):
    limits, true = truth()
    print("share of intervals that contain the true value, in %: as if pairs were independent, and those of audit")
    for name, count, each, pairs_of in {"many": MANY, "few": FEW}[which]:
        hits = {}
        for repeat in range(repeats):
            random = np.random.default_rng(1000 + repeat)
            images, (a, b) = people(random, count, each), pairs_of(count, each, random)
            d, who = np.linalg.norm(images[a] - images[b], axis=1), np.c_[a, b] // each
            same = who[:, 0] == who[:, 1]
            for number, *both in intervals(d[same], who[same], d[~same], who[~same], limits, random):
                hits.setdefault(number, []).append([low <= true[number] <= high for low, high in both])
        print(name)
        for number, found in hits.items():
            print(f"  {number:12}" + "".join(f"{100 * share:7.1f}" for share in np.mean(found, axis=0)), flush=True)


if __name__ == "__main__":
    main(*[int(sys.argv[1])] * (len(sys.argv) > 1), *sys.argv[2:])
