"""Data frames of the tables of reports."""

from __future__ import annotations

from typing import Any

#: A row: values by column.
Row = dict[str, Any]


def frame(rows: list[Row], library: str | None = None) -> Any:
    """Returns the rows as a data frame of pandas, or of polars if only polars is installed.

    ``library`` is ``"pandas"`` or ``"polars"`` to select one. Raises ``ImportError`` if it is not installed,
    ``ValueError`` for any other name.
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
    needed = library or "pandas or polars"
    raise ImportError(
        f"a data frame needs {needed}: pip install {library or 'pandas'}. "
        "Lists of rows need no library: report.rows('trials')"
    )
