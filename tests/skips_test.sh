#!/usr/bin/env bash
# Usage: skips_test.sh ALL PART. What is skipped is said, and is neither passed nor failed. ALL is a
# test by GoogleTest that is skipped whole where there is no PTX assembler, PART one of whose suite
# MappedFileTest some is skipped on every machine: it has tests for root and tests for others.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect STATUS LINE COMMAND...: how the command ends, and a line (an extended regular expression) that
# it prints.
expect() {
  local status=$1 line=$2 got=0
  shift 2
  "$@" >"$work/out" 2>&1 || got=$?
  if [[ $got != "$status" ]]; then
    echo "$*: ended with $got, not $status"
    failures=1
  fi
  if ! grep -qE "^$line\$" "$work/out"; then
    echo "$*: does not print \"$line\" but"
    cat "$work/out"
    failures=1
  fi
}

export BRAZE_PTXAS=none
expect 77 'skipped: all of it: no PTX assembler .*' "$1" --gtest_brief=1
expect 1 'no test ran' "$1" --gtest_brief=1 --gtest_filter=Nothing.*
expect 0 'skipped: MappedFileTest\.[A-Za-z]+(, MappedFileTest\.[A-Za-z]+)*: .*root.*' \
  "$2" --gtest_brief=1 --gtest_filter=MappedFileTest.*

# Where a device is there the command decides, whatever it prints.
cat >"$work/braze" <<'END'
#!/bin/sh
echo '  device  what it is'
echo '  cuda:0  a GPU'
echo '  no GPUs: none was found'
END
cat >"$work/fails" <<'END'
#!/bin/sh
echo "there is no device \"cuda:0\"; skipped"
exit 3
END
chmod +x "$work/braze" "$work/fails"
expect 3 'there is no device "cuda:0"; skipped' "$here/where_devices_are.sh" "$work/braze" cuda:0 "$work/fails"
expect 77 'skipped: all of it: there is no device cuda:1: none was found' \
  "$here/where_devices_are.sh" "$work/braze" 'cuda:0 cuda:1' "$work/fails"
if "$here/where_devices_are.sh" false cuda:0 true; then
  echo 'a tool that fails is no reason to skip or to pass'
  failures=1
fi

# The list at the end of tools/test.sh.
mkdir -p "$work/build/Testing/Temporary"
cat >"$work/build/Testing/Temporary/LastTest.log" <<'END'
1/2 Testing: one
1/2 Test: one
skipped: A.B, A.C: no GPU
skipped: A.D: no NumPy
2/2 Testing: two
2/2 Test: two
skipped: all of it: no GPU
END
source "$here/../tools/steps.sh"
cat >"$work/expected" <<'END'
skipped:
  one: A.B, A.C: no GPU
  one: A.D: no NumPy
  two: all of it: no GPU

END
diff "$work/expected" <(list_skips "$work/build") || failures=1
exit $failures
