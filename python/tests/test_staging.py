"""Copies of fsspec URLs on a node, compared with the file system that they come from."""

import tempfile
from pathlib import Path

import pytest

fsspec = pytest.importorskip("fsspec")

from onnx_audit.staging import staged  # noqa: E402


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A file system in memory with a model and a folder of images. Copies go to the test's folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "node"))
    system = fsspec.filesystem("memory")
    system.pipe({"/b/model.onnx": b"one", "/b/photos/a/1.png": b"1", "/b/photos/b/2.png": b"22"})
    yield system
    system.rm("/b", recursive=True)


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_file_and_a_folder_are_copied_once(bucket, tmp_path):
    model, photos = Path(staged("memory://b/model.onnx")), Path(staged("memory://b/photos/"))
    assert model.name == "model.onnx" and model.read_bytes() == b"one"
    assert files(photos) == {"a/1.png": b"1", "b/2.png": b"22"}
    model.write_bytes(b"cached")
    assert staged("memory://b/model.onnx") == str(model) and model.read_bytes() == b"cached"
    assert staged(str(tmp_path)) == str(tmp_path)


def test_changed_files_are_copied_again(bucket):
    before = staged("memory://b/model.onnx")
    bucket.pipe("/b/model.onnx", b"two")
    after = staged("memory://b/model.onnx")
    assert after != before and Path(after).read_bytes() == b"two"


def test_the_rest_of_a_killed_copy_is_removed(bucket):
    photos = Path(staged("memory://b/photos"))
    photos.rename(photos.parent / "partial")
    (photos.parent / "partial" / "rest.png").write_bytes(b"half")
    assert staged("memory://b/photos") == str(photos)
    assert files(photos) == {"a/1.png": b"1", "b/2.png": b"22"}


def test_an_empty_url_is_an_error(bucket):
    with pytest.raises(FileNotFoundError, match="memory://b/nothing"):
        staged("memory://b/nothing")
