"""Evidence of each attack: what verify.py knows of its targets, its queries and the pixels that may change."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from bundles import embedded, evidence, sealed, verify
from conftest import QUICK

import onnx_audit
from onnx_audit import binary

np = pytest.importorskip("numpy")


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
