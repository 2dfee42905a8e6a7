#!/usr/bin/env bash
# Installs what building Braze needs, on Debian 12, and nothing when all of it is there.
# Usage: tools/setup.sh [--sanitizers] [--gpu]
#   --sanitizers  adds clang 22 and its runtimes, for tools/sanitize.sh
#   --gpu         fetches NVIDIA's PTX compiler, NVRTC and NVTX from PyPI into third_party/ (about 200 MB),
#                 so that GPU code is assembled without a CUDA toolkit
#
# Elsewhere, or without root, have these yourself: CMake 3.25, Ninja, g++ 12 or clang 22; LLVM 22
# with static libraries; the headers of fmt, CLI11, GoogleTest with GoogleMock, Google Benchmark, zlib, zstd, xxHash and
# MPFR, and libsodium for signatures. Name the LLVM by LLVM_DIR=<prefix>/lib/cmake/llvm and other prefixes by CMAKE_PREFIX_PATH,
# both in the environment; every preset and script follows them.
set -euo pipefail

if [[ " $* " == *" --gpu "* ]]; then
  wheels=$(mktemp -d)
  python3 -m pip download --quiet --no-deps --dest "$wheels" 'nvidia-nvptxcompiler==13.0.*' 'nvidia-cuda-nvrtc==13.0.*' \
    'nvidia-nvtx==13.0.*'
  root=$(cd "$(dirname "$0")/.." && pwd)
  for wheel in "$wheels"/*.whl; do python3 -m zipfile -e "$wheel" "$root/third_party"; done
  rm -rf "$wheels"
  echo 'setup: PTX compiler, NVRTC and NVTX are in third_party; run cmake again'
fi

packages=(
  ccache cmake g++ lld-22 ninja-build
  libbenchmark-dev libcli11-dev libfmt-dev libgmock-dev libgtest-dev libmpfr-dev libsodium-dev libxxhash-dev libzstd-dev zlib1g-dev
)
if [[ -z ${LLVM_DIR:-} ]]; then packages+=(llvm-22-dev); fi
if [[ " $* " == *" --sanitizers "* ]]; then packages+=(clang-22 libclang-rt-22-dev llvm-22); fi

if ! command -v dpkg-query >/dev/null; then
  echo "setup: not Debian; the comment in $0 lists what Braze needs"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  if [[ $status != installed ]]; then missing+=("$package"); fi
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo 'setup: all packages are there'
  exit 0
fi

as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: needs root or sudo to install: ${missing[*]}" >&2
    echo "setup: the comment in $0 says how to go on without them" >&2
    exit 1
  fi
  as_root=(sudo)
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1
}

log=$(mktemp)
trap 'status=$?; if [[ $status -ne 0 ]]; then tail -n 30 "$log" >&2; fi; rm -f "$log"' EXIT
echo "setup: installing ${missing[*]}"
apt update
if [[ " ${missing[*]} " == *" llvm-22-dev "* && -z $(apt-cache madison llvm-22-dev) ]]; then
  echo 'setup: no package llvm-22-dev. Debian 12 has it in its security archive:' >&2
  echo '  deb http://deb.debian.org/debian-security bookworm-security main' >&2
  exit 1
fi
apt install --no-install-recommends "${missing[@]}"
