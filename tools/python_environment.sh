#!/usr/bin/env bash
# Makes a virtual environment of Python in build/python-NAME with packages, unless it is there, and prints its interpreter.
# Usage: tools/python_environment.sh NAME PACKAGES...   (what `pip install` takes: names, or --requirement FILE)
set -euo pipefail
source "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."
environment=build/python-$1
if [[ ! -d $environment ]]; then
  python3 -m venv "$environment.unfinished"
  "$environment.unfinished/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}" >&2
  mv "$environment.unfinished" "$environment"
fi
echo "$environment/bin/python"
