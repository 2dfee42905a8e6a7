#!/usr/bin/env bash
# Usage: generated.sh BRAZE BRAZE_RUN. The completions and the manual pages: each shell and roff must
# accept them, and they must name every subcommand and every option that the help names.
set -euo pipefail
braze=$1 run=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "$*"
  failures=1
}

# Each tool has a folder with what it prints: scripts, the manual and options.COMMAND, by the help.
# print FOLDER COMPLETION MANUAL TOOL: the two are what the tool prints them for.
print() {
  local folder=$work/$1 completion=$2 manual=$3 tool=$4
  mkdir "$folder"
  for shell in bash zsh fish; do
    "$tool" "$completion" "$shell" >"$folder/$shell"
    if ! command -v "$shell" >/dev/null; then
      echo "skipped: the check by $shell: it is not here"
    elif ! "$shell" -n "$folder/$shell"; then
      fail "$shell does not take the completions of $tool"
    fi
  done
  "$tool" "$manual" >"$folder/manual"
  if command -v man >/dev/null; then
    warnings=$(MANWIDTH=80 man --warnings -l "$folder/manual" 2>&1 >/dev/null)
    [[ -z $warnings ]] || fail "man: $warnings"
  else
    echo "skipped: the check by man: it is not here"
  fi
}
# options TOOL...: those of its help. Options stand first in their lines.
options() {
  "$@" --help | sed -nE 's/^  (-h,)?(--[a-z-]+).*/\2/p'
}
# section FILE COMMAND: what FILE says of the command; all of it for a tool that has none.
section() {
  case ${1##*/}:$2 in
    bash:*) grep -E "^ +$2:-" "$1" ;;
    zsh:?*) sed -n "/^    $2)/,/;;/p" "$1" ;;
    fish:?*) grep "from $2'" "$1" | sed 's/ -l / --/g' ;;
    manual:?*) sed -n "/^\.SS $2\$/,/^\.S/p" "$1" | sed 's/\\-/-/g' ;;
    zsh:) cat "$1" ;;
    fish:) sed 's/ -l / --/g' "$1" ;;
    manual:) sed -n '/^\.SH OPTIONS$/,/^\.SH EXAMPLES$/p' "$1" | sed 's/\\-/-/g' ;;
  esac
}
# named FOLDER COMMAND: every option of the command's help is in every file.
named() {
  [[ -s $work/$1/options.$2 ]] || fail "the help of $1 $2 lists no options"
  for file in bash zsh fish manual; do
    while read -r option; do
      # Completions of fish have "--json", as "-l json"; a longer name is another option.
      section "$work/$1/$file" "$2" | grep -qE -- "$option($|[^a-z-])" ||
        fail "$file does not name $option of $1 $2"
    done <"$work/$1/options.$2"
  done
}

print braze completion manual "$braze"
print braze-run --completion --manual "$run"

# The words of the second column on are explanations.
"$braze" --help >"$work/help"
mapfile -t commands < <(sed -n '/^Subcommands:/,/^$/s/^  \([a-z]\+\) .*/\1/p' "$work/help")
[[ ${#commands[@]} -ge 6 ]] || fail "the help lists only ${commands[*]}"
for command in "${commands[@]}"; do
  for file in bash zsh fish manual; do
    grep -q "\\b$command\\b" "$work/braze/$file" || fail "$file does not name $command"
  done
  options "$braze" "$command" >"$work/braze/options.$command"
  named braze "$command"
done
options "$run" >"$work/braze-run/options."
named braze-run ''

# What bash offers in fact.
source "$work/braze/bash"
source "$work/braze-run/bash"
# offered TOOL WORD...
offered() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  "_$1"
  echo "${COMPREPLY[*]}"
}
expect() {
  [[ $1 == "$2" ]] || fail "bash offers \"$1\", not \"$2\""
}
expect "$(offered braze comple)" completion
[[ " $(offered braze '') " == *' run '* ]] || fail 'bash offers no commands'
expect "$(offered braze completion '')" 'bash zsh fish'
expect "$(offered braze run --no)" --no-fuse
expect "$(offered braze run --precision s)" 'strict standard'
expect "$(offered braze run --precision = f)" fast
expect "$(offered braze run '')" ''
expect "$(offered braze-run --dev)" '--device --devices'
expect "$(offered braze-run p.bzp --re)" --repeat
expect "$(offered braze-run --completion z)" zsh
expect "$(offered braze-run '')" ''
exit $failures
