"""Copies models and images from fsspec URLs (``s3://bucket/photos``) to a node's temporary folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import UsageError
from .model import card_names, weight_files


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


def _beside(system: Any, path: str, model: bytes) -> dict[str, dict[str, Any]]:
    """Returns the files that belong to the model at ``path``, whose bytes are ``model``: what the store says
    of each, by its path from the model's folder.

    Preprocessing is also read from the folder above, if the model's folder is called ``onnx``.
    """
    folder, _, name = path.rpartition("/")
    above, _, own = folder.rpartition("/")
    cards = card_names(name)
    # Stores such as most of HTTP don't list folders.
    found = {each: f"{folder}/{each}" for each in [*cards, *weight_files(model)] if system.isfile(f"{folder}/{each}")}
    for each in cards[1:] if own == "onnx" else ():
        if each not in found and system.isfile(f"{above}/{each}"):
            found[each] = f"{above}/{each}"
    return {each: system.info(place) for each, place in found.items()}


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
    copy = _copied(place, files, name, lambda target: system.get(path, str(target), recursive=path not in files))
    if path not in files or not name.endswith(".onnx"):
        return str(copy)
    # Only the model knows where its weights are.
    beside = _beside(system, path, copy.read_bytes())

    def gather(target: Path) -> None:
        target.mkdir()
        os.link(copy, target / name)
        for each, info in beside.items():
            (target / each).parent.mkdir(parents=True, exist_ok=True)
            system.get(info["name"], str(target / each))

    # A folder of its own, in which nothing else is taken for the model's card.
    return str(_copied(place, files | {info["name"]: info for info in beside.values()}, "model", gather) / name)


def _copied(place: str, files: dict[str, dict[str, Any]], name: str, get: Callable[[Path], None]) -> Path:
    """Returns the copy ``name`` of ``files``, which ``get`` writes to a given path if there is none yet."""
    state = repr([(each, sorted(info.items(), key=str)) for each, info in sorted(files.items())])
    folder = _own_folder() / hashlib.sha256((place + state).encode()).hexdigest()[:16]
    target = folder / name
    with _alone(folder):
        if not target.exists():
            partial = folder / "partial"
            if partial.is_dir():
                # Left by a killed copy.
                shutil.rmtree(partial)
            partial.unlink(missing_ok=True)
            get(partial)
            partial.rename(target)
    return target
