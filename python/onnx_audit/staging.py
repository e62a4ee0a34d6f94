"""Copies models and images from fsspec URLs (``s3://bucket/photos``) to a node's temporary folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import UsageError
from .model import WEIGHTS, card_names, weight_names


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Context manager that locks ``folder`` against other processes of the node."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _own_folder() -> Path:
    """Returns this user's folder of copies, which nobody else can write to.

    Raises ``UsageError`` if somebody else made it: the copies in it would be theirs.
    """
    folder = Path(tempfile.gettempdir()) / f"onnx-audit-{os.getuid()}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    shared = stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or shared:
        raise UsageError(
            f"{folder}: expected a folder of user {os.getuid()} that nobody else can write to. Remove it, or "
            "set TMPDIR to another folder"
        )
    return folder


def _beside(system: Any, path: str) -> dict[str, dict[str, Any]]:
    """Returns the files that may belong to the model at ``path``: what the store says of each, by the name
    that it has beside the model.

    Preprocessing is also read from the folder above, if the model's folder is called ``onnx``.
    """
    folder, _, name = path.rpartition("/")
    above, _, own = folder.rpartition("/")
    cards = card_names(name)
    try:
        listed = {info["name"].rsplit("/", 1)[-1]: info for info in system.ls(folder, detail=True)}
    except Exception:  # Stores raise errors of their own libraries.
        listed = {}
    if name in listed:
        found = {
            each: info
            for each, info in listed.items()
            if info.get("type") == "file" and (each in cards or each.endswith(WEIGHTS))
        }
    else:
        # A store that doesn't list folders, such as most of HTTP.
        usual = [*cards, f"{name}.data", f"{name}_data"]
        found = {each: system.info(f"{folder}/{each}") for each in usual if system.isfile(f"{folder}/{each}")}
    for each in cards[1:] if own == "onnx" else ():
        if each not in found and system.isfile(f"{above}/{each}"):
            found[each] = system.info(f"{above}/{each}")
    return found


def staged(place: str) -> str:
    """Returns a path on this node: ``place`` itself if it is a path, or the copy of an fsspec URL.

    A URL is copied once. The copy's name is a hash of the URL and of the files' sizes and times or ETags, so
    changed files are copied again. With an .onnx file come its card, its weights and its preprocessing. A
    failed copy leaves nothing at the path. Raises ``FileNotFoundError`` if the URL has no files.
    """
    if "://" not in place:
        return place
    import fsspec

    system, path = fsspec.core.url_to_fs(place)
    path = path.rstrip("/")
    # The listing may be cached from before a change.
    system.invalidate_cache()
    files = system.find(path, detail=True)
    if not files:
        raise FileNotFoundError(f"{place}: expected a file or a folder with files, found none")
    name = place.rstrip("/").rsplit("/", 1)[-1]
    is_model = path in files and name.endswith(".onnx")
    beside = _beside(system, path) if is_model else {}
    files = files | {info["name"]: info for info in beside.values()}
    state = repr([(each, sorted(info.items(), key=str)) for each, info in sorted(files.items())])
    folder = _own_folder() / hashlib.sha256((place + state).encode()).hexdigest()[:16]
    # A model has a folder of its own, in which nothing else is taken for its card.
    target = folder / "model" / name if is_model else folder / name
    with _alone(folder):
        if not target.exists():
            partial = folder / "partial"
            if partial.is_dir():
                # Left by a killed copy.
                shutil.rmtree(partial)
            partial.unlink(missing_ok=True)
            if is_model:
                _copy_model(system, path, beside, partial / name)
                partial.rename(target.parent)
            else:
                system.get(path, str(partial), recursive=path not in files)
                partial.rename(target)
    return str(target)


def _copy_model(system: Any, path: str, beside: dict[str, dict[str, Any]], target: Path) -> None:
    """Copies a model, and the files beside it that belong to it."""
    target.parent.mkdir()
    system.get(path, str(target))
    wanted = {*card_names(target.name), *weight_names(target.read_bytes(), beside)}
    for name, info in beside.items():
        if name in wanted:
            system.get(info["name"], str(target.with_name(name)))
