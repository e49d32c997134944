#include "bench_serve/metric_names.h"

#include <fmt/format.h>

namespace atom::bench_serve {
namespace {

constexpr MetricName kMetricNames[] = {
    {"ttft", "TTFT", "time to first token", &Metrics::ttft},
    {"tpot", "TPOT", "time per output token", &Metrics::tpot},
    {"itl", "ITL", "inter-token latency", &Metrics::itl},
    {"e2el", "E2EL", "end-to-end latency", &Metrics::e2el},
};

}  // namespace

std::span<const MetricName> metric_names() {
  return kMetricNames;
}

std::string percentile_name(double percent) {
  return fmt::format("p{:g}", percent);
}

}  // namespace atom::bench_serve
