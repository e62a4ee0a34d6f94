"""Writes models in memory to ONNX files."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from .errors import UsageError

#: Files beside a model that say how images are prepared; crates/audit-model/src/exported/mod.rs reads them.
PREPROCESSING = ("processor_config.json", "preprocessor_config.json", "open_clip_config.json", "config.json")


def card_names(model: str) -> tuple[str, ...]:
    """Returns the names of the files beside the model file ``model`` from which ``audit`` takes preprocessing
    and metric, if they exist: its card first.
    """
    return (Path(model).with_suffix(".yaml").name, *PREPROCESSING)


def weight_files(model: bytes) -> list[str]:
    """Returns the paths, relative to the model's folder, of the files that have weights of a model. ``model``
    are the bytes of its .onnx file.

    Paths that lead out of the folder are left out: ``audit`` refuses them.
    """
    found = set()
    # An entry of external data in protobuf: the key (field 1), and the path (field 2) after its length.
    for entry in re.finditer(rb"\n\x08location\x12([\x80-\xff]{0,2}[\x00-\x7f])", model):
        length = sum((byte & 127) << 7 * i for i, byte in enumerate(entry[1]))
        path = PurePosixPath(model[entry.end() : entry.end() + length].decode("utf-8", "replace"))
        if path.parts and ".." not in path.parts and not path.is_absolute():
            found.add(str(path))
    return sorted(found)


def fingerprint(model: str | os.PathLike[str]) -> str:
    """Returns a SHA-256 of a model: its file, its weights in other files, and the files that say how images are
    prepared.

    Of a folder, all .onnx files in it count. Raises ``UsageError`` if there is none, and ``OSError`` if a
    file can't be read.
    """
    path = Path(model)
    files = [path] if path.is_file() else sorted(path.glob("*.onnx")) + sorted(path.glob("onnx/*.onnx"))
    if not files:
        raise UsageError(f"{path}: expected an .onnx file, or a folder with one, found none")
    whole = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        folder = file.parent
        cards = [folder / name for name in card_names(file.name)]
        if folder.name == "onnx":
            cards += [folder.parent / name for name in PREPROCESSING]
        for each in [*cards, *(folder / name for name in weight_files(content))]:
            if each.is_file():
                whole.update(f"{each.name}\0".encode() + _sha256(each))
        whole.update(hashlib.sha256(content).digest())
    return whole.hexdigest()


def _sha256(file: Path) -> bytes:
    whole = hashlib.sha256()
    with open(file, "rb") as content:
        while block := content.read(1 << 20):
            whole.update(block)
    return whole.digest()


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
            save(model, file)
        elif torch is not None and isinstance(model, torch.nn.Module):
            file = Path(folder) / f"{type(model).__name__}.onnx"
            export(model, example, file)
        else:
            raise TypeError(
                f"expected a path, an onnx.ModelProto or a torch.nn.Module as model, found {type(model).__name__}"
            )
        yield str(file)


#: Largest size of the weights in bytes with which a model is one file: a protobuf message can't be larger
#: than 2 GB, and the rest of the model is in it too.
_ONE_FILE = 2**31 - 2**27


def save(model: Any, file: Path) -> None:
    """Writes an ``onnx.ModelProto``, which is not changed. Weights that are too large for one file go to a
    second one beside it, ``.onnx.data``.

    ``onnx.save`` would take the weights out of the caller's model, and can't tell the size of a large one.
    """
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) <= _ONE_FILE:
        file.write_bytes(model.SerializeToString())
        return
    small = _copy(model, without="graph")
    small.graph.CopyFrom(_copy(model.graph, without="initializer"))
    beside = file.with_name(f"{file.name}.data")
    with open(beside, "wb") as weights:
        for tensor in model.graph.initializer:
            raw = tensor.raw_data
            # Shapes and other small constants stay in the model: shape inference reads them there.
            if len(raw) < 1024:
                small.graph.initializer.append(tensor)
                continue
            # Pages of memory, so that the file can be mapped.
            weights.write(bytes(-weights.tell() % 4096))
            place = {"location": beside.name, "offset": weights.tell(), "length": len(raw)}
            weights.write(raw)
            external = small.graph.initializer.add(name=tensor.name, dims=tensor.dims)
            external.data_type, external.data_location = tensor.data_type, tensor.EXTERNAL
            for key, value in place.items():
                external.external_data.add(key=key, value=str(value))
    file.write_bytes(small.SerializeToString())


def _copy(message: Any, without: str) -> Any:
    """Returns a copy of a protobuf message without one of its fields."""
    copy = type(message)()
    for field, value in message.ListFields():
        if field.name == without:
            continue
        if hasattr(value, "extend"):
            getattr(copy, field.name).extend(value)
        elif hasattr(value, "CopyFrom"):
            getattr(copy, field.name).CopyFrom(value)
        else:
            setattr(copy, field.name, value)
    return copy


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
