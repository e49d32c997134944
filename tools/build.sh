#!/usr/bin/env bash
# Configures a preset when it is not yet configured and builds targets in it, showing how far it is
# and about how long it still takes: on a terminal all the time, else twice a minute. Everything the
# build prints goes to build/<preset>.log; its end is shown on failure.
# usage: tools/build.sh PRESET [TARGET...]
set -euo pipefail
case "${1-}" in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac

cd "$(dirname "$0")/.."
preset=$1
shift
folder=build/$preset
log=$folder.log
mkdir -p "$folder"

interrupted() {
  printf '\nbuild: interrupted; what is built stays, and the next build goes on from there\n' >&2
  exit 130
}
trap interrupted INT

fail() {
  echo >&2
  # The compiler's first message says more than its last one.
  grep -m 20 -E '(^|[^a-z_])(error|FAILED|CMake Error)' "$log" >&2 || true
  echo "---- end of $log ----" >&2
  tail -n 30 "$log" >&2
  if grep -q 'No space left on device' "$log"; then
    echo "build: no space left; atom alone takes about 100 MB:" >&2
    df -h "$folder" "${TMPDIR:-/tmp}" >&2
  elif grep -q 'Killed signal' "$log"; then
    echo "build: a compiler was killed, as happens where memory is short; one at a time needs" \
      "least: ninja -j1 -C $folder atom" >&2
  fi
  echo "build: $1 failed, the whole output is in $log" >&2
  exit 1
}

# Steps that are done, of how many -> what to show of it. What is left is taken to be like what is
# done; until a twentieth is, that says little.
progress_line() {
  local done=$1 total=$2 elapsed=$3 left=""
  if ((elapsed >= 5 && done * 20 >= total)); then
    local seconds=$((elapsed * (total - done) / done))
    if ((seconds >= 90)); then
      left=", about $(((seconds + 30) / 60)) minutes left"
    else
      left=", about $seconds seconds left"
    fi
  fi
  printf 'building atom (%s): step %s of %s%s' "$preset" "$done" "$total" "$left"
}

show_progress() {
  local line shown=0
  while IFS= read -r line; do
    printf '%s\n' "$line"
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    if [ -t 2 ]; then
      printf '\r\033[K%s ' "$(progress_line "${BASH_REMATCH[@]:1:2}" "$SECONDS")" >&2
    elif ((SECONDS >= shown + 30)); then
      shown=$SECONDS
      echo "$(progress_line "${BASH_REMATCH[@]:1:2}" "$SECONDS")" >&2
    fi
  done
  if [ -t 2 ]; then printf '\r\033[K' >&2; fi
}

if [ ! -f "$folder/build.ninja" ]; then
  echo "configuring atom ($preset)" >&2
  cmake --preset "$preset" >"$log" 2>&1 || fail "configuring"
  echo "building atom ($preset) with $(nproc) cores, log in $log" >&2
fi
SECONDS=0
# ninja runs cmake again by itself when a CMake file changed.
ninja -C "$folder" "$@" 2>&1 | show_progress >"$log" || fail "building"
