#!/usr/bin/env bash
# Usage: where_devices_are.sh BRAZE "DEVICE..." COMMAND... Runs the command where all the devices are,
# else ends as skipped. What the command prints does not decide it: its failures stay failures.
set -euo pipefail
listed=$("$1" devices)
for device in $2; do
  if ! grep -qE "^  $device " <<<"$listed"; then
    missing=$(sed -n 's/^  no GPUs: //p' <<<"$listed")
    echo "skipped: all of it: there is no device $device${missing:+: $missing}"
    exit 77
  fi
done
shift 2
exec "$@"
