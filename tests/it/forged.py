"""Forges evidence and prints the answers of verify.py: `forged.py FOLDER SCRIPT files|outcomes`.

Changes FOLDER/evidence.zip in one way at a time, with new hashes. SCRIPT is the text of verify.py, the model
is FOLDER/net.onnx. `files` replaces one file of the first trial, a JPEG file; `outcomes` changes what report
and manifest state of an audit with the attacks R1 and GTM of the photographs in FOLDER/photos. Prints a line
for each forgery.
"""

import copy, hashlib, io, json, os, sys, zipfile
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # telemetry: onnxruntime reads this when it is imported
import numpy as np
from PIL import Image

folder, script = Path(sys.argv[1]), {"__name__": "verify"}
exec(sys.argv[2], script)
original = script["unpack"]((folder / "evidence.zip").read_bytes())


def packed(files, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(archive := io.BytesIO(), "w") as out:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr, info.compress_type = 3, 0o644 << 16, compression
            out.writestr(info, data)
    return archive.getvalue()


def answer(archive, *photos):
    try:
        return " |".join(script["verify"](archive, folder / "net.onnx", *photos).splitlines())
    except SystemExit as refusal:
        return refusal


def forged(change):  # the archive after `change`, with new hashes
    files, manifest, report = copy.deepcopy(original)
    change(files, manifest, report)
    files["report.json"] = json.dumps(report).encode()
    manifest["files"] = {name: hashlib.sha256(files[name]).hexdigest() for name in files if name != "manifest.json"}
    return packed({**files, "manifest.json": json.dumps(manifest).encode()})


def saved(picture, kind="PNG", **how):
    picture.save(file := io.BytesIO(), kind, **how)
    return file.getvalue()


def of_files():
    files, manifest, report = original
    attacked, written, photograph = (manifest[name][0] for name in ("attacked", "written", "photographs"))
    quality, image = report["suite"]["jpeg"], lambda name: Image.open(io.BytesIO(files[name]))

    def levels():  # The photograph with another change of the same size as the attack's.
        clean = np.asarray(image(photograph), int)
        most = round(255 * report["outcomes"][0]["linf"])
        signs = np.where(np.indices(clean.shape[:2]).sum(0) % 2, most, -most)[..., None]
        return Image.fromarray(np.clip(clean + signs, 0, 255).astype(np.uint8))

    forgeries = {
        "another image": (written, saved(image(photograph), "JPEG", quality=quality, subsampling=0)),
        "another quality": (written, saved(image(attacked), "JPEG", quality=quality - 5, subsampling=0)),
        "another change": (attacked, saved(levels())),
    }
    for what, (name, data) in forgeries.items():
        print(f"{what}: {answer(forged(lambda files, *_: files.update({name: data})))}")


def of_outcomes():
    photos = folder / "photos"

    def strong(report):  # outcomes of the strong search
        return [outcome for outcome in report["outcomes"] if outcome["attack"] == "R1"]

    def stated(report, hits):  # robust R@1 as a mean, with Wilson's interval: the ends at which the mean is 1.96 standard errors away
        n, p, z = len(hits), sum(hits) / len(hits), 1.959964
        interval = sorted(100 * np.roots([1 + z * z / n, -2 * p - z * z / n, p * p]).real)
        for robust in rows(report):
            robust.update(value=100 * p, queries=n, interval=interval)
        report["scores"]["robust_r1"]["clean"] = 100 * sum(outcome["before"]["hit"] for outcome in strong(report)) / n

    def rows(report):  # where a report states robust R@1
        return [report["scores"]["robust_r1"], *(row for row in report["numbers"] if row["name"] == "robust_r1")]

    def left_out(manifest, report):  # the trials of half of the broken queries; returns these
        broken = [outcome["query"] for outcome in strong(report) if not outcome["after"]["hit"]][::2]
        kept = [place for place, outcome in enumerate(report["outcomes"]) if outcome["query"] not in broken]
        for name in ("attacked", "photographs"):
            manifest[name] = [manifest[name][place] for place in kept]
        report["outcomes"] = [report["outcomes"][place] for place in kept]
        lost = {outcome["query"] for outcome in report["outcomes"] if not outcome["after"]["hit"]}
        stated(report, [outcome["query"] not in lost for outcome in strong(report)])
        return broken

    def attacked_by_nobody(manifest, report):  # the place of an image
        queries = {outcome["query"] for outcome in report["outcomes"]}
        return next(i for i, item in enumerate(manifest["items"]) if item["id"] not in queries)

    def claimed(report):  # every query withstands the attacks
        for outcome in report["outcomes"]:
            outcome["after"] = {"hit": True}
        stated(report, [True])

    def another_outcome(files, manifest, report):
        claimed(report)

    def missing_measures(files, manifest, report):
        for outcome in report["outcomes"]:
            if outcome["after"]["hit"] is False:
                del outcome["after"]["hit"]
        stated(report, [True])

    def fewer_masks(files, manifest, report):  # only the first trial would be looked at
        first = report["outcomes"][0]["after"]
        claimed(report)
        report["outcomes"][0]["after"] = first
        manifest["masks"] = manifest["attacked"][:1]
        stated(report, [first["hit"], *[True] * (len(strong(report)) - 1)])

    def another_attack(files, manifest, report):  # what it is measured by is unknown
        report["outcomes"][0]["attack"] = "MINE"

    def an_image_as_its_own_reference(files, manifest, report):  # it is always near
        report["verification"] = {"threshold": 9.0, "tar": 100.0, "far": 100.0}
        manifest["pairs"] = [[0, 1, True], [0, len(manifest["items"]) - 1, False]]
        for outcome in report["outcomes"]:
            if outcome["attack"] == "GTM":
                accepted = {"distance": 0.0, "accepted": True}
                outcome.update(attack="DODGE", targets=[outcome["query"]], before=accepted, after=accepted)

    def a_trial_twice(files, manifest, report):
        kept = next(i for i, outcome in enumerate(report["outcomes"]) if outcome["after"]["hit"])
        for of in (report["outcomes"], manifest["attacked"], manifest["photographs"]):
            of.append(of[kept])
        lost = {outcome["query"] for outcome in report["outcomes"] if not outcome["after"]["hit"]}
        stated(report, [outcome["query"] not in lost for outcome in strong(report)])

    def a_smaller_gallery(files, manifest, report):
        report["data"]["gallery"] -= 1

    def another_pooling(files, manifest, report):
        manifest["pooling"] = "mean"

    def a_missing_file(files, manifest, report):
        del files[manifest["attacked"][0]]

    def a_palette(files, manifest, report):  # which Pillow resizes by another rule
        name = manifest["attacked"][0]
        files[name] = saved(Image.open(io.BytesIO(files[name])).convert("P"))

    def another_format(files, manifest, report):
        name = manifest["attacked"][0]
        files[name] = saved(Image.open(io.BytesIO(files[name])), "EPS")

    def another_photograph(files, manifest, report):  # of the same class; its query is attacked by nobody
        place = attacked_by_nobody(manifest, report)
        picture = Image.open(io.BytesIO(files[manifest["images"][place]]))
        files[manifest["images"][place]] = saved(picture.point(lambda level: level ^ 1))

    def a_weaker_search(files, manifest, report):  # the strong search breaks nothing; GTM still breaks its queries
        lost = {outcome["query"] for outcome in report["outcomes"] if outcome["attack"] != "R1" and not outcome["after"]["hit"]}
        for place, outcome in enumerate(report["outcomes"]):
            if outcome["attack"] == "R1" and outcome["before"]["hit"]:
                manifest["attacked"][place] = manifest["photographs"][place]
                outcome.update(after=outcome["before"], shift=0.0, linf=0.0)
                del files[f"attacked/{place:06}.png"]
        stated(report, [outcome["query"] not in lost and outcome["before"]["hit"] for outcome in strong(report)])

    def forged_lines(files, manifest, report):
        report["model"]["path"] = "net.onnx\n  evidence sha256 0\x1b[2K"

    def fewer_trials(files, manifest, report):
        left_out(manifest, report)

    def skipped_trials(files, manifest, report):
        for query in left_out(manifest, report):
            report["skipped"] += [{"attack": attack, "query": query, "why": "no other image has its class"} for attack in ("R1", "GTM")]

    def fewer_trials_than_written(files, manifest, report):  # the flag writes trials, and reads none
        left_out(manifest, report)
        report["command"] += " --trials-out trials.json"

    def trials_of_a_list(files, manifest, report):  # which queries it has is another report's choice, which the answer says
        left_out(manifest, report)
        report["command"] += " --trials trials.json"

    def fewer_images(files, manifest, report):  # a gallery without one of its images
        place = attacked_by_nobody(manifest, report)
        del manifest["items"][place], manifest["images"][place]
        report["data"].update(gallery=len(manifest["items"]), queries=len(manifest["items"]), images=len(manifest["items"]))
        report["data"]["sha256"] = script["data_hash"](manifest["items"], [], None)

    def a_file_twice(files, manifest, report):  # one more query that the model is right about
        place = attacked_by_nobody(manifest, report)
        manifest["items"].append({**manifest["items"][place], "id": "class00/another.png"})
        manifest["images"].append(manifest["images"][place])
        report["data"].update(gallery=len(manifest["items"]), queries=len(manifest["items"]), images=len(manifest["items"]))
        report["data"]["sha256"] = script["data_hash"](manifest["items"], [], None)

    def more_images(files, manifest, report):
        report["data"]["images"] += 100

    def a_deep_image(files, manifest, report):  # an array, as images of more than 8 bits are
        place = attacked_by_nobody(manifest, report)
        array = script["pixels"](manifest["images"][place], files[manifest["images"][place]])
        manifest["images"][place] = f"images/{place:06}.npy"
        np.save(file := io.BytesIO(), array[:, ::-1])
        files[manifest["images"][place]] = file.getvalue()

    def equal_embeddings(files, manifest, report):  # preprocessing that makes all images grey: every comparison is a tie
        report["model"]["preprocessing"]["scale"] = [1e-9]
        for outcome in report["outcomes"]:
            outcome.update(before={"hit": True}, shift=0.0)
        claimed(report)

    def no_score(files, manifest, report):
        del report["scores"]["robust_r1"]

    def a_renamed_search(files, manifest, report):  # the strong search under the name of another attack, whose outcomes count as little
        del report["scores"]["robust_r1"]
        for outcome in strong(report):
            outcome["attack"] = "NN"

    def another(name, value):  # a forgery of what is stated of robust R@1, once where scores are, and once among the numbers
        for place, where in enumerate(("scores", "numbers")):
            if name in rows(original[2])[place]:
                change = lambda files, manifest, report, place=place: rows(report)[place].update({name: value})
                change.__name__ = f"another_{name} in {where}"
                yield change

    forgeries = [fewer_trials, fewer_trials_than_written, skipped_trials, trials_of_a_list, fewer_images, a_file_twice, more_images]
    forgeries += [a_deep_image, equal_embeddings, no_score, a_renamed_search]
    for name, value in {"value": 99.0, "interval": [90.0, 100.0], "queries": 1000, "clean": 50.0, "eps": 0.1}.items():
        forgeries += another(name, value)
    forgeries += [another_outcome, missing_measures, fewer_masks, another_attack, an_image_as_its_own_reference, a_trial_twice]
    forgeries += [a_smaller_gallery, another_pooling, a_missing_file, a_palette, another_format, another_photograph, a_weaker_search, forged_lines]
    for change in forgeries:
        print(f"{change.__name__}: {answer(forged(change), photos)}")
    print(f"without photographs: {answer(forged(another_photograph))}")
    print(f"compressed: {answer(packed(original[0], zipfile.ZIP_DEFLATED))}")
    print(f"no archive: {answer(b'PK')}")


{"files": of_files, "outcomes": of_outcomes}[sys.argv[3]]()
