// Loading, encoding and decoding speed. Tokenizers beside the repository are skipped when absent.
#include <benchmark/benchmark.h>

#include <cmath>

#include "base/file.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_data_test.h"

namespace atom {
namespace {

std::shared_ptr<const Tokenizer> load_or_skip(const std::string& folder, benchmark::State& state) {
  auto tokenizer = Tokenizer::load(folder);
  if (tokenizer.ok()) return *tokenizer;
  state.SkipWithError(tokenizer.status().message().c_str());
  return nullptr;
}

void bench_load_demo(benchmark::State& state) {
  const std::string folder = shared_path("models/tldr-8m");
  for (auto _ : state) benchmark::DoNotOptimize(load_or_skip(folder, state));
}
BENCHMARK(bench_load_demo)->Unit(benchmark::kMillisecond);

void bench_load_150k(benchmark::State& state) {
  const std::string json = make_large_tokenizer_json(150'000);
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::from_json(json));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(json.size()));
}
BENCHMARK(bench_load_150k)->Unit(benchmark::kMillisecond);

void encode_text(benchmark::State& state, const Tokenizer& tokenizer, const std::string& text) {
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(text, false));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

void bench_encode_150k(benchmark::State& state) {
  const auto tokenizer = Tokenizer::from_json(make_large_tokenizer_json(150'000)).value();
  encode_text(state, *tokenizer, make_prose(1'000'000));
}
BENCHMARK(bench_encode_150k)->Unit(benchmark::kMillisecond);

void bench_encode(benchmark::State& state, const char* folder, const char* character) {
  const auto tokenizer = load_or_skip(shared_path(folder), state);
  if (tokenizer == nullptr) return;
  std::string text;
  if (*character == 0) {
    text = make_prose(1'000'000);
  } else {
    for (int i = 0; i < 1'000'000; ++i) text += character;
  }
  encode_text(state, *tokenizer, text);
}
#define BENCH_ENCODE(name, folder)                                                              \
  BENCHMARK_CAPTURE(bench_encode, name##_prose, folder, "")->Unit(benchmark::kMillisecond);     \
  BENCHMARK_CAPTURE(bench_encode, name##_a, folder, "a")->Unit(benchmark::kMillisecond);        \
  BENCHMARK_CAPTURE(bench_encode, name##_space, folder, " ")->Unit(benchmark::kMillisecond);    \
  BENCHMARK_CAPTURE(bench_encode, name##_newline, folder, "\n")->Unit(benchmark::kMillisecond); \
  BENCHMARK_CAPTURE(bench_encode, name##_mark, folder, "!")->Unit(benchmark::kMillisecond);     \
  BENCHMARK_CAPTURE(bench_encode, name##_digit, folder, "1")->Unit(benchmark::kMillisecond);    \
  BENCHMARK_CAPTURE(bench_encode, name##_accent, folder, "é")->Unit(benchmark::kMillisecond);   \
  BENCHMARK_CAPTURE(bench_encode, name##_han, folder, "中")->Unit(benchmark::kMillisecond)

BENCH_ENCODE(demo, "models/tldr-8m");
BENCH_ENCODE(llama3, "text-fixtures/tokenizers/llama3");
BENCH_ENCODE(qwen2, "text-fixtures/tokenizers/qwen2");
BENCH_ENCODE(o200k, "text-fixtures/tokenizers/o200k");
BENCH_ENCODE(deepseek_v3, "text-fixtures/tokenizers/deepseek_v3");
BENCH_ENCODE(llama2, "text-fixtures/tokenizers/llama2");
BENCH_ENCODE(metaspace, "text-fixtures/tokenizers/metaspace");

void bench_decode(benchmark::State& state) {
  const auto tokenizer = load_or_skip(shared_path("models/tldr-8m"), state);
  if (tokenizer == nullptr) return;
  const std::string text = make_prose(1'000'000);
  const std::vector<int32_t> ids = tokenizer->encode(text, false).value();
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer->decode(ids, true));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(ids.size()));
}
BENCHMARK(bench_decode)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace atom
