// Bandwidth of RMSNorm by variant: rows x hidden size in bfloat16, one thread.
#include <benchmark/benchmark.h>

#include "ops/rms_norm/rms_norm_variants.h"

namespace atom::ops {
namespace {

void run(benchmark::State& state, const char* variant, bool adds) {
  ThreadPool pool(1);
  const Stream stream(&pool);
  const int64_t num_tokens = state.range(0), hidden_size = state.range(1);
  const Tensor x = Tensor::zeros({num_tokens, hidden_size}, DType::kBFloat16);
  const Tensor out = Tensor::zeros({num_tokens, hidden_size}, DType::kBFloat16);
  const Tensor weight = Tensor::zeros({hidden_size}, DType::kBFloat16);
  const Tensor residual =
      adds ? Tensor::zeros({num_tokens, hidden_size}, DType::kBFloat16) : Tensor();
  for (auto _ : state) {
    if (!rms_norm_by(variant, stream, x, residual, weight, 1e-6f, out)) {
      state.SkipWithError("cannot run here");
      return;
    }
  }
  state.SetBytesProcessed(state.iterations() * x.num_bytes() * (adds ? 4 : 2));
}

BENCHMARK_CAPTURE(run, avx512, "avx512", false)->Args({1, 256})->Args({1, 4096})->Args({512, 4096});
BENCHMARK_CAPTURE(run, avx512_add, "avx512", true)->Args({1, 4096})->Args({512, 4096});
BENCHMARK_CAPTURE(run, avx2, "avx2", false)->Args({1, 256})->Args({1, 4096})->Args({512, 4096});
BENCHMARK_CAPTURE(run, avx2_add, "avx2", true)->Args({512, 4096});
BENCHMARK_CAPTURE(run, reference, "reference", false)->Args({512, 4096});

}  // namespace
}  // namespace atom::ops
