"""Prepares a public face recogniser and pairs of faces for docs/tutorials/mobilefacenet.md.

    python research/tools/faces.py model MobileFaceNet.tflite mobilefacenet.onnx   (tflite2onnx, ai-edge-litert, onnx, onnxruntime, numpy)
    python research/tools/faces.py pairs PICTURES master.csv faces                 (facenet-pytorch, torch, pillow, numpy)

`model` converts the file to ONNX with a free batch size, and fails if the embeddings differ from LiteRT's.
`pairs` reads rows `file_x,file_y,Yes or No`, finds the clearest face of each picture, aligns eyes, nose and
corners of the mouth as recognisers of 112 × 112 pixels expect, and writes the faces and faces/pairs.csv.
Pairs without two faces are left out; the last line has their number."""

import csv
import os
import pathlib
import sys

import numpy as np

# Left and right eye, nose, left and right corner of the mouth in 112 × 112 pixels, as ArcFace's code aligns
# them.
EXPECTED = np.array([[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]])


def model(source, out):
    import onnx

    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime
    import tflite2onnx
    from ai_edge_litert.interpreter import Interpreter

    tflite2onnx.convert(source, out)
    graph = onnx.load(out)
    fixed = graph.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    for value in [*graph.graph.input, *graph.graph.output]:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    # Shapes between them state the fixed batch; so does the target of the last reshape.
    del graph.graph.value_info[:]
    last = next(node for node in graph.graph.node if graph.graph.output[0].name in node.output)
    if last.op_type == "Reshape":
        shape = next(tensor for tensor in graph.graph.initializer if tensor.name == last.input[1])
        target = onnx.numpy_helper.to_array(shape).copy()
        target[0] = -1
        shape.CopyFrom(onnx.numpy_helper.from_array(target, shape.name))
    onnx.checker.check_model(graph)
    onnx.save(graph, out)

    reference = Interpreter(source)
    reference.allocate_tensors()
    pixels = np.random.default_rng(0).uniform(-1, 1, (fixed, 112, 112, 3)).astype(np.float32)
    reference.set_tensor(reference.get_input_details()[0]["index"], pixels)
    reference.invoke()
    expected = reference.get_tensor(reference.get_output_details()[0]["index"])
    session = onnxruntime.InferenceSession(out)
    for batch in [pixels, pixels[:1]]:
        found = session.run(None, {session.get_inputs()[0].name: batch.transpose(0, 3, 1, 2)})[0]
        off = float(np.abs(found - expected[: len(batch)]).max() / np.abs(expected).max())
        if off > 1e-4:
            sys.exit(f"{out}: embeddings differ from those of {source} by {off:.1e} of the largest value")
    print(f"{out}: embeddings as LiteRT's, within {off:.0e} of the largest value")


def similarity(points):
    """The turn, size and place that bring `points` nearest to EXPECTED, as Pillow wants it: from the result's pixels to the picture's."""
    rows, values = [], []
    for (x, y), (u, v) in zip(EXPECTED, points):
        rows += [[x, -y, 1, 0], [y, x, 0, 1]]
        values += [u, v]
    a, b, c, d = np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)[0]
    return (a, -b, c, b, a, d)


def pairs(folder, master, out):
    from facenet_pytorch import MTCNN
    from PIL import Image

    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    detector = MTCNN(keep_all=True, device="cpu")
    with open(master, newline="") as file:
        rows = [row[:3] for row in csv.reader(file) if row[2] in ("Yes", "No")]
    found = set()
    for name in sorted({name for row in rows for name in row[:2]}):
        path = pathlib.Path(folder) / name
        if not path.exists():
            continue
        picture = Image.open(path).convert("RGB")
        picture.thumbnail((1024, 1024))
        _, sure, marks = detector.detect(picture, landmarks=True)
        if marks is None:
            continue
        face = picture.transform((112, 112), Image.Transform.AFFINE, similarity(marks[int(np.argmax(sure))]), Image.Resampling.BICUBIC)
        face.save(out / (path.stem + ".png"))
        found.add(name)
    kept = {(a, b): answer for a, b, answer in rows if a in found and b in found}
    with open(out / "pairs.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path_a", "path_b", "same"])
        for (a, b), answer in kept.items():
            stems = [pathlib.Path(name).stem + ".png" for name in (a, b)]
            writer.writerow([*stems, "true" if answer == "Yes" else "false"])
    genuine = sum(answer == "Yes" for answer in kept.values())
    print(f"{out}/pairs.csv: {genuine} genuine and {len(kept) - genuine} impostor pairs of {len(found)} faces, of {len(rows)} rows")


if __name__ == "__main__":
    {"model": model, "pairs": pairs}[sys.argv[1]](*sys.argv[2:])
