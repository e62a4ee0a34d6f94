#!/usr/bin/env python3
"""Runs attacks of public libraries on the queries of a report, for `cargo research bench strong`.

    peer_attacks.py MODEL.onnx REPORT.json IMAGES OUT.json

MODEL is converted by onnx2pytorch. If that fails, a net of Conv, Relu, Flatten and Gemm is built from the
file by hand, and OUT says so. REPORT has the queries (those of R1), ε and the metric. IMAGES holds a folder
for each class. OUT gets a list of attacks, each with the R@1 that it leaves, its image passes (images through
the forward pass) and CPU seconds.

torchattacks attacks classifiers. The classifier here is retrieval: the logit of a class is minus the distance
to its nearest gallery image, without the query itself. Attacks reorder the images of a batch, so each image
has an additional row of pixels with the bits of its query's number. No attack can flip a bit, because ε is
below one half. Results are measured without this row, on the image projected back into the ball, with the
true number of the query.
"""

import json
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

warnings.filterwarnings("ignore")
BITS = 16
FAR = 1e6


def fail(text):
    sys.exit(f"peer_attacks.py: {text}")


def by_hand(path):
    """Builds a net from its file."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("bench_suite", Path(__file__).with_name("bench_suite.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.network(Path(path).name, path, torch.device("cpu"))


def converted(path, images):
    """Returns the net in PyTorch, and how it was converted. Fails if its embeddings differ from ONNX Runtime's."""
    import onnx

    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = session.run(None, {session.get_inputs()[0].name: images[:8].numpy()})[0]
    ways = [("onnx2pytorch", lambda: by_onnx2pytorch(onnx.load(path))), ("built by hand", lambda: by_hand(path))]
    reasons = []
    for name, way in ways:
        try:
            net = way()
            with torch.no_grad():
                found = net(images[:8]).numpy()
            worst = float(np.abs(found - expected).max() / np.abs(expected).max())
            if worst < 1e-4:
                return net, "; ".join([*reasons, name])
            reasons.append(f"{name}: embeddings differ by {worst:.1e} of the largest value")
        except (Exception, SystemExit) as error:
            reasons.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}")
    fail(f"{path}: expected a net in PyTorch, found none; {'; '.join(reasons)}")


def by_onnx2pytorch(model):
    from onnx2pytorch import ConvertModel

    net = ConvertModel(model, experimental=True).eval()
    return net.requires_grad_(False)


class Retrieval(torch.nn.Module):
    """Retrieval as a classifier. Counts the images that it embeds."""

    def __init__(self, net, metric, gallery_images, labels):
        super().__init__()
        self.net, self.metric, self.passes = net, metric, 0
        with torch.no_grad():
            self.gallery = torch.cat([self.embed(x) for x in gallery_images.split(64)])
        self.labels = labels
        members = [torch.nonzero(labels == c).flatten() for c in range(int(labels.max()) + 1)]
        self.items = torch.nn.utils.rnn.pad_sequence(members, batch_first=True, padding_value=len(labels))
        self.bits = 2 ** torch.arange(BITS)
        # Attack code takes the device of a parameter.
        self.place = torch.nn.Parameter(torch.zeros(1), requires_grad=False)

    def embed(self, x):
        self.passes += len(x)
        z = self.net(x).flatten(1)
        return z if self.metric == "euclidean" else F.normalize(z)

    def near(self, x, query):
        """Distance to the nearest item of each class, without the query's own item."""
        z = self.embed(x)
        if self.metric == "cosine":
            d = 1 - z @ self.gallery.T
        else:
            d = torch.cdist(z, self.gallery, compute_mode="donot_use_mm_for_euclid_dist")
        own = F.one_hot(query, len(self.labels)).bool()
        d = F.pad(d.masked_fill(own, FAR), (0, 1), value=FAR)
        return d[:, self.items]

    def forward(self, x):
        query = ((x[:, 0, -1, :BITS] > 0.5).long() @ self.bits).clamp(max=len(self.labels) - 1)
        return -self.near(x[:, :, :-1], query).amin(2)

    def named(self, images, query):
        row = torch.zeros_like(images[:, :, :1])
        row[:, 0, 0, :BITS] = ((query[:, None] >> torch.arange(BITS)) & 1).float()
        return torch.cat([images, row], 2)

    @torch.no_grad()
    def correct(self, images, query):
        """Whether the nearest item is of the query's class."""
        d = self.near(images, query).amin(2)
        own = d.gather(1, self.labels[query][:, None])[:, 0]
        other = d.scatter(1, self.labels[query][:, None], FAR).amin(1)
        return own <= other


def multi_target(model, x, y, query, eps, classes=12, steps=100):
    """By hand: signed steps of cosine-decaying size from ε/2 from the clean image, against each of the
    nearest other classes; for the first quarter towards the nearest item of the class, then towards its
    nearest at each step."""
    best = x.clone()
    standing = model.correct(x, query)
    with torch.no_grad():
        order = model.near(x, query).amin(2).scatter(1, y[:, None], FAR).argsort(1)
    for k in range(classes):
        at = torch.nonzero(standing).flatten()
        if len(at) == 0:
            break
        start, q, own, target = x[at], query[at], y[at], order[at, k]
        rows = torch.arange(len(at))
        with torch.no_grad():
            first = model.near(start, q)[rows, target].argmin(1)
        now = start.clone()
        for step in range(steps):
            now.requires_grad_(True)
            d = model.near(now, q)
            aim = d[rows, target, first] if step < steps // 4 else d[rows, target].amin(1)
            (g,) = torch.autograd.grad((aim - d[rows, own].amin(1)).sum(), now)
            size = eps / 2 * (1 + np.cos(np.pi * step / steps)) / 2
            with torch.no_grad():
                now = torch.min(torch.max(now - size * g.sign(), start - eps), start + eps).clamp(0, 1)
            lost = ~model.correct(now, q)
            best[at[lost]] = now[lost]
            standing[at[lost]] = False
        # A query that was already lost is done; the others continue with the next class.
    return best


def attacks(model, eps):
    """Returns names, and functions of (images, labels, query numbers) that return attacked images."""
    import torchattacks as ta

    def wrapped(attack):
        def run(x, y, query):
            return attack(model.named(x, query), y)[:, :, :-1]

        return run

    # The steps are those of the paper; torchattacks' own default is 10 for each.
    def chain():
        parts = [
            ta.APGD(model, eps=eps, steps=100, loss="ce"),
            ta.APGDT(model, eps=eps, steps=100, n_classes=10),
            ta.FAB(model, eps=eps, steps=100, n_classes=10, multi_targeted=True),
            ta.Square(model, eps=eps, n_queries=5000),
        ]
        return ta.MultiAttack(parts)

    return [
        ("multi-target PGD by hand, 12 classes × 100 steps", lambda x, y, q: multi_target(model, x, y, q, eps)),
        ("PGD, 40 × ε/10 from a random start (torchattacks)", wrapped(ta.PGD(model, eps=eps, alpha=eps / 10, steps=40))),
        ("APGD-CE, 100 steps, 5 starts (torchattacks)", wrapped(ta.APGD(model, eps=eps, steps=100, n_restarts=5))),
        ("APGD-T, 12 classes × 100 steps (torchattacks)", wrapped(ta.APGDT(model, eps=eps, steps=100, n_classes=13))),
        ("Square, 5,000 images (torchattacks)", wrapped(ta.Square(model, eps=eps, n_queries=5000))),
        ("APGD-CE, APGD-T, FAB-T, Square in turn, as AutoAttack (torchattacks)", wrapped(chain())),
    ]


def main():
    if len(sys.argv) != 5:
        fail("expected MODEL.onnx REPORT.json IMAGES OUT.json")
    path, report, folder, out = sys.argv[1:]
    # More threads wait for each other if other work has the cores, and nets this small gain nothing.
    torch.set_num_threads(1)
    report = json.loads(Path(report).read_text())
    how = report["model"]["preprocessing"]
    if set(how["scale"]) != {1.0} or set(how["shift"]) != {0.0} or how["layout"] != "nchw" or how["order"] == "bgr":
        fail(f"{path}: expected pixels in [0, 1] as they are, found preprocessing {how}")
    metric = report["model"]["metric"]
    if metric not in ("normalized-euclidean", "euclidean", "cosine"):
        fail(f"{path}: expected a metric that is known here, found {metric}")
    files = sorted(Path(folder).glob("*/*.png"))
    at = {}
    for i, f in enumerate(files):
        at[f"{f.parent.name}/{f.name}"] = at[f"{f.parent.name}/{f.stem}"] = i
    pixels = np.stack([np.asarray(Image.open(f), np.float32) / 255 for f in files])
    images = torch.from_numpy(pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2).copy())
    labels = torch.from_numpy(np.unique([f.parent.name for f in files], return_inverse=True)[1])
    outcomes = [o for o in report["outcomes"] if o["attack"] == "R1"]
    query = torch.tensor([at[o["query"]] for o in outcomes])
    clean = torch.tensor([o["before"]["hit"] for o in outcomes])

    net, by = converted(path, images)
    model = Retrieval(net, metric, images, labels).eval()
    eps = report["suite"]["eps"]
    correct = model.correct(images[query], query)
    if (correct != clean).sum() > 0:
        fail(f"{path}: expected R@1 of each query as the report has it, found {int((correct != clean).sum())} that differ")
    rows, worst = [], correct.clone()
    for name, attack in attacks(model, eps):
        torch.manual_seed(0)
        np.random.seed(0)
        q = query[correct]
        x, y = images[q], labels[q]
        model.passes, began = 0, time.process_time()
        try:
            attacked = attack(x, y, q).detach()
        except Exception as error:
            rows.append({"name": name, "error": f"{type(error).__name__}: {error}"[:200]})
            continue
        seconds, passes = time.process_time() - began, model.passes
        attacked = torch.min(torch.max(attacked, x - eps), x + eps).clamp(0, 1)
        left = correct.clone()
        left[correct] = model.correct(attacked, q)
        worst &= left
        rows.append({"name": name, "r1": 100 * float(left.float().mean()), "passes": passes, "cpu_s": seconds})
        print(f"    {name}: R@1 {rows[-1]['r1']:.1f}, {passes} image passes, {seconds:.1f} s", file=sys.stderr, flush=True)
    found = {"by": by, "queries": len(query), "attacks": rows, "worst": 100 * float(worst.float().mean())}
    found["left"] = [outcomes[i]["query"] for i in torch.nonzero(worst).flatten().tolist()]
    Path(out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
