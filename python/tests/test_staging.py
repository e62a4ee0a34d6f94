"""Copies of fsspec URLs on a node. fsspec's own file systems are what they are compared with."""

import tempfile
from pathlib import Path

import pytest

fsspec = pytest.importorskip("fsspec")

from onnx_audit.staging import staged  # noqa: E402


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A file system in memory with one model and a folder of images; copies go to a folder of this test."""
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
    model.write_bytes(b"kept")
    assert staged("memory://b/model.onnx") == str(model) and model.read_bytes() == b"kept"
    assert staged(str(tmp_path)) == str(tmp_path)


def test_what_changed_at_the_url_is_copied_anew(bucket):
    before = staged("memory://b/model.onnx")
    bucket.pipe("/b/model.onnx", b"two")
    after = staged("memory://b/model.onnx")
    assert after != before and Path(after).read_bytes() == b"two"


def test_what_a_killed_copy_left_is_no_part_of_the_next(bucket):
    photos = Path(staged("memory://b/photos"))
    photos.rename(photos.parent / "partial")
    (photos.parent / "partial" / "rest.png").write_bytes(b"half")
    assert staged("memory://b/photos") == str(photos)
    assert files(photos) == {"a/1.png": b"1", "b/2.png": b"22"}


def test_a_place_that_is_empty_is_an_error(bucket):
    with pytest.raises(FileNotFoundError, match="memory://b/nothing"):
        staged("memory://b/nothing")
