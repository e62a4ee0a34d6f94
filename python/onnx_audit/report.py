"""Reports and comparisons of them."""

from __future__ import annotations

import csv
import functools
import html
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from . import binary, frames
from .frames import Row

#: What people call the first numbers, and their names in gates.
_FIRST = (
    ("clean R@1", "benign.r1"),
    ("ARS", "ars"),
    ("ERS", "ers"),
    ("ARS, strong", "ars_strong"),
    ("robust R@1", "robust_r1"),
    ("robust top-1", "robust_top1"),
    ("ε50, in 255ths", "eps50"),
)

#: Columns of the program's .csv that are texts. All others are numbers, and yes and no are 1 and 0.
_TEXTS = (
    *("model", "model_sha256", "data", "data_sha256", "suite", "form", "norm"),
    *("attack", "query", "query_label", "targets", "target_labels", "status"),
)


def _number(cell: str) -> int | float | str | None:
    """A cell of a column of numbers; None where it is empty. A newer program may have a column of texts: these stay texts."""
    if not cell:
        return None
    try:
        return int(cell) if cell.lstrip("-").isdigit() else float(cell)
    except ValueError:
        return cell


class _Document:
    """Something that the program wrote as JSON, and makes other formats of."""

    def __init__(self, text: str) -> None:
        #: The JSON as text.
        self.text = text
        #: The JSON as Python values; `audit schema` prints the schema of reports.
        self.json: dict[str, Any] = json.loads(text)

    def _page(self) -> str:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """The HTML page of the program, in a frame of its own so that its styles stay apart from the notebook's."""
        page = html.escape(self._page(), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:640px;border:0" title="audit"></iframe>'


class Report(_Document):
    """The report of an audit, as the program wrote it (docs/reports.md).

    ``text`` is its JSON, ``json`` the same as Python values.
    """

    @property
    def clean_r1(self) -> float | None:
        """R@1 without attack, in per cent; None if the images have no classes."""
        return float(self.json["benign"]["r1"]) if "benign" in self.json else None

    @property
    def robust_r1(self) -> float | None:
        """R@1 under the strong search, in per cent; None if it was not measured or is withheld (docs/reports.md)."""
        return self._score("robust_r1")

    @property
    def robust_top1(self) -> float | None:
        """Of images without classes the share whose nearest image stays the same under the strong search, in per cent; None as with
        ``robust_r1``."""
        return self._score("robust_top1")

    @property
    def eps50(self) -> float | None:
        """The ε at which half of the correct queries fail, in 255ths; the largest ε searched if fewer than half fail there. None if the suite
        has no ladder of ε, or it is withheld."""
        return self._score("eps50")

    @property
    def ars(self) -> float | None:
        """Adversarial resistance score, 0-100; None if the suite has none or it is withheld."""
        return self._score("ars")

    @property
    def ers(self) -> float | None:
        """Empirical robustness score, 0-100; None if the suite has none or it is withheld."""
        return self._score("ers")

    def _score(self, name: str) -> float | None:
        return self._numbers.get(name, {}).get("value")

    @functools.cached_property
    def _numbers(self) -> dict[str, dict[str, Any]]:
        """The rows of ``numbers`` by name. The program adds them to a report of an earlier version."""
        document = self.json
        if "numbers" not in document:
            with self._file() as file:
                whole = file.with_name("numbers.json")
                binary.checked(["report", file, "-o", whole])
                document = json.loads(whole.read_text(encoding="utf-8"))
        return {row["name"]: row for row in document["numbers"]}

    @property
    def findings(self) -> list[dict[str, str]]:
        """Reasons to distrust the numbers: ``id``, ``severity`` (info, warning, error) and ``text``.

        Those of ``not_checked`` are among them.
        """
        return list(self.json["warnings"])

    @property
    def not_checked(self) -> list[dict[str, str]]:
        """The checks that did not run: those of ``findings`` whose ``state`` is ``not-checked``. The text says why, and what to do."""
        return [finding for finding in self.findings if finding.get("state") == "not-checked"]

    @property
    def passed(self) -> bool | None:
        """Whether the gate passed; None where nothing was demanded."""
        gate = self.json.get("gate")
        return None if gate is None else all(check["result"] != "fail" for check in gate["checks"])

    @property
    def words(self) -> str:
        """What failed, in the program's words: checks of the gate, and findings that invalidate the numbers."""
        checks = (self.json.get("gate") or {}).get("checks", [])
        failed = [f"{check['metric']} {check['text']}" for check in checks if check["result"] == "fail"]
        errors = [f"{w['id']}: {w['text']}" for w in self.findings if w["severity"] == "error"]
        return "\n".join([*errors, *failed])

    def rows(self, table: str) -> list[Row]:
        """The rows of ``scores``, ``ladder``, ``attacks`` or ``trials``, without any library."""
        makers = {
            **{"scores": self._score_rows, "ladder": self._ladder_rows},
            **{"attacks": self._attack_rows, "trials": self._trial_rows},
        }
        if table not in makers:
            raise ValueError(f"expected one of {', '.join(makers)}, found {table!r}")
        return makers[table]()

    def frame(self, table: str, library: str | None = None) -> Any:
        """The same as a data frame of pandas or polars; see ``frames.frame``."""
        return frames.frame(self.rows(table), library)

    @property
    def scores(self) -> Any:
        """A data frame: score, value (None if it is withheld), whether the score is only known to be above it, low and high (95 % interval),
        queries, and eps for robust R@1."""
        return self.frame("scores")

    @property
    def ladder(self) -> Any:
        """A data frame of robust R@1 by eps: robust_r1, low and high (95 % interval), and as_file, the same of changed files, or of
        images of 8 bits a channel if the images are no files. Without rows if the suite has no ladder."""
        return self.frame("ladder")

    @property
    def attacks(self) -> Any:
        """A data frame with a row for each measure: before, after, interval, resistance."""
        return self.frame("attacks")

    @property
    def trials(self) -> Any:
        """A data frame with a row for each trial, with the columns of the program's .csv."""
        return self.frame("trials")

    def _score_rows(self) -> list[Row]:
        rows = []
        for label, name in _FIRST:
            number = self._numbers.get(name, {"state": "not_measured"})
            if number["state"] == "not_measured":
                continue
            low, high = number.get("interval") or (None, None)
            eps = self.json["suite"]["eps"] if name == "robust_r1" else None
            row = {"score": label, "value": number.get("value"), "above": number.get("above", False)}
            rows.append({**row, "low": low, "high": high, "queries": number["queries"], "eps": eps})
        return rows

    def _ladder_rows(self) -> list[Row]:
        found = (self.json["scores"].get("robust_r1") or {}).get("ladder") or {"rungs": []}
        rows = []
        for rung in found["rungs"]:
            low, high = rung.get("interval") or (None, None)
            of_files = {"as_file": rung.get("as_file")}
            rows.append({"eps": rung["eps"], "robust_r1": rung["r1"], "low": low, "high": high, **of_files})
        return rows

    def _attack_rows(self) -> list[Row]:
        rows = []
        for attack in self.json["attacks"]:
            row = {k: attack[k] for k in ("code", "form", "queries", "skipped", "before", "after")}
            low, high = attack["after_interval"] or (None, None)
            resistance = attack["resistance"]
            row |= {"after_low": low, "after_high": high, "ers_term": attack["ers_term"]}
            rows.append({**row, "resistance": resistance["per_trial"], "resistance_table": resistance["table"]})
        return rows

    def _trial_rows(self) -> list[Row]:
        with self._file() as file:
            table = file.with_name("trials.csv")
            binary.checked(["report", file, "-o", table])
            with open(table, encoding="utf-8", newline="") as lines:
                rows: list[Row] = [
                    {name: cell if name in _TEXTS else _number(cell) for name, cell in row.items()}
                    for row in csv.DictReader(lines)
                ]
        # The cells of lists are joined by semicolons, which ids may contain.
        labels = self.json.get("labels", {})
        trials = [*self.json["outcomes"], *self.json["skipped"]]
        for row, trial in zip(rows, trials, strict=True):
            row["targets"] = trial.get("targets", [])
            row["target_labels"] = [labels.get(target, "") for target in row["targets"]]
        return rows

    def save(self, *paths: str | os.PathLike[str]) -> None:
        """Writes the report to files; the ending of each chooses the format, as with ``audit report -o``."""
        with self._file() as file:
            binary.checked(["report", file, *(word for path in paths for word in ("-o", path))])

    @property
    def metrics(self) -> dict[str, float]:
        """Every number by a name of letters, digits and underscores, for MLflow, Weights & Biases and other trackers."""
        with self._file() as file:
            flat = file.with_name("metrics.json")
            binary.checked(["report", file, "-o", flat])
            found: dict[str, float] = json.loads(flat.read_text(encoding="utf-8"))
            return found

    def write_model_card(self, path: str | os.PathLike[str]) -> None:
        """Writes the numbers into the block ``model-index`` of a Hugging Face model card, README.md."""
        with self._file() as file:
            binary.checked(["report", file, "--model-card", path])

    def __str__(self) -> str:
        """The report as the program prints it."""
        with self._file() as file:
            return binary.checked(["report", file])

    def __repr__(self) -> str:
        def shown(row: Row) -> str:
            at = "" if row["eps"] is None else f" at ε {row['eps']:.4g}"
            value = "withheld" if row["value"] is None else f"{row['value']:.1f}"
            if row["above"]:
                value = f"above {value}"
            return f"{row['score']}{at} {value}"

        values = ", ".join(shown(row) for row in self.rows("scores"))
        return f"<onnx_audit.Report of {self.json['model']['path']}: {values}>"

    def _page(self) -> str:
        with TemporaryDirectory(prefix="onnx-audit-") as folder:
            page = Path(folder) / "report.html"
            self.save(page)
            return page.read_text(encoding="utf-8")

    def _file(self) -> _Saved:
        return _Saved(self.text)


class Comparison(_Document):
    """Reports side by side, as ``audit compare`` sets them."""

    def __init__(self, text: str, printed: str, page: str) -> None:
        super().__init__(text)
        self.printed = printed
        self.page = page

    @property
    def answer(self) -> str:
        """Which model is the most robust, in a sentence, or why it is undecided."""
        return str(self.json["answer"])

    def rows(self) -> list[Row]:
        """A row for each model and metric: value (None if it is withheld), the difference from the baseline with its 95 % interval, and the
        word that follows from both."""
        rows = []
        for model in self.json["models"]:
            for row in model["rows"]:
                difference = row.get("difference") or {}
                low, high = difference.get("interval") or (None, None)
                values = {"metric": row["metric"], "value": row["value"], "change": difference.get("value")}
                rows.append({"model": model["model"], **values, "change_low": low, "change_high": high, "word": row["word"]})
        return rows

    @property
    def frame(self) -> Any:
        """The rows as a data frame."""
        return frames.frame(self.rows())

    def __str__(self) -> str:
        return self.printed

    def _page(self) -> str:
        return self.page


class _Saved:
    """A report in a file of its own, which lives as long as the context."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __enter__(self) -> Path:
        self.folder = TemporaryDirectory(prefix="onnx-audit-")
        file = Path(self.folder.name) / "report.json"
        file.write_text(self.text, encoding="utf-8")
        return file

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()
