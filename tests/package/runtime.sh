#!/usr/bin/env bash
# Usage: runtime.sh LIBRARY BRAZE_RUN. What deployed programs need must stay small, and must run on
# systems as old as glibc 2.34 with the C++ library of GCC 11 (RHEL 9; Ubuntu 22.04 is newer).
set -euo pipefail
library=$1 runner=$2
limits='GLIBC 2.34
GLIBCXX 3.4.29
CXXABI 1.3.13'
failures=0

# later FILE: symbols of a later version than the limits allow.
later() {
  objdump -T "$1" | grep -F '*UND*' | sed -nE 's/.*\((GLIBC|GLIBCXX|CXXABI)_([0-9.]+)\) +(.*)/\1 \2 \3/p' |
    while read -r set version symbol; do
      local limit
      limit=$(sed -n "s/^$set //p" <<<"$limits")
      [[ $(printf '%s\n' "$limit" "$version" | sort -V | tail -n 1) == "$limit" ]] ||
        echo "$symbol ($set $version)"
    done
}

for file in "$library" "$runner"; do
  # Only builds with the library's assertions (preset dev) have this one.
  found=$(later "$file" | grep -v '^_ZSt21__glibcxx_assert_failPKciS0_S0_ ' || true)
  if [[ -n $found ]]; then
    echo "$file needs symbols of later systems:"
    c++filt <<<"$found"
    failures=1
  fi
done

# needs FILE ALLOWED...: no other shared libraries.
needs() {
  local file=$1
  shift
  for name in $(readelf -d "$file" | sed -nE 's/.*\(NEEDED\).*\[(.*)\.so.*/\1/p'); do
    if [[ " $* " != *" $name "* ]]; then
      echo "$file needs $name"
      failures=1
    fi
  done
}
needs "$library" libstdc++ libm libgcc_s libc ld-linux-x86-64
needs "$runner" libm libgcc_s libc ld-linux-x86-64

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
strip --strip-unneeded -o "$work/library" "$library"
bytes=$(stat -c %s "$work/library")
echo "$(basename "$library"): $bytes bytes, stripped"
limit=${3:-3000000}
if ((bytes > limit)); then
  echo "more than $limit"
  failures=1
fi
exit $failures
