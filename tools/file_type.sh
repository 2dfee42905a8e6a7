#!/usr/bin/env bash
# Tells what files are: installs what is missing, builds the example, and fetches magika (3 MB).
# Usage: tools/file_type.sh FILE... [--device NAME]
#   --check  compares with ONNX Runtime's results for the same network.
#   --results PAGE  writes what comes of --check; tests/models/results has such pages.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

tools/setup.sh
step configure-release cmake --preset release
step build-file_type cmake --build --preset release --target file_type
folder=$(tools/fetch_model.sh magika)
echo
arguments=()
for argument in "$@"; do
  arguments+=("$argument")
  if [[ $argument == --check ]]; then arguments+=(examples/file_type/magika.txt); fi
done
exec build/release/bin/file_type "$folder/magika/models/standard_v3_3" "${arguments[@]}"
