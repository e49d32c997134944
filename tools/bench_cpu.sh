#!/usr/bin/env bash
# Measures decode and prefill on this machine's CPU against its roofs, with the kernels of one
# instruction set after the other, round by round, so that they are compared in the same minutes.
# Weights are random, in bfloat16; nothing is downloaded.
set -euo pipefail

usage() {
  cat <<'MESSAGE'
usage: tools/bench_cpu.sh [--atom FILE] [--shape NAME] [--isa SET,...] [--rounds N] [--iters N]
                          [--seconds N]

  --atom FILE     executable (default build/release/atom)
  --shape NAME    of tools/write_shape.py --list (default qwen3-1.7b)
  --isa SET,...   values of ATOM_CPU_ISA (default amx,avx512,avx2); one that the CPU lacks is left
                  out
  --rounds N      times that each set has its turn (default 1)
  --iters N       samples in a turn, of which medians are printed (default 2)
  --seconds N     after which a turn is ended (default 120)
MESSAGE
}

cd "$(dirname "$0")/.."
atom=build/release/atom
shape=qwen3-1.7b
sets=amx,avx512,avx2
rounds=1
iters=2
seconds=120
while [[ $# -gt 0 ]]; do
  case $1 in
    -h | --help)
      usage
      exit
      ;;
    --atom | --shape | --isa | --rounds | --iters | --seconds)
      if [[ $# -lt 2 ]]; then
        echo "bench_cpu: $1 needs a value" >&2
        exit 2
      fi
      name=${1#--}
      [[ $name == isa ]] && name=sets
      printf -v "$name" %s "$2"
      shift 2
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 tools/write_shape.py "$shape" "$folder"

failed=0
for ((round = 1; round <= rounds; ++round)); do
  for isa in ${sets//,/ }; do
    kernels=$(ATOM_CPU_ISA=$isa "$atom" doctor 2>&1 || true)
    if [[ $kernels == *"this processor has only"* ]]; then
      echo "$isa: not here"
      continue
    fi
    echo "== $isa, round $round"
    code=0
    ATOM_CPU_ISA=$isa timeout "$seconds" \
      "$atom" bench roofline "$folder" --load-dummy random --max-model-len 2048 \
      --num-iters "$iters" >"$folder/table" 2>"$folder/log" || code=$?
    if [[ $code -ne 0 ]]; then
      tail -5 "$folder/log" >&2
      [[ $code -eq 124 ]] && echo "bench_cpu: $isa did not end within $seconds s" >&2
      failed=1
      continue
    fi
    grep -E '^(machine|run|decode [0-9]|prefill [0-9])' "$folder/table"
  done
done
exit $failed
