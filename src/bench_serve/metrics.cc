#include "bench_serve/metrics.h"

#include <algorithm>
#include <cmath>

namespace atom::bench_serve {
namespace {

// Seconds of a run that get a bin of their own; a run of a day has fewer.
constexpr size_t kMaxBins = 1 << 18;

bool is_good(const RequestRecord& record, const Goodput& goodput) {
  const auto within = [](double seconds, const std::optional<double>& limit) {
    return !limit || seconds * 1e3 <= *limit;
  };
  return within(ttft_of(record), goodput.ttft) && within(tpot_of(record), goodput.tpot) &&
         within(e2el_of(record), goodput.e2el);
}

size_t peak_concurrency(std::span<const RequestRecord> records) {
  std::vector<std::pair<double, int>> changes;
  for (const RequestRecord& record : records) {
    if (!record.started() || record.answer.end < record.start) continue;
    changes.emplace_back(record.start, 1);
    changes.emplace_back(record.answer.end, -1);
  }
  // At the same moment, who leaves goes first.
  std::sort(changes.begin(), changes.end());
  int now = 0, peak = 0;
  for (const auto& [time, change] : changes) peak = std::max(peak, now += change);
  return static_cast<size_t>(peak);
}

double peak_token_rate(std::span<const RequestRecord> records, double duration) {
  std::vector<double> bins(std::min(kMaxBins, static_cast<size_t>(duration) + 1));
  for (const RequestRecord& record : records) {
    visit_tokens(record, [&](double time, double tokens) {
      const auto bin = static_cast<size_t>(std::max(time, 0.0));
      if (bin < bins.size()) bins[bin] += tokens;
    });
  }
  return bins.empty() ? 0 : *std::max_element(bins.begin(), bins.end());
}

void count_outcomes(const LoadResult& run, Metrics* metrics) {
  for (const RequestRecord& record : run.records) {
    const ErrorKind kind = record.answer.error_kind;
    if (!record.started() || kind == ErrorKind::kCancelled) {
      ++metrics->cancelled;
    } else if (kind != ErrorKind::kNone) {
      ++metrics->failed;
      ++metrics->errors[static_cast<size_t>(kind)];
    } else {
      ++metrics->completed;
    }
  }
}

}  // namespace

double percentile(std::span<const double> sorted, double percent) {
  if (sorted.empty()) return 0;
  const double rank = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::clamp(rank, 0.0, double(sorted.size() - 1)));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], rank - static_cast<double>(below));
}

Summary summarize(std::vector<double>* seconds, std::span<const double> percentiles) {
  Summary summary;
  summary.count = seconds->size();
  std::sort(seconds->begin(), seconds->end());
  double sum = 0;
  for (const double value : *seconds) sum += value;
  const auto count = static_cast<double>(std::max<size_t>(summary.count, 1));
  const double mean = sum / count;
  double squares = 0;
  for (const double value : *seconds) squares += (value - mean) * (value - mean);
  summary.mean = mean * 1e3;
  summary.std = std::sqrt(squares / count) * 1e3;
  summary.median = percentile(*seconds, 50) * 1e3;
  summary.max = percentile(*seconds, 100) * 1e3;
  for (const double percent : percentiles) {
    summary.percentiles.emplace_back(percent, percentile(*seconds, percent) * 1e3);
  }
  return summary;
}

int64_t input_tokens(const RequestRecord& record) {
  return record.answer.prompt_tokens >= 0 ? record.answer.prompt_tokens : record.prompt_len;
}

int64_t output_tokens(const RequestRecord& record) {
  return record.answer.completion_tokens >= 0 ? record.answer.completion_tokens
                                              : record.answer.num_token_events;
}

double ttft_of(const RequestRecord& record) {
  return record.answer.first_token < 0 ? -1 : record.answer.first_token - record.start;
}

double tpot_of(const RequestRecord& record) {
  const int64_t tokens = output_tokens(record);
  if (record.answer.first_token < 0 || tokens < 2) return -1;
  return (record.answer.end - record.answer.first_token) / static_cast<double>(tokens - 1);
}

double e2el_of(const RequestRecord& record) {
  return record.answer.end < 0 ? -1 : record.answer.end - record.start;
}

Metrics compute_metrics(const LoadResult& run, const MetricOptions& options) {
  Metrics metrics;
  metrics.duration = run.duration;
  count_outcomes(run, &metrics);
  std::vector<double> ttfts, tpots, itls, e2els, queue_times, lateness;
  size_t num_good = 0;
  const auto add = [](std::vector<double>* values, double value) {
    if (value >= 0) values->push_back(value);
  };
  for (const RequestRecord& record : run.records) {
    if (!record.started()) continue;
    lateness.push_back(std::max(record.lateness, 0.0));
    if (record.answer.error_kind != ErrorKind::kNone) continue;
    metrics.total_input += input_tokens(record);
    metrics.total_output += output_tokens(record);
    metrics.output_is_counted |= record.answer.completion_tokens < 0;
    add(&ttfts, ttft_of(record));
    add(&tpots, tpot_of(record));
    add(&e2els, e2el_of(record));
    itls.insert(itls.end(), record.answer.gaps.begin(), record.answer.gaps.end());
    queue_times.push_back(std::max(record.start - record.scheduled, 0.0));
    num_good += is_good(record, options.goodput) ? 1 : 0;
  }
  if (run.duration > 0) {
    const auto rate = [&](auto count) { return static_cast<double>(count) / run.duration; };
    metrics.request_throughput = rate(metrics.completed);
    metrics.output_throughput = rate(metrics.total_output);
    metrics.total_token_throughput = rate(metrics.total_input + metrics.total_output);
    if (options.goodput.any()) metrics.request_goodput = rate(num_good);
    metrics.client_cpu = rate(run.cpu_seconds);
  }
  // A run's last second may not be whole: what came then counts as if nothing followed.
  metrics.max_output_tokens_per_s =
      std::max(peak_token_rate(run.records, run.duration), metrics.output_throughput);
  metrics.max_concurrent_requests = peak_concurrency(run.records);
  metrics.ttft = summarize(&ttfts, options.percentiles);
  metrics.tpot = summarize(&tpots, options.percentiles);
  metrics.itl = summarize(&itls, options.percentiles);
  metrics.e2el = summarize(&e2els, options.percentiles);
  metrics.queue_time = summarize(&queue_times, options.percentiles);
  const std::vector<double> tail = {50, 99};
  metrics.lateness = summarize(&lateness, tail);
  return metrics;
}

}  // namespace atom::bench_serve
