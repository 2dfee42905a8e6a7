#!/usr/bin/env bash
# Runs the programs of openxla/stablehlo that check themselves (stablehlo/testdata). Ends with an error if a result is wrong,
# or if fewer than nine tenths are right of those without complex numbers, sorts and loops.
# Usage: tests/stablehlo/run_testdata.sh FOLDER [DEVICE]   (interpreter, cpu, sim:sm_90, cuda:0; default cpu)
#   FOLDER holds the .mlir files.
# The results go to tests/stablehlo/results/DEVICE.md.
set -euo pipefail
if [[ $# -eq 0 ]]; then
  echo "usage: tests/stablehlo/run_testdata.sh FOLDER [DEVICE]" >&2
  exit 2
fi
programs=$(realpath "$1")
cd "$(dirname "$0")/../.."
device=${2:-cpu}

cmake --preset release >/dev/null
cmake --build --preset release --target stablehlo-cases
mkdir -p tests/stablehlo/results
build/release/bin/stablehlo-cases "$programs" --device "$device" --results "tests/stablehlo/results/${device/:/-}.md" --floor 0.9
