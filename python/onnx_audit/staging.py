"""Models and images from fsspec URLs (``s3://bucket/photos``), copied to a node's folder for temporary files."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process of a node at a time."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def staged(place: str) -> str:
    """A path on this node: a path as it is, and an fsspec URL copied here once.

    The copy is kept under the URL and what its files are (size, and time or ETag), so that what has changed there since is
    copied anew. An error ends with nothing under the returned path.
    """
    if "://" not in place:
        return place
    import fsspec

    system, path = fsspec.core.url_to_fs(place)
    path = path.rstrip("/")
    # Another process of this node may have seen the place before it changed.
    system.invalidate_cache()
    files = system.find(path, detail=True)
    if not files:
        raise FileNotFoundError(f"{place}: expected a file or a folder with files, found none")
    what = repr([(name, sorted(info.items(), key=str)) for name, info in sorted(files.items())])
    folder = Path(tempfile.gettempdir()) / "onnx-audit" / hashlib.sha256((place + what).encode()).hexdigest()[:16]
    target = folder / place.rstrip("/").rsplit("/", 1)[-1]
    with _alone(folder):
        if not target.exists():
            partial = folder / "partial"
            if partial.is_dir():
                # Left by a copy that was killed.
                shutil.rmtree(partial)
            partial.unlink(missing_ok=True)
            system.get(path, str(partial), recursive=path not in files)
            partial.rename(target)
    return str(target)
