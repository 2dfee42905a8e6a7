#!/usr/bin/env bash
# Usage: install.sh CMAKE BUILD COMPILER SOURCE. Installs, moves the installed tree, then builds and
# runs examples/embed against it as a stranger would. Every installed header must stand alone.
set -euo pipefail
cmake=$1 build=$2 compiler=$3 source=$4

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/moved"

if grep -rlF -e "$source" -e "$work/first" "$work"/moved/lib/cmake "$work"/moved/lib/pkgconfig; then
  echo 'installed files name the folders they were made in'
  exit 1
fi

for header in "$work"/moved/include/braze/*.h; do
  echo "#include <braze/${header##*/}>"
  "$compiler" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -x c++ -I"$work/moved/include" \
    - <<<"#include <braze/${header##*/}>"
done

"$cmake" -S "$source/examples/embed" -B "$work/embed" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$work/moved" >/dev/null
"$cmake" --build "$work/embed"
"$work/embed/embed"
