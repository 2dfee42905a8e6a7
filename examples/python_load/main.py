"""Braze's Python wheel: compiles a small network from its text, packs it with weights, loads the
package and checks what it computes against NumPy.

Usage: main.py [DEVICE]
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

SKIPPED = 77

TEXT = """braze 1 graph
symbol n: 1..4096
graph @classify(%x: f32[n, 64], %w: f32[64, 10], %b: f32[10]) {
  %p = dot %x, %w {contract: [1] x [0]} : f32[n, 10]
  %bb = broadcast %b {axes: [1]} : f32[n, 10]
  %s = add %p, %bb : f32[n, 10]
  %m = reduce max %s {axes: [1]} : f32[n]
  %mb = broadcast %m {axes: [0]} : f32[n, 10]
  %d = sub %s, %mb : f32[n, 10]
  %e = exp %d : f32[n, 10]
  %l = reduce sum %e {axes: [1]} : f32[n]
  %lb = broadcast %l {axes: [0]} : f32[n, 10]
  %y = div %e, %lb : f32[n, 10]
  return %y as "probabilities"
}
"""


def save_safetensors(path, arrays):
    """What the package of that name does: a header in JSON, then the bytes."""
    header, data = {}, b""
    for name, array in arrays.items():
        begin = len(data)
        data += array.tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    try:
        import braze
        import numpy as np
    except ImportError as missing:
        print(f"skipped: all of it: {missing}; BRAZE_PYTHON names a Python that has it")
        return SKIPPED
    device = sys.argv[1] if len(sys.argv) > 1 else braze.default_device()
    print(f"braze {braze.__version__} on {device}, of {', '.join(braze.devices())}")

    random = np.random.default_rng(0)
    x = random.standard_normal((100, 64), np.float32)
    w, b = random.standard_normal((64, 10), np.float32) / 8, random.standard_normal(10, np.float32)
    scores = x.astype(np.float64) @ w + b
    wanted = np.exp(scores - scores.max(1, keepdims=True))
    wanted /= wanted.sum(1, keepdims=True)

    # From text, with everything an argument.
    classify = braze.jit_text(TEXT, device, name="classify.braze")
    results = {"from text": classify(x, w, b)}

    # Packed with its weights, as it would be shipped; `braze` comes with the wheel.
    with tempfile.TemporaryDirectory() as folder:
        text, weights, package = (os.path.join(folder, name) for name in
                                  ("classify.braze", "weights.safetensors", "classify.bzp"))
        with open(text, "w") as file:
            file.write(TEXT)
        save_safetensors(weights, {"w": w, "b": b})
        command = [sys.executable, "-m", "braze", "compile", text, "--weights", weights, "-o", package]
        if device.startswith("cuda"):
            # For NVIDIA GPUs of all generations; without targets the code is for this processor.
            command += ["--target", "sm_80,sm_90a"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        packed = braze.load(package, device=device if not device.startswith("sim") else "cpu")
    print(packed)
    results["from the package"] = packed(x)
    results["of 7 rows"] = np.concatenate([packed(x[:7]), packed(x[7:])])

    for name, got in results.items():
        error = np.abs(np.asarray(got) - wanted).max()
        print(f"{name}: differs from NumPy by at most {error:.1e}")
        if not error < 1e-5:
            return 1

    # An error names what is wrong, and has a code that never changes.
    try:
        packed(x[:, :63])
    except braze.InvalidArgument as error:
        if error.code != "argument-mismatch":
            raise
        print(f"as it should be: {error}")
        return 0
    print("an argument of another shape was taken")
    return 1


if __name__ == "__main__":
    sys.exit(main())
