#!/usr/bin/env bash
# Usage: steps_test.sh STEPS_SH. What tools/steps.sh shows of a step: a line that goes along on a terminal, lines
# from time to time elsewhere, and the end of the log where the step fails.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tools"
cp "$1" "$(dirname "$1")/help.sh" "$work/tools"
cat >"$work/build.sh" <<'END'
#!/usr/bin/env bash
# Builds nothing.
# Usage: build.sh
set -euo pipefail
source "$(dirname "$0")/tools/steps.sh"
step quick true
step ninja bash -c 'echo "[7/40] Building CXX object a.o"; sleep 2'
step ctest bash -c 'echo " 3/12 Test  #3: text .... Passed"; sleep 2'
step broken bash -c 'echo "[1/2] Building"; echo "no such header"; exit 3'
echo 'a step that fails is the end'
END
fail() {
  echo "$1"
  cat -v "$work/shown"
  exit 1
}
bash "$work/build.sh" --help >"$work/shown"
printf '%s\n' 'Builds nothing.' 'Usage: build.sh' | diff - "$work/shown" || fail 'this is shown as help'
[[ ! -e $work/build ]] || fail 'help begins to build'
! bash "$work/build.sh" >"$work/shown" || fail 'a broken step does not fail'
sed -E 's/ +[0-9]+ s/ N s/' "$work/shown" | diff - <(printf '%s\n' 'quick N s' 'ninja N s' 'ctest N s' \
  'broken              failed after N s; the end of build/logs/broken.log:' '[1/2] Building' 'no such header') ||
  fail 'this is shown where there is no terminal'

! seconds_between_lines=1 bash "$work/build.sh" >"$work/shown" || fail 'a broken step does not fail'
for wanted in '^ninja +[0-9]+ s +7 of 40, 17 %$' '^ninja +[0-9]+ s$' '^ctest +[0-9]+ s +3 of 12, 25 %$'; do
  grep -qE "$wanted" "$work/shown" || fail "without a terminal there is no line $wanted"
done

if ! command -v script >/dev/null; then
  echo 'skipped: what a terminal shows: there is no script(1) here'
  exit 0
fi
! script -qec "bash '$work/build.sh'" /dev/null >"$work/shown" </dev/null || fail 'a broken step does not fail on a terminal'
for wanted in 'ninja +[0-9]+ s +7 of 40, 17 %' 'ctest +[0-9]+ s +3 of 12, 25 %' '^ninja +[0-9]+ s$' 'no such header'; do
  tr '\r' '\n' <"$work/shown" | sed -E 's/\x1b\[K//' | grep -qE "$wanted" || fail "a terminal does not show $wanted"
done
