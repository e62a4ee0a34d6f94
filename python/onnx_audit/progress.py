"""Progress of an audit, shown by tqdm."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .binary import Event

#: What callers may say of progress: shown where somebody looks, shown, not shown, or given to a function.
Progress = bool | Callable[[Event], None] | None


def watcher(progress: Progress) -> Callable[[Event], None] | None:
    """The function that gets the events. None as ``progress`` shows a bar on a terminal and in a notebook, if tqdm is installed.

    Raises ``ImportError`` where True is given and tqdm is not installed.
    """
    if callable(progress):
        return progress
    if progress is False or (progress is None and not _watched()):
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if progress is None:
            return None
        raise ImportError("progress=True wants tqdm: pip install tqdm") from None
    return _Bar(tqdm)


def _watched() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class _Bar:
    """One bar, which follows the events of one audit."""

    def __init__(self, tqdm: Any) -> None:
        self.tqdm = tqdm
        self.bar: Any = None

    def __call__(self, event: Event) -> None:
        kind = event["event"]
        if kind == "start":
            if self.bar is None:
                self.bar = self.tqdm(unit="step", leave=False)
            self.bar.reset(total=None)
            self.bar.set_description(event["phase"])
        elif kind == "progress" and self.bar is not None:
            self.bar.total = event["total"]
            if "attack" in event:
                self.bar.set_postfix_str(f"{event['attack']} {event['queries_done']}/{event['queries']} queries")
            self.bar.update(event["done"] - self.bar.n)
        elif kind in ("note", "warning"):
            self.tqdm.write(event["text"], file=sys.stderr)
        elif kind == "error" or (kind == "end" and event["phase"] == "attacks"):
            if self.bar is not None:
                self.bar.close()
