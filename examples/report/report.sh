#!/usr/bin/env bash
# A page about a graph: which kernels it became and why, how long each takes, what memory a call needs.
# Usage: report.sh [BRAZE [OUT.html]]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
braze=${1:-braze} page=${2:-block.html}

"$braze" report "$here/block.braze" -o "$page" --symbol n=64 --repeat 5
"$braze" report "$here/block.braze" -o "${page%.html}.sm_90a.html" --target sm_90a

# Every kernel has its section, and the graph's text is within.
kernels=$("$braze" explain "$here/block.braze" | grep -c '^kernel ')
for file in "$page" "${page%.html}.sm_90a.html"; do grep -q 'id=source' "$file"; done
if [[ $(grep -c '<details class=kernel>' "$page") -ne $kernels ]]; then
  echo "$page has not the $kernels kernels that braze explain shows"
  exit 1
fi
echo "open $page in a browser"
