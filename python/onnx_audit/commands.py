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

#: A report, or the path of a saved report.
AnyReport = Report | str | os.PathLike[str]


#: Ends of names by which the program writes JSON that is no report.
_OTHER_FORMATS = (".metrics.json", ".cdx.json", ".intoto.json")


def _is_other_format(file: Path) -> bool:
    """Whether the program writes JSON that is no report under this name; the end alone may be the name."""
    return f".{file.name}".lower().endswith(_OTHER_FORMATS)


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

    ``model`` is the path of an .onnx file, an ``onnx.ModelProto``, or a ``torch.nn.Module``; a module also
    needs ``example``, an input [B, C, H, W]. ``data`` is the value of ``--data``; by default, the built-in
    images. ``report`` is a .json file to save the report to; an interrupted audit with such a file continues
    with ``resume=True``. ``progress`` is True, False, or a function that is called with every event; by
    default, a tqdm bar is shown on a terminal and in a notebook. All other arguments are flags of
    ``audit --help``: ``max_queries=50``, ``fail_under={"robust_r1": 30}``, ``mean=[0.5, 0.5, 0.5]``.
    ``baseline`` may be a ``Report`` too.

    Raises the exception of the exit code (``onnx_audit.errors``). ``GateFailed`` and ``NotTrustworthy`` have
    the report if one was written.
    """
    watch = watcher(progress)
    with ExitStack() as stack:
        path = stack.enter_context(as_file(model, example))
        folder = stack.enter_context(TemporaryDirectory(prefix="onnx-audit-"))
        file = Path(folder) / "report.json" if report is None else Path(report)
        if file.suffix != ".json" or _is_other_format(file):
            raise ValueError(
                f"report={os.fspath(file)!r}: expected a name that ends in .json, but not in "
                f"{', '.join(_OTHER_FORMATS)}. Report.save writes other formats"
            )
        if isinstance(flags.get("baseline"), Report):
            flags["baseline"] = _path(stack, flags["baseline"])
        old_time = file.stat().st_mtime_ns if file.exists() else None
        words = ["run", path, f"--suite={os.fspath(suite)}", "--progress=json", f"--report={file}"]
        if data is not None:
            words.append(f"--data={os.fspath(data)}")
        done = binary.run([*words, *binary.flags(flags)], watch or (lambda _: None))
        written = file.exists() and file.stat().st_mtime_ns != old_time
        result = load(file) if written else None
        if done.exit_code == 0 and result is not None:
            return result
        failures = result.words if result is not None else ""
        raise error(done.exit_code, done.message or failures or done.text.strip(), result)


def load(report: str | os.PathLike[str]) -> Report:
    """Reads a saved report (.json).

    The trials of a report that was written with ``trials_out`` are read from their own file. Raises
    ``UsageError`` if that file is missing or has changed, and ``ValueError`` for the name of another format,
    such as ``metrics.json``.
    """
    if _is_other_format(Path(report)):
        raise ValueError(
            f"{os.fspath(report)!r} has the name of another format; load reads reports, such as report.json"
        )
    result = Report(Path(report).read_text(encoding="utf-8"))
    if "trials_file" not in result.json:
        return result
    # The path of the trials is relative to the report, and methods of Report write it to another folder.
    with TemporaryDirectory(prefix="onnx-audit-") as folder:
        whole = Path(folder) / "report.json"
        binary.checked(["report", report, "-o", whole])
        return Report(whole.read_text(encoding="utf-8"))


def compare(*reports: AnyReport, sort: str | None = None, anyway: bool = False) -> Comparison:
    """Compares two or more reports; the first is the baseline.

    ``sort`` and ``anyway`` are flags of ``audit compare``. Raises the exception of the exit code, such as
    ``UsageError`` for reports that can't be compared.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="onnx-audit-")))
        # Models of one path are called by their reports' files.
        files = [_path(stack, report, f"report{i}.json") for i, report in enumerate(reports, 1)]
        table, page = folder / "comparison.json", folder / "comparison.html"
        words = ["compare", *files, *binary.flags({"sort": sort, "anyway": anyway}), "-o", table, "-o", page]
        printed = binary.checked(words)
        return Comparison(table.read_text(encoding="utf-8"), printed, page.read_text(encoding="utf-8"))


def gate(report: AnyReport, **rules: Any) -> Report:
    """Checks a report against thresholds or a baseline, and returns it with the result.

    ``rules`` are flags of ``audit gate``: ``fail_under={"robust_r1": 30}``, ``baseline="base.json"``, which
    may be a ``Report`` too. Raises ``GateFailed`` or ``Regression`` if the gate fails; the exception has the
    report with the result.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="onnx-audit-"))
        if isinstance(rules.get("baseline"), Report):
            rules["baseline"] = _path(stack, rules["baseline"])
        file = Path(folder) / "report.json"
        done = binary.run(["gate", _path(stack, report), *binary.flags(rules), "-o", file])
        result = load(file) if file.exists() else None
        if done.exit_code == 0 and result is not None:
            return result
        raise error(done.exit_code, done.message or done.text.strip(), result)


def inspect(model: Any, example: Any = None, **flags: Any) -> dict[str, Any]:
    """Returns the output of ``audit inspect --json``, which describes a model without an audit.

    ``model`` and ``example`` are as in ``audit``; ``flags`` are those of ``audit inspect``. Raises the
    exception of the exit code.
    """
    with as_file(model, example) as path:
        result: dict[str, Any] = json.loads(binary.checked(["inspect", path, "--json", *binary.flags(flags)]))
        return result


def _path(stack: ExitStack, report: AnyReport, name: str = "report.json") -> str | os.PathLike[str]:
    return stack.enter_context(_Saved(report.text, name)) if isinstance(report, Report) else report
