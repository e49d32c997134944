#!/usr/bin/env bash
# Every check that needs an NVIDIA GPU, side by side, in one call: the operators' tests, candidates
# among their kernels, the golden models, the runner, ranks, sampling, and the checks of the kernels'
# benchmarks. One line for each; logs lie in a folder.
set -uo pipefail

usage() {
  cat <<'MESSAGE'
usage: tools/check_gpu.sh [--build FOLDER] [--out FOLDER] [--jobs N] [--seconds N] [--shards N]
         [--candidate OPERATOR=VARIANT]... [SECTION...]

  --build FOLDER  where tests and benchmarks were built (default build/cuda; tools/build.sh cuda)
  --out FOLDER    for what each printed (default build/check-gpu)
  --jobs N        that run side by side (default 16)
  --seconds N     time for each (default 240)
  --shards N      parts into which the golden models are cut (default 14)
  --candidate O=V a kernel to try (default all that the operators' tables mark kCandidate)

Sections, all by default but the last:
  ops               the operators' tests, with the kernels that serve
  golden            the golden models on the GPU
  runner            the runner under random schedules, its graphs, speculation and grammars
  ranks             collectives of cards and the golden models on several of them; where there is
                    one card, what it can
  rest              sampling, tensors, quantized layers
  bench             the benchmarks' checks of kernels against sums in double
  candidates        the tests of each candidate's operator, and its benchmark's check, with it
  golden-candidates the golden models with all candidates wherever these run a call

The exit code is 1 when something that serves fails or was not built; candidates are reported only.
MESSAGE
}

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/cuda
out=$root/build/check-gpu
max_jobs=16
seconds=240
shards=14
candidates=()
sections=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      usage
      exit 0
      ;;
    --build | --out | --jobs | --seconds | --shards | --candidate)
      if [ $# -lt 2 ]; then
        echo "check_gpu: $1 needs a value" >&2
        exit 2
      fi
      case "$1" in
        --build) build=$2 ;;
        --out) out=$2 ;;
        --jobs) max_jobs=$2 ;;
        --seconds) seconds=$2 ;;
        --shards) shards=$2 ;;
        --candidate) candidates+=("$2") ;;
      esac
      shift 2
      ;;
    ops | golden | runner | ranks | rest | bench | candidates | golden-candidates)
      sections+=("$1")
      shift
      ;;
    *)
      echo "check_gpu: unknown argument '$1'" >&2
      usage >&2
      exit 2
      ;;
  esac
done
for number in "$max_jobs" "$seconds" "$shards"; do
  if ! [[ $number =~ ^[1-9][0-9]*$ ]]; then
    echo "check_gpu: '$number' is no number of jobs, seconds or shards" >&2
    exit 2
  fi
done
[ ${#sections[@]} -gt 0 ] || sections=(golden runner ranks ops bench candidates rest)
if ! mkdir -p "$out" || ! out=$(cd "$out" && pwd); then exit 2; fi
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
export ATOM_GOLDEN_DIR=${ATOM_GOLDEN_DIR:-$root/tests/data/golden}
export ATOM_TEST_DEVICE=cuda
export GTEST_BRIEF=1

find_program() { find -L "$build" -type f -name "$1" -perm -u+x 2>/dev/null | head -n 1; }

# Rows of the operators' tables, as OPERATOR=VARIANT; the folder has the operator's name.
marked_candidates() {
  local file
  for file in "$root"/src/ops/*/*.cc; do
    [[ $file == *_test.cc ]] && continue
    grep -Pzo '\{"\K[^"]+(?=",[^{}]*kCandidate\})' "$file" | tr '\0' '\n' |
      sed "s/^/$(basename "$(dirname "$file")")=/"
  done
}

# job KIND NAME COMMAND...: as soon as there is room. KIND is check, or candidate.
job() {
  local kind=$1 name=$2
  shift 2
  while [ "$(jobs -rp | wc -l)" -ge "$max_jobs" ]; do wait -n; done
  run "$kind" "$name" "$@" </dev/null &
}

# What a log says first of why it failed.
reason_in() {
  { grep -aE -m 1 'FAILED  |Failure|FAIL$|FAIL |CHECK|[Ee]rror|does not' "$1" || tail -n 1 "$1"; } |
    cut -c1-160
}

run() {
  local kind=$1 name=$2 begin=$SECONDS status=0 verdict=ok reason= log=$out/$2.log
  shift 2
  timeout -k 5 "$seconds" "$@" >"$log" 2>&1 || status=$?
  if [ $status -eq 124 ] || [ $status -eq 137 ]; then
    verdict=FAILED reason="more than $seconds s"
  elif [ $status -ne 0 ]; then
    verdict=FAILED reason="exit code $status: $(reason_in "$log")"
  elif grep -aq 'no GPU$' "$log"; then
    verdict=FAILED reason="there is no GPU"
  elif [ "$kind" = candidate ] && [ -f "$out/$name.xml" ]; then
    local count
    count=$(grep -ao "name=\"${name##*=}\" value=\"[0-9]*\"" "$out/$name.xml" | tail -n 1)
    reason=${count:+"$(sed 's/.*value="//; s/"//' <<<"$count") calls"}
    [ -n "$reason" ] || reason="calls are not counted"
  fi
  printf '%-7s %s (%d s)%s\n' "$verdict" "$name" $((SECONDS - begin)) "${reason:+: $reason}" |
    tee "$results/$kind-$verdict-${name//\//_}"
}

# test_job KIND NAME PROGRAM [VARIABLE=VALUE...]: a test, or a failure where it was not built.
test_job() {
  local kind=$1 name=$2 program=$3 path
  shift 3
  path=$(find_program "$program")
  if [ -z "$path" ]; then
    echo "FAILED  $name: $program was not built" | tee "$results/$kind-FAILED-$name"
    return
  fi
  if [ "$kind" = candidate ]; then
    job "$kind" "$name" env "$@" "$path" --gtest_output="xml:$out/$name.xml"
  else
    job "$kind" "$name" env "$@" "$path"
  fi
}

# sharded KIND NAME PROGRAM COUNT [VARIABLE=VALUE...]
sharded() {
  local kind=$1 name=$2 program=$3 count=$4 i
  shift 4
  for ((i = 0; i < count; ++i)); do
    test_job "$kind" "$name-$i" "$program" GTEST_TOTAL_SHARDS="$count" GTEST_SHARD_INDEX="$i" "$@"
  done
}

run_ops() {
  local path name found=
  while read -r path; do
    found=1
    name=$(basename "$path")
    case "$name" in
      ops_roofs_test) ;;  # measures time
      *) test_job check "$name" "$name" ;;
    esac
  done < <(find -L "$build" -type f -name 'ops_*_test' -perm -u+x | sort)
  [ -n "$found" ] || echo "FAILED  ops: none was built" | tee "$results/check-FAILED-ops"
}

# Those whose usage has a mode that only checks.
run_bench() {
  local bench path
  for bench in deterministic_bench fused_moe_gpu_bench linear_blocks_bench linear_skinny_bench \
    linear_stream_bench linear_wgmma_bench mla_attention_bench indexer_bench \
    gated_delta_rule_gpu_bench; do
    path=$(find_program $bench)
    if [ -z "$path" ]; then
      echo "FAILED  $bench: was not built" | tee "$results/check-FAILED-$bench"
    else
      job check "$bench" "$path" check
    fi
  done
}

run_candidates() {
  local candidate op path
  for candidate in "${candidates[@]}"; do
    op=${candidate%%=*}
    test_job candidate "$candidate" "ops_${op}_test" "ATOM_OP_VARIANT=$op=+${candidate#*=}"
    [ "$op" = fused_moe ] || continue
    path=$(find_program fused_moe_gpu_bench)
    [ -z "$path" ] || job candidate "bench-$candidate" "$path" check "${candidate#*=}"
  done
}

run_ranks() {
  test_job check comm_test comm_test
  test_job check linear_of_ranks layers_test GTEST_FILTER='LinearOfRanks*'
  sharded check ranks golden_models_test 4 \
    GTEST_FILTER='*SeveralRanks*:*CopiesThatShare*:*ExpertsThatMove*'
}

run_golden_candidates() {
  local wishes=
  local candidate
  for candidate in "${candidates[@]}"; do wishes+=,${candidate%%=*}=+${candidate#*=}; done
  [ -n "$wishes" ] || return
  sharded candidate golden-candidates golden_models_test "$shards" "ATOM_OP_VARIANT=${wishes#,}"
}

[ ${#candidates[@]} -gt 0 ] || mapfile -t candidates < <(marked_candidates)
begin=$SECONDS
for section in "${sections[@]}"; do
  case "$section" in
    ops) run_ops ;;
    golden)
      sharded check golden golden_models_test "$shards" GTEST_FILTER='-*SeveralRanks*:*CopiesThatShare*'
      ;;
    runner) sharded check runner runner_test 4 ;;
    ranks) run_ranks ;;
    rest)
      for program in sampling_test tensor_test layers_test; do
        test_job check "$program" "$program"
      done
      ;;
    bench) run_bench ;;
    candidates) run_candidates ;;
    golden-candidates) run_golden_candidates ;;
  esac
done
wait

count() { find "$results" -name "$1" | wc -l; }
failed=$(count 'check-FAILED-*')
echo "== $(count 'check-*') checks, $failed failed; $(count 'candidate-*') of candidates," \
  "$(count 'candidate-FAILED-*') failed; $((SECONDS - begin)) s; logs in $out"
cat "$results"/*-FAILED-* 2>/dev/null
[ "$failed" -eq 0 ]
