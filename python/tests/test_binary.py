"""The program as a child process: it ends with its parent, and on an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Windows are others")

#: A program that notes its number, and each signal that it gets. SIGTERM ends it, if the test wants so.
PROGRAM = """#!{python}
import os, signal, sys, time
log = open({log!r}, "a", buffering=1)
def note(number, _):
    log.write(signal.Signals(number).name + "\\n")
    if number == signal.SIGTERM:
        sys.exit(130)
signal.signal(signal.SIGINT, note)
signal.signal(signal.SIGTERM, note)
log.write(f"{{os.getpid()}}\\n")
time.sleep(60)
time.sleep(60)
time.sleep(60)
"""


@pytest.fixture
def parent(tmp_path: Path):
    """Returns a function that starts a Python process with a running program, and returns both and the log.

    The program runs in a thread of that process, as in servers and notebooks, or in its main thread.
    """
    started = []

    def start(thread: bool) -> tuple[subprocess.Popen[bytes], int, Path]:
        log, program = tmp_path / "log", tmp_path / "audit"
        program.write_text(PROGRAM.format(python=sys.executable, log=str(log)))
        program.chmod(0o755)
        # In the background, a shell has its programs ignore interrupts.
        script = "import signal, threading; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        script += "from onnx_audit import binary\n"
        script += "threading.Thread(target=binary.run, args=[[]]).start()" if thread else "binary.run([])"
        child = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "AUDIT_BIN": str(program)})
        started.append(child)
        wait(lambda: log.exists() and log.read_text().endswith("\n"))
        return child, int(log.read_text()), log

    yield start
    for child in started:
        child.kill()
        child.wait()


def wait(until, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.02)


def runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    # A zombie, if nobody waits for orphans here.
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such signal")
@pytest.mark.parametrize("thread", [False, True])
def test_an_audit_ends_with_its_process_and_can_save_its_journal(parent, thread: bool):
    child, program, log = parent(thread)
    # A thread that has started the program waits for it, so the signal doesn't come early.
    time.sleep(0.3)
    assert runs(program) and log.read_text() == f"{program}\n"
    child.kill()
    wait(lambda: not runs(program))
    assert log.read_text() == f"{program}\nSIGTERM\n"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_second_interrupt_kills_the_program(parent):
    child, program, log = parent(False)
    child.send_signal(signal.SIGINT)
    wait(lambda: log.read_text() == f"{program}\nSIGINT\n")
    assert runs(program) and child.poll() is None
    child.send_signal(signal.SIGINT)
    # Python's exit code of an interrupt that nobody catches.
    assert child.wait(20) in (1, -signal.SIGINT)
    assert not runs(program)
