"""The errors of the program as exceptions: one class for each exit code of the commands that the package has."""

from __future__ import annotations

import re
from typing import Any


class AuditError(Exception):
    """The program exited with a code other than 0.

    ``exit_code`` is the code. ``report`` is the ``onnx_audit.Report`` if one was written, else None; its type
    is ``Any`` because report.py depends on this module.
    """

    exit_code: int = 1

    def __init__(self, message: str, exit_code: int | None = None, report: Any = None) -> None:
        super().__init__(message)
        self.report = report
        if exit_code is not None:
            self.exit_code = exit_code


class InternalError(AuditError):
    """Exit code 1: a bug, or a failure of the machine."""

    exit_code = 1


class UsageError(AuditError, ValueError):
    """Exit code 2: an unknown flag or metric, a path that doesn't exist, no ONNX Runtime."""

    exit_code = 2


class ModelError(AuditError):
    """Exit code 3: the model can't be audited."""

    exit_code = 3


class NothingToEvaluate(AuditError):
    """Exit code 4: no images, or no class with two of them."""

    exit_code = 4


class GateFailed(AuditError):
    """Exit code 10: a value misses its threshold, or a drop is undecided. ``report`` has the result of the gate."""

    exit_code = 10


class Regression(GateFailed):
    """Exit code 11: worse than the baseline. ``report`` has the result of the gate."""

    exit_code = 11


class NotTrustworthy(AuditError):
    """Exit code 12: a finding invalidates the numbers."""

    exit_code = 12


class Incomplete(AuditError):
    """Exit code 13: parts of a run are missing."""

    exit_code = 13


class Interrupted(AuditError):
    """Exit code 130: interrupted by the user."""

    exit_code = 130


_CLASSES: tuple[type[AuditError], ...] = (
    InternalError,
    UsageError,
    ModelError,
    NothingToEvaluate,
    GateFailed,
    Regression,
    NotTrustworthy,
    Incomplete,
    Interrupted,
)

#: The class for each exit code.
BY_EXIT_CODE: dict[int, type[AuditError]] = {kind.exit_code: kind for kind in _CLASSES}


#: The program's error for a flag that no command has, and the most similar flag.
_UNKNOWN = re.compile(r"unexpected argument '--([\w-]+)' found(?:\s+tip: [\w ]+: '--([\w-]+)')?")

#: The program's error for a flag of another tool, and the flag of the same meaning.
_ELSEWHERE = re.compile(r"unknown flag --([\w-]+); use --([\w-]+)")


def error(exit_code: int, message: str, report: Any = None) -> AuditError:
    """Returns the exception for an exit code; a plain ``AuditError`` for other codes, such as those of signals.

    An unknown flag is called by the name of its argument.
    """
    unknown = _UNKNOWN.search(message) or _ELSEWHERE.search(message)
    if unknown is not None:
        name, near = (flag and flag.replace("-", "_") for flag in unknown.groups())
        hint = f"Did you mean {near}?" if near else "`audit --help` lists the flags"
        message = f"{name} is no argument of this function, and no flag of the program. {hint}"
    return BY_EXIT_CODE.get(exit_code, AuditError)(message, exit_code, report)
