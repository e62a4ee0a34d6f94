#!/usr/bin/env python3
"""The PyTorch half of `cargo xtask bench step`.

    bench_step.py export DIR NAME ...                  NAME.onnx with random weights, by the legacy exporter
    bench_step.py time NAME BATCH THREADS SECONDS      prints: forward step step-channels-last (seconds, the best of several)

A step is the forward pass and the gradient for the images alone: parameters need none, as in well-written attack code.
"""

import sys
import time
import warnings
from pathlib import Path

import torch

warnings.filterwarnings("ignore")


def model(name):
    torch.manual_seed(0)
    kind, _, rest = name.partition(".")
    if kind == "tv":
        import torchvision

        net = getattr(torchvision.models, rest)(weights=None)
    else:
        import timm

        net = timm.create_model(rest, pretrained=False)
    return net.eval().requires_grad_(False)


def best(f, seconds):
    start, least, rounds = time.perf_counter(), float("inf"), 0
    while rounds < 4 or time.perf_counter() - start < seconds:
        clock = time.perf_counter()
        f()
        least, rounds = min(least, time.perf_counter() - clock), rounds + 1
    return least


def measure(name, batch, threads, seconds):
    torch.set_num_threads(threads)
    net, x = model(name), torch.rand(batch, 3, 224, 224)

    def forward():
        with torch.no_grad():
            net(x)

    def step(net, x):
        def run():
            images = x.detach().requires_grad_()
            e = net(images)
            torch.autograd.grad(e, images, e.detach())

        return run

    times = [best(forward, seconds), best(step(net, x), seconds)]
    last = torch.channels_last
    times.append(best(step(net.to(memory_format=last), x.to(memory_format=last)), seconds))
    print(*times)


def export(directory, names):
    for name in names:
        path = Path(directory) / f"{name}.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        torch.onnx.export(
            model(name),
            torch.rand(2, 3, 224, 224),
            str(part),
            opset_version=17,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}},
            dynamo=False,
        )
        part.rename(path)


if __name__ == "__main__":
    if sys.argv[1] == "export":
        export(sys.argv[2], sys.argv[3:])
    else:
        measure(sys.argv[2], *(int(n) for n in sys.argv[3:]))
