"""An audit in parts on Ray: ``python -m onnx_audit.ray model.onnx --data photos/ --out results/ --parts 64``.

Embeddings first, then the parts as tasks, then the merge. What is done is not done again: the same command goes on after a
failure. docs/engines.md says what it needs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from . import binary
from .errors import AuditError, Incomplete, error
from .staging import staged

try:
    import ray
except ImportError:  # pragma: no cover - told in words
    raise ImportError("onnx_audit.ray needs Ray: pip install ray fsspec tqdm") from None

#: Exit codes after which a part may come out well on another try: faults of the machine, and interrupts.
TRANSIENT = (1, 130)


class Retry(Exception):
    """A part that may come out well on another try."""


@ray.remote(num_cpus=0)
class Progress:
    """How far the parts are. It gathers what they say, for one bar."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[int, int]] = {}

    def tell(self, part: str, done: int, total: int) -> None:
        self.parts[part] = (done, total)

    def all(self) -> dict[str, tuple[int, int]]:
        return self.parts


@ray.remote
def _task(name: str, words: list[str], places: dict[str, str], progress: Any) -> None:
    """Runs the program once. ``places`` are flags whose values are staged, by the flag; that of the model is empty."""
    for flag, place in places.items():
        words = [*words, *([flag] if flag else []), staged(place)]
    last = 0.0

    def watch(event: binary.Event) -> None:
        nonlocal last
        if event["event"] == "progress" and (time.monotonic() - last > 1 or event["done"] == event["total"]):
            last = time.monotonic()
            progress.tell.remote(name, event["done"], event["total"])

    done = binary.run([*words, "--progress=json"], watch, die_with_parent=True)
    if done.exit_code < 0 or done.exit_code in TRANSIENT:
        raise Retry(f"{name}: exit code {done.exit_code}: {done.message}")
    if done.exit_code not in (0, 12):
        raise error(done.exit_code, f"{name}: {done.message or done.text.strip()}")


def _run_all(tasks: dict[str, list[str]], places: dict[str, str], options: dict[str, Any], what: str) -> None:
    """Runs tasks to their end and shows one bar. Raises the first error that no other try mends."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        tqdm = None
    progress = Progress.remote()  # type: ignore[attr-defined]
    waiting = {
        _task.options(name=f"audit {name}", retry_exceptions=[Retry], **options).remote(name, words, places, progress): name
        for name, words in tasks.items()
    }
    bar = tqdm(total=len(tasks), unit="part", desc=what) if tqdm else None
    try:
        while waiting:
            ready, _ = ray.wait(list(waiting), timeout=1.0)
            for reference in ready:
                name = waiting.pop(reference)
                try:
                    ray.get(reference)
                except ray.exceptions.RayTaskError as failed:
                    raise failed.cause if isinstance(failed.cause, AuditError) else Incomplete(str(failed.cause)) from None
                except ray.exceptions.RayError as failed:
                    raise Incomplete(f"{name}: {failed}") from None
            shares = ray.get(progress.all.remote())
            left = set(waiting.values())
            share = sum(done / max(total, 1) for part, (done, total) in shares.items() if part in left)
            if bar is not None:
                bar.n = round(len(tasks) - len(waiting) + share, 2)
                bar.refresh()
    finally:
        if bar is not None:
            bar.close()
        for reference in waiting:
            ray.cancel(reference, force=True)


def run(
    model: str,
    out: str | os.PathLike[str],
    parts: int,
    data: str | None = None,
    *,
    flags: list[str] | None = None,
    embed_flags: list[str] | None = None,
    cpus: float = 1,
    gpus: float = 0,
    retries: int = 5,
    reports: list[str] | None = None,
) -> Path:
    """Runs all parts on the Ray cluster that ``ray.init`` has connected, merges them, and returns the path of the report.

    ``model`` and ``data`` are paths that all nodes see, or fsspec URLs, which each node copies once. ``out`` is a folder that
    all nodes see. ``flags`` are words of ``audit``'s command line; ``embed_flags`` those of them that ``audit embed`` takes too.
    Each part has ``cpus`` cores, and ``gpus`` GPUs with ``--ep cuda``. A part whose process or node dies is tried ``retries``
    more times, and goes on from its journal.
    """
    folder = Path(out).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    places = {"": model} | ({"--data": data} if data is not None else {})
    machine = ["--ep=cuda"] if gpus else ["--ep=cpu", f"--threads={max(1, int(cpus))}"]
    options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": retries}
    gallery = folder / "gallery.parquet"
    if not gallery.exists():
        count = max(1, min(parts, int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1) / (gpus or cpus))))
        files = {f"hash:{i}/{count}": folder / f"gallery-{i}-of-{count}.parquet" for i in range(1, count + 1)}
        tasks = {
            f"embeddings {part}": ["embed", *machine, *(embed_flags or []), "--partition", part, "-o", str(file)]
            for part, file in files.items()
            if not file.exists()
        }
        _run_all(tasks, places, options, "embeddings")
        binary.checked(["merge", *map(str, files.values()), "-o", str(gallery)])
        for file in files.values():
            file.unlink()
    made = {f"hash:{i}/{parts}": folder / f"part-{i}.json" for i in range(1, parts + 1)}
    shared = ["run", *machine, *(embed_flags or []), *(flags or []), "--gallery-cache", str(gallery), "--resume"]
    tasks = {
        f"part {part}": [*shared, "--partition", part, "-o", str(file)] for part, file in made.items() if not file.exists()
    }
    _run_all(tasks, places, options, "parts")
    whole = folder / "report.json"
    written = [str(whole), *(reports or [])]
    done = binary.run(["merge", *map(str, made.values()), *(word for file in written for word in ("-o", file))])
    if done.exit_code not in (0, 12):
        raise error(done.exit_code, done.message or done.text.strip())
    print(done.text, end="")
    return whole


def main(words: list[str] | None = None) -> int:
    """The command line. Returns the exit code, which is that of ``audit``."""
    parser = argparse.ArgumentParser(
        prog="python -m onnx_audit.ray",
        description="An audit in parts on Ray. Flags that it doesn't know are those of `audit`.",
        epilog="Exit codes are those of audit; 13: a part failed more often than --retries allows.",
    )
    parser.add_argument("model", help="the model: a path that all nodes see, or an fsspec URL")
    parser.add_argument("--data", help="the images: a path that all nodes see, or an fsspec URL")
    parser.add_argument("--out", required=True, help="folder that all nodes see, for embeddings, journals and reports")
    parser.add_argument("--parts", type=int, required=True, help="number of parts, about eight for each worker")
    parser.add_argument("--embed-flag", action="append", default=[], metavar="FLAG", help="flag of the model or the images, which "
                        "`audit embed` takes too: --embed-flag=--card=model.yaml. May be repeated")
    parser.add_argument("--cpus", type=float, default=1, help="cores for each part [1]")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs for each part [0]; such parts run with --ep cuda")
    parser.add_argument("--retries", type=int, default=5, help="further tries of a part whose process or node died [5]")
    parser.add_argument("--address", help="a Ray cluster, or auto for the one of this node [a local one is started]")
    parser.add_argument("-o", "--report", action="append", default=[], help="further file for the report, .html for instance")
    known, flags = parser.parse_known_args(words)
    if known.parts < 1:
        parser.error("--parts: expected 1 or more")
    ray.init(address=known.address, log_to_driver=False, logging_level="warning")
    try:
        run(
            known.model,
            known.out,
            known.parts,
            known.data,
            flags=flags,
            embed_flags=known.embed_flag,
            cpus=known.cpus,
            gpus=known.gpus,
            retries=known.retries,
            reports=known.report,
        )
    except AuditError as failed:
        print(f"audit: {failed}", file=sys.stderr)
        return failed.exit_code
    finally:
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
