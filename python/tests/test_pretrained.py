"""tools/pretrained.py, which the trainer recommends for weights of PyTorch."""

import json
import struct
import subprocess
import sys

import pytest
from conftest import ROOT

torch = pytest.importorskip("torch")


def test_weights_are_the_same_in_the_other_form(tmp_path):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 2).half())
    source, target = tmp_path / "net.pth", tmp_path / "net.safetensors"
    torch.save(net.state_dict(), source)
    subprocess.run([sys.executable, ROOT / "tools" / "pretrained.py", source, target], check=True)
    content = target.read_bytes()
    [length] = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    header = json.loads(content[8 : 8 + length])
    # Counters of batches are not weights.
    assert set(header) == {name for name in net.state_dict() if not name.endswith("num_batches_tracked")}
    for name, entry in header.items():
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        value = torch.frombuffer(bytearray(content[start:end]), dtype=torch.float32).reshape(entry["shape"])
        torch.testing.assert_close(value, net.state_dict()[name].float())
