#!/usr/bin/env bash
# Usage: c_abi.sh BRAZE C_COMPILER SOURCE RUNTIME_LIBRARY. Packs functions, and has a C compiler
# build a program on the header that comes with them.
set -euo pipefail
braze=$1 compiler=$2 source=$3 library=$4

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/scale.braze" <<'END'
braze 1 graph
symbol n: 1..8
graph @scale(%x: f32[n, 2]) {
  %two = constant 2.0 : f32[]
  %y = mul %x, %two : f32[n, 2]
  return %y as "double"
}
END
cat >"$work/join.braze" <<'END'
braze 1 graph
symbol n: 1..8
graph @join(%x: f32[n + 1], %y: f32[2*n]) {
  %z = concat %x, %y {axis: 0} : f32[3*n + 1]
  return %z as "x"
}
END
cat >"$work/names.braze" <<'END'
braze 1 graph
symbol int64_t: 1..8
graph @braze(%shape: f32[int64_t], %and: f32[int64_t]) {
  %y = sub %shape, %and : f32[int64_t]
  return %y as "braze_run"
}
END
keys=()
if "$braze" key new "$work/key" >"$work/log" 2>&1; then
  "$braze" key new "$work/other" >"$work/log"
  keys=("$work/key" "$work/other")
elif ! grep -q no-signatures "$work/log"; then
  cat "$work/log"
  exit 1
fi
# An output that takes the place of an input, one without a name, and a size that weights alone have.
cat >"$work/update.braze" <<'END'
braze 1 graph
symbol n: 1..8
symbol m: 1..8
graph @update(%w: f32[n], %g: f32[n], %rates: f32[m]) {
  %rate = reduce sum %rates {axes: [0]} : f32[]
  %step = mul %g, %rate : f32[n]
  %next = sub %w, %step : f32[n]
  return %next as "next" updates %w, %step
}
END
cat >"$work/rates.braze" <<'END'
braze 1 graph
graph @rates(%x: f32[3]) {
  %y = neg %x : f32[3]
  return %y as "rates"
}
END
"$braze" run "$work/rates.braze" --device interpreter --inputs x=-0.5 \
  --output "$work/rates.safetensors" >"$work/log"
"$braze" compile "$work/scale.braze" "$work/join.braze" "$work/names.braze" "$work/update.braze" \
  --weights "$work/rates.safetensors" -o "$work/p.bzp" --header "$work/functions.h" \
  ${keys[0]:+--sign "${keys[0]}"} >"$work/log"
for line in 'next: f32\[n\], written in place of w' 'output1: f32\[n\], written' \
  'm: from 1 to 8, as the weights have it'; do
  grep -q "^ \*   $line\$" "$work/functions.h" || {
    echo "the header does not say: $line"
    exit 1
  }
done
for standard in c99 c17; do
  "$compiler" -std=$standard -pedantic -Wall -Wextra -Werror -I"$work" \
    -I"$source/runtime/include" "$source/tests/package/c_abi.c" "$library" \
    -Wl,-rpath,"$(dirname "$library")" -o "$work/c_abi"
  BRAZE_CPU_DEVICES=2 "$work/c_abi" "$work/p.bzp" "${keys[@]/%/.pub}"
done
