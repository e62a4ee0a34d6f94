#!/usr/bin/env python3
"""Compares the strong search of `audit` with an attack in PyTorch, for other goals and bounds than robust R@1
within ε of the whole image.

    peer_goals.py --audit PATH --objective faces|threshold|ranks|recall [--norm l2] [--eps E] [--patch SHARE]
                  [--mask IMAGE] [--queries N] [--starts N] [--steps N] [--classes N] MODEL.onnx ...

`audit` runs on its built-in images. The peer attacks the trials of its report: PGD with momentum on a loss of its
own for each attack, from the clean image, a random one, that of the target, and those of other queries. In the L2
ball the radius begins at the largest distance of two images and falls to ε (multi-ε: Croce & Hein, ICML 2021).
The outcomes of the peer are those that ONNX Runtime has with the original file. --patch has the same place on each
image as in the audit.

- recall: R1; the margin over all classes, and towards each of the nearest `--classes` classes;
- faces, threshold: DODGE, IMPERSONATE, EVADE, COLLIDE at the threshold of the report (`--far`);
- ranks: CA+, CA-, QA+, QA-, GTT and TMA; ranks as a sum of soft steps.

The rows have the mean outcome without an attack, by audit, by the peer, and of the better of both on each trial,
and on how many trials either is better. ORT_DYLIB_PATH is passed on to audit.
"""

import argparse
import hashlib
import math
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent))
import peer_ladder  # noqa: E402
from peer_attacks import FAR, Retrieval, converted  # noqa: E402

MASK32 = 0xFFFFFFFF
# Attacks of each objective; what the suite runs.
SUITES = {
    "faces": ["DODGE", "IMPERSONATE"],
    "threshold": ["EVADE", "COLLIDE"],
    "ranks": ["CA+", "CA-", "QA+", "QA-", "GTT", "TMA"],
    "recall": ["R1"],
}
# The attacker wants the outcome to rise.
RISE = {"CA-", "QA-", "TMA", "DODGE", "IMPERSONATE", "EVADE", "COLLIDE"}


def bits(parts):
    """The 64-bit numbers of audit's stream: ChaCha8, keyed with the SHA-256 of the parts."""
    key = struct.unpack("<8I", hashlib.sha256(b"".join(parts)).digest())
    for block in range(1 << 32):
        start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *key, block, 0, 0, 0]
        w = list(start)
        for _ in range(4):
            for lanes in [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
                          (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]:
                a, b, c, d = lanes
                for into, by, turned, n in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)]:
                    w[into] = (w[into] + w[by]) & MASK32
                    x = w[turned] ^ w[into]
                    w[turned] = ((x << n) | (x >> (32 - n))) & MASK32
        words = [(x + y) & MASK32 for x, y in zip(w, start)]
        yield from (words[i] | words[i + 1] << 32 for i in range(0, 16, 2))


def patch(share, shape, seed, query):
    """Where pixels of a query may change: the rectangle that `audit --patch` draws."""
    _, height, width = shape
    high, wide = (min(max(math.floor(of * math.sqrt(share) + 0.5), 1), of) for of in (height, width))
    draw = bits([struct.pack("<Q", seed), b"patch", b"\0", query.encode()])
    top, left = ((next(draw) * n) >> 64 for n in (height - high + 1, width - wide + 1))
    free = torch.zeros(shape)
    free[:, top : top + high, left : left + wide] = 1
    return free


class Trials:
    """The trials of one attack of a report, and their outcomes by the original file."""

    def __init__(self, attack, report, read, model, judge):
        self.attack, self.images, self.labels, at = attack, *read
        self.model, self.judge, self.n = model, judge, len(self.labels)
        self.outcomes = [o for o in report["outcomes"] if o["attack"] == attack]
        if any(len(o["targets"]) > 1 for o in self.outcomes):
            peer_ladder.fail(f"{attack}: expected at most one target for each query, found more")
        self.query = torch.tensor([at[o["query"]] for o in self.outcomes])
        self.target = torch.tensor([at[(o["targets"] or [o["query"]])[0]] for o in self.outcomes])
        self.t = report.get("verification", {}).get("threshold", math.nan)
        self.x, y = self.images[self.query], self.labels[self.query]
        own, of_query = self.labels[None] == y[:, None], F.one_hot(self.query, self.n).bool()
        self.mates, self.others = own & ~of_query, ~own
        self.left_out = of_query | F.one_hot(self.target, self.n).bool()
        self.gallery = model.gallery
        with torch.no_grad():
            self.from_query, self.from_target = self.distances(self.gallery[self.query]), self.distances(self.gallery[self.target])
        near = torch.stack([self.from_query.masked_fill(self.labels != c, FAR).amin(1) for c in range(int(y.max()) + 1)], 1)
        self.classes = near.scatter(1, y[:, None], FAR).argsort(1)

    def distances(self, z):
        return (2 - 2 * z @ self.gallery.T).clamp(min=1e-12).sqrt()

    def loss(self, z, rows, place):
        """Values to minimise. `place`: the class that is aimed at, by how near it is; None for all classes."""
        d, i, attack = self.distances(z), torch.arange(len(z)), self.attack
        if attack == "TMA":
            return 1 - (z * self.gallery[self.target[rows]]).sum(1)
        if attack in ("DODGE", "IMPERSONATE"):
            return (self.t - d[i, self.target[rows]]) * (1 if attack == "DODGE" else -1)
        others = self.others[rows]
        if place is not None:
            others = others & (self.labels[None] == self.classes[rows, place][:, None])
        mate, other = (d.masked_fill(~of, FAR).amin(1) for of in (self.mates[rows], others))
        if attack in ("R1", "EVADE", "COLLIDE"):
            return {"R1": other - mate, "EVADE": self.t - mate, "COLLIDE": other - self.t}[attack]
        if attack == "GTT":
            return d.masked_fill(self.left_out[rows], FAR).kthvalue(4, 1).values - d[i, self.target[rows]]
        # The rank of the target for the query, or of the candidate for the target.
        of_candidate = attack.startswith("CA")
        fixed = self.from_target[rows] if of_candidate else self.from_query[rows]
        at = d[i, self.target[rows]][:, None]
        u = (at - (fixed if of_candidate else d)) / (0.02 * fixed.std(1, keepdim=True))
        u = -u if attack in RISE else u
        return (0.5 + 0.5 * u / (1 + u.abs())).masked_fill(self.left_out[rows], 0).mean(1)

    def measured(self, images, rows):
        """The outcomes of images: 1 and 0, a rank in per cent, or a cosine."""
        gallery, z, found = self.judge.gallery, self.judge.embed(images), []
        for row, i in zip(z, rows.tolist()):
            t = int(self.target[i])
            d = np.linalg.norm(gallery - row, axis=1)
            mates, others, ranked = (of[i].numpy() for of in (self.mates, self.others, ~self.left_out))
            if self.attack == "TMA":
                found.append(float(row @ gallery[t]))
            elif self.attack in ("DODGE", "IMPERSONATE"):
                found.append((d[t] > self.t) == (self.attack == "DODGE"))
            elif self.attack in ("R1", "EVADE", "COLLIDE"):
                mate, other = d[mates].min(), d[others].min()
                found.append({"R1": mate <= other, "EVADE": mate > self.t, "COLLIDE": other <= self.t}[self.attack])
            else:
                of = np.linalg.norm(gallery - gallery[t], axis=1) if self.attack.startswith("CA") else d
                rank = int((of[ranked] < d[t]).sum())
                found.append(rank < 4 if self.attack == "GTT" else 100 * rank / (self.n - 1))
        return np.array(found, float)

    def starts(self, kind, norm, eps):
        n = len(self.x)
        if kind == 1:
            return norm.start(self.x, torch.full((n, 1, 1, 1), eps))
        return self.x if kind == 0 else self.images[self.target if kind == 2 else torch.randint(self.n, (n,))]


def momentum(trials, rows, place, free, norm, eps, start, steps, share):
    """The image of the lowest loss within ε of each trial."""
    x, e, values = trials.x[rows], torch.full((len(rows), 1, 1, 1), eps), free.flatten(1).sum(1)[:, None, None, None]
    wide = values.sqrt() if norm is peer_ladder.L2 else e
    now = norm.projected(torch.where(free > 0, start, x), x, e)
    low, best, total = torch.full((len(x),), math.inf), x.clone(), torch.zeros_like(x)
    for step in range(steps + 1):
        image = now.requires_grad_(True)
        loss = trials.loss(trials.model.embed(image), rows, place)
        (g,) = torch.autograd.grad(loss.sum(), image)
        loss, image = loss.detach(), image.detach()
        better = (loss < low) & (norm.size(image - x) <= eps * 1.000001 + 1e-6)
        low[better], best[better] = loss[better], image[better]
        g = g * free
        total = 0.75 * total - g / g.abs().sum((1, 2, 3), keepdim=True).clamp(min=1e-20) * values
        radius = e * (wide / e).clamp(min=1) ** max(0.0, 1 - step / (0.6 * steps))
        size = share * ((1 + math.cos(math.pi * step / steps)) / 2 + 1 / 46)
        moved = image + size * radius * norm.direction(total, image)
        now = norm.projected(torch.where(free > 0, moved, x), x, radius).detach()
    return best


def attacked(trials, args, report, norm):
    """A row of the table."""
    eps, mask = report["suite"]["eps"], report["suite"].get("mask")
    free = torch.ones_like(trials.x)
    if args.mask:
        white = np.asarray(Image.open(args.mask).convert("L")) >= 128
        free = free * torch.from_numpy(white)
    elif mask:
        free = torch.stack([patch(mask["share"], free.shape[1:], report["seed"], o["query"]) for o in trials.outcomes])
    everything = torch.arange(len(trials.x))
    clean = trials.measured(trials.x, everything)
    if not np.allclose(clean, reported(trials, "before"), atol=1e-3):
        peer_ladder.fail(f"{trials.attack}: expected the outcomes without an attack that the report has, found others")
    better = np.maximum if trials.attack in RISE else np.minimum
    own, decided = clean.copy(), trials.attack in ("R1", *SUITES["faces"], *SUITES["threshold"])
    for s in range(args.starts):
        start, share = trials.starts(min(s, 3), norm, eps), [0.5, 0.25, 1.0][s % 3]
        for place in [None, *(range(args.classes) if trials.attack in ("R1", "COLLIDE") else [])]:
            goal = 1.0 if trials.attack in RISE else 0.0
            rows = everything[torch.from_numpy(own != goal)] if decided else everything
            if len(rows):
                found = momentum(trials, rows, place, free[rows], norm, eps, start[rows], args.steps, share)
                at = rows.numpy()
                own[at] = better(own[at], trials.measured(found, rows))
    ours = reported(trials, "after")
    both = better(ours, own)
    ahead = [int((abs(both - of) > 1e-6).sum()) for of in (ours, own)]
    scale = 100 if decided or trials.attack == "GTT" else 1
    return [trials.attack, len(own), *(f"{scale * float(of.mean()):.3g}" for of in (clean, ours, own, both)), *ahead]


def reported(trials, when):
    """The outcomes of the report, before or after the attack, in the units of `measured`."""
    def of(found):
        if "accepted" in found:
            return found["accepted"] == (trials.attack in ("IMPERSONATE", "COLLIDE"))
        key = next(k for k in ("hit", "retained", "cosine", "rank") if k in found)
        return 100 * found[key] / (trials.n - 1) if key == "rank" else found[key]

    return np.array([of(o[when]) for o in trials.outcomes], float)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audit", required=True, help="the program")
    parser.add_argument("--objective", choices=list(SUITES), required=True)
    parser.add_argument("--norm", choices=list(peer_ladder.NORMS), default="linf")
    parser.add_argument("--eps", help="the bound, as `audit --eps` takes it")
    parser.add_argument("--patch", help="the share of the area that may change")
    parser.add_argument("--mask", help="an image of the model's size, white where pixels may change")
    parser.add_argument("--far", default="0.02", help="false accept rate of the threshold [0.02]")
    parser.add_argument("--queries", type=int, default=50, help="queries of each model [50]")
    parser.add_argument("--starts", type=int, default=6, help="runs of the peer [6]")
    parser.add_argument("--steps", type=int, default=60, help="steps of a run [60]")
    parser.add_argument("--classes", type=int, default=20, help="nearest classes that the peer aims at [20]")
    parser.add_argument("models", nargs="+", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    norm = peer_ladder.NORMS[args.norm]
    print("| net | attack | trials | clean | audit | peer | both | peer ahead | audit ahead |\n|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for path in args.models:
        with tempfile.TemporaryDirectory() as folder:
            folder, size = Path(folder), peer_ladder.input_of(path)
            data = peer_ladder.prepared(args.audit, None, size, folder / "images")
            attacks, threshold = ", ".join(SUITES[args.objective]), args.objective in ("faces", "threshold")
            (folder / "suite.yaml").write_text(f"form: corrected\neffort: 1\nattacks: [{attacks}]\n" + (f"threshold: far={args.far}\n" if threshold else ""))
            flags = ["--suite", str(folder / "suite.yaml"), "--norm", args.norm, "--max-queries", str(args.queries)]
            flags += [] if args.objective == "recall" else ["--strong-sample", "off"]
            flags += [word for name in ("eps", "patch", "mask") if (value := getattr(args, name)) for word in (f"--{name}", value)]
            report = peer_ladder.audited(args.audit, path, data, folder / "report.json", flags)
            read = peer_ladder.read(data, size[0])
        metric = report["model"]["metric"]
        if metric != "normalized-euclidean":
            peer_ladder.fail(f"{path}: expected the metric normalized-euclidean, found {metric}")
        net, _ = converted(str(path), read[0])
        model, judge = Retrieval(net, metric, read[0], read[1]).eval(), peer_ladder.Judge(path, metric, read[0], read[1])
        for attack in SUITES[args.objective]:
            torch.manual_seed(0)
            row = attacked(Trials(attack, report, read, model, judge), args, report, norm)
            print("| " + " | ".join(str(cell) for cell in (path.stem, *row)) + " |", flush=True)


if __name__ == "__main__":
    main()
