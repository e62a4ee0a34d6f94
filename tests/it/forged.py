"""Forges evidence and prints the answers of verify.py: `forged.py FOLDER SCRIPT`.

Replaces one file of the first trial of FOLDER/evidence.zip at a time, with new hashes. SCRIPT is the text of
verify.py. Prints a line for each forgery.
"""

import hashlib, io, json, os, sys, zipfile
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # telemetry: onnxruntime reads this when it is imported
import numpy as np
from PIL import Image

folder, script = Path(sys.argv[1]), {"__name__": "verify"}
exec(sys.argv[2], script)
files, manifest, report = script["unpack"]((folder / "evidence.zip").read_bytes())
attacked, written, photograph = (manifest[name][0] for name in ("attacked", "written", "photographs"))
quality = report["suite"]["jpeg"]


def image(name):
    return Image.open(io.BytesIO(files[name]))


def saved(picture, kind, **how):
    picture.save(file := io.BytesIO(), kind, **how)
    return file.getvalue()


def levels():  # The photograph with another change of the same size as the attack's.
    clean = np.asarray(image(photograph), int)
    most = round(255 * report["outcomes"][0]["linf"])
    signs = np.where(np.indices(clean.shape[:2]).sum(0) % 2, most, -most)[..., None]
    return Image.fromarray(np.clip(clean + signs, 0, 255).astype(np.uint8))


forgeries = {
    "another image": (written, saved(image(photograph), "JPEG", quality=quality, subsampling=0)),
    "another quality": (written, saved(image(attacked), "JPEG", quality=quality - 5, subsampling=0)),
    "another change": (attacked, saved(levels(), "PNG")),
}
for what, (name, data) in forgeries.items():
    changed = {**files, name: data}
    hashes = {n: hashlib.sha256(changed[n]).hexdigest() for n in manifest["files"]}
    changed["manifest.json"] = json.dumps({**manifest, "files": hashes}).encode()
    with zipfile.ZipFile(archive := io.BytesIO(), "w") as out:
        for n, d in changed.items():
            info = zipfile.ZipInfo(n, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16
            out.writestr(info, d)
    try:
        answer = script["verify"](archive.getvalue(), folder / "net.onnx")
    except SystemExit as refusal:
        answer = refusal
    print(f"{what}: {answer}")
