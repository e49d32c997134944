// What a run came to. Definitions and names are those of vLLM's `bench serve`. Pure functions.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bench_serve/load_generator.h"

namespace atom::bench_serve {

// Milliseconds. All zero when count is.
struct Summary {
  size_t count = 0;
  double mean = 0, median = 0, std = 0, max = 0;
  std::vector<std::pair<double, double>> percentiles;  // (percentile, value)
};

// The value below which `percent` of the sorted values lie, interpolated linearly; 0 of none.
double percentile(std::span<const double> sorted, double percent);
// Summarizes values in seconds; sorts them.
Summary summarize(std::vector<double>* seconds, std::span<const double> percentiles);

// Milliseconds that a good request does not pass; a request without the figure passes.
struct Goodput {
  std::optional<double> ttft, tpot, e2el;
  bool any() const { return ttft || tpot || e2el; }
};

struct MetricOptions {
  std::vector<double> percentiles = {50, 90, 95, 99};
  Goodput goodput;
};

struct Metrics {
  size_t completed = 0, failed = 0;
  size_t cancelled = 0;  // by the user: under way or not begun
  std::array<size_t, kNumErrorKinds> errors{};
  double duration = 0;                        // seconds
  int64_t total_input = 0, total_output = 0;  // tokens of completed requests
  bool output_is_counted = false;  // for lack of usage, events stand for tokens somewhere
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;
  std::optional<double> request_goodput;
  double max_output_tokens_per_s = 0;  // in a second of the run, or over all of it if that is more
  size_t max_concurrent_requests = 0;
  Summary ttft, tpot, itl, e2el;
  Summary queue_time;     // waited for the limit of concurrency
  Summary lateness;       // of the generator itself
  double client_cpu = 0;  // share of a core that the generator used
};

int64_t input_tokens(const RequestRecord& record);
int64_t output_tokens(const RequestRecord& record);
// Seconds; negative when there is none.
double ttft_of(const RequestRecord& record);
double tpot_of(const RequestRecord& record);
double e2el_of(const RequestRecord& record);

// Calls `visit(time, tokens)` for each event of the answer, `time` in seconds since the start of
// the run; what usage counts beyond the events is spread over them evenly.
template <typename Visit>
void visit_tokens(const RequestRecord& record, Visit&& visit) {
  const Answer& answer = record.answer;
  if (answer.num_token_events == 0) return;
  const double each =
      static_cast<double>(output_tokens(record)) / static_cast<double>(answer.num_token_events);
  double time = answer.first_token;
  visit(time, each);
  for (const float gap : answer.gaps) {
    time += gap;
    visit(time, each);
  }
}

Metrics compute_metrics(const LoadResult& run, const MetricOptions& options);

}  // namespace atom::bench_serve
