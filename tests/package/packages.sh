#!/usr/bin/env bash
# Usage: packages.sh CPACK BUILD COMPILER SOURCE. Makes the Debian packages and the runtime's archive,
# looks into them, and builds and runs examples/embed against what they hold.
set -euo pipefail
cpack=$1 build=$2 compiler=$3 source=$4
cmake=$(dirname "$cpack")/cmake
libraries=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$build/CMakeCache.txt")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "$*"
  exit 1
}
cd "$build"
if ! command -v dpkg-shlibdeps >/dev/null; then
  echo 'skipped: all of it: no dpkg-shlibdeps here (package dpkg-dev)'
  exit 77
fi
# The release has xz; a test is in a hurry.
"$cpack" -G DEB -B "$work" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$cpack" -G TXZ -B "$work" -D CPACK_COMPONENTS_ALL='runtime;runtime-development' >"$work/log" 2>&1 ||
  { cat "$work/log"; exit 1; }

declare -A deb
for name in libbraze-runtime libbraze-runtime-dev braze libbraze-dev; do
  deb[$name]=$(compgen -G "$work/${name}_*.deb") || fail "there is no package $name"
done
# holds NAME FILE: FILE is a pattern of what the package installs.
holds() {
  dpkg-deb -c "${deb[$1]}" | awk '{print $6}' >"$work/list"
  grep -qE "^\./usr/$2\$" "$work/list" || fail "$1 does not hold $2"
}
lacks() {
  dpkg-deb -c "${deb[$1]}" | awk '{print $6}' >"$work/list"
  if grep -E "$2" "$work/list"; then fail "$1 holds $2"; fi
}
depends() {
  dpkg-deb -f "${deb[$1]}" Depends | grep -qE "(^|, )$2( |,|\$)" || fail "$1 does not depend on $2"
}
holds libbraze-runtime "$libraries"'/libbraze-runtime\.so\.[0-9]+'
holds libbraze-runtime 'bin/braze-run'
holds libbraze-runtime 'share/man/man1/braze-run\.1'
holds libbraze-runtime 'share/bash-completion/completions/braze-run'
holds libbraze-runtime 'share/zsh/site-functions/_braze-run'
holds libbraze-runtime 'share/fish/vendor_completions\.d/braze-run\.fish'
lacks libbraze-runtime 'include|libbraze\.so|\.so$'
depends libbraze-runtime libc6
depends libbraze-runtime 'libstdc\+\+6'
holds libbraze-runtime-dev 'include/braze/c\.h'
holds libbraze-runtime-dev "$libraries"'/libbraze-runtime\.so'
lacks libbraze-runtime-dev 'jit\.h'
depends libbraze-runtime-dev libbraze-runtime
holds braze 'bin/braze'
holds braze 'share/man/man1/braze\.1'
holds braze 'share/bash-completion/completions/braze'
holds braze 'share/zsh/site-functions/_braze'
holds braze 'share/fish/vendor_completions\.d/braze\.fish'
lacks braze 'include'
depends braze libbraze-runtime
holds libbraze-dev 'include/braze/braze\.h'
depends libbraze-dev braze
depends libbraze-dev libbraze-runtime-dev

root=$work/root
for package in "${deb[@]}"; do dpkg-deb -x "$package" "$root"; done
"$cmake" -S "$source/examples/embed" -B "$work/embed" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$root/usr" >/dev/null
"$cmake" --build "$work/embed" >/dev/null
"$work/embed/embed" | tail -n 1
"$root/usr/bin/braze" --version

mkdir "$work/archive"
archives=("$work"/*.tar.xz)
[[ ${#archives[@]} -eq 1 ]] || fail "archives of the runtime: ${archives[*]}"
tar -xf "${archives[0]}" -C "$work/archive" --strip-components=1
"$work/archive/bin/braze-run" --version
