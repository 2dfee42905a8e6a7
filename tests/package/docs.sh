#!/usr/bin/env bash
# Usage: docs.sh DOXYFILE. Every member of a public header is explained, and doxygen has nothing to
# complain of. Proof that it can complain: a header with a member and a function that have no word.
set -euo pipefail
doxyfile=$1
if ! command -v doxygen >/dev/null; then
  echo 'skipped: all of it: no doxygen here'
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
generate() { (cat "$doxyfile" && printf '%s\n' "OUTPUT_DIRECTORY = $work/docs" "$@") | doxygen - >"$work/log" 2>&1; }

generate || {
  grep warning "$work/log" || cat "$work/log"
  exit 1
}
[[ -s $work/docs/html/classbraze_1_1Array.html ]] || { echo 'there is no page about Array'; exit 1; }

mkdir "$work/headers"
printf '/** @file */\nnamespace braze {\n/// A box.\nstruct Box {\n  int depth;\n};\nint lid(const Box& box);\n}\n' \
  >"$work/headers/box.h"
if generate "INPUT += $work/headers" || ! grep -q 'depth' "$work/log" || ! grep -q 'lid' "$work/log"; then
  echo 'doxygen does not complain of a member or a function without a word'
  exit 1
fi
