#!/usr/bin/env bash
# Compiles the generic GPU kernels for AMD cards. Nothing is linked or run.
# usage: tools/check_hip.sh [--arch NAME]... [--jobs N] [ROOT]
set -uo pipefail

usage() {
  cat <<'MESSAGE'
usage: tools/check_hip.sh [--arch NAME]... [--jobs N] [ROOT]

  --arch NAME  an architecture, as gfx90a (default gfx90a, gfx942 and gfx1100)
  --jobs N     files that compile side by side (default one per processor)
  ROOT         the tree whose src/ is compiled (default the one of this script)

HIPCXX names the compiler: hipcc, or a clang that finds HIP's headers and device libraries (default
hipcc of PATH, then of /opt/rocm). ROCm 6.3 or newer is needed.

Every *_cuda.cu is compiled, for the host and each architecture, but those that have PTX, in
themselves or in a header that they include (tensor/gpu_api.h apart, which has both vendors'
spellings). They are said to be left out. Fails where an operator has kernels and none is left.
MESSAGE
}

root=$(cd "$(dirname "$0")/.." && pwd)
architectures=()
jobs=$(nproc)
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      usage
      exit 0
      ;;
    --arch | --jobs)
      if [ $# -lt 2 ]; then
        echo "check_hip: $1 needs a value" >&2
        exit 2
      fi
      case "$1" in
        --arch) architectures+=("$2") ;;
        --jobs) jobs=$2 ;;
      esac
      shift 2
      ;;
    -*)
      echo "check_hip: unknown option '$1'" >&2
      usage >&2
      exit 2
      ;;
    *)
      root=$1
      shift
      ;;
  esac
done
[ ${#architectures[@]} -gt 0 ] || architectures=(gfx90a gfx942 gfx1100)
if ! cd "$root/src"; then
  echo "check_hip: $root has no folder src" >&2
  exit 2
fi
src=$PWD

need() {
  echo "check_hip: $1" >&2
  echo "  Install ROCm 6.3 or newer (hipcc, HIP's headers and the device libraries), or name a" >&2
  echo "  compiler in HIPCXX." >&2
  exit 1
}

compiler=${HIPCXX:-$(command -v hipcc || echo /opt/rocm/bin/hipcc)}
command -v "$compiler" >/dev/null || need "there is no HIP compiler ($compiler)"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf '#include <hip/hip_version.h>\nversion HIP_VERSION_MAJOR HIP_VERSION_MINOR\n' >"$scratch/version.hip"
read -r _ major minor < <("$compiler" -x hip --offload-host-only -E "$scratch/version.hip" \
  2>"$scratch/version.log" | grep '^version ')
if [ -z "${minor:-}" ]; then
  cat "$scratch/version.log" >&2
  need "$compiler does not find HIP's headers"
fi
# Older ones do not know the OCP format of FP8.
[ $((major * 100 + minor)) -ge 603 ] || need "HIP $major.$minor is too old"
echo "check_hip: $("$compiler" --version | grep -i 'clang version' | head -n 1), HIP $major.$minor," \
  "for ${architectures[*]}"

# The first file with PTX among a file and what it includes, directly or not; paths from src/.
declare -A seen
file_with_ptx() {
  local file=$1 include
  if [ ! -f "$file" ] || [ -n "${seen[$file]:-}" ] || [ "$file" = tensor/gpu_api.h ]; then return 1; fi
  seen[$file]=1
  if grep -qE '\basm( volatile)? *\(' "$file"; then
    echo "$file"
    return
  fi
  for include in $(sed -nE 's/^#include "([^"]+)".*/\1/p' "$file"); do
    if file_with_ptx "$include"; then return; fi
  done
  return 1
}

# As the kernels are built for CUDA; every warning counts.
flags=(-x hip -std=c++20 -O3 -DNDEBUG -Wall -Werror -I "$src")
for architecture in "${architectures[@]}"; do flags+=("--offload-arch=$architecture"); done

compile() {
  local file=$1 name begin=$SECONDS
  name=${file//\//-}
  if "$compiler" "${flags[@]}" -c "$src/$file" -o "$scratch/$name.o" >"$scratch/$name.log" 2>&1 &&
    [ -s "$scratch/$name.o" ]; then
    echo "ok        src/$file ($((SECONDS - begin)) s)"
    return
  fi
  echo "FAILED    src/$file"
  grep -E 'error|warning' "$scratch/$name.log" | head -n 20
  : >"$scratch/failed-$name"
}

mapfile -t files < <(find . -name '*_cuda.cu' -printf '%P\n' | sort)
if [ ${#files[@]} -eq 0 ]; then
  echo "check_hip: no *_cuda.cu under $src" >&2
  exit 1
fi
generic=()
declare -A left_in  # by operator: the generic files
for file in "${files[@]}"; do
  folder=$(dirname "$file" | cut -d/ -f1,2)  # an operator with the rooms in it
  left_in[$folder]=${left_in[$folder]:-}
  seen=()
  if ptx=$(file_with_ptx "$file"); then
    echo "left out  src/$file (PTX in src/$ptx)"
  else
    generic+=("$file")
    left_in[$folder]+=" $file"
  fi
done
num_hopper=$(find . -name '*_sm90.cu' | wc -l)
echo "left out  $num_hopper files *_sm90.cu (for Hopper)"
for folder in "${!left_in[@]}"; do
  if [ -z "${left_in[$folder]}" ]; then
    echo "FAILED    src/$folder: no kernel without PTX"
    : >"$scratch/failed-${folder//\//-}"
  fi
done

for file in "${generic[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do sleep 0.1; done
  compile "$file" &
done
wait
num_failed=$(find "$scratch" -name 'failed-*' | wc -l)
echo "check_hip: ${#generic[@]} files for ${architectures[*]}, $num_failed problems"
[ "$num_failed" -eq 0 ]
