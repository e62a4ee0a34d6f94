"""Bundles of evidence for the tests of verify.py. Tests are skipped without what the script needs."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import zipfile
from pathlib import Path

import pytest
from conftest import QUICK, ROOT

import onnx_audit
from onnx_audit import binary

for package in ("numpy", "PIL", "onnxruntime"):
    pytest.importorskip(package)

SCRIPT = ROOT / "src" / "feature" / "verify.py"


def load(path: Path):
    spec = importlib.util.spec_from_file_location("verify", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


verify = load(SCRIPT)


def evidence(folder: Path, model: Path, data: Path, **flags) -> bytes:
    onnx_audit.audit(model, data, report=folder / "r.json", **{**QUICK, **flags})
    binary.checked(["report", folder / "r.json", "--bundle", folder / "evidence.zip"])
    return (folder / "evidence.zip").read_bytes()


def sealed(files: dict[str, bytes], manifest: dict) -> bytes:
    """An archive with correct hashes of its files, as a forger would make it."""
    files = {name: data for name, data in files.items() if name != "manifest.json"}
    manifest["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    files["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(out := io.BytesIO(), "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, data)
    return out.getvalue()


def embedded(files: dict, manifest: dict, report: dict, model: Path):
    """The judge of the clean embeddings without a tolerance, and the embeddings of the attacked images."""
    net = verify.Model(model, report, manifest)
    clean, attacked = (net.points([verify.pixels(name, files[name]) for name in manifest[of]]) for of in ("images", "attacked"))
    return verify.Judge(report, manifest, clean, 0), attacked
