"""Writes ONNX's own cases of single operators as files, for the program onnx-cases.

Usage: write_cases.py FOLDER. Needs the Python package onnx, whose wheel holds the cases.
Each case becomes a folder: model.onnx, input_0.pb ..., output_0.pb ... and `facts`, lines of
`rtol`, `atol`, `op` and, where a case is about what Braze does not have, `group`.
"""

import pathlib
import sys
import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

GROUPS = {
    "convolution": {"Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv", "CausalConvWithState",
                    "AveragePool", "MaxPool", "LpPool", "MaxUnpool", "MaxRoiPool", "Col2Im"},
    "loop": {"Loop", "Scan", "SequenceMap"},
    "sequence": {"SequenceEmpty", "SequenceInsert", "SequenceLength", "SequenceAt", "SequenceConstruct",
                 "SequenceErase", "SplitToSequence", "ConcatFromSequence"},
    "optional": {"OptionalHasElement", "OptionalGetElement", "Optional"},
    "string": {"StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch", "TfIdfVectorizer", "ImageDecoder"},
}


def nodes_of(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes_of(attribute.g)


def group_of(model):
    for info in list(model.graph.input) + list(model.graph.output):
        kind = info.type.WhichOneof("value")
        if kind in ("sequence_type", "optional_type"):
            return kind.removesuffix("_type")
        if info.type.tensor_type.elem_type == TensorProto.STRING:
            return "string"
    ops = {node.op_type for node in nodes_of(model.graph)}
    for group, members in GROUPS.items():
        if ops & members:
            return group
    for node in nodes_of(model.graph):
        for attribute in node.attribute:
            if attribute.HasField("t") and attribute.t.data_type == TensorProto.STRING:
                return "string"
            if attribute.name == "to" and attribute.i == TensorProto.STRING:
                return "string"
    return ""


def main(folder):
    warnings.simplefilter("ignore")
    cases = collect_testcases(None)
    ops = {}
    for case in cases:
        if len(case.model.graph.node) == 1:
            node = case.model.graph.node[0]
            ops[case.name] = (node.domain + ":" if node.domain else "") + node.op_type
    for case in cases:
        path = pathlib.Path(folder) / case.name
        path.mkdir(parents=True, exist_ok=True)
        (path / "model.onnx").write_bytes(case.model.SerializeToString())
        base = case.name.split("_expanded")[0]
        op = ops.get(case.name) or ops.get(base, "several") + " expanded"
        group = group_of(case.model)
        inputs, outputs = case.data_sets[0]
        for kind, values, infos in (("input", inputs, case.model.graph.input),
                                    ("output", outputs, case.model.graph.output)):
            for i, (value, info) in enumerate(zip(values, infos)):
                if isinstance(value, TensorProto):
                    tensor = value
                elif info.type.WhichOneof("value") == "tensor_type" and not isinstance(value, list):
                    array = np.asarray(value)
                    if array.dtype.kind in "OUS":
                        continue
                    tensor = numpy_helper.from_array(array, info.name)
                else:
                    continue
                (path / f"{kind}_{i}.pb").write_bytes(tensor.SerializeToString())
        facts = f"rtol {case.rtol}\natol {case.atol}\nop {op}\n" + (f"group {group}\n" if group else "")
        (path / "facts").write_text(facts)
    print(f"{len(cases)} cases of onnx {onnx.__version__} in {folder}")


if __name__ == "__main__":
    main(sys.argv[1])
