"""Creates inputs of the tests of `audit attack`, and checks its files with Pillow, NumPy and ONNX Runtime.

make FOLDER: writes a random net, a gallery, and photographs of many sizes and modes.
check FOLDER EPS: checks that for every photograph the nearest gallery image of its PNG in FOLDER/out has another
class, and that the two differ by at most EPS grey levels, with a tolerance for JPEG photographs.
check-jpeg FOLDER STATED: the same for the JPEG files in FOLDER/out. STATED lists the differences that the program
reported, as NAME=LEVELS; decoders may round differently.
compare FOLDER REFERENCE COSINE: checks that every file in FOLDER/accepted has at least this cosine similarity to the
reference, and that its photograph has less.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

command, folder = sys.argv[1], Path(sys.argv[2])
SIDE = 24


def make():
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    draw = np.random.default_rng(0)
    weights = {
        "conv": draw.normal(0, 0.15, (16, 3, 5, 5)), "bias": draw.normal(0, 0.1, 16), "dense": draw.normal(0, 0.05, (16 * 100, 24))
    }
    nodes = [
        helper.make_node("Conv", ["x", "conv", "bias"], ["c"], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("MatMul", ["f", "dense"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 24])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "net.onnx")

    def scene(kind):
        x, y = np.meshgrid(np.linspace(0, 1, 96), np.linspace(0, 1, 80))
        waves = [np.sin(6 * (x * np.cos(kind + k) + y * np.sin(kind + k)) + k + draw.normal(0, 0.2)) for k in range(3)]
        noise = draw.normal(0, 8, (80, 96, 3))
        return Image.fromarray(np.clip(128 + 90 * np.stack(waves, 2) + noise, 0, 255).astype(np.uint8))

    (folder / "photos").mkdir()
    (folder / "out").mkdir()
    for kind in range(6):
        (folder / f"gallery/class{kind}").mkdir(parents=True)
        for k in range(4):
            scene(kind).save(folder / f"gallery/class{kind}/{k}.png")
    modes = ["RGB", "L", "RGBA", "LA", "P", "EXIF", "JPEG", "RGB"]
    sizes = [(64, 48), (20, 15), (33, 77), (24, 24), (120, 90), (61, 30), (300, 200), (24, 50)]
    for number, (mode, size) in enumerate(zip(modes * 2, sizes + sizes[::-1])):
        image = scene(number % 6).resize(size, Image.BICUBIC)
        path = folder / f"photos/{number:02}-{mode}.png"
        if mode == "EXIF":
            exif = Image.Exif()
            exif[0x0112] = 6
            image.save(path, exif=exif)
        elif mode == "JPEG":
            image.save(path.with_suffix(".jpg"), quality=90)
        elif mode == "P":
            image.quantize(64).save(path)
        elif mode in ("RGBA", "LA"):
            image = image.convert(mode)
            image.putalpha(Image.linear_gradient("L").resize(size))
            image.save(path)
        else:
            image.convert(mode).save(path)


def opened(path):
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def embedder():
    session = onnxruntime.InferenceSession(str(folder / "net.onnx"), providers=["CPUExecutionProvider"])

    def embedding(path):
        image = opened(path).resize((SIDE, SIDE), Image.BILINEAR)
        pixels = (np.asarray(image, np.float32) / 255).transpose(2, 0, 1)[None]
        vector = session.run(None, {"x": pixels})[0][0].astype(np.float64)
        return vector / np.linalg.norm(vector)

    return embedding


def check(ending=".png", stated=None):
    embedding = embedder()
    items = sorted((folder / "gallery").glob("*/*.png"))
    gallery, classes = np.stack([embedding(path) for path in items]), [path.parent.name for path in items]

    def nearest_class(path):
        return classes[int(((gallery - embedding(path)) ** 2).sum(1).argmin())]

    count = 0
    for photograph in sorted((folder / "photos").iterdir()):
        file = folder / "out" / f"{photograph.stem}{ending}"
        clean, attacked = nearest_class(photograph), nearest_class(file)
        assert clean != attacked, f"the nearest image of {file} has class {attacked}, as that of its photograph"
        a, b = (np.asarray(opened(path), int) for path in (photograph, file))
        assert a.shape == b.shape, f"{file} has another size than its photograph"
        # JPEG decoders upsample the colour channels in different ways.
        tolerance, change = 12 if photograph.suffix == ".jpg" else 0, abs(a - b).max()
        if stated:
            expected = stated[photograph.stem]
            assert abs(change - int(expected)) <= 2 + tolerance, f"{file}: changed by {change}, and the program states {expected}"
        else:
            assert change <= int(sys.argv[3]) + tolerance, f"{file} differs from its photograph by {change}"
        count += 1
    print(f"{count} files agree")


def compare():
    embedding, reference, least = embedder(), folder / sys.argv[3], float(sys.argv[4])
    point, count = embedding(reference), 0
    for file in sorted((folder / "accepted").iterdir()):
        photograph = next((folder / "photos").glob(f"{file.stem}.*"))
        clean, attacked = (embedding(path) @ point for path in (photograph, file))
        # The program prints four digits of the threshold.
        assert clean < least <= attacked + 1e-4, f"{file}: cosine {clean} becomes {attacked}; expected at least {least}"
        count += 1
    print(f"{count} files agree")


def check_jpeg():
    check(".jpg", dict(pair.split("=") for pair in sys.argv[3].split()))


{"make": make, "check": check, "check-jpeg": check_jpeg, "compare": compare}[command]()
