"""Evidence of an audit and its script verify.py: true evidence is confirmed, changed evidence is refused."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import random
import shutil
import zipfile
from pathlib import Path

import pytest
from conftest import QUICK, ROOT

import onnx_audit
from onnx_audit import binary
from onnx_audit import report as reports

np = pytest.importorskip("numpy")
pytest.importorskip("PIL")
pytest.importorskip("onnxruntime")

SCRIPT = ROOT / "src" / "feature" / "verify.py"


def load(path: Path):
    spec = importlib.util.spec_from_file_location("verify", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


verify = load(SCRIPT)


def evidence(folder: Path, model: Path, data: Path, **flags) -> bytes:
    onnx_audit.audit(model, data, report=folder / "r.json", **{**QUICK, **flags})
    binary.checked(["report", folder / "r.json", "--bundle", folder / "evidence.zip"])
    return (folder / "evidence.zip").read_bytes()


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


def sealed(files: dict[str, bytes], manifest: dict) -> bytes:
    """An archive with correct hashes of its files, as a forger would make it."""
    import hashlib

    files = {name: data for name, data in files.items() if name != "manifest.json"}
    manifest["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    files["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(out := io.BytesIO(), "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, data)
    return out.getvalue()


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


@pytest.mark.parametrize("suite", ["HUB s=30", "UAP"])
def test_attacks_on_samples_of_queries(suite: str, plain: Path, images: Path, tmp_path: Path):
    """Queries captured by hubs, and queries under a universal perturbation."""
    effort = "effort: 1" if suite.startswith("HUB") else "schedule: adaptive\nsteps: 3"
    (tmp_path / "own.yaml").write_text(f"form: corrected\nattacks: [{suite}]\nmax_queries: {2 if effort == 'effort: 1' else 96}\n{effort}\n")
    flags = {"suite": tmp_path / "own.yaml", "steps": None, "max_queries": None, "strong_sample": "off"}
    bundle = evidence(tmp_path, plain, images, **flags)
    assert verify.verify(bundle, plain).startswith("confirmed")
    if suite == "UAP":
        return

    def refused(forge, why: str):
        files, manifest, report = verify.unpack(bundle)
        forge(report["outcomes"][0]["after"]["captured"])
        forged = sealed({**files, "report.json": json.dumps(report).encode()}, manifest)
        with pytest.raises(SystemExit, match=why):
            verify.verify(forged, plain)

    def one_more(captured):
        taken = {*captured["left_out"], *dict(captured["first"])}
        captured["first"] = sorted([*captured["first"], [min(set(range(captured["queries"])) - taken), 0]])

    refused(one_more, "after the attack")
    refused(lambda captured: captured.update(sample=[2.0, 2.0]), "after the attack")
    # Measured on a query of the sample that the hub was made for.
    refused(lambda captured: captured["left_out"].pop(), "other queries are held out")
    refused(lambda captured: captured.update(queries=captured["queries"] - 1), "other queries are held out")


@pytest.mark.parametrize("of", ["published GTT", "corrected GTT", "corrected TMIN", "corrected TOP1"])
def test_targets_of_a_definition(of: str, plain: Path, images: Path, tmp_path: Path):
    """A forger may state every outcome truly, and let another target choose which outcomes these are."""
    form, attack = of.split()
    search = "" if attack == "TOP1" else "steps: 3\n" + "schedule: bisection\neps: 0.5\n" * (attack == "TMIN")
    (tmp_path / "own.yaml").write_text(f"form: {form}\nattacks: [{attack}]\n{search}")
    flags = {"suite": tmp_path / "own.yaml", "max_queries": 6, "strong_sample": "off"}
    if attack == "TOP1":
        flags.update(steps=None, strong_sample=None, labels="none")
    files, manifest, report = verify.unpack(bundle := evidence(tmp_path, plain, images, **flags))
    assert verify.verify(bundle, plain).startswith("confirmed: 6 outcomes")
    net = verify.Model(plain, report, manifest)
    attacked, clean = (net.points([verify.pixels(name, files[name]) for name in manifest[of]]) for of in ("attacked", "images"))
    judge, kind = verify.Judge(report, manifest, clean, 0), verify.KINDS[attack]
    [measure] = verify.MEASURES[kind][0]
    ids, tried = [item["id"] for item in manifest["items"]], 0
    for place, outcome in enumerate(report["outcomes"]):
        query = ids.index(outcome["query"])
        nearest = sorted(range(len(ids)), key=lambda i: judge.far(clean[query], clean[i]))[1:]
        # TMIN may aim at any other class than those of the query and of its nearest image. TOP1 never aims at one of the query's near copies.
        known = judge.labels[[query, nearest[0]]]
        wrong = nearest[1:] if attack == "TOP1" else [query, *(i for i in nearest if attack == "GTT" or judge.labels[i] in known)]
        for target in [target for target in wrong if [ids[target]] != outcome["targets"]][:3]:
            states = [bool(judge.measure(kind, query, [target], point, True)[0]) for point in (clean[query], attacked[place])]
            changed = json.loads(json.dumps(report))
            before, after = states
            changed["outcomes"][place].update(targets=[ids[target]], before={measure: before}, after={measure: after})
            with pytest.raises(SystemExit, match="can't be its targets"):
                verify.verify(sealed({**files, "report.json": json.dumps(changed).encode()}, manifest), plain)
            tried += 1
    assert tried > 10


def test_replayed_targets_may_be_those_of_another_model(plain: Path, tmp_path: Path):
    """A class that another model does not find, and this one does: the report states that, and is confirmed."""
    binary.checked(["images", f"--out={tmp_path / 'many'}", "--seed=3", "--classes=30", "--samples=2"])
    (tmp_path / "own.yaml").write_text("form: corrected\nattacks: [TMIN]\nsteps: 3\nschedule: bisection\neps: 0.5\n")
    flags = {"suite": tmp_path / "own.yaml", "max_queries": None, "steps": None, "strong_sample": "off"}
    files, manifest, report = verify.unpack(evidence(tmp_path, plain, tmp_path / "many", **flags, trials_out=tmp_path / "t.json"))
    net = verify.Model(plain, report, manifest)
    judge = verify.Judge(report, manifest, net.points([verify.pixels(name, files[name]) for name in manifest["images"]]), 0)
    ids, trials, changed = [item["id"] for item in manifest["items"]], json.loads((tmp_path / "t.json").read_text()), set()
    for row in trials["trials"]["attacks"]["tmin"]:
        query = ids.index(row["query"])
        nearest = min((i for i in range(len(ids)) if i != query), key=lambda i: judge.far(judge.points[query], judge.points[i]))
        if judge.labels[nearest] != judge.labels[query]:
            row["targets"] = [ids[nearest]]
            changed.add(row["query"])
    (tmp_path / "t.json").write_text(json.dumps(trials))
    bundle = evidence(tmp_path, plain, tmp_path / "many", **flags, trials=tmp_path / "t.json")
    found = {outcome["query"] for outcome in verify.unpack(bundle)[2]["outcomes"] if not outcome["before"]["hit"]}
    assert found == changed != set()
    assert verify.verify(bundle, plain).startswith("confirmed")


@pytest.mark.parametrize("listed", [True, False], ids=["pairs", "classes"])
def test_decisions_by_a_threshold(listed: bool, plain: Path, images: Path, tmp_path: Path):
    """The distance of each decision, and TAR and FAR of clean pairs, from a list of pairs or from classes."""
    files = sorted(images.glob("*/*.png"))
    pairs = [(a, b, a.parent == b.parent) for i, a in enumerate(files) for b in files[i + 1 :] if a.parent == b.parent or (i + len(b.name)) % 2]
    # A pair with an image that can't be read is listed and not measured.
    (tmp_path / "broken.png").write_bytes(b"no image")
    pairs.insert(1, (tmp_path / "broken.png", files[0], False))
    with open(tmp_path / "pairs.csv", "w", newline="") as file:
        csv.writer(file).writerows([["path_a", "path_b", "same"], *pairs])
    (tmp_path / "own.yaml").write_text("form: corrected\nattacks: [DODGE, IMPERSONATE, EVADE, COLLIDE]\nthreshold: far=0.05\nsteps: 3\n")
    flags = {"suite": tmp_path / "own.yaml", "channels": "grey", "max_queries": 8}
    bundle = evidence(tmp_path, plain, tmp_path / "pairs.csv" if listed else images, **flags)
    files, manifest, report = verify.unpack(bundle)
    assert len(report["outcomes"]) > 20 and len(manifest["pairs"]) == report["verification"]["genuine"] + report["verification"]["impostor"]
    assert verify.verify(bundle, plain).startswith("confirmed")

    def refused(forge, why: str):
        report = json.loads(files["report.json"])
        forge(report)
        with pytest.raises(SystemExit, match=why):
            verify.verify(sealed({**files, "report.json": json.dumps(report).encode()}, manifest), plain)

    far = [i for i, o in enumerate(report["outcomes"]) if abs(o["after"]["distance"] - report["verification"]["threshold"]) > 0.01]
    for attack in ("DODGE", "IMPERSONATE", "EVADE", "COLLIDE"):
        trial = next(i for i in far if report["outcomes"][i]["attack"] == attack)
        after = lambda report: report["outcomes"][trial]["after"]
        refused(lambda report: after(report).update(accepted=not after(report)["accepted"]), "after the attack")
        refused(lambda report: after(report).update(distance=after(report)["distance"] + 0.01), "after the attack")
    refused(lambda report: report["verification"].update(tar=report["verification"]["tar"] + 5), "tar is stated as")
    refused(lambda report: report["verification"].update(far=0.0), "far is stated as")

    def refused_pairs(pairs: list, why: str):
        with pytest.raises(SystemExit, match=why):
            verify.verify(sealed(files, {**manifest, "pairs": pairs}), plain)

    # A forger could count the pairs on which the model is right, and these twice.
    pairs = manifest["pairs"]
    refused_pairs(pairs + pairs[-1:], "TAR and FAR are not those of the data")
    refused_pairs(pairs[1:], "TAR and FAR are not those of the data")
    refused_pairs([[a, b, not same] for a, b, same in pairs], "TAR and FAR are not those of the data")
    # Without the impostor pairs that are accepted, FAR would be 0. Pairs of classes are each there from one side.
    judge, _ = embedded(files, manifest, report, plain)
    far = lambda a, b: judge.far(judge.points[a], judge.points[b]) > report["verification"]["threshold"] + 0.001
    easy = [[a, b, same] for a, b, same in pairs if same or far(a, b)]
    twice = [[b, a, same] for a, b, same in easy if not same][: len(pairs) - len(easy)]
    assert len(easy) < len(pairs)
    for chosen in (easy, easy + twice):
        stated = json.loads(files["report.json"])
        stated["verification"].update(far=0.0, impostor=sum(not same for *_, same in chosen))
        forged = {**files, "report.json": json.dumps(stated).encode()}
        with pytest.raises(SystemExit, match="TAR and FAR are not those of the data"):
            verify.verify(sealed(forged, {**manifest, "pairs": chosen}), plain)


def embedded(files: dict, manifest: dict, report: dict, model: Path):
    """The judge of the clean embeddings without a tolerance, and the embeddings of the attacked images."""
    net = verify.Model(model, report, manifest)
    clean, attacked = (net.points([verify.pixels(name, files[name]) for name in manifest[of]]) for of in ("images", "attacked"))
    return verify.Judge(report, manifest, clean, 0), attacked


@pytest.mark.parametrize("form", ["published", "corrected"])
def test_targets_of_a_pool(form: str, plain: Path, images: Path, tmp_path: Path):
    """QA- and CA- aim at the nearest 1 % of an image, here at one image of 24, and all at images that can be ranked."""
    attacks = "[QA-, CA-, QA+ m=2, CA+ w=2, TMA]"
    (tmp_path / "own.yaml").write_text(f"form: {form}\nattacks: {attacks}\nsteps: 3\n")
    flags = {"suite": tmp_path / "own.yaml", "steps": None, "max_queries": 6}
    files, manifest, report = verify.unpack(bundle := evidence(tmp_path, plain, images, **flags))
    assert verify.verify(bundle, plain).startswith("confirmed: 30 outcomes")
    judge, attacked = embedded(files, manifest, report, plain)
    ids, tried = [item["id"] for item in manifest["items"]], 0
    for place, outcome in enumerate(report["outcomes"]):
        query, kind = ids.index(outcome["query"]), verify.KINDS[outcome["attack"]]
        # Sorted by distance, without the query itself: the first is the pool of QA- and CA-.
        others = sorted(set(range(len(ids))) - {query}, key=lambda i: judge.far(judge.points[query], judge.points[i]))
        if outcome["attack"].endswith("-"):
            assert outcome["targets"] == [ids[others[0]]]
            wrong = [[others[1]], [others[-1]], [others[0], others[1]], [others[0]] * 2 if outcome["attack"] == "QA-" else [query]]
        else:
            wrong = [[], [query]] if form == "corrected" else [[]]
        for targets in wrong:
            states = [judge.measure(kind, query, targets, point, 0) for point in (judge.points[query], attacked[place])] if targets else [[0, 0]] * 2
            changed = json.loads(json.dumps(report))
            [measure] = outcome["before"].keys() - {"retrieval"}
            before, after = ({**outcome[when], measure: float(np.mean(state))} for when, state in zip(("before", "after"), states))
            changed["outcomes"][place].update(targets=[ids[target] for target in targets], before=before, after=after)
            with pytest.raises(SystemExit, match="can't be its targets"):
                verify.verify(sealed({**files, "report.json": json.dumps(changed).encode()}, manifest), plain)
            tried += 1
    assert tried > 50


def test_queries_that_hubs_are_measured_on(plain: Path, images: Path, tmp_path: Path):
    """A forger could hold out the queries that capture least, or none of a class."""
    (tmp_path / "own.yaml").write_text("form: corrected\nattacks: [HUB s=8]\neffort: 1\nmax_queries: 3\neps: 8/255\n")
    flags = {"suite": tmp_path / "own.yaml", "steps": None, "max_queries": None}
    files, manifest, report = verify.unpack(bundle := evidence(tmp_path, plain, images, **flags))
    assert verify.verify(bundle, plain).startswith("confirmed")
    held_out = manifest["held_out"]
    hubs = [outcome for outcome in report["outcomes"] if outcome["attack"] == "HUB"]
    captured = lambda report: [o[when]["captured"] for o in report["outcomes"] if o["attack"] == "HUB" for when in ("before", "after")]
    capturing = {held_out[place] for found in captured(report) for place, _ in found["first"]}
    assert held_out == list(range(24)) and hubs and capturing

    def holding_out(kept: list[int]) -> bytes:
        changed = json.loads(json.dumps(report))
        places = {held_out.index(query): place for place, query in enumerate(kept)}
        for found in captured(changed):
            left_out = [places[place] for place in found["left_out"] if place in places]
            first = sorted([places[place], rank] for place, rank in found["first"] if place in places)
            found.update(queries=len(kept), left_out=left_out, first=first)
        return sealed({**files, "report.json": json.dumps(changed).encode()}, {**manifest, "held_out": kept})

    assert verify.verify(holding_out(held_out), plain).startswith("confirmed")
    for kept in ([query for query in held_out if query not in capturing], held_out[4:], held_out[::-1], held_out + held_out[-1:]):
        with pytest.raises(SystemExit, match="other queries are held out"):
            verify.verify(holding_out(kept), plain)


def test_held_out_queries_are_those_of_the_program(plain: Path, tmp_path: Path):
    """Of more than a thousand queries they are a sample, which the script draws as the program does."""
    binary.checked(["images", f"--out={tmp_path / 'many'}", "--seed=3", "--classes=101", "--samples=10"])
    (tmp_path / "own.yaml").write_text("form: corrected\nattacks: [HUB s=8]\neffort: 1\nmax_queries: 1\neps: 1/255\n")
    flags = {"suite": tmp_path / "own.yaml", "steps": None, "max_queries": None, "seed": 5}
    bundle = evidence(tmp_path, plain, tmp_path / "many", **flags)
    _, manifest, report = verify.unpack(bundle)
    assert (len(manifest["held_out"]), report["data"]["queries"]) == (1000, 1010)
    assert verify.verify(bundle, plain).startswith("confirmed")


@pytest.mark.parametrize("where", ["patch", "mask"])
def test_pixels_that_may_change(where: str, plain: Path, images: Path, tmp_path: Path):
    """A patch is a rectangle, the same in all attacks on a query. A mask is one for all images."""
    from PIL import Image

    white = np.zeros((28, 28), np.uint8)
    white[4:14, 3:20] = 255
    Image.fromarray(white).save(tmp_path / "mask.png")
    (tmp_path / "own.yaml").write_text("form: corrected\nattacks: [ES, GTM]\nsteps: 2\n" + {"patch": "patch: 0.1\n", "mask": "mask: mask.png\n"}[where])
    flags = {"suite": tmp_path / "own.yaml", "steps": None, "max_queries": 4}
    files, manifest, report = verify.unpack(bundle := evidence(tmp_path, plain, images, **flags))
    assert verify.verify(bundle, plain).startswith("confirmed: 8 outcomes")
    # Images that no attack changed fit every mask. That they are the attacks' can't be confirmed.
    ids = [item["id"] for item in manifest["items"]]
    manifest["attacked"] = [manifest["images"][ids.index(outcome["query"])] for outcome in report["outcomes"]]
    for outcome in report["outcomes"]:
        outcome.update(after=outcome["before"], shift=0.0, linf=0.0)
    files["report.json"] = json.dumps(report).encode()

    def forged(change) -> bytes:
        name = manifest["masks"][0]
        Image.fromarray(change(np.asarray(Image.open(io.BytesIO(files[name])))).astype(np.uint8)).save(file := io.BytesIO(), "PNG")
        return sealed({**files, name: file.getvalue()}, manifest)

    def with_a_hole(free):
        changed, inside, outside = free.copy(), np.argwhere(free)[0], np.argwhere(free == 0)[0]
        changed[tuple(inside)], changed[tuple(outside)] = 0, 255
        return changed

    def turned(free):
        changed, high, wide = np.zeros_like(free), free.any(1).sum(), free.any(0).sum()
        changed[: high // 2, : 2 * wide] = 255
        return changed

    assert verify.verify(forged(lambda free: free), plain).startswith("confirmed")
    shape = "its mask is no rectangle of" if where == "patch" else "its mask is another one than in other trials"
    forgeries = [(with_a_hole, shape), (turned, shape), (lambda free: np.roll(free, 1, 0), "another one than in other trials|no rectangle")]
    forgeries += [(np.zeros_like, "not within its mask"), (lambda free: np.full_like(free, 255), "not within its mask")]
    for change, why in forgeries:
        with pytest.raises(SystemExit, match=why):
            verify.verify(forged(change), plain)


def test_the_size_of_a_change_in_another_norm(plain: Path, images: Path, tmp_path: Path):
    flags = {"suite": "robust", "norm": "l2", "eps": "0.5", "max_queries": 10, "strong_sample": None}
    files, _, report = verify.unpack(bundle := evidence(tmp_path, plain, images, **flags))
    assert "ε 0.5 in l2" in verify.verify(bundle, plain)
    place = next(i for i, outcome in enumerate(report["outcomes"]) if outcome["size"] > 0.1)
    report["outcomes"][place]["size"] /= 2
    with pytest.raises(SystemExit, match="changed by .* and not by"):
        verify.verify(sealed({**files, "report.json": json.dumps(report).encode()}, verify.unpack(bundle)[1]), plain)


@pytest.mark.parametrize("sample", ["any", "correct"])
def test_queries_that_were_left_out(sample: str, plain: Path, tmp_path: Path):
    """Robust R@1 is of the first queries in the order of the seed: a forger could leave out those that were broken."""
    binary.checked(["images", f"--out={tmp_path / 'many'}", "--seed=3", "--classes=30", "--samples=2"])
    flags = {"suite": "robust", "max_queries": 14, "strong_sample": None, "eps": "2/255", "seed": 7, "sample": sample}
    onnx_audit.audit(plain, tmp_path / "many", report=tmp_path / "r.json", **{**QUICK, **flags})
    # The trials of a bundle are the report's, however they were chosen.
    binary.checked(["report", tmp_path / "r.json", "--bundle", tmp_path / "evidence.zip"])
    files, manifest, report = verify.unpack(bundle := (tmp_path / "evidence.zip").read_bytes())
    assert verify.verify(bundle, plain).startswith("confirmed: 14 outcomes")
    order = verify.sampled(manifest["items"], range(60), 7)
    ids = [item["id"] for item in manifest["items"]]
    attacked = [ids.index(outcome["query"]) for outcome in report["outcomes"]]
    # Some of the first are wrong without an attack.
    assert (set(order[:14]) == set(attacked)) == (sample == "any")
    assert all(outcome["before"]["hit"] for outcome in report["outcomes"]) == (sample == "correct")
    last = attacked.index(max(attacked, key=order.index))
    for place in (last, *(place for place in (0, 4, 8, 13) if place != last)):
        changed, names = json.loads(json.dumps(report)), list(manifest["attacked"])
        del changed["outcomes"][place], names[place]
        share = np.mean([outcome["after"]["hit"] and outcome["before"]["hit"] for outcome in changed["outcomes"]])
        # Numbers that a report doesn't state are not compared.
        changed["scores"]["robust_r1"], changed["numbers"] = {"value": 100 * share, "queries": 13}, []
        archive = sealed({**files, "report.json": json.dumps(changed).encode()}, {**manifest, "attacked": names})
        if place == last:
            assert verify.verify(archive, plain).startswith("confirmed: 13 outcomes")
        else:
            with pytest.raises(SystemExit, match="robust_r1 is not of the first queries of seed 7"):
                verify.verify(archive, plain)
