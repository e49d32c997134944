// Attention by variant, heads of 128 over 8 KV heads: prefill on one thread in causal FLOP/s,
// decode in bytes of keys and values per second.
#include <benchmark/benchmark.h>

#include <cstring>

#include "ops/attention/attention_variants.h"

namespace atom::ops {
namespace {

constexpr int64_t kNumKvHeads = 8, kHeadDim = 128, kBlockSize = 16;

AttentionParams make_params(
    int64_t num_sequences, int64_t num_queries, int64_t context, DType dtype, int64_t group = 2) {
  const int64_t num_heads = kNumKvHeads * group;
  const int64_t blocks = (context + kBlockSize - 1) / kBlockSize;
  const Shape cache{num_sequences * blocks, kBlockSize, kNumKvHeads, kHeadDim};
  AttentionParams params;
  params.q = Tensor::zeros({num_sequences * num_queries, num_heads, kHeadDim}, dtype);
  params.out = Tensor::zeros({num_sequences * num_queries, num_heads, kHeadDim}, dtype);
  params.k_cache = Tensor::zeros(cache, dtype);
  params.v_cache = Tensor::zeros(cache, dtype);
  params.batch.block_tables = Tensor::zeros({num_sequences, blocks}, DType::kInt32);
  params.batch.query_start = Tensor::zeros({num_sequences + 1}, DType::kInt32);
  params.batch.seq_lens = Tensor::zeros({num_sequences}, DType::kInt32);
  for (const Tensor& tensor : {params.q, params.k_cache, params.v_cache}) {
    // Some finite bits: 0x3c is a small positive number in every dtype.
    std::memset(tensor.raw_data(), 0x3c, tensor.num_bytes());
  }
  for (int64_t i = 0; i < params.batch.block_tables.num_elements(); ++i) {
    params.batch.block_tables.data<int32_t>()[i] = static_cast<int32_t>(i);
  }
  for (int64_t s = 0; s < num_sequences; ++s) {
    params.batch.query_start.data<int32_t>()[s + 1] = static_cast<int32_t>((s + 1) * num_queries);
    params.batch.seq_lens.data<int32_t>()[s] = static_cast<int32_t>(context);
  }
  params.scale = 0.088f;
  return params;
}

bool run(benchmark::State& state,
         const char* variant,
         const AttentionParams& params,
         int num_threads) {
  ThreadPool pool(num_threads);
  Workspace scratch(1 << 20);
  for (auto _ : state) {
    if (!attention_by(variant, Stream(&pool), params, scratch)) {
      state.SkipWithError("cannot run here");
      return false;
    }
  }
  return true;
}

void prefill(benchmark::State& state, const char* variant, DType dtype) {
  const int64_t n = state.range(0);
  if (!run(state, variant, make_params(1, n, n, dtype), 1)) return;
  const double flops = 4.0 * 2 * kNumKvHeads * kHeadDim * static_cast<double>(n * (n + 1) / 2);
  state.counters["flops"] = benchmark::Counter(flops * static_cast<double>(state.iterations()),
                                               benchmark::Counter::kIsRate);
}

// Arguments: sequences, context, query heads per KV head, threads.
void decode(benchmark::State& state, const char* variant, DType dtype) {
  const AttentionParams params =
      make_params(state.range(0), 1, state.range(1), dtype, state.range(2));
  if (!run(state, variant, params, static_cast<int>(state.range(3)))) return;
  state.SetBytesProcessed(state.iterations() * 2 * params.k_cache.num_bytes());
}

BENCHMARK_CAPTURE(prefill, avx512_bf16, "avx512", DType::kBFloat16)->Arg(64)->Arg(512)->Arg(4096);
BENCHMARK_CAPTURE(prefill, avx512_f32, "avx512", DType::kFloat32)->Arg(512);
BENCHMARK_CAPTURE(prefill, avx2_bf16, "avx2", DType::kBFloat16)->Arg(512);
BENCHMARK_CAPTURE(prefill, reference_bf16, "reference", DType::kBFloat16)->Arg(512);
BENCHMARK_CAPTURE(decode, avx512_bf16, "avx512", DType::kBFloat16)
    ->Args({1, 16, 2, 1})
    ->Args({1, 512, 2, 1})
    ->Args({1, 4096, 2, 1})
    ->Args({16, 512, 2, 1})
    ->Args({64, 1024, 2, 1})
    ->Args({64, 1024, 4, 1})
    ->Args({1, 512, 2, 2})
    ->Args({1, 4096, 2, 2})
    ->Args({64, 1024, 2, 2})
    ->UseRealTime();
BENCHMARK_CAPTURE(decode, avx512_f32, "avx512", DType::kFloat32)
    ->Args({1, 512, 2, 1})
    ->Args({64, 1024, 2, 1})
    ->Args({1, 512, 2, 2})
    ->UseRealTime();
BENCHMARK_CAPTURE(decode, avx512_f16, "avx512", DType::kFloat16)
    ->Args({64, 1024, 2, 1})
    ->UseRealTime();
BENCHMARK_CAPTURE(decode, avx2_bf16, "avx2", DType::kBFloat16)
    ->Args({64, 1024, 2, 1})
    ->UseRealTime();

}  // namespace
}  // namespace atom::ops
