#!/usr/bin/env bash
# Runs ONNX's own cases of single operators, which its wheel on PyPI holds: fetches it, writes the cases as files, builds
# onnx-cases and runs them on a device. Ends with an error if a result is wrong, or if fewer than three quarters are right of
# those without strings, sequences, optionals, loops and convolution.
# Usage: tests/onnx/run_cases.sh [DEVICE]   (interpreter, cpu, sim:sm_90, cuda:0; default cpu)
# The results go to tests/onnx/results/DEVICE.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
device=${1:-cpu}
cases=build/onnx-cases

if [[ ! -d $cases ]]; then
  python=$(tools/python_environment.sh onnx --requirement tests/onnx/requirements.txt)
  "$python" tests/onnx/write_cases.py "$cases.unfinished"
  mv "$cases.unfinished" "$cases"
fi
cmake --preset release >/dev/null
cmake --build --preset release --target onnx-cases
mkdir -p tests/onnx/results
build/release/bin/onnx-cases "$cases" --device "$device" --results "tests/onnx/results/${device/:/-}.md" --floor 0.75
