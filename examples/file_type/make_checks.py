"""Makes magika.txt: what magika's network says of thirty texts, in f64, and how far ONNX Runtime is off in f32.

Usage: make_checks.py BRAZE FOLDER > magika.txt. FOLDER holds model.onnx; f64 is by Braze's interpreter. Needs onnx, onnxruntime and numpy.
"""

import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests/onnx"))
from compare_models import in_f64, run_braze  # noqa: E402

TEXTS = [
    "#include <stdio.h>\\nint main() { printf(\\\"hello\\\"); return 0; }",
    "def f(x):\\n    return [y ** 2 for y in x if y]\\n\\nprint(f(range(10)))",
    "{\\\"name\\\": \\\"braze\\\", \\\"version\\\": [0, 1, 0], \\\"private\\\": true}",
    "<!doctype html><html><head><title>A page</title></head><body><p>Words.</p></body></html>",
    "SELECT name, count(*) FROM users WHERE age > 30 GROUP BY name ORDER BY 2 DESC;",
    "# A title\\n\\nSome *words* in [Markdown](https://example.org).\\n\\n- one\\n- two",
    "#!/bin/sh\\nset -e\\nfor f in *.txt; do\\n  echo \\\"$f\\\"\\ndone",
    "name,age,city\\nAda,36,London\\nAlan,41,Wilmslow\\nGrace,85,Arlington",
    "package main\\n\\nimport \\\"fmt\\\"\\n\\nfunc main() {\\n\\tfmt.Println(\\\"hello\\\")\\n}",
    "The quick brown fox jumps over the lazy dog, and nobody knows why it does so.",
]
TEXTS = [text.replace("\\\"", '"') for text in TEXTS]
# One text says little about a greatest error: the network takes variances as differences of squares, and a few texts
# lose most of their digits there.
TEXTS += [text[: len(text) // 2] for text in TEXTS] + [text + "\\n" + text for text in TEXTS]
PADDING, TAKEN = 256, 1024


def features(text):
    content = text.replace("\\n", "\n").encode()
    first, last = content.lstrip()[:TAKEN], content.rstrip()[-TAKEN:]
    return list(first) + [PADDING] * (TAKEN - len(first)) + [PADDING] * (TAKEN - len(last)) + list(last)


def main(braze, folder):
    model = onnx.load(folder + "/model.onnx")
    x = np.array([features(text) for text in TEXTS], np.int32)
    name = model.graph.input[0].name
    with tempfile.TemporaryDirectory() as work:
        path = pathlib.Path(work)
        onnx.save(in_f64(model), path / "f64.onnx")
        (exact,) = run_braze(braze, path / "f64.onnx", "interpreter", {name: x}, {}, path).values()
    assert exact.dtype == np.float64
    session = onnxruntime.InferenceSession(folder + "/model.onnx", providers=["CPUExecutionProvider"])
    error = session.run(None, {name: x})[0].astype(np.float64) - exact
    assert np.abs(error).max() < 1e-3
    print(f"{np.abs(error).max():.4g} {np.sqrt((error**2).mean()):.4g} ONNX Runtime")
    for text, row in zip(TEXTS, exact):
        print(text)
        print(*[f"{round(float(v), 9):g}" if v < 1e-6 else f"{v:.9f}" for v in row])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
