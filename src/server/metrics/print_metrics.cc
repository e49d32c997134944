// Prints what /metrics shows of a server that has answered one request: every name with its labels,
// for tests of what is built on them.
#include <cstdio>

#include "server/metrics/server_metrics.h"

int main() {
  using namespace atom::server;  // NOLINT
  ServerMetricsOptions options;
  options.model_name = std::string("model");
  options.max_model_len = 4096;
  ServerMetrics metrics(options);
  metrics.count_http("POST", "/v1/chat/completions", 200, 0.1);
  const std::string text = metrics.render({});
  return std::fputs(text.c_str(), stdout) < 0;
}
