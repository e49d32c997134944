#!/usr/bin/env bash
# Measures atom on this machine's NVIDIA GPU with random weights of Llama-3.1-8B's shape, and writes
# a table in Markdown with the roofs of the card, measured in the same runs, and what vLLM reached.
# Nothing is downloaded. The sections that run without a choice take about six minutes of an H200; a
# section that fails or outlasts its time is reported, and the others go on.
set -uo pipefail

usage() {
  cat <<'MESSAGE'
usage: tools/bench_gpu.sh [--atom FILE] [--out FOLDER] [--model FOLDER] [--rounds N]
                          [--batches B,...] [--candidate OPERATOR=VARIANT]... [SECTION...]

  --atom FILE     executable built with cmake --preset cuda (default build/cuda/atom)
  --benches FOLDER  where the kernels' benchmarks are (default: the folder of --atom; they are built
                  with -DATOM_BUILD_BENCH=ON)
  --out FOLDER    for results.md, results.json and what each section printed (default
                  build/bench-gpu)
  --model FOLDER  config.json and tokenizer of another shape; without it Llama-3.1-8B's is written
  --rounds N      times that everything up to 64 requests is measured; the best counts (default 2)
  --batches B,... numbers of requests of decode sections and mixtures of experts, and prefill for
                  the prefill of 8192 tokens (default 1,8,32,64,256,prefill)
  --candidate O=V a kernel that runs what it can in every section, although it does not serve yet
                  (tables of operators mark such with kCandidate; ATOM_OP_VARIANT=O=+V)

Sections that run without a choice, in order:
  machine         atom doctor, nvidia-smi
  decode          ms per token at 1, 8, 32, 64 and 256 requests, prefill of 8192 tokens: bfloat16
  decode-fp8      the same with FP8 weights and activations
  decode-fp8-kv   the same, and the cache in FP8
  breakdown       time and share of the roof of each operator: bfloat16 and FP8
  kernels         attention, linears, norms, activation, rope and quantization on their
                  own, in percent of the roofs
  serve           start to ready; first token of a short prompt; HTTP against offline
  throughput      512 requests of 1024 + 1024 tokens, 256 at a time: bfloat16
  throughput-fp8, throughput-fp8-kv

Sections that run only when they are named:
  load            start to ready with 16 GB of weights in safetensors, from the page cache and from
                  the disk; they are written to a folder under TMPDIR first and deleted at the end
  fusions         decode and prefill with each fused kernel and without it
  fusions-latent  the same of latent attention, with six layers of DeepSeek-V3
  tuning          start, decode and prefill with and without measuring cuBLASLt's algorithms
  deterministic   what --deterministic costs a decode step at 1, 32 and 256 requests
  experts         kernels of mixtures of experts from 1 to 4096 tokens,
                  and linears in FP8 by blocks beside cuBLASLt's, in percent of the roofs
  flashinfer      FlashInfer's attention and ours, where attention_flashinfer_bench is built
                  (tools/setup.sh --flashinfer, then cmake --preset cuda -DATOM_FLASHINFER=ON)
  qwen3-30b-a3b, qwen3-30b-a3b-fp8, gpt-oss-20b, gpt-oss-120b, glm-4.5-air-fp8, mixtral-8x7b,
  qwen3-next-80b-fp8, qwen3.5-35b-a3b, deepseek-v3-6, deepseek-v32-4, glm-5-4, kimi-k2-6
                  what decode measures, of a mixture of experts' shape with random weights
                  (tools/write_shape.py), whose routers spread tokens about evenly; how evenly:
                  experts of a layer that tokens choose, and tokens of each
  throughput-SHAPE  what throughput measures, of one of these
  breakdown-SHAPE   time and share of the roof of each operator of one of these
  load-SHAPE      load from the page cache alone, of Qwen3's, with experts or without
  serve-256       512 requests of 1024 + 1024 tokens over HTTP, 256 at a time, against offline
MESSAGE
}

root=$(cd "$(dirname "$0")/.." && pwd)
atom=$root/build/cuda/atom
benches=
out=$root/build/bench-gpu
model=
rounds=2
batches=1,8,32,64,256,prefill
sections=()
mixtures=$("$root/tools/write_shape.py" --list | tr '\n' ' ')
is_mixture() {
  [[ " $mixtures " == *" $1 "* ]]
}
has_experts() {
  grep -qE '"(num_experts|num_local_experts|n_routed_experts)"' "$1/config.json"
}
# What a section measures.
shape_of() {
  local shape=${1#decode-}
  shape=${shape#throughput-}
  shape=${shape#breakdown-}
  echo "${shape#load-}"
}
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help)
      usage
      exit 0
      ;;
    --atom | --benches | --out | --model | --rounds | --batches | --candidate)
      if [ $# -lt 2 ]; then
        echo "bench_gpu: $1 needs a value" >&2
        exit 2
      fi
      case "$1" in
        --atom) atom=$2 ;;
        --benches) benches=$2 ;;
        --out) out=$2 ;;
        --model) model=$2 ;;
        --rounds) rounds=$2 ;;
        --batches) batches=$2 ;;
        --candidate) export ATOM_OP_VARIANT=${ATOM_OP_VARIANT:+$ATOM_OP_VARIANT,}${2%%=*}=+${2#*=} ;;
      esac
      shift 2
      ;;
    machine | decode | decode-fp8 | decode-fp8-kv | breakdown | kernels | serve | \
      throughput | throughput-fp8 | throughput-fp8-kv | \
      load | fusions | fusions-latent | tuning | deterministic | experts | flashinfer | serve-256)
      sections+=("$1")
      shift
      ;;
    *)
      if ! is_mixture "$(shape_of "$1")"; then
        echo "bench_gpu: unknown argument '$1'" >&2
        usage >&2
        exit 2
      fi
      sections+=("$1")
      shift
      ;;
  esac
done
if [ ${#sections[@]} -eq 0 ]; then
  sections=(machine decode decode-fp8 decode-fp8-kv breakdown kernels serve throughput
    throughput-fp8 throughput-fp8-kv)
fi
if [ ! -x "$atom" ]; then
  echo "bench_gpu: $atom is missing: build it with tools/setup.sh --cuda && tools/build.sh cuda atom" >&2
  exit 1
fi
mkdir -p "$out"
failures=$out/failures.txt
: >"$failures"

# The shape alone decides what is measured; the tokenizer, which serving needs, is the demo model's.
if [ -z "$model" ]; then
  model=$out/llama-3.1-8b
  mkdir -p "$model"
  cp "$root"/models/tldr-8m/{tokenizer.json,tokenizer_config.json,chat_template.jinja} "$model/"
  cat >"$model/config.json" <<'CONFIG'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
 "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
 "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "hidden_act": "silu",
 "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "max_position_embeddings": 131072,
 "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 8192, "rope_type": "llama3"},
 "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false,
 "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": [2]}
CONFIG
fi

# limited SECONDS NAME COMMAND...: what it prints goes to NAME.txt; a failure is noted.
limited() {
  local limit=$1 name=$2 status=0 begin=$SECONDS
  shift 2
  timeout -k 5 "$limit" "$@" >"$out/$name.txt" 2>&1 </dev/null || status=$?
  if [ $status -eq 0 ]; then
    echo "ok      $name ($((SECONDS - begin)) s)"
    return 0
  fi
  local reason
  reason=$(grep -aE 'error|CHECK|FAIL|not supported' "$out/$name.txt" | head -n 1 | cut -c1-200)
  [ $status -ne 124 ] && [ $status -ne 137 ] || reason="more than $limit s; ${reason:-no message}"
  echo "FAILED  $name: ${reason:-exit code $status}"
  printf '%s\t%s\n' "$name" "${reason:-exit code $status}" >>"$failures"
  return 1
}

engine=(--device cuda --dtype bfloat16 --load-dummy random --max-num-batched-tokens 8192)
precision() {
  ! is_mixture "$(shape_of "$1")" || return 0  # as the shape says
  case "$1" in
    *-fp8-kv) echo "--quantization fp8 --kv-cache-dtype fp8" ;;
    *-fp8) echo "--quantization fp8" ;;
  esac
}

# Made-up experts get even work of answers that are drawn.
temperature() {
  is_mixture "$(shape_of "$1")" && echo 1 || echo 0
}

has_batch() {
  [[ ",$batches," == *",$1,"* ]]
}

run_decode() {
  local shapes='' name=$1 batch round
  for ((round = 0; round < rounds; ++round)); do
    ! has_batch prefill || shapes+=,1x8192x1
    for batch in 1 8 32 64; do
      ! has_batch $batch || shapes+=,${batch}x1024x129
    done
  done
  # A first prefill that does not count: the first of anything loads kernels.
  # shellcheck disable=SC2046
  [ -z "$shapes" ] || limited 60 "$name" "$atom" bench latency "$model" "${engine[@]}" \
    $(precision "$name") --max-model-len 8208 --difference --warmup 0 --num-iters 1 \
    --shapes "1x8192x1$shapes" --max-num-seqs 64 --output-json "$out/$name.json"
  # Their prompts take 32 steps, so the first requests answer meanwhile: only steps of all of them
  # count.
  # shellcheck disable=SC2046
  ! has_batch 256 || limited 90 "$name-256" "$atom" bench latency "$model" "${engine[@]}" \
    $(precision "$name") --max-model-len 2048 --temperature "$(temperature "$name")" --warmup 0 \
    --num-iters 1 --shapes 8x1024x1,256x1024x129 --max-num-seqs 256 --output-json "$out/$name-256.json"
}

# How tokens spread over experts in such steps.
run_expert_load() {
  local name=$1 shapes='' batch
  for batch in 1 8 32 64 256; do
    ! has_batch $batch || shapes+=,${batch}x1024x2
  done
  ! has_batch prefill || shapes+=,1x8192x1
  [ -z "$shapes" ] || limited 60 "$name" "$atom" bench breakdown "$model" "${engine[@]}" \
    --num-iters 1 --shapes "${shapes#,}" --max-model-len 8208 --output-json "$out/$name.json"
}

# run_mixture SECTION: of another model than the other sections.
run_mixture() {
  local section=$1 model shape
  shape=$(shape_of "$section")
  model=$out/$shape
  "$root/tools/write_shape.py" "$shape" "$model"
  cp "$root"/models/tldr-8m/{tokenizer.json,tokenizer_config.json,chat_template.jinja} "$model/"
  case "$section" in
    load-*) run_load "$section" cached cached-again ;;
    throughput-*) run_throughput "$section" ;;
    breakdown-*)
      limited 60 "$section" "$atom" bench breakdown "$model" "${engine[@]}" --num-iters 3 \
        --shapes 1x1024x2,8x1024x2,64x1024x2,256x1024x2,1x8192x1 --max-model-len 8208 \
        --output-json "$out/$section.json" --output-trace "$out/trace-$shape.json"
      ;;
    *)
      run_decode "decode-$section"
      ! has_experts "$model" || run_expert_load "experts-$section"
      ;;
  esac
}

run_throughput() {
  # shellcheck disable=SC2046
  limited 180 "$1" "$atom" bench throughput "$model" "${engine[@]}" $(precision "$1") \
    --max-model-len 2048 --temperature "$(temperature "$1")" --warmup 0 --num-iters 1 \
    --num-prompts 512 --input-len 1024 --output-len 1024 --max-num-seqs 256 --output-json "$out/$1.json"
}

run_breakdown() {
  local shapes=1x1024x2,8x1024x2,64x1024x2,256x1024x2,1x8192x1 suffix
  for suffix in "" -fp8-kv; do
    # shellcheck disable=SC2046
    limited 30 "breakdown$suffix" "$atom" bench breakdown "$model" "${engine[@]}" \
      $(precision "breakdown$suffix") --num-iters 3 --shapes "$shapes" \
      --output-json "$out/breakdown$suffix.json" --output-trace "$out/trace$suffix.json"
  done
}

find_bench() {
  find -L "${benches:-$(dirname "$atom")}" -type f -name "$1" -perm -u+x 2>/dev/null | head -n 1
}

# kernel_bench NAME ARGUMENTS...
kernel_bench() {
  local name=$1 file
  shift
  file=$(find_bench "$name")
  if [ -z "$file" ]; then
    echo "FAILED  $name: not built (cmake --preset cuda -DATOM_BUILD_BENCH=ON)"
    printf '%s\tnot built\n' "$name" >>"$failures"
    return
  fi
  limited 60 "$name" "$file" "$@"
}

run_kernels() {
  kernel_bench attention_gpu_bench
  kernel_bench linear_skinny_bench time
  kernel_bench linear_stream_bench time
  kernel_bench linear_wgmma_bench time
  kernel_bench norm_activation_bench
  kernel_bench rope_quant_bench
}

run_experts() {
  local bench
  bench=$(find_bench fused_moe_gpu_bench)
  if [ -z "$bench" ]; then
    kernel_bench fused_moe_gpu_bench
  else
    limited 180 fused_moe_gpu_bench "$bench" time
  fi
  kernel_bench linear_blocks_bench prefill
}

run_flashinfer() {
  if [ -z "$(find_bench attention_flashinfer_bench)" ]; then
    echo "skipped attention_flashinfer_bench: it is not built (-DATOM_FLASHINFER=ON)"
    return
  fi
  kernel_bench attention_flashinfer_bench
}

# What the server is loaded with, and the same offline.
serve_load() {
  local port=$1
  "$atom" bench serve --base-url "http://127.0.0.1:$port" --no-progress --num-warmups 2 \
    --num-prompts 16 --max-concurrency 1 --input-len 32 --output-len 8 \
    --save-result "$out/serve-first-token.json" &&
    "$atom" bench serve --base-url "http://127.0.0.1:$port" --no-progress --num-warmups 2 \
      --num-prompts 128 --max-concurrency 64 --input-len 1024 --output-len 128 --seed 7 \
      --save-result "$out/serve-online.json" &&
    "$atom" bench serve --base-url "http://127.0.0.1:$port" --no-progress --num-warmups 2 \
      --num-prompts 4 --max-concurrency 1 --input-len 1024 --output-len 128 --seed 8 \
      --save-result "$out/serve-online-1.json"
}

port=8471
is_ready() (
  exec 3<>"/dev/tcp/127.0.0.1/$port" || exit 1
  printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
  read -r answer <&3 && [[ $answer == *" 200"* ]]
)

# start_server NAME ARGUMENTS...: `atom serve` in the background, as process $server; its seconds to
# ready go to NAME.json.
start_server() {
  local name=$1 begin ready=
  shift
  begin=$(date +%s.%N)
  "$atom" serve "$@" --port $port >"$out/$name.txt" 2>&1 </dev/null &
  server=$!
  for _ in $(seq 1200); do
    kill -0 $server 2>/dev/null || break
    if is_ready 2>/dev/null; then
      ready=$(date +%s.%N)
      break
    fi
    sleep 0.02
  done
  if [ -z "$ready" ]; then
    local reason
    reason=$(grep -a -m 1 -E 'error|CHECK' "$out/$name.txt" | cut -c1-200)
    echo "FAILED  $name: ${reason:-not ready in time}"
    printf '%s\tthe server did not become ready, see %s.txt\n' "$name" "$name" >>"$failures"
    stop_server
    return 1
  fi
  python3 -c "import json; json.dump({'seconds': $ready - $begin}, open('$out/$name.json', 'w'))"
  echo "ok      $name (ready after $(python3 -c "print(f'{$ready - $begin:.2f}')") s)"
}

stop_server() {
  kill -TERM $server 2>/dev/null
  wait $server 2>/dev/null
}

run_serve() {
  start_server start "$model" "${engine[@]}" --max-model-len 2048 --max-num-seqs 64 \
    --no-enable-prefix-caching || return
  export -f serve_load
  export atom out
  limited 90 serve bash -c "serve_load $port"
  stop_server
  local offline=("$atom" bench throughput "$model" "${engine[@]}" --max-model-len 2048
    --input-len 1024 --output-len 128 --warmup 0)
  limited 60 serve-offline "${offline[@]}" --num-iters 1 --num-prompts 128 --max-num-seqs 64 \
    --output-json "$out/serve-offline.json"
}

run_serve_256() {
  start_server start-256 "$model" "${engine[@]}" --max-model-len 2048 --max-num-seqs 256 \
    --max-num-waiting 1024 --no-enable-prefix-caching || return
  limited 150 serve-256 "$atom" bench serve --base-url "http://127.0.0.1:$port" --no-progress \
    --num-warmups 2 --num-prompts 512 --max-concurrency 256 --input-len 1024 --output-len 1024 \
    --seed 9 --save-result "$out/serve-256.json"
  stop_server
  [ -f "$out/throughput.json" ] || run_throughput throughput
}

# Decode steps and a prefill in one short run: NAME FLAGS...
short_latency() {
  local name=$1 shapes=1x8192x1,1x8192x1,1x8192x1,1x1024x65,1x1024x65
  shapes+=,32x1024x65,32x1024x65,256x128x65,256x128x65
  shift
  limited 60 "$name" "$atom" bench latency "$model" "${engine[@]}" "$@" --max-model-len 8208 \
    --difference --warmup 0 --num-iters 1 --max-num-seqs 256 --output-json "$out/$name.json" \
    --shapes "$shapes"
}

run_fusions() {
  local fp8="--quantization fp8 --kv-cache-dtype fp8"
  short_latency fusions-bf16
  ATOM_ENABLE_QK_NORM_ROPE_CACHE_QUANT_FUSION=0 short_latency fusions-bf16-no-qk
  # shellcheck disable=SC2086
  short_latency fusions-fp8 $fp8
  # shellcheck disable=SC2086
  ATOM_ENABLE_QK_NORM_ROPE_CACHE_QUANT_FUSION=0 short_latency fusions-fp8-no-qk $fp8
  # shellcheck disable=SC2086
  ATOM_LLAMA_ENABLE_AITER_TRITON_FUSED_RMSNORM_QUANT=0 short_latency fusions-fp8-no-norm $fp8
  # shellcheck disable=SC2086
  ATOM_LLAMA_ENABLE_AITER_TRITON_FUSED_SILU_MUL_QUANT=0 short_latency fusions-fp8-no-silu $fp8
}

run_fusions_latent() {
  local model=$out/deepseek-v3-6
  "$root/tools/write_shape.py" deepseek-v3-6 "$model"
  short_latency fusions-latent
  ATOM_ENABLE_DS_INPUT_RMSNORM_QUANT_FUSION=0 short_latency fusions-latent-no-input
  ATOM_ENABLE_DS_QKNORM_QUANT_FUSION=0 short_latency fusions-latent-no-latents
  ATOM_ENABLE_QK_NORM_ROPE_CACHE_QUANT_FUSION=0 short_latency fusions-latent-no-qk
  ATOM_USE_TRITON_GEMM=0 short_latency fusions-latent-no-expansion
}

# Starts that find nothing remembered, what the first one remembered, and that do not tune.
run_tuning() {
  local cache suffix name
  cache=$(mktemp -d)
  for suffix in "" -fp8; do
    for name in first again none; do
      local flags=(--max-model-len 2048 --max-num-seqs 256)
      [ $name != none ] || flags+=(--no-enable-tuning)
      # shellcheck disable=SC2046
      XDG_CACHE_HOME=$cache start_server "tuning$suffix-start-$name" "$model" "${engine[@]}" \
        $(precision "tuning$suffix") "${flags[@]}" && stop_server
    done
    # shellcheck disable=SC2046
    XDG_CACHE_HOME=$cache short_latency "tuning$suffix" $(precision "tuning$suffix")
    # shellcheck disable=SC2046
    short_latency "tuning$suffix-none" $(precision "tuning$suffix") --no-enable-tuning
  done
  rm -rf "$cache"
}

run_deterministic() {
  local suffix mode name
  for suffix in "" -fp8-kv; do
    for mode in "" --deterministic; do
      name=$suffix${mode:+-on}
      # shellcheck disable=SC2046,SC2086
      limited 90 "deterministic$name" "$atom" bench latency "$model" "${engine[@]}" \
        $(precision "deterministic$suffix") $mode --max-model-len 2048 --difference --warmup 0 \
        --num-iters 1 --shapes 1x1024x65,1x1024x65,32x1024x65,32x1024x65 --max-num-seqs 32 \
        --output-json "$out/deterministic$name.json"
      # As in run_decode.
      # shellcheck disable=SC2046,SC2086
      limited 90 "deterministic-256$name" "$atom" bench latency "$model" "${engine[@]}" \
        $(precision "deterministic$suffix") $mode --max-model-len 2048 --warmup 0 --num-iters 1 \
        --shapes 8x1024x1,256x1024x65 --max-num-seqs 256 \
        --output-json "$out/deterministic-256$name.json"
    done
  done
}

# run_load NAME SOURCE...
run_load() {
  local weights name=$1
  shift
  weights=$(mktemp -d)
  find "$model" -maxdepth 1 -type f -size -64M -exec cp {} "$weights/" \;
  if limited 120 "$name-write" python3 "$root/tools/write_dummy_checkpoint.py" "$weights"; then
    local source
    for source in "$@"; do
      [ "$source" != disk ] ||
        limited 60 "$name-evict" python3 "$root/tools/evict_files.py" "$weights"
      start_server "$name-$source" "$weights" --device cuda --max-model-len 8192 && stop_server
    done
  fi
  rm -rf "$weights"
}

for section in "${sections[@]}"; do
  case "$section" in
    machine)
      limited 20 machine bash -c "'$atom' doctor; nvidia-smi"
      "$atom" doctor --json >"$out/machine.json" 2>/dev/null
      ;;
    decode | decode-fp8*) run_decode "$section" ;;
    throughput | throughput-fp8*) run_throughput "$section" ;;
    load) run_load load cached cached-again disk ;;
    *)
      if is_mixture "$(shape_of "$section")"; then
        run_mixture "$section"
      else
        "run_${section//-/_}"
      fi
      ;;
  esac
done
python3 "$root/tools/bench_gpu_table.py" "$out"
