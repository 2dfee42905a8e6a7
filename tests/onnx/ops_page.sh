#!/usr/bin/env bash
# Compares the list of operators in docs/guides/onnx.md with what onnx-cases says; with --bless writes it there.
# Usage: ops_page.sh ONNX_CASES [--bless]
set -euo pipefail
page=$(dirname "$0")/../../docs/guides/onnx.md
list=$("$1" --ops | awk '{ line = line (line == "" ? "" : ", ") $0 } END { print line }' | fold -s -w 150 | sed 's/ *$//')
wanted=$(awk -v list="$list" '
  /^<!-- made by/ { print; print list; skip = 1 }
  /^<!-- end/ { skip = 0 }
  !skip { print }
  ' "$page" | awk '!(/^<!-- made by/ && seen++)')
if [[ ${2:-} == --bless ]]; then
  printf '%s\n' "$wanted" >"$page"
elif ! diff "$page" <(printf '%s\n' "$wanted"); then
  echo "docs/guides/onnx.md lists other operators: tests/onnx/ops_page.sh $1 --bless"
  exit 1
fi
