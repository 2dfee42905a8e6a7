# Sourced by the other scripts: runs a step quietly, keeps its log, shows the log when it fails.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$root/build/logs
mkdir -p "$logs"
cd "$root"

# step NAME COMMAND...
step() {
  local name=$1 start=$SECONDS
  shift
  printf '%-20s' "$name"
  if "$@" >"$logs/$name.log" 2>&1; then
    printf '%4d s\n' $((SECONDS - start))
  else
    printf 'failed after %d s; the end of build/logs/%s.log:\n' $((SECONDS - start)) "$name"
    tail -n 60 "$logs/$name.log"
    return 1
  fi
}

# list_skips BUILD: what the last ctest there skipped, whole entries and parts of them. Tests say it in
# lines "skipped: WHAT: WHY".
list_skips() {
  local log=$1/Testing/Temporary/LastTest.log skips
  if [[ ! -e $log ]]; then return; fi
  skips=$(awk '/^[0-9]+\/[0-9]+ Test: / { entry = $3 }
    /^skipped: / && !seen[entry, $0]++ { print "  " entry ": " substr($0, 10) }' "$log")
  if [[ -n $skips ]]; then printf 'skipped:\n%s\n\n' "$skips"; fi
}
