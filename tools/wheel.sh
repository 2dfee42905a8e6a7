#!/usr/bin/env bash
# Makes the Python wheel: installs what is missing, builds, packs, and says how to install it.
# Usage: tools/wheel.sh
set -euo pipefail
source "$(dirname "$0")/steps.sh"

tools/setup.sh --python
step configure-release cmake --preset release
step wheel cmake --build --preset release --target wheel
wheel=$(ls -t build/release/wheel/braze-*.whl | head -n 1)
echo
echo "$(du -h "$wheel" | cut -f1) $wheel"
echo "install it: python3 -m venv ~/braze-python && ~/braze-python/bin/pip install numpy $wheel"
