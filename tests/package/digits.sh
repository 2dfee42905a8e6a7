#!/usr/bin/env bash
# Usage: digits.sh FOLDER_OF_PROGRAMS. Trains the digits a little, packs the model, and expects
# braze-run to be as accurate: with weights beside the package, embedded, and after both were moved.
set -euo pipefail
bin=$1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$bin/digits" --device cpu --epochs 1 --save model >log

# As in a bundle, the data lies one folder above the program; what lies there comes first.
mkdir -p bundle/bin
cp "$bin/digits" bundle/bin
ln -s "$(dirname "$bin")/lib" bundle/lib
echo 'no digits' | gzip >bundle/digits.csv.gz
if bundle/bin/digits --epochs 1 >moved.log 2>&1 || ! grep -q 'bundle/digits.csv.gz' moved.log; then
  echo 'digits does not look for its data beside itself'
  cat moved.log
  exit 1
fi
trained=$(sed -nE 's/^accuracy on .* ([0-9.]+) %$/\1/p' log)

evaluate() {
  local share
  share=$("$bin/braze-run" "$1" --device cpu --function evaluate --json \
    --inputs pixels=model/pixels.npy labels=model/labels.npy |
    sed -E 's/.*"mean": ([0-9.]+).*/\1/')
  share=$(awk -v share="$share" 'BEGIN { printf "%.1f", 100 * share }')
  if [[ $share != "$trained" ]]; then
    echo "$1: accuracy $share %, but $trained % when it was trained"
    exit 1
  fi
}

compile=("$bin/braze" compile model/classify.braze model/evaluate.braze --target
  x86-64-v3,x86-64-v4,sm_80,sm_90a --weights model/weights.safetensors)
"${compile[@]}" -o model/digits.bzp
evaluate model/digits.bzp
"${compile[@]}" --embed-weights -o embedded.bzp
mkdir moved
mv model/digits.bzp model/weights.safetensors moved
evaluate moved/digits.bzp
evaluate embedded.bzp
# The same function by the compiler's own tool.
"$bin/braze" run embedded.bzp --device cpu --function classify --inputs pixels=model/pixels.npy >a
"$bin/braze-run" embedded.bzp --device cpu --function classify --inputs pixels=model/pixels.npy >b
cmp a b
