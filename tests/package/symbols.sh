#!/usr/bin/env bash
# Usage: symbols.sh LIBRARY... Each must export names of namespace braze and nothing else, and LLVM
# must be inside it: a second LLVM in the process, such as PyTorch's, may not meet ours.
set -euo pipefail

failures=0
for library in "$@"; do
  exported=$(nm -D --defined-only "$library" | awk '{print $3}')
  # NZT: member functions, type information, local statics; then the C interface.
  foreign=$(grep -Ev '^(_Z(N|NK|N[RO]|NK[RO]|T[A-Za-z0-9_]*NK?|ZNK?|GV(Z*NK?))5braze|braze_)' <<<"$exported" || true)
  if [[ -z $exported ]]; then
    echo "$library exports nothing"
    failures=1
  fi
  if [[ -n $foreign ]]; then
    echo "$library exports names outside namespace braze:"
    c++filt <<<"$foreign" | head -20
    failures=1
  fi
  # Nor may a name of ours speak of LLVM's types: N4llvm in the mangled name.
  if grep -E '4llvm' <<<"$exported" | c++filt | head -20 | grep .; then
    echo "$library exports names with types of LLVM"
    failures=1
  fi
  if readelf -d "$library" | grep -E 'NEEDED.*(LLVM|clang|z3)'; then
    echo "$library needs a library that should be inside it or unused"
    failures=1
  fi
done
exit $failures
