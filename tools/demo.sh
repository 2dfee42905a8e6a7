#!/usr/bin/env bash
# Trains a digit classifier: installs what is missing, builds the example, runs it.
# Usage: tools/demo.sh [ARGUMENTS], such as --device cpu --threads 2.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

tools/setup.sh
step configure-release cmake --preset release
step build-digits cmake --build --preset release --target digits
echo
exec build/release/bin/digits "$@"
