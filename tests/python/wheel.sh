#!/usr/bin/env bash
# Usage: wheel.sh CMAKE BUILD SOURCE. Makes the wheel, installs it into a new virtual environment, and
# runs the module's tests and its example there, away from the build folder. The Python is that which
# BRAZE_PYTHON names, else python3.
set -euo pipefail
cmake=$1 build=$2 source=$3
python=${BRAZE_PYTHON:-python3}
skip() {
  echo "skipped: $*"
  exit 77
}
command -v "$python" >/dev/null || skip "all of it: there is no $python"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip 'all of it: Python is older than 3.9'
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  skip 'all of it: Python cannot make virtual environments here (package python3-venv)'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheel=$("$python" "$source/python/make_wheel.py" "$cmake" "$build" "$work/wheel" 1)
echo "${wheel##*/}: $(stat -c %s "$wheel") bytes, packed in a hurry"
"$python" -m venv "$work/venv"
here=$work/venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$here/pip" install --quiet --no-index "$wheel"
# Nothing of it needs more than what came with it and what every system has.
unset LD_LIBRARY_PATH PYTHONPATH
cd "$work"
for file in "$work"/venv/lib/python3*/site-packages/braze/{_native.abi3.so,lib/*.so*,bin/*}; do
  if ldd "$file" | grep -F -e 'not found' -e "$build" -e "$source"; then
    echo "$file needs what is not in the wheel"
    exit 1
  fi
done
"$here/braze" --version
"$here/braze-run" --version
"$here/python" -m braze devices >/dev/null
"$here/python" -X importtime -c 'import braze' 2>&1 | awk -F'|' '$3 ~ / braze$/ { print "import: " $2 / 1000 " ms" }'

# NumPy, where it can be had.
if "$python" -c 'import numpy' 2>/dev/null; then
  "$python" -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))' \
    >"$("$here/python" -c 'import site; print(site.getsitepackages()[0])')/numpy.pth"
elif ! "$here/pip" install --quiet --retries 0 --timeout 15 --only-binary :all: numpy 2>"$work/log"; then
  echo 'skipped: the example and the tests with NumPy: it can neither be found nor fetched'
  exec "$here/python" "$source/tests/python/braze_test.py"
fi
"$here/python" "$source/tests/python/braze_test.py"
"$here/python" "$source/examples/python_load/main.py" cpu
