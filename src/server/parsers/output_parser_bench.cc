// What feed() costs for each token of a stream, in the states that answers are in most of the time.
#include <benchmark/benchmark.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/parsers/output_parser.h"

namespace atom::server {
namespace {

// Pieces as tokens are: words of prose or code.
constexpr std::string_view kTokens[] = {"The",
                                        " quick",
                                        " brown",
                                        " fox",
                                        ",",
                                        " if",
                                        " x",
                                        " <",
                                        " 10",
                                        ":\n",
                                        "   ",
                                        " it",
                                        "'s",
                                        " jump",
                                        "ing",
                                        "."};

void run(benchmark::State& state,
         const char* tools_name,
         const char* reasoning_name,
         std::string_view opening) {
  const auto format = make_output_format({tools_name, reasoning_name}, "").value();
  const OrderedJson tools = OrderedJson::parse(
      R"([{"function": {"name": "f", "parameters": {"properties": {"k": {"type": "string"}}}}}])");
  constexpr size_t kTokensOfAnswer = 4096;
  size_t num_bytes = 0;
  for (auto _ : state) {
    const auto parser = format->make_parser("", &tools, 1);
    benchmark::DoNotOptimize(parser->feed(opening));
    for (size_t i = 0; i < kTokensOfAnswer; ++i) {
      const OutputDelta delta = parser->feed(kTokens[i % std::size(kTokens)]);
      num_bytes += delta.content.size() + delta.reasoning.size() + delta.tool_calls.size();
    }
  }
  benchmark::DoNotOptimize(num_bytes);
  state.counters["per_token"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kTokensOfAnswer,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(run, plain_content, "none", "none", "");
BENCHMARK_CAPTURE(run, hermes_content, "hermes", "qwen3", "x");
BENCHMARK_CAPTURE(run, hermes_reasoning, "hermes", "qwen3", "<think>");
BENCHMARK_CAPTURE(run,
                  hermes_arguments,
                  "hermes",
                  "qwen3",
                  "<tool_call>{\"name\": \"f\", \"arguments\": {\"k\": \"");
BENCHMARK_CAPTURE(run,
                  qwen3_coder_arguments,
                  "qwen3_coder",
                  "qwen3",
                  "<tool_call>\n<function=f>\n<parameter=k>\n");
BENCHMARK_CAPTURE(run, deepseek_content, "deepseek_v31", "none", "x");
BENCHMARK_CAPTURE(run, harmony_content, "openai", "auto", "<|channel|>final<|message|>");

}  // namespace
}  // namespace atom::server
