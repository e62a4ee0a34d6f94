#!/usr/bin/env python3
"""Compares ε50 of `audit` with the smallest changes that other attacks find for the same queries.

    python research/tools/peer_ladder.py --audit PATH --queries N [--norm l2] MODEL.onnx[=IMAGES][@EPS] ...

ε50 is the ε at which half of the correct queries fail: in 255ths in L∞, a length over pixels in [0, 1] in L2.
It must never be more than 5 % above the median of the smallest change per query that any other search finds.
For each model this script runs `audit` with its default suite and with the suite `minimum` (L2: `minimum-l2`
and `minimum-cw`), then attacks in PyTorch on the same queries:

- FAB of torchattacks, without a target among the nearest classes, and towards each of the nearest classes;
- FMN of foolbox, with two step sizes; in L2, DDN (Rony et al., CVPR 2019) of foolbox besides;
- PGD with momentum on the margin, with bisection of ε. It starts at the clean image, then at two random ones.

All attacks have the same largest ε, that of the default suite. The results of audit are read from its
reports. An image of another attack counts if the query is wrong in ONNX Runtime with the original file. If an
image on the boundary is correct there, it is moved a little further from the clean image, and its size is
measured again.

IMAGES holds a folder of PNG files for each class; without it, audit writes its built-in images. Images of
another size than the model's are resized first, and all searches get the resized ones. ORT_DYLIB_PATH is
passed on to audit.

Beyond the packages of tools/requirements.txt:

    pip install foolbox==3.3.4
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent))
import peer_attacks  # noqa: E402
from peer_attacks import FAR, Retrieval, converted  # noqa: E402

# How much smaller a change by another attack must be to be reported.
MARGIN = 1.05
# How much an image's change may be scaled up until ONNX Runtime ranks it wrong too.
FURTHER = (1.0, 1.0005, 1.002, 1.005)


def fail(text):
    sys.exit(f"peer_ladder.py: {text}")


def parsed(word):
    """MODEL, IMAGES and EPS of an argument."""
    rest, _, eps = word.rpartition("@") if "@" in word else (word, "", "")
    model, _, data = rest.partition("=")
    return Path(model), Path(data) if data else None, eps or None


def input_of(path):
    """Channels, height and width of the model's input."""
    import onnx

    graph = onnx.load(str(path)).graph
    weights = {w.name for w in graph.initializer}
    shape = [d.dim_value for i in graph.input if i.name not in weights for d in i.type.tensor_type.shape.dim]
    if len(shape) != 4 or shape[1] not in (1, 3) or 0 in shape[1:]:
        fail(f"{path}: expected one input of [batch, channels, height, width], found {shape}")
    return shape[1:]


def prepared(audit, data, size, folder):
    """A folder of images of the model's size."""
    channels, height, width = size
    if data is None:
        if height != width:
            fail(f"expected a square input for the built-in images, found {height} × {width}")
        flags = ["--size", str(height), "--channels", str(channels), "--out", str(folder)]
        subprocess.run([audit, "images", *flags], check=True, stdout=subprocess.DEVNULL)
        return folder
    files = sorted(data.glob("*/*.png"))
    if not files:
        fail(f"{data}: expected a folder of PNG files for each class, found none")
    if all(Image.open(f).size == (width, height) for f in files):
        return data
    for f in files:
        to = folder / f.parent.name / f.name
        to.parent.mkdir(parents=True, exist_ok=True)
        Image.open(f).resize((width, height), Image.BILINEAR).save(to)
    return folder


def read(folder, channels):
    """Images, labels, and the number of each query id."""
    files = sorted(folder.glob("*/*.png"))
    at = {}
    for i, f in enumerate(files):
        at[f"{f.parent.name}/{f.name}"] = at[f"{f.parent.name}/{f.stem}"] = i
    mode = "L" if channels == 1 else "RGB"
    pixels = np.stack([np.asarray(Image.open(f).convert(mode), np.float32) / 255 for f in files])
    images = pixels[:, None] if channels == 1 else pixels.transpose(0, 3, 1, 2)
    labels = np.unique([f.parent.name for f in files], return_inverse=True)[1]
    return torch.from_numpy(images.copy()), torch.from_numpy(labels), at


def audited(audit, model, data, out, flags):
    """The report of a run."""
    images = [] if data is None else ["--data", str(data)]
    command = [audit, *flags, str(model), *images, "--threads", "1", "-q", "-o", str(out)]
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if not out.exists():
        fail(f"{' '.join(command)}: no report; {done.stdout.strip()[-500:]}")
    print(f"    audit {' '.join(flags)}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return json.loads(out.read_text())


class Judge:
    """Ranks by ONNX Runtime with the original file."""

    def __init__(self, path, metric, images, labels):
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.name = self.session.get_inputs()[0].name
        self.metric, self.labels = metric, labels.numpy()
        self.gallery = self.embed(images)

    def embed(self, images):
        z = [self.session.run(None, {self.name: b.numpy()})[0] for b in images.split(64)]
        z = np.concatenate(z).reshape(len(images), -1).astype(np.float64)
        return z if self.metric == "euclidean" else z / np.linalg.norm(z, axis=1, keepdims=True)

    def correct(self, images, query):
        z, correct = self.embed(images), []
        for row, q in zip(z, query.tolist()):
            d = 1 - self.gallery @ row if self.metric == "cosine" else np.linalg.norm(self.gallery - row, axis=1)
            d[q] = np.inf
            own = self.labels == self.labels[q]
            correct.append(d[own].min() <= d[~own].min())
        return torch.tensor(correct)


class Few(torch.nn.Module):
    """The same classifier with few classes: the query's own first, then those nearest to the clean image."""

    def __init__(self, model, classes):
        super().__init__()
        self.model, self.place, self.classes = model, model.place, classes

    def forward(self, x):
        row = (x[:, 0, -1, : peer_attacks.BITS] > 0.5).long()
        query = row @ self.model.bits
        return self.model(x).gather(1, self.classes[query])


class Linf:
    """Changes by their largest entry."""

    name, fab, suites, scale, digits = "linf", "Linf", ["minimum"], 255, 3

    @staticmethod
    def size(change):
        return change.abs().amax((1, 2, 3))

    @staticmethod
    def foolbox(steps):
        import foolbox

        for size in (1.0, 10.0):
            yield f"FMN, step {size:g}", foolbox.attacks.LInfFMNAttack(steps=steps, max_stepsize=size)

    @staticmethod
    def projected(image, x, e):
        return torch.min(torch.max(image, (x - e).clamp(min=0)), (x + e).clamp(max=1))

    @staticmethod
    def start(x, e):
        return x + e * (2 * torch.rand_like(x) - 1)

    @staticmethod
    def direction(momentum, _):
        return momentum.sign()


class L2:
    """Changes by their Euclidean length."""

    name, fab, suites, scale, digits = "l2", "L2", ["minimum-l2", "minimum-cw"], 1, 4

    @staticmethod
    def size(change):
        return change.flatten(1).norm(dim=1)

    @staticmethod
    def foolbox(steps):
        import foolbox

        for size in (1.0, 10.0):
            yield f"FMN, step {size:g}", foolbox.attacks.L2FMNAttack(steps=steps, max_stepsize=size)
        for size in (0.1, 1.0):
            yield f"DDN, from {size:g}", foolbox.attacks.DDNAttack(steps=steps, init_epsilon=size)

    @staticmethod
    def projected(image, x, e):
        """The nearest image of the ball: the factor of the change is found by bisection."""
        radius, change = e.flatten(), image - x
        low, high = torch.zeros_like(e), torch.ones_like(e)
        for _ in range(20):
            middle = (low + high) / 2
            inside = (L2.size((x + middle * change).clamp(0, 1) - x) <= radius)[:, None, None, None]
            low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
        whole = (L2.size(image.clamp(0, 1) - x) <= radius)[:, None, None, None]
        return torch.where(whole, image, x + low * change).clamp(0, 1)

    @staticmethod
    def start(x, e):
        noise = torch.randn_like(x)
        return x + e * noise / L2.size(noise)[:, None, None, None]

    @staticmethod
    def direction(momentum, image):
        """A unit vector, without the pixels that are black or white and can't go further."""
        stuck = ((image <= 0) & (momentum < 0)) | ((image >= 1) & (momentum > 0))
        free = momentum.masked_fill(stuck, 0)
        return free / L2.size(free)[:, None, None, None].clamp(min=1e-12)


NORMS = {norm.name: norm for norm in (Linf, L2)}


def fab(model, norm, x, y, query, eps, steps, classes, few):
    """Runs FAB untargeted among `few` classes, then towards each of the nearest `classes`. Yields a name and
    images for each.

    torchattacks tries the next target only for images on which the one before failed, so each target runs
    separately here.
    """
    import torchattacks as ta

    # torchattacks needs a row of pixels that names the query, see peer_attacks.py.
    named = model.named(x, query)
    with torch.no_grad():
        order = model.near(x, query).amin(2).scatter(1, y[:, None], -1.0).argsort(1)[:, :few]
    table = torch.zeros((len(model.labels), order.shape[1]), dtype=torch.long)
    table[query] = order
    free = ta.FAB(Few(model, table).eval(), norm=norm.fab, eps=eps, steps=steps)
    yield "FAB", free.attack_single_run(named, torch.zeros_like(y))[:, :, :-1]
    aimed = ta.FAB(model, norm=norm.fab, eps=eps, steps=steps, multi_targeted=True)
    for k in range(classes):
        aimed.target_class = k + 2
        yield f"FAB, class {k + 1}", aimed.attack_single_run_targeted(named, y)[:, :, :-1]


def fmn(model, norm, x, y, query, steps):
    """FMN with the step size that foolbox has by default and with ten times it, and what else it has for the norm."""
    import foolbox

    named = model.named(x, query)
    for name, attack in norm.foolbox(steps):
        found = attack.run(foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu"), named, y)
        yield name, found.detach()[:, :, :-1]


def pgd(model, norm, x, y, query, eps, start, steps=60):
    """PGD with momentum on the margin, with an ε for each image. Returns the first wrong image of each query, and whether there is one."""
    e = eps[:, None, None, None]
    found, done = x.clone(), torch.zeros(len(x), dtype=torch.bool)
    now = x.clone() if start == 0 else norm.projected(norm.start(x, e), x, e)
    momentum = torch.zeros_like(x)
    for step in range(steps + 1):
        left = torch.nonzero(~done).flatten()
        if len(left) == 0:
            break
        image = now[left].requires_grad_(True)
        d = model.near(image, query[left]).amin(2)
        own = d.gather(1, y[left][:, None])[:, 0]
        other = d.scatter(1, y[left][:, None], FAR).amin(1)
        (g,) = torch.autograd.grad((own - other).sum(), image)
        wrong = (own > other).detach()
        found[left[wrong]], done[left[wrong]] = image.detach()[wrong], True
        momentum[left] = 0.75 * momentum[left] + g / g.abs().mean((1, 2, 3), keepdim=True).clamp(min=1e-12)
        size = e[left] / 2 * (1 + math.cos(math.pi * step / (steps + 1))) / 2
        moved = image.detach() + size * norm.direction(momentum[left], image.detach())
        now[left] = norm.projected(moved, x[left], e[left])
    return found, done


def bisected(model, norm, x, y, query, eps, starts=3, span=512, to=1.05):
    """The smallest ε at which PGD finds an image, between eps / span and eps, by bisection of log ε."""
    high, low = torch.full((len(x),), float(eps)), torch.full((len(x),), eps / span)
    best, broken = x.clone(), torch.zeros(len(x), dtype=torch.bool)
    at = torch.arange(len(x))
    first = True
    while len(at):
        now = high[at] if first else (high[at] * low[at]).sqrt()
        lost = torch.zeros(len(at), dtype=torch.bool)
        for start in range(starts):
            left = torch.nonzero(~lost).flatten()
            if len(left) == 0:
                break
            q = at[left]
            found, done = pgd(model, norm, x[q], y[q], query[q], now[left], start)
            best[q[done]] = found[done]
            lost[left[done]] = True
        broken[at[lost]] = True
        high[at[lost]] = torch.minimum(now, norm.size(best[at] - x[at]))[lost]
        if not first:
            low[at[~lost]] = now[~lost]
        first = False
        at = torch.nonzero(broken & (high > low * to)).flatten()
    yield "PGD", best


def sizes(judge, norm, x, found, query, eps):
    """Returns the size of each change and the images.

    The size is infinite if the query is still correct in ONNX Runtime, or if the change is larger than ε.
    """
    least, images = torch.full((len(x),), math.inf), x.clone()
    for factor in FURTHER:
        image = (x + factor * (found - x)).clamp(0, 1)
        size = norm.size(image - x)
        at = torch.nonzero(least.isinf() & (size > 0) & (size <= eps * 1.00001)).flatten()
        if len(at):
            wrong = ~judge.correct(image[at], query[at])
            least[at[wrong]], images[at[wrong]] = size[at[wrong]], image[at[wrong]]
    return least, images


@torch.no_grad()
def place(model, x, y, query, images):
    """The class of each image's nearest item: 1 for the class nearest to the clean image, 2 for the next."""
    def near(of):
        return model.near(of, query).amin(2).scatter(1, y[:, None], FAR)

    taken = near(images).argmin(1)
    return (near(x).argsort(1) == taken[:, None]).float().argmax(1) + 1


def median(values):
    """The smallest value that at least half of the values do not exceed, as audit defines ε50."""
    ordered = sorted(float(v) for v in values)
    return ordered[math.ceil(len(ordered) / 2) - 1]


def shown(value, norm):
    return f"{norm.scale * value:.{norm.digits}f}" if math.isfinite(value) else "above ε₀"


def ladder(args, word, folder):
    """Columns, a row of the table, a line for each query for which another search found a much smaller change, and all sizes."""
    path, data, eps_flag = parsed(word)
    start, size = time.monotonic(), input_of(path)
    print(f"{path.stem}", file=sys.stderr, flush=True)
    data_used = prepared(args.audit, data, size, folder / "images")
    given = data and data_used
    norm = NORMS[args.norm]
    flags = ["--max-queries", str(args.queries), *(["--norm", norm.name] if norm is not Linf else [])]
    report = audited(args.audit, path, given, folder / "robust.json", flags + (["--eps", eps_flag] if eps_flag else []))
    plain = ["--strong-sample", "off", "--max-queries", str(args.queries)]
    least = {suite: audited(args.audit, path, given, folder / f"{suite}.json", ["--suite", suite, *plain]) for suite in norm.suites}

    how, metric = report["model"]["preprocessing"], report["model"]["metric"]
    if set(how["scale"]) != {1.0} or set(how["shift"]) != {0.0} or how["layout"] != "nchw" or how["order"] == "bgr" or how["resize"]:
        fail(f"{path}: expected pixels in [0, 1] as they are, found preprocessing {how}")
    if metric not in ("normalized-euclidean", "euclidean", "cosine"):
        fail(f"{path}: expected a metric that is known here, found {metric}")
    eps = report["suite"]["eps"]
    if eps_flag and abs(eps - float(Fraction(eps_flag))) > 1e-6:
        fail(f"{path}: expected ε {eps_flag}, found {eps}")
    images, labels, at = read(data_used, size[0])
    outcomes = [o for o in report["outcomes"] if o["attack"] == "R1"]
    query = torch.tensor([at[o["query"]] for o in outcomes])
    correct = torch.tensor([o["before"]["hit"] for o in outcomes])
    judge = Judge(path, metric, images, labels)
    net, by = converted(str(path), images)
    model = Retrieval(net, metric, images, labels).eval()
    for who, says in [("ONNX Runtime", judge.correct(images[query], query)), ("PyTorch", model.correct(images[query], query))]:
        if (says != correct).any():
            fail(f"{path}: expected {who} to rank each query as the report has it, found {int((says != correct).sum())} that differ")

    ids = [o["query"] for o, r in zip(outcomes, correct) if r]
    ours = torch.tensor([o["enough"].get("size") or math.inf for o, r in zip(outcomes, correct) if r])
    peers, places = {}, {}
    for suite, of in least.items():
        found = {o["query"]: o["size"] if o.get("size") is not None else o["linf"] for o in of["outcomes"]
                 if o["attack"] == "MIN" and o["before"]["hit"] and not o["after"]["hit"]}
        missing = set(ids) - {o["query"] for o in of["outcomes"] if o["attack"] == "MIN"}
        if missing:
            fail(f"{path}: expected the same queries in both reports, found {len(missing)} that differ")
        minimum = torch.tensor([found.get(i, math.inf) for i in ids])
        minimum[minimum > eps * 1.00001] = math.inf
        peers[suite] = minimum

    query = query[correct]
    x, y = images[query], labels[query]
    for attack in (
        fab(model, norm, x, y, query, eps, args.fab_steps, args.fab_classes, args.few),
        fmn(model, norm, x, y, query, args.fmn_steps),
        bisected(model, norm, x, y, query, eps),
    ):
        torch.manual_seed(0)
        np.random.seed(0)
        while True:
            began, model.passes = time.monotonic(), 0
            name, images_found = next(attack, (None, None))
            if name is None:
                break
            peers[name], images_found = sizes(judge, norm, x, images_found.detach(), query, eps)
            places[name] = place(model, x, y, query, images_found).tolist()
            print(f"    {name}: median {shown(median(peers[name]), norm)}, {model.passes} image passes, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    columns = {
        **{suite: peers[suite] for suite in norm.suites},
        "FAB": peers["FAB"],
        "FAB-T": torch.stack([v for k, v in peers.items() if k.startswith("FAB,")]).amin(0),
        **{n: torch.stack(of).amin(0) for n in ("FMN", "DDN") if (of := [v for k, v in peers.items() if k.startswith(n)])},
        "PGD": peers["PGD"],
    }
    names = list(peers)
    every = torch.stack(list(peers.values()))
    best = every.amin(0)
    # Reports count ε50 in 255ths in every norm.
    value = report["scores"]["robust_r1"]["ladder"]["eps50"]
    eps50 = value["value"] / 255 if value["value"] < value["most"] * (1 - 1e-7) else math.inf
    if math.isfinite(eps50) and abs(eps50 - median(ours)) > 1e-4 * eps50:
        fail(f"{path}: expected ε50 as the median of the report's sizes, {255 * median(ours):.4f}, found {255 * eps50:.4f}")
    beaten = [i for i in range(len(ids)) if ours[i] > MARGIN * best[i]]
    ahead = sum(1 for i in range(len(ids)) if best[i] > MARGIN * ours[i])
    middle = median(best)
    where = "built-in" if data is None else "/".join(data.parts[-2:])
    medians = [shown(median(v), norm) for v in columns.values()]
    row = [f"{path.stem}, {where}", len(ids), shown(eps50, norm), *medians, shown(middle, norm)]
    row += [f"{eps50 / middle:.3f}" if math.isfinite(eps50) and math.isfinite(middle) else "–", len(beaten), ahead]

    def line(i):
        """A query, and each search that found a much smaller change, with the class that its image is taken for."""
        smaller = sorted((float(v), n) for n, v in zip(names, every[:, i]) if ours[i] > MARGIN * v)
        said = [f"{n} {shown(v, norm)}" + (f" → {places[n][i]}" if n in places else "") for v, n in smaller]
        return f"- {path.stem}, {ids[i]}: audit {shown(float(ours[i]), norm)}; {'; '.join(said)}"

    lines = [line(i) for i in sorted(beaten, key=lambda i: float(best[i] / ours[i]))]
    kept = {"model": path.stem, "images": where, "eps": eps, "queries": ids, "audit": ours.tolist()}
    kept |= {"peers": {n: v.tolist() for n, v in peers.items()}, "classes": places}
    print(f"    {by}; whole time {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return list(columns), row, lines, kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audit", required=True, help="the program")
    parser.add_argument("--norm", choices=list(NORMS), default="linf", help="the norm of the changes [linf]")
    parser.add_argument("--queries", type=int, default=100, help="queries of each model [100]")
    parser.add_argument("--fab-steps", type=int, default=100, help="steps of each run of FAB [100]")
    parser.add_argument("--fab-classes", type=int, default=5, help="nearest classes that FAB aims at [5]")
    parser.add_argument("--few", type=int, default=10, help="classes of FAB without a target, the own one included [10]")
    parser.add_argument("--fmn-steps", type=int, default=200, help="steps of each run of FMN [200]")
    parser.add_argument("--out", type=Path, help="a JSON file for the sizes of all queries and searches, in [0, 1]")
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx[=IMAGES][@EPS]")
    args = parser.parse_args()
    args.audit = str(Path(args.audit).resolve())
    torch.set_num_threads(1)
    rows, said, results = [], [], []
    for word in args.models:
        with tempfile.TemporaryDirectory() as folder:
            columns, row, lines, kept = ladder(args, word, Path(folder))
        rows.append(row)
        said += lines
        results.append(kept)
        if args.out:
            args.out.write_text(json.dumps(results))
    head = ["model, images", "correct queries", "ε50 of audit", *columns, "best of these", "audit / best", "a peer > 5 % smaller", "audit > 5 % smaller"]
    print("| " + " | ".join(head) + " |")
    print("|---|" + "--:|" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    if said:
        print("\nQueries for which another search found a change that is more than 5 % smaller. After the arrow: the class that its image is")
        print("taken for, 1 for the one nearest to the clean image.\n")
        print("\n".join(said))


if __name__ == "__main__":
    main()
