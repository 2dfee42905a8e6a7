"""Makes a small network in place of magika's, for the tests: tiny/model.onnx, tiny/config.min.json and tiny.txt. Needs what make_checks.py needs.

Usage: make_tiny.py FOLDER. It embeds 2,048 numbers, takes the means of 32 runs, and gives each of four types a share. What it says is nonsense;
tiny.txt has the shares in f64, and how far NumPy is off in f32.
"""

import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from make_checks import TEXTS, features

LABELS = ["c", "empty", "python", "txt"]
WIDTH, RUNS, HIDDEN = 4, 32, 8


def weights():
    rng = np.random.default_rng(3)
    shapes = {"table": (257, WIDTH), "w1": (RUNS * WIDTH, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, len(LABELS))}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def run(ids, w, dtype):
    """The network by NumPy."""
    w = {name: value.astype(dtype) for name, value in w.items()}
    runs = w["table"][ids].reshape(len(ids), RUNS, -1, WIDTH).mean(axis=2).reshape(len(ids), -1)
    scores = np.tanh(runs @ w["w1"] + w["b1"]) @ w["w2"]
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


def model(w):
    def whole(name, *numbers):
        return numpy_helper.from_array(np.array(numbers, np.int64), name)

    nodes = [
        helper.make_node("Gather", ["table", "bytes"], ["embedded"]),
        helper.make_node("Reshape", ["embedded", "in_runs"], ["runs"]),
        helper.make_node("ReduceMean", ["runs", "axis"], ["means"], keepdims=0),
        helper.make_node("Reshape", ["means", "in_rows"], ["rows"]),
        helper.make_node("Gemm", ["rows", "w1", "b1"], ["linear"]),
        helper.make_node("Tanh", ["linear"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "w2"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["target_label"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "tiny",
        [helper.make_tensor_value_info("bytes", TensorProto.INT32, ["batch", 2048])],
        [helper.make_tensor_value_info("target_label", TensorProto.FLOAT, ["batch", len(LABELS)])],
        [numpy_helper.from_array(value, name) for name, value in w.items()]
        + [whole("in_runs", 0, RUNS, -1, WIDTH), whole("axis", 2), whole("in_rows", 0, RUNS * WIDTH)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(made)
    return made


def main(folder):
    folder = pathlib.Path(folder)
    (folder / "tiny").mkdir(exist_ok=True)
    w = weights()
    onnx.save(model(w), folder / "tiny/model.onnx")
    (folder / "tiny/config.min.json").write_text(json.dumps({"target_labels_space": LABELS}) + "\n")
    texts = TEXTS[:10]
    ids = np.array([features(text) for text in texts])
    exact = run(ids, w, np.float64)
    error = run(ids, w, np.float32) - exact
    with open(folder / "tiny.txt", "w") as file:
        print(f"{np.abs(error).max():.4g} {np.sqrt((error**2).mean()):.4g} NumPy", file=file)
        for text, row in zip(texts, exact):
            print(text, file=file)
            print(*[f"{v:.12f}" for v in row], file=file)


if __name__ == "__main__":
    main(sys.argv[1])
