#!/usr/bin/env bash
# Has clang judge what is said of mutexes (base/thread_annotations.h): compiles, without writing
# anything, every source that locks one or whose header declares one, tests included, with
# -Wthread-safety as an error. Mutexes of the standard library, of which clang knows nothing, are
# for base/mutex.h alone.
# usage: tools/check_threads.sh [FOLDER]   FOLDER has src/; this checkout when left out
set -euo pipefail
case "${1-}" in -h | --help) exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" ;; esac

libraries=$(cd "$(dirname "$0")/.." && pwd)/.cache
cd "${1:-$(dirname "$0")/..}"
bare=$(grep -rnE 'std::((recursive_|shared_|timed_)?mutex|(lock|shared|unique|scoped)_(guard|lock)|condition_variable)\b' \
  src --include='*.h' --include='*.cc' --include='*.cuh' --include='*.cu' |
  grep -v '^src/base/mutex\.h:' || true)
if [ -n "$bare" ]; then
  printf '%s\n' "$bare" "check_threads: base/mutex.h has what these should use" >&2
  exit 1
fi

mapfile -t sources < <(
  grep -rlE 'MutexLock|GUARDED_BY|REQUIRES\(' src --include='*.h' --include='*.cc' |
    sed 's,\.h$,.cc,' | sort -u | while read -r source; do
      # A header without a source is compiled by itself.
      if [ -f "$source" ]; then echo "$source"; else echo "${source%.cc}.h"; fi
    done
)
flags=(-std=c++20 -march=x86-64-v2 -fsyntax-only -Wno-everything -Wthread-safety -Werror -Isrc)
for folder in "$libraries/xgrammar/include" "$libraries/cuda/nvidia/cu13/include" \
  /usr/local/cuda/include; do
  if [ -d "$folder" ]; then flags+=(-isystem "$folder"); fi
done
if ! printf '#include <cublasLt.h>\n' | clang++ "${flags[@]}" -xc++ - 2>/dev/null; then
  mapfile -t with_cuda < <(grep -lE 'cublas|gpu_api' "${sources[@]}")
  for source in "${with_cuda[@]}"; do
    echo "check_threads: $source is left out: there are no headers of CUDA"
    mapfile -t sources < <(printf '%s\n' "${sources[@]}" | grep -vxF "$source")
  done
fi
printf '%s\n' "${sources[@]}" |
  xargs -P "$(nproc)" -I SOURCE clang++ "${flags[@]}" -xc++ SOURCE
echo "check_threads: ${#sources[@]} files, 0 problems"
