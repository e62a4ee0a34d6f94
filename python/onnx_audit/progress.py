"""Shows the progress of an audit with tqdm."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .binary import Event

#: Format without tqdm's own time left, which it computes from the mean rate: attacks that stop early distort it.
FORMAT = "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"


def _time(expected: float | None, most: float | None) -> list[str]:
    """Formats the time left as the program does: the expected time, and the upper bound if it is much larger."""
    if expected is None:
        return []
    bound = f", at most {span(most)}" if most is not None and 2 * expected < most else ""
    return [f"about {span(expected)} left{bound}"]


def span(seconds: float) -> str:
    """Formats a duration as the program does: "40 s", "12 min", "3 h 20 min"."""
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 6000:
        return f"{-(-whole // 60)} min"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


#: True shows a bar, False none, None a bar on a terminal and in a notebook. A function is called with every event.
Progress = bool | Callable[[Event], None] | None


def watcher(progress: Progress) -> Callable[[Event], None] | None:
    """Returns the function to call with every event; None if no progress is shown.

    ``progress=None`` shows a bar on a terminal and in a notebook if tqdm is installed. Raises ``ImportError``
    for ``progress=True`` if tqdm is not installed.
    """
    if callable(progress):
        return progress
    if progress is False or (progress is None and not _interactive()):
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        if progress is None:
            return None
        raise ImportError("progress=True needs tqdm: pip install tqdm") from None
    return _Bar(tqdm)


def _interactive() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class _Bar:
    """The bar of an audit, updated by its events."""

    def __init__(self, tqdm: Any) -> None:
        self.tqdm = tqdm
        self.bar: Any = None

    def __call__(self, event: Event) -> None:
        kind = event["event"]
        if kind == "start":
            if self.bar is None:
                self.bar = self.tqdm(unit="step", leave=False, bar_format=FORMAT)
            self.bar.reset(total=None)
            self.bar.set_description(event["phase"])
        elif kind == "progress" and self.bar is not None:
            self.bar.total = event["total"]
            words = []
            if "attack" in event:
                broken = event.get("queries_broken")
                done = f"{event['queries_done']}/{event['queries']} queries"
                counted = done if broken is None else f"{broken}/{event['queries']} queries wrong"
                words.append(f"{event['attack']} {counted}")
            words.extend(_time(event.get("seconds_expected"), event.get("seconds_left")))
            self.bar.n = event["done"]
            self.bar.set_postfix_str(", ".join(words))
        elif kind in ("note", "warning"):
            self.tqdm.write(event["text"], file=sys.stderr)
        elif kind in ("end", "error") and self.bar is not None:
            if kind == "end" and self.bar.total is not None:
                # A phase can end before its last step.
                self.bar.n = self.bar.total
                self.bar.set_postfix_str("")
            # A closed bar shows nothing, so the next phase makes its own: phases may follow the attacks.
            self.bar.close()
            self.bar = None
