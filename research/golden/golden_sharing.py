#!/usr/bin/env python3
"""Intervals of error rates of pairs that share identities, by double sums over pairs.

    golden_sharing.py        (needs numpy and scipy)

prints the expected values of `pairs_that_share_identities_count_less` in tests/it/verification.rs, whose
images are at the same positions on a line. The variance of a share is the sum of the products of the residuals
of all two pairs that share an identity (Fafchamps and Gubert, 2007), twice if they share two, times m/(m - 1)
for m identities; the quantile is that of Student's t with m - 1 degrees of freedom. The ends of a threshold
are the distances at which the ends of its false accept rate are reached (Woodruff, 1952).
"""
import itertools

import numpy as np
from scipy.stats import norm, t

IDENTITIES, EACH, THRESHOLD, FAR = 15, 3, 8, 0.05
Z = norm.ppf(0.975)


def position(i):
    person = i % IDENTITIES
    return 2 * person * person + i // IDENTITIES * (5 * person + 3) % 17


def wilson(p, n):
    middle, half = p + Z * Z / (2 * n), Z * np.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return (middle - half) / (1 + Z * Z / n), (middle + half) / (1 + Z * Z / n)


def inflation(residuals):
    """Of {pair of images: residual}."""
    of = {pair: {i % IDENTITIES for i in pair} for pair in residuals}
    often = lambda a, b: 1 if a == b else len(of[a] & of[b])
    shared = sum(residuals[a] * residuals[b] * often(a, b) for a in residuals for b in residuals)
    m = len(set.union(*of.values()))
    return max(1, shared / sum(v * v for v in residuals.values()) * m / (m - 1) * (t.ppf(0.975, m - 1) / Z) ** 2)


def main():
    d = {(a, b): abs(position(a) - position(b)) for a, b in itertools.combinations(range(IDENTITIES * EACH), 2)}
    genuine = {pair: v for pair, v in d.items() if (pair[0] - pair[1]) % IDENTITIES == 0}
    impostor = {pair: v for pair, v in d.items() if pair not in genuine}
    share = lambda kind, limit: np.mean([v <= limit for v in kind.values()])
    print(len(genuine), "genuine,", len(impostor), "impostor")

    def residuals(kind, limit, weight):
        mean = share(kind, limit)
        return {pair: weight * ((v <= limit) - mean) / len(kind) for pair, v in kind.items()}

    for name, kind in [("FAR", impostor), ("TAR", genuine)]:
        p, factor = share(kind, THRESHOLD), inflation(residuals(kind, THRESHOLD, 1))
        print(name, 100 * p, "inflation", factor, 100 * np.array(wilson(p, len(kind) / factor)))

    def below(far):
        """The largest distance at which at most this share of the impostor pairs is accepted."""
        ordered = sorted(impostor.values())
        most = int(far * len(ordered) + 1e-9)
        return np.nextafter(ordered[most], 0) if most < len(ordered) else np.inf

    def along(far):
        """Inflation of TAR - r FAR, with the slope r of the ROC curve at a FAR."""
        low, high = (below(end) for end in wilson(far, len(impostor)))
        slope = (share(genuine, high) - share(genuine, low)) / (share(impostor, high) - share(impostor, low))
        return inflation(residuals(genuine, below(far), 1) | residuals(impostor, below(far), -slope))

    rates = [(share(impostor, v), 1 - share(genuine, v)) for v in sorted(set(d.values()))]
    best = min(abs(far - frr) for far, frr in rates)
    eer = next((far + frr) / 2 for far, frr in rates if abs(far - frr) <= best + 1e-12)
    for far in FAR, 0.002:
        low, high = wilson(far, len(impostor) / inflation(residuals(impostor, below(far), 1)))
        # As many pairs as the lower end of the rate accepts are nearer than the threshold, surely.
        count = int(low * len(impostor))
        print("threshold at", far, below(far), "from", sorted(impostor.values())[count - 1] if count else 0, "to", below(high))
    print("TAR at it", 100 * share(genuine, below(FAR)), "widened by", np.sqrt(along(FAR)))
    print("EER", 100 * eer, "widened by", np.sqrt(along(eer)))


if __name__ == "__main__":
    main()
