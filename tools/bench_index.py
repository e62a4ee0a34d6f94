#!/usr/bin/env python3
"""What an approximate index would do to the measures: bench_index.py [--items N] [--dimensions D] [--queries N] [--threads N]
(needs numpy and usearch).

Embeddings of unit length are drawn: classes of ten items, centres and deviations with a spectrum that falls as 1/sqrt(i), as
trained embeddings have few large directions. The spread is such that exact R@1 is about 80 %. usearch's HNSW at its usual
connectivity, with float32 and float16 vectors, is compared with exact distances of the same queries: time to build and to search,
bytes, recall of the nearest 1 and 10, and R@1 by the exact and by the approximate neighbour. docs/performance.md has the
result."""
import argparse
import json
import os
import time

import numpy as np
from usearch.index import Index

ITEMS_OF_A_CLASS = 10


def drawn(random, n, spectrum):
    return (random.standard_normal((n, len(spectrum)), dtype=np.float32) * spectrum).astype(np.float32)


def gallery(items, dimensions, spread, random):
    """Unit embeddings [items, dimensions] and their classes, in blocks so that memory stays near the result's."""
    spectrum = (1 / np.sqrt(np.arange(1, dimensions + 1))).astype(np.float32)
    z = np.empty((items, dimensions), np.float32)
    for at in range(0, items, 100_000):
        n = min(100_000, items - at)
        centres = drawn(random, -(-n // ITEMS_OF_A_CLASS), spectrum)
        block = np.repeat(centres, ITEMS_OF_A_CLASS, axis=0)[:n] + spread * drawn(random, n, spectrum)
        z[at : at + n] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return z, np.arange(items) // ITEMS_OF_A_CLASS


def exact(z, queries, k):
    """The k nearest items of each query without itself [queries, k], by inner products in float32."""
    out = np.empty((len(queries), k), np.int64)
    for at in range(0, len(queries), 50):
        some = queries[at : at + 50]
        products = z[some] @ z.T
        products[np.arange(len(some)), some] = -np.inf
        near = np.argpartition(-products, k, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(products, near, 1), axis=1)
        out[at : at + len(some)] = np.take_along_axis(near, order, 1)
    return out


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--items", type=int, default=1_000_000)
    flags.add_argument("--dimensions", type=int, default=512)
    flags.add_argument("--queries", type=int, default=1_000)
    flags.add_argument("--spread", type=float, default=0.95)
    flags.add_argument("--threads", type=int, default=os.cpu_count())
    flags.add_argument("--precision", default="f16")
    flags.add_argument("--seed", type=int, default=0)
    given = flags.parse_args()
    random = np.random.default_rng(given.seed)
    z, classes = gallery(given.items, given.dimensions, given.spread, random)
    queries = random.choice(given.items, given.queries, replace=False)
    k = min(10, given.items - 2)
    started = time.perf_counter()
    truth = exact(z, queries, k)
    exact_s = time.perf_counter() - started
    right = classes[truth[:, 0]] == classes[queries]
    print(json.dumps({"exact_s_per_query": exact_s / given.queries, "r1": 100 * right.mean()}), flush=True)

    index = Index(ndim=given.dimensions, metric="ip", dtype=given.precision)
    started = time.perf_counter()
    for at in range(0, given.items, 50_000):
        block = slice(at, min(at + 50_000, given.items))
        index.add(np.arange(block.start, block.stop), z[block], threads=given.threads)
        print(f"{block.stop} items in {time.perf_counter() - started:.0f} s", flush=True)
    build_s = time.perf_counter() - started
    for expansion in (64, 128, 512):
        index.expansion_search = expansion
        started = time.perf_counter()
        found = index.search(z[queries], k + 1, threads=given.threads).keys.astype(np.int64)
        search_s = time.perf_counter() - started
        # Without the query itself, which is among its neighbours.
        near = np.array([[i for i in row if i != own][:k] for row, own in zip(found, queries)])
        hit = classes[near[:, 0]] == classes[queries]
        print(json.dumps({
            "precision": given.precision, "expansion": expansion, "build_s": build_s, "bytes": index.memory_usage,
            "search_s_per_query": search_s / given.queries,
            "recall_1": 100 * (near[:, 0] == truth[:, 0]).mean(),
            "recall_10": 100 * np.mean([len(set(a) & set(b)) / k for a, b in zip(near, truth)]),
            "r1": 100 * hit.mean(), "r1_changed": 100 * (hit != right).mean(),
        }), flush=True)


if __name__ == "__main__":
    main()
