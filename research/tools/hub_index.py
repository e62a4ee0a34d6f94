"""Measures the share of queries that hubs capture by exact ranks, and with approximate indexes at usual
settings.

    audit --suite hub model.onnx --data photos/ -o report.json && audit report report.json --bundle evidence.zip
    python research/tools/hub_index.py evidence.zip model.onnx  (numpy, pillow, onnxruntime, usearch, faiss-cpu)

The archive has every image, clean and attacked; the script in it embeds them by the file of the model. Each
hub is put into the index in place of its clean image, as an item that is added last, and the held-out queries
of the report ask for their ten nearest images besides themselves. Before and after: the clean image, and the
attacked one, both added last."""

import sys
import types
import zipfile

import faiss
import numpy as np
from usearch.index import Index

FIRST = 10


def exact(points):
    index = faiss.IndexFlatL2(points.shape[1])
    index.add(points)
    return lambda queries, k: index.search(queries, k)[1]


def hnsw_usearch(points):
    index = Index(ndim=points.shape[1], metric="l2sq", connectivity=16, expansion_add=128, expansion_search=64)
    index.add(np.arange(len(points)), points, threads=1)
    return lambda queries, k: index.search(queries, k, threads=1).keys.astype(np.int64).reshape(len(queries), k)


def hnsw_faiss(points):
    index = faiss.IndexHNSWFlat(points.shape[1], 32)
    index.hnsw.efConstruction, index.hnsw.efSearch = 40, 16
    index.add(points)
    return lambda queries, k: index.search(queries, k)[1]


def ivf(probes):
    def build(points):
        cells = max(4, int(np.sqrt(len(points))))
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(points.shape[1]), points.shape[1], cells)
        # The last item is added after the cells were trained, as in an index in use.
        index.train(points[:-1])
        index.add(points)
        index.nprobe = probes
        return lambda queries, k: index.search(queries, k)[1]

    return build


def pq(points):
    index = faiss.IndexPQ(points.shape[1], 16, 8 if len(points) > 39 * 256 else 6)
    index.train(points[:-1])
    index.add(points)
    return lambda queries, k: index.search(queries, k)[1]


INDEXES = {
    "exact": exact,
    "usearch HNSW, M 16, ef 64 (its default)": hnsw_usearch,
    "FAISS HNSW, M 32, ef 16 (its default)": hnsw_faiss,
    "FAISS IVF, √N cells, 1 probe (its default)": ivf(1),
    "FAISS IVF, √N cells, 8 probes": ivf(8),
    "FAISS PQ, 16 bytes": pq,
}


def captured(search, queries, own, hub):
    """Returns the hub's rank for each query, leaving the query itself out; 10 if it is not among the first ten."""
    ranks = []
    for row, query in zip(search(queries, FIRST + 1), own):
        found = [i for i in row if i != query and i >= 0][:FIRST]
        ranks.append(found.index(hub) if hub in found else FIRST)
    return np.array(ranks)


def main(archive, file):
    bundle = open(archive, "rb").read()
    script = types.ModuleType("verify")
    exec(zipfile.ZipFile(archive).read("verify.py"), script.__dict__)
    files, manifest, report = script.unpack(bundle)
    net = script.Model(file, report, manifest)
    embed = lambda names: net.points([script.pixels(name, files[name]) for name in names]).astype(np.float32)
    clean, attacked = embed(manifest["images"]), embed(manifest["attacked"])
    gallery, held_out = clean[: report["data"]["gallery"]], manifest["held_out"]
    index_of = {item["id"]: i for i, item in enumerate(manifest["items"])}
    print(f"{len(gallery)} items, {clean.shape[1]} dimensions, {len(held_out)} queries that held-out ones are drawn from")
    print(f"{'index':<46} {'recall@10':>9} {'before: k=1':>12} {'k=10':>6} {'after: k=1':>12} {'k=10':>6}")
    truth = None
    for name, build in INDEXES.items():
        shares, recalls = [], []
        for outcome, point in zip(report["outcomes"], attacked):
            captured_ = outcome["after"].get("captured")
            if captured_ is None:
                continue
            own = index_of[outcome["query"]]
            measured = [q for place, q in enumerate(held_out) if place not in set(captured_["left_out"])]
            row = []
            for moved in (clean[own], point):
                # The hub replaces its own clean image.
                points = np.concatenate([np.delete(gallery, own, 0), moved[None]])
                number = lambda i: i - (i > own)
                ranks = captured(build(points), clean[measured], [number(q) for q in measured], len(points) - 1)
                row += [(ranks < k).mean() for k in (1, FIRST)]
            shares.append(row)
            search = build(gallery)
            recalls.append(search(clean[measured], FIRST))
        truth = truth or recalls
        hits = [len(set(a) & set(b)) / FIRST for found, exact_ in zip(recalls, truth) for a, b in zip(found, exact_)]
        before_1, before_10, after_1, after_10 = 100 * np.mean(shares, axis=0)
        print(f"{name:<46} {100 * np.mean(hits):9.1f} {before_1:12.1f} {before_10:6.1f} {after_1:12.1f} {after_10:6.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
