"""Finds the program `audit` and runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .errors import UsageError, error

#: A line that ``audit --progress json`` prints, as a dictionary.
Event = dict[str, Any]

#: Environment variable with the path of another ``audit`` than the installed one.
VARIABLE = "AUDIT_BIN"


class Done(NamedTuple):
    """Result of a run of the program."""

    exit_code: int
    #: Standard output.
    text: str
    #: Error message; empty if there was none.
    message: str


def program() -> Path:
    """Returns the path of ``audit``: AUDIT_BIN if it is set, else the program that pip installed with this
    package.

    Programs of this name on the PATH are ignored. Raises ``UsageError`` if neither exists.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not Path(named).is_file():
            raise UsageError(f"{VARIABLE}={named} is not a file. Correct it, or unset it")
        return Path(named).absolute()
    name = "audit.exe" if os.name == "nt" else "audit"
    user = sysconfig.get_preferred_scheme("user")
    folders = [
        Path(sysconfig.get_path("scripts")),
        Path(sys.executable).parent,
        Path(sysconfig.get_path("scripts", user)),
        # For pip install --target.
        Path(__file__).parent.parent / "bin",
    ]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    listed = ", ".join(str(folder) for folder in folders)
    raise UsageError(
        f"expected the program {name} in one of {listed}; found none. Install it with `pip install .` in a checkout of "
        f"audit, or set the environment variable {VARIABLE} to its path"
    )


def flags(values: Mapping[str, Any]) -> list[str]:
    """Returns keyword arguments as flags of the command line.

    ``max_queries=50`` becomes ``--max-queries=50``. True gives a flag without a value; False and None omit
    the flag. A list or tuple repeats the flag, except for a height and a width: ``size=(256, 128)`` becomes
    ``--size=256x128``. A dictionary repeats it as ``key=value``: ``fail_under={"robust_r1": 30}``. Arrays and
    numbers of NumPy and PyTorch count as lists and numbers.
    """
    words: list[str] = []
    for name, value in values.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        # NumPy's True is not Python's.
        value = _plain(value)
        if name in _SIZES and isinstance(value, (list, tuple)) and len(value) == 2:
            value = f"{value[0]}x{value[1]}"
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
            continue
        words.extend(f"{flag}={item}" for item in items(value))
    return words


#: Flags whose value is a height and a width.
_SIZES = ("size", "resize")


def _plain(value: Any) -> Any:
    """Returns arrays and numbers of NumPy, PyTorch and pandas as Python's lists and numbers."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def items(value: Any) -> list[Any]:
    """Returns the values of a flag: one for each time that it is repeated."""
    value = _plain(value)
    if isinstance(value, Mapping):
        return [f"{key}={bound}" for key, bound in value.items()]
    return list(value) if isinstance(value, (list, tuple)) else [value]


def run(
    words: Iterable[str | os.PathLike[str]],
    watch: Callable[[Event], None] | None = None,
    orphan_signal: signal.Signals = signal.SIGTERM,
) -> Done:
    """Runs the program and returns its exit code and output.

    ``words`` are the arguments of the command line. ``watch`` is called with every event if the words contain
    ``--progress=json``.

    An interrupt (Ctrl-C, or a notebook's stop button) is passed on to the program, which saves its journal
    and exits; a second one kills it. On Linux, the program gets ``orphan_signal`` when this process dies: by
    default it saves its journal and exits. On other systems it runs on.
    """
    command = [str(program()), *(os.fspath(word) for word in words)]
    # Its own process group: otherwise a terminal interrupts both processes, and the program exits at once on a
    # second interrupt.
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_signalled_after(os.getpid(), orphan_signal) if sys.platform == "linux" else None,
    )
    assert child.stdout is not None and child.stderr is not None
    printed: list[bytes] = []
    # In a thread, so that neither pipe fills up.
    reader = threading.Thread(target=lambda out=child.stdout: printed.append(out.read()), daemon=True)
    reader.start()
    errors: list[str] = []
    try:
        for line in child.stderr:
            text = line.decode("utf-8", "replace").rstrip("\n")
            event = _event(text)
            if event is None or event.get("event") == "error":
                errors.append(text if event is None else str(event.get("text", text)))
            if event is not None and watch is not None:
                watch(event)
        child.wait()
    except BaseException:
        child.send_signal(signal.SIGINT if os.name != "nt" else signal.SIGTERM)
        try:
            child.wait(timeout=30)
        except BaseException:
            # Thirty seconds are over, or the user interrupts again.
            child.kill()
            child.wait()
        raise
    finally:
        child.stderr.close()
        reader.join()
        child.stdout.close()
    message = "\n".join(errors).strip().removeprefix("audit: ")
    return Done(child.returncode, b"".join(printed).decode("utf-8", "replace"), message)


def _signalled_after(parent: int, number: signal.Signals) -> Callable[[], None] | None:
    """Returns a function for a child process to call first: it makes the system send the signal to the child
    when the process ``parent`` dies. Returns None if this Python can't ask the system for it.

    Linux sends it when the *thread* dies that started the child. ``run`` waits in this thread until the child
    ends, so the thread dies earlier only with its process.
    """
    try:
        import ctypes

        # Found before the fork: the child must not wait for the loader's lock.
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (ImportError, OSError, AttributeError):
        return None
    set_death_signal = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>

    def begin() -> None:
        prctl(set_death_signal, int(number))
        if os.getppid() != parent:  # The parent died before the call of prctl.
            os._exit(1)

    return begin


def checked(words: Iterable[str | os.PathLike[str]]) -> str:
    """Runs a command and returns its standard output. Raises the exception of its exit code if that is not 0."""
    done = run(words)
    if done.exit_code != 0:
        raise error(done.exit_code, done.message or done.text.strip())
    return done.text


def _event(text: str) -> Event | None:
    """Parses a line of ``--progress json``. Returns None for any other line, such as a usage error."""
    try:
        event = json.loads(text)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
