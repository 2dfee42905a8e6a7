#!/usr/bin/env bash
# Usage: install.sh CMAKE BUILD COMPILER SOURCE. Installs, moves the installed tree, then builds and
# runs examples/embed against it as a stranger would. Every installed header must stand alone. Then the
# same for the runtime alone.
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

# A graph by hand: the headers that lead into Braze's own tree are whole, and do what they say.
"$compiler" -std=c++20 -Wall -Wextra -Werror "$source/examples/graph/main.cpp" -I"$work/moved/include" \
  -L"$work/moved/lib" -lbraze -lbraze-runtime -Wl,-rpath,"$work/moved/lib" -o "$work/graph"
"$work/graph" cpu

# The runtime alone, as deployed programs have it, found by CMake and by pkg-config.
runtime=$work/runtime
"$cmake" --install "$build" --prefix "$runtime" --component runtime >/dev/null
"$cmake" --install "$build" --prefix "$runtime" --component runtime-development >/dev/null
if [[ -e $runtime/bin/braze || -e $runtime/include/braze/jit.h ]] || compgen -G "$runtime/lib/libbraze.so*"; then
  echo 'the component runtime brings the compiler'
  exit 1
fi
"$runtime/bin/braze-run" --version
mkdir "$work/program"
cat >"$work/program/main.cpp" <<'END'
#include <braze/device.h>
#include <iostream>
int main() {
  for (const braze::Device& device : braze::devices()) std::cout << device.name() << " ";
}
END
cat >"$work/program/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(program LANGUAGES CXX)
find_package(Braze ${VERSION} CONFIG REQUIRED COMPONENTS ${COMPONENTS})
add_executable(program main.cpp)
target_link_libraries(program PRIVATE braze::runtime)
END
# configure VERSION COMPONENTS
configure() {
  "$cmake" -S "$work/program" -B "$work/program/build" -G Ninja --fresh -DVERSION="$1" -DCOMPONENTS="$2" \
    -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$runtime" >"$work/log" 2>&1
}
configure 0 runtime || { cat "$work/log"; exit 1; }
"$cmake" --build "$work/program/build" >/dev/null
"$work/program/build/program" | grep -w cpu
if configure 0 compiler || ! grep -q 'component compiler' "$work/log"; then
  echo 'a component that is not installed is found'
  exit 1
fi
if configure 99 runtime; then
  echo 'a later major version is found'
  exit 1
fi

# pkgconfig PREFIX NAME: builds the program by it.
pkgconfig() {
  if ! command -v pkg-config >/dev/null; then
    echo 'skipped: the check by pkg-config: it is not here'
    return
  fi
  local flags
  flags=$(PKG_CONFIG_PATH="$1/lib/pkgconfig" pkg-config --cflags --libs "$2")
  # shellcheck disable=SC2086
  "$compiler" -std=c++20 "$work/program/main.cpp" $flags -Wl,-rpath,"$1/lib" -o "$work/program/$2"
  "$work/program/$2" | grep -w cpu
}
pkgconfig "$runtime" braze-runtime
pkgconfig "$work/moved" braze
