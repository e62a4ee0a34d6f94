"""Writes models in memory to ONNX files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


@contextmanager
def as_file(model: Any, example: Any = None) -> Iterator[str]:
    """Context manager that returns the path of the model's file. A temporary file is deleted at its end.

    ``model`` is a path, an ``onnx.ModelProto``, or a ``torch.nn.Module``; a module also needs ``example``, an
    input [B, C, H, W]. Raises ``TypeError`` for anything else.
    """
    if isinstance(model, (str, os.PathLike)):
        if example is not None:
            raise TypeError("example is only for a torch.nn.Module, and this model is a file. Leave example out")
        yield os.fspath(model)
        return
    with TemporaryDirectory(prefix="onnx-audit-") as folder:
        torch, onnx = sys.modules.get("torch"), sys.modules.get("onnx")
        if onnx is not None and isinstance(model, onnx.ModelProto):
            # The name may be a path, and a file name holds 255 bytes: 60 letters of 4 bytes fit.
            name = re.sub(r"[^\w.-]+", "_", model.graph.name)[:60].strip(".") or "model"
            file = Path(folder) / f"{name}.onnx"
            # A protobuf message can't be larger than 2 GB.
            onnx.save(model, file, save_as_external_data=model.ByteSize() >= 2**31)
        elif torch is not None and isinstance(model, torch.nn.Module):
            file = Path(folder) / f"{type(model).__name__}.onnx"
            export(model, example, file)
        else:
            raise TypeError(
                f"expected a path, an onnx.ModelProto or a torch.nn.Module as model, found {type(model).__name__}"
            )
        yield str(file)


def export(model: Any, example: Any, file: str | os.PathLike[str]) -> None:
    """Exports a ``torch.nn.Module`` in inference mode to an ONNX file of opset 18 with a free batch size.

    ``example`` is an input, a tensor [B, C, H, W], of which only shape and type matter. The module is not
    changed. Raises ``TypeError`` if ``example`` is not a tensor. Needs the packages onnx and onnxscript.
    """
    import torch

    if not isinstance(example, torch.Tensor):
        raise TypeError(
            f"the export of a torch.nn.Module needs an example input: expected example=tensor [B, C, H, W], found "
            f"{type(example).__name__}"
        )
    # PyTorch exports a batch of 1 as a constant.
    example = torch.zeros_like(example[:1]).expand(2, *example.shape[1:]).contiguous()
    # A submodule may be in another mode than the module.
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            torch.onnx.export(
                model,
                (example,),
                os.fspath(file),
                dynamo=True,
                opset_version=18,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                # A protobuf message can't be larger than 2 GB; smaller models are one file.
                external_data=sum(value.nbytes for value in model.state_dict().values()) >= 2**31,
                verbose=False,
            )
    finally:
        for module, training in modes:
            module.training = training
