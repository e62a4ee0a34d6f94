"""Tables of reports as data frames."""

from __future__ import annotations

from typing import Any

#: A row: values by column.
Row = dict[str, Any]


def frame(rows: list[Row], library: str | None = None) -> Any:
    """The rows as a data frame of pandas, or of polars where only that is installed; ``library`` names one of the two.

    Raises ``ImportError`` where neither is installed.
    """
    for name in [library] if library else ["pandas", "polars"]:
        if name == "pandas":
            try:
                import pandas
            except ImportError:
                continue
            return pandas.DataFrame(rows)
        if name == "polars":
            try:
                import polars
            except ImportError:
                continue
            return polars.DataFrame(rows, infer_schema_length=None)
        raise ValueError(f"expected pandas or polars as library, found {name!r}")
    wanted = library or "pandas or polars"
    raise ImportError(f"a data frame wants {wanted}: pip install pandas. Lists of rows need no library: report.rows('trials')")
