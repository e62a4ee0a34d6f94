#!/usr/bin/env python3
"""Reference implementation of attacks without gradients, in PyTorch.

These are NES (Ilyas et al., ICML 2018) in two forms, and Square attack (Andriushchenko et al., ECCV 2020).

    reference_black_box.py SHARED OUT   # SHARED: the folder of models, data and selections beside the checkout

Follows the papers and docs/attacks.md. Trials of a random attack can only be compared if both sides use the
same random numbers, so `Draw` reproduces those of crates/audit-base/src/random.rs from the definition of
ChaCha with 8 rounds. Everything else is independent of the program. Writes OUT/black-box-MODEL.json: the
trials, in the format of `audit --trials`, and their results; tests/it/papers_golden.rs compares. Needs torch,
numpy and onnx.
"""
import hashlib
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch as th

from reference_papers import Trials, net

FEW = 8                                               # queries
EPS = {"vanilla": 0.05, "hardened": 0.2}
SEARCHES = {"population": 400, "nes": 209, "random": 199}     # steps
U32 = np.uint32


class Draw:
    """ChaCha8 in the original layout: constants, 256-bit key, 64-bit counter of blocks, 64-bit stream. The
    key is the SHA-256 of seed, attack and query; the stream of a search from the clean image is 2³² + 1."""

    def __init__(self, code, query, seed=0, stream=2**32 + 1):
        parts = seed.to_bytes(8, "little") + code.encode() + b"\0" + query.encode()
        self.key = np.frombuffer(hashlib.sha256(parts).digest(), "<u4")
        self.stream, self.block, self.left = stream, 0, np.zeros(0, U32)

    def blocks(self, count):
        at = np.arange(self.block, self.block + count, dtype=np.uint64)
        self.block += count
        whole = lambda v: np.full(count, v, U32)
        state = [whole(v) for v in np.frombuffer(b"expand 32-byte k", "<u4")] + [whole(v) for v in self.key]
        state += [at.astype(U32), (at >> np.uint64(32)).astype(U32), whole(self.stream & 0xFFFFFFFF), whole(self.stream >> 32)]
        s = [v.copy() for v in state]

        def turn(a, b, c, d):
            for into, add, mix, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                s[into] = s[into] + s[add]
                v = s[mix] ^ s[into]
                s[mix] = (v << U32(by)) | (v >> U32(32 - by))

        for _ in range(4):
            for i in range(4):
                turn(i, 4 + i, 8 + i, 12 + i)
            for i in range(4):
                turn(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
        return np.stack([a + b for a, b in zip(s, state)], 1).ravel()

    def words(self, count):
        if len(self.left) < count:
            self.left = np.concatenate([self.left, self.blocks(max(1024, count // 16 + 1))])
        out, self.left = self.left[:count], self.left[count:]
        return out

    def index(self, n):
        low, high = (int(v) for v in self.words(2))
        return (high << 32 | low) * n >> 64

    def sign(self):
        return 1.0 if self.index(2) == 0 else -1.0

    def normal(self, shape):
        """Returns approximately normal numbers: the sum of twelve uniform numbers of 24 bits each, minus 6."""
        units = (self.words(12 * math.prod(shape)) >> U32(8)).astype(np.float32) / np.float32(2**24)
        total = np.zeros(math.prod(shape), np.float32)
        for k in range(12):
            total += units[k::12]
        return th.from_numpy(total - np.float32(6)).reshape(shape)


def inside(x, x0, eps):
    return th.max(th.min(x, x0 + eps), x0 - eps).clamp(0, 1)


def population(loss, x0, eps, draw, steps, size=100):
    """NES: antithetic pairs x ± σu with σ = 2ε, one signed step of ε/4 for each population of 100 images.

    As in robrank's advrank.py, the noise σu is clipped to ±ε, and samples stay in the ball. The first sample is
    at the clean image, and so within it by its noise alone. The last image is the result."""
    x = x0.clone()
    for _ in range(steps // size):
        u = th.stack([draw.normal(x0.shape) for _ in range(size // 2)]).clamp(-0.5, 0.5)
        ahead, behind = (loss(inside(x + s * 2 * eps * u, x0, eps)) for s in (1, -1))
        g = ((ahead - behind).view(-1, 1, 1, 1) * u).sum(0)
        x = inside(x - eps / 4 * g.sign(), x0, eps)
    return x


def nes(loss, x0, eps, draw, steps, pairs=8):
    """NES with σ = ε/2, ε/10, ε/50 in turn, samples within the ball, and a signed step for every 8 pairs.

    The step size decays from ε to 0 by half a cosine wave. The result is the best sample; the clean image is
    the first."""
    x, best = x0.clone(), (float(loss(x0[None])), x0)
    tried, moves = 1, 0
    while tried < steps:
        us = th.stack([draw.normal(x0.shape) for _ in range(pairs)])
        sigma = eps * (0.5, 0.1, 0.02)[moves % 3]
        tries = th.stack([inside(x + s * sigma * u, x0, eps) for u in us for s in (1, -1)])
        losses = loss(tries)
        k = int(losses.argmin())
        if losses[k] < best[0]:
            best = (float(losses[k]), tries[k])
        g = ((losses[0::2] - losses[1::2]).view(-1, 1, 1, 1) * us).sum(0)
        tried, moves = tried + 2 * pairs, moves + 1
        x = inside(x - eps / 2 * (1 + math.cos(math.pi * tried / steps)) * g.sign(), x0, eps)
    # One more image is tried at the end: the first of the next move.
    last = inside(x + eps * (0.5, 0.1, 0.02)[moves % 3] * draw.normal(x0.shape), x0, eps)
    return last if float(loss(last[None])) <= best[0] else best[1]


def square(loss, x0, eps, draw, steps):
    """Square attack in L∞: stripes first, then squares of ±ε for each channel, accepted if the loss falls.

    The area begins at 0.8 of the image, and is halved after 0.1, 0.5, 2, 5, 10, 20, 40, 60 and 80 % of the
    images."""
    channels, height, width = x0.shape
    signs = th.tensor([[draw.sign() for _ in range(width)] for _ in range(channels)])
    best = inside(x0 + eps * signs[:, None, :], x0, eps)
    lowest = float(loss(best[None]))
    for tried in range(1, steps + 1):
        share = 0.8
        for after in (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8):
            share /= 2 if tried > round(after * (steps + 1), 9) else 1
        side = min(max(round(math.sqrt(share * height * width)), 1), height, width)
        top, left = draw.index(height - side + 1), draw.index(width - side + 1)
        x = best.clone()
        window = (slice(None), slice(top, top + side), slice(left, left + side))
        x[window] = x0[window] + eps * th.tensor([draw.sign() for _ in range(channels)]).view(-1, 1, 1)
        x = inside(x, x0, eps)
        value = float(loss(x[None]))
        if value < lowest:
            best, lowest = x, value
    return best


def main(shared, out):
    data = shared / "data/omniglot28"
    images = th.from_numpy(np.load(data / "test_images_u8.npy")).float().reshape(-1, 1, 28, 28) / 255
    labels = th.from_numpy(np.load(data / "test_labels.npy")).long()
    names = (data / "test_names.txt").read_text().split("\n")
    queries = th.tensor(json.loads((shared / "golden/selections.json").read_text())["query"])
    for model, eps in EPS.items():
        embed = net(shared / f"models/{model}.onnx")
        with th.no_grad():
            gal = embed(images)
            # Queries that are correct without an attack, so that NN-push attacks them.
            right = ~Trials(embed, images, labels, gal, queries).still
            t = Trials(embed, images, labels, gal, queries[right][:FEW])
            losses = {"NN": (-1, t.nearest), "GTM": (1, t.other)}
            result = {}
            for search, steps in SEARCHES.items():
                for code, (sign, targets) in losses.items():
                    rows = {key: [] for key in ("loss", "shift", "linf", "hit")}
                    for i, q in enumerate(t.queries):
                        loss = lambda x: sign * (embed(x) - gal[targets[i]]).norm(dim=1)
                        run = {"population": population, "nes": nes, "random": square}[search]
                        x = run(loss, t.x0[i], eps, Draw(code, names[q]), steps)
                        z = embed(x[None])
                        d = (z - gal).norm(dim=1)
                        d[q] = math.inf
                        rows["loss"].append(float(loss(x[None])))
                        rows["shift"].append(float((z - gal[q]).norm()))
                        rows["linf"].append(float((x - t.x0[i]).abs().max()))
                        rows["hit"].append(bool(t.same[i, d.argmin()]))
                    result[f"{search} {code}"] = {"eps": eps, "alpha": eps / 4, "steps": steps, **rows}
                    print(model, search, code, np.mean(rows["loss"]), np.mean(rows["hit"]))
        file = {code.lower(): [{"query": names[q]} for q in t.queries] for code in losses}
        trials = {"protocol": "rob28", "form": "corrected", "metric": "normalized-euclidean", "attacks": file}
        text = json.dumps({"trials": trials, "result": result}, separators=(",", ":"))
        (out / f"black-box-{model}.json").write_text(text.replace("]},", "]},\n") + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
