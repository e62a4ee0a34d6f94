"""Adversarial robustness of image-retrieval models: audits, reports, comparisons and gradients.

    import onnx_audit
    report = onnx_audit.audit("model.onnx", "photos/", max_queries=50)
    report.eps50, report.robust_r1, report.ladder, report.scores, report.trials

The program ``audit``, which comes with this package, does the computation. docs/python.md has examples.
"""

from __future__ import annotations

from . import telemetry as _telemetry  # first: before anything imports onnxruntime

_telemetry.disable()

from .commands import audit, compare, gate, inspect, load
from .errors import (
    AuditError,
    GateFailed,
    Incomplete,
    InternalError,
    Interrupted,
    ModelError,
    NothingToEvaluate,
    NotTrustworthy,
    Regression,
    UsageError,
)
from .gradient import Gradient
from .report import Comparison, Report

__all__ = [
    "AuditError",
    "Comparison",
    "GateFailed",
    "Gradient",
    "Incomplete",
    "InternalError",
    "Interrupted",
    "ModelError",
    "NotTrustworthy",
    "NothingToEvaluate",
    "Regression",
    "Report",
    "UsageError",
    "audit",
    "compare",
    "gate",
    "inspect",
    "load",
]
