#!/usr/bin/env bash
# The whole test of atom: structure checks, build, every test, a minute of fuzzing per target.
set -uo pipefail

usage() {
  cat <<'MESSAGE'
usage: ./test.sh [--preset NAME] [--fuzz-seconds N]

Installs the packages that the tests need, then runs the structure checks (format, layers, sizes,
threads), builds everything, runs the fuzz targets and runs every test.

  --preset NAME      build preset to test: cuda (default where nvcc 13.0 or newer is), release
                     (default elsewhere), debug, asan or tsan
  --fuzz-seconds N   time for each fuzz target, 0 for none (default 60; 0 with --preset)

The cuda build computes on the CPU where there is no GPU, so its tests are those of release; with
it, the executable without GPU support is built as well. What was left out is said at the end.
MESSAGE
}

preset=
fuzz_seconds=
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      usage
      exit 0
      ;;
    --preset | --fuzz-seconds)
      if [ $# -lt 2 ]; then
        echo "test.sh: $1 needs a value" >&2
        exit 2
      fi
      if [ "$1" = --preset ]; then preset=$2; else fuzz_seconds=$2; fi
      shift 2
      ;;
    *)
      echo "test.sh: unknown argument '$1'" >&2
      usage >&2
      exit 2
      ;;
  esac
done
if [ -z "$fuzz_seconds" ]; then
  if [ -z "$preset" ]; then fuzz_seconds=60; else fuzz_seconds=0; fi
fi

cd "$(dirname "$0")" || exit 1
failures=()
skipped=()
# check NAME COMMAND...: runs it, notes a failure and goes on.
check() {
  local name=$1
  shift
  echo "== $name"
  "$@" || failures+=("$name")
}

# Decides for the cuda preset, or says why not.
choose_preset() {
  local nvcc version
  preset=release
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
  if [ -z "$version" ]; then
    skipped+=("CUDA kernels: there is no nvcc")
  elif [ "$version" -lt 13 ]; then
    skipped+=("CUDA kernels: nvcc is older than 13.0")
  elif ! tools/setup.sh --cuda; then
    skipped+=("CUDA kernels: the headers of cuBLASLt could not be fetched (tools/setup.sh --cuda)")
  else
    preset=cuda
  fi
}

tools/setup.sh --tests || exit 1
[ -n "$preset" ] || choose_preset
tools/setup_clients.sh || exit 1
check format tools/check_format.sh
check layers tools/check_layers.py
check sizes tools/check_sizes.py
check threads tools/check_threads.sh

echo "== build ($preset)"
tools/build.sh "$preset" || exit 1
if [ "$preset" = cuda ]; then
  # Most objects are the same and come from ccache.
  check "build (release, without CUDA)" tools/build.sh release atom
fi

if [ "$fuzz_seconds" -gt 0 ]; then
  check fuzz tools/fuzz.sh "$fuzz_seconds"
fi

echo "== tests ($preset)"
# Tests that measure speed are registered RUN_SERIAL; the others share the cores.
ctest --preset "$preset" -j "$(nproc)" || failures+=(tests)

if [ ${#skipped[@]} -gt 0 ]; then printf 'skipped: %s\n' "${skipped[@]}"; fi
if [ ${#failures[@]} -gt 0 ]; then
  echo "FAILED: ${failures[*]}"
  exit 1
fi
