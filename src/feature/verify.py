"""Confirms the outcomes of an audit with the original model: python verify.py evidence.zip model.onnx [photos/ or the list of images]

Needs numpy, Pillow and onnxruntime, and no part of audit. The script embeds every image once, and confirms the hashes of model and data, every
outcome, robust R@1, FAR and TAR, and that targets, queries and masks are those of their definitions. A comparison within SLACK of a tie is accepted
with either result. If the folder of the images is given, its files are compared with the archive's images. Exit code 0: confirmed."""

import hashlib, io, itertools, json, os, sys, zipfile
from pathlib import Path
import numpy as np
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # onnxruntime reads this when it is imported; otherwise it sends telemetry
import onnxruntime
from PIL import Image, ImageOps

SLACK, TOP, COPY = 1e-4, 4, 0.999  # tolerance relative to an embedding's length; ranks of GTT's goal; cosine similarity of near copies
DECODERS, ENCODERS = 5, 3  # grey levels: largest difference between decoders of a JPEG file, mean difference between encoders
LOSSY = ("JPEG", "MPO", "WEBP", "TIFF")  # formats that programs decode with small differences; TIFF may have JPEG in it
MEASURES = {  # by kind, the measures of an outcome, and the attacks whose outcomes have them
    "hit": ({"hit"}, "ES LTM GTM R1 NN ANC MIN ALI UNI TRI UAP"),
    "top1": ({"hit"}, "TOP1"),
    "target_class": ({"hit"}, "TMIN"),
    "query_rank": ({"rank"}, "QA+ QA-"),
    "candidate_rank": ({"rank"}, "CA+ CA-"),
    "reference": ({"distance", "accepted"}, "DODGE IMPERSONATE"),
    "duplicates": ({"distance", "accepted"}, "EVADE"),
    "others": ({"distance", "accepted"}, "COLLIDE"),
    "cosine": ({"cosine"}, "TMA"),
    "retained": ({"retained"}, "GTT"),
    "captured": ({"captured"}, "HUB"),
}
KINDS = {attack: kind for kind, (_, attacks) in MEASURES.items() for attack in attacks.split()}
DRAWN, DISTINCT = ("QA+", "QA-", "CA+", "CA-", "TMA", "HUB"), ("QA-", "HUB")  # attacks on drawn targets; those without repeats
ROBUST, Z = {"R1": "robust_r1", "TOP1": "robust_top1"}, 1.959964  # the score of a strong search; 97.5 % quantile of the normal distribution
QUERY, STORED, HELD = 1, 2, 1000  # the roles of images that are only queries, and only in the gallery; most queries that hubs are measured on
MOST = 50_000  # of more pairs of a kind, as many are drawn
RESIZED = ("bilinear", "bicubic")  # interpolations that are Pillow's
PARTS = {  # fields of ONNX's protobuf messages that contain tensors, by field number
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    **{"function": {7: "node", 11: "attribute"}, "node": {5: "attribute"}},
    **{"training": {1: "graph", 2: "graph"}, "sparse": {1: "tensor", 2: "tensor"}},
}
TYPES = {f"tensor({t})": t for t in "float16 double uint8 int8 uint16 int16 uint32 int32 uint64 int64".split()} | {"tensor(float)": "float32"}

def printable(text):  # names may have control characters, which could forge a line
    return "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)

def check(holds, text):
    if not holds:
        raise SystemExit(printable(f"refused: {text}"))

def unpack(bundle):  # files, manifest and report; refuses an archive with bytes outside of its files
    try:
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            # Evidence is not compressed. A small archive may hold more than fits into memory.
            check(sum(info.file_size for info in archive.infolist()) <= len(bundle), "the files of the archive are larger than the archive")
            files = {info.filename: archive.read(info) for info in archive.infolist()}
    except Exception as error:
        raise SystemExit(printable(f"refused: the archive is damaged: {error}")) from None
    with zipfile.ZipFile(again := io.BytesIO(), "w") as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, data)
    check(again.getvalue() == bundle, "the archive was changed outside of its files")
    check("manifest.json" in files, "the archive is no evidence: it has no manifest.json")
    manifest = json.loads(files["manifest.json"])
    check(set(files) == {"manifest.json", *manifest["files"]}, "files are missing, or there are others")
    for name, sha256 in manifest["files"].items():
        check(hashlib.sha256(files[name]).hexdigest() == sha256, f"{name} was changed")
    return files, manifest, json.loads(files["report.json"])

def number(data, at):  # a varint of protobuf: its value, and its end
    end = at + 1
    while data[end - 1] > 127:
        end += 1
    return sum((byte & 127) << 7 * i for i, byte in enumerate(data[at:end])), end

def fields(data):  # numbers and values of the fields of a protobuf message, sorted by number; values of fixed length are left out
    result, at = [], 0
    while at < len(data):
        key, at = number(data, at)
        value, at = number(data, at) if key & 7 in (0, 2) else (b"", at)
        result.append((key >> 3, data[at : at + value] if key & 7 == 2 else value))
        at += {0: 0, 1: 8, 2: value, 5: 4}[key & 7]
    return sorted(result, key=lambda field: field[0])

def external(data, kind="model"):  # location, offset and length of external data, for each tensor that has some
    for field, value in (inner := fields(data)):
        if kind == "tensor" and (field, value) == (14, 1):
            entries = [tuple(bytes(text).decode() for _, text in fields(entry)) for field, entry in inner if field == 13]
            check(len(entries) == len(dict(entries)), "external data are stated twice")
            yield dict(entries)
        elif field in PARTS.get(kind, {}):
            yield from external(value, PARTS[kind][field])

def model_hash(path):  # SHA-256 of the file, then of each range of external data after its length (8 bytes, little-endian)
    digest = hashlib.sha256(model := path.read_bytes())
    try:
        entries = list(external(memoryview(model)))
    except (IndexError, KeyError, RecursionError, ValueError):
        raise SystemExit(f"refused: {path} is no ONNX file, or a damaged one") from None
    for entry in entries:
        place = Path(entry.get("location", ""))
        check(not place.is_absolute() and ".." not in place.parts, f"{place} is not beside the model")
        check((path.parent / place).is_file(), f"{place} is missing beside the model")
        with open(path.parent / place, "rb") as file:
            offset, size = int(entry.get("offset", 0)), file.seek(0, 2)
            length = int(entry.get("length", max(0, size - offset)))
            check(file.seek(offset) + length <= size, f"{place} is too short")
            digest.update(length.to_bytes(8, "little") + file.read(length))
    return digest.hexdigest()

def data_hash(items, listed, folder):  # SHA-256 of ids, classes and file hashes, then of roles and cameras if there are any, then of listed pairs
    digest, tabbed = hashlib.sha256(), lambda *texts: "".join(f"{text}\t" for text in texts).encode()
    for item in items:
        if folder:
            check(item["file"], f"{item['id']} is no file of its own, so no folder shows it: leave {folder} out")
            check((file := folder / item["file"]).is_file(), f"{file} is missing: {folder} is not the folder of the images, or the one with their list")
            check(hashlib.sha256(file.read_bytes()).hexdigest() == item["sha256"], f"{file} is another file than the report's")
        digest.update(tabbed(item["id"], item["label"]) + bytes.fromhex(item["sha256"]))
    check(not folder or len({item["file"] for item in items}) == len(items), "an image file is listed twice")
    for item in items if any(item["role"] or item["camera"] is not None for item in items) else ():
        digest.update(tabbed(item["role"], "" if item["camera"] is None else item["camera"]))
    for probe, reference, same, group, *fold in listed:
        digest.update(tabbed(probe, reference, str(same).lower(), group, *fold))
    return digest.hexdigest()

def sampled(items, places, seed):  # these images in the order that samples follow: spread over the classes, and by hashes within each
    number = lambda kind, i: int.from_bytes(hashlib.sha256(seed.to_bytes(8, "little") + kind + items[i]["id"].encode()).digest()[:8], "big")
    ordered = sorted((items[i]["label"], number(b"query\0", i), i) for i in places)
    classes = [[i for *_, i in own] for _, own in itertools.groupby(ordered, key=lambda one: one[0])]
    places = (((place + (number(b"class\0", own[0]) >> 11) / 2**53) / len(own), i) for own in classes for place, i in enumerate(own))
    return [i for _, i in sorted(places)]

def is_patch(free, share):  # whether a mask is one rectangle with the proportions of the image and this share of its area
    (rows, columns), root = (np.flatnonzero(free.any(axis)) for axis in (1, 0)), np.sqrt(np.float32(share))
    sides = [max(1, int(np.float32(n) * root + np.float32(0.5))) for n in free.shape]
    return sides == [len(rows), len(columns)] == [np.ptp(rows) + 1, np.ptp(columns) + 1] and free[np.ix_(rows, columns)].all()

def opened(data):  # an image file of the archive; Pillow starts other programs for some formats
    image = Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
    check(image.mode in ("L", "RGB"), f"an image of mode {image.mode}, and those of evidence are grey or RGB")
    return image

def values(image):  # [C, H, W] in [0, 1]
    return np.atleast_3d(np.asarray(image, np.float32) / np.float32(255)).transpose(2, 0, 1)

def pixels(name, data):  # an image [C, H, W] in [0, 1]
    return np.load(io.BytesIO(data), allow_pickle=False) if name.endswith(".npy") else values(opened(data))

def prepared(image, pre):  # an image as input of the model: resized along rows, then along columns, then the centre cropped
    check(pre["interpolation"] in RESIZED, f"{pre['interpolation']} is none of Pillow's interpolations")
    how = getattr(Image, pre["interpolation"].upper())
    (width, height), (rows, columns), resize, side = image.size, (pre["height"], pre["width"]), pre["resize"], pre.get("resize_shorter")
    to = (max(side, side * width // height), max(side, side * height // width)) if side else (resize or (rows, columns))[::-1]
    image = image.resize((to[0], height), how).resize(tuple(to), how)
    left, top = ((a - b) // 2 if pre.get("crop") == "floor" else round((a - b) / 2) for a, b in zip(to, (columns, rows)))
    return values(image.crop((left, top, left + columns, top + rows)))

def same_image(file, expected, pre, deep=False, prepare=lambda image, pre: values(image)):  # checks that a file is this image; whether it could
    with Image.open(file) as image:
        if image.mode[0] in "IF":  # more than 8 bits a channel; Pillow reads others of these with 8
            return False
        lossy, image = image.format in LOSSY, ImageOps.exif_transpose(image).convert("RGB")
    found = prepare(image.convert("L") if pre["channels"] == 1 else image, pre)
    check(found.shape == expected.shape, f"{file} has another size than the archive's image of it")
    differs = 255 * np.abs(found - expected).mean()
    check(differs <= max(ENCODERS * lossy, deep), f"{file} is {differs:.2f} grey levels from the archive's image, in the mean")
    return True

def same_file(name, before, written, decoded, quality):  # checks a JPEG file: its quality, that it encodes `before`, that Pillow decodes it alike
    with Image.open(io.BytesIO(written)) as image, io.BytesIO() as again:
        levels = np.rint(before.transpose(1, 2, 0) * 255).astype(np.uint8)
        Image.fromarray(levels[..., 0] if len(before) == 1 else levels).save(again, "JPEG", quality=quality, subsampling=0)
        check(image.format == "JPEG" and image.quantization == Image.open(again).quantization, f"{name}: no JPEG file of quality {quality}")
        check(image.size == decoded.shape[:0:-1] and before.shape == decoded.shape, f"{name}: its images have different sizes")
        own, encoded = np.abs(pixels("", written) - decoded), np.abs(pixels("", again.getvalue()) - decoded)
    check(np.rint(255 * own).max() <= DECODERS, f"{name}: Pillow's decoding of the file differs by {255 * own.max():.0f} grey levels")
    check(encoded.mean() <= ENCODERS / 255, f"{name}: the file is {255 * encoded.mean():.1f} grey levels from the attacked image as JPEG, in the mean")

class Model:  # maps images [B, C, H, W] to embeddings [B, D], normalised unless the metric is euclidean
    def __init__(self, file, report, manifest):
        self.session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        self.input = next(i for i in self.session.get_inputs() if i.name == manifest["input"])
        self.model, self.pre, self.pooling = report["model"], report["model"]["preprocessing"], manifest["pooling"]
        self.batch = self.input.shape[0] if isinstance(self.input.shape[0], int) else 32

    def points(self, images):
        points = np.concatenate([self.embed(np.stack(images[i : i + self.batch])) for i in range(0, len(images), self.batch)])
        return points / (1 if self.model["metric"] == "euclidean" else np.maximum(np.linalg.norm(points, axis=1, keepdims=True), 1e-12))

    def embed(self, x):
        count, scale, shift = len(x), *(np.float32(self.pre[name]).reshape(-1, 1, 1) for name in ("scale", "shift"))
        x = np.concatenate([x, np.full((self.batch - count, *x.shape[1:]), 0.5, np.float32)])
        x = (x[:, ::-1] if self.pre["order"] == "bgr" else x) * scale + shift
        x = np.rint(x) if self.pre.get("integers") else x
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1) if self.pre["layout"] == "nhwc" else x, TYPES[self.input.type])
        e = self.session.run([self.model["output"]], {self.input.name: x})[0][:count].astype(np.float32)
        if self.pooling:
            e = np.moveaxis(e, 1, -1) if e.ndim == 4 and self.pre["layout"] == "nchw" else e
            e = e.reshape(count, -1, e.shape[-1])
            e = e[:, 0] if self.pooling == "cls" else e.mean(1) if self.pooling == "mean" else e.max(1)
        return e.reshape(count, -1).astype(np.float64)

class Judge:  # measures embeddings [D] as the report's form defines
    def __init__(self, report, manifest, points, slack):
        metric, self.items, self.held_out, self.points = report["model"]["metric"], manifest["items"], manifest["held_out"], points
        self.seed, self.hub, self.right_first = report["seed"], report["suite"].get("hub_class"), "correct" in report["suite"].get("sampling", "")
        self.cosine, self.own, n = metric == "cosine", report["suite"]["form"] == "corrected", report["data"]["gallery"]
        self.replayed = any(word.split("=")[0] in ("--trials", "--baseline") for word in report.get("command", "").split())  # by another model
        # One long embedding must not make all others equal.
        self.sides = np.array([-slack, slack]) * (np.median(np.linalg.norm(points, axis=1)) if metric == "euclidean" else 1)
        self.all_labels = np.array([item["label"] for item in self.items])
        self.gallery, self.labels, self.decisions = points[:n], self.all_labels[:n], report.get("verification")
        self.cameras = np.array([-1 if item["camera"] is None else item["camera"] for item in self.items])
        self.stored, self.asks = np.arange(len(points)) < n, np.array([item["role"] != STORED for item in self.items])

    def far(self, a, b):
        return 1 - b @ a if self.cosine else np.linalg.norm(b - a, axis=-1)

    def seen(self, image, own):  # mask of all images: without its class under its camera, and itself if `own`
        same, camera = self.all_labels == self.all_labels[image], self.cameras[image]
        seen = ~(same & (self.cameras == camera) & (camera >= 0))
        seen[image] = not own
        return seen

    def kept(self, query, own, *others):  # mask of a query's ranking, without `others`
        kept = self.seen(query, own)[self.stored]
        kept[[i for i in others if i < len(kept)]] = False
        return kept

    def pool(self, attack, query):  # mask of the images that targets are drawn from; all of them, if the 1 % nearest are another model's
        near, hub, of = attack.endswith("-"), attack == "HUB", self.asks if attack[0] in "CH" else self.stored
        pool = self.seen(query, self.own or near or hub) & of & (True if self.hub is None else self.all_labels == self.hub)
        if near and not self.replayed and pool.any():
            pool &= (far := self.far(self.points[query], self.points)) <= np.sort(far[pool])[: max(1, of.sum() // 100)][-1] + self.sides[1]
        return pool

    def nothing(self, kind, query, targets):  # whether there is nothing to measure
        mine, kept = self.labels == self.items[query]["label"], self.kept(query, True)
        if kind == "captured":
            return all(q in targets or not self.kept(q, True)[query] for q in self.held_out)
        return kind in (sets := {"hit": mine & kept, "duplicates": mine & kept, "others": ~mine & kept}) and not sets[kind].any()

    def aimed(self, attack, query, targets, before):  # whether the targets may be the attack's; those of other models, if trials are replayed
        if attack == "GTT":  # the image nearest to the clean query; in the published form the second one, if the query is in the gallery
            kept, distances = self.kept(query, self.own), self.far(self.points[query], self.gallery)
            low, high = self.rank(distances, distances[targets[0]], self.kept(query, self.own, *targets))
            return len(targets) == 1 and kept[targets[0]] and low <= (not self.own and query < len(kept)) <= high
        if attack == "TMIN":  # of neither the query's class nor the one that the clean query finds
            other = len(targets) == 1 and self.labels[targets[0]] != self.items[query]["label"] and (before["hit"] or self.replayed)
            return other and self.kept(query, True)[targets[0]]
        if attack in DRAWN:
            return len(targets) > 0 and self.pool(attack, query)[targets].all() and len(set(targets)) >= len(targets) * (attack in DISTINCT)
        return attack != "TOP1" or before["hit"]  # the clean query finds one of the targets

    def drawn(self, pairs):  # whether these may be the pairs that no list gives, and whether they are all that there are
        chosen, every, sought = {}, np.zeros(2, int), np.zeros(2, int)  # by kind: pairs that there are, and those that are looked through
        for probe, reference, same in pairs:
            chosen.setdefault((probe, same), []).append(reference)
        numbers = np.bincount([same for *_, same in pairs], minlength=2)
        for q in np.flatnonzero(self.asks).tolist():
            valid, mine = self.kept(q, True), self.labels == self.all_labels[q]
            valid[: q * self.stored[q]] &= ~self.asks[: q * self.stored[q]]  # of two queries, the first one is the probe
            kinds = valid & ~mine, valid & mine
            every, sought = every + [kind.sum() for kind in kinds], sought + [mine.size, mine.sum()]
            if not all(kind[chosen.pop((q, same), [])].all() for same, kind in enumerate(kinds)):
                return False, False
        expected = np.where((sought <= 2 * MOST) & (every <= MOST), numbers == every, numbers <= np.minimum(every, MOST))
        return not chosen and len({*pairs}) == len(pairs) and expected.all(), np.array_equal(numbers, every)

    def first(self, kind, asked, tried):  # whether the attacked queries, and those of robust R@1, are the first in the order of the seed
        order = sampled(self.items, np.flatnonzero(self.asks).tolist(), self.seed)
        right = lambda i: not self.nothing("hit", i, []) and self.measure("hit", i, [], self.points[i], True)[i in asked]  # at a tie, either
        by_seed = itertools.chain(filter(right, order), itertools.filterfalse(right, order)) if self.right_first else asked
        able = (i for i in order if (i in asked or not self.right_first) and not self.nothing(kind, i, []))
        return all({*itertools.islice(of, len(found))} == found for of, found in ((by_seed, asked), (able, tried)))

    def rank(self, distances, at, kept):  # lowest and highest possible rank of the distance `at`
        return [np.count_nonzero(kept & (distances < at + side)) for side in self.sides]

    def measure(self, kind, query, targets, z, claimed):  # lowest and highest possible value at the embedding z; for hubs also the claimed ones
        distances, mine, kept = self.far(z, self.gallery), self.labels == self.items[query]["label"], self.kept(query, True)
        if kind == "cosine":
            return z @ (t := self.points[targets[0]]) / np.linalg.norm(z) / np.linalg.norm(t) + [-SLACK, SLACK]
        if kind == "target_class":  # the goal is the class of the target
            mine = self.labels != self.labels[targets[0]]
        if kind == "top1":  # the targets are the nearest image of the clean query and its near copies
            mine, t = np.isin(np.arange(len(kept)), targets), targets[np.argmin(self.far(self.points[query], self.points[targets]))]
            like = self.gallery @ self.points[t] / np.linalg.norm(self.gallery, axis=1) / np.linalg.norm(self.points[t])
            check(np.all(like[mine] > COPY - SLACK) and not np.any(like[kept & ~mine] > COPY + SLACK), f"{targets} are no near copies, or not all")
        if "hit" in MEASURES[kind][0]:
            return [rank == 0 for rank in self.rank(distances, distances[mine & kept].min(), kept & ~mine)[::-1]]
        if kind in (sets := {"reference": targets, "duplicates": mine & kept, "others": ~mine & kept}):  # distance, or accepted by the threshold
            nearest, t = distances[sets[kind]].min(), self.decisions["threshold"]
            return nearest <= t + self.sides if isinstance(claimed, bool) else nearest + self.sides
        if kind == "retained":
            return [rank < TOP for rank in self.rank(distances, distances[targets[0]], self.kept(query, True, targets[0]))[::-1]]
        if kind == "query_rank":
            return np.mean([self.rank(distances, distances[t], self.kept(query, self.own, t)) for t in targets], axis=0)
        own, many = self.own or kind == "captured", self.held_out * (kind == "captured")  # for hubs: held-out queries, then the sample
        asked = [(self.points[q], self.kept(q, own, *[query] * own)) for q in many + targets]
        ranks = np.array([self.rank(self.far(q, self.gallery), self.far(q, z), kept) for q, kept in asked])
        if kind != "captured":
            return ranks.mean(0)
        eligible = [i for i in np.flatnonzero(self.asks).tolist() if self.hub in (None, self.items[i]["label"])]
        of_seed = eligible if len(eligible) <= HELD else sorted(sampled(self.items, eligible, 0)[:HELD])
        idle = [i for i, q in enumerate(many) if q in targets or not self.kept(q, True)[query]]
        check(many == of_seed and idle == claimed["left_out"] and len(many) == claimed["queries"], "other queries are held out")
        ranks[idle] = 10
        bounds = [*np.minimum(ranks[: len(many)], 10), *((ranks[len(many) :, ::-1] < k).mean(0) for k in (1, 10))]
        return *np.array(bounds).T, [dict(claimed["first"]).get(i, 10) for i in range(len(many))] + claimed["sample"]

def verify(bundle, model, folder=None):
    try:
        return confirmed(bundle, model, folder)
    except Exception as error:
        raise SystemExit(printable(f"refused: it can't be verified: {type(error).__name__}: {error}")) from error

def confirmed(bundle, model, folder):
    files, manifest, report = unpack(bundle)
    outcomes, suite, items, norm = report["outcomes"], report["suite"], manifest["items"], report["suite"].get("norm", "linf")
    photos = folder and (Path(folder).parent if Path(folder).is_file() else Path(folder))  # images lie beside their list
    hashes = {"model": model_hash(Path(model)), "data": data_hash(items, manifest["listed"], photos)}
    for what, found in hashes.items():
        check(found == report[what]["sha256"], f"the {what} has sha256 {found}, and the report's has {report[what]['sha256']}")
    masks, in_files, jpeg = manifest.get("masks") or [None] * len(outcomes), suite.get("space") == "file", suite.get("jpeg")
    parts = [masks, *(manifest[k] for k in ["attacked"] + ["photographs"] * in_files + ["written", "decoded"] * bool(jpeg))]
    check({*map(len, parts)} == {len(outcomes)} and len(items) == len(manifest["images"]), "trials or images are missing, or others are there")
    check(len({(outcome["attack"], outcome["query"]) for outcome in outcomes}) == len(outcomes), "a trial is there twice")
    ranked = [item["role"] != QUERY for item in items]
    counted = {"gallery": sum(ranked), "queries": sum(item["role"] != STORED for item in items), "images": len(items)}
    check(ranked == sorted(ranked, reverse=True) and counted.items() <= report["data"].items(), "roles and size of the gallery differ")
    check(manifest["pooling"] == report["model"].get("pooling"), f"pooling {manifest['pooling']} is not the report's")
    net = Model(model, report, manifest)
    clean, attacked = [pixels(n, files[n]) for n in manifest["images"]], manifest["attacked"]
    photographs, read = manifest["photographs"], manifest["decoded" if jpeg else "attacked"]
    inputs = [prepared(opened(files[n]), net.pre) if in_files else pixels(n, files[n]) for n in read]  # all files may not fit into memory
    by_pillow = jpeg and net.points([prepared(opened(files[n]), net.pre) for n in (w or a for w, a in zip(manifest["written"], attacked))])
    points = net.points(clean)
    judge, exact, ties = *(Judge(report, manifest, points, slack) for slack in (SLACK, 0)), {"before": 0, "after": 0}
    index, compared, decisions, otherwise, largest, regions = {item["id"]: i for i, item in enumerate(items)}, 0, 0, [], 0, {}
    stated = [(index[a], index[b], same) for a, b, same, *_ in manifest["listed"] if a in index and b in index]  # of images that can be read
    listed = {(probe, reference): same for probe, reference, same in stated}
    genuine = lambda *pair: listed.get(pair) if listed else items[pair[0]]["label"] == items[pair[1]]["label"]
    for item, name, image in zip(items, manifest["images"], clean) if photos and net.pre["interpolation"] in RESIZED else ():
        compared += same_image(photos / item["file"], image, net.pre, name.endswith(".npy"), prepared)
    for at, (outcome, x, z, mask) in enumerate(zip(outcomes, inputs, net.points(inputs), masks)):
        name, query, *targets = f"{outcome['attack']} of {outcome['query']}", *(index[i] for i in [outcome["query"], *outcome["targets"]])
        check(outcome["attack"] in KINDS, f"{name}: an attack that this script doesn't know")
        before, kind = clean[query], KINDS[outcome["attack"]]
        if in_files:
            x, before = (pixels(names[at], files[names[at]]) for names in (attacked, photographs))
            check(np.array_equal(prepared(opened(files[photographs[at]]), net.pre), clean[query]), f"{name}: another photograph")
            photos and same_image(photos / items[query]["file"], before, net.pre)
        check(x.shape == before.shape, f"{name}: the attacked image has another size than the clean one")
        change = np.abs(x - before).astype(np.float64)
        size = {"linf": change.max, "l2": lambda: np.linalg.norm(change)}[norm]()
        check(x.min() >= 0 and x.max() <= 1 and size <= suite["eps"] * (1 + 1e-4) + 1e-6, f"{name}: outside of its bounds")
        if suite.get("mask"):  # pixels may change only where it is white: in one mask for all, or in one patch for each query
            free, share, own = pixels(mask, files[mask])[0] > 0, suite["mask"]["share"], query * ("path" not in suite["mask"])
            check(abs(free.mean() - share) <= sum(1 / n for n in free.shape) and not change[:, ~free].any(), f"{name}: not within its mask")
            check("path" in suite["mask"] or is_patch(free, share), f"{name}: its mask is no rectangle of {share} of the image")
            check(np.array_equal(regions.setdefault((own, free.shape), free), free), f"{name}: its mask is another one than in other trials")
        for by, claimed in (change.max(), outcome["linf"]), (size, outcome.get("size", size)):
            check(abs(by - claimed) <= 1e-6 + 1e-5 * by, f"{name}: changed by {by} and not by {claimed}")
        check(abs(judge.far(judge.points[query], z) - outcome["shift"]) <= 2 * judge.sides[1], f"{name}: not shifted by {outcome['shift']}")
        if jpeg and not manifest["written"][at]:
            check(not change.any() and outcome["shift"] == 0, f"{name}: changed, and without a JPEG file")
        elif jpeg:
            decoded = pixels(manifest["decoded"][at], files[manifest["decoded"][at]])
            same_file(name, x, files[manifest["written"][at]], decoded, jpeg)
            largest = max(largest, round(255 * float(np.abs(decoded - before).max())))
            for claimed in (v for k, v in outcome["after"].items() if isinstance(v, bool)):
                low, high = exact.measure(kind, query, targets, by_pillow[at], claimed)[:2]
                decisions, otherwise = decisions + 1, otherwise + [name] * (not low <= claimed <= high)
        check(judge.aimed(outcome["attack"], query, targets, outcome["before"]), f"{name}: {outcome['targets']} can't be its targets")
        if kind == "reference":
            allowed = (query, *targets) in listed if listed else len(targets) == 1 and judge.kept(query, True)[targets[0]]
            check(allowed and genuine(query, *targets) == (outcome["attack"] == "DODGE"), f"{name}: {outcome['targets']} is no reference for it")
        for when, point in (("before", judge.points[query]), ("after", z)):
            states = {k: v for k, v in outcome[when].items() if k != "retrieval"}
            expected = set() if judge.nothing(kind, query, targets) else MEASURES[kind][0]
            check(set(states) == expected, f"{name}: measures {when} the attack are missing, or there are others")
            for claimed in states.values():
                low, high, claimed = (*judge.measure(kind, query, targets, point, claimed), claimed)[:3]
                ties[when] += low != high if isinstance(claimed, bool) else kind.endswith("_rank") and high - low > len(judge.gallery) / 10
                check(np.all(low <= claimed) and np.all(claimed <= high), f"{name}: {claimed} {when} the attack, where {low} to {high} is found")
    pairs = [tuple(pair) for pair in manifest["pairs"]]  # drawn ones each once
    of_data, every_pair = (pairs == stated, True) if listed else judge.drawn(pairs) if judge.decisions else (True, True)
    check(of_data, "the pairs behind TAR and FAR are not those of the data")
    for same, share, count in [(True, "tar", "genuine"), (False, "far", "impostor")] * bool(judge.decisions):
        distances = [judge.far(*judge.points[pair]) for *pair, kind in pairs if kind == same]
        check(len(distances) == judge.decisions[count], f"{len(distances)} {count} pairs, and the report states {judge.decisions[count]}")
        low, high = 100 * np.mean(np.array(distances)[:, None] <= judge.decisions["threshold"] + judge.sides, axis=0) + [-1e-6, 1e-6]
        check(low <= judge.decisions[share] <= high, f"{share} is stated as {judge.decisions[share]}, where {low} to {high} is found")
    lost = {o["query"] for o in outcomes if False in (o["before"].get("hit"), o["after"].get("hit"))}  # by any attack, and without one
    check(2 * ties["before"] <= len(outcomes), f"{ties['before']} of {len(outcomes)} trials are at a tie before the attack: nothing is confirmed")
    # Replayed, listed, or of candidates that are queries too, if others are not in the gallery: these are attacked out of order.
    moved = {0, QUERY} <= {item["role"] for item in items} and {"candidate_rank", "captured"} & {KINDS[o["attack"]] for o in outcomes}
    lines, free, asked = [], bool(judge.replayed or manifest["listed"] or moved), {index[o["query"]] for o in [*outcomes, *report["skipped"]]}
    for attack, name in ROBUST.items():
        tried = {index[o["query"]]: (o["query"] not in lost, o["before"]["hit"]) for o in outcomes if o["attack"] == attack and "hit" in o["after"]}
        robust = [report["scores"].get(name), *(row for row in report.get("numbers", []) if row["name"] == name and "value" in row)]
        check(bool(tried) == bool(robust[0]) and (tried or not robust[1:]), f"{name} is missing, or has no trials")
        if not tried:
            continue
        n, (p, clean) = len(tried), np.mean([*tried.values()], axis=0)
        half = Z * np.sqrt(p * (1 - p) / n + (Z / 2 / n) ** 2)
        low, high = (100 * max(0.0, p + Z**2 / (2 * n) + side) / (1 + Z**2 / n) for side in (-half, half))  # Wilson
        found = {"value": 100 * p, "queries": n, "clean": 100 * clean, "eps": suite["eps"], "interval": [low, high]}
        for stated_by in robust:
            wrong = [k for k, v in found.items() if stated_by.get(k) is not None and not np.allclose(stated_by[k], v, rtol=1e-5, atol=1e-6)]
            check(not wrong, f"{name} is not that of its trials: {', '.join(wrong)}")
        check(free or judge.first(KINDS[attack], asked, {*tried}), f"{name} is not of the first queries of seed {judge.seed}: some may be missing")
        lines.append(f"{name} {100 * p:.1f} (95 % {low:.1f} – {high:.1f}), {n} queries, ε {suite['eps']:.4g} in {norm}")
    hashes["evidence"] = hashlib.sha256(bundle).hexdigest()
    of_files = "image files were not given, so their hashes are as listed, and the archive's images may be others"
    if folder:
        there = {file for file in Path(folder).rglob("*") if file.suffix.lower() in Image.registered_extensions()}
        others = f"; {len(there - {photos / item['file'] for item in items})} others are there" * Path(folder).is_dir()  # a list leaves out others
        of_files = f"{len(items)} image files are the report's; {compared} were decoded, and give the archive's images{others}"
    lines = [f"confirmed: {len(outcomes)} outcomes of {report['model']['path']}", *(f"{k} sha256 {v}" for k, v in hashes.items()), of_files, *lines]
    lines.append(f"not confirmed: {'the choice of queries, ' * free}{'the choice of pairs, ' * (not every_pair)}every other number, finding and verdict, and that the settings are yours")
    lines.append("a query that withstood its attacked images may not withstand others; only another audit shows that")
    lines.append(f"at a tie, where either result is accepted: {ties['before']} trials before the attack, {ties['after']} after it")
    if jpeg:
        lines.append(f"JPEG files of quality {jpeg}: changed by {largest}/255 at most as they are read, and by ε at most before they are saved")
        lines += [f"as Pillow reads them, {decisions - len(otherwise)} of {decisions} trials end as reported", *(f"  not {n}" for n in otherwise)]
    return "\n  ".join(map(printable, lines))

if __name__ == "__main__":
    check(len(sys.argv) in (3, 4), "expected evidence.zip, model.onnx, and the folder of the images, or their list, if they are at hand")
    check(all(Path(path).exists() for path in sys.argv[1:]), f"one of {', '.join(sys.argv[1:])} is missing")
    print(verify(Path(sys.argv[1]).read_bytes(), *sys.argv[2:]))
