"""Compares an approximate index, FAISS's HNSW, with exact rankings on the embeddings of a gallery.

    pip install faiss-cpu numpy pyarrow
    audit embed models/plain.onnx --data generated:1000x1000 -o gallery.parquet
    python research/tools/bench_index.py gallery.parquet [QUERIES [NEIGHBOURS [EF_CONSTRUCTION]]]

Embeddings are normalised. Queries are spread over the gallery, and each is removed from its own ranking.
Times are CPU times of all threads. "Recall" is the share of the exact nearest 1, 10 and 100 images that the
index returns in as many results; R@1 is the share of queries whose nearest image has their class, by exact
search and by the index.
"""

import resource
import sys
import time

import faiss
import numpy as np
import pyarrow.parquet as parquet

DEEPEST = 100
# Threads that build the index; one thread searches.
BUILDERS = 4


def read(path):
    """Embeddings [N, D] of length 1, and labels as numbers [N]."""
    table = parquet.read_table(path, columns=["embedding", "label"])
    values = np.concatenate([np.asarray(chunk.flatten(), np.float32) for chunk in table["embedding"].chunks])
    points = values.reshape(table.num_rows, -1)
    points /= np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12)
    _, labels = np.unique(table["label"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    return points, labels


def timed(work):
    start = time.process_time()
    return work(), time.process_time() - start


def without_itself(found, queries):
    """The first DEEPEST of each row that are not the query; -1 stands for nothing found."""
    return [row[(row != query) & (row >= 0)][:DEEPEST] for row, query in zip(found, queries)]


def main():
    path, *numbers = sys.argv[1:]
    count, neighbours, construction = [int(n) for n in numbers] + [1000, 16, 64][len(numbers) :]
    faiss.omp_set_num_threads(1)
    points, labels = read(path)
    items, dim = points.shape
    queries = np.arange(count) * (items // count)
    asked = points[queries]

    flat = faiss.IndexFlatIP(dim)
    flat.add(points)
    (_, exact), spent = timed(lambda: flat.search(asked, DEEPEST + 1))
    exact = without_itself(exact, queries)
    truth = np.array([labels[row[0]] for row in exact]) == labels[queries]
    print(f"{items} items of {dim} dimensions, {count} queries; FAISS {faiss.__version__}")
    print(f"exact: {1e3 * spent / count:.1f} ms a query, R@1 {100 * np.mean(truth):.2f} %")
    del flat

    index = faiss.IndexHNSWFlat(dim, neighbours, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = construction
    faiss.omp_set_num_threads(BUILDERS)
    _, spent = timed(lambda: index.add(points))
    faiss.omp_set_num_threads(1)
    memory = items * (4 * dim + 4 * (2 * neighbours + 1))
    print(f"HNSW of {neighbours} neighbours, efConstruction {construction}: built in {spent:.0f} s, {memory / 1e6:.0f} MB about")
    print("efSearch, ms a query, recall of 1, of 10, of 100, R@1, queries whose R@1 differs", flush=True)
    for search in (16, 64, 128, 256, 512):
        index.hnsw.efSearch = search
        (_, found), spent = timed(lambda: index.search(asked, DEEPEST + 1))
        rows = without_itself(found, queries)
        recall = [
            np.mean([len(np.intersect1d(a[:k], b[:k])) / k for a, b in zip(rows, exact)]) for k in (1, 10, DEEPEST)
        ]
        first = np.array([row[0] if len(row) else query for row, query in zip(rows, queries)])
        # A query without a result is wrong.
        hits = (labels[first] == labels[queries]) & (first != queries)
        print(
            f"{search}, {1e3 * spent / count:.2f}, "
            + ", ".join(f"{100 * r:.2f} %" for r in recall)
            + f", {100 * np.mean(hits):.2f} %, {np.sum(hits != truth)}",
            flush=True,
        )
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB", flush=True)


main()
