#!/usr/bin/env python3
"""Gradients of ONNX files by onnx2pytorch and autograd, for `cargo xtask parity`: `second_oracle.py DIR NAME
...`.

onnx2pytorch converts DIR/NAME.onnx to a PyTorch net; the source of the net is not needed. Writes
DIR/NAME.onnx2pytorch.npz with

    x     float32, the image: that of DIR/NAME.npz, or a random one
    gy    float32, the cotangent of the output: likewise
    y     float64, ONNX Runtime's output of the unchanged file
    gx    float64, d sum(output * gy) / d x, computed in float64; in float32 if the net doesn't work in float64
    gx32  float64, the same gradient computed in float32

If the file does not convert, gx and gx32 are missing, and DIR/NAME.onnx2pytorch.txt has the reason. A net
also counts as not converted if its outputs differ from ONNX Runtime's, or if its gradient differs from finite
differences of its own outputs in float64.
"""

import os
import sys
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import onnx

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime
import torch
from onnx import TensorProto
from onnx2pytorch import ConvertModel

warnings.filterwarnings("ignore")

# Batch and image side of files with free axes.
BATCH, SIDE = 2, 224
DEFAULTS = {"training_mode": 0, "allowzero": 0, "saturate": 1}
# Largest accepted difference of outputs, relative to the largest value: for files in float32, and for others.
SAME, SAME_NARROW = 1e-3, 2e-2
# Steps of the finite differences in float64, and the largest accepted relative error of the gradient against them.
STEPS, OWN = (1e-3, 1e-5), 1e-2


def shape_of(session):
    """Returns the shape of the file's only input, with values for free axes."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1:
        raise ValueError(f"expected one input and one output, found {len(inputs)} and {len(outputs)}")
    dims = inputs[0].shape
    if len(dims) != 4:
        raise ValueError(f"expected an input of four axes, found {dims}")
    known = [d if isinstance(d, int) and d > 0 else None for d in dims]
    open_side = [BATCH, 3 if known[1] is None and known[3] is None else SIDE, SIDE, SIDE]
    return [d or usual for d, usual in zip(known, open_side)]


def images(shape, name):
    """Returns smooth random images in [0, 1], with some noise to avoid ties in max-pools."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    last = shape[3] <= 4 < shape[1]
    batch, channels, height, width = (shape[0], shape[3], shape[1], shape[2]) if last else shape
    coarse = torch.from_numpy(random.random((batch, channels, 7, 7), dtype=np.float32))
    fine = torch.nn.functional.interpolate(coarse, size=(height, width), mode="bicubic", align_corners=False).numpy()
    x = np.clip(fine + 0.02 * random.standard_normal(fine.shape), 0, 1).astype(np.float32)
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x


def point(folder, name, session):
    """Returns the arrays x, gy and y."""
    given = folder / f"{name}.npz"
    arrays = dict(np.load(given)) if given.is_file() else {}
    x = arrays["x"] if arrays else images(shape_of(session), name)
    entry = session.get_inputs()[0]
    kinds = {"tensor(float16)": np.float16, "tensor(double)": np.float64}
    y = session.run(None, {entry.name: x.astype(kinds.get(entry.type, np.float32))})[0].astype(np.float64)
    if y.size != y.shape[0] * y.shape[1]:
        raise ValueError(f"expected an output of two axes, found {list(y.shape)}")
    drawn = np.random.default_rng(zlib.crc32(b"cotangent")).standard_normal((y.shape[0], y.shape[1]))
    return {"x": x, "gy": arrays["gy"] if arrays else drawn.astype(np.float32), "y": y.reshape(y.shape[:2])}


def loaded(path):
    """Loads the file without attributes that onnx2pytorch rejects although they only state a default."""
    model = onnx.load(path)
    for node in model.graph.node:
        stated = [a for a in node.attribute if a.name in DEFAULTS and a.i == DEFAULTS[a.name]]
        for attribute in stated:
            node.attribute.remove(attribute)
    return model


def gradient(model, at, dtype):
    """Returns output and gradient of the converted net, and the net."""
    net = ConvertModel(model, experimental=True).eval().to(dtype).requires_grad_(False)
    x = torch.from_numpy(at["x"]).to(dtype).requires_grad_()
    y = net(x)
    gy = torch.from_numpy(at["gy"]).to(dtype)
    gx = torch.autograd.grad((y * gy.reshape(y.shape)).sum(), x)[0]
    return y.detach().double().numpy(), gx.double().numpy(), net


def relative_error(net, at, gx):
    """Returns the relative error of a gradient against finite differences in float64.

    Checks two directions: the gradient itself, and the gradient plus noise of the same length.
    """
    x, gy = torch.from_numpy(at["x"]).double(), torch.from_numpy(at["gy"]).double()
    own = torch.from_numpy(gx)
    own = own / own.norm()
    noise = torch.from_numpy(np.random.default_rng(1).standard_normal(at["x"].shape))
    worst = 0.0
    for v in (own, own + noise / noise.norm()):
        slopes = []
        for step in STEPS:
            with torch.no_grad():
                up, down = ((net(x + h * v) * gy.reshape(at["y"].shape)).sum() for h in (step, -step))
            slopes.append(float((up - down) / (2 * step)))
        expected = float((torch.from_numpy(gx) * v).sum())
        worst = max(worst, min(abs(slope - expected) / abs(expected) for slope in slopes))
    return worst


def converted(path, at):
    """Returns gx and gx32. Raises ``ValueError`` if outputs or gradient of the converted net are wrong."""
    model = loaded(path)
    narrow = any(t.data_type != TensorProto.FLOAT for t in model.graph.initializer if t.data_type not in (6, 7, 9))

    def check_outputs(y):
        difference = np.abs(y.reshape(at["y"].shape) - at["y"]).max() / np.abs(at["y"]).max()
        if not difference <= (SAME_NARROW if narrow else SAME):
            raise ValueError(f"its outputs differ from ONNX Runtime's by {difference:.1e} of the largest value")

    y, gx32, _ = gradient(model, at, torch.float32)
    check_outputs(y)
    try:
        y, gx, net = gradient(model, at, torch.float64)
        check_outputs(y)
    except Exception as error:
        # onnx2pytorch leaves some constants in float32, or loses them.
        print(f"  {path.stem}: in float32 only; in float64: {first_line(error)}", flush=True)
        return {"gx": gx32, "gx32": gx32}
    error = relative_error(net, at, gx)
    if not error <= OWN:
        raise ValueError(f"the gradient of its net is off by {error:.1e} from finite differences of that net")
    return {"gx": gx, "gx32": gx32}


def first_line(error):
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160] if lines else ''}"


def main():
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    for name in names:
        path = folder / f"{name}.onnx"
        arrays, why = (folder / f"{name}.onnx2pytorch.{kind}" for kind in ("npz", "txt"))
        sources = [s for s in (path, folder / f"{name}.npz", Path(__file__)) if s.is_file()]
        if arrays.is_file() and arrays.stat().st_mtime > max(s.stat().st_mtime for s in sources):
            continue
        for old in (arrays, why):
            old.unlink(missing_ok=True)
        start, results, reason = time.monotonic(), {}, None
        try:
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.log_severity_level = 3
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            results = point(folder, name, session)
            results |= converted(path, results)
        except Exception as error:
            reason = first_line(error)
            why.write_text(reason + "\n")
        # Under another name until all of it is there.
        part = arrays.with_suffix(".part.npz")
        np.savez(part, **results)
        part.replace(arrays)
        outcome = "converts" if reason is None else f"does not convert: {reason}"
        print(f"  {name}: {outcome} ({time.monotonic() - start:.0f} s)", flush=True)


main()
