"""Exports checkpoints of robrank and CA-TRIDE to ONNX files with a model card.

    python -m onnx_audit.robrank logs_cub-rres18ghmetsm-ptripletN/…/epoch=74.ckpt -o model.onnx
    audit --suite ars model.onnx --data CUB_200_2011

Needs PyTorch 2.6 or newer, onnx and onnxscript; neither torchvision nor pytorch-lightning.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import torch

from .errors import AuditError, ModelError, UsageError
from .model import export
from .robrank_nets import NETS, Net, State

#: Distances by the last letter of the loss in robrank's folder names.
METRICS = {"N": "normalized-euclidean", "E": "euclidean", "C": "cosine"}


class _Inert:
    """Replaces every class of a checkpoint that is not PyTorch's, such as a callback of Lightning."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass


def _read(file: Path) -> Any:
    """Reads a checkpoint without running code from it: classes other than PyTorch's become :class:`_Inert`."""
    if not file.is_file():
        raise UsageError(
            f"{file}: no such file. Give the .ckpt file, which robrank saves in lightning_logs/version_*/checkpoints"
        )
    try:
        unknown = torch.serialization.get_unsafe_globals_in_checkpoint(file)
        inert: list[Any] = [(type(name, (_Inert,), {}), name) for name in unknown]
        with torch.serialization.safe_globals(inert):
            return torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, TypeError, AttributeError) as failure:
        lines = str(failure).strip().splitlines()
        # PyTorch's own message advises flags of torch.load.
        objects = lines[:1] and lines[0].startswith("Weights only load failed")
        if objects:
            reason = "it contains objects other than tensors, such as settings of Lightning"
        else:
            reason = (lines or [type(failure).__name__])[0]
        raise ModelError(
            f"{file}: not a checkpoint that can be read without running its code: {reason}. "
            "If you trust its source, save only its weights and give that file: "
            f"torch.save(torch.load({os.fspath(file)!r}, weights_only=False)['state_dict'], 'weights.pt')"
        ) from failure


def _state(file: Path, content: Any) -> State:
    """Returns the weights of the backbone, without the prefixes of Lightning and torch.compile."""
    state = content.get("state_dict", content) if isinstance(content, dict) else {}
    tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        found = ", ".join(map(str, list(content)[:8])) if isinstance(content, dict) else type(content).__name__
        raise ModelError(
            f"{file}: expected a state dict, or a checkpoint of Lightning with one; found {found or 'nothing'}. "
            "Give the .ckpt file of the training, or save the weights of the net with torch.save(net.state_dict(), 'weights.pt')"
        )
    # A margin loss has weights too.
    backbone = {key: value for key, value in tensors.items() if not key.startswith("lossfunc.")}
    if all(key.startswith("backbone.") for key in backbone):
        backbone = {key.removeprefix("backbone."): value for key, value in backbone.items()}
    # torch.compile adds this prefix to every name.
    return {key.removeprefix("_orig_mod."): value.float() for key, value in backbone.items()}


def load(checkpoint: str | os.PathLike[str]) -> tuple[torch.nn.Module, Net]:
    """Returns the net of a checkpoint in inference mode, and its kind. The net maps preprocessed images to
    embeddings.

    ``checkpoint`` is a .ckpt file of Lightning, or a state dict that ``torch.save`` wrote. Raises
    ``UsageError`` if there is no such file, ``ModelError`` if it has no weights of a retrieval net of robrank
    or CA-TRIDE.
    """
    file = Path(checkpoint)
    state = _state(file, _read(file))
    kind = next((net for net in NETS if all(mark in state for mark in net.marks)), None)
    if kind is None:
        keys = list(state)
        more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
        raise ModelError(
            f"{file}: expected the weights of {', '.join(net.name for net in NETS)}; found {', '.join(keys[:6])}{more}. "
            "Load other nets with their own code, and export them with onnx_audit.model.export(net, example, 'model.onnx')"
        )
    state = {key: value for key, value in state.items() if not key.startswith(kind.unused)}
    try:
        net = kind.build(state)
        net.load_state_dict(state)
    except KeyError as missing:
        raise ModelError(f"{file}: the weights look like those of {kind.name}, but {missing} is missing") from missing
    except (RuntimeError, ValueError, StopIteration) as mismatch:
        text = " ".join(str(mismatch).split())
        raise ModelError(f"{file}: the weights look like those of {kind.name}, but don't fit: {text[:300]}") from mismatch
    with torch.no_grad():
        dimensions = net.eval()(torch.zeros(1, *kind.preprocessing.shape)).shape[1]
    # robrank's classifiers of CIFAR are ResNets with the same names of weights.
    if dimensions in (10, 100):
        raise ModelError(
            f"{file}: {kind.name} with {dimensions} outputs is a classifier (cres18, cres50); expected a retrieval net. "
            "Give the checkpoint of a configuration whose name begins with r or h"
        )
    return net, kind


def write(checkpoint: str | os.PathLike[str], out: str | os.PathLike[str], metric: str | None = None) -> str:
    """Exports the net of a checkpoint to ``out`` (.onnx), with a model card beside it (.yaml). Returns a
    summary.

    ``metric`` is the distance between embeddings: ``normalized-euclidean``, ``euclidean`` or ``cosine``. By
    default, the loss in the checkpoint's folder ``logs_DATA-NET-LOSS`` determines it; without such a folder
    it is ``normalized-euclidean``, as in the published tables. Raises as ``load``, and ``UsageError`` if
    ``out`` doesn't end in .onnx.
    """
    checkpoint, out = Path(checkpoint), Path(out)
    if out.suffix != ".onnx":
        raise UsageError(f"-o {out}: expected a name that ends in .onnx. The card is written beside it, as .yaml")
    net, kind = load(checkpoint)
    loss = re.search(r"logs_\w+-\w+-(\w*([CEN]))$", "\n".join(map(str, checkpoint.absolute().parts)), re.MULTILINE)
    reason = "as stated"
    if metric is None and loss is not None:
        metric, reason = METRICS[loss[2]], f"that of the loss {loss[1]}"
    elif metric is None:
        metric = METRICS["N"]
        reason = "that of the published tables; the path has no folder logs_DATA-NET-LOSS. --metric sets another"
    export(net, torch.zeros(1, *kind.preprocessing.shape), out)
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    source = f"{kind.name} of robrank, from {checkpoint.name} (SHA-256 {hashlib.sha256(checkpoint.read_bytes()).hexdigest()})"
    card = "# Written by python -m onnx_audit.robrank. audit reads it with the model.\n"
    # A JSON string is valid YAML.
    card += f"{kind.preprocessing.card}metric: {metric}\nsource: {json.dumps(source)}\nsha256: {digest}\n"
    out.with_suffix(".yaml").write_text(card, encoding="utf-8")
    channels, height, width = kind.preprocessing.shape
    return (
        f"{kind.name}, input {channels} × {height} × {width}\n"
        f"metric {metric}, {reason}\n"
        f"wrote {out} and {out.with_suffix('.yaml')}"
    )


def main(words: list[str] | None = None) -> int:
    """Runs the command line. Returns 0, 2 for a wrong path or flag, or 3 for a checkpoint that can't be exported."""
    parser = argparse.ArgumentParser(
        prog="python -m onnx_audit.robrank",
        description="Exports a checkpoint of robrank or CA-TRIDE to an ONNX file with a model card.",
    )
    parser.add_argument("checkpoint", help="a .ckpt file of Lightning, or a state dict")
    parser.add_argument("-o", "--out", required=True, metavar="MODEL.onnx", help="the file to write; the card is written beside it")
    parser.add_argument("--metric", choices=METRICS.values(), help="distance between embeddings [that of the loss in the "
                        "folder's name, logs_DATA-NET-LOSS]")
    known = parser.parse_args(words)
    try:
        print(write(known.checkpoint, known.out, known.metric))
    except AuditError as failure:
        print(f"onnx_audit.robrank: {failure}", file=sys.stderr)
        return failure.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
