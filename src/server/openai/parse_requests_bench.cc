#include <benchmark/benchmark.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "server/openai/parse_requests.h"

namespace atom::server {
namespace {

constexpr char kCompletion[] =
    R"({"model": "atom", "prompt": "The quick brown fox jumps over the lazy dog.",)"
    R"( "max_tokens": 128, "temperature": 0.7, "top_p": 0.9, "stream": true,)"
    R"( "stream_options": {"include_usage": true}, "seed": 7, "stop": ["\n\n"]})";
constexpr char kChat[] =
    R"({"model": "atom", "messages": [{"role": "system", "content": "You are helpful."},)"
    R"( {"role": "user", "content": "What is the capital of France?"}], "max_tokens": 128,)"
    R"( "temperature": 0.7, "stream": true})";

void json_only(benchmark::State& state, std::string_view body) {
  for (auto _ : state) benchmark::DoNotOptimize(parse_ordered_json(body, "the body"));
}

void completion(benchmark::State& state, std::string_view body) {
  const SamplingParams defaults;
  for (auto _ : state) {
    const auto parsed = parse_completion_request(body, defaults);
    CHECK(std::holds_alternative<CompletionRequest>(parsed));
  }
}

void chat_completion(benchmark::State& state, std::string_view body) {
  const SamplingParams defaults;
  for (auto _ : state) {
    const auto parsed = parse_chat_completion_request(body, defaults);
    CHECK(std::holds_alternative<ChatCompletionRequest>(parsed));
  }
}

std::string completion_of_ids(int num_ids) {
  OrderedJson body;
  for (int i = 0; i < num_ids; ++i) body["prompt"].push_back(i * 31 % 150000);
  return body.dump();
}
const std::string kTokenIds = completion_of_ids(4096);

BENCHMARK_CAPTURE(json_only, completion, kCompletion);
BENCHMARK_CAPTURE(completion, small, kCompletion);
BENCHMARK_CAPTURE(json_only, chat, kChat);
BENCHMARK_CAPTURE(chat_completion, small, kChat);
BENCHMARK_CAPTURE(json_only, token_ids, kTokenIds);
BENCHMARK_CAPTURE(completion, token_ids, kTokenIds);

}  // namespace
}  // namespace atom::server
