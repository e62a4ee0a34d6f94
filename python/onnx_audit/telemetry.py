"""Libraries that report how they are used: here they don't, unless the user says so."""

import os

#: Variables that ONNX Runtime and Ray read when they are loaded, and the values that turn their telemetry off.
OFF = {"ORT_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def disable() -> None:
    """Sets the variables in this process, whose child processes inherit them. A value that is there stands."""
    for name, value in OFF.items():
        if not os.environ.get(name):
            os.environ[name] = value
