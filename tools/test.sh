#!/usr/bin/env bash
# Installs what is missing, builds, runs every test; lists what was skipped, and why.
# Usage: tools/test.sh [CTEST ARGUMENTS], such as -L passes or -R digits. --help prints this.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

tools/setup.sh --gpu --python --mpi --docs
step configure cmake --preset dev
step build cmake --build --preset dev

result=0
step test ctest --preset dev --parallel "$(nproc)" "$@" || result=$?
sed -n '/^Label Time Summary/,/^$/p' "$logs/test.log"
list_skips build/dev
grep -E 'tests passed' "$logs/test.log"
exit "$result"
