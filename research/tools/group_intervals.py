#!/usr/bin/env python3
"""How often intervals of the worst group of people, and of differences between two models, contain the truth.

    group_intervals.py [REPEATS]        (needs numpy and scipy; 400 repeats take about 10 minutes on a core)

People are those of pair_intervals.py; each is in a group. Every image is the probe of one pair: with an image
of the same person, which an attack makes the model refuse, or of another person of the group, which it makes
the model accept. The second model moves images and people a little. Compared are candidates for the interval
of the share of wrong decisions in the worst group, of the difference of two models in all pairs, and of their
difference in the worst group. True values are those of very many people.
"""
import sys

import numpy as np
from pair_intervals import disjoint, people
from scipy.stats import beta, norm, t

RESAMPLES, LEAST = 300, 10
# Distance up to which pairs are accepted under attack, by kind of pair.
LIMITS = {"DODGE": 0.8, "IMPERSONATE": 0.9}


def inflation(pairs, values, alpha=0.05):
    """As in crates/audit-gallery/src/space/sharing.rs, for a quantile of Student's t at 1 - alpha/2."""
    apart = disjoint(pairs)
    if apart == len(pairs):
        return 1.0
    m = len(np.unique(pairs))
    if m < LEAST or np.ptp(values) < 1e-12:
        return len(pairs) / apart
    two, size = pairs[:, 0] != pairs[:, 1], pairs.max() + 1
    sums = np.bincount(pairs[:, 0], values, size) + np.bincount(pairs[two, 1], values[two], size)
    shared = (sums**2).sum() - (values[two] ** 2).sum()
    wider = t.ppf(1 - alpha / 2, m - 1) / norm.ppf(1 - alpha / 2)
    return max(1, shared / (values**2).sum() * m / (m - 1) * wider**2)


def exact(hits, of, alpha):
    low = 0.0 if hits <= 0 else beta.ppf(alpha / 2, hits, of - hits + 1)
    return low, 1.0 if hits >= of else beta.ppf(1 - alpha / 2, hits + 1, of - hits)


def of_parts(parts, alpha, factor):
    """Intervals of the shares of parts, each (pairs, wrong); `factor` is of a part and alpha."""
    for pairs, wrong in parts:
        n = len(wrong) / factor(pairs, wrong - wrong.mean(), alpha)
        yield exact(wrong.mean() * n, n, alpha)


def of_worst(parts, alpha, factor):
    """The highest of the ends of the groups, and of all together."""
    parts = parts + [tuple(np.concatenate(both) for both in zip(*parts))]
    low, high = zip(*of_parts(parts, alpha / len(parts), factor))
    return max(low), max(high)


def constant(pairs, values, alpha):
    """With Student's t of a single interval."""
    return inflation(pairs, values)


def tango(gained, lost, n):
    z = norm.ppf(0.975)
    found = (gained - lost) / n

    def score(delta):
        b = (2 * n - gained + lost) * delta - gained - lost
        c = -lost * delta * (1 - delta)
        q = (np.sqrt(max(b * b - 8 * n * c, 0)) - b) / (4 * n)
        return n * (found - delta) / np.sqrt(max(n * (2 * q + delta * (1 - delta)), 1e-300))

    def root(low, high, at):
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if score(middle) > at else (low, middle)
        return (low + high) / 2

    return root(-1, found, z), root(found, 1, -z)


def difference(gained, lost, n):
    low, high = tango(gained, lost, n)
    if gained + lost == 0:
        return low, high
    few, many = exact(gained, gained + lost, 0.05)
    of_share = lambda share: (2 * share - 1) * (gained + lost) / n
    return min(low, of_share(few)), max(high, of_share(many))


def worst(weights, wrong, groups, count):
    """The highest share of any group, for each row of weights."""
    shares = [weights[:, groups == g] @ wrong[groups == g] / np.maximum(weights[:, groups == g].sum(1), 1e-12) for g in range(count)]
    return np.max(shares, axis=0)


def widened(value, resampled, factor):
    low, high = np.quantile(resampled, [0.025, 0.975])
    return value - factor**0.5 * (value - low), value + factor**0.5 * (high - value)


def intervals(pairs, groups, wrong, count, random):
    """Yields (name, candidates) of the decisions of two models, wrong[0] and wrong[1]."""
    none = lambda *_: 1.0
    parts = [(pairs[groups == g], wrong[0][groups == g]) for g in range(count)]
    factors = none, inflation, constant
    yield "worst group", *(of_worst(parts, 0.05, factor) for factor in factors)
    yield "all groups", *(list(of_parts(parts, 0.05 / count, factor)) for factor in factors)
    change = wrong[1] - wrong[0]
    gained, lost, n = (change > 0).sum(), (change < 0).sum(), len(change)
    factor = inflation(pairs, change - change.mean())
    yield "difference", difference(gained, lost, n), difference(gained / factor, lost / factor, n / factor)
    weights = np.stack([np.bincount(random.integers(n, size=n), minlength=n) for _ in range(RESAMPLES)]).astype(float)
    both = lambda w: worst(w, wrong[1], groups, count) - worst(w, wrong[0], groups, count)
    value, drawn = both(np.ones((1, n)))[0], both(weights)
    without = both(1 - np.eye(n))
    apart = inflation(pairs, without - without.mean())
    people_of = np.unique(pairs, return_inverse=True)[1].reshape(pairs.shape)
    m = people_of.max() + 1
    often = np.stack([np.bincount(random.integers(m, size=m), minlength=m) for _ in range(RESAMPLES)]).astype(float)
    by_person = np.where(people_of[:, 0] == people_of[:, 1], often[:, people_of[:, 0]], often[:, people_of[:, 0]] * often[:, people_of[:, 1]])
    yield "difference of worst", np.quantile(drawn, [0.025, 0.975]), widened(value, drawn, apart), np.quantile(both(by_person), [0.025, 0.975])


def models(random, count, each, groups):
    """Images of two models, and the group of each person. People of later groups scatter more."""
    images = people(random, count, each)
    group = np.arange(count) % groups
    spread = lambda size, n: size * random.normal(size=(n, 8))
    shift = np.repeat(spread(0.07, count), each, axis=0) + spread(0.05, count * each)
    harder = np.repeat(1 + 0.1 * group, each)[:, None]
    other = images + harder * (shift + 0.02 * images[:, ::-1])
    unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
    # An attack moves the images of one person alike.
    pushed = np.repeat(np.exp(0.35 * random.normal(size=count)) * (1 + 0.2 * group), each)
    return [images, unit(other)], group, pushed


def drawn(random, count, each, groups, same):
    """One pair for each image: with an image of the person, or of another person of the group."""
    probe = np.arange(count * each)
    person = probe // each
    if same:
        other, image = person, (probe % each + random.integers(1, max(each, 2), size=len(probe))) % each
    else:
        others = count // groups
        other = (person + groups * random.integers(1, others, size=len(probe))) % (others * groups)
        image = random.integers(each, size=len(probe))
    return probe, other * each + image


def decide(random, count, each, groups, kind):
    images, group, pushed = models(random, count, each, groups)
    a, b = drawn(random, count, each, groups, kind == "DODGE")
    sign = 1 if kind == "DODGE" else -1
    distances = [np.linalg.norm(of[a] - of[b], axis=1) + sign * 0.12 * pushed[a] for of in images]
    wrong = [(sign * (d - LIMITS[kind]) > 0).astype(float) for d in distances]
    return np.c_[a, b] // each, group[a // each], wrong


def main(repeats=400):
    print("share of intervals that contain the true value, in %: as if pairs were independent, and candidates")
    for groups, count, each, pairs_each in [(3, 24, 5, 5), (3, 36, 8, 8), (3, 60, 4, 4), (5, 200, 2, 2), (4, 600, 2, 1)]:
        for kind in LIMITS:
            _, group, wrong = decide(np.random.default_rng(0), 60_000 // groups * groups, 2, groups, kind)
            rates = np.array([[of[group == g].mean() for g in range(groups)] for of in wrong])
            true = {"worst group": rates[0].max(), "all groups": rates[0], "difference": rates[1].mean() - rates[0].mean(),
                    "difference of worst": rates[1].max() - rates[0].max()}
            hits, widths = {}, {}
            for repeat in range(repeats):
                random = np.random.default_rng(1000 + repeat)
                pairs, group, wrong = decide(random, count, each, groups, kind)
                some = np.concatenate([random.permutation(np.arange(i * each, i * each + each))[:pairs_each] for i in range(count)])
                if kind == "IMPERSONATE" and pairs_each < each:
                    # Nobody in two pairs.
                    order, taken, some = random.permutation(len(pairs)), set(), []
                    for i in order:
                        if not taken & set(pairs[i].tolist()):
                            taken |= set(pairs[i].tolist())
                            some.append(i)
                for name, *all_of in intervals(pairs[some], group[some], [of[some] for of in wrong], groups, random):
                    several = [np.atleast_2d(ends) for ends in all_of]
                    hits.setdefault(name, []).append([np.all((of[:, 0] <= true[name]) & (true[name] <= of[:, 1])) for of in several])
                    widths.setdefault(name, []).append([np.mean(of[:, 1] - of[:, 0]) for of in several])
            print(f"{groups} groups, {count} people, {pairs_each} pairs each, {kind}: rates {np.round(100 * rates, 1).tolist()}")
            for name, found in hits.items():
                row = "".join(f"{100 * share:7.1f} ±{50 * width:5.1f}" for share, width in zip(np.mean(found, axis=0), np.mean(widths[name], axis=0)))
                print(f"  {name:20}{row}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
