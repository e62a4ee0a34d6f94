"""A pytest plugin: a test fails if a model is less robust than required.

    @pytest.mark.robust(model="model.onnx", data="photos/", robust_r1=30)
    def test_model(): ...

The test fails if R@1 under the strong search is below 30 %, and prints the report. The fixture ``robustness``
is the report, for assertions in the test. Workers of pytest-xdist share audits and the cores of the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from . import binary
from .commands import audit, load
from .errors import AuditError
from .report import Report

#: Arguments of the marker that are lower bounds, and their metrics in gates.
METRICS = {
    **{"robust_r1": "robust_r1", "robust_top1": "robust_top1", "eps50": "eps50", "clean_r1": "benign.r1"},
    **{"ars": "ars", "ers": "ers", "ars_strong": "ars_strong"},
}

_KEY = pytest.StashKey[tuple[Report, str | None]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "robust(model, data=None, suite='robust', robust_r1=N, eps50=N, clean_r1=N, **flags): audit the model, and fail if "
        "a metric is below N; flags are those of `audit --help`",
    )


@pytest.fixture
def robustness(request: pytest.FixtureRequest) -> Report:
    """The report of the audit that the test's marker ``robust`` describes."""
    return _result(request.node, request.config)[0]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Audits the model of a marked test, and fails the test before its body runs if the gate fails."""
    if pyfuncitem.get_closest_marker("robust") is None:
        return
    failure = _result(pyfuncitem, pyfuncitem.config)[1]
    if failure is not None:
        pytest.fail(failure, pytrace=False)


def _result(item: pytest.Item, config: pytest.Config) -> tuple[Report, str | None]:
    """Returns the report, and the failure of the gate or None. Cached for each test."""
    if _KEY not in item.stash:
        marker = item.get_closest_marker("robust")
        if marker is None:
            raise pytest.UsageError(f"{item.nodeid}: the fixture robustness needs the marker @pytest.mark.robust(model=...)")
        if marker.args or "model" not in marker.kwargs:
            raise pytest.UsageError(f"{item.nodeid}: expected @pytest.mark.robust(model=..., ...), with keyword arguments only")
        item.stash[_KEY] = _audited(config, **marker.kwargs)
    return item.stash[_KEY]


def _audited(config: pytest.Config, **arguments: Any) -> tuple[Report, str | None]:
    bounds = {METRICS[name]: arguments.pop(name) for name in METRICS if name in arguments}
    if bounds:
        # The last rule for a metric counts.
        arguments["fail_under"] = [*binary.items(bounds), *binary.items(arguments.get("fail_under") or [])]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1 and "threads" not in arguments:
        # Reports don't depend on the number of threads.
        arguments["threads"] = max(1, (os.cpu_count() or 1) // workers)
    with _shared(config, arguments) as file:
        failure = file.with_suffix(".failure")
        if not file.exists():
            draft = file.with_suffix(".draft.json")
            message = ""
            try:
                audit(**arguments, report=draft, progress=False)
            except AuditError as problem:
                # Without a report nothing is known about the model: pytest shows the exception.
                if problem.report is None:
                    raise
                message = f"{problem.report.words or problem}\n\n{problem.report}"
            failure.write_text(message, encoding="utf-8")
            draft.rename(file)
        return load(file), failure.read_text(encoding="utf-8") or None


@contextmanager
def _shared(config: pytest.Config, arguments: dict[str, Any]) -> Iterator[Path]:
    """Context manager that locks and returns the file for the report of these arguments.

    All workers of a session use the same file, one at a time. Models in memory have a new file for each
    audit, because nothing identifies them.
    """
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    base: Path = factory.getbasetemp()
    shareable = all(isinstance(value, _PLAIN) for value in arguments.values())
    if shareable and "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / "onnx-audit"
    folder.mkdir(exist_ok=True)
    text = json.dumps(arguments, sort_keys=True, default=str) if shareable else os.urandom(16).hex()
    file = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    try:
        import fcntl
    except ImportError:
        # Windows: each worker has its own file.
        yield file.with_stem(f"{file.stem}-{os.getpid()}")
        return
    with open(file.with_suffix(".lock"), "w") as lock:
        # The system releases the lock even if the worker is killed.
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield file


_PLAIN = (str, int, float, bool, type(None), os.PathLike, dict, list, tuple)
