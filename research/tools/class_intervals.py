#!/usr/bin/env python3
"""How often Wilson's interval of R@1 contains the true R@1 of new queries: of these classes, and of new classes.

    class_intervals.py [REPEATS]        (needs numpy; 500 repeats take about two minutes on a core)

Classes have a point in 6 dimensions, and their images scatter about it, in some classes more than in others.
Every image is a query and the others are its gallery, of which up to 100 queries, of all classes alike, are
measured. New queries of these classes search the same gallery; R@1 of new classes is that of many galleries.
Also Wilson's interval for the number of independent queries that vary as much, if those of a class depend on
each other.
"""
import sys

import numpy as np

Z = 1.959964


def wilson(p, n):
    middle, half = p + Z * Z / (2 * n), Z * np.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return (middle - half) / (1 + Z * Z / n), (middle + half) / (1 + Z * Z / n)


def nearest(queries, gallery, own=None):
    """The place of the nearest image of the gallery, except for each query's own."""
    distances = (queries**2).sum(1)[:, None] - 2 * queries @ gallery.T + (gallery**2).sum(1)
    if own is not None:
        distances[np.arange(len(queries)), own] = np.inf
    return distances.argmin(1)


def draw(random, classes, each):
    centre = random.normal(size=(classes, 6))
    spread = 0.45 * np.exp(0.5 * random.normal(size=classes))
    label = np.repeat(np.arange(classes), each)
    images = lambda of: centre[of] + spread[of, None] * random.normal(size=(len(of), 6))
    return label, images(label), images


def clustered(hits, label):
    residual, m = hits - hits.mean(), len(np.unique(label))
    if not residual.any():
        return wilson(hits.mean(), m)
    sums = np.bincount(label, residual)
    return wilson(hits.mean(), len(hits) / max(1, (sums**2).sum() / (residual**2).sum() * m / (m - 1)))


def main(repeats=500):
    print("share of intervals that contain R@1, in %: of new queries of these classes, of new classes; of new classes if classes count")
    for classes, each in (5, 40), (12, 10), (48, 20), (100, 4), (500, 2):
        found = []
        for repeat in range(repeats):
            random = np.random.default_rng(repeat)
            label, images, more = draw(random, classes, each)
            order = random.permutation(len(label))
            some = np.concatenate([order[label[order] == c][: max(1, 100 // classes)] for c in random.permutation(classes)])[:100]
            hits = (label[nearest(images[some], images, some)] == label[some]).astype(float)
            again = np.repeat(np.arange(classes), max(2, 4000 // classes))
            # A new query takes the place of one of its class in the gallery.
            place = np.searchsorted(label, again) + random.integers(each, size=len(again))
            new = np.mean(label[nearest(more(again), images, place)] == again)
            found.append((wilson(hits.mean(), len(hits)), clustered(hits, label[some]), new))
        every = np.mean([new for *_, new in found])
        within = lambda ends, value: ends[0] <= value <= ends[1]
        rows = [(within(w, new), within(w, every), within(c, every)) for w, c, new in found]
        print(f"{classes} classes of {each}, R@1 {100 * every:.0f}:  " + "  ".join(f"{100 * v:.1f}" for v in np.mean(rows, 0)), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
