#!/usr/bin/env bash
# Runs the operators' tests on the GPU under NVIDIA's compute-sanitizer: memcheck finds accesses
# outside of memory, racecheck threads of a block that race for shared memory.
# usage: tools/sanitize_gpu.sh [--tests FOLDER] [--seconds N] [--jobs N] [--tool NAME]...
#          [OPERATOR...]
set -uo pipefail

usage() {
  cat <<'MESSAGE'
usage: tools/sanitize_gpu.sh [--tests FOLDER] [--seconds N] [--jobs N] [--tool NAME]...
         [OPERATOR...]

  --tests FOLDER  where the tests were built (default build/cuda; tools/build.sh cuda builds them)
  --seconds N     time for each test, or group of tests, under each tool (default 300)
  --jobs N        that run side by side (default 8)
  --tool NAME     memcheck, racecheck, initcheck or synccheck (default memcheck and racecheck)
  OPERATOR        folders of src/ops, as rms_norm (default all whose tests run kernels)

Every kernel runs a hundred times slower, so of linear and attention the smaller cases run. What
the tool finds in cuBLASLt's kernels is left out.
MESSAGE
}

root=$(cd "$(dirname "$0")/.." && pwd)
tests=$root/build/cuda
seconds=300
jobs=8
tools=()
operators=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      usage
      exit 0
      ;;
    --tests | --seconds | --jobs | --tool)
      if [ $# -lt 2 ]; then
        echo "sanitize_gpu: $1 needs a value" >&2
        exit 2
      fi
      case "$1" in
        --tests) tests=$2 ;;
        --seconds) seconds=$2 ;;
        --jobs) jobs=$2 ;;
        --tool) tools+=("$2") ;;
      esac
      shift 2
      ;;
    -*)
      echo "sanitize_gpu: unknown option '$1'" >&2
      usage >&2
      exit 2
      ;;
    *)
      operators+=("$1")
      shift
      ;;
  esac
done
[ ${#tools[@]} -gt 0 ] || tools=(memcheck racecheck)

sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
if [ ! -x "$sanitizer" ]; then
  echo "sanitize_gpu: compute-sanitizer is missing; it belongs to the CUDA toolkit (package" >&2
  echo "  cuda-sanitizer-13-0 of NVIDIA's repository)" >&2
  exit 1
fi
if [ ${#operators[@]} -eq 0 ]; then
  mapfile -t operators < <(find "$tests" -type f -name 'ops_*_test' -printf '%f\n' |
    sed 's/^ops_\(.*\)_test$/\1/' | grep -v '^roofs$' | sort)  # roofs measures time
fi
if [ ${#operators[@]} -eq 0 ]; then
  echo "sanitize_gpu: no test was built in $tests (tools/build.sh cuda)" >&2
  exit 1
fi

# The groups of tests that one run has. Death tests run a second process, which the sanitizer would
# follow; racecheck is slower than memcheck by far.
groups_of() {
  case "$1 $2" in
    "linear "*)
      echo 'LinearFixed.ARowOfBFloat16* LinearFixed.ARowOfFloat32* LinearFixed.ARowOfFloat8*' \
        'Linear.MatchesDoubleOnTheGpu LinearFloat8.MatchesDoubleOnTheGpu' \
        'LinearFloat8.NaN* Linear.NotANumber*' \
        'Linear.WritesNothing* Linear.RowIsTheSame* Linear.Rounds*'
      ;;
    "fused_moe "*)
      echo 'FusedMoe.EveryVariant*OnTheGpu' 'FusedMoe.CodesOfFloat8*' 'FusedMoe.KernelsForMany*' \
        'FusedMoe.RandomBatches*'
      ;;
    "attention racecheck")
      echo 'Attention.Windows* Attention.LargeScores* Attention.HeadShapes*' \
        'Attention.PublicCall* AttentionFloat8.IsWhatTheExpandedCacheGives'
      ;;
    "attention "*) echo 'Attention.* AttentionFloat8.*' ;;
    *) echo '*' ;;
  esac
}

# What the tool found in atom's kernels: cuBLASLt's are cuBLASLt's, and racecheck, which cannot
# follow their barriers, finds races in them that depend on the tool's version. (A filter by kernel's
# name would be simpler; with one, launches of clusters fail under racecheck of CUDA 13.0.)
findings_in() {
  grep -aE '^=========.*(atom::|Internal Sanitizer Error|Invalid|out of bounds|Program hit)' "$1" |
    grep -avE 'Host Frame|Device Frame'
}

# run TOOL OPERATOR TEST GROUP
run() {
  local tool=$1 operator=$2 test=$3 group=$4 begin=$SECONDS status=0 log
  log=$(mktemp)
  timeout -k 5 "$seconds" "$sanitizer" --tool "$tool" --print-limit 10000 "$test" \
    --gtest_brief=1 --gtest_filter="$group-*DeathTest*" >"$log" 2>&1 </dev/null || status=$?
  if [ $status -eq 0 ] && grep -q 'PASSED' "$log" && ! findings_in "$log" >/dev/null; then
    echo "ok      $operator, $tool, $group ($((SECONDS - begin)) s)"
    rm -f "$log"
    return
  fi
  if [ $status -eq 124 ] || [ $status -eq 137 ]; then
    echo "FAILED  $operator, $tool, $group: more than $seconds s"
  else
    echo "FAILED  $operator, $tool, $group: exit code $status"
  fi
  findings_in "$log" | sort | uniq -c | sort -rn | head -n 20
  grep -aE 'FAILED|Failure' "$log" | head -n 5
  rm -f "$log"
  : >"$failures/$tool-$operator"
}

set -f  # the groups have asterisks
failures=$(mktemp -d)
trap 'rm -rf "$failures"' EXIT
for operator in "${operators[@]}"; do
  test=$(find "$tests" -type f -name "ops_${operator}_test" | head -n 1)
  if [ -z "$test" ]; then
    echo "FAILED  $operator: ops_${operator}_test was not built"
    : >"$failures/$operator"
    continue
  fi
  for tool in "${tools[@]}"; do
    for group in $(groups_of "$operator" "$tool"); do
      while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do sleep 0.1; done
      run "$tool" "$operator" "$test" "$group" &
    done
  done
done
wait
[ -z "$(ls "$failures")" ]
