"""Times equivalent forms of a gradient in ONNX Runtime on one thread: the table of
docs/performance.md.

    python research/tools/bench_forms.py [WORDS]               # rows whose names contain these words; default: all
    python research/tools/bench_forms.py export DIR [BATCH]    # ROW FORM.onnx for `cargo research bench graph`, which times them on a GPU

Each row has two forms or more of one gradient, on random numbers. They must agree; then each is run for some
tenths of a second, by turns, five times. Printed are the milliseconds of the fastest run, in CPU time, to
which other work on the machine adds little.
"""
import os
import sys
import time
from pathlib import Path

import numpy as np
import onnx

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

DRAW = np.random.default_rng(0)


def session(nodes, inputs, constants):
    """A session of nodes (operator, inputs, outputs, attributes). Unused constants are allowed."""
    taken = {name for _, i, _, _ in nodes for name in i.split()}
    graph = helper.make_graph(
        [helper.make_node(op, i.split(), o.split(), **attributes) for op, i, o, attributes in nodes],
        "form",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape) for name, value in inputs.items()],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in constants.items() if name in taken],
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    run = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    run.file = model
    return run


def relu(batch, channels, side):
    """The gradient of a ReLU, from its output y and the gradient g."""
    shape = (batch, channels, side, side)
    inputs = {"y": np.maximum(DRAW.standard_normal(shape, np.float32), 0), "g": DRAW.standard_normal(shape, np.float32)}
    zero = {"zero": np.float32(0)}
    greater = ("Greater", "y zero", "mask", {})
    yield "Greater, Where", session([greater, ("Where", "mask g zero", "out", {})], inputs, zero), inputs
    yield "HardSigmoid of slope 2¹²⁰, Mul", session(
        [("HardSigmoid", "y", "mask", {"alpha": 2.0**120, "beta": 0.0}), ("Mul", "mask g", "out", {})], inputs, {}
    ), inputs
    yield "Sign, Mul", session([("Sign", "y", "mask", {}), ("Mul", "mask g", "out", {})], inputs, {}), inputs
    yield "Greater, Cast, Mul", session(
        [greater, ("Cast", "mask", "one", {"to": TensorProto.FLOAT}), ("Mul", "one g", "out", {})], inputs, zero
    ), inputs


def conv(batch, channels, out_channels, side, kernel, stride, group=1):
    """The gradient of a Conv's input (channels × side × side), from that of its output; padded by kernel // 2."""
    pad, outputs = kernel // 2, (side + 2 * (kernel // 2) - kernel) // stride + 1
    inputs = {"g": DRAW.standard_normal((batch, out_channels, outputs, outputs), np.float32)}
    w = DRAW.standard_normal((out_channels, channels // group, kernel, kernel), np.float32)
    extra = side - ((outputs - 1) * stride + kernel - 2 * pad)
    transposed = dict(strides=[stride] * 2, pads=[pad] * 4, output_padding=[extra] * 2, group=group)
    yield "ConvTranspose", session([("ConvTranspose", "g w", "out", transposed)], inputs, {"w": w}), inputs

    # Kernels are rotated by 180 degrees, and input and output channels swapped within each group.
    turned = w.reshape(group, out_channels // group, channels // group, kernel, kernel).swapaxes(1, 2)
    turned = turned.reshape(channels, out_channels // group, kernel, kernel)[:, :, ::-1, ::-1]
    edge = kernel - 1 - pad
    dense = dict(pads=[edge, edge, edge + extra, edge + extra], group=group)
    if stride == 1:
        yield "Conv on turned weights", session([("Conv", "g w", "out", dense)], inputs, {"w": turned}), inputs
        if group % 2 == 0 and group < channels:
            # Two groups become one, whose kernels are zero between them.
            each = channels // group
            pairs = np.zeros((group // 2, 2, each, 2, out_channels // group, kernel, kernel), np.float32)
            for i in (0, 1):
                pairs[:, i, :, i] = turned.reshape(group, each, -1, kernel, kernel)[i::2]
            joined = [("Conv", "g w", "out", dense | dict(group=group // 2))]
            weights = {"w": pairs.reshape(channels, -1, kernel, kernel)}
            yield "Conv on turned weights, pairs of groups", session(joined, inputs, weights), inputs
    elif group > 1 or kernel == 1:
        # Zeros between the pixels: before a Conv with a larger kernel, after a Conv with a 1 × 1 kernel.
        ones = {"w": turned, "ones": np.ones((channels if kernel == 1 else out_channels, 1, 1, 1), np.float32)}
        spread = dict(strides=[stride] * 2, group=len(ones["ones"]))
        if kernel == 1:
            spread["output_padding"] = [extra] * 2
            nodes = [("Conv", "g w", "small", {}), ("ConvTranspose", "small ones", "out", spread)]
            yield "Conv, zeros between pixels", session(nodes, inputs, ones), inputs
        else:
            nodes = [("ConvTranspose", "g ones", "spread", spread), ("Conv", "spread w", "out", dense)]
            yield "zeros between pixels, Conv", session(nodes, inputs, ones), inputs
    else:
        # Pixel 2i + a is under tap t of the window at i + (a + pad − t) / 2: one Conv makes the four pixels
        # of a block as channels.
        taps = [(a, t, (a + pad - t) // 2) for a in (0, 1) for t in range(kernel) if (a + pad - t) % 2 == 0]
        before, after = -min(at for *_, at in taps), max(at for *_, at in taps)
        size = before + after + 1
        phases = np.zeros((channels, 2, 2, out_channels, size, size), np.float32)
        for a, t, i in taps:
            for b, u, j in taps:
                phases[:, a, b, :, i + before, j + before] = w[:, :, t, u].T
        blocks = ("Conv", "g w", "blocks", dict(pads=[before, before, after, after]))
        weights = {"w": phases.reshape(-1, out_channels, size, size)}
        deep = ("DepthToSpace", "blocks", "out", dict(blocksize=2, mode="CRD"))
        yield "Conv of the phases, DepthToSpace", session([blocks, deep], inputs, weights), inputs
        # With the pixels' positions as the outer channels: columns are joined one by one, then whole rows.
        names = ["00", "01", "10", "11"]
        nodes = [blocks, ("Split", "blocks", " ".join(names), dict(axis=1, num_outputs=4))]
        nodes += [("Reshape", f"{name} columns", f"column{name}", {}) for name in names]
        nodes += [("Concat", f"column{a}0 column{a}1", f"pairs{a}", dict(axis=1)) for a in "01"]
        nodes += [("Reshape", f"pairs{a} rows", f"row{a}", {}) for a in "01"]
        nodes += [("Concat", "row0 row1", "joined", dict(axis=1)), ("Reshape", "joined shape", "out", {})]
        targets = {"columns": [-1, 1], "rows": [-1, side], "shape": [batch, channels, side, side]}
        weights = {"w": phases.transpose(1, 2, 0, 3, 4, 5).reshape(-1, out_channels, size, size)}
        yield "Conv of the phases, three joins", session(
            nodes, inputs, weights | {name: np.array(target) for name, target in targets.items()}
        ), inputs


def gelu(batch, tokens, width):
    """The gradient of a GELU, from its input x and the gradient g: g·(Φ(x) + x·φ(x)), with u = x/√2."""
    shape = (batch, tokens, width)
    inputs = {name: DRAW.standard_normal(shape, np.float32) for name in "xg"}
    numbers = {"half": 0.5, "one": 1, "root": 0.5**0.5, "scale": np.pi**-0.5, "minus": -0.5, "normal": (2 * np.pi) ** -0.5, "base": np.exp(-1)}
    constants = {name: np.float32(value) for name, value in numbers.items()}
    constants |= {"flat": np.array([1, 1, -1]), "shape": np.array(shape), "zero": np.zeros(1, np.float32), "spread": np.ones(1, np.float32)}
    constants |= {"slope": np.full(1, np.pi**0.5 / 2, np.float32)}
    start, end = [("Mul", "x root", "u", {}), ("Erf", "u", "erf", {})], [("Add", "cdf bump", "slopes", {}), ("Mul", "g slopes", "out", {})]
    cdf, square = ("HardSigmoid", "erf", "cdf", {"alpha": 0.5, "beta": 0.5}), ("Mul", "u u", "square", {})
    yield "the textbook's", session(
        start
        + [("Add", "erf one", "twice", {}), ("Mul", "twice half", "cdf", {}), ("Mul", "x x", "square", {}), ("Mul", "square minus", "power", {})]
        + [("Exp", "power", "bell", {}), ("Mul", "bell normal", "density", {}), ("Mul", "x density", "bump", {})]
        + end, inputs, constants,
    ), inputs
    yield "HardSigmoid for Φ, Div by Exp", session(
        start + [cdf, square, ("Exp", "square", "bell", {}), ("Div", "u bell", "peak", {}), ("Mul", "peak scale", "bump", {})] + end, inputs, constants
    ), inputs
    yield "HardSigmoid for Φ, Pow", session(
        start + [cdf, square, ("Pow", "base square", "bell", {}), ("Mul", "u bell", "peak", {}), ("Mul", "peak scale", "bump", {})] + end, inputs, constants
    ), inputs
    # √π/2·(1 + erf) + u·exp(−u²); a product before could have its factor 1/√π in its weights.
    affine = [("Reshape", "erf flat", "row", {}), ("BatchNormalization", "row slope slope zero spread", "scaled", {"epsilon": 0.0})]
    affine += [("Reshape", "scaled shape", "cdf", {})]
    yield "BatchNormalization for Φ, the factor in the weights before", session(
        start + affine + [square, ("Exp", "square", "bell", {}), ("Div", "u bell", "bump", {})] + end,
        inputs | {"g": inputs["g"] * np.float32(np.pi**-0.5)}, constants,
    ), inputs | {"g": inputs["g"] * np.float32(np.pi**-0.5)}


def layer_norm(batch, tokens, width):
    """The gradient of a LayerNorm, from its input x, the gradient g and the statistics of the forward pass."""
    x, g = (DRAW.standard_normal((batch, tokens, width), np.float32) for _ in range(2))
    mean = x.mean(-1, keepdims=True)
    inputs = {"x": x, "g": g, "mean": mean, "r": 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)}
    scale = DRAW.standard_normal(width, np.float32)
    constants = {"scale": scale, "last": np.array([-1])}
    scaled = [("Mul", "g scale", "h", {})]
    centred = [
        ("Sub", "x mean", "c", {}), ("ReduceMean", "h last", "level", {}), ("Mul", "h c", "hc", {}), ("ReduceMean", "hc last", "along", {}),
        ("Mul", "along r", "once", {}), ("Mul", "once r", "slope", {}), ("Sub", "h level", "flat", {}), ("Mul", "c slope", "line", {}),
        ("Sub", "flat line", "rest", {}), ("Mul", "rest r", "out", {}),
    ]
    yield "x − mean", session(scaled + centred, inputs, constants), inputs
    # (h·r − x·s) + (mean·s − level·r), the bracket on the right one number a row.
    direct = [
        ("ReduceMean", "h last", "level", {}), ("Mul", "h x", "hx", {}), ("ReduceMean", "hx last", "both", {}), ("Mul", "level mean", "cross", {}),
        ("Sub", "both cross", "along", {}), ("Mul", "along r", "once", {}), ("Mul", "once r", "twice", {}), ("Mul", "twice r", "s", {}),
        ("Mul", "h r", "hr", {}), ("Mul", "x s", "xs", {}), ("Sub", "hr xs", "rest", {}),
        ("Mul", "mean s", "ms", {}), ("Mul", "level r", "lr", {}), ("Sub", "ms lr", "shift", {}), ("Add", "rest shift", "out", {}),
    ]
    yield "x itself", session(scaled + direct, inputs, constants), inputs
    own = {**inputs, "h": g * scale}
    del own["g"]
    yield "x − mean, the scale in the weights before", session(centred, own, constants), own


def max_pool(batch, channels, side):
    """The gradient of a max-pool over 3 × 3 pixels, two apart, padded by 1: from its input x, its output y and the gradient g."""
    half = side // 2
    x = DRAW.standard_normal((batch, channels, side, side), np.float32)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    y = np.max([padded[:, :, i : i + side : 2, j : j + side : 2] for i in range(3) for j in range(3)], axis=0)
    inputs = {"x": x, "y": y, "g": DRAW.standard_normal(y.shape, np.float32)}
    constants = {"least": np.float32(-3e38), "images": np.array(x.shape), "nothing": np.float32(0)}
    nodes, names = [], iter(range(1000))

    def add(op, inputs, outputs=1, **attributes):
        made = [f"v{next(names)}" for _ in range(outputs)]
        nodes.append((op, inputs, " ".join(made), attributes))
        return made[0] if outputs == 1 else made

    def constant(values):
        name = f"k{next(names)}"
        constants[name] = np.array(values)
        return name

    mask = lambda a, b: add("HardSigmoid", add("Sub", f"{a} {b}"), alpha=2.0**120, beta=1.0)
    # Lines [outer, side, inner] along an axis: even pixels are under the middle tap, odd ones under the last
    # and, one window on, the first.
    axes = [(batch * channels * side, 1), (batch * channels, side)]

    def taps(value, outer, inner, width):
        pairs = add("Reshape", f"{value} {constant([outer, half, 2, width])}")
        even, odd = add("Split", pairs, 2, axis=2, num_outputs=2)
        even, odd = (add("Reshape", f"{name} {constant([outer, half, width])}") for name in (even, odd))
        return even, odd, add("Pad", f"{odd} {constant([0, 1, 0, 0, -1, 0])} least")

    def give_back(even, odd, before, greatest, g, outer, width):
        first = add("Mul", f"{g} {mask(before, greatest)}")
        rest = add("Sub", f"{g} {first}")
        middle = add("Mul", f"{rest} {mask(even, greatest)}")
        last = add("Sub", f"{rest} {middle}")
        shifted = add("Pad", f"{first} {constant([0, -1, 0, 0, 1, 0])} nothing")
        odds = add("Add", f"{last} {shifted}")
        both = [add("Reshape", f"{v} {constant([outer, half, 1, width])}") for v in (middle, odds)]
        return add("Concat", " ".join(both), axis=2)

    columns = taps("x", axes[0][0], 1, 1)
    across = add("Max", " ".join(columns))
    rows_of = add("Reshape", f"{across} {constant([batch * channels, side, half])}")
    lines = taps(rows_of, axes[1][0], 1, half)
    flat = {name: add("Reshape", f"{name} {constant([batch * channels, half, half])}") for name in ("y", "g")}
    back = give_back(*lines, flat["y"], flat["g"], batch * channels, half)
    back = add("Reshape", f"{back} {constant([batch * channels * side, half, 1])}")
    nodes.append(("Reshape", give_back(*columns, across, back, axes[0][0], 1) + " images", "out", {}))
    yield "comparisons", session(nodes, inputs, constants), inputs

    pool = dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    places = [("MaxPool", "x", "again at", pool), ("Reshape", "at all", "places", {}), ("Reshape", "g all", "values", {})]
    scatter = ("ScatterElements", "zeros places values", "sums", {"axis": 0, "reduction": "add"})
    yield "positions, ScatterElements", session(
        places + [("ConstantOfShape", "count", "zeros", {}), scatter, ("Reshape", "sums images", "out", {})],
        {name: inputs[name] for name in "xg"}, {"all": np.array([-1]), "count": np.array([x.size]), "images": constants["images"]},
    ), {name: inputs[name] for name in "xg"}

    # Windows overlap only if one of them is in an even and the other in an odd row or column: four scatters,
    # none of which writes a position twice.
    parts, kept = [("ConstantOfShape", "count", "sums", {}), places[0]], "sums"
    numbers = {"count": np.array([x.size]), "all": np.array([-1]), "far": np.array([half, half]), "axes": np.array([2, 3]), "two": np.array([2, 2])}
    for i, j in ((i, j) for i in (0, 1) for j in (0, 1)):
        at, numbers[f"at{i}{j}"] = f"{i}{j}", np.array([i, j])
        for name in ("at", "g"):
            parts += [("Slice", f"{name} at{at} far axes two", f"{name}part{at}", {}), ("Reshape", f"{name}part{at} all", f"{name}flat{at}", {})]
        add = {"reduction": "add"} if (i, j) != (0, 0) else {}
        parts.append(("ScatterElements", f"{kept} atflat{at} gflat{at}", f"sums{at}", {"axis": 0} | add))
        kept = f"sums{at}"
    yield "positions, four scatters", session(
        parts + [("Reshape", f"{kept} images", "out", {})], {name: inputs[name] for name in "xg"}, numbers | {"images": constants["images"]}
    ), {name: inputs[name] for name in "xg"}


def rows(batch=None):
    """The forms of each row, for `batch` or its own batch size."""
    of = lambda own: batch or own
    return {
        "ReLU, 8 × 64 × 112²": relu(of(8), 64, 112),
        "Conv 3×3, 64 → 64 at 56²": conv(of(8), 64, 64, 56, 3, 1),
        "Conv 3×3, 512 → 512 at 7²": conv(of(8), 512, 512, 7, 3, 1),
        "Conv 3×3, 128 → 128 at 28²": conv(of(8), 128, 128, 28, 3, 1),
        "Conv 1×1, 64 → 256 at 56²": conv(of(8), 64, 256, 56, 1, 1),
        "Conv 3×3, 24 → 24 at 56²": conv(of(8), 24, 24, 56, 3, 1),
        "Conv 5×5, 1 → 20 at 28², batch 64": conv(of(64), 1, 20, 28, 5, 1),
        "Conv 3×3, depthwise, 64 at 56²": conv(of(8), 64, 64, 56, 3, 1, 64),
        "Conv 3×3 in groups of 4, 128 at 56², batch 2": conv(of(2), 128, 128, 56, 3, 1, 32),
        "Conv 3×3 in groups of 8, 256 at 28², batch 2": conv(of(2), 256, 256, 28, 3, 1, 32),
        "Conv 3×3 in groups of 8, 104 at 28², batch 2": conv(of(2), 104, 104, 28, 3, 1, 13),
        "Conv 3×3 in groups of 16, 512 at 14², batch 2": conv(of(2), 512, 512, 14, 3, 1, 32),
        "Conv 3×3 in groups of 24, 96 at 28², batch 2": conv(of(2), 96, 96, 28, 3, 1, 4),
        "Conv 3×3, stride 2, in groups of 8, 256 at 56², batch 2": conv(of(2), 256, 256, 56, 3, 2, 32),
        "Conv 3×3, stride 2, in groups of 16, 512 at 28², batch 2": conv(of(2), 512, 512, 28, 3, 2, 32),
        "Conv 3×3, stride 2, 64 → 128 at 56²": conv(of(8), 64, 128, 56, 3, 2),
        "Conv 7×7, stride 2, 3 → 64 at 224²": conv(of(8), 3, 64, 224, 7, 2),
        "Conv 5×5, stride 2, 16 → 32 at 14², batch 32": conv(of(32), 16, 32, 14, 5, 2),
        "Conv 3×3, stride 2, depthwise, 64 at 112², batch 2": conv(of(2), 64, 64, 112, 3, 2, 64),
        "Conv 5×5, stride 2, depthwise, 144 at 56², batch 2": conv(of(2), 144, 144, 56, 5, 2, 144),
        "Conv 1×1, stride 2, 1024 → 2048 at 14², batch 2": conv(of(2), 1024, 2048, 14, 1, 2),
        "GELU, 8 × 197 × 1536": gelu(of(8), 197, 1536),
        "LayerNorm, 8 × 197 × 384": layer_norm(of(8), 197, 384),
        "MaxPool 3×3, stride 2, 64 at 112²": max_pool(of(8), 64, 112),
    }


def export(directory, batch):
    """Writes every form to a file named after it, with the shape of its output."""
    for row, (name, forms) in enumerate(rows(batch).items()):
        for form, run, inputs in forms:
            (out,) = run.run(None, inputs)
            output = helper.make_tensor_value_info("out", TensorProto.FLOAT, out.shape)
            run.file.graph.output[0].CopyFrom(output)
            words = f"{row:02} {name.split(', batch')[0]} {form}".replace("/", "-")
            onnx.save(run.file, Path(directory) / f"{words}.onnx")


def main(wanted=""):
    print(f"ONNX Runtime {ort.__version__}, onnx {onnx.__version__}, one thread, milliseconds:\n\n| of | forms |\n|---|---|")
    for name, forms in rows().items():
        if wanted not in name:
            continue
        forms = list(forms)
        first = None
        for form, run, inputs in forms:
            out, = run.run(None, inputs)
            first = out if first is None else first
            assert np.allclose(first, out, rtol=1e-3, atol=1e-3 * np.abs(first).max()), f"{name}: {form} is another gradient"
        best = dict.fromkeys((form for form, *_ in forms), np.inf)
        for _ in range(5):
            for form, run, inputs in forms:
                end = time.thread_time() + 0.15
                while (start := time.thread_time()) < end:
                    run.run(None, inputs)
                    best[form] = min(best[form], time.thread_time() - start)
        print(f"| {name} | {' · '.join(f'{form} {1000 * took:.2f}' for form, took in best.items())} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["export"]:
        export(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
    else:
        main(*sys.argv[1:])
