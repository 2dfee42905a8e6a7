"""Makes blocks.gguf, a file with a tensor of every type that Braze reads, and blocks.npz, its values as
the package gguf computes them; and the seeds of the fuzz target. Needs gguf 0.19 and numpy:

    python3 make.py blocks.gguf blocks.npz ../../fuzz/corpus/gguf
"""
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
rng = np.random.default_rng(1)


def add_metadata(writer):
    writer.add_string("general.name", "blocks \u00e9")
    for name, value in {"uint8": 200, "int8": -100, "uint16": 60000, "int16": -30000, "uint32": 4000000000, "int32": -2000000000,
                        "uint64": 2**63 + 5, "int64": -(2**62), "float32": 0.1, "float64": 0.1, "bool": True}.items():
        getattr(writer, "add_" + name)("test." + name, value)
    writer.add_array("test.strings", ["a", "", "\u4f60\u597d"])
    writer.add_array("test.integers", [1, -2, 3])
    writer.add_array("test.floats", [0.5, -1.5])
    writer.add_array("test.bools", [True, False])


def blocks(name, rows, columns):
    elements, size = gguf.GGML_QUANT_SIZES[Type[name]]
    data = rng.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
    for at in HALVES[name]:  # scales that are numbers, of either sign
        halves = rng.normal(0, 0.1, len(data)).astype(np.float16)
        data[:, at:at + 2] = halves.view(np.uint8).reshape(-1, 2)
    return data.reshape(rows, -1)


def write(path, tensors, metadata):
    writer = gguf.GGUFWriter(path, "test")
    if metadata:
        add_metadata(writer)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


path, values, corpus = sys.argv[1:]
tensors, expected = {}, {}
for name in HALVES:
    data = blocks(name, 3, 512)
    tensors[name] = (data, Type[name])
    expected[name] = gguf.quants.dequantize(data, Type[name])
plain = rng.normal(0, 1, (2, 5)).astype(np.float32)
tensors["F32"], expected["F32"] = (plain, None), plain
tensors["F16"], expected["F16"] = (plain.astype(np.float16), None), plain.astype(np.float16)
bits = (plain.view(np.uint32) >> 16).astype(np.uint16)
tensors["BF16"] = (bits.view(np.uint8).reshape(2, 10), Type.BF16)
expected["BF16"] = (bits.astype(np.uint32) << 16).view(np.float32)
tensors["I32"], expected["I32"] = (np.arange(-3, 3, dtype=np.int32).reshape(1, 2, 3), None), np.arange(-3, 3, dtype=np.int32).reshape(1, 2, 3)
write(path, tensors, True)
np.savez_compressed(values, **expected)

write(corpus + "/metadata", {}, True)
small = {name: (blocks(name, 1, 256), Type[name]) for name in HALVES}
small["F32"] = (plain, None)
write(corpus + "/types", small, False)
