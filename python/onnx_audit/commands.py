"""The program's commands as functions."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from . import binary
from .errors import error
from .model import as_file
from .progress import Progress, watcher
from .report import Comparison, Report, _Saved

#: A report, or the path of a saved one.
AnyReport = Report | str | os.PathLike[str]


def audit(
    model: Any,
    data: str | os.PathLike[str] | None = None,
    *,
    suite: str | os.PathLike[str] = "robust",
    example: Any = None,
    report: str | os.PathLike[str] | None = None,
    progress: Progress = None,
    **flags: Any,
) -> Report:
    """Audits a model and returns the report.

    ``model`` is the path of an .onnx file, an ``onnx.ModelProto``, or a ``torch.nn.Module`` with ``example``, an input of it
    [B, C, H, W]. ``data`` is what ``--data`` takes; without it the built-in images are used. ``report`` is a file to keep the
    report in (.json); such an audit can go on after an interrupt with ``resume=True``. ``progress`` is True, False or a
    function that gets every event; by default a bar of tqdm is shown where somebody looks. All other arguments are flags of
    ``audit --help``: ``max_queries=50``, ``fail_under={"robust_r1": 30}``, ``mean=[0.5, 0.5, 0.5]``.

    Raises the exception of the exit code (``onnx_audit.errors``). ``GateFailed`` and ``NotTrustworthy`` have the report where
    one was written.
    """
    watch = watcher(progress)
    with ExitStack() as stack:
        path = stack.enter_context(as_file(model, example))
        folder = stack.enter_context(TemporaryDirectory(prefix="onnx-audit-"))
        file = Path(folder) / "report.json" if report is None else Path(report)
        if file.suffix != ".json":
            raise ValueError(f"report={os.fspath(file)!r}: expected a name that ends in .json; Report.save writes other formats")
        before = file.stat().st_mtime_ns if file.exists() else None
        words = ["run", path, f"--suite={os.fspath(suite)}", "--progress=json", f"--report={file}"]
        if data is not None:
            words.append(f"--data={os.fspath(data)}")
        done = binary.run([*words, *binary.flags(flags)], watch or (lambda _: None))
        written = file.exists() and file.stat().st_mtime_ns != before
        made = load(file) if written else None
        if done.exit_code == 0 and made is not None:
            return made
        words_of = made.words if made is not None else ""
        raise error(done.exit_code, done.message or words_of or done.text.strip(), made)


def load(report: str | os.PathLike[str]) -> Report:
    """Reads a saved report (.json)."""
    return Report(Path(report).read_text(encoding="utf-8"))


def compare(*reports: AnyReport, sort: str | None = None, anyway: bool = False) -> Comparison:
    """Sets two or more reports side by side; the first is the base. See ``audit compare``."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="onnx-audit-")))
        files = [_path(stack, report) for report in reports]
        table, page = folder / "comparison.json", folder / "comparison.html"
        words = ["compare", *files, *binary.flags({"sort": sort, "anyway": anyway}), "-o", table, "-o", page]
        printed = binary.checked(words)
        return Comparison(table.read_text(encoding="utf-8"), printed, page.read_text(encoding="utf-8"))


def gate(report: AnyReport, **demands: Any) -> Report:
    """Holds a report against thresholds and a baseline, and returns it with the verdict.

    ``demands`` are flags of ``audit gate``: ``fail_under={"robust_r1": 30}``, ``baseline="base.json"``. Raises ``GateFailed``
    or ``Regression`` where the gate fails; the exception has the report with the verdict.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="onnx-audit-"))
        if isinstance(demands.get("baseline"), Report):
            demands["baseline"] = _path(stack, demands["baseline"])
        file = Path(folder) / "report.json"
        done = binary.run(["gate", _path(stack, report), *binary.flags(demands), "-o", file])
        judged = load(file) if file.exists() else None
        if done.exit_code == 0 and judged is not None:
            return judged
        raise error(done.exit_code, done.message or done.text.strip(), judged)


def inspect(model: Any, example: Any = None, **flags: Any) -> dict[str, Any]:
    """What the program finds in a model without auditing it: ``audit inspect --json``. ``model`` is as in ``audit``."""
    with as_file(model, example) as path:
        found: dict[str, Any] = json.loads(binary.checked(["inspect", path, "--json", *binary.flags(flags)]))
        return found


def _path(stack: ExitStack, report: AnyReport) -> str | os.PathLike[str]:
    return stack.enter_context(_Saved(report.text)) if isinstance(report, Report) else report
