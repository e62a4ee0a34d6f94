#!/usr/bin/env python3
"""Trains a small ResNet for photographs of 224 pixels against FGSM, for file_peer.py, and writes it as ONNX
with its card.

    audit images --out IMAGES --seed 1000 --size 300 --channels 3 --classes 120 --samples 12
    resnet224.py IMAGES MODEL.onnx [STEPS [EPS]]

The net: a convolution of stride 4, three residual blocks with batch norm (folded into the convolutions of the
file), the mean over positions, a matrix to 64 values. The loss is the cross-entropy of cosines with one
vector for each class, on images that FGSM changed by at most EPS grey levels from a random start. One thread;
800 steps and 1 grey level by default. The card is MODEL.yaml.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper
from PIL import Image
from torch import nn

SIDE, SCALE, BATCH = 224, 16, 32


def convolution(inputs, outputs, size, stride):
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first, self.second = convolution(inputs, outputs, 3, stride), convolution(outputs, outputs, 3, 1)
        self.short = convolution(inputs, outputs, 1, stride) if stride > 1 else None

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + (self.short(x) if self.short else x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = convolution(3, 12, 7, 4)
        shapes = [(12, 24, 2), (24, 48, 2), (48, 96, 2)]
        self.blocks = nn.Sequential(*[Block(*shape) for shape in shapes])
        self.head = nn.Linear(96, 64)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.stem(x))).mean((2, 3)))


def write(net, path):
    """Writes the net in opset 17. Batch norm is folded into the convolution before it."""
    nodes, weights = [], []

    def node(kind, inputs, arrays=(), **attributes):
        inputs = list(inputs)
        for array in arrays:
            inputs.append(f"w{len(weights)}")
            weights.append(numpy_helper.from_array(array.detach().numpy(), inputs[-1]))
        nodes.append(helper.make_node(kind, inputs, [f"v{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def conv(pair, x):
        c, norm = pair
        factor = norm.weight / (norm.running_var + norm.eps).sqrt()
        arrays = [c.weight * factor[:, None, None, None], norm.bias - norm.running_mean * factor]
        return node("Conv", [x], arrays, strides=list(c.stride), pads=list(c.padding) * 2, kernel_shape=list(c.kernel_size))

    x = node("Relu", [conv(net.stem, "image")])
    for block in net.blocks:
        y = conv(block.second, node("Relu", [conv(block.first, x)]))
        x = node("Relu", [node("Add", [y, conv(block.short, x) if block.short else x])])
    x = node("Flatten", [node("ReduceMean", [x], axes=[2, 3])])
    node("Gemm", [x], [net.head.weight, net.head.bias], transB=1)
    nodes[-1].output[0] = "embedding"
    floats = onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info("image", floats, ["batch", 3, SIDE, SIDE])], [
        helper.make_tensor_value_info("embedding", floats, ["batch", 64])
    ]
    graph = helper.make_graph(nodes, "resnet224", *ends, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    path.with_suffix(".yaml").write_text(
        f"channels: rgb\nrange: [0, 1]\nmean: [0, 0, 0]\nstd: [1, 1, 1]\nresize: [{SIDE}, {SIDE}]\nmetric: normalized-euclidean\n"
    )


def main(folder, model, steps="800", eps="1"):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    files = sorted(Path(folder).glob("*/*.png"))
    classes = sorted({file.parent.name for file in files})
    images = torch.from_numpy(np.stack([np.asarray(Image.open(f).convert("RGB").resize((SIDE, SIDE), Image.BILINEAR)) for f in files]))
    images, labels = images.permute(0, 3, 1, 2), torch.tensor([classes.index(file.parent.name) for file in files])
    net, centres = Net(), nn.Parameter(torch.randn(len(classes), 64))
    optimizer = torch.optim.Adam([*net.parameters(), centres], lr=2e-3)
    steps, most = int(steps), float(eps) / 255

    def logits(x):
        return SCALE * F.normalize(net(x)) @ F.normalize(centres).t()

    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 2e-3 * (1 - step / steps)
        size = most * min(1, 4 * step / steps)
        chosen = torch.randint(len(files), (BATCH,))
        clean, y = images[chosen].float() / 255, labels[chosen]
        x = (clean + torch.empty_like(clean).uniform_(-size, size)).requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(logits(x), y), x)
        x = x.detach() + 1.25 * size * gradient.sign()
        x = torch.max(torch.min(x, clean + size), clean - size).clamp(0, 1)
        found = logits(x)
        loss = F.cross_entropy(found, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            share = (found.argmax(1) == y).float().mean().item()
            print(f"step {step} of {steps}: loss {loss.item():.3f}, correct under FGSM {share:.2f}", flush=True)
    write(net.eval(), Path(model))
    with torch.no_grad():
        print(f"correct without an attack {(logits(images[:256].float() / 255).argmax(1) == labels[:256]).float().mean():.2f}")


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
