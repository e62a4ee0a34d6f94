"""Converts weights of torchvision (.pth) to .safetensors, for `audit-train --pretrained`.

    python tools/pretrained.py resnet18-f37072fd.pth resnet18.safetensors

timm's .safetensors files need no conversion.
"""

import json
import struct
import sys

import torch

source, target = sys.argv[1:]
state = torch.load(source, map_location="cpu", weights_only=True)
tensors = {name: value.float().contiguous() for name, value in state.items() if value.is_floating_point()}
header, offset = {}, 0
for name, value in tensors.items():
    header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [offset, offset := offset + value.nbytes]}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(target, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for value in tensors.values():
        file.write(value.numpy().tobytes())
