"""Models in memory, written as files that the program reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


@contextmanager
def as_file(model: Any, example: Any = None) -> Iterator[str]:
    """The path of the model's file, which lives as long as the context.

    ``model`` is a path, an ``onnx.ModelProto``, or a ``torch.nn.Module`` with ``example``, an input of it [B, C, H, W].
    """
    if isinstance(model, (str, os.PathLike)):
        if example is not None:
            raise TypeError("example is an input for a torch.nn.Module, and this model is a file")
        yield os.fspath(model)
        return
    with TemporaryDirectory(prefix="onnx-audit-") as folder:
        torch, onnx = sys.modules.get("torch"), sys.modules.get("onnx")
        if onnx is not None and isinstance(model, onnx.ModelProto):
            file = Path(folder) / f"{model.graph.name or 'model'}.onnx"
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
    """Writes a ``torch.nn.Module`` as an ONNX file of opset 18 that takes any batch, in inference mode.

    ``example`` is an input, a tensor [B, C, H, W]; only its shape and type count. The module is left as it was. Needs the
    packages onnx and onnxscript, with which PyTorch writes ONNX.
    """
    import torch

    if not isinstance(example, torch.Tensor):
        raise TypeError(
            f"a torch.nn.Module is exported with an example input: expected example=tensor [B, C, H, W], found "
            f"{type(example).__name__}"
        )
    # PyTorch takes a batch of 1 for a constant.
    example = torch.zeros_like(example[:1]).expand(2, *example.shape[1:]).contiguous()
    # Modules within may be in another mode than the whole.
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
