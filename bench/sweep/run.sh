#!/bin/sh
# Runs the sweep (run.py --help). PYTHON names the interpreter that has torch and jax; a peer that is
# not installed stays blank.
exec "${PYTHON:-python3}" "$(dirname "$0")/run.py" "$@"
