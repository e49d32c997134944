#!/usr/bin/env bash
# Fails when a C++ source under src or tests is not formatted as .clang-format says.
# usage: tools/check_format.sh [FOLDER...]
set -euo pipefail
case "${1-}" in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac

if [ $# -eq 0 ]; then
  cd "$(dirname "$0")/.."
  set -- src tests bench examples
fi
# Other versions format a few constructs differently, so one is the judge.
formatter=clang-format-14
if ! command -v "$formatter" >/dev/null; then
  echo "check_format: $formatter is not installed (tools/setup.sh --tests installs it)" >&2
  exit 1
fi
mapfile -d '' files < <(find "$@" -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0)
if [ ${#files[@]} -eq 0 ]; then
  echo "check_format: no source found in $*" >&2
  exit 1
fi
if ! output=$("$formatter" --dry-run --Werror "${files[@]}" 2>&1); then
  grep ': error: ' <<<"$output" | head -n 30
  echo "check_format: format with: $formatter -i FILE" >&2
  exit 1
fi
echo "check_format: ${#files[@]} files are formatted"
