#!/usr/bin/env bash
# Runs the tests under the sanitizers: address with undefined behaviour, then threads.
# Usage: tools/sanitize.sh [asan|tsan]...
set -euo pipefail
source "$(dirname "$0")/steps.sh"

tools/setup.sh --sanitizers --gpu
if [[ $# -eq 0 ]]; then set -- asan tsan; fi
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
export ASAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-22 TSAN_SYMBOLIZER_PATH=/usr/bin/llvm-symbolizer-22

export TSAN_OPTIONS=suppressions=$PWD/tests/tsan.supp
# UCX, which MPICH loads, writes its hooks over functions of memory that the thread sanitizer has
# replaced already: every process of MPICH would crash when it begins.
export UCX_MEM_MMAP_HOOK_MODE=none

result=0
for preset in "$@"; do
  step "$preset-configure" cmake --preset "$preset"
  step "$preset-build" cmake --build --preset "$preset"
  # Style and package look at sources and installed files, which a sanitizer does not change.
  step "$preset-test" ctest --preset "$preset" --parallel "$(nproc)" -LE '^(style|package)$' || result=$?
  list_skips "build/$preset"
  grep -E 'tests passed' "$logs/$preset-test.log"
done
exit "$result"
