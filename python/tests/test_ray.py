"""Audits in parts on Ray. A stand-in for Ray runs each task in this process; `cargo xtask engines` uses Ray itself."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import onnx_audit


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Remote:
    """A function or class whose ``remote`` calls it at once."""

    def __init__(self, target) -> None:
        self.target = target

    def options(self, **_):
        return self

    def remote(self, *words):
        if isinstance(self.target, type):
            return Actor(self.target(*words))
        try:
            value = self.target(*words)
        except Exception as failure:
            return Reference(failure=failure)
        return Reference(value)


class Reference:
    def __init__(self, value=None, failure=None) -> None:
        self.value, self.failure = value, failure


class Actor:
    def __init__(self, inner) -> None:
        self.inner = inner

    def __getattr__(self, name):
        return Remote(getattr(self.inner, name))


def get(reference):
    if reference.failure is not None:
        raise RayTaskError(reference.failure)
    return reference.value


#: A program that writes its file, but for `--version`. The test sets, by command, the exit code and whether a report is written.
PROGRAM = """#!{python}
import sys
words = sys.argv[1:]
if words == ["--version"]:
    print("audit 0.1.0\\nmore")
    sys.exit()
path = words[words.index("-o") + 1]
code, writes = (0, True) if path.endswith(".parquet") else {codes!r}.get(words[0], (0, True))
if writes:
    with open(path, "w") as file:
        file.write('{{"warnings": [{{"id": "collapsed", "severity": "error", "text": "all embeddings are equal"}}]}}')
    print("report of", words[0])
else:
    print("audit: an embedding is not finite", file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Returns a function that runs the command line with a program of the given exit codes."""
    stand_in = SimpleNamespace(
        remote=lambda target=None, **_: Remote if target is None else Remote(target),
        get=get,
        wait=lambda references, timeout: (references, []),
        cancel=lambda reference, force: None,
        cluster_resources=lambda: {"CPU": 2},
        init=lambda **_: None,
        shutdown=lambda: None,
        exceptions=SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError),
    )
    monkeypatch.setitem(sys.modules, "ray", stand_in)
    monkeypatch.delitem(sys.modules, "onnx_audit.ray", raising=False)
    module = importlib.import_module("onnx_audit.ray")
    (tmp_path / "model.onnx").write_bytes(b"model")
    monkeypatch.chdir(tmp_path)

    def started(function: str, *words, **codes):
        program = tmp_path / "audit"
        program.write_text(PROGRAM.format(python=sys.executable, codes=codes))
        program.chmod(0o755)
        monkeypatch.setenv("AUDIT_BIN", str(program))
        return getattr(module, function)(*words)

    yield started
    sys.modules.pop("onnx_audit.ray")


def test_exit_codes_are_those_of_audit(start, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["model.onnx", "--out", str(tmp_path / "out"), "--parts", "2"]
    assert start("main", words) == 0
    assert capsys.readouterr().out == "report of merge\n"
    # The report is written even if it is not trustworthy.
    assert start("main", words, merge=(12, True)) == 12
    printed = capsys.readouterr()
    assert printed.out == "report of merge\n" and "all embeddings are equal" in printed.err
    assert start("main", words, merge=(13, False)) == 13


def test_a_report_that_is_not_trustworthy_is_in_the_exception(start, tmp_path: Path):
    with pytest.raises(onnx_audit.NotTrustworthy, match="all embeddings are equal") as caught:
        start("run", "model.onnx", tmp_path, 2, run=(12, True), merge=(12, True))
    assert caught.value.report.json == onnx_audit.load(tmp_path / "report.json").json


def test_a_part_without_a_report_ends_the_run(start, tmp_path: Path):
    """The message is the part's own, not that of a merge without it."""
    with pytest.raises(onnx_audit.NotTrustworthy, match="part hash:./2: an embedding is not finite") as caught:
        start("run", "model.onnx", tmp_path, 2, run=(12, False))
    assert caught.value.report is None


def test_parts_of_another_run_are_not_taken(start, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["model.onnx", "--out", "out", "--parts", "2", "--suite=full", "--embed-flag=--size=28"]
    # A flag that no part accepts may be corrected.
    assert start("main", [*words[:5], "--suite=fool", words[6]], run=(2, False)) == 2
    assert start("main", words) == 0 and start("main", words) == 0
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {"run.json", "gallery.parquet", "part-1-of-2.json", "part-2-of-2.json", "report.json"}
    capsys.readouterr()
    for other, shown in [
        ([*words, "--data", "photos"], 'data null there and "photos" here'),
        ([*words[:4], "3", *words[5:]], "parts 2 there and 3 here"),
        ([*words[:5], "--suite=ars", words[6]], 'flags ["--suite=full"] there and ["--suite=ars"] here'),
        (words[:6], 'embed_flags ["--size=28"] there and [] here'),
    ]:
        assert start("main", other) == 2
        printed = capsys.readouterr()
        assert "has the parts of another run: " + shown in printed.err and not printed.out
    # Another model under the same name; another card; weights of their own.
    for name, content in [("model.onnx", b"other"), ("model.yaml", b"mean: [0.5]"), ("config.json", b"{}")]:
        file = tmp_path / name
        before = file.read_bytes() if file.exists() else None
        file.write_bytes(content)
        assert start("main", words) == 2 and "model_sha256" in capsys.readouterr().err
        file.unlink() if before is None else file.write_bytes(before)
    assert start("main", words) == 0
    (tmp_path / "out" / "run.json").unlink()
    assert start("main", words) == 2 and "its settings can't be read" in capsys.readouterr().err
    assert start("main", ["nowhere.onnx", *words[1:]]) == 2 and "nowhere.onnx" in capsys.readouterr().err


def test_parts_of_the_embeddings_of_another_run_are_not_taken(start, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["model.onnx", "--out", "out", "--parts", "3", "--embed-flag=--size=28"]
    assert start("main", words) == 0
    out = tmp_path / "out"
    # The run was interrupted when one of three parts was done; the cluster here has two processors.
    (out / "gallery.parquet").rename(out / "gallery-1-of-3.parquet")
    for file in out.glob("*.json"):
        if file.name != "run.json":
            file.unlink()
    capsys.readouterr()
    assert start("main", words[:5]) == 2
    assert 'embed_flags ["--size=28"] there and [] here' in capsys.readouterr().err
    # Embeddings don't depend on flags of the attacks, nor on the number of parts.
    assert start("main", [*words[:4], "2", words[5], "--suite=full"]) == 0
    names = {file.name for file in out.iterdir()}
    assert names == {"run.json", "gallery.parquet", "part-1-of-2.json", "part-2-of-2.json", "report.json"}
