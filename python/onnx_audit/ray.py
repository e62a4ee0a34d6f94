"""Runs an audit in parts on Ray: ``python -m onnx_audit.ray model.onnx --data photos/ --out results/ --parts
64``.

First computes the embeddings, then runs the parts as tasks, then merges them. After a failure the same
command continues, and skips finished parts. docs/engines.md lists the requirements.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from . import binary
from .commands import load
from .errors import AuditError, Incomplete, UsageError, error
from .model import fingerprint
from .staging import staged

try:
    import ray
except ImportError:  # pragma: no cover - needs an environment without Ray
    raise ImportError("onnx_audit.ray needs Ray: pip install ray fsspec tqdm") from None

#: Exit codes after which a retry may succeed: failures of the machine, and interrupts.
TRANSIENT = (1, 130)


class Retry(Exception):
    """A task failed in a way that a retry may fix."""


@ray.remote(num_cpus=0)
class Progress:
    """Collects the progress of all tasks for one bar: steps done and in total, by task."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[int, int]] = {}

    def tell(self, part: str, done: int, total: int) -> None:
        self.parts[part] = (done, total)

    def all(self) -> dict[str, tuple[int, int]]:
        return self.parts


@ray.remote
def _task(name: str, words: list[str], places: dict[str, str], progress: Any) -> None:
    """Runs the program once. The last word is the file that it writes.

    ``places`` maps flags to paths or URLs, which are copied to this node first. The key of the model is the
    empty string, since it has no flag. Raises the exception of the exit code, and ``Retry`` if a retry may
    help.
    """
    file = Path(words[-1])
    for flag, place in places.items():
        words = [*words, *([flag] if flag else []), staged(place)]
    last = 0.0

    def watch(event: binary.Event) -> None:
        nonlocal last
        if event["event"] == "progress" and (time.monotonic() - last > 1 or event["done"] == event["total"]):
            last = time.monotonic()
            progress.tell.remote(name, event["done"], event["total"])

    # At once: a program that still saved its journal would hold it against the task's next try. Windows has
    # no such signal.
    at_once = getattr(signal, "SIGKILL", signal.SIGTERM)
    done = binary.run([*words, "--progress=json"], watch, orphan_signal=at_once)
    if done.exit_code < 0 or done.exit_code in TRANSIENT:
        raise Retry(f"{name}: exit code {done.exit_code}: {done.message}")
    # A part that is not trustworthy is merged, if it was written: the merged report then has the finding.
    if done.exit_code != 0 and not (done.exit_code == 12 and file.exists()):
        raise error(done.exit_code, f"{name}: {done.message or done.text.strip()}")


def _run_all(tasks: dict[str, list[str]], places: dict[str, str], options: dict[str, Any], what: str) -> None:
    """Runs tasks to their end and shows one bar. Raises the first error that retries don't fix."""
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
                except ray.exceptions.RayTaskError as failure:
                    raise failure.cause if isinstance(failure.cause, AuditError) else Incomplete(str(failure.cause)) from None
                except ray.exceptions.RayError as failure:
                    raise Incomplete(f"{name}: {failure}") from None
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


#: Settings on which embeddings depend. Parts of an audit depend on all settings.
_OF_EMBEDDINGS = ("version", "model_sha256", "data", "embed_flags")


def _same_run(folder: Path, settings: dict[str, Any]) -> None:
    """Writes ``run.json``, the settings of a run, into the folder of its parts. If there are parts already,
    of embeddings or of the audit, also begun ones, first compares the settings on which these depend.

    Raises ``UsageError`` if they differ: the parts of two runs would be merged.
    """
    file = folder / "run.json"
    if any(folder.glob("part-*.json*")):
        _compare(file, settings)
        return
    if any(folder.glob("gallery*.parquet")):
        _compare(file, {name: settings[name] for name in _OF_EMBEDDINGS})
    draft = file.with_suffix(".partial")
    draft.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    draft.replace(file)


def _compare(file: Path, settings: dict[str, Any]) -> None:
    """Raises ``UsageError`` if ``file``, the ``run.json`` of a folder with parts, has other settings."""
    folder = file.parent
    advice = "Name another folder with --out, or remove it"
    try:
        earlier = dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as failure:
        raise UsageError(
            f"{folder} has parts of a run, and its settings can't be read: {failure}. {advice}"
        ) from None
    differ = [
        f"{name} {json.dumps(earlier.get(name))} there and {json.dumps(value)} here"
        for name, value in settings.items()
        if earlier.get(name) != value
    ]
    if differ:
        raise UsageError(f"{folder} has the parts of another run: {'; '.join(differ)}. {advice}")


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
    """Runs an audit in ``parts`` parts on the Ray cluster that ``ray.init`` connected, and returns the
    report's path.

    ``model`` and ``data`` are paths on a file system that all nodes share, or fsspec URLs, which each node
    copies once. ``out`` is a folder on such a file system. ``embed_flags`` are the flags of ``audit`` that
    ``audit embed`` accepts too, ``flags`` all others, as words of the command line. Each part uses ``cpus``
    cores, and ``gpus`` GPUs with ``--ep cuda``. A part whose process or node dies is retried up to
    ``retries`` times, and continues from its journal. ``reports`` are further files to write the report to.

    Raises the exception of the exit code, and ``Incomplete`` if a part fails more often than ``retries``
    allows. ``NotTrustworthy`` has the report if one was written. Raises ``UsageError`` if ``out`` has the
    parts of another model, of other images, or with other flags.
    """
    folder = Path(out).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        sha256 = fingerprint(staged(model))
    except OSError as failure:
        raise UsageError(f"model {model}: {failure}") from failure
    settings = {
        "version": binary.checked(["--version"]).partition("\n")[0],
        "model_sha256": sha256,
        "data": data,
        "flags": [os.fspath(word) for word in flags or []],
        "embed_flags": [os.fspath(word) for word in embed_flags or []],
        "parts": parts,
    }
    _same_run(folder, settings)
    places = {"": model} | ({"--data": data} if data is not None else {})
    machine = ["--ep=cuda"] if gpus else ["--ep=cpu", f"--threads={max(1, int(cpus))}"]
    options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": retries}
    gallery = folder / "gallery.parquet"
    if not gallery.exists():
        count = max(1, min(parts, int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1) / (gpus or cpus))))
        # The cluster may have changed since, and only parts of the same number form a whole.
        for begun in folder.glob("gallery-*-of-*.parquet"):
            count = int(begun.stem.rpartition("-")[2])
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
    results = {f"hash:{i}/{parts}": folder / f"part-{i}-of-{parts}.json" for i in range(1, parts + 1)}
    shared = ["run", *machine, *(embed_flags or []), *(flags or []), "--gallery-cache", str(gallery), "--resume"]
    tasks = {
        f"part {part}": [*shared, "--partition", part, "-o", str(file)] for part, file in results.items() if not file.exists()
    }
    _run_all(tasks, places, options, "parts")
    whole = folder / "report.json"
    written = [str(whole), *(reports or [])]
    done = binary.run(["merge", *map(str, results.values()), *(word for file in written for word in ("-o", file))])
    if done.exit_code not in (0, 12):
        raise error(done.exit_code, done.message or done.text.strip())
    print(done.text, end="")
    if done.exit_code != 0:
        report = load(whole)
        raise error(done.exit_code, done.message or report.words, report)
    return whole


def main(words: list[str] | None = None) -> int:
    """Runs the command line. Returns the exit code of ``audit``."""
    parser = argparse.ArgumentParser(
        prog="python -m onnx_audit.ray",
        description="Runs an audit in parts on Ray. All other flags are passed on to `audit`.",
        epilog="Exit codes are those of audit. 13: a part failed more often than --retries allows.",
    )
    parser.add_argument("model", help="the model: a path that all nodes share, or an fsspec URL")
    parser.add_argument("--data", help="the images: a path that all nodes share, or an fsspec URL")
    parser.add_argument("--out", required=True, help="folder that all nodes share, for embeddings, journals and reports")
    parser.add_argument("--parts", type=int, required=True, help="number of parts, about eight for each worker")
    parser.add_argument("--embed-flag", action="append", default=[], metavar="FLAG", help="flag of `audit` that `audit embed` "
                        "accepts too, such as --embed-flag=--card=model.yaml; can be repeated")
    parser.add_argument("--cpus", type=float, default=1, help="cores for each part [1]")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs for each part [0]; such parts run with --ep cuda")
    parser.add_argument("--retries", type=int, default=5, help="retries of a part whose process or node died [5]")
    parser.add_argument("--address", help="address of a Ray cluster, or auto for the cluster of this node [start a local one]")
    parser.add_argument("-o", "--report", action="append", default=[], help="further file for the report, such as report.html; "
                        "can be repeated")
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
    except AuditError as failure:
        print(f"audit: {failure}", file=sys.stderr)
        return failure.exit_code
    finally:
        ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
