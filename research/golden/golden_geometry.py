#!/usr/bin/env python3
"""Expected values for `audit geometry`: distances, energies, triplets, t-SNE, and triplets under attack.

    golden_geometry.py SHARED OUT [MODEL ...]   # SHARED: the folder of models, data and golden trials beside the checkout

Independent of the program: follows the papers (CA-TRIDE, equations 2 and 5 to 7, table 5; ADML, equations 1
to 3) in double precision. t-SNE is scikit-learn's exact implementation. The attacks on triplets use PyTorch
and the network of reference_papers.py. Writes a file for each model to OUT; tests/it/geometry.rs compares.
Needs numpy, scikit-learn, torch, onnx.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch as th
from scipy.spatial.distance import pdist, squareform
from sklearn.manifold import TSNE
from sklearn.manifold._t_sne import _joint_probabilities, _kl_divergence

from reference_papers import net

EPS, ALPHA, STEPS = 77 / 255, 3 / 255, 32
LAMBDA = 10.0
MAPPED, PERPLEXITY = 120, 30.0


def spacing(e, labels):
    d = squareform(pdist(e))
    i, j = np.triu_indices(len(e), 1)
    d, same = d[i, j], labels[i] == labels[j]
    within, between, far = d[same].mean(), d[~same].mean(), d[d > 1e-6]
    counts = lambda d: (100 * np.histogram(d, 50, (0, 2))[0] / len(d)).tolist()
    return {
        "distance": d.mean(), "within": within, "between": between, "entanglement": within / between,
        "separability": (between - within) / d.mean(), "alignment": (d[same] ** 2).mean(),
        "he_0": -np.log(far).mean(), "he_1": (1 / far).mean(), "g_he": np.log(np.exp(-d ** 2).mean()),
        "coincident": int((d <= 1e-6).sum()), "within_histogram": counts(d[same]), "between_histogram": counts(d[~same]),
    }


def classes(e, labels):
    """Returns for each class the mean distance within it, and the mean distance to the nearest other class."""
    d, kinds = squareform(pdist(e)), np.unique(labels)
    found = []
    for a in kinds:
        own = labels == a
        within = d[np.ix_(own, own)].sum() / (own.sum() * (own.sum() - 1))
        others = [(d[np.ix_(own, labels == b)].mean(), int(b)) for b in kinds if b != a]
        between, neighbour = min(others)
        found.append({"label": int(a), "within": within, "between": between, "neighbour": neighbour})
    return found


def state(a, p, n):
    near, far = np.linalg.norm(a - p, axis=1), np.linalg.norm(a - n, axis=1)

    def weighed(d):
        w = np.exp(-LAMBDA * (d - d.min()))
        return (w * d).sum() / w.sum()

    hardness, distance = (near - far).mean(), pdist(np.concatenate([a, p, n])).mean()
    return {"hardness": hardness, "collapseness": weighed(near) - weighed(far),
            "separability": -hardness / distance, "distance": distance}


def hardened(embed, images, triplets, moved):
    """Returns triplets that signed gradient steps made harder."""
    x0 = [images[triplets[:, k]] for k in range(3)]
    x = [x.clone() for x in x0]
    clean = [embed(x).detach() for x in x0]
    for _ in range(STEPS):
        x = [v.detach().requires_grad_(True) for v in x]
        z = [embed(x[k]) if k in moved else clean[k] for k in range(3)]
        loss = ((z[0] - z[1]).norm(dim=1) - (z[0] - z[2]).norm(dim=1)).sum()
        slopes = th.autograd.grad(loss, [x[k] for k in moved])
        for k, slope in zip(moved, slopes):
            step = x[k] + ALPHA * slope.sign()
            x[k] = th.max(th.min(step, x0[k] + EPS), x0[k] - EPS).clamp(0, 1)
    z = [embed(x[k]).detach() if k in moved else clean[k] for k in range(3)]
    shift = th.cat([(z[k] - clean[k]).norm(dim=1) for k in moved]).mean()
    return {"shift": float(shift), **state(*(v.double().numpy() for v in z))}


def tsne(e):
    p = _joint_probabilities(squareform(pdist(e, "sqeuclidean")).astype(np.float32), PERPLEXITY, 0)
    places = np.stack([np.sin(np.arange(len(e))), np.cos(1.7 * np.arange(len(e)))], 1)
    divergence, gradient = _kl_divergence(places.ravel().astype(float), p, 1.0, len(e), 2)
    fits = [TSNE(perplexity=PERPLEXITY, method="exact", init="random", random_state=seed).fit(e).kl_divergence_
            for seed in range(3)]
    return {"p_row": squareform(p)[0].tolist(), "p_squares": float((p ** 2).sum() * 2), "divergence": float(divergence),
            "gradient": gradient.reshape(-1, 2).tolist(), "fits": [float(f) for f in fits]}


def main(shared, out, *names):
    shared, out = Path(shared), Path(out)
    out.mkdir(parents=True, exist_ok=True)
    data = shared / "data/omniglot28"
    images = th.from_numpy(np.load(data / "test_images_u8.npy")).float().reshape(-1, 1, 28, 28) / 255
    for name in names or ("vanilla", "hardened"):
        found = np.load(shared / f"golden/{name}_trials.npz")
        e, labels = found["embeddings_N"].astype(np.float64), found["labels"]
        # Anchor and positive: the first two of a class. The negative: the first of the class after the next.
        first = [np.flatnonzero(labels == c)[:2] for c in np.unique(labels)][:56]
        triplets = np.array([[*first[k], first[(k + 2) % len(first)][0]] for k in range(len(first))])
        rows = {method: hardened(net(str(shared / f"models/{name}.onnx")), images, triplets, moved)
                for method, moved in (("ANP", [0]), ("CAP", [1, 2]), ("SIP", [0, 1, 2]))}
        golden = {
            "spacing": spacing(e, labels), "classes": classes(e, labels), "triplets": triplets.tolist(),
            "clean": state(*(e[triplets[:, k]] for k in range(3))), "attacks": rows, "tsne": tsne(e[:MAPPED]),
        }
        (out / f"{name}.json").write_text(json.dumps(golden) + "\n")


main(*sys.argv[1:])
