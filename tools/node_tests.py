"""Writes ONNX's node tests (onnx.backend.test.case.node) as models with one input: `node_tests.py DIR`.

For each test with a float tensor among its inputs, writes

    DIR/NAME.onnx  the model; its input is the first float tensor, in float32; all other inputs are initializers, and
                   the metadata name the operator
    DIR/NAME.npz   the input (x, float32) and the expected numeric outputs (y0, y1, … in float64)

DIR/left_out.txt lists the other tests, each with the reason.
"""

import os
import shutil
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE}


def array(value):
    """Returns a value of a test as an array; None for sequences, optionals and strings."""
    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    value = np.asarray(value) if isinstance(value, (np.ndarray, np.generic, int, float)) else None
    return None if value is None or value.dtype.kind in "OSUc" else value


def is_image(info):
    kind = info.type.WhichOneof("value")
    return kind == "tensor_type" and info.type.tensor_type.elem_type in FLOATS


# Operators with random outputs.
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


def operator(case):
    node = case.model.graph.node[0]
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def write(case, operator, folder):
    """Writes one test. Returns the reason if it is left out, else None."""
    inputs, outputs = case.data_sets[0]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    given = list(zip(list(graph.input), inputs))
    if operator in RANDOM or case.name.startswith("test_training_dropout"):
        return "expects random numbers"
    if any(info.type.WhichOneof("value") != "tensor_type" for info, _ in given):
        return "an input is a sequence or an optional"
    images = [i for i, (info, value) in enumerate(given) if is_image(info) and array(value) is not None]
    if not images:
        return "no input is a float tensor"
    # The first two inputs of OneHot are indices and depth, even if they are floats.
    if operator == "OneHot" and images[-1] != 2:
        return "no input is a float tensor"
    images = images[-1:] if operator == "OneHot" else images
    image, x = given[images[0]]
    x = array(x).astype(np.float32)
    del graph.input[:]
    for i, (info, value) in enumerate(given):
        if i != images[0]:
            tensor = value if isinstance(value, TensorProto) else numpy_helper.from_array(np.asarray(value))
            copy = graph.initializer.add()
            copy.CopyFrom(tensor)
            copy.name = info.name
    kind = image.type.tensor_type.elem_type
    outer = image.name if kind == TensorProto.FLOAT else image.name + "/image"
    graph.input.append(helper.make_tensor_value_info(outer, TensorProto.FLOAT, x.shape))
    if outer != image.name:
        graph.node.insert(0, helper.make_node("Cast", [outer], [image.name], to=kind))
    helper.set_model_props(model, {"operator": operator})
    arrays = {"x": np.ascontiguousarray(x)}
    for i, value in enumerate(outputs):
        y = array(value)
        if y is not None:
            arrays[f"y{i}"] = np.ascontiguousarray(y.astype(np.float64))
    with open(os.path.join(folder, case.name + ".onnx"), "wb") as f:
        f.write(model.SerializeToString())
    np.savez(os.path.join(folder, case.name + ".npz"), **arrays)
    return None


def main():
    folder = sys.argv[1]
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    # Some inputs are random.
    np.random.seed(0)
    left_out = []
    written = 0
    cases = collect_testcases(None)
    operators = {case.name: operator(case) for case in cases}
    for case in cases:
        # The expansion of an operator that is a function is a test too, and counts for that operator.
        name = operators.get(case.name.split("_expanded")[0], operators[case.name])
        why = write(case, name, folder)
        if why:
            left_out.append(f"{case.name}: {why}\n")
        else:
            written += 1
    with open(os.path.join(folder, "left_out.txt"), "w") as f:
        f.writelines(left_out)
    print(f"{written} tests written, {len(left_out)} left out")


main()
