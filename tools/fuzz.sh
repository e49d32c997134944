#!/usr/bin/env bash
# Builds every fuzz target and runs each for SECONDS, as many at a time as there are cores. Inputs
# start from tests/data/fuzz/<target>/ where that exists; what is found stays in build/fuzz-corpus.
# usage: tools/fuzz.sh SECONDS [TARGET...]
set -euo pipefail
case "${1-}" in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac

cd "$(dirname "$0")/.."
seconds=${1:?usage: tools/fuzz.sh SECONDS [TARGET...]}
shift

mkdir -p build
if [ ! -f build/fuzz/build.ninja ]; then
  cmake --preset fuzz >build/fuzz-configure.log 2>&1 || {
    tail -n 20 build/fuzz-configure.log >&2
    exit 1
  }
fi
mapfile -t targets < <(ninja -C build/fuzz -t targets all | sed -n 's,^.*/\([a-z0-9_]*_fuzz\): CXX_EXECUTABLE_LINKER.*,\1,p')
if [ $# -gt 0 ]; then targets=("$@"); fi
if [ ${#targets[@]} -eq 0 ]; then
  echo "fuzz: there is no fuzz target" >&2
  exit 1
fi
tools/build.sh fuzz "${targets[@]}"

fuzz_one() {
  local target=$1 seconds=$2
  local corpus=build/fuzz-corpus/$target log=build/fuzz-corpus/$target.log
  local folders=("$corpus") executable
  mkdir -p "$corpus"
  if [ -d "tests/data/fuzz/$target" ]; then folders+=("tests/data/fuzz/$target"); fi
  executable=$(find build/fuzz -type f -name "$target" -perm -u+x | head -n 1)
  if "$executable" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -artifact_prefix="build/fuzz-corpus/$target-" "${folders[@]}" >"$log" 2>&1; then
    echo "fuzz: $target $(grep -o 'Done .*' "$log")"
  else
    tail -n 40 "$log"
    echo "fuzz: $target FAILED, see $log; the input is build/fuzz-corpus/$target-*"
    return 1
  fi
}
export -f fuzz_one
printf '%s\n' "${targets[@]}" |
  xargs -P "$(nproc)" -I TARGET bash -c 'fuzz_one "$@"' fuzz TARGET "$seconds"
