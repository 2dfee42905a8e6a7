#!/usr/bin/env bash
# Checks the structural rules of the tree: who may include whom, and who may name what.
# Usage: check.sh ROOT. Prints every violation as FILE:LINE:TEXT under its rule.
set -euo pipefail
shopt -s lastpipe  # report counts in this shell
cd "$1"

violations=0

# report RULE: reads matches from stdin and counts them.
report() {
  local matches
  matches=$(cat)
  [[ -z $matches ]] && return
  violations=$((violations + $(wc -l <<<"$matches")))
  printf '%s\n%s\n\n' "$1" "$matches"
}

# code FOLDER...: the sources below the folders that exist, as FILE:LINE:TEXT without // comments.
code() {
  local folders=()
  for folder in "$@"; do
    if [[ -d $folder ]]; then folders+=("$folder"); fi
  done
  [[ ${#folders[@]} -gt 0 ]] || return 0
  { grep -rn --include='*.h' --include='*.cpp' --include='*.def' '' "${folders[@]}" || true; } |
    sed -E 's@^([^:]*:[0-9]+:)(.*[^:"])?//.*$@\1\2@'
}

# The library that holds or generates each public header <braze/NAME>.
declare -A owner
for library in ir runtime compiler frontend; do
  for header in "$library"/include/braze/*.h "$library"/*.h.in; do
    name=${header##*/}
    owner[${name%.in}]=$library
  done
done

# layer FOLDER ALLOWED...: includes of FOLDER stay within ALLOWED.
layer() {
  local folder=$1
  shift
  code "$folder" | sed -nE 's@^([^:]*:[0-9]+:)\s*#\s*include\s*[<"]([^>"]*)[>"].*@\1 \2@p' |
    while read -r place target; do
      local included=$target
      case $target in
        braze/version.h) continue ;;
        braze/*) target=${owner[${target#braze/}]:-nobody} ;;
        ir/* | runtime/* | compiler/* | frontend/* | tools/* | tests/* | bench/*) target=${target%%/*} ;;
        *) continue ;;
      esac
      [[ " $* " == *" $target "* ]] || echo "$place $included"
    done | report "$folder includes only $*"
}

match() { grep -E -- "$1" || true; }
except() { grep -Ev -- "$1" || true; }

all=(ir runtime compiler frontend tools tests bench examples)

layer ir ir
layer runtime ir runtime
layer compiler ir compiler
layer frontend ir runtime compiler frontend

code "${all[@]}" | match '#\s*include\s*[<"](llvm|llvm-c)/' |
  except '^compiler/codegen/llvm/[^:]*(\.cpp|_p\.h):' |
  report 'LLVM headers are included by .cpp files and private headers of compiler/codegen/llvm only'
llvm_users=$(code compiler/codegen/llvm | match '#\s*include\s*[<"](llvm|llvm-c)/' | cut -d: -f1 | sort -u)
if [[ $(wc -l <<<"$llvm_users") -gt 9 ]]; then
  report 'at most nine files include LLVM headers' <<<"$llvm_users"
fi

code "${all[@]}" |
  match '#\s*include\s*[<"](cuda|cuda_[a-z_0-9]*|nccl)\.h[>"]|\bCU(result|device|context|module|function|stream|event|graph|graphExec|deviceptr|tensorMap)\b' |
  except '^(runtime/devices|tests/runtime)/cuda/' |
  report 'CUDA is declared in runtime/devices/cuda only, and named in its tests'
code "${all[@]}" | match '#\s*include\s*[<"]nvrtc\.h[>"]|\bnvrtc(Result|Program)\b' |
  except '^compiler/codegen/nvrtc/' |
  report 'NVRTC is declared in compiler/codegen/nvrtc only'

code compiler/{fusion,tiling,lowering,codegen} | sed -E 's@#\s*include.*@@' |
  match '(^|[^a-z])([Ss]oft_?[Mm]ax|log_?sum_?exp|LogSumExp|(layer|batch|rms|group)_?norm|(Layer|Batch|Rms|Group)Norm|[Aa]ttention|[Gg]elu|[Ss]ilu|[Rr]elu|[Ss]oftplus|cross_?entropy|CrossEntropy|[Aa]dam_?[Ww]?|conv2d|Conv2d)' |
  report 'fusion, tiling, lowering and codegen name no function of the frontend'

code "${all[@]}" | match '#\s*include\s*"\.\.?/' | report 'includes are relative to the repository root'
code ir runtime compiler frontend tools | match '^[^:]*:[0-9]+:using namespace ' |
  report 'no using namespace at file scope'
{ find "${all[@]}" -name '*.h' -exec grep -L '^#pragma once' {} + 2>/dev/null || true; } | report 'headers begin with #pragma once'

# Tests that cannot fail, or accept anything.
code tests | match '(EXPECT|ASSERT)_ANY_THROW|(EXPECT|ASSERT)_THROW\(.*,\s*(braze::)?Error\)' |
  report 'a test says which error it expects: a part of its text, or its code'
code tests | match '(EXPECT|ASSERT)_NE\(error_of\(.*,\s*""\)' |
  report 'a test says which error it expects, not that there is one'
code tests | match '(HasSubstr|StartsWith|EndsWith)\("([^"\\]|\\.){0,2}"\)|EXPECT_CONTAINS\(.*,\s*"([^"\\]|\\.){0,2}"\)' |
  report 'a part of a text that is expected has three characters or more'
code tests | match 'GTEST_SKIP\(\)\s*;' | report 'a test that is skipped says why'
# The bodies of tests begin and end at the first column.
code tests | awk -F: '{ text = $0; sub(/^[^:]*:[0-9]*:/, "", text) }
    text ~ /^TEST(_F|_P)?\(/ { inside = 1 }
    text ~ /^}$/ { inside = 0 }
    inside && text ~ /^  if \(.*\) return;/ { print }' |
  report 'a test that cannot judge is skipped with its reason; it does not return'
if [[ -d tests ]]; then
  { grep -rn --include=CMakeLists.txt --include='*.cmake' 'SKIP_REGULAR_EXPRESSION' tests cmake 2>/dev/null || true; } |
    report 'what a test prints does not make it skipped: it ends with 77'
fi

if [[ $violations -gt 0 ]]; then
  echo "$violations violations"
  exit 1
fi
