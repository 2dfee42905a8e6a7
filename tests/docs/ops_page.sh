#!/usr/bin/env bash
# Compares the list of operators on a page with what a program prints with --ops; with --bless writes it there.
# Usage: ops_page.sh PAGE PROGRAM [--bless]
set -euo pipefail
page=$1
list=$("$2" --ops | awk '{ line = line (line == "" ? "" : ", ") $0 } END { print line }' | fold -s -w 150 | sed 's/ *$//')
wanted=$(awk -v list="$list" '
  /^<!-- made by/ { print; print list; skip = 1 }
  /^<!-- end/ { skip = 0 }
  !skip { print }
  ' "$page" | awk '!(/^<!-- made by/ && seen++)')
if [[ ${3:-} == --bless ]]; then
  printf '%s\n' "$wanted" >"$page"
elif ! diff "$page" <(printf '%s\n' "$wanted"); then
  echo "$page lists other operators: tests/docs/ops_page.sh $page $2 --bless"
  exit 1
fi
