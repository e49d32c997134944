// What counting costs the threads that serve, and a scrape.
#include <benchmark/benchmark.h>

#include "server/metrics/server_metrics.h"

namespace atom::server {
namespace {

ServerMetrics& metrics() {
  static ServerMetrics instance([] {
    ServerMetricsOptions options;
    options.model_name = "model";
    options.max_model_len = 131072;
    return options;
  }());
  return instance;
}

void observe_tokens(benchmark::State& bench) {
  // Gaps around 30 ms, scattered over some buckets.
  double gap = 0.02;
  for (auto _ : bench) {
    metrics().observe_tokens(1, gap);
    gap = gap > 0.08 ? 0.005 : gap * 1.3;
  }
}
BENCHMARK(observe_tokens)->Threads(1)->Threads(2);

void count_http(benchmark::State& bench) {
  for (auto _ : bench) metrics().count_http("POST", "/v1/chat/completions", 200, 0.5);
}
BENCHMARK(count_http);

void render(benchmark::State& bench) {
  size_t size = 0;
  for (auto _ : bench) {
    const std::string text = metrics().render({});
    size = text.size();
    benchmark::DoNotOptimize(text.data());
  }
  bench.counters["bytes"] = static_cast<double>(size);
}
BENCHMARK(render);

}  // namespace
}  // namespace atom::server
