// A report as JSON, under the names that vLLM's `bench serve` uses.
#pragma once

#include "base/json.h"
#include "bench_serve/benchmark.h"

namespace atom::bench_serve {

struct ResultJsonOptions {
  std::vector<std::string> metrics = {"ttft", "tpot", "itl", "e2el"};  // that get statistics
  bool detailed = false;                                               // every request
};

OrderedJson result_json(const BenchmarkReport& report, const ResultJsonOptions& options);

}  // namespace atom::bench_serve
