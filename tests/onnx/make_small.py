"""Makes the small models of tests/onnx/small and what they compute, by numpy. Needs the package onnx.

Usage: make_small.py FOLDER. The folders have the form of write_cases.py.
"""

import math
import pathlib
import sys

import numpy as np
from onnx import TensorProto, external_data_helper, helper, numpy_helper

rng = np.random.default_rng(1)


def floats(*shape):
    return (rng.standard_normal(shape) / 2).astype(np.float32)


def value(name, shape, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def make(folder, name, nodes, inputs, outputs, weights, given, expected, opset=21, functions=(), domains=(), external=False):
    path = pathlib.Path(folder) / name
    path.mkdir(parents=True, exist_ok=True)
    tensors = [w if isinstance(w, TensorProto) else numpy_helper.from_array(w, n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, name, inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains]
    model = helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)
    if external:
        (path / "weights.bin").unlink(missing_ok=True)  # what is written is added to what is there
        external_data_helper.convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
        external_data_helper.write_external_data_tensors(model, str(path))
    (path / "model.onnx").write_bytes(model.SerializeToString())
    for kind, arrays in (("input", given), ("output", expected)):
        for i, array in enumerate(arrays):
            (path / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(array)).SerializeToString())
    (path / "facts").write_text(f"rtol 1e-5\natol 1e-6\nop {name}\n")


def dense(folder, external):
    x, w, b, v = floats(3, 8), floats(8, 16), floats(16), floats(5, 16)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["a"], "activation"),
        helper.make_node("Gemm", ["a", "v"], ["s"], "second", transB=1, alpha=0.5),
        helper.make_node("Softmax", ["s"], ["y"], "shares", axis=-1),
    ]
    y = softmax(0.5 * np.maximum(x @ w + b, 0) @ v.T)
    make(folder, "external" if external else "dense", nodes, [value("x", ["n", 8])], [value("y", ["n", 5])],
         {"w": w, "b": b, "v": v}, [x], [y], external=external)


def shapes(folder):
    x = floats(2, 3, 4)
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"], axis=0),
        helper.make_node("Slice", ["shape", "one", "three"], ["rest"]),
        helper.make_node("ReduceProd", ["rest"], ["columns"], keepdims=1),
        helper.make_node("Concat", ["rows", "columns"], ["flat"], axis=0),
        helper.make_node("Reshape", ["x", "flat"], ["r"], "flattened"),
        helper.make_node("Slice", ["r", "last", "end", "one", "minus"], ["backwards"], "backwards"),
        helper.make_node("Shape", ["r"], ["full"]),
        helper.make_node("ConstantOfShape", ["full"], ["ones"], value=numpy_helper.from_array(np.array([1], np.float32))),
        helper.make_node("Add", ["r", "ones"], ["y"], "plus_one"),
    ]
    flat = x.reshape(2, 12)
    make(folder, "shapes", nodes, [value("x", ["batch", 3, "m"])],
         [value("y", None), value("backwards", None)],
         {"zero": np.array([0]), "one": np.array([1]), "three": np.array([3]), "last": np.array([2**62]), "end": np.array([-(2**62)]), "minus": np.array([-1])},
         [x], [flat + 1, flat[:, ::-1]])


def branch(folder):
    x = floats(4, 6)
    then = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "then", [], [value("t", None)])
    other = helper.make_graph([helper.make_node("Squeeze", ["x"], ["e"])], "else", [], [value("e", None)])
    nodes = [
        helper.make_node("Size", ["x"], ["count"]),
        helper.make_node("Greater", ["count", "three"], ["is_large"]),
        helper.make_node("If", ["is_large"], ["y"], "by_size", then_branch=then, else_branch=other),
    ]
    make(folder, "branch", nodes, [value("x", [4, 6])], [value("y", None)], {"three": np.array(3)}, [x], [-x])


def function(folder):
    x = floats(5)
    body = [
        helper.make_node("Constant", [], ["factor"]),
        helper.make_node("Mul", ["a", "factor"], ["b"]),
        helper.make_node("Add", ["b", "a"], ["c"]),
    ]
    attribute = body[0].attribute.add()
    attribute.name, attribute.ref_attr_name, attribute.type = "value_float", "by", 1
    scaled = helper.make_function("own", "Scaled", ["a"], ["c"], body, [helper.make_opsetid("", 21)],
                                  attribute_protos=[helper.make_attribute("by", 2.0)])
    nodes = [helper.make_node("Scaled", ["x"], ["u"], "by_default", domain="own"),
             helper.make_node("Scaled", ["u"], ["y"], "by_three", domain="own", by=3.0)]
    make(folder, "function", nodes, [value("x", [5])], [value("y", [5])], {}, [x], [x * 3 * 4], functions=[scaled], domains=["own"])


def quantized(folder):
    x = floats(3, 4)
    w = rng.integers(-8, 8, (4, 6))
    packed = helper.make_tensor("w", TensorProto.INT4, [4, 6], w.flatten().tolist())
    scale = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["d"], axis=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
        helper.make_node("QuantizeLinear", ["y", "step", "zero"], ["q"]),
    ]
    y = x @ (w * scale).astype(np.float32)
    q = np.clip(np.rint(y / np.float32(0.25)) + 3, 0, 255).astype(np.uint8)
    make(folder, "quantized", nodes, [value("x", ["n", 4])], [value("y", None), value("q", None, TensorProto.UINT8)],
         {"w": packed, "scale": scale, "step": np.array(0.25, np.float32), "zero": np.array(3, np.uint8)}, [x], [y, q])


def attention(folder):
    batch, length, heads, width = 2, 5, 4, 8
    x, scale, shift = floats(batch, length, heads * width), floats(heads * width), floats(heads * width)
    angles = np.outer(np.arange(length), 1 / 100 ** (np.arange(width // 2) / 4))
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    places = np.tile(np.arange(length), (batch, 1))
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["h"], "norm"),
        helper.make_node("RotaryEmbedding", ["h", "cos", "sin", "places"], ["q"], "turned", num_heads=heads),
        helper.make_node("Attention", ["q", "q", "h"], ["a"], "attention", q_num_heads=heads, kv_num_heads=heads, is_causal=1),
        helper.make_node("Add", ["x", "a"], ["y"], "residual"),
    ]
    h = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift
    split = h.reshape(batch, length, heads, width)
    c, s = cosines[:, None, :], sines[:, None, :]
    first, second = split[..., : width // 2], split[..., width // 2:]
    q = np.concatenate([first * c - second * s, second * c + first * s], -1).transpose(0, 2, 1, 3)
    scores = q @ q.transpose(0, 1, 3, 2) / math.sqrt(width)
    scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    y = x + (softmax(scores) @ split.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3).reshape(x.shape)
    make(folder, "attention", nodes, [value("x", ["n", length, heads * width]), value("places", ["n", length], TensorProto.INT64)],
         [value("y", None)], {"scale": scale, "shift": shift, "cos": cosines, "sin": sines}, [x, places], [y], opset=23)


def indexing(folder):
    x = floats(3, 7)
    k = np.array([2])
    indices = np.array([[0, 6], [2, 1], [-1, 0]])
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["greatest", "places"], axis=1),
        helper.make_node("GatherND", ["x", "indices"], ["picked"]),
        helper.make_node("ScatterElements", ["x", "places", "greatest"], ["same"], axis=1),
        helper.make_node("ScatterND", ["x", "indices", "updates"], ["written"]),
        helper.make_node("Resize", ["wide", "", "scales"], ["large"], mode="linear"),
        helper.make_node("Reshape", ["x", "image"], ["wide"]),
    ]
    nodes = nodes[:4] + [nodes[5], nodes[4]]
    order = np.argsort(-x, axis=1, kind="stable")[:, :2]
    updates = floats(3)
    written = x.copy()
    written[tuple(indices.T)] = updates
    at = np.clip((np.arange(14) + 0.5) / 2 - 0.5, 0, 6)
    low = np.floor(at).astype(int)
    part = (at - low).astype(np.float32)
    large = x[:, low] * (1 - part) + x[:, np.minimum(low + 1, 6)] * part
    make(folder, "indexing", nodes, [value("x", [3, 7])],
         [value("greatest", None), value("places", None, TensorProto.INT64), value("picked", None), value("same", None),
          value("written", None), value("large", None)],
         {"k": k, "indices": indices, "updates": updates, "scales": np.array([1, 1, 1, 2], np.float32), "image": np.array([1, 1, 3, 7])},
         [x], [np.take_along_axis(x, order, 1), order, x[tuple(indices.T)], x, written, large[None, None]])


def microsoft(folder):
    x, skip, scale, shift = floats(3, 32), floats(3, 32), floats(32), floats(32)
    n, k, block = 6, 32, 16
    q = rng.integers(0, 16, (n, k)).astype(np.uint8)
    zeros = rng.integers(0, 16, (n, k // block)).astype(np.uint8)
    steps = (rng.random((n, k // block)) / 8).astype(np.float32)
    weight = (q.astype(np.float32).reshape(n, 2, block) - zeros[..., None]) * steps[..., None]
    packed = (q[:, 0::2] | q[:, 1::2] << 4).reshape(n, 2, block // 2)
    nodes = [
        helper.make_node("SkipLayerNormalization", ["x", "skip", "scale", "shift"], ["h", "", "", "both"], "norm",
                         domain="com.microsoft", epsilon=1e-5),
        helper.make_node("MatMulNBits", ["h", "w", "steps", "zeros"], ["p"], "product", domain="com.microsoft",
                         K=k, N=n, bits=4, block_size=block),
        helper.make_node("FastGelu", ["p"], ["y"], "activation", domain="com.microsoft"),
    ]
    both = x + skip
    h = (both - both.mean(-1, keepdims=True)) / np.sqrt(both.var(-1, keepdims=True) + 1e-5) * scale + shift
    p = h @ weight.reshape(n, k).T
    y = (p / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (p + 0.044715 * p**3)))).astype(np.float32)
    make(folder, "microsoft", nodes, [value("x", ["n", 32]), value("skip", ["n", 32])], [value("y", None), value("both", None)],
         {"scale": scale, "shift": shift, "w": packed, "steps": steps.flatten(),
          "zeros": (zeros[:, 0] | zeros[:, 1] << 4)}, [x, skip], [y, both], opset=17, domains=["com.microsoft"])


def transformer(folder):
    """Attention with a past, a mask and queries that see no later keys, and a rotation, of the domain com.microsoft."""
    batch, length, past, heads, width = 2, 3, 2, 2, 4
    hidden, total = heads * width, past + length
    x, w, b = floats(batch, length, hidden), floats(hidden, 3 * hidden), floats(3 * hidden)
    before, bias = floats(2, batch, heads, past, width), floats(1, heads, length, total)
    mask = np.array([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]], np.int32)
    angles = np.outer(np.arange(8), 1 / 100 ** (np.arange(width // 2) / 2))
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    nodes = [
        helper.make_node("Attention", ["x", "w", "b", "mask", "past", "bias"], ["a", "present"], "attention", domain="com.microsoft",
                         num_heads=heads, unidirectional=1),
        helper.make_node("RotaryEmbedding", ["a", "place", "cos", "sin"], ["y"], "turned", domain="com.microsoft", interleaved=1),
    ]
    q, k, v = ((x @ w + b)[..., i * hidden:(i + 1) * hidden].reshape(batch, length, heads, width).transpose(0, 2, 1, 3) for i in range(3))
    k, v = np.concatenate([before[0], k], 2), np.concatenate([before[1], v], 2)
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(width) + bias - 10000.0 * (1 - mask[:, None, None, :])
    scores = np.where(np.tril(np.ones((length, total), bool), past), scores, -np.inf)
    a = (softmax(scores) @ v).transpose(0, 2, 1, 3).astype(np.float32)
    c, s = cosines[2:2 + length, None, :], sines[2:2 + length, None, :]
    y = np.stack([a[..., 0::2] * c - a[..., 1::2] * s, a[..., 1::2] * c + a[..., 0::2] * s], -1).reshape(x.shape)
    make(folder, "transformer", nodes, [value("x", ["n", length, hidden]), value("mask", ["n", total], TensorProto.INT32),
                                        value("past", [2, "n", heads, past, width])], [value("y", None), value("present", None)],
         {"w": w, "b": b, "bias": bias, "place": np.array([2]), "cos": cosines, "sin": sines}, [x, mask, before],
         [y, np.stack([k, v])], opset=17, domains=["com.microsoft"])


def recurrent(folder):
    """An LSTM in both directions over sequences of their own lengths, with peepholes, then a GRU backward."""
    steps, batch, width, hidden = 4, 2, 3, 5
    x, lengths = floats(steps, batch, width), np.array([4, 2], np.int32)
    w, r, b, p = floats(2, 4 * hidden, width), floats(2, 4 * hidden, hidden), floats(2, 8 * hidden), floats(2, 3 * hidden)
    gw, gr, gb = floats(1, 3 * hidden, 2 * hidden), floats(1, 3 * hidden, hidden), floats(1, 6 * hidden)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    y = np.zeros((steps, 2, batch, hidden), np.float32)
    for d in range(2):
        h, c = np.zeros((2, batch, hidden), np.float32)
        for t in range(steps) if d == 0 else reversed(range(steps)):
            i, o, f, g = np.split(x[t] @ w[d].T + h @ r[d].T + b[d][:4 * hidden] + b[d][4 * hidden:], 4, -1)
            pi, po, pf = np.split(p[d], 3)
            new = sigmoid(f + pf * c) * c + sigmoid(i + pi * c) * np.tanh(g)
            out = sigmoid(o + po * new) * np.tanh(new)
            inside = (t < lengths)[:, None]
            y[t, d] = np.where(inside, out, 0)
            h, c = np.where(inside, out, h), np.where(inside, new, c)
    z_in = y.transpose(0, 2, 1, 3).reshape(steps, batch, 2 * hidden)
    h = np.zeros((batch, hidden), np.float32)
    for t in reversed(range(steps)):
        xz, xr, xh = np.split(z_in[t] @ gw[0].T + gb[0][:3 * hidden], 3, -1)
        hz, hr, hh = np.split(h @ gr[0].T + gb[0][3 * hidden:], 3, -1)
        z, keep = sigmoid(xz + hz), sigmoid(xr + hr)
        h = (1 - z) * np.tanh(xh + keep * hh) + z * h
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r", "b", "lengths", "", "", "p"], ["y"], "both_ways", direction="bidirectional",
                         hidden_size=hidden),
        helper.make_node("Transpose", ["y"], ["yt"], "by_step", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["yt", "shape"], ["z"], "features"),
        helper.make_node("GRU", ["z", "gw", "gr", "gb"], ["", "last"], "backward", direction="reverse", hidden_size=hidden,
                         linear_before_reset=1),
    ]
    make(folder, "recurrent", nodes, [value("x", [steps, "n", width]), value("lengths", ["n"], TensorProto.INT32)],
         [value("y", None), value("last", None)],
         {"w": w, "r": r, "b": b, "p": p, "gw": gw, "gr": gr, "gb": gb, "shape": np.array([0, 0, -1], np.int64)},
         [x, lengths], [y, h[None].astype(np.float32)])


def sampling(folder):
    """Places between elements, some outside: sums of four elements with zeros around, and nearest ones of the mirrored image."""
    x, grid = floats(2, 3, 4, 5), rng.uniform(-1.6, 1.6, (2, 3, 2, 2)).astype(np.float32)
    height, width = x.shape[2:]
    y, z = np.zeros((2, 3, 3, 2)), np.zeros((2, 3, 3, 2))
    for n, i, j in np.ndindex(2, 3, 2):
        u, v = ((float(grid[n, i, j, k]) + 1) * size / 2 - 0.5 for k, size in enumerate((width, height)))
        for row, column in np.ndindex(height, width):
            y[n, :, i, j] += x[n, :, row, column] * max(0, 1 - abs(u - column)) * max(0, 1 - abs(v - row))
        u, v = (np.rint((float(grid[n, i, j, k]) + 1) / 2 * (size - 1)) for k, size in enumerate((width, height)))
        u, v = (abs((place + size - 1) % (2 * size - 2) - (size - 1)) for place, size in ((u, width), (v, height)))
        z[n, :, i, j] = x[n, :, int(v), int(u)]
    nodes = [helper.make_node("GridSample", ["x", "grid"], ["y"], "between"),
             helper.make_node("GridSample", ["x", "grid"], ["z"], "mirrored", mode="nearest", padding_mode="reflection", align_corners=1)]
    make(folder, "sampling", nodes, [value("x", ["n", 3, 4, 5]), value("grid", ["n", 3, 2, 2])], [value("y", None), value("z", None)], {},
         [x, grid], [y.astype(np.float32), z.astype(np.float32)])


def main(folder):
    dense(folder, False)
    dense(folder, True)
    shapes(folder)
    branch(folder)
    function(folder)
    quantized(folder)
    attention(folder)
    indexing(folder)
    microsoft(folder)
    recurrent(folder)
    sampling(folder)
    transformer(folder)


if __name__ == "__main__":
    main(sys.argv[1])
