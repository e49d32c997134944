// The four times that are measured of every request, as results and people call them.
#pragma once

#include <span>
#include <string>

#include "bench_serve/metrics.h"

namespace atom::bench_serve {

struct MetricName {
  const char* key;    // "ttft"
  const char* label;  // "TTFT"
  const char* title;  // "time to first token"
  Summary Metrics::*summary;
};

std::span<const MetricName> metric_names();

// "p99", "p99.9"
std::string percentile_name(double percent);

}  // namespace atom::bench_serve
