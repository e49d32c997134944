// The gated delta rule by variant, in processor time, of the heads of Qwen3-Next (16 key heads, 32
// value heads, 128 x 128) in bfloat16 on one thread: prompts as a share of the float32 arithmetic
// that the thread has, by the products of a chunk alone, and decodes by the bytes of the states.
#include <benchmark/benchmark.h>

#include <vector>

#include "ops/gated_delta_rule/gated_delta_rule_variants.h"
#include "ops/roofs/roofs.h"
#include "ops/test_tensors.h"

namespace atom::ops {
namespace {

constexpr int64_t kKeyHeads = 16, kValueHeads = 32, kDim = 128;

GatedDeltaRuleParams call_of(int64_t num_sequences, int64_t tokens_each) {
  const int64_t num_tokens = num_sequences * tokens_each;
  GatedDeltaRuleParams params;
  params.qkv =
      random_tensor({num_tokens, (2 * kKeyHeads + kValueHeads) * kDim}, DType::kBFloat16, 1);
  params.num_k_heads = kKeyHeads;
  params.a = random_tensor({num_tokens, kValueHeads}, DType::kBFloat16, 2);
  params.b = random_tensor({num_tokens, kValueHeads}, DType::kBFloat16, 3);
  params.a_log = random_tensor({kValueHeads}, DType::kFloat32, 4);
  params.dt_bias = random_tensor({kValueHeads}, DType::kFloat32, 5);
  params.state = Tensor::zeros({num_sequences, kValueHeads, kDim, kDim}, DType::kFloat32);
  params.batch = {Tensor::zeros({num_sequences + 1}, DType::kInt32),
                  Tensor::zeros({num_sequences}, DType::kInt32),
                  Tensor::zeros({num_sequences}, DType::kInt32)};
  for (int64_t s = 0; s < num_sequences; ++s) {
    params.batch.query_start.data<int32_t>()[s + 1] = static_cast<int32_t>((s + 1) * tokens_each);
    params.batch.seq_lens.data<int32_t>()[s] = static_cast<int32_t>(tokens_each + 1);
    params.batch.state_slots.data<int32_t>()[s] = static_cast<int32_t>(s);
  }
  params.out = Tensor::zeros({num_tokens, kValueHeads * kDim}, DType::kBFloat16);
  return params;
}

bool run(benchmark::State& state, const char* variant, const GatedDeltaRuleParams& params) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  Workspace scratch;
  for (auto _ : state) {
    if (gated_delta_rule_by(variant, stream, params, scratch)) continue;
    state.SkipWithError("cannot run here");
    return false;
  }
  return true;
}

void prefill(benchmark::State& state, const char* variant) {
  const int64_t num_tokens = state.range(0);
  if (!run(state, variant, call_of(1, num_tokens))) return;
  // A chunk of 64 tokens: K S, Q S and K^T V' of each value head, the halves of M and P, which
  // multiply its values, and of K K^T and Q K^T, which its key head shares.
  const double per_token =
      3.0 * kDim * kDim * kValueHeads + 64.0 * kDim * kValueHeads + 64.0 * kDim * kKeyHeads;
  const double flops = 2 * per_token * static_cast<double>(num_tokens * state.iterations());
  ThreadPool pool(1);
  const Roofs roofs = measure_roofs(Stream(&pool), 0.1);
  state.counters["flops"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
  state.counters["of_f32"] =
      benchmark::Counter(flops / roofs.f32_flops, benchmark::Counter::kIsRate);
}

void decode(benchmark::State& state, const char* variant) {
  const GatedDeltaRuleParams params = call_of(state.range(0), 1);
  if (run(state, variant, params)) {
    state.SetBytesProcessed(2 * params.state.num_bytes() * state.iterations());
  }
}

BENCHMARK_CAPTURE(prefill, avx512, "avx512")->Arg(64)->Arg(512);
BENCHMARK_CAPTURE(prefill, avx2, "avx2")->Arg(512);
BENCHMARK_CAPTURE(prefill, reference, "reference")->Arg(64);
BENCHMARK_CAPTURE(decode, avx512, "avx512")->Arg(1)->Arg(32);
BENCHMARK_CAPTURE(decode, avx2, "avx2")->Arg(32);

}  // namespace
}  // namespace atom::ops
