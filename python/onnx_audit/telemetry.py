"""Turns off the telemetry of libraries, unless the user has set their variables."""

import os

#: Environment variables that ONNX Runtime and Ray read when they are loaded, and the values that turn telemetry off.
OFF = {"ORT_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def disable() -> None:
    """Sets the variables for this process and its children. Variables that already have a value are not changed."""
    for name, value in OFF.items():
        if not os.environ.get(name):
            os.environ[name] = value
