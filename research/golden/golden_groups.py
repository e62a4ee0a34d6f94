#!/usr/bin/env python3
"""Intervals of groups of pairs, and of differences of two models on pairs, by double sums over pairs.

    golden_groups.py        (needs numpy and scipy)

prints the expected values of tests/it/sharing.rs, whose pairs and decisions are the same. Variances are those
of golden_sharing.py: the sum of the products of the residuals of all two pairs that share an identity, twice
if they share two. Here Student's t is that of the interval's own chance to miss. Intervals of groups are
quantiles of the beta distribution for n/v pairs (Korn and Graubard, 1998); those of a difference of shares
solve Tango's score, and are joined with the exact ones of the pairs that change.
"""
import numpy as np
from scipy.optimize import brentq
from scipy.stats import beta, norm, t

PEOPLE, EACH = 20, 4
PAIRS = [(i % PEOPLE, (i % PEOPLE + 1 + 3 * (i // PEOPLE)) % PEOPLE) for i in range(PEOPLE * EACH)]
GROUP = np.array([a % 2 for a, _ in PAIRS])
BEFORE = np.array([i % 11 == 0 for i in range(len(PAIRS))])
Z = norm.ppf(0.975)


def wrong(model):
    """Decisions under attack: people of the same remainder err together, and the second model on others."""
    return np.array([i % 11 == 0 or (a * a + i // PEOPLE // 2 + model * (a % 3)) % 7 < 3 - model for i, (a, _) in enumerate(PAIRS)])


def inflation(pairs, values, alpha):
    often = lambda p, q: 1 if p is q else len(set(p) & set(q))
    total = sum(u * v * (1 if i == j else often(p, q)) for i, (p, u) in enumerate(zip(pairs, values)) for j, (q, v) in enumerate(zip(pairs, values)))
    m = len({who for pair in pairs for who in pair})
    wider = t.isf(alpha / 2, m - 1) / norm.isf(alpha / 2)
    return max(1, total / sum(v * v for v in values) * m / (m - 1) * wider**2)


def exact(hits, of, alpha):
    low = 0.0 if hits == 0 else beta.ppf(alpha / 2, hits, of - hits + 1)
    return np.array([low, 1.0 if hits == of else beta.isf(alpha / 2, hits + 1, of - hits)])


def interval(places, of, alpha):
    """Of the share of these pairs that are decided wrongly."""
    share = of[places].mean()
    factor = inflation([PAIRS[i] for i in places], of[places] - share, alpha)
    n = len(places) / factor
    return 100 * share, factor, 100 * exact(share * n, n, alpha)


def tango(gained, lost, n):
    def score(delta):
        b = (2 * n - gained + lost) * delta - gained - lost
        c = -lost * delta * (1 - delta)
        q = (np.sqrt(b * b - 8 * n * c) - b) / (4 * n)
        return (gained - lost - n * delta) / np.sqrt(n * (2 * q + delta * (1 - delta)))

    found, tiny = (gained - lost) / n, 1e-9
    return np.array([brentq(lambda d: score(d) - Z, -1 + tiny, found), brentq(lambda d: score(d) + Z, found, 1 - tiny)])


def main():
    base, other = wrong(0), wrong(1)
    groups = [np.flatnonzero(GROUP == g) for g in range(2)]
    everything = np.arange(len(PAIRS))
    for name, places in [("even", groups[0]), ("odd", groups[1])]:
        print(name, len(places), "before", 100 * BEFORE[places].mean(), "row", interval(places, base, 0.05 / 2))
    ends = [interval(places, base, 0.05 / 3)[2] for places in [*groups, everything]]
    print("worst of the first", max(low for low, _ in ends), max(high for _, high in ends))
    correct = [places[~BEFORE[places]] for places in groups]
    ends = [interval(places, base, 0.05 / 3)[2] for places in [*correct, np.concatenate(correct)]]
    print("correct that fail", [(int(base[p].sum()), len(p)) for p in correct], "weakest", max(low for low, _ in ends), max(high for _, high in ends))

    change = other.astype(float) - base
    factor = inflation(PAIRS, change - change.mean(), 0.05)
    gained, lost, n = (np.array([(change > 0).sum(), (change < 0).sum(), len(change)]) / factor).tolist()
    low, high = tango(gained, lost, n)
    few, many = (2 * exact(gained, gained + lost, 0.05) - 1) * (gained + lost) / n
    print("difference", 100 * change.mean(), "factor", factor, "interval", 100 * min(low, few), 100 * max(high, many))

    def without(number):
        """The factor of the difference in a number of the kept pairs, from its values without each pair."""
        kept = lambda i: everything[everything != i]
        value = np.array([number(other, kept(i)) - number(base, kept(i)) for i in everything])
        return number(other, everything) - number(base, everything), inflation(PAIRS, value - value.mean(), 0.05) ** 0.5

    worst = lambda of, places: max(100 * of[places[GROUP[places] == g]].mean() for g in range(2))
    resistance = lambda of, places: 100 * (~of[places] & ~BEFORE[places]).sum() / (~BEFORE[places]).sum()
    for name, number in [("worst group", worst), ("resistance", resistance)]:
        print(name, "difference, and how much wider", without(number))


if __name__ == "__main__":
    main()
