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
from .errors import AuditError, ModelError, NothingToEvaluate, NotTrustworthy, UsageError
from .model import PREPROCESSING, card_names, weight_files
from .report import Report

#: Arguments of the marker that are lower bounds. Gates call these metrics the same.
METRICS = ("robust_r1", "robust_top1", "eps50", "median_eps", "clean_r1", "ars", "ers", "ars_strong")

#: Errors of the marker, the model or the images, whose message says everything.
_REFUSALS = (ModelError, NothingToEvaluate, NotTrustworthy, UsageError)

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
    bounds = {name: arguments.pop(name) for name in METRICS if name in arguments}
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
                # An audit that was interrupted in this session has left its journal.
                audit(**({"resume": True} | arguments), report=draft, progress=False)
            except AuditError as problem:
                if problem.report is None:
                    if not isinstance(problem, _REFUSALS):
                        raise
                    # The lines of this package say nothing about the marker or the model.
                    text = f"{type(problem).__name__}: {problem}"
                    raise pytest.fail.Exception(text, pytrace=False) from None
                message = f"{problem.report.words or problem}\n\n{problem.report}"
            failure.write_text(message, encoding="utf-8")
            draft.rename(file)
        return load(file), failure.read_text(encoding="utf-8") or None


@contextmanager
def _shared(config: pytest.Config, arguments: dict[str, Any]) -> Iterator[Path]:
    """Context manager that locks and returns the file for the report of these arguments.

    All workers of a session use the same file, one at a time. Another file of the same name gets another
    report. Models in memory have a new file for each audit, because nothing identifies them.
    """
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    base: Path = factory.getbasetemp()
    shareable = all(isinstance(value, _PLAIN) for value in arguments.values())
    if shareable and "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / "onnx-audit"
    folder.mkdir(exist_ok=True)
    text = _key(arguments) if shareable else os.urandom(16).hex()
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


#: Flags with files and folders that an audit writes: their state says nothing about the next one.
_WRITTEN = ("attacked_out", "cache", "journal", "save_baseline", "trials_out")


def _key(arguments: dict[str, Any]) -> str:
    """Returns a text that is the same for the same audit: the arguments, the program, and the state of all
    files that they name.
    """
    program = str(binary.program())
    read = [value for name, value in arguments.items() if name not in _WRITTEN]
    beside = [_beside(arguments.get(name)) for name in ("model", "surrogate")]
    words = json.dumps(arguments, sort_keys=True, default=str)
    return json.dumps([words, os.getcwd(), program, _states([program, *read, *beside])])


def _beside(model: Any) -> list[str]:
    """Returns the paths of files beside a model that may belong to it: card, preprocessing and weights."""
    if not isinstance(model, (str, os.PathLike)) or not os.path.isfile(model):
        return []
    path = Path(os.fspath(model)).absolute()
    above = path.parent.parent if path.parent.name == "onnx" else path.parent
    files = [path.parent / name for name in card_names(path.name)] + [above / name for name in PREPROCESSING]
    files += [path.parent / name for name in weight_files(path.read_bytes())]
    return [str(file) for file in files]


def _states(value: Any) -> list[list[Any]]:
    """Returns path, size, time of change and inode of every file that a value names, and of every file in a
    folder that it names.
    """
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [state for item in value for state in _states(item)]
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        return []
    states: list[list[Any]] = []
    seen: set[str] = set()
    try:
        waiting = [os.path.realpath(value)]
    except ValueError:
        return []
    while waiting:
        path = waiting.pop()
        # A link may lead back to a folder above it.
        if path in seen:
            continue
        seen.add(path)
        try:
            found = os.stat(path)
            if os.path.isdir(path):
                with os.scandir(path) as entries:
                    inside = [os.path.realpath(e) if e.is_symlink() else e.path for e in entries]
                waiting += sorted(inside)
        except OSError:
            # No path, such as the name of a suite; or a folder that can't be read.
            continue
        states.append([path, found.st_size, found.st_mtime_ns, found.st_ino])
    return states


_PLAIN = (str, int, float, bool, type(None), os.PathLike, dict, list, tuple)
