#!/usr/bin/env bash
# Compares the loss that `digits` prints last with and without some options: no sample may be left out or count twice.
# Usage: same_training.sh DIGITS OPTION...
set -euo pipefail
loss_of() { "$@" --device cpu --epochs 2 | sed -n 's/.*epoch 2.* loss \([0-9.]*\) .*/\1/p'; }
one=$(loss_of "$1")
other=$(loss_of "$@")
echo "loss $one on one device, $other with ${*:2}"
awk -v a="$one" -v b="$other" 'BEGIN { exit !(a > 0 && b > 0 && a - b < 1e-3 && b - a < 1e-3) }'
