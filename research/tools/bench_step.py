#!/usr/bin/env python3
"""The PyTorch half of `cargo research bench step`.

    bench_step.py export DIR NAME ...                  NAME.onnx with random weights, by the legacy exporter
    bench_step.py time NAME BATCH THREADS SECONDS [PROVIDER]
                                                       prints: forward step step-channels-last (seconds, the best of several)

NAME and PROVIDER can be lists with commas; each combination prints a line. Seconds are CPU time with one
thread on the CPU, which other work on the machine hardly affects, and wall time otherwise. PROVIDER is cpu,
cuda or cuda+fast-math, which allows TensorFloat-32. A step is the forward pass and the gradient with respect
to the images only, as in efficient attack code.
"""

import sys
import time
import warnings
from pathlib import Path

import torch

warnings.filterwarnings("ignore")


def device(provider):
    """Returns PyTorch's device for a provider, set up as in `audit --ep`. cuDNN selects its fastest convolutions."""
    kind, _, fast = provider.partition("+")
    if kind not in ("cpu", "cuda") or fast not in ("", "fast-math"):
        sys.exit(f"expected cpu, cuda or cuda+fast-math, found {provider}")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = bool(fast)
    torch.backends.cudnn.benchmark = True
    return torch.device(kind)


def finished(where):
    """Waits until the GPU has finished its queue."""
    if where.type == "cuda":
        torch.cuda.synchronize()


def model(name):
    torch.manual_seed(0)
    kind, _, rest = name.partition(".")
    if kind == "tv":
        import torchvision

        if not torchvision.models.list_models(module=torchvision.models, include=rest):
            sys.exit(f"{name}: torchvision has no model `{rest}`; python -c 'import torchvision; print(torchvision.models.list_models())' lists them")
        net = torchvision.models.get_model(rest, weights=None)
    else:
        import timm

        if not timm.is_model(rest):
            sys.exit(f"{name}: timm has no model `{rest}`; python -c 'import timm; print(timm.list_models())' lists them")
        net = timm.create_model(rest, pretrained=False)
    return net.eval().requires_grad_(False)


def best(f, seconds, where):
    clock = time.process_time if where.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    start, least, rounds = time.perf_counter(), float("inf"), 0
    while rounds < 4 or time.perf_counter() - start < seconds:
        before = clock()
        f()
        finished(where)
        least, rounds = min(least, clock() - before), rounds + 1
    return least


def measure(name, batch, threads, seconds, provider):
    torch.set_num_threads(threads)
    where = device(provider)
    net, x = model(name).to(where), torch.rand(batch, 3, 224, 224).to(where)

    def forward():
        with torch.no_grad():
            net(x)

    def step(net, x):
        def run():
            images = x.detach().requires_grad_()
            e = net(images)
            torch.autograd.grad(e, images, e.detach())

        return run

    times = [best(forward, seconds, where), best(step(net, x), seconds, where)]
    last = torch.channels_last
    times.append(best(step(net.to(memory_format=last), x.to(memory_format=last)), seconds, where))
    print(*times, flush=True)


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
        providers = sys.argv[6].split(",") if len(sys.argv) > 6 else ["cpu"]
        for name in sys.argv[2].split(","):
            for provider in providers:
                measure(name, int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), provider)
