"""Checkpoints of robrank and CA-TRIDE as ONNX files with a model card.

    python -m onnx_audit.robrank logs_cub-rres18ghmetsm-ptripletN/…/epoch=74.ckpt -o model.onnx
    audit --suite ars model.onnx --data CUB_200_2011

Needs PyTorch 2.6 or newer, onnx and onnxscript, and neither torchvision nor pytorch-lightning.
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

#: The distances by the last letter of a loss.
METRICS = {"N": "normalized-euclidean", "E": "euclidean", "C": "cosine"}


class _Inert:
    """Takes the place of any class that a checkpoint names and that nobody here knows, such as a callback of Lightning."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass


def _read(file: Path) -> Any:
    """The content of a checkpoint. No code of it runs: classes other than PyTorch's become :class:`_Inert`."""
    if not file.is_file():
        raise UsageError(f"{file}: no such file. Give the .ckpt file, which robrank keeps in lightning_logs/version_*/checkpoints")
    try:
        unknown = torch.serialization.get_unsafe_globals_in_checkpoint(file)
        inert: list[Any] = [(type(name, (_Inert,), {}), name) for name in unknown]
        with torch.serialization.safe_globals(inert):
            return torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, TypeError, AttributeError) as failed:
        lines = str(failed).strip().splitlines()
        # What PyTorch says of objects begins with advice about its own flags.
        objects = lines[:1] and lines[0].startswith("Weights only load failed")
        reason = "it holds objects that are no tensors, such as settings of Lightning" if objects else (lines or [type(failed).__name__])[0]
        raise ModelError(
            f"{file}: not a checkpoint that can be read without running its code: {reason}. "
            "Where it comes from a source that you trust, load it and save its weights alone: "
            "torch.save(torch.load(FILE, weights_only=False)['state_dict'], 'weights.pt')"
        ) from failed


def _state(file: Path, content: Any) -> State:
    """The weights of the backbone by the names that they have in it."""
    held = content.get("state_dict", content) if isinstance(content, dict) else {}
    tensors = {key: value for key, value in held.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        found = ", ".join(map(str, list(content)[:8])) if isinstance(content, dict) else type(content).__name__
        raise ModelError(f"{file}: expected a state dict, or a checkpoint of Lightning that has one; found {found or 'nothing'}")
    # A margin loss has weights of its own.
    backbone = {key: value for key, value in tensors.items() if not key.startswith("lossfunc.")}
    if all(key.startswith("backbone.") for key in backbone):
        backbone = {key.removeprefix("backbone."): value for key, value in backbone.items()}
    # torch.compile puts this before every name.
    return {key.removeprefix("_orig_mod."): value.float() for key, value in backbone.items()}


def load(checkpoint: str | os.PathLike[str]) -> tuple[torch.nn.Module, Net]:
    """The net of a checkpoint in inference mode, from preprocessed images to embeddings, and its kind.

    ``checkpoint`` is a .ckpt file of Lightning, or a state dict that ``torch.save`` wrote. Raises ``ModelError`` where its weights
    are not those of a net for retrieval of robrank or CA-TRIDE.
    """
    file = Path(checkpoint)
    state = _state(file, _read(file))
    kind = next((net for net in NETS if all(mark in state for mark in net.marks)), None)
    if kind is None:
        keys = list(state)
        more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
        raise ModelError(
            f"{file}: expected the weights of {', '.join(net.name for net in NETS)}; found {', '.join(keys[:6])}{more}. "
            "Load any other net by its own code, and write it with onnx_audit.model.export(net, example, 'model.onnx')"
        )
    state = {key: value for key, value in state.items() if not key.startswith(kind.unused)}
    try:
        net = kind.build(state)
        net.load_state_dict(state)
    except KeyError as missing:
        raise ModelError(f"{file}: its weights look like those of {kind.name}, but {missing} is missing") from missing
    except (RuntimeError, ValueError, StopIteration) as wrong:
        words = " ".join(str(wrong).split())
        raise ModelError(f"{file}: its weights look like those of {kind.name}, but don't fit: {words[:300]}") from wrong
    with torch.no_grad():
        dimensions = net.eval()(torch.zeros(1, *kind.preprocessing.shape)).shape[1]
    # robrank's classifiers of CIFAR are ResNets of the same names.
    if dimensions in (10, 100):
        raise ModelError(
            f"{file}: {kind.name} with {dimensions} outputs is a classifier (cres18, cres50), and audit takes nets for retrieval. "
            "Give the checkpoint of a configuration whose name begins with r or h"
        )
    return net, kind


def write(checkpoint: str | os.PathLike[str], out: str | os.PathLike[str], metric: str | None = None) -> str:
    """Writes the net of a checkpoint as ``out`` (.onnx), and its card beside it (.yaml). Returns what was written, in words.

    ``metric`` is the distance between embeddings: ``normalized-euclidean``, ``euclidean`` or ``cosine``. Without it, the folder
    ``logs_DATA-NET-LOSS`` of the checkpoint says it, or it is that of the published tables, ``normalized-euclidean``.
    """
    checkpoint, out = Path(checkpoint), Path(out)
    if out.suffix != ".onnx":
        raise UsageError(f"-o {out}: expected a name that ends in .onnx; its card goes beside it as .yaml")
    net, kind = load(checkpoint)
    loss = re.search(r"logs_\w+-\w+-(\w*([CEN]))$", "\n".join(map(str, checkpoint.absolute().parts)), re.MULTILINE)
    reason = "as stated"
    if metric is None and loss is not None:
        metric, reason = METRICS[loss[2]], f"that of the loss {loss[1]}"
    elif metric is None:
        metric, reason = METRICS["N"], "that of the published tables; the path has no folder logs_DATA-NET-LOSS. --metric states another"
    export(net, torch.zeros(1, *kind.preprocessing.shape), out)
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    source = f"{kind.name} of robrank, from {checkpoint.name} (SHA-256 {hashlib.sha256(checkpoint.read_bytes()).hexdigest()})"
    card = "# Written by python -m onnx_audit.robrank; audit reads it with the model.\n"
    # A JSON string is a YAML string.
    card += f"{kind.preprocessing.card}metric: {metric}\nsource: {json.dumps(source)}\nsha256: {digest}\n"
    out.with_suffix(".yaml").write_text(card, encoding="utf-8")
    channels, height, width = kind.preprocessing.shape
    return (
        f"{kind.name}, input {channels} × {height} × {width}\n"
        f"metric {metric}, {reason}\n"
        f"wrote {out} and {out.with_suffix('.yaml')}"
    )


def main(words: list[str] | None = None) -> int:
    """The command line. Returns the exit code: 0, 2 for a wrong path or flag, 3 for a checkpoint that can't be exported."""
    parser = argparse.ArgumentParser(
        prog="python -m onnx_audit.robrank",
        description="Writes a checkpoint of robrank or CA-TRIDE as an ONNX file with a model card.",
    )
    parser.add_argument("checkpoint", help="a .ckpt file of Lightning, or a state dict")
    parser.add_argument("-o", "--out", required=True, metavar="MODEL.onnx", help="the file to write; its card goes beside it")
    parser.add_argument("--metric", choices=METRICS.values(), help="distance between embeddings [that of the loss in the path's logs_DATA-NET-LOSS]")
    known = parser.parse_args(words)
    try:
        print(write(known.checkpoint, known.out, known.metric))
    except AuditError as failed:
        print(f"onnx_audit.robrank: {failed}", file=sys.stderr)
        return failed.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
