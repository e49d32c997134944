// A whole run against a server: finds the model, makes the prompts, warms up, sends, measures.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench_serve/arrivals.h"
#include "bench_serve/length_distribution.h"
#include "bench_serve/load_generator.h"
#include "bench_serve/metrics.h"
#include "bench_serve/request_body.h"

namespace atom::bench_serve {

enum class Dataset { kRandom, kPrefix, kShareGpt, kCustom };
const char* dataset_name(Dataset dataset);

enum class PromptFormat { kAuto, kTokenIds, kText };

struct BenchmarkOptions {
  // The server.
  std::string base_url = "http://127.0.0.1:8000";
  EndpointKind endpoint = EndpointKind::kCompletions;
  std::string endpoint_path;  // empty: OpenAI's for the endpoint
  std::string model;          // empty: the first that the server lists
  std::string api_key;
  std::vector<std::string> headers;  // "Name: value" or "Name=value"
  bool verify_certificate = true;
  double ready_timeout = 0;  // seconds to wait for the server to answer
  double timeout = 3600;     // seconds for a request

  // The load.
  size_t num_prompts = 100;
  size_t num_warmups = 1;
  ArrivalOptions arrivals;
  size_t max_concurrency = 0;  // 0: no limit
  uint64_t seed = 0;

  // The requests.
  Dataset dataset = Dataset::kRandom;
  std::string dataset_path;
  std::optional<LengthDistribution> input_len, output_len;  // none: what suits the dataset
  double input_range_ratio = 0, output_range_ratio = 0;
  std::optional<int32_t> prefix_len, num_prefixes;
  bool shuffle = true;
  std::string tokenizer;   // a folder
  int32_t vocab_size = 0;  // token ids below it are valid; 0: unknown
  PromptFormat prompt_format = PromptFormat::kAuto;
  std::optional<bool> ignore_eos;  // none: where the lengths are made up
  std::optional<double> temperature;
  std::string extra_body;
  bool stream = true;

  MetricOptions metrics;
  std::string label;
  int stop_fd = -1;  // readable: stop early with what there is
};

struct BenchmarkHooks {
  std::function<void(const std::string& line)> on_note;  // what was decided
  std::function<void(const LiveFigures&)> on_progress;   // of the measured requests
};

struct BenchmarkReport {
  BenchmarkOptions options;
  std::string model;
  std::string endpoint_path;
  std::time_t started_at = 0;
  LoadResult run;
  Metrics metrics;
};

Result<BenchmarkReport> run_benchmark(const BenchmarkOptions& options, const BenchmarkHooks& hooks);

}  // namespace atom::bench_serve
