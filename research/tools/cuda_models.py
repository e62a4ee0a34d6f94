#!/usr/bin/env python3
"""Writes models to time on another machine; their files compress well.

    cuda_models.py DIR NAME ...        NAME.onnx, named as in bench_step.py

Large weights repeat one block of normal numbers, scaled to the standard deviation of their tensor, so xz
compresses them. The model computes as before. The length of the block is a prime, so no two rows of a matrix
are equal.
"""

import sys
from pathlib import Path

import torch

import bench_step

BLOCK = 4093


def repetitive(net):
    torch.manual_seed(0)
    block = torch.randn(BLOCK)
    for weight in net.parameters():
        if weight.numel() > BLOCK:
            # A power of two: the mantissas stay those of the block.
            scale = 2.0 ** torch.round(torch.log2(weight.std()))
            times = -(-weight.numel() // BLOCK)
            weight.data = (block.repeat(times)[: weight.numel()] * scale).reshape(weight.shape).contiguous()
    return net


if __name__ == "__main__":
    directory, *names = sys.argv[1:]
    plain = bench_step.model
    bench_step.model = lambda name: repetitive(plain(name))
    bench_step.export(Path(directory), names)
