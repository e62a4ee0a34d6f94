"""Copies of fsspec URLs on a node, compared with the file system that they come from."""

import os
import re
import stat
import tempfile
from pathlib import Path

import pytest
from conftest import ROOT

fsspec = pytest.importorskip("fsspec")

from onnx_audit import UsageError  # noqa: E402
from onnx_audit.model import PREPROCESSING, fingerprint  # noqa: E402
from onnx_audit.pytest_plugin import _key  # noqa: E402
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


def with_weights(*locations):
    """The bytes of a model that has weights in files."""
    onnx = pytest.importorskip("onnx")
    graph = onnx.GraphProto()
    for location in locations:
        tensor = graph.initializer.add(name=location, dims=[1], data_type=1, data_location=1)
        tensor.external_data.add(key="location", value=location)
        tensor.external_data.add(key="length", value="1")
    return onnx.ModelProto(graph=graph).SerializeToString()


def test_a_model_comes_with_its_card_weights_and_preprocessing(bucket):
    weights = ["model.onnx.data", "weights", "a b.bin", "sub folder/gewichte ü.1", "long/" + "n" * 150]
    beside = {name: name.encode() for name in [*weights, "model.yaml", "config.json"]}
    other = {"other.yaml": b"mean", "other.data": b"w", "other.onnx": b"o", "page.html": b"p", "run.json": b"r"}
    bucket.pipe({f"/b/{name}": content for name, content in (beside | other).items()})
    bucket.pipe("/b/model.onnx", with_weights(*weights, "missing", "../photos/a/1.png", "/b/page.html"))
    model = Path(staged("memory://b/model.onnx"))
    assert files(model.parent) == beside | {"model.onnx": model.read_bytes()}
    # Another card is another copy, and so are other weights; another page is not.
    bucket.pipe("/b/page.html", b"other")
    assert staged("memory://b/model.onnx") == str(model)
    for name in ("model.yaml", "weights"):
        bucket.pipe(f"/b/{name}", b"changed")
        after = Path(staged("memory://b/model.onnx"))
        assert after != model and after.with_name(name).read_bytes() == b"changed"
        model = after


def test_weights_belong_to_the_fingerprint_of_a_model_whatever_their_name(tmp_path):
    (tmp_path / "model.onnx").write_bytes(with_weights("sub folder/w"))
    (tmp_path / "sub folder").mkdir()
    found = set()
    for content in (b"1", b"2"):
        (tmp_path / "sub folder" / "w").write_bytes(content)
        found.add(fingerprint(tmp_path / "model.onnx"))
        found.add(_key({"model": str(tmp_path / "model.onnx")}))
        (tmp_path / "sub folder" / "other").write_bytes(content)
    assert len(found) == 4


def test_every_file_with_preprocessing_that_audit_reads_is_copied():
    source = (ROOT / "crates" / "audit-model" / "src" / "exported" / "mod.rs").read_text()
    assert tuple(re.findall(r'Kind \{ name: "([^"]+)"', source)) == PREPROCESSING


def test_preprocessing_may_be_above_a_folder_onnx(bucket):
    bucket.pipe({"/b/onnx/model.onnx": b"m", "/b/preprocessor_config.json": b"above", "/b/model.yaml": b"no card"})
    bucket.pipe({"/b/config.json": b"above", "/b/onnx/config.json": b"beside"})
    model = Path(staged("memory://b/onnx/model.onnx"))
    expected = {"model.onnx": b"m", "preprocessor_config.json": b"above", "config.json": b"beside"}
    assert files(model.parent) == expected


def test_a_store_need_not_list_folders(bucket, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("no listing")

    bucket.pipe({"/b/model.onnx": with_weights("weights"), "/b/weights": b"w", "/b/model.yaml": b"mean"})
    with monkeypatch.context() as patch:
        patch.setattr(type(bucket), "ls", refuse)
        patch.setattr(type(bucket), "find", lambda self, path, detail: {path: self.info(path)})
        model = Path(staged("memory://b/model.onnx"))
    assert set(files(model.parent)) == {"model.onnx", "weights", "model.yaml"}


def test_copies_are_in_a_folder_that_only_the_user_writes(bucket, tmp_path):
    model = Path(staged("memory://b/model.onnx"))
    folder = tmp_path / "node" / f"onnx-audit-{os.getuid()}"
    assert folder in model.parents and stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="nobody else can write to"):
        staged("memory://b/model.onnx")
    folder.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="nobody else can write to"):
        staged("memory://b/model.onnx")
