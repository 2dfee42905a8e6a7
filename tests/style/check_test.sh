#!/usr/bin/env bash
# Plants one violation per rule in an empty tree and expects check.sh to find exactly that one.
set -euo pipefail
check=$(cd "$(dirname "$0")" && pwd)/check.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# expect COUNT FILE TEXT: a tree that holds only FILE with TEXT has COUNT violations.
expect() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/$(dirname "$2")" "$tree/frontend/include/braze"
  echo '#pragma once' >"$tree/frontend/include/braze/jit.h"
  printf '%b\n' "$3" >"$tree/$2"
  local found
  found=$("$check" "$tree" | sed -nE 's/^([0-9]+) violations$/\1/p' || true)
  if [[ ${found:-0} != "$1" ]]; then
    echo "$2 with '$3': expected $1 violations, found ${found:-0}"
    failures=$((failures + 1))
  fi
}

expect 0 compiler/fusion/a.cpp '#include "ir/graph/graph.h"\nint x;  // as in softmax'
expect 0 compiler/codegen/llvm/a.cpp '#include <llvm/IR/Module.h>'
expect 0 compiler/codegen/llvm/a_p.h '#pragma once\n#include <llvm/IR/Module.h>'
expect 0 runtime/devices/cuda/a.h '#pragma once\n#include <cuda.h>\nCUresult f();'
expect 0 frontend/a.cpp '#include <braze/jit.h>\n#include "runtime/memory/array.h"'
expect 1 ir/a.cpp '#include "compiler/passes/fold.h"'
expect 1 ir/a.cpp '#include <braze/jit.h>'
expect 1 compiler/a.cpp '#include "runtime/memory/array.h"'
expect 1 runtime/a.cpp '#include "compiler/pipeline.h"'
expect 1 frontend/a.cpp '#include "tools/braze/run.h"'
expect 1 compiler/a.cpp '#include <llvm/IR/Module.h>'
expect 1 compiler/codegen/llvm/a.h '#pragma once\n#include <llvm/IR/Module.h>'
expect 1 runtime/a.cpp '#include <cuda.h>'
expect 1 compiler/a.cpp 'CUmodule module;'
expect 1 compiler/a.cpp '#include <nvrtc.h>'
expect 1 compiler/fusion/a.cpp 'bool is_softmax(Node n);'
expect 1 compiler/tiling/a.cpp 'auto layer_norm = 1;'
expect 1 compiler/codegen/a.cpp 'case Op::Gelu:'
expect 1 ir/a.cpp '#include "../ir/b.h"'
expect 1 ir/a.cpp 'using namespace std;'
expect 1 ir/a.h 'int x;'
expect 0 tests/a.cpp 'TEST(A, B) {\n  EXPECT_THAT(error_of(f), HasSubstr("no device"));\n}\nvoid g() {\n  if (x) return;\n}'
expect 1 tests/a.cpp 'EXPECT_ANY_THROW(f());'
expect 1 tests/a.cpp 'EXPECT_THROW(f(1, 2), Error);'
expect 0 tests/a.cpp 'EXPECT_THROW(f(), std::runtime_error);'
expect 1 tests/a.cpp 'EXPECT_NE(error_of([&] { f(); }), "");'
expect 1 tests/a.cpp 'EXPECT_THAT(text, HasSubstr("n"));'
expect 1 tests/a.cpp 'EXPECT_CONTAINS(error_of([&] { f(); }), "no");'
expect 1 tests/a.cpp '  if (x) GTEST_SKIP();'
expect 1 tests/a.cpp 'TEST_F(A, B) {\n  if (x) return;\n}'
expect 1 tests/CMakeLists.txt 'set_tests_properties(a PROPERTIES SKIP_REGULAR_EXPRESSION "no GPU")'

rm -rf "${tree:?}"/*
mkdir -p "$tree/compiler/codegen/llvm"
for i in {1..10}; do
  echo '#include <llvm/IR/Module.h>' >"$tree/compiler/codegen/llvm/$i.cpp"
done
if "$check" "$tree" >/dev/null; then
  echo 'ten files with LLVM headers went unnoticed'
  failures=$((failures + 1))
fi

exit $((failures > 0))
