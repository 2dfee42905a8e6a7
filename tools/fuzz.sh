#!/usr/bin/env bash
# Runs libFuzzer on the readers of untrusted bytes, under the address and undefined behaviour
# sanitizers. Results of the campaigns so far: tests/fuzz/RESULTS.md.
# Usage: tools/fuzz.sh INPUTS [graph|tile|kernel|cache_entry|program|package|gguf|json|npy|npz|onnx|safetensors|stablehlo|tokenizer]...
#   Finds go to build/fuzz/finds/, what reaches new code to build/fuzz/corpus/.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

inputs=${1:?how many inputs}
shift
if [[ $# -eq 0 ]]; then set -- graph tile kernel cache_entry program package gguf json npy npz onnx safetensors stablehlo tokenizer; fi
tools/setup.sh --sanitizers
step fuzz-configure cmake --preset fuzz
step fuzz-build cmake --build --preset fuzz
export UBSAN_OPTIONS=print_stacktrace=1 ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-22

result=0
mkdir -p build/fuzz/finds
for target in "$@"; do
  corpus=build/fuzz/corpus/$target
  mkdir -p "$corpus"
  # The cases of the text tests are seeds, one file each.
  case $target in
    graph) cases=(tests/ir/graph tests/passes tests/fusion) ;;
    tile | kernel) cases=("tests/$target") ;;
    *) cases=() ;;
  esac
  if [[ ${#cases[@]} -gt 0 ]]; then
    find "${cases[@]}" -name '*.braze' -exec cat {} + |
      csplit --quiet --elide-empty-files --prefix="$corpus/case-" - '/^braze 1 /' '{*}'
  fi
  # An array of a few bytes may not take more than this; nor may any input take longer than 10 s.
  step "fuzz-$target" "build/fuzz/bin/fuzz-$target" -runs="$inputs" -reload=0 -max_len=16384 -timeout=10 \
    -malloc_limit_mb=512 -rss_limit_mb=4096 -artifact_prefix="build/fuzz/finds/$target-" \
    "$corpus" "tests/fuzz/corpus/$target" || result=$?
  grep -E '^(Done|stat::)' "$logs/fuzz-$target.log" || true
done
exit "$result"
