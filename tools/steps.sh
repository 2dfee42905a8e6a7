# Sourced by the other scripts: runs a step quietly, keeps its log, shows the log when it fails.

source "$(dirname "${BASH_SOURCE[0]}")/help.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$root/build/logs
mkdir -p "$logs"
cd "$root"

# progress LOG: how far the command is that writes this log: "[31/250]" of Ninja, "31/250 Test" of CTest.
progress() {
  tail -c 4000 "$1" | sed -nE 's@^ *\[?([0-9]+)/([0-9]+)(\]| Test ).*@\1 \2@p' | tail -n 1 |
    awk '{ printf "%5d of %d, %d %%", $1, $2, 100 * $1 / $2 }'
}

# Where there is no terminal, how often a line says how far a step is.
: "${seconds_between_lines:=30}"

# watch NAME LOG: says how far a step is, until it is killed, or the script is gone. On a terminal it keeps one
# line. Elsewhere it completes the line that begins with the name, and begins the next.
watch() {
  local start=$SECONDS last=$SECONDS
  while sleep 0.5 && kill -0 $$ 2>/dev/null; do
    if [[ -t 1 ]]; then
      printf '\r\e[K%-20s%4d s %s' "$1" $((SECONDS - start)) "$(progress "$2")"
    elif ((SECONDS - last >= seconds_between_lines)); then
      printf '%4d s %s\n%-20s' $((SECONDS - start)) "$(progress "$2")" "$1"
      last=$SECONDS
    fi
  done
}

# step NAME COMMAND...
step() {
  local name=$1 start=$SECONDS log=$logs/$1.log watcher result=0
  shift
  printf '%-20s' "$name"
  : >"$log"
  watch "$name" "$log" &
  watcher=$!
  "$@" >"$log" 2>&1 || result=$?
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  if [[ -t 1 ]]; then printf '\r\e[K%-20s' "$name"; fi
  if [[ $result -eq 0 ]]; then
    printf '%4d s\n' $((SECONDS - start))
  else
    printf 'failed after %d s; the end of build/logs/%s.log:\n' $((SECONDS - start)) "$name"
    tail -n 60 "$log"
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
