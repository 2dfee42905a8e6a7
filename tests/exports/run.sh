#!/usr/bin/env bash
# Exports networks of PyTorch to ONNX and of Keras to StableHLO, and runs them: makes an environment, builds bench-models, and compares.
# Usage: tests/exports/run.sh [--suite small torchvision timm keras] [--only NAME...]: see run.py.
# PYTHON may name an interpreter that has the packages of requirements.txt; BUILD a build folder. Needs 12 GB in build/exports.
# The results go to tests/exports/results/SUITE.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD:-build/release}

PYTHON=${PYTHON:-$(tools/python_environment.sh exports --requirement tests/exports/requirements.txt)}
if [[ -z ${BUILD:-} ]]; then cmake --preset release >/dev/null; fi
cmake --build "$build" --target bench-models
"$PYTHON" tests/exports/run.py "$build/bin/bench-models" build/exports --results tests/exports/results "$@"
