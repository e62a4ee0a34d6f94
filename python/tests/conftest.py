"""Shared fixtures. Tests run the installed program, or AUDIT_BIN: a build of this repository."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Without an installation nothing registers the plugin.
_INSTALLED = any(entry.name == "onnx_audit" for entry in entry_points(group="pytest11"))
pytest_plugins = ["pytester"] if _INSTALLED else ["pytester", "onnx_audit.pytest_plugin"]

#: Flags of a quick audit that has enough queries for scores.
QUICK = {"suite": "smoke", "max_queries": 20, "strong_sample": "off", "progress": False}


@pytest.fixture(scope="session")
def plain() -> Path:
    """The bundled model without adversarial training: 28 × 28 grey images to 128-dimensional embeddings."""
    return ROOT / "models" / "plain.onnx"


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of generated images: 6 classes with 4 images each."""
    from onnx_audit import binary

    folder = tmp_path_factory.mktemp("images")
    words = ["images", f"--out={folder}", "--seed=3", "--classes=6", "--samples=4"]
    binary.checked(words)
    return folder
