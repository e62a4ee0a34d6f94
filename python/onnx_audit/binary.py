"""Finding the program `audit` and running it."""

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

#: What happens during an audit: an object of the JSON lines that ``audit --progress json`` prints.
Event = dict[str, Any]

#: The environment variable that names another program than the installed one.
VARIABLE = "AUDIT_BIN"


class Done(NamedTuple):
    """A program that ended."""

    exit_code: int
    #: What it printed.
    text: str
    #: What it said went wrong; empty where nothing did.
    message: str


def program() -> Path:
    """The program ``audit``: the one that AUDIT_BIN names, else the one that pip installed with this package.

    Other programs of this name on the PATH are ignored. Raises ``UsageError`` where there is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not Path(named).is_file():
            raise UsageError(f"{VARIABLE} names {named}, which is not a file; correct it, or unset it")
        return Path(named).absolute()
    name = "audit.exe" if os.name == "nt" else "audit"
    user = sysconfig.get_preferred_scheme("user")
    folders = [
        Path(sysconfig.get_path("scripts")),
        Path(sys.executable).parent,
        Path(sysconfig.get_path("scripts", user)),
        # pip install --target
        Path(__file__).parent.parent / "bin",
    ]
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    listed = ", ".join(str(folder) for folder in folders)
    raise UsageError(
        f"expected the program {name} in one of {listed}, found none; install it with `pip install onnx-audit`, "
        f"or name it in the environment variable {VARIABLE}"
    )


def flags(values: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as flags of the command line.

    ``max_queries=50`` is ``--max-queries=50``. True gives the flag alone; False and None leave it out. A list or a tuple
    repeats the flag, and so does a dictionary, as ``key=value``: ``fail_under={"robust_r1": 30}``.
    """
    words: list[str] = []
    for name, value in values.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
            continue
        items: Iterable[Any]
        if isinstance(value, Mapping):
            items = [f"{key}={bound}" for key, bound in value.items()]
        elif isinstance(value, (list, tuple)):
            items = value
        else:
            items = [value]
        words.extend(f"{flag}={item}" for item in items)
    return words


def run(
    words: Iterable[str | os.PathLike[str]],
    watch: Callable[[Event], None] | None = None,
    die_with_parent: bool = False,
) -> Done:
    """Runs the program to its end. ``watch`` gets every event of ``--progress json``, which the words must ask for.

    With ``die_with_parent`` the program is killed when this process is (Linux only), so that whoever starts it again has its
    journal alone.

    An interrupt (Ctrl-C, or a notebook's stop button) is passed on. The program then ends cleanly and keeps its journal.
    """
    command = [str(program()), *(os.fspath(word) for word in words)]
    # A group of its own: a terminal would otherwise interrupt both, and the program takes a second interrupt as an order
    # to stop at once.
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_killed_with(os.getpid()) if die_with_parent and sys.platform == "linux" else None,
    )
    assert child.stdout is not None and child.stderr is not None
    printed: list[bytes] = []
    # Read beside stderr, so that neither pipe fills up.
    reader = threading.Thread(target=lambda out=child.stdout: printed.append(out.read()), daemon=True)
    reader.start()
    said: list[str] = []
    try:
        for line in child.stderr:
            text = line.decode("utf-8", "replace").rstrip("\n")
            event = _event(text)
            if event is None or event.get("event") == "error":
                said.append(text if event is None else str(event.get("text", text)))
            if event is not None and watch is not None:
                watch(event)
        child.wait()
    except BaseException:
        child.send_signal(signal.SIGINT if os.name != "nt" else signal.SIGTERM)
        try:
            child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            child.kill()
        raise
    finally:
        child.stderr.close()
        reader.join()
        child.stdout.close()
    message = "\n".join(said).strip().removeprefix("audit: ")
    return Done(child.returncode, b"".join(printed).decode("utf-8", "replace"), message)


def _killed_with(parent: int) -> Callable[[], None]:
    """What a child does first so that it ends with the process ``parent``."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    set_death_signal = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>

    def begin() -> None:
        libc.prctl(set_death_signal, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended meanwhile
            os.kill(os.getpid(), signal.SIGKILL)

    return begin


def checked(words: Iterable[str | os.PathLike[str]]) -> str:
    """Runs a command and gives what it printed. Raises the exception of its exit code where that is not 0."""
    done = run(words)
    if done.exit_code != 0:
        raise error(done.exit_code, done.message or done.text.strip())
    return done.text


def _event(text: str) -> Event | None:
    """A line of ``--progress json``; None for any other line, such as those of wrong usage."""
    try:
        event = json.loads(text)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
