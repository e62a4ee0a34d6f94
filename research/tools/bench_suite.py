#!/usr/bin/env python3
"""`cargo research bench suite`: times the ARS suite in `audit` and the same trials in PyTorch, in turns.

    bench_suite.py AUDIT FOLDER THREADS ROUNDS PROVIDER [REFERENCE_AUDIT.py] [--model NAME]

AUDIT is the program, FOLDER is for models and images, PROVIDER is the device of both: cpu, cuda or
cuda+fast-math. The best time of each counts: of the whole process for `audit`, but for the check of the
gradient, whose result is cached; for PyTorch without imports and loading of weights. With one thread on the
CPU these are CPU seconds, which other work on the machine hardly affects. REFERENCE_AUDIT.py runs with the
targets of `audit`; without it, the implementation below runs: published form, unit-norm embeddings. A step
computes the gradient with respect to the images only, in batches of one attack, as in efficient attack code.

Prints a table of all models. With --model, prints only the numbers of one model: images, queries, image
steps, seconds of `audit`, of its attacks, and of PyTorch, and ARS of both.
"""

import argparse
import contextlib
import functools
import importlib.util
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

HERE = Path(__file__).resolve().parent
# Name, pixels, channels, classes, images in each, queries: on a CPU and on a GPU.
CASES = {
    "cpu": (
        ("plain.onnx", 28, 1, 48, 20, 200),
        ("hardened.onnx", 28, 1, 48, 20, 200),
        ("tv.resnet18", 224, 3, 24, 10, 8),
    ),
    "cuda": (
        ("plain.onnx", 28, 1, 48, 20, 960),
        ("hardened.onnx", 28, 1, 48, 20, 960),
        ("tv.resnet18", 224, 3, 24, 10, 120),
        ("tv.resnet50", 224, 3, 24, 10, 120),
    ),
}
ATTACKS = ("CA+", "CA-", "QA+", "QA-", "ES", "LTM", "GTM", "GTT")
FAR = 1e38


def module(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def network(name, path, where):
    """A net that bench_step.py knows, or one read out of its file: convolutions, ReLUs and a matrix."""
    if not name.endswith(".onnx"):
        return module(HERE / "bench_step.py").model(name).to(where)
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(path).graph
    weights = {w.name: torch.from_numpy(numpy_helper.to_array(w).copy()).to(where) for w in graph.initializer}
    steps = []
    for node in graph.node:
        attribute = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        w = [weights[i] for i in node.input[1:] if i in weights]
        if node.op_type == "Conv":
            steps.append(lambda x, w=w, a=attribute: F.conv2d(x, *w, stride=a["strides"], padding=a["pads"][:2]))
        elif node.op_type == "Relu":
            steps.append(F.relu)
        elif node.op_type in ("Flatten", "Reshape"):
            steps.append(lambda x: x.flatten(1))
        elif node.op_type == "Gemm":
            t = attribute.get("transB", 0)
            steps.append(lambda x, w=w, t=t: F.linear(x, w[0] if t else w[0].t(), *w[1:]))
        else:
            sys.exit(f"{path}: expected Conv, Relu, Flatten and Gemm, found {node.op_type}")

    def run(x):
        for step in steps:
            x = step(x)
        return x

    return run


def distances(a, b):
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def loss(attack, z, gallery, c):
    """Returns the loss of each sample, to be minimised."""
    if attack == "ES":
        return -F.pairwise_distance(z, c["clean"])
    if attack == "GTM":
        return F.pairwise_distance(z, c["target"])
    if attack in ("CA+", "CA-"):
        difference = (z - c["target"]).norm(dim=1)[:, None] - c["around"]
    else:
        d = distances(z, gallery)
        if attack == "LTM":
            return F.relu(d.masked_fill(c["same"], -FAR).amax(1) - d.masked_fill(~c["same"], FAR).amin(1))
        difference = (z - c["target"]).norm(dim=1)[:, None] - d
    return F.relu(difference if attack in ("CA+", "QA+") else -difference).mean(1)


def state(attack, z, gallery, c):
    """What an attack is measured by."""
    d = distances(z, gallery)
    if attack in ("CA+", "CA-"):
        return ((z - c["target"]).norm(dim=1)[:, None] > c["around"]).sum(1)
    rows = torch.arange(len(z))
    if attack in ("QA+", "QA-"):
        return d.argsort(dim=1, stable=True).argsort(dim=1, stable=True)[rows, c["index"]]
    d[rows, c["query"]] = FAR
    if attack == "GTT":
        return (d.topk(4, largest=False)[1] == c["index"][:, None]).any(1)
    return c["same"][rows, d.argmin(1)]


def resistance(attack, before, after, n):
    before, after = before.double(), after.double()
    if attack[:2] not in ("CA", "QA"):
        return 100 * float(after.mean() / before.mean())
    goal = 0 if attack.endswith("+") else n - 1
    use = before != goal
    return 100 * float((1 - (after - before) / (goal - before))[use].clamp(0, 1).mean())


def own(model, images, labels, trials, eps, alpha, steps):
    with torch.no_grad():
        gallery = torch.cat([F.normalize(model(x)) for x in images.split(50)])
    found = []
    for attack in ATTACKS:
        before, after = [], []
        for part in torch.tensor(trials[attack]).split(50):
            query, index = part[:, 0], part[:, 1]
            c = {"query": query, "index": index, "clean": gallery[query], "target": gallery[index]}
            c["same"] = labels[None] == labels[query][:, None]
            c["around"] = distances(c["target"], gallery)
            start = images[query]
            x = start.clone()
            for step in range(steps):
                x.requires_grad_(True)
                z = F.normalize(model(x))
                shift = {**c, "clean": c["clean"] + 1e-7} if step == 0 else c
                (g,) = torch.autograd.grad(loss(attack, z, gallery, shift).sum(), x)
                with torch.no_grad():
                    x = (x - alpha * g.sign()).clamp(start - eps, start + eps).clamp(0, 1)
            with torch.no_grad():
                before.append(state(attack, c["clean"], gallery, c))
                after.append(state(attack, F.normalize(model(x)), gallery, c))
        found.append(resistance(attack, torch.cat(before), torch.cat(after), len(images)))
    return float(np.mean(found))


def by_reference(path, model, images, labels, trials, eps, alpha, steps):
    ra = module(path)
    resolve = ra.resolve_targets

    def told(attack, selection, rows, *rest):
        if attack not in ("CA+", "CA-", "QA+", "QA-"):
            return resolve(attack, selection, rows, *rest)
        return {"target": torch.tensor([[trials[attack][r][1]] for r in rows])}

    ra.resolve_targets = told
    gallery = ra.embed_all(model, images, "N")
    done = {}
    for attack in ATTACKS:
        selection = {"query": [q for q, _ in trials[attack]]}
        done[attack] = ra.run_attack(
            model, images, labels, gallery, attack, selection, eps=eps, alpha=alpha, steps=steps
        )
    return ra.ars(ra.summarise(done, len(images)))


@contextlib.contextmanager
def home(where):
    """Runs protocols written for the CPU on another device: patches the calls that bind them to the CPU."""
    if where.type == "cpu":
        yield
        return
    numpy, makers = torch.Tensor.numpy, {name: getattr(torch, name) for name in ("tensor", "arange", "full")}
    for name, maker in makers.items():
        setattr(torch, name, functools.partial(maker, device=where))
    torch.Tensor.numpy = lambda tensor: numpy(tensor.cpu())
    try:
        yield
    finally:
        torch.Tensor.numpy = numpy
        for name, maker in makers.items():
            setattr(torch, name, maker)


def cpu_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peer(model, report, folder, reference, where, clock):
    """Seconds and ARS of the trials of a report."""
    before = clock()
    files = sorted(folder.glob("*/*.png"))
    at = {f"{f.parent.name}/{f.name}": i for i, f in enumerate(files)}
    pixels = np.stack([np.asarray(Image.open(f), np.float32) / 255 for f in files])
    images = torch.from_numpy(pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2).copy()).to(where)
    labels = torch.from_numpy(np.unique([f.parent.name for f in files], return_inverse=True)[1]).to(where)
    trials = {a: [] for a in ATTACKS}
    for o in report["outcomes"]:
        trials[o["attack"]].append([at[o["query"]], at[o["targets"][0]] if o["targets"] else 0])
    protocol = [report["suite"][key] for key in ("eps", "alpha", "steps")]
    arguments = (model, images, labels, trials, *protocol)
    score = by_reference(reference, *arguments) if reference else own(*arguments)
    return clock() - before, score


def audited(audit, words, file, clock):
    """Seconds of an audit, and its report."""
    # An audit that was killed leaves a journal, beside which another one doesn't begin.
    file.with_name(file.name + ".journal").unlink(missing_ok=True)
    before = clock()
    subprocess.run([audit, *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    return clock() - before, json.loads(file.read_text())


def turns(audit, folder, threads, rounds, provider, reference, case):
    """Images, queries, image steps; the best seconds of audit, of its attacks, of PyTorch; ARS of both."""
    name, size, channels, classes, samples, queries = case
    where = module(HERE / "bench_step.py").device(provider)
    kind, _, fast = provider.partition("+")
    ep = ["--ep", kind, *(["--fast-math"] if fast else [])]
    images = folder / f"images{size}-{classes}x{samples}"
    if not images.is_dir():
        # Under another name until all are there.
        draft = images.with_suffix(".part")
        shutil.rmtree(draft, ignore_errors=True)
        words = ["--out", draft, "--size", size, "--channels", channels, "--classes", classes, "--samples", samples]
        subprocess.run([audit, "images", *map(str, words)], check=True, stdout=subprocess.DEVNULL)
        draft.rename(images)
    bundled = HERE.parents[1] / "models" / name
    path = bundled if name.endswith(".onnx") else folder / f"{name}.onnx"
    if not path.is_file():
        module(HERE / "bench_step.py").export(folder, [name])
    model, file = network(name, path, where), folder / "suite.json"
    # The reference has no strong search.
    words = [path, "--suite", "ars", "--data", images, "-o", file, "--max-queries", queries, "--threads", threads, *ep]
    words += ["--strong-sample", "off"]
    words += ["-q", "--allow-untrusted", "--range", "0,1", "--resize-shorter", size]
    alone = kind == "cpu" and threads == 1
    clock, of_children = (time.process_time, cpu_of_children) if alone else (time.perf_counter, time.perf_counter)
    ours, theirs = (float("inf"), 0), float("inf")
    for _ in range(rounds):
        seconds, report = audited(audit, words, file, of_children)
        if not report["timing"].get("check_kept"):
            # The first audit of a model on this machine checks its gradient, and later ones know the result.
            seconds, report = audited(audit, words, file, of_children)
        ours = min(ours, (seconds, report["timing"]["attacks_s"]))
        with home(where):
            seconds, score = peer(model, report, images, reference, where, clock)
        theirs = min(theirs, seconds)
    return classes * samples, queries, report["timing"]["image_steps"], *ours, theirs, report["scores"]["ars"]["value"], score


def main():
    parser = argparse.ArgumentParser()
    for word in ("audit", "folder", "threads", "rounds", "provider"):
        parser.add_argument(word, type=int if word in ("threads", "rounds") else str)
    parser.add_argument("reference", nargs="?")
    parser.add_argument("--model")
    flags = parser.parse_args()
    folder = Path(flags.folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(flags.threads)
    cases = [case for case in CASES[flags.provider.partition("+")[0]] if flags.model in (None, case[0])]
    if not cases:
        parser.error(f"there is no model {flags.model}")
    if not flags.model:
        print("| model | images | queries | image steps | ours | of that attacks | PyTorch | ours / PyTorch | ARS, ours | PyTorch's |")
        print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    apart = []
    for case in cases:
        numbers = turns(flags.audit, folder, flags.threads, flags.rounds, flags.provider, flags.reference, case)
        images, queries, steps, ours, attacks, theirs, *scores = numbers
        # Two float32 implementations agree to 0.2 on 200 queries; on fewer, one trial weighs more.
        if not abs(scores[0] - scores[1]) <= 0.2 * max(200 / queries, 1):
            apart.append(f"{case[0]}: expected the same scores, found {scores[0]} and {scores[1]}")
        if flags.model:
            print(*numbers)
            continue
        print(
            f"| {case[0]} | {images} | {queries} | {steps} | {ours:.1f} s | {attacks:.1f} s | {theirs:.1f} s "
            f"| {ours / theirs:.3f} | {scores[0]:.2f} | {scores[1]:.2f} |",
            flush=True,
        )
    if apart:
        sys.exit("\n".join(apart))


if __name__ == "__main__":
    main()
