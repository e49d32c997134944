#!/usr/bin/env bash
# Runs the operators' tests on the GPU under NVIDIA's compute-sanitizer: memcheck finds accesses
# outside of memory, racecheck threads of a block that race for shared memory.
# usage: tools/sanitize_gpu.sh [--tests FOLDER] [--seconds N] [--tool NAME]... [OPERATOR...]
set -uo pipefail

usage() {
  cat <<'MESSAGE'
usage: tools/sanitize_gpu.sh [--tests FOLDER] [--seconds N] [--tool NAME]... [OPERATOR...]

  --tests FOLDER  where the tests were built (default build/cuda; tools/build.sh cuda builds them)
  --seconds N     time for each test under each tool (default 300)
  --tool NAME     memcheck, racecheck, initcheck or synccheck (default memcheck and racecheck)
  OPERATOR        folders of src/ops, as rms_norm (default all that have a test)

Every kernel runs a hundred times slower, so of linear and attention the smaller cases run.
MESSAGE
}

root=$(cd "$(dirname "$0")/.." && pwd)
tests=$root/build/cuda
seconds=300
tools=()
operators=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      usage
      exit 0
      ;;
    --tests | --seconds | --tool)
      if [ $# -lt 2 ]; then
        echo "sanitize_gpu: $1 needs a value" >&2
        exit 2
      fi
      case "$1" in
        --tests) tests=$2 ;;
        --seconds) seconds=$2 ;;
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
    sed 's/^ops_\(.*\)_test$/\1/' | sort)
fi
if [ ${#operators[@]} -eq 0 ]; then
  echo "sanitize_gpu: no test was built in $tests (tools/build.sh cuda)" >&2
  exit 1
fi

# Death tests run a second process, which the sanitizer would follow.
filter_of() {
  case "$1" in
    linear) echo 'Linear.WritesNothingBetweenRowsOfY:Linear.NotANumber*:Linear.Rounds*' ;;
    attention) echo 'Attention.Windows*:Attention.LargeScores*:Attention.PublicCall*' ;;
    *) echo '*' ;;
  esac
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
for operator in "${operators[@]}"; do
  test=$(find "$tests" -type f -name "ops_${operator}_test" | head -n 1)
  if [ -z "$test" ]; then
    echo "FAILED  $operator: ops_${operator}_test was not built"
    failed=1
    continue
  fi
  for tool in "${tools[@]}"; do
    begin=$SECONDS
    status=0
    timeout -k 5 "$seconds" "$sanitizer" --tool "$tool" --error-exitcode 77 "$test" \
      --gtest_brief=1 --gtest_filter="$(filter_of "$operator")-*DeathTest*" \
      >"$log" 2>&1 </dev/null || status=$?
    if [ $status -eq 0 ] && grep -q 'PASSED' "$log"; then
      echo "ok      $operator, $tool ($((SECONDS - begin)) s)"
      continue
    fi
    failed=1
    if [ $status -eq 124 ] || [ $status -eq 137 ]; then
      echo "FAILED  $operator, $tool: more than $seconds s"
    else
      echo "FAILED  $operator, $tool: exit code $status"
      grep -aE '^=========|FAILED|Failure' "$log" | head -n 20
    fi
  done
done
exit $failed
