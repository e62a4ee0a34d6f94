"""Reports of audits, and comparisons of reports."""

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

#: Labels of the main scores, and their names in gates.
_FIRST = (
    ("clean R@1", "benign.r1"),
    ("ARS", "ars"),
    ("ERS", "ers"),
    ("ARS, strong", "ars_strong"),
    ("robust R@1", "robust_r1"),
    ("robust top-1", "robust_top1"),
    ("ε50, in 255ths", "eps50"),
    ("median ε, in 255ths", "median_eps"),
)

#: Names of sizes of changes among these. Gates count them in 255ths in every norm.
_SIZES = ("eps50", "median_eps")

#: Text columns of the program's .csv. All others are numeric; yes is 1 and no is 0.
_TEXTS = (
    *("model", "model_sha256", "data", "data_sha256", "suite", "form", "norm"),
    *("attack", "query", "query_label", "targets", "target_labels", "status"),
)


def _number(cell: str) -> int | float | str | None:
    """Parses a cell of a numeric column; None if it is empty. Text stays text: a newer program may add text columns."""
    if not cell:
        return None
    try:
        return int(cell) if cell.lstrip("-").isdigit() else float(cell)
    except ValueError:
        return cell


class _Document:
    """JSON that the program wrote, and its HTML page."""

    def __init__(self, text: str) -> None:
        #: The JSON as text.
        self.text = text
        #: The JSON as Python values; `audit schema` prints the schema of reports.
        self.json: dict[str, Any] = json.loads(text)

    def _page(self) -> str:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Returns the HTML page of the program, in an iframe so that its styles don't affect the notebook."""
        page = html.escape(self._page(), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:640px;border:0" title="audit"></iframe>'


class Report(_Document):
    """The report of an audit (docs/reports.md).

    ``text`` is the JSON that the program wrote, ``json`` the parsed JSON.
    """

    @property
    def clean_r1(self) -> float | None:
        """Clean R@1, in %; None if the images have no classes."""
        return float(self.json["benign"]["r1"]) if "benign" in self.json else None

    @property
    def robust_r1(self) -> float | None:
        """R@1 under the strong search, in %; None if it was not measured or is withheld (docs/reports.md)."""
        return self._score("robust_r1")

    @property
    def robust_top1(self) -> float | None:
        """Queries whose nearest image stays the same under the strong search, in %, for images without
        classes.

        None if it was not measured or is withheld.
        """
        return self._score("robust_top1")

    @property
    def eps50(self) -> float | None:
        """The ε at which half of the correct queries fail, in 255ths (in other norms 255 times a length).

        The largest ε of the ladder if fewer than half fail there; None if the suite has no ladder of ε, or
        the value is withheld.
        """
        return self._score("eps50")

    @property
    def median_eps(self) -> float | None:
        """The median of the smallest perturbations that make queries wrong, in 255ths (in other norms 255
        times a length).

        The largest ε that was searched if it is above that; None if the suite doesn't search for them, or the
        value is withheld.
        """
        return self._score("median_eps")

    @property
    def ars(self) -> float | None:
        """Adversarial resistance score, 0-100; None if the suite has none or it is withheld."""
        return self._score("ars")

    @property
    def ers(self) -> float | None:
        """Empirical robustness score, 0-100; None if the suite has none or it is withheld."""
        return self._score("ers")

    @property
    def ars_strong(self) -> float | None:
        """ARS under the strong search, 0-100; None if the suite has none or it is withheld."""
        return self._score("ars_strong")

    @property
    def _norm(self) -> str:
        return str(self.json["suite"].get("norm", "linf"))

    def _score(self, name: str) -> float | None:
        return self._numbers.get(name, {}).get("value")

    @functools.cached_property
    def _numbers(self) -> dict[str, dict[str, Any]]:
        """The rows of ``numbers`` by name. For reports of earlier versions, the program computes them."""
        document = self.json
        if "numbers" not in document:
            with self._file() as file:
                whole = file.with_name("numbers.json")
                binary.checked(["report", file, "-o", whole])
                document = json.loads(whole.read_text(encoding="utf-8"))
        return {row["name"]: row for row in document["numbers"]}

    @property
    def findings(self) -> list[dict[str, str]]:
        """The findings: dictionaries with ``id``, ``severity`` (info, warning, error) and ``text``.

        Includes the checks that did not run; see ``not_checked``.
        """
        return list(self.json["warnings"])

    @property
    def not_checked(self) -> list[dict[str, str]]:
        """The checks that did not run: the findings whose ``state`` is ``not-checked``.

        The text of each says why it did not run, and how to run it.
        """
        return [finding for finding in self.findings if finding.get("state") == "not-checked"]

    @property
    def passed(self) -> bool | None:
        """Whether the gate passed; None if no gate was checked. No gate passes on a result that is not trustworthy."""
        gate = self.json.get("gate")
        if gate is None:
            return None
        return not gate.get("untrusted") and all(check["result"] != "fail" for check in gate["checks"])

    @property
    def words(self) -> str:
        """Failed checks of the gate and findings of severity ``error``, one per line."""
        checks = (self.json.get("gate") or {}).get("checks", [])
        failed = [f"{check['metric']} {check['text']}" for check in checks if check["result"] == "fail"]
        errors = [f"{w['id']}: {w['text']}" for w in self.findings if w["severity"] == "error"]
        return "\n".join([*errors, *failed])

    def rows(self, table: str) -> list[Row]:
        """Returns the rows of a table as dictionaries.

        ``table`` is ``scores``, ``ladder``, ``attacks`` or ``trials``. Raises ``ValueError`` for any other
        name.
        """
        makers = {
            **{"scores": self._score_rows, "ladder": self._ladder_rows},
            **{"attacks": self._attack_rows, "trials": self._trial_rows},
        }
        if table not in makers:
            raise ValueError(f"expected one of {', '.join(makers)}, found {table!r}")
        return makers[table]()

    def frame(self, table: str, library: str | None = None) -> Any:
        """Returns the rows of a table as a data frame of pandas, or of polars if only polars is installed.

        ``library`` selects ``"pandas"`` or ``"polars"``. Raises ``ImportError`` if it is not installed.
        """
        return frames.frame(self.rows(table), library)

    @property
    def scores(self) -> Any:
        """Data frame of the scores.

        Columns: score; value, None if it is withheld; above, whether the value is only a lower bound; low and
        high, the 95 % interval; queries; and eps, for robust R@1 and robust top-1. In other norms than linf,
        ε50 and the median ε are lengths.
        """
        return self.frame("scores")

    @property
    def ladder(self) -> Any:
        """Data frame of robust R@1 by ε. Empty if the suite has no ladder.

        Columns: eps; robust_r1, which is robust top-1 if the images have no classes; low and high, the 95 %
        interval; and as_file, the same score of attacked files, or of attacked images rounded to 8 bits if
        the images are not files.
        """
        return self.frame("ladder")

    @property
    def attacks(self) -> Any:
        """Data frame with a row for each measure of an attack: before and after it, 95 % interval, resistance."""
        return self.frame("attacks")

    @property
    def trials(self) -> Any:
        """Data frame with a row for each trial and the columns of the program's .csv."""
        return self.frame("trials")

    def _score_rows(self) -> list[Row]:
        rows = []
        for label, name in _FIRST:
            number = self._numbers.get(name, {"state": "not_measured"})
            if number["state"] == "not_measured":
                continue
            low, high = number.get("interval") or (None, None)
            value, norm = number.get("value"), self._norm
            if name in _SIZES and norm != "linf":
                # A length, and no number of grey levels.
                label = label.replace(", in 255ths", f" ({norm})")
                value, low, high = (None if size is None else size / 255 for size in (value, low, high))
            eps = self.json["suite"]["eps"] if name in ("robust_r1", "robust_top1") else None
            row = {"score": label, "value": value, "above": number.get("above", False)}
            rows.append({**row, "low": low, "high": high, "queries": number["queries"], "eps": eps})
        return rows

    def _ladder_rows(self) -> list[Row]:
        scores = self.json["scores"]
        robust = scores.get("robust_r1") or scores.get("robust_top1") or {}
        ladder = robust.get("ladder") or {"rungs": []}
        rows = []
        for rung in ladder["rungs"]:
            low, high = rung.get("interval") or (None, None)
            values = {"eps": rung["eps"], "robust_r1": rung["r1"], "low": low, "high": high}
            rows.append({**values, "as_file": rung.get("as_file")})
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
        # The .csv joins lists with semicolons, which ids may contain: take lists from the JSON.
        labels = self.json.get("labels", {})
        trials = [*self.json["outcomes"], *self.json["skipped"]]
        for row, trial in zip(rows, trials, strict=True):
            row["targets"] = trial.get("targets", [])
            row["target_labels"] = [labels.get(target, "") for target in row["targets"]]
        return rows

    def save(self, *paths: str | os.PathLike[str]) -> None:
        """Writes the report to files. The extension of each selects the format, as with ``audit report -o``."""
        with self._file() as file:
            binary.checked(["report", file, *(word for path in paths for word in ("-o", path))])

    @property
    def metrics(self) -> dict[str, float]:
        """All numbers by name, for MLflow, Weights & Biases and other trackers.

        Names have letters, digits and underscores only.
        """
        with self._file() as file:
            flat = file.with_name("metrics.json")
            binary.checked(["report", file, "-o", flat])
            numbers: dict[str, float] = json.loads(flat.read_text(encoding="utf-8"))
            return numbers

    def write_model_card(self, path: str | os.PathLike[str]) -> None:
        """Writes the results into the block ``model-index`` of a Hugging Face model card (README.md)."""
        with self._file() as file:
            binary.checked(["report", file, "--model-card", path])

    def __str__(self) -> str:
        """Returns the report as the program prints it."""
        with self._file() as file:
            return binary.checked(["report", file])

    def __repr__(self) -> str:
        def size(eps: float) -> str:
            if self._norm != "linf":
                return f"{eps:.4g} ({self._norm})"
            # Protocols have truncated decimals: 0.30196 is 77/255.
            return f"{round(255 * eps, 2):g}/255"

        def formatted(row: Row) -> str:
            name, value = row["score"], row["value"]
            if value is None:
                text = "withheld"
            elif name.endswith(", in 255ths"):
                text = f"{value:.2f}/255"
            elif name.endswith(f" ({self._norm})"):
                text = size(value)
            else:
                text = f"{value:.1f}"
            if row["above"]:
                text = f"above {text}"
            name = name.removesuffix(", in 255ths").removesuffix(f" ({self._norm})")
            return f"{name} {text}" if row["eps"] is None else f"{name} at {size(row['eps'])}: {text}"

        values = " · ".join(formatted(row) for row in self.rows("scores"))
        return f"<onnx_audit.Report of {self.json['model']['path']}: {values}>"

    def _page(self) -> str:
        with TemporaryDirectory(prefix="onnx-audit-") as folder:
            page = Path(folder) / "report.html"
            self.save(page)
            return page.read_text(encoding="utf-8")

    def _file(self) -> _Saved:
        return _Saved(self.text)


class Comparison(_Document):
    """Result of ``audit compare``.

    ``text`` is its JSON, ``json`` the parsed JSON, ``printed`` the table for the terminal, ``page`` the HTML
    page.
    """

    def __init__(self, text: str, printed: str, page: str) -> None:
        super().__init__(text)
        self.printed = printed
        self.page = page

    @property
    def answer(self) -> str:
        """A sentence: which model is the most robust, or why that is undecided."""
        return str(self.json["answer"])

    def rows(self) -> list[Row]:
        """Returns a row for each model and metric.

        Keys: model, its file with as many folders as tell the models apart; metric; value, None if it is
        withheld, and above, whether it is only known to be larger; low and high, the 95 % interval of the value;
        change, the difference from the baseline, with change_low and change_high, its 95 % interval; and word,
        the conclusion from the change.
        """
        rows = []
        for model in self.json["models"]:
            for row in model["rows"]:
                low, high = row["interval"] or (None, None)
                value = {"value": row["value"], "above": row.get("above", False), "low": low, "high": high}
                difference = row.get("difference") or {}
                low, high = difference.get("interval") or (None, None)
                change = {"change": difference.get("value"), "change_low": low, "change_high": high}
                rows.append({"model": model["model"], "metric": row["metric"], **value, **change, "word": row["word"]})
        return rows

    @property
    def frame(self) -> Any:
        """Data frame of ``rows()``."""
        return frames.frame(self.rows())

    def __str__(self) -> str:
        return self.printed

    def __repr__(self) -> str:
        return f"<onnx_audit.Comparison: {self.answer}>"

    def _page(self) -> str:
        return self.page


class _Saved:
    """Context manager that writes a report to a temporary file and returns its path."""

    def __init__(self, text: str, name: str = "report.json") -> None:
        self.text = text
        self.name = name

    def __enter__(self) -> Path:
        self.folder = TemporaryDirectory(prefix="onnx-audit-")
        file = Path(self.folder.name) / self.name
        file.write_text(self.text, encoding="utf-8")
        return file

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()
