#!/usr/bin/env python3
"""Writes tests/golden/galleries/*.parquet: a small gallery of embeddings, written by several libraries.

    pip install duckdb==2.0.0 pandas==3.1.1 polars==2.1.0 pyarrow==26.0.1
    python research/golden/golden_parquet.py

Three images `a`, `b`, `c` (in one file 1, 2, 3) have classes 7, 7 and 8, cameras 1, none and 2, and
embeddings (1, 2), (3, 4) and (5, 6.5). The files differ in compression, page version, and the types of lists,
ids and labels.
"""

from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "golden" / "galleries"
FOLDER.mkdir(parents=True, exist_ok=True)
IDS, LABELS, CAMERAS = ["a", "b", "c"], [7, 7, 8], [1, None, 2]
POINTS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.5]]

# float64 lists, snappy, row numbers in their own column.
frame = pandas.DataFrame({"id": IDS, "label": pandas.Series(LABELS, dtype="category"), "embedding": POINTS})
frame["camera"] = pandas.array(CAMERAS, dtype="Int64")
frame["label"] = frame["label"].astype(str)
frame.set_index(pandas.Index([10, 11, 12])).to_parquet(FOLDER / "pandas.parquet")

# float32 arrays of fixed length, zstd, whole numbers as ids.
polars.DataFrame(
    {"id": [1, 2, 3], "label": LABELS, "camera": CAMERAS, "embedding": POINTS},
    schema_overrides={"embedding": polars.Array(polars.Float32, 2), "camera": polars.UInt8},
).write_parquet(FOLDER / "polars.parquet")

# float32 arrays, snappy, no camera.
rows = ", ".join(f"('{i}', {label}, {point}::FLOAT[2])" for i, label, point in zip(IDS, LABELS, POINTS))
duckdb.sql(f"COPY (SELECT * FROM (VALUES {rows}) t(id, label, embedding)) TO '{FOLDER / 'duckdb.parquet'}'")

# Dictionaries, large lists, gzip, the second version of pages, a row group for each row.
table = pyarrow.table(
    {
        "embedding": pyarrow.array(POINTS, pyarrow.large_list(pyarrow.float32())),
        "label": pyarrow.array([str(label) for label in LABELS]).dictionary_encode(),
        "id": pyarrow.array(IDS, pyarrow.large_string()),
        "camera": pyarrow.array(CAMERAS, pyarrow.int32()),
    }
)
pyarrow.parquet.write_table(
    table, FOLDER / "pyarrow.parquet", compression="gzip", data_page_version="2.0", row_group_size=1
)


# Files that must be refused, each with its row.
def bad(name, **columns):
    all = {"id": IDS, "label": ["x", "x", "y"], "embedding": pyarrow.array(POINTS, pyarrow.list_(pyarrow.float32()))}
    all = {key: column for key, column in {**all, **columns}.items() if column is not None}
    pyarrow.parquet.write_table(pyarrow.table(all), FOLDER / f"bad-{name}.parquet", compression="none")


def lists(values, kind=pyarrow.float32()):
    return pyarrow.array(values, pyarrow.list_(kind))


bad("no-label", label=None)
bad("other-column", lable=LABELS)
bad("null-id", id=["a", None, "c"])
bad("twice", id=["a", "b", "a"])
bad("float-id", id=[0.5, 1.5, 2.5])
bad("camera", camera=[1, -2, 3])
bad("camera-text", camera=["left", "right", "left"])
bad("ragged", embedding=lists([[1, 2], [3, 4, 5], [6]]))
bad("null-value", embedding=lists([[1, 2], [3, 4], [None, 5]]))
bad("null-list", embedding=lists([[1, 2], None, [3, 4]]))
bad("not-finite", embedding=lists([[1, 2], [3, float("nan")], [4, 5]]))
bad("whole", embedding=lists([[1, 2], [3, 4], [5, 6]], pyarrow.int64()))
bad("single", embedding=[1.0, 2.0, 3.0])
bad("listed-id", id=pyarrow.array([["a"], ["b"], ["c"]]))
bad("no-rows", id=pyarrow.array([], pyarrow.string()), label=pyarrow.array([], pyarrow.string()), embedding=lists([]))
bad("struct", id=pyarrow.array([{"a": 1, "b": 2}] * 3))
