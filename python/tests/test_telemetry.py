"""The import of the package turns off the telemetry of libraries."""

import os
import subprocess
import sys

import pytest

NAMES = ["ORT_DISABLE_TELEMETRY", "RAY_USAGE_STATS_ENABLED"]


def values(given: dict[str, str]) -> list[str]:
    """Values of the variables in a child process of one that imported the package."""
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | given
    program = "import onnx_audit, subprocess, sys; subprocess.run(sys.argv[1:], check=True)"
    words = [sys.executable, "-c", program, "printenv", *NAMES]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_the_import_turns_it_off():
    assert values({}) == ["1", "0"]
    assert values({name: "" for name in NAMES}) == ["1", "0"]


def test_values_of_the_user_are_not_changed():
    assert values({"ORT_DISABLE_TELEMETRY": "0", "RAY_USAGE_STATS_ENABLED": "1"}) == ["0", "1"]


@pytest.mark.skipif(sys.platform != "linux", reason="official builds collect on Linux and macOS")
def test_a_session_writes_nothing(tmp_path, plain):
    pytest.importorskip("onnxruntime")
    home = tmp_path / "home"
    home.mkdir()
    program = "import sys, onnx_audit, onnxruntime; onnxruntime.InferenceSession(sys.argv[1])"
    environment = {name: value for name, value in os.environ.items() if name not in NAMES}
    environment |= {"HOME": str(home), "TMPDIR": str(home)}
    subprocess.run([sys.executable, "-c", program, plain], env=environment, check=True)
    assert list(home.rglob("*")) == []
