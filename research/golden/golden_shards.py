"""Writes tests/shards: small images in WebDataset archives by Python's tarfile, and in tables by PyArrow.

    python3 research/golden/golden_shards.py      # needs pillow and pyarrow
"""

import io
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

OUT = Path(__file__).parents[2] / "tests/shards"
LONG = "a_folder_of_a_name_that_no_field_of_a_header_holds/" * 3


def picture(grey, kind="PNG"):
    file = io.BytesIO()
    Image.new("L", (4, 3), grey).save(file, kind)
    return file.getvalue()


def archive(name, form, files):
    with tarfile.open(OUT / name, "w", format=form) as tar:
        tar.addfile(tarfile.TarInfo("./"))
        for path, content in files:
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


OUT.mkdir(exist_ok=True)
gnu = [("0001.png", picture(10)), ("0001.cls", b"7"), ("._0001.png", b"x"), ("0002.cls", b"7\n"), ("0002.png", picture(20))]
archive("gnu.tar", tarfile.GNU_FORMAT, gnu + [(f"{LONG}0003.cls", b"8"), (f"{LONG}0003.png", picture(30))])
metadata = [{"label": "é", "caption": "none", "box": [1]}, {"Class-Name": "é"}]
pax = [f for i, j in enumerate(metadata) for f in [(f"é{i}.png", picture(40 + i)), (f"é{i}.json", json.dumps(j).encode())]]
archive("pax.tar", tarfile.PAX_FORMAT, pax + [(f"{LONG}2.png", picture(50)), (f"{LONG}2.json", b'{"label": 3}')])

image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
rows = [{"bytes": picture(60 + i), "path": f"{i}.png"} for i in range(4)]
features = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "image": {"_type": "Image"}}}}
table = pa.table({"image": pa.array(rows, image), "label": [1, 0, 1, 0], "score": [0.5] * 4})
pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)}), OUT / "datasets.parquet")
table = {"jpg": [picture(70 + i, "JPEG") for i in range(3)], "identity": ["x", "x", "y"], "is_query": [True, False, False]}
pq.write_table(pa.table(table | {"is_gallery": [False, True, True], "path": ["a", "b", "c"]}), OUT / "plain.parquet")
rows[1]["bytes"] = None
pq.write_table(pa.table({"image": pa.array(rows, image), "label": [1, 0, 1, 0]}), OUT / "bad-empty.parquet")

# Groups of two rows, without a count of missing values: row 4 is one.
rows = [{"bytes": None if i == 3 else picture(80 + i), "path": None} for i in range(5)]
groups = pa.table({"image": pa.array(rows, image), "label": [0, 1, 0, 1, 1]})
pq.write_table(groups, OUT / "groups.parquet", row_group_size=2, write_statistics=False)

# A column states the split of each row; row 4 has the number that `datasets` writes if a label isn't known.
rows = [{"bytes": picture(90 + i), "path": None} for i in range(5)]
names = json.dumps({"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}})
splits = pa.table({"image": pa.array(rows, image), "label": [0, 1, 0, -1, 1], "split": ["train", "train", "test", "test", "val"]})
pq.write_table(splits.replace_schema_metadata({"huggingface": names}), OUT / "split.parquet")
