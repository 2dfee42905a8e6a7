"""Compares models in .onnx files with ONNX Runtime: how far each is off from f64.

Usage: compare_models.py BRAZE [--results FILE.md] MODEL[,NAME=SIZE...]... run_models.sh does it for those of tools/models.txt.

Needs onnx, onnxruntime and numpy. BRAZE is the tool; sizes that a file leaves open are 2, or what stands behind the model, which is a number at
import then. f64 is the same model with f64 for f32, on Braze's
interpreter; ONNX Runtime's results in f32 show that it is the same function. Ends with 1 if an error, the greatest or the root mean square,
is more than 4 times ONNX Runtime's.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_,
         "tensor(uint8)": np.uint8}


def graphs_of(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_of(attribute.g)


def in_f64(model):
    """The same model with f64 for f32."""
    double = onnx.ModelProto()
    double.CopyFrom(model)

    def widen(tensor):
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))

    for graph in graphs_of(double.graph):
        for tensor in graph.initializer:
            widen(tensor)
        for info in list(graph.input) + list(graph.output):
            if info.type.tensor_type.elem_type == TensorProto.FLOAT:
                info.type.tensor_type.elem_type = TensorProto.DOUBLE
        for node in graph.node:
            # Scales of Resize stay as they are.
            for attribute in node.attribute:
                if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                    attribute.i = TensorProto.DOUBLE
                if attribute.HasField("t"):
                    widen(attribute.t)
    return double


def run_braze(braze, path, device, inputs, sizes, folder):
    """All results by the tool, by name."""
    arguments = []
    for i, (name, array) in enumerate(inputs.items()):
        np.save(folder / f"in{i}.npy", array)
        arguments.append(f"{name}={folder}/in{i}.npy")
    command = [braze, "run", str(path), "--device", device, "--inputs", *arguments, "--output", f"{folder}/out.npz"]
    command += [word for name, size in sizes.items() for word in ("--symbol", f"{name}={size}")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return dict(np.load(folder / "out.npz"))


def random_inputs(session, sizes):
    rng = np.random.default_rng(1)
    inputs = {}
    for value in session.get_inputs():
        shape = [d if isinstance(d, int) else sizes.get(d or f"{value.name}_{i}", 2) for i, d in enumerate(value.shape)]
        dtype = TYPES[value.type]
        inputs[value.name] = (rng.random(shape).astype(dtype) if dtype == np.float32 else
                              rng.integers(0, 2 if dtype == np.bool_ else 100, shape).astype(dtype))
    return inputs


def errors(got, exact):
    difference = got.astype(np.float64) - exact
    return np.abs(difference).max(initial=0), np.sqrt((difference**2).mean()) if difference.size else 0


def compare(braze, path, sizes):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = random_inputs(session, sizes)
    expected = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))
    rows, is_right = [], True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        onnx.save(in_f64(onnx.load(path)), folder / "f64.onnx")
        wide = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in inputs.items()}
        exact = run_braze(braze, folder / "f64.onnx", "interpreter", wide, sizes, folder)
        got = run_braze(braze, path, "cpu", inputs, sizes, folder)
        for output in expected:
            ours, theirs = errors(got[output], exact[output]), errors(expected[output], exact[output])
            fits = ours[0] <= 4 * theirs[0] and ours[1] <= 4 * theirs[1]
            is_right &= fits
            shapes = ", ".join("x".join(map(str, array.shape)) for array in inputs.values())
            rows.append(f"| {pathlib.Path(path).name} | {shapes} | {output} | {ours[0]:.3g} | {theirs[0]:.3g} | "
                        f"{ours[1]:.3g} | {theirs[1]:.3g} | {'yes' if fits else 'NO'} |")
    return rows, is_right


TABLE = """| model | inputs | result | greatest error | ONNX Runtime's | root mean square | ONNX Runtime's | within 4 times |
| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"""


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("braze")
    arguments.add_argument("models", nargs="+")
    arguments.add_argument("--results", type=pathlib.Path)
    given = arguments.parse_args()
    lines, is_right = [TABLE], True
    print(TABLE)
    for text in given.models:
        path, *sizes = text.split(",")
        try:
            rows, fits = compare(given.braze, path, {n: int(s) for n, s in (size.split("=") for size in sizes)})
        except Exception as error:  # the others are still of interest
            rows, fits = [f"| {pathlib.Path(path).name} | {str(error)} |"], False
        is_right &= fits
        lines += rows
        print("\n".join(rows), flush=True)
    if given.results:
        text = ["# Models of others, on a CPU", "", "Made by `tests/onnx/run_models.sh`. Errors are those against f64, of Braze and of ONNX Runtime.", "", *lines]
        given.results.write_text("\n".join(text) + "\n")
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
