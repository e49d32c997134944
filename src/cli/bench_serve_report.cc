#include "cli/bench_serve_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/human.h"
#include "bench_serve/metric_names.h"
#include "cli/table.h"

namespace atom::cli {
namespace {

using namespace atom::bench_serve;  // NOLINT: nearly every type here is its

constexpr double kLateMs = 1;        // at p99
constexpr double kBusyClient = 0.8;  // share of a core
constexpr size_t kMaxErrors = 5;     // different messages shown
constexpr double kMedian = 50;       // the percentile that has a column of that name

std::string totals_table(const BenchmarkReport& report) {
  const Metrics& metrics = report.metrics;
  Table table({{"figure"}, {"value", Table::Align::kRight}, {"unit"}});
  const auto add = [&](const char* figure, std::string value, const char* unit) {
    table.add_row({figure, std::move(value), unit});
  };
  const auto number = [](double value) { return fmt::format("{:.2f}", value); };
  add("successful requests", fmt::format("{}", metrics.completed), "");
  add("failed requests", fmt::format("{}", metrics.failed), "");
  for (int i = 1; i < kNumErrorKinds; ++i) {
    const size_t count = metrics.errors[static_cast<size_t>(i)];
    if (count == 0) continue;
    add(fmt::format("  {}", error_kind_name(static_cast<ErrorKind>(i))).c_str(),
        fmt::format("{}", count),
        "");
  }
  if (metrics.cancelled > 0) {
    add("interrupted or not sent", fmt::format("{}", metrics.cancelled), "");
  }
  add("duration", number(metrics.duration), "s");
  add("input tokens", fmt::format("{}", metrics.total_input), "");
  add("output tokens", fmt::format("{}", metrics.total_output), "");
  table.add_separator();
  add("request throughput", number(metrics.request_throughput), "req/s");
  if (metrics.request_goodput) add("request goodput", number(*metrics.request_goodput), "req/s");
  add("output throughput", number(metrics.output_throughput), "tok/s");
  add("peak output throughput", number(metrics.max_output_tokens_per_s), "tok/s");
  add("total throughput", number(metrics.total_token_throughput), "tok/s");
  add("peak concurrency", fmt::format("{}", metrics.max_concurrent_requests), "requests");
  return table.to_string();
}

std::string times_table(const BenchmarkReport& report, const std::vector<std::string>& metrics) {
  std::vector<Table::Column> columns = {{"ms"}};
  for (const char* name : {"mean", "median", "std"})
    columns.push_back({name, Table::Align::kRight});
  for (const double percent : report.options.metrics.percentiles) {
    if (percent != kMedian) columns.push_back({percentile_name(percent), Table::Align::kRight});
  }
  Table table(columns);
  const auto add = [&](const std::string& name, const Summary& summary) {
    std::vector<std::string> cells = {name};
    std::vector<double> values = {summary.mean, summary.median, summary.std};
    for (const auto& [percent, value] : summary.percentiles) {
      if (percent != kMedian) values.push_back(value);
    }
    for (const double value : values) {
      cells.push_back(summary.count == 0 ? "-" : fmt::format("{:.2f}", value));
    }
    table.add_row(std::move(cells));
  };
  for (const MetricName& metric : metric_names()) {
    if (std::find(metrics.begin(), metrics.end(), metric.key) == metrics.end()) continue;
    add(fmt::format("{} ({})", metric.title, metric.label), report.metrics.*metric.summary);
  }
  if (report.options.max_concurrency > 0) {
    add("waiting for --max-concurrency", report.metrics.queue_time);
  }
  return table.to_string();
}

}  // namespace

std::string bench_serve_tables(const BenchmarkReport& report,
                               const std::vector<std::string>& metrics) {
  return totals_table(report) + "\n" + times_table(report, metrics);
}

std::vector<std::string> bench_serve_doubts(const BenchmarkReport& report) {
  std::vector<std::string> lines;
  std::map<std::string, size_t> errors;
  for (const RequestRecord& record : report.run.records) {
    const ErrorKind kind = record.answer.error_kind;
    if (kind == ErrorKind::kNone || kind == ErrorKind::kCancelled) continue;
    ++errors[fmt::format("{}: {}", error_kind_name(kind), record.answer.error)];
  }
  std::vector<std::pair<std::string, size_t>> by_count(errors.begin(), errors.end());
  std::stable_sort(by_count.begin(), by_count.end(), [](const auto& a, const auto& b) {
    return a.second > b.second;
  });
  for (size_t i = 0; i < std::min(by_count.size(), kMaxErrors); ++i) {
    lines.push_back(fmt::format("{} x {}", by_count[i].second, by_count[i].first));
  }
  if (by_count.size() > kMaxErrors) {
    lines.push_back(fmt::format("and {} other errors", by_count.size() - kMaxErrors));
  }
  const Metrics& metrics = report.metrics;
  const double late = metrics.lateness.percentiles.back().second;
  const ArrivalOptions& arrivals = report.options.arrivals;
  const bool has_rate = arrivals.ramp_up != RampUp::kNone || !std::isinf(arrivals.request_rate);
  if (has_rate && late > kLateMs) {
    lines.push_back(
        fmt::format("requests left up to {:.1f} ms late (p99): the load is less even "
                    "than asked for",
                    late));
  }
  if (metrics.client_cpu > kBusyClient) {
    lines.push_back(
        fmt::format("this client used {:.0f} % of a core: times may be its own, not "
                    "the server's",
                    metrics.client_cpu * 100));
  }
  if (metrics.output_is_counted && metrics.completed > 0) {
    lines.push_back("the server reports no usage: events were counted as tokens");
  }
  return lines;
}

}  // namespace atom::cli
