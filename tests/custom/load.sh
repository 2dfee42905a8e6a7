#!/usr/bin/env bash
# Usage: load.sh BRAZE BRAZE_RUN LIBRARY. The tools run a graph and a package that call a function of
# the library, which --load names, and say what is missing without it.
set -euo pipefail
braze=$1 run=$2 library=$3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >roll.braze <<'END'
braze 1 graph
symbol n: 1..8
graph @roll(%x: f32[n]) {
  %i = iota {axis: 0} : f32[n]
  %y = add %x, %i : f32[n]
  %r = custom_call %y {target: "example.roll", attributes: "1"} : f32[n]
  return %r as "rolled"
}
END
failures=0
# expect WORDS COMMAND...: what the command prints contains the words.
expect() {
  local words=$1 output
  shift
  output=$("$@" 2>&1) || true
  if [[ $output != *"$words"* ]]; then
    printf '%s\n  prints:\n%s\n  and not: %s\n' "$*" "$output" "$words"
    failures=1
  fi
}

for device in interpreter cpu sim:cpu sim:sm_90; do
  expect "13, 10, 11, 12" "$braze" run roll.braze --load "$library" --device $device \
    --inputs x=10 --symbol n=4
done
expect 'no function "example.roll" is registered' "$braze" run roll.braze --device cpu --symbol n=4
expect "--load" "$braze" run roll.braze --device cpu --symbol n=4
expect "does not exist" "$braze" run roll.braze --load nothing.so --device cpu --symbol n=4
expect 'custom call r: of "example.roll"' "$braze" explain roll.braze --target x86-64-v3

"$braze" compile roll.braze -o roll.bzp >/dev/null
expect "13, 10, 11, 12" "$run" roll.bzp --load "$library" --device cpu --inputs x=10 --symbol n=4
expect 'no function "example.roll" is registered' "$run" roll.bzp --device cpu --symbol n=4

cat >roll.mlir <<'END'
module @m {
  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.custom_call @example.roll(%a) {backend_config = "2"} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
END
expect "a function of another library" "$braze" import roll.mlir -o imported.braze
"$braze" import roll.mlir --load "$library" -o imported.braze >/dev/null
expect 'target: "example.roll", attributes: "2"' cat imported.braze
exit $failures
