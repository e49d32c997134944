#!/usr/bin/env bash
# Measures atom on several NVIDIA GPUs of one machine, with random weights of released models'
# shapes, whose routers spread tokens about evenly. Nothing is downloaded. Each section has a time
# limit and one line of result for each figure, with its bar where there is one; roofs and links are
# measured in the same run. A section that fails or outlasts its time is reported, and the others go
# on.
set -uo pipefail

usage() {
  cat <<'MESSAGE'
usage: tools/bench_ranks.sh [--atom FILE] [--golden FILE] [--out FOLDER] [--cards N]
                            [--streams N] [--output-len N] [--dry-run] [SECTION...]

  --atom FILE     executable built with cmake --preset cuda (default build/cuda/atom)
  --golden FILE   golden_models_test of the same build (default: found beside it)
  --out FOLDER    for what each section printed and its JSON (default build/bench-ranks)
  --cards N       GPUs to use (default all that there are: 2, 4 or 8)
  --streams N     requests at once of the sections that measure throughput (default 256)
  --output-len N  tokens of their answers (default 1024)
  --dry-run       only print each command, with its name and its limit in seconds

Sections that run without a choice, in order:
  machine           atom doctor --measure --collectives, nvidia-smi topo
  exchanges         sums alone and with norm beside NCCL's, and tokens to experts and back, where
                    collectives_bench and expert_exchange_bench were built
  goldens           golden models on as many cards: in parts, in stages, experts spread, copies
  llama-8b          Llama-3.1-8B bf16 in parts (TP) at 1 and 64 requests, on 1, 2, 4, 8 cards
  llama-8b-load     its throughput on one card, in 2, 4, 8 parts and as copies with --streams
                    requests each: requests of 1024 tokens
  llama-70b-fp8     Llama-3.1-70B FP8 in parts at 1 and 64 requests, in 4 and 8 where there are
  share-70b-fp8     what collectives take of its steps, by operator
  gpt-oss-120b      in parts at 1, 4, 8 and 64 requests, in 4 and 8 where there are
  experts           Qwen3-30B-A3B at --streams requests: in parts; experts spread; attention in
                    copies and experts spread
  stages            Llama-3.1-8B in stages (PP) at 1 and 64 requests
  kill              atom serve on all cards, its engine killed under load: when it serves again

With 4 cards or more, too:
  qwen3-235b        Qwen3-235B-A22B FP8: in parts with experts spread, and half of it twice
With 8:
  deepseek-r1       FP8: in parts at 1 request, without drafts and with 1 and 3 by forced
                    acceptance; attention in copies at 128, 256 and 2048
  kimi-k2           what each of 8 ranks takes of it
MESSAGE
}

root=$(cd "$(dirname "$0")/.." && pwd)
atom=$root/build/cuda/atom
golden=
out=$root/build/bench-ranks
cards=
streams=256
output_len=1024
dry_run=
sections=()
known="machine exchanges goldens llama-8b llama-8b-load llama-70b-fp8 share-70b-fp8 gpt-oss-120b
  experts stages kill qwen3-235b deepseek-r1 kimi-k2"
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      usage
      exit 0
      ;;
    --dry-run)
      dry_run=1
      shift
      ;;
    --atom | --golden | --out | --cards | --streams | --output-len)
      if [ $# -lt 2 ]; then
        echo "bench_ranks: $1 needs a value" >&2
        exit 2
      fi
      case "$1" in
        --atom) atom=$2 ;;
        --golden) golden=$2 ;;
        --out) out=$2 ;;
        --cards) cards=$2 ;;
        --streams) streams=$2 ;;
        --output-len) output_len=$2 ;;
      esac
      shift 2
      ;;
    *)
      # shellcheck disable=SC2086
      if ! printf '%s\n' $known | grep -qxF -- "$1"; then
        echo "bench_ranks: unknown argument '$1'" >&2
        usage >&2
        exit 2
      fi
      sections+=("$1")
      shift
      ;;
  esac
done
[ -n "$cards" ] || cards=$(nvidia-smi -L 2>/dev/null | wc -l)
for number in "$cards" "$streams" "$output_len"; do
  if ! [[ $number =~ ^[0-9]+$ ]]; then
    echo "bench_ranks: '$number' is no number of cards, requests or tokens" >&2
    exit 2
  fi
done
if [ "$cards" -lt 2 ]; then
  echo "bench_ranks: $cards GPUs; 2, 4 or 8 are needed (nvidia-smi -L lists them)" >&2
  exit 1
fi
if [ ! -x "$atom" ] && [ -z "$dry_run" ]; then
  echo "bench_ranks: $atom is missing: build it with tools/setup.sh --cuda && tools/build.sh cuda" >&2
  exit 1
fi
if [ ${#sections[@]} -eq 0 ]; then
  sections=(machine exchanges goldens llama-8b llama-8b-load llama-70b-fp8 share-70b-fp8
    gpt-oss-120b experts stages kill)
  [ "$cards" -lt 4 ] || sections+=(qwen3-235b)
  [ "$cards" -lt 8 ] || sections+=(deepseek-r1 kimi-k2)
fi
if ! mkdir -p "$out" || ! out=$(cd "$out" && pwd); then exit 2; fi
num_failed=0

fail() { # NAME REASON
  echo "FAILED  $1: $2"
  num_failed=$((num_failed + 1))
}

# limited SECONDS NAME COMMAND...: what it prints goes to NAME.txt. False where there is nothing to
# read in it.
limited() {
  local limit=$1 name=$2 status=0 begin=$SECONDS reason
  shift 2
  if [ -n "$dry_run" ]; then
    printf '%s %s:' "$name" "$limit"
    printf ' %q' "$@"
    echo
    return 1
  fi
  timeout -k 5 "$limit" "$@" >"$out/$name.txt" 2>&1 </dev/null || status=$?
  if [ $status -eq 0 ]; then
    echo "ok      $name ($((SECONDS - begin)) s)"
    return 0
  fi
  reason=$(grep -aE 'error|CHECK|FAIL|not supported|not on GPUs' "$out/$name.txt" | head -n 1 | cut -c1-200)
  [ $status -ne 124 ] && [ $status -ne 137 ] || reason="more than $limit s; ${reason:-no message}"
  fail "$name" "${reason:-exit code $status}"
  return 1
}

# figures NAME: a line for each measurement of NAME.json. BATCH=MILLISECONDS are bars.
figures() {
  python3 - "$out/$1.json" "$@" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
name, bars = sys.argv[2], dict(bar.split("=") for bar in sys.argv[3:])
for result in report["results"]:
    if result["output_len"] < 2:
        continue
    if report["mode"] == "throughput":
        print(f"        {name}: {result['output_tokens_per_second']:.0f} tokens/s")
        continue
    step, share = 1e3 * result["decode_step"], result["decode_share_of_bound"] or 0
    batch = str(result["batch_size"])
    bar = f", bar {bars[batch]}: {'met' if step <= float(bars[batch]) else 'missed'}" if batch in bars else ""
    print(f"        {name} at {batch}: {step:.3f} ms a token, {100 * share:.0f} % of the cards' roof,"
          f" idle {100 * result['device_idle_share']:.1f} %{bar}")
PYTHON
}

# ratio NAME OTHER BAR: tokens/s of the one over the other's.
ratio() {
  [ -f "$out/$1.json" ] && [ -f "$out/$2.json" ] || return
  python3 - "$out/$1.json" "$out/$2.json" "$@" <<'PYTHON'
import json, sys
rates = [json.load(open(path))["results"][0]["output_tokens_per_second"] for path in sys.argv[1:3]]
bar = float(sys.argv[5])
print(f"        {sys.argv[3]} over {sys.argv[4]}: {rates[0] / rates[1]:.2f}, bar {bar}: "
      f"{'met' if rates[0] / rates[1] >= bar else 'missed'}")
PYTHON
}

# The tokenizer, which serving needs, is the demo model's.
shape() {
  local folder=$out/shapes/$1
  if [ ! -f "$folder/config.json" ]; then
    "$root/tools/write_shape.py" "$1" "$folder"
    cp "$root"/models/tldr-8m/{tokenizer.json,tokenizer_config.json,chat_template.jinja} "$folder/"
  fi
  echo "$folder"
}

engine=(--device cuda --dtype bfloat16 --load-dummy random --max-num-batched-tokens 8192)

# latency SECONDS NAME SHAPE BATCHES "BARS" FLAGS...: answers of 128 tokens behind prompts of 1024.
latency() {
  local limit=$1 name=$2 model batch shapes=1x1024x1 batches=$4 bars=$5 most=1
  model=$(shape "$3")
  shift 5
  for batch in ${batches//,/ }; do
    shapes+=,${batch}x1024x129
    most=$batch
  done
  # shellcheck disable=SC2086
  limited "$limit" "$name" "$atom" bench latency "$model" "${engine[@]}" --max-model-len 2048 \
    --warmup 0 --num-iters 1 --difference --max-num-seqs "$most" \
    --recorded-batch-sizes "$batches" --shapes "$shapes" --output-json "$out/$name.json" "$@" &&
    figures "$name" $bars
}

# throughput SECONDS NAME SHAPE COPIES FLAGS...: twice as many requests as run at once.
throughput() {
  local limit=$1 name=$2 copies=$4 model
  model=$(shape "$3")
  shift 4
  limited "$limit" "$name" "$atom" bench throughput "$model" "${engine[@]}" --warmup 0 \
    --num-iters 1 --max-model-len $((1024 + output_len)) --num-prompts $((2 * streams)) \
    --input-len 1024 --output-len "$output_len" --max-num-seqs $((streams / copies)) \
    --output-json "$out/$name.json" "$@" && figures "$name"
}

run_machine() {
  limited 60 machine bash -c "'$atom' doctor --measure --collectives; nvidia-smi; nvidia-smi topo -m"
}

# Numbers of cards from 1 on that sections go through.
counts() {
  local count
  for count in 1 2 4 8; do
    [ $count -lt "$1" ] || [ $count -gt "$cards" ] || echo $count
  done
}

# A program of the same build, or a link to it; empty where it was not built.
built() {
  find -L "$(dirname "$atom")" -type f -name "$1" -perm -u+x 2>/dev/null | head -n 1
}

run_exchanges() {
  local bench file
  for bench in collectives_bench expert_exchange_bench; do
    file=$(built $bench)
    if [ -z "$file" ] && [ -z "$dry_run" ]; then
      fail $bench "it was not built (-DATOM_BUILD_BENCH=ON)"
      continue
    fi
    limited 120 "$bench" "${file:-$bench}" "$cards" && sed 's/^/        /' "$out/$bench.txt"
  done
}

run_goldens() {
  local file=${golden:-$(built golden_models_test)}
  if [ -z "$file" ] && [ -z "$dry_run" ]; then
    fail goldens "golden_models_test was not built"
    return
  fi
  limited 240 goldens env ATOM_TEST_DEVICE=cuda GTEST_BRIEF=1 \
    ATOM_TEST_TP="$cards" ATOM_GOLDEN_DIR="${ATOM_GOLDEN_DIR:-$root/tests/data/golden}" \
    "${file:-golden_models_test}" \
    --gtest_filter='*SeveralRanks*:*CopiesThatShare*:*ExpertsThatMove*'
}

# in_parts COUNT: the flags.
in_parts() {
  [ "$1" -eq 1 ] || echo "-tp $1"
}

run_llama_8b() {
  local count bars
  for count in $(counts 1); do
    bars=
    [ "$count" -ne 2 ] || bars="1=2.4"
    # shellcheck disable=SC2046
    latency 90 "llama-8b-tp$count" llama-3.1-8b 1,64 "$bars" $(in_parts "$count")
  done
}

run_llama_8b_load() {
  local count
  for count in $(counts 1); do
    # shellcheck disable=SC2046
    throughput 180 "llama-8b-load-tp$count" llama-3.1-8b 1 $(in_parts "$count")
  done
  # As many requests at once on each card as on one alone.
  streams=$((streams * cards))
  throughput 180 "llama-8b-load-dp$cards" llama-3.1-8b "$cards" -dp "$cards"
  streams=$((streams / cards))
  ratio llama-8b-load-tp2 llama-8b-load-tp1 1.75
  ratio "llama-8b-load-dp$cards" llama-8b-load-tp1 "$cards"
}

run_llama_70b_fp8() {
  local count bars least=$((cards < 4 ? 2 : 4))
  for count in $(counts $least); do
    bars=
    [ "$count" -ne 2 ] || bars="1=11 64=16"
    latency 180 "llama-70b-fp8-tp$count" llama-3.1-70b 1,64 "$bars" -tp "$count" \
      --quantization fp8
  done
}

run_share_70b_fp8() {
  local name=share-70b-fp8-tp$cards
  limited 120 "$name" "$atom" bench breakdown "$(shape llama-3.1-70b)" "${engine[@]}" \
    --quantization fp8 -tp "$cards" --num-iters 3 --max-model-len 2048 \
    --shapes 1x1024x2,64x1024x2 --output-json "$out/$name.json" || return
  python3 - "$out/$name.json" <<'PYTHON'
import json, sys
for step in json.load(open(sys.argv[1]))["steps"]:
    # Packets are exchanged by the kernels of norms.
    exchanged = sum(o["seconds"] for o in step["operators"] if o["variant"] in ("ranks", "packets"))
    print(f"        {step['name']}: collectives take {100 * exchanged / step['seconds']:.1f} % of "
          f"{1e3 * step['seconds']:.2f} ms in operators")
PYTHON
}

run_gpt_oss_120b() {
  if [ "$cards" -lt 4 ]; then
    latency 150 "gpt-oss-120b-tp$cards" gpt-oss-120b 1,4,8,64 "1=1.6" -tp "$cards"
    return
  fi
  local count
  for count in $(counts 4); do
    latency 150 "gpt-oss-120b-tp$count" gpt-oss-120b 1,4,8,64 "" -tp "$count"
    latency 150 "gpt-oss-120b-tp$count-ep" gpt-oss-120b 1,4,8,64 "" -tp "$count" \
      --enable-expert-parallel
  done
}

run_experts() {
  throughput 180 "experts-tp$cards" qwen3-30b-a3b 1 -tp "$cards"
  throughput 180 "experts-tp$cards-ep" qwen3-30b-a3b 1 -tp "$cards" --enable-expert-parallel
  throughput 180 "experts-dp$cards-ep" qwen3-30b-a3b "$cards" -tp "$cards" --enable-dp-attention \
    --enable-expert-parallel
}

run_stages() {
  latency 90 "llama-8b-pp$cards" llama-3.1-8b 1,64 "" -pp "$cards"
}

run_qwen3_235b() {
  throughput 300 "qwen3-235b-tp$cards-ep" qwen3-235b-a22b-fp8 1 -tp "$cards" \
    --enable-expert-parallel
  throughput 300 "qwen3-235b-tp$((cards / 2))-dp2-ep" qwen3-235b-a22b-fp8 2 -tp $((cards / 2)) \
    -dp 2 --enable-expert-parallel
}

run_deepseek_r1() {
  local drafts
  latency 400 "deepseek-r1-tp$cards" deepseek-r1 1 "1=6" -tp "$cards"
  for drafts in 1 3; do
    latency 400 "deepseek-r1-tp$cards-mtp$drafts" deepseek-r1 1 "" -tp "$cards" --method mtp \
      --num-speculative-tokens $drafts --forced-acceptance-rate 0.9
  done
  local count all=$streams
  for count in 128 256 2048; do
    streams=$count
    throughput 400 "deepseek-r1-dp$cards-ep-$count" deepseek-r1 "$cards" -tp "$cards" \
      --enable-dp-attention --enable-expert-parallel
  done
  streams=$all
}

run_kimi_k2() {
  limited 60 kimi-k2 "$atom" plan "$(shape kimi-k2-mxfp4)" -tp "$cards" \
    --max-model-len 131072 --device cpu --assume-memory 141GB &&
    sed 's/^/        /' "$out/kimi-k2.txt"
}

port=8473
run_kill() {
  limited 150 kill python3 "$root/tools/kill_ranks.py" "$atom" "$(shape llama-3.1-8b)" $port \
    "${engine[@]}" --max-model-len 2048 --max-num-seqs 64 --recorded-batch-sizes 1,64 -tp "$cards" &&
    sed 's/^/        /' "$out/kill.txt" | grep -a '^        kill:'
}

for section in "${sections[@]}"; do "run_${section//-/_}"; done
echo "== ${#sections[@]} sections, $num_failed failures, $SECONDS s; logs in $out"
[ "$num_failed" -eq 0 ]
