#!/usr/bin/env python3
"""Writes tests/golden/quantise.json: values and gradients of PyTorch's fake quantisation.

    pip install torch==2.11.0 numpy
    python research/golden/golden_quantise.py

Cases: one scale for the tensor and one per channel (axis 1 of [2, 3, 4]), signed and unsigned, with values
inside, outside, and within half a step of the ends of the range. Autograd passes the cotangent through for
values that are not clipped. The gradient of the scale is that of PyTorch's quantisation with a learned scale.
"""

import json
from pathlib import Path

import numpy as np
import torch

SHAPE = (2, 3, 4)
CASES = {
    "tensor_i8": ([0.1], [3], -128, 127),
    "tensor_u8": ([0.05], [128], 0, 255),
    "channel_i8": ([0.1, 0.02, 0.5], [0, 0, 0], -128, 127),
    "channel_u8": ([0.1, 0.03, 0.4], [128, 7, 255], 0, 255),
}


def case(rng, scale, zero, low, high):
    s = np.array(scale, np.float64).reshape(1, -1, 1)
    z = np.array(zero, np.float64).reshape(1, -1, 1)
    q = rng.uniform(low - 60, high + 60, SHAPE)
    # Near both ends, on either side of the half step that still rounds into the range, but not on it.
    q[0, :, 0], q[0, :, 1], q[1, :, 0], q[1, :, 1] = low - 0.4, low - 0.6, high + 0.4, high + 0.6
    x = torch.tensor(((q - z) * s).astype(np.float32), requires_grad=True)
    ct = torch.tensor(rng.normal(size=SHAPE).astype(np.float32))
    if len(scale) == 1:
        y = torch.fake_quantize_per_tensor_affine(x, scale[0], zero[0], low, high)
    else:
        scales, zeros = torch.tensor(scale), torch.tensor(zero, dtype=torch.int32)
        y = torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, low, high)
    y.backward(ct)
    scales, zeros = torch.tensor(scale, requires_grad=True), torch.tensor(zero, dtype=torch.float32)
    if len(scale) == 1:
        learned = torch._fake_quantize_learnable_per_tensor_affine(x.detach(), scales, zeros, low, high, 1.0)
    else:
        learned = torch._fake_quantize_learnable_per_channel_affine(x.detach(), scales, zeros, 1, low, high, 1.0)
    learned.backward(ct)
    flat = lambda t: t.detach().numpy().ravel().tolist()
    made = dict(x=flat(x), cotangent=flat(ct), y=flat(y), gradient=flat(x.grad), scale_gradient=flat(scales.grad))
    return dict(scale=scale, zero=zero, low=low, **made)


def main():
    rng = np.random.default_rng(11)
    out = dict(shape=SHAPE, cases={name: case(rng, *c) for name, c in CASES.items()})
    path = Path(__file__).resolve().parents[2] / "tests/golden/quantise.json"
    path.write_text(json.dumps(out, indent=1) + "\n")


main()
