#!/usr/bin/env bash
# Configures a preset when it is not yet configured and builds targets in it, showing a counter on a
# terminal. Everything the build prints goes to build/<preset>.log; its end is shown on failure.
# usage: tools/build.sh PRESET [TARGET...]
set -euo pipefail
case "${1-}" in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac

cd "$(dirname "$0")/.."
preset=$1
shift
folder=build/$preset
log=$folder.log
mkdir -p "$folder"

fail() {
  echo >&2
  # The compiler's first message says more than its last one.
  grep -m 20 -E '(^|[^a-z_])(error|FAILED|CMake Error)' "$log" >&2 || true
  echo "---- end of $log ----" >&2
  tail -n 30 "$log" >&2
  echo "build: $1 failed, the whole output is in $log" >&2
  exit 1
}

show_progress() {
  local line
  while IFS= read -r line; do
    printf '%s\n' "$line"
    if [[ -t 2 && $line =~ ^\[([0-9]+/[0-9]+)\] ]]; then
      printf '\rbuilding atom (%s) %s ' "$preset" "${BASH_REMATCH[1]}" >&2
    fi
  done
  if [ -t 2 ]; then printf '\r\033[K' >&2; fi
}

if [ ! -f "$folder/build.ninja" ]; then
  echo "configuring atom ($preset)" >&2
  cmake --preset "$preset" >"$log" 2>&1 || fail "configuring"
  echo "building atom ($preset), log in $log" >&2
fi
# ninja runs cmake again by itself when a CMake file changed.
ninja -C "$folder" "$@" 2>&1 | show_progress >"$log" || fail "building"
