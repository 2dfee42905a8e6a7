#!/usr/bin/env bash
# Usage: with_python.sh SCRIPT ARGUMENT... Runs it by the Python that BRAZE_PYTHON names, else by python3.
set -euo pipefail
python=${BRAZE_PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
  echo "skipped: all of it: there is no $python"
  exit 77
fi
exec "$python" "$@"
