#!/usr/bin/env bash
# Runs braze-run, and loads libbraze-runtime.so, in a plain Debian 12 without anything of the
# build: no compiler, no LLVM, no CUDA. Makes the system with debootstrap; needs root, and minutes.
# Usage: tools/plain_system.sh [BUILD_FOLDER] [SYSTEM_FOLDER]
#   SYSTEM_FOLDER: an unpacked system to use instead, for example of another distribution.
set -euo pipefail
source "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build/release}") system=${2:-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -z $system ]]; then
  system=$work/system
  debootstrap --variant=minbase bookworm "$system" >"$work/log" 2>&1 || { tail "$work/log"; exit 1; }
  # What a program in C++ depends on; braze-run does without.
  without=$system/usr/lib/x86_64-linux-gnu/libstdc++.so.6
  if [[ -e $without ]]; then mv "$without" "$without.away"; fi
fi

cat >"$work/scale.braze" <<'END'
braze 1 graph
symbol n: 1..8
graph @scale(%x: f32[n, 2]) {
  %two = constant 2.0 : f32[]
  %y = mul %x, %two : f32[n, 2]
  return %y as "double"
}
END
mkdir -p "$system/opt/braze"
"$build/bin/braze" compile "$work/scale.braze" --target x86-64-v3,sm_80 -o "$system/opt/braze/scale.bzp"
cp "$build/bin/braze-run" "$system/opt/braze"
inside() { chroot "$system" "$@"; }
inside cat /etc/os-release | sed -n 's/^PRETTY_NAME=//p'
inside /opt/braze/braze-run --version
inside /opt/braze/braze-run --devices
inside /opt/braze/braze-run /opt/braze/scale.bzp --device cpu --inputs x=21 --symbol n=3 | tee "$work/out"
grep -q '42' "$work/out"

if [[ -e ${without:-}.away ]]; then mv "$without.away" "$without"; fi
cp "$build"/lib/libbraze-runtime.so.0 "$system/opt/braze"
if inside sh -c 'ls /usr/lib/*/libstdc++.so.6 /usr/lib64/libstdc++.so.6 2>/dev/null | grep -q .'; then
  unresolved=$(inside sh -c 'LD_BIND_NOW=1 LD_PRELOAD=/opt/braze/libbraze-runtime.so.0 /bin/true' 2>&1)
  [[ -z $unresolved ]] || { echo "$unresolved"; exit 1; }
  echo 'libbraze-runtime.so loads'
else
  echo 'no libstdc++ here: libbraze-runtime.so not tried'
fi
