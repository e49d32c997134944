#include "bench_serve/result_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench_serve/metric_names.h"

namespace atom::bench_serve {
namespace {

OrderedJson number_or_inf(double value) {
  return std::isinf(value) ? OrderedJson("inf") : OrderedJson(value);
}

void add_options(const BenchmarkReport& report, OrderedJson* json) {
  const BenchmarkOptions& options = report.options;
  char date[32];
  std::tm local{};
  localtime_r(&report.started_at, &local);
  std::strftime(date, sizeof date, "%Y%m%d-%H%M%S", &local);
  OrderedJson& out = *json;
  out["date"] = date;
  out["endpoint_type"] = options.endpoint == EndpointKind::kChat ? "openai-chat" : "openai";
  out["backend"] = out["endpoint_type"];
  out["label"] = options.label.empty() ? OrderedJson() : OrderedJson(options.label);
  out["model_id"] = report.model;
  out["tokenizer_id"] = options.tokenizer.empty() ? OrderedJson() : OrderedJson(options.tokenizer);
  out["base_url"] = options.base_url;
  out["endpoint"] = report.endpoint_path;
  out["dataset_name"] = dataset_name(options.dataset);
  out["seed"] = options.seed;
  out["num_prompts"] = options.num_prompts;
  out["request_rate"] = number_or_inf(options.arrivals.request_rate);
  out["burstiness"] = number_or_inf(options.arrivals.burstiness);
  out["max_concurrency"] =
      options.max_concurrency == 0 ? OrderedJson() : OrderedJson(options.max_concurrency);
  if (options.arrivals.ramp_up != RampUp::kNone) {
    const bool linear = options.arrivals.ramp_up == RampUp::kLinear;
    out["ramp_up_strategy"] = linear ? "linear" : "exponential";
    out["ramp_up_start_rps"] = options.arrivals.ramp_up_start;
    out["ramp_up_end_rps"] = options.arrivals.ramp_up_end;
  }
}

void add_metrics(const BenchmarkReport& report, OrderedJson* json) {
  const Metrics& metrics = report.metrics;
  OrderedJson& out = *json;
  out["duration"] = metrics.duration;
  out["completed"] = metrics.completed;
  out["failed"] = metrics.failed;
  out["cancelled"] = metrics.cancelled;
  OrderedJson errors = OrderedJson::object();
  for (int i = 1; i < kNumErrorKinds; ++i) {
    const size_t count = metrics.errors[static_cast<size_t>(i)];
    if (count > 0) errors[error_kind_name(static_cast<ErrorKind>(i))] = count;
  }
  out["failed_by_kind"] = std::move(errors);
  out["total_input_tokens"] = metrics.total_input;
  out["total_output_tokens"] = metrics.total_output;
  out["output_tokens_from"] = metrics.output_is_counted ? "events" : "usage";
  out["request_throughput"] = metrics.request_throughput;
  out["request_goodput"] =
      metrics.request_goodput ? OrderedJson(*metrics.request_goodput) : OrderedJson();
  out["output_throughput"] = metrics.output_throughput;
  out["total_token_throughput"] = metrics.total_token_throughput;
  out["max_output_tokens_per_s"] = metrics.max_output_tokens_per_s;
  out["max_concurrent_requests"] = metrics.max_concurrent_requests;
}

void add_summary(const std::string& name, const Summary& summary, OrderedJson* json) {
  OrderedJson& out = *json;
  out["mean_" + name + "_ms"] = summary.mean;
  out["median_" + name + "_ms"] = summary.median;
  out["std_" + name + "_ms"] = summary.std;
  for (const auto& [percent, value] : summary.percentiles) {
    out[percentile_name(percent) + "_" + name + "_ms"] = value;
  }
}

void add_client(const BenchmarkReport& report, OrderedJson* json) {
  OrderedJson& out = *json;
  out["client_num_connections"] = report.run.num_connections;
  out["client_cpu_cores"] = report.metrics.client_cpu;
  add_summary("client_lateness", report.metrics.lateness, json);
}

void add_requests(const BenchmarkReport& report, OrderedJson* json) {
  OrderedJson input_lens = OrderedJson::array(), output_lens = OrderedJson::array();
  OrderedJson ttfts = OrderedJson::array(), itls = OrderedJson::array();
  OrderedJson latencies = OrderedJson::array(), start_times = OrderedJson::array();
  OrderedJson queue_times = OrderedJson::array(), errors = OrderedJson::array();
  for (const RequestRecord& record : report.run.records) {
    input_lens.push_back(input_tokens(record));
    const bool is_success = record.answer.error_kind == ErrorKind::kNone && record.started();
    output_lens.push_back(is_success ? output_tokens(record) : 0);
    ttfts.push_back(std::max(ttft_of(record), 0.0));
    itls.push_back(record.answer.gaps);
    latencies.push_back(record.started() ? std::max(e2el_of(record), 0.0) : 0.0);
    start_times.push_back(record.start);
    queue_times.push_back(record.started() ? record.start - record.scheduled : 0.0);
    errors.push_back(record.answer.error);
  }
  OrderedJson& out = *json;
  out["input_lens"] = std::move(input_lens);
  out["output_lens"] = std::move(output_lens);
  out["ttfts"] = std::move(ttfts);
  out["itls"] = std::move(itls);
  out["latencies"] = std::move(latencies);
  out["start_times"] = std::move(start_times);
  out["queue_times"] = std::move(queue_times);
  out["errors"] = std::move(errors);
}

}  // namespace

OrderedJson result_json(const BenchmarkReport& report, const ResultJsonOptions& options) {
  OrderedJson json = OrderedJson::object();
  add_options(report, &json);
  add_metrics(report, &json);
  for (const MetricName& metric : metric_names()) {
    const bool is_wanted = std::find(options.metrics.begin(), options.metrics.end(), metric.key) !=
                           options.metrics.end();
    if (is_wanted) add_summary(metric.key, report.metrics.*metric.summary, &json);
  }
  if (report.options.max_concurrency > 0) {
    add_summary("client_queue_time", report.metrics.queue_time, &json);
  }
  add_client(report, &json);
  if (options.detailed) add_requests(report, &json);
  return json;
}

}  // namespace atom::bench_serve
