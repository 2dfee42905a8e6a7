#!/usr/bin/env bash
# Trains a digit classifier, then ships it: installs what is missing, builds the example and the
# tools, trains, compiles the model into a package for CPUs and GPUs, and runs that without a
# compiler.
# Usage: tools/demo.sh [ARGUMENTS], such as --device cpu --threads 2.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

tools/setup.sh
step configure-release cmake --preset release
step build-digits cmake --build --preset release --target digits braze-tool braze-run
echo
bin=build/release/bin model=build/demo
"$bin/digits" "$@" --save "$model" | tee "$model.log"

echo
"$bin/braze" compile "$model/classify.braze" "$model/evaluate.braze" \
  --target x86-64-v3,x86-64-v4,sm_80,sm_90a --weights "$model/weights.safetensors" \
  -o "$model/digits.bzp"
shipped=$("$bin/braze-run" "$model/digits.bzp" --function evaluate --json \
  --inputs pixels="$model/pixels.npy" labels="$model/labels.npy" |
  sed -E 's/.*"mean": ([0-9.]+).*/\1/')
shipped=$(awk -v share="$shipped" 'BEGIN { printf "%.1f", 100 * share }')
trained=$(sed -nE 's/^accuracy on .* ([0-9.]+) %$/\1/p' "$model.log")
echo "accuracy in braze-run          $shipped %"
if [[ $shipped != "$trained" ]]; then
  echo "demo: the package is not as good as the model it was made from, $trained %" >&2
  exit 1
fi
