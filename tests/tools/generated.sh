#!/usr/bin/env bash
# Usage: generated.sh BRAZE. The completions and the manual page: each shell and roff must accept
# them, and they must name every subcommand and every option that the help names.
set -euo pipefail
braze=$1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "$*"
  failures=1
}

# The words of the second column on are explanations; options stand first in their lines.
"$braze" --help >"$work/help"
mapfile -t commands < <(sed -n '/^Subcommands:/,/^$/s/^  \([a-z]\+\) .*/\1/p' "$work/help")
[[ ${#commands[@]} -ge 6 ]] || fail "the help lists only ${commands[*]}"
for command in "${commands[@]}"; do
  "$braze" "$command" --help | sed -nE 's/^  (-h,)?(--[a-z-]+).*/\2/p' >"$work/options.$command"
  [[ -s $work/options.$command ]] || fail "the help of $command lists no options"
done

# section FILE COMMAND: what FILE says of the command.
section() {
  case $1 in
    bash) grep -E "^ +$2:-" "$work/bash" ;;
    zsh) sed -n "/^    $2)/,/;;/p" "$work/zsh" ;;
    fish) grep "from $2'" "$work/fish" | sed 's/ -l / --/g' ;;
    manual) sed -n "/^\.SS $2\$/,/^\.S/p" "$work/manual" | sed 's/\\-/-/g' ;;
  esac
}

for shell in bash zsh fish; do
  "$braze" completion "$shell" >"$work/$shell"
  if ! command -v "$shell" >/dev/null; then
    echo "not checked by $shell, which is not here"
  elif ! "$shell" -n "$work/$shell"; then
    fail "$shell does not take its completions"
  fi
done
"$braze" manual >"$work/manual"
if command -v man >/dev/null; then
  warnings=$(MANWIDTH=80 man --warnings -l "$work/manual" 2>&1 >/dev/null)
  [[ -z $warnings ]] || fail "man: $warnings"
else
  echo 'not checked by man, which is not here'
fi

for file in bash zsh fish manual; do
  for command in "${commands[@]}"; do
    grep -q "\\b$command\\b" "$work/$file" || fail "$file does not name $command"
    while read -r option; do
      # Completions of fish have "--json", as "-l json"; a longer name is another option.
      section "$file" "$command" | grep -qE -- "$option($|[^a-z-])" ||
        fail "$file does not name $option of $command"
    done <"$work/options.$command"
  done
done

# What bash offers in fact.
source "$work/bash"
offered() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _braze
  echo "${COMPREPLY[*]}"
}
expect() {
  [[ $1 == "$2" ]] || fail "bash offers \"$1\", not \"$2\""
}
expect "$(offered braze comple)" completion
expect "$(offered braze completion '')" 'bash zsh fish'
expect "$(offered braze run --no)" --no-fuse
expect "$(offered braze run --precision s)" 'strict standard'
expect "$(offered braze run --precision = f)" fast
expect "$(offered braze run '')" ''
exit $failures
