#!/bin/sh
# Packs a build folder into one .tar.xz that runs on any x86-64 Linux with glibc 2.36: tools,
# libraries, examples, tests with their texts, benchmarks. No LLVM and no CUDA toolkit is needed
# where it is unpacked.
#
#   tools/bundle.sh BUILD_FOLDER FILE.tar.xz
set -eu
. "$(dirname "$0")/help.sh"
build=$1
file=$2
source=$(cd "$(dirname "$0")/.." && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/braze
mkdir -p "$root/bin" "$root/lib" "$root/bench"

cp "$build"/bin/* "$root/bin"
cp -P "$build"/lib/*.so* "$root/lib"
# NVRTC stays a package of its own: links out of the build lead nowhere elsewhere.
find "$root/lib" -type l -lname '/*' -delete
# What a plain system may lack or have older.
ldd "$build"/bin/* | awk '$2 == "=>" { print $1, $3 }' | sort -u | while read -r name path; do
  case $name in
    libstdc++.* | libgcc_s.* | libz.* | libzstd.* | libbenchmark.*) cp -L "$path" "$root/lib/$name" ;;
  esac
done
find "$root/bin" "$root/lib" -type f -exec strip --strip-unneeded {} +
cp "$source/examples/digits/digits.csv.gz" "$source/LICENSE" "$source/README.md" "$root"
cp -r "$source/bench/peers" "$source/bench/mesh_floors.py" "$source/bench/floors.py" \
  "$source/bench/convolution_floors.py" "$root/bench"
mkdir "$root/bench/sweep" "$root/bench/models"
cp "$source"/bench/sweep/*.py "$source"/bench/sweep/*.sh "$source"/bench/sweep/*.txt "$root/bench/sweep"
cp "$source"/bench/models/*.py "$root/bench/models"
mkdir "$root/tools"
cp "$source/tools/sanitize_gpu.sh" "$source/tools/help.sh" "$root/tools"
(cd "$source" && find tests -name '*.braze' -o -name '*.txt' -o -name '*.cli' \
  -o -name '*.mlir' -o -name '*.onnx' | tar -cf - -T -) |
  tar -xf - -C "$root"
# What makes the suites of models, where Python has the packages for it.
cp "$source"/tests/exports/*.py "$root/tests/exports"
cp "$source/tests/onnx/write_cases.py" "$root/tests/onnx"
cp -r "$source/tests/exports/stored" "$root/tests/exports"
# What the examples with models are checked by.
mkdir -p "$root/examples/chat" "$root/examples/embed_text" "$root/examples/file_type"
cp "$source"/examples/chat/tiny.* "$root/examples/chat"
cp -r "$source"/examples/embed_text/tiny* "$root/examples/embed_text"
cp -r "$source"/examples/file_type/tiny* "$root/examples/file_type"
tar -C "$stage" -cf - braze | xz -T0 -6 > "$file"
echo "$file: $(wc -c < "$file") bytes"
