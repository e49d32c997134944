// Time per row at a vocabulary of 151936, on one thread, by kind of request and shape of
// the logits: `peaked` is near what language models give, `flat` is the worst case.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>
#include <vector>

#include "sampling/sampler.h"

namespace atom {
namespace {

constexpr int64_t kVocab = 151936;
constexpr int64_t kNumRows = 4;

Tensor peaked_logits() {
  const Tensor logits = Tensor::empty({kNumRows, kVocab}, DType::kFloat32);
  std::mt19937 engine(1);
  std::normal_distribution<float> normal(0, 2.5f);
  for (int64_t i = 0; i < kNumRows * kVocab; ++i) logits.data<float>()[i] = normal(engine);
  for (int64_t row = 0; row < kNumRows; ++row) {
    for (int i = 0; i < 20; ++i) {
      logits.data<float>()[row * kVocab + engine() % kVocab] = 22.0f + normal(engine);
    }
  }
  return logits;
}

Tensor flat_logits() {
  const Tensor logits = Tensor::empty({kNumRows, kVocab}, DType::kFloat32);
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
  for (int64_t i = 0; i < kNumRows * kVocab; ++i) logits.data<float>()[i] = uniform(engine);
  return logits;
}

void run(benchmark::State& bench, const Tensor& logits, SamplingParams params) {
  params.seed = 1;
  ThreadPool pool(1);
  const Stream stream(&pool);
  Sampler sampler;
  const std::vector<int32_t> prompt = {1, 2, 3};
  SamplingState state(params, prompt, {}, kVocab);
  const std::vector<SamplingRow> rows(kNumRows, {&state});
  std::vector<SampledToken> out(kNumRows);
  for (auto _ : bench) {
    sampler.sample(stream, logits, rows, out);
    benchmark::DoNotOptimize(out.data());
    state.append(out[0].token_id);
  }
  bench.counters["per_row"] = benchmark::Counter(
      kNumRows, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

SamplingParams temperature() {
  return {};
}

SamplingParams top_k_top_p() {
  SamplingParams params;
  params.top_k = 50;
  params.top_p = 0.9f;
  return params;
}

SamplingParams top_p() {
  SamplingParams params;
  params.top_p = 0.9f;
  return params;
}

SamplingParams min_p() {
  SamplingParams params;
  params.min_p = 0.05f;
  return params;
}

SamplingParams logprobs() {
  SamplingParams params = greedy();
  params.logprobs = 5;
  return params;
}

#define ATOM_SAMPLER_BENCH(kind)                                  \
  BENCHMARK_CAPTURE(run, kind##_peaked, peaked_logits(), kind()); \
  BENCHMARK_CAPTURE(run, kind##_flat, flat_logits(), kind())
ATOM_SAMPLER_BENCH(greedy);
ATOM_SAMPLER_BENCH(temperature);
ATOM_SAMPLER_BENCH(top_k_top_p);
ATOM_SAMPLER_BENCH(top_p);
ATOM_SAMPLER_BENCH(min_p);
ATOM_SAMPLER_BENCH(logprobs);

}  // namespace
}  // namespace atom
