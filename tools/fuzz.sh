#!/usr/bin/env bash
# Runs libFuzzer on the readers of untrusted bytes, under the address and undefined behaviour
# sanitizers. Results of the campaigns so far: tests/fuzz/RESULTS.md.
# Usage: tools/fuzz.sh INPUTS [graph|tile|kernel|loops|cache_entry|program|package|gguf|json|npy|npz|onnx|safetensors|stablehlo|tokenizer]...
#   Finds go to build/fuzz/finds/, what reaches new code to build/fuzz/corpus/. SECONDS_EACH=480 ends the run of a target
#   after that time, however many inputs it had.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

inputs=${1:?how many inputs}
shift
if [[ $# -eq 0 ]]; then set -- graph tile kernel loops cache_entry program package gguf json npy npz onnx safetensors stablehlo tokenizer; fi
tools/setup.sh --sanitizers
step fuzz-configure cmake --preset fuzz
step fuzz-build cmake --build --preset fuzz
export UBSAN_OPTIONS=print_stacktrace=1 ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-22

result=0
longest=16384
mkdir -p build/fuzz/finds
for target in "$@"; do
  corpus=build/fuzz/corpus/$target
  mkdir -p "$corpus"
  # The cases of the text tests are seeds, one file each.
  case $target in
    graph) cases=(tests/ir/graph tests/passes tests/fusion) ;;
    tile | kernel | loops) cases=("tests/$target") ;;
    *) cases=() ;;
  esac
  if [[ ${#cases[@]} -gt 0 ]]; then
    find "${cases[@]}" -name '*.braze' -exec cat {} + |
      csplit --quiet --elide-empty-files --prefix="$corpus/case-" - '/^braze 1 /' '{*}'
  fi
  # Whole models are seeds of their readers, if they are no longer than the inputs may be.
  case $target in
    onnx) models=(tests/onnx/small/*/model.onnx) ;;
    stablehlo) models=(tests/stablehlo/cases/*.mlir) ;;
    tokenizer) models=(tests/frontend/tokenizers/*.json) ;;
    *) models=() ;;
  esac
  for model in "${models[@]}"; do
    if [[ $(stat -c %s "$model") -le $longest ]]; then cp "$model" "$corpus/seed-$(tr / - <<<"$model")"; fi
  done
  # An array of a few bytes may not take more than this; nor may any input take longer than 10 s.
  step "fuzz-$target" "build/fuzz/bin/fuzz-$target" -runs="$inputs" -max_total_time="${SECONDS_EACH:-0}" -reload=0 -max_len="$longest" -timeout=10 \
    -malloc_limit_mb=512 -rss_limit_mb=4096 -artifact_prefix="build/fuzz/finds/$target-" \
    "$corpus" "tests/fuzz/corpus/$target" || result=$?
  grep -E '^(Done|stat::)' "$logs/fuzz-$target.log" || true
done
exit "$result"
