#!/usr/bin/env bash
# Installs what building Braze needs, on Debian 12, and nothing when all of it is there.
# Usage: tools/setup.sh [--sanitizers] [--gpu] [--python] [--mpi] [--docs]
#   --sanitizers  adds clang 22 and its runtimes, for tools/sanitize.sh
#   --gpu         fetches NVIDIA's PTX assembler, NVRTC and NVTX from PyPI into third_party/ (107 MiB, unpacked
#                 297), unless a CUDA toolkit has them, so that GPU code is made and assembled without one.
#                 Where there is an NVIDIA driver this is done without the option. What cannot be fetched
#                 is no error: all else works without.
#   --mpi         adds Open MPI and MPICH, for meshes over several processes and their tests
#   --python      adds the headers of Python and its virtual environments, for tools/wheel.sh and its tests
#   --docs        adds Doxygen, which makes pages of the headers' comments and checks them
#
# Elsewhere, or without root, have these yourself: CMake 3.25, Ninja, g++ 12 or clang 22; LLVM 22
# with static libraries; the headers of fmt, CLI11, GoogleTest with GoogleMock, Google Benchmark, zlib, zstd, xxHash, PCRE2,
# utf8proc, protozero and MPFR, and libsodium for signatures; pip for --gpu;
# the headers of Python 3.9 or later for --python. Name the LLVM by LLVM_DIR=<prefix>/lib/cmake/llvm and other prefixes by
# CMAKE_PREFIX_PATH, both in the environment; every preset and script follows them.
set -euo pipefail
source "$(dirname "$0")/help.sh"
cd "$(dirname "$0")/.."

# --- NVIDIA's wheels -----------------------------------------------------------------------------

has_nvidia_driver() {
  [[ -e /proc/driver/nvidia/version || -e /usr/lib/wsl/lib/libcuda.so.1 ]]
}

# Where the build looks for a CUDA toolkit; both parts are of one release there.
has_toolkit() {
  local home
  for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    if [[ -n $home && -n $(compgen -G "$home/lib*/libnvptxcompiler_static.a") && -n $(compgen -G "$home/lib*/libnvrtc.so*") ]]; then
      return 0
    fi
  done
  return 1
}

has_wheels() {
  local wheel name
  while read -r wheel _; do
    name=${wheel%%==*}
    if [[ ! -d third_party/${name//-/_}-${wheel##*==}.dist-info ]]; then return 1; fi
  done < <(grep '^nvidia' tools/gpu_wheels.txt)
}

has_pip() { python3 -m pip --version >/dev/null 2>&1; }

# Unpacked aside first: what stands in third_party/ is whole.
fetch_wheels() {
  local folder=third_party/.unpacked wheel
  rm -rf "$folder"
  mkdir -p "$folder/wheels" "$folder/content"
  python3 -m pip download --quiet --disable-pip-version-check --retries 1 --timeout 20 --no-deps --only-binary :all: \
    --require-hashes --requirement tools/gpu_wheels.txt --dest "$folder/wheels" || return 1
  for wheel in "$folder"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$folder/content" || return 1; done
  rm -rf third_party/nvidia third_party/nvidia_*.dist-info
  mv "$folder"/content/* third_party && rm -rf "$folder"
}

wants_wheels=false
if [[ " $* " == *" --gpu "* ]] || has_nvidia_driver; then
  if ! has_toolkit && ! has_wheels; then wants_wheels=true; fi
fi

# --- Debian's packages ---------------------------------------------------------------------------

packages=(
  ccache cmake g++ lld-22 ninja-build
  libbenchmark-dev libcli11-dev libfmt-dev libgmock-dev libgtest-dev libmpfr-dev libpcre2-dev libprotozero-dev libsodium-dev libutf8proc-dev libxxhash-dev libzstd-dev zlib1g-dev
)
if [[ -z ${LLVM_DIR:-} ]]; then packages+=(llvm-22-dev); fi
if [[ " $* " == *" --sanitizers "* ]]; then packages+=(clang-22 libclang-rt-22-dev llvm-22); fi
# What can be missing: without it less is built and tested.
wished=()
if [[ " $* " == *" --python "* ]]; then wished+=(python3-dev python3-venv); fi
if [[ " $* " == *" --mpi "* ]]; then wished+=(libmpich-dev libopenmpi-dev mpich openmpi-bin); fi
if [[ " $* " == *" --docs "* ]]; then wished+=(doxygen); fi
# No other package needs pip: one of another origin will do.
if [[ $wants_wheels == true ]] && ! has_pip; then wished+=(python3-pip); fi

log=$(mktemp)
trap 'status=$?; if [[ $status -ne 0 ]]; then tail -n 30 "$log" >&2; fi; rm -f "$log"' EXIT
as_root=()
if [[ $EUID -ne 0 ]]; then as_root=(sudo); fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1
}

# missing_of PACKAGE...: those that are not installed.
missing_of() {
  local package status
  for package in "$@"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    if [[ $status != installed ]]; then echo "$package"; fi
  done
}

install_packages() {
  local missing optional
  mapfile -t missing < <(missing_of "${packages[@]}")
  mapfile -t optional < <(missing_of "${wished[@]}")
  if [[ ${#missing[@]} -eq 0 && ${#optional[@]} -eq 0 ]]; then
    echo 'setup: all packages are there'
    return
  fi
  if [[ $EUID -ne 0 ]] && ! command -v sudo >/dev/null; then
    if [[ ${#missing[@]} -eq 0 ]]; then
      echo "setup: goes on without ${optional[*]}, for there is neither root nor sudo"
      return
    fi
    echo "setup: needs root or sudo to install: ${missing[*]}" >&2
    echo "setup: the comment in $0 says how to go on without them" >&2
    exit 1
  fi
  echo setup: installing "${missing[@]}" "${optional[@]}"
  if [[ ${#missing[@]} -eq 0 ]]; then
    # All that is built is there, so that no network is no reason to stop.
    { apt update && apt install --no-install-recommends "${optional[@]}"; } ||
      echo "setup: goes on without ${optional[*]}, which cannot be installed"
    return
  fi
  apt update
  if [[ " ${missing[*]} " == *" llvm-22-dev "* && -z $(apt-cache madison llvm-22-dev) ]]; then
    echo 'setup: no package llvm-22-dev. Debian 12 has it in its security archive:' >&2
    echo '  deb http://deb.debian.org/debian-security bookworm-security main' >&2
    exit 1
  fi
  apt install --no-install-recommends "${missing[@]}" "${optional[@]}"
}

if command -v dpkg-query >/dev/null; then
  install_packages
else
  echo "setup: not Debian; the comment in $0 lists what Braze needs"
fi

if [[ $wants_wheels == true ]]; then
  echo "setup: fetching NVIDIA's PTX assembler, NVRTC and NVTX from PyPI, 107 MiB"
  if ! has_pip; then
    why='python3 has no pip here'
  elif ! fetch_wheels >>"$log" 2>&1; then
    why=$(grep '^ERROR' "$log" | tail -n 1 || true)
    if grep -q 'Retrying' "$log"; then why='PyPI cannot be reached'; fi
  fi
  if ! has_wheels; then
    rm -rf third_party/.unpacked
    echo "setup: they could not be fetched (${why:-no reason given}). GPU code is then assembled by a ptxas, if one is" \
      "installed; tests that need more are skipped"
  fi
fi
