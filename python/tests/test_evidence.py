"""Evidence of an audit and its script verify.py: true evidence is confirmed, changed evidence is refused."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import zipfile
from pathlib import Path

import pytest
from bundles import SCRIPT, evidence, sealed, verify
from conftest import QUICK

import onnx_audit
from onnx_audit import binary
from onnx_audit import report as reports

np = pytest.importorskip("numpy")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, plain: Path, images: Path) -> bytes:
    flags = {"suite": "full", "steps": 3, "max_queries": 4, "strong_sample": 4}
    return evidence(tmp_path_factory.mktemp("evidence"), plain, images, **flags)


def test_the_script_is_short_and_in_the_archive(bundle: bytes):
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        assert archive.read("verify.py") == SCRIPT.read_bytes()
        assert archive.testzip() is None
    text = SCRIPT.read_text()
    assert len(text.splitlines()) <= 440
    lines = [line.split() for line in text.splitlines() if line.startswith(("import ", "from "))]
    imported = {word.strip(",") for [how, *words] in lines for word in (words if how == "import" else words[:1])} - {"as", "np"}
    assert imported <= {"hashlib", "io", "json", "os", "sys", "itertools", "zipfile", "pathlib", "numpy", "onnxruntime", "PIL"}


def test_true_evidence_is_confirmed(bundle: bytes, plain: Path):
    assert verify.verify(bundle, plain).startswith("confirmed: 40 outcomes")


@pytest.mark.parametrize(
    "flags", [{"form": "corrected"}, {"metric": "cosine"}, {"metric": "euclidean", "form": "corrected"}], ids=str
)
def test_other_definitions(flags, plain: Path, images: Path, tmp_path: Path):
    """Every objective in the corrected form and under the other metrics."""
    bundle = evidence(tmp_path, plain, images, suite="full", steps=3, **flags)
    assert verify.verify(bundle, plain).startswith("confirmed")


@pytest.mark.parametrize("mixed", [False, True], ids=["separate", "mixed"])
def test_separate_queries_and_cameras(mixed: bool, plain: Path, images: Path, tmp_path: Path):
    """If some queries are in the gallery, CA± attacks other queries than the first, and robust R@1 has these too."""
    rows = [["path", "label", "camera", "is_query", "is_gallery"]]
    for kind in sorted(path for path in images.iterdir() if path.is_dir()):
        for i, file in enumerate(sorted(kind.glob("*.png"))):
            rows.append([file, kind.name, i % 2, int(i <= mixed), int(i != 0)])
    with open(tmp_path / "list.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    bundle = evidence(tmp_path, plain, tmp_path / "list.csv", suite="full", steps=3, max_queries=3, strong_sample=12)
    printed = verify.verify(bundle, plain, tmp_path)
    assert printed.startswith("confirmed") and ("not confirmed: the choice of queries" in printed) == mixed


def test_colour_models_of_another_layout(images: Path, tmp_path: Path):
    """BGR, pixels from 0 to 255, channels last, a feature map to pool: like some TensorFlow models."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.normal(size=(12, 3, 5, 5)).astype(np.float32) / 500, "w")
    nodes = [
        helper.make_node("Transpose", ["x"], ["nchw"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["nchw", "w"], ["c"], strides=[4, 4]),
        helper.make_node("Sigmoid", ["c"], ["s"]),
        helper.make_node("Transpose", ["s"], ["map"], perm=[0, 2, 3, 1]),
    ]
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [value("x", ["n", 24, 24, 3])], [value("map", ["n", 5, 5, 12])], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    flags = {"channels": "bgr", "range": [0, 255], "mean": [100, 110, 120], "std": [1, 1, 2], "image_layout": "nhwc", "pooling": "max"}
    bundle = evidence(tmp_path, tmp_path / "m.onnx", images, allow_untrusted=True, **flags)
    assert verify.verify(bundle, tmp_path / "m.onnx").startswith("confirmed")


def refuses(bundle: bytes, model: Path) -> bool:
    try:
        verify.verify(bundle, model)
    except SystemExit as error:
        assert str(error).startswith("refused: ")
        return True
    return False


def damaged(bundle: bytes, rng: random.Random) -> bytes:
    """The archive with one byte changed, removed or added, or truncated."""
    i, byte = rng.randrange(len(bundle)), rng.randrange(1, 256)
    kind = rng.choice(["change"] * 7 + ["remove", "add", "cut"])
    if kind == "change":
        return bundle[:i] + bytes([bundle[i] ^ byte]) + bundle[i + 1 :]
    return {"remove": bundle[:i] + bundle[i + 1 :], "add": bundle[:i] + bytes([byte]) + bundle[i:], "cut": bundle[:i]}[kind]


def forged(bundle: bytes, rng: random.Random) -> bytes:
    """The archive with one false claim and correct hashes."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest, report = json.loads(files["manifest.json"]), json.loads(files["report.json"])
    kind = rng.choice(["measure", "shift", "linf", "image", "swap", "robust", "drop", "report"])
    i = rng.randrange(len(report["outcomes"]))
    outcome, name = report["outcomes"][i], manifest["attacked"][i]
    if kind == "measure":
        [(key, value)] = [(k, v) for k, v in outcome["after"].items() if k != "retrieval"]
        outcome["after"][key] = not value if isinstance(value, bool) else value + (0.01 if key == "cosine" else 1)
    elif kind in ("shift", "linf"):
        outcome[kind] *= 1.01
    elif kind == "image":
        pixels = np.load(io.BytesIO(files[name])) if name.endswith(".npy") else None
        pixels = np.zeros((1, 28, 28), np.float32) if pixels is None else pixels
        pixels[0, rng.randrange(28), rng.randrange(28)] += rng.choice([-0.5, 0.5])
        out = io.BytesIO()
        np.save(out, pixels)
        files[name] = out.getvalue()
    elif kind == "swap":
        other = (i + 1 + rng.randrange(len(report["outcomes"]) - 1)) % len(report["outcomes"])
        a, b = manifest["attacked"][i], manifest["attacked"][other]
        files[a], files[b] = files[b], files[a]
    elif kind == "robust":
        report["scores"]["robust_r1"]["value"] += 25
    elif kind == "drop":
        del report["outcomes"][i]
    else:
        report["suite"]["eps"] /= 2
    files["report.json"] = json.dumps(report).encode()
    return sealed(files, manifest)


def test_a_thousand_changes_are_refused(bundle: bytes, plain: Path):
    """900 archives with a damaged byte, and 100 forgeries with correct hashes."""
    rng, model = random.Random(21), plain
    passed = [i for i in range(900) if (changed := damaged(bundle, rng)) != bundle and not refuses(changed, model)]
    assert passed == []
    assert [i for i in range(100) if not refuses(forged(bundle, rng), model)] == []


def test_a_forger_who_changes_nothing_is_confirmed(bundle: bytes, plain: Path):
    """The forgeries above are refused for their claims, not for their packing."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert not refuses(sealed(files, json.loads(files["manifest.json"])), plain)


def test_another_model_is_refused(bundle: bytes, plain: Path):
    assert refuses(bundle, plain.with_name("hardened.onnx"))


def test_reports_that_cannot_be_bundled_are_refused(plain: Path, images: Path, tmp_path: Path):
    report = onnx_audit.audit(plain, images, report=tmp_path / "r.json", **QUICK)
    bundle = ["--bundle", tmp_path / "e.zip"]

    def refused(change, words: str) -> None:
        document = json.loads(report.text)
        change(document)
        with reports._Saved(json.dumps(document)) as file, pytest.raises(onnx_audit.AuditError, match=words):
            binary.checked(["report", file, *bundle])
        assert not (tmp_path / "e.zip").exists()

    refused(lambda d: d.pop("command"), "command line")
    refused(lambda d: d.update(command="audit merge a.json b.json"), "audit merge")
    refused(lambda d: d["model"].update(sha256="0" * 64), "model changed")
    refused(lambda d: d["data"].update(sha256="0" * 64), "data changed")
    refused(lambda d: d["outcomes"][0].update(shift=0.5), "differently from the report")


def test_weights_beside_the_model_are_verified(plain: Path, images: Path, tmp_path: Path):
    """A model with external data is confirmed; it is refused with other weights."""
    onnx = pytest.importorskip("onnx")
    model = tmp_path / "m.onnx"
    save = lambda net, path: onnx.save(net, path, save_as_external_data=True, location="m.data", size_threshold=0)
    save(onnx.load(plain), model)
    bundle = evidence(tmp_path, model, images)
    assert verify.verify(bundle, model).startswith("confirmed")
    assert refuses(bundle, plain), "the report is of another file"
    weights = bytearray((tmp_path / "m.data").read_bytes())
    # Too small a change to affect any outcome.
    weights[0] ^= 1
    (tmp_path / "m.data").write_bytes(weights)
    with pytest.raises(SystemExit, match="the model has sha256"):
        verify.verify(bundle, model)
    (tmp_path / "m.data").write_bytes(weights[:-1])
    with pytest.raises(SystemExit, match="m.data is too short"):
        verify.verify(bundle, model)
    (tmp_path / "m.data").unlink()
    with pytest.raises(SystemExit, match="m.data is missing"):
        verify.verify(bundle, model)
    model.write_bytes(b"no model")
    with pytest.raises(SystemExit, match="no ONNX file"):
        verify.verify(bundle, model)


def test_the_script_hashes_models_as_audit_does(tmp_path: Path):
    """External data of initializers, constants and branches, as whole files and as shared ranges."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    (tmp_path / "w").write_bytes(rng.bytes(4 * 144 * 8 + 64))

    def tensor(name: str, dims: list[int], **place) -> TensorProto:
        result = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
        for key, value in place.items():
            result.external_data.add(key=key, value=str(value))
        return result

    (tmp_path / "whole").write_bytes(np.arange(8, dtype=np.float32).tobytes())
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    branch = lambda name, offset: helper.make_graph(
        [helper.make_node("Constant", [], [name], value=tensor("c", [8], location="w", offset=offset, length=32))], "b", [], [value(name, [8])]
    )
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "m"], ["product"]),
        helper.make_node("If", ["yes"], ["one"], then_branch=branch("a", 32), else_branch=branch("b", 0)),
        helper.make_node("Add", ["product", "one"], ["sum"]),
        helper.make_node("Add", ["sum", "s"], ["twice"]),
        helper.make_node("Add", ["twice", "t"], ["y"]),
    ]
    weights = [
        tensor("m", [144, 8], location="w", offset=64, length=4 * 144 * 8),
        numpy_helper.from_array(np.array(True), "yes"),
        tensor("s", [8], location="whole"),
        tensor("t", [8], location="w", offset=32, length=32),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", ["n", 1, 12, 12])], [value("y", ["n", 8])], weights)
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    facts = json.loads(binary.checked(["inspect", path, "--json"]))
    assert facts["sha256"] == verify.model_hash(path)
    # The range that `a` and `t` share counts once.
    assert facts["bytes"] == path.stat().st_size + 4 * 144 * 8 + 64 + 32
    assert facts["external_data"] == ["w", "whole"]


def test_other_images_are_refused(bundle: bytes, plain: Path, images: Path, tmp_path: Path):
    """Everything that the hash of the data covers, and the files themselves if their folder is given."""
    files, manifest, report = verify.unpack(bundle)
    printed = verify.verify(bundle, plain, images)
    assert "24 image files are the report's" in printed and f"data sha256 {report['data']['sha256']}" in printed
    assert "not given" in verify.verify(bundle, plain)

    def refused(change) -> None:
        changed = json.loads(json.dumps(manifest))
        change(changed)
        with pytest.raises(SystemExit, match="the data has sha256"):
            verify.verify(sealed(files, changed), plain)

    refused(lambda m: m["items"][0].update(sha256="0" * 64))
    refused(lambda m: m["items"][0].update(camera=1))
    refused(lambda m: m["items"][0].update(role=1))
    refused(lambda m: m["items"].reverse())
    refused(lambda m: m["listed"].append(["a", "b", True, ""]))
    for item in manifest["items"]:
        item["label"] += " "
    refused(lambda m: None)

    other = tmp_path / "other"
    shutil.copytree(images, other)
    assert verify.verify(bundle, plain, other).startswith("confirmed")
    [first, second, *_] = sorted(other.glob("*/*.png"))
    first.write_bytes(second.read_bytes())
    with pytest.raises(SystemExit, match="is another file than the report's"):
        verify.verify(bundle, plain, other)
    first.unlink()
    with pytest.raises(SystemExit, match="is missing"):
        verify.verify(bundle, plain, other)
