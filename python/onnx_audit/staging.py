"""Copies models and images from fsspec URLs (``s3://bucket/photos``) to a node's temporary folder."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Context manager that locks ``folder`` against other processes of the node."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def staged(place: str) -> str:
    """Returns a path on this node: ``place`` itself if it is a path, or the copy of an fsspec URL.

    A URL is copied once. The copy's name is a hash of the URL and of the files' sizes and times or ETags, so
    changed files are copied again. A failed copy leaves nothing at the path. Raises ``FileNotFoundError`` if
    the URL has no files.
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
    state = repr([(name, sorted(info.items(), key=str)) for name, info in sorted(files.items())])
    folder = Path(tempfile.gettempdir()) / "onnx-audit" / hashlib.sha256((place + state).encode()).hexdigest()[:16]
    target = folder / place.rstrip("/").rsplit("/", 1)[-1]
    with _alone(folder):
        if not target.exists():
            partial = folder / "partial"
            if partial.is_dir():
                # Left by a killed copy.
                shutil.rmtree(partial)
            partial.unlink(missing_ok=True)
            system.get(path, str(partial), recursive=path not in files)
            partial.rename(target)
    return str(target)
