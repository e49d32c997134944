#include "server/metrics/server_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/metrics/process_stats.h"

namespace atom::server {
namespace {

constexpr double kNanoseconds = Histogram::kNanoseconds;
constexpr double kWhole = Histogram::kWhole;
constexpr size_t kMaxEndpoints = 64;
constexpr std::string_view kOther = "other";
constexpr FinishReason kFinishReasons[] = {
    FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort, FinishReason::kError};
constexpr std::string_view kFinishReasonNames[] = {"stop", "length", "abort", "error"};
constexpr std::string_view kRejectReasonNames[kNumRejectReasons] = {
    "queue_full", "draining", "engine_down", "unauthorized", "invalid", "rate_limited"};
constexpr std::string_view kMethods[] = {
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"};

// The bounds of these three are those of vLLM, so that its dashboards and alerts work.
std::vector<double> first_token_bounds() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
}
std::vector<double> token_gap_bounds() {
  return {0.01,
          0.025,
          0.05,
          0.075,
          0.1,
          0.15,
          0.2,
          0.3,
          0.4,
          0.5,
          0.75,
          1,
          2.5,
          5,
          7.5,
          10,
          20,
          40,
          80};
}
std::vector<double> latency_bounds() {
  return {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
          30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
}
std::vector<double> http_duration_bounds() {
  return {0.001,
          0.0025,
          0.005,
          0.01,
          0.025,
          0.05,
          0.1,
          0.25,
          0.5,
          1,
          2.5,
          5,
          10,
          30,
          60,
          120,
          300,
          600};
}
std::vector<double> answer_count_bounds() {
  return {1, 2, 5, 10, 20};
}

// 1, 2, 5, 10, 20, 50, ... up to `max`.
std::vector<double> token_count_bounds(int32_t max) {
  std::vector<double> bounds;
  for (double decade = 1; decade <= max; decade *= 10) {
    for (const double digit : {1, 2, 5}) {
      if (digit * decade <= max) bounds.push_back(digit * decade);
    }
  }
  if (bounds.empty()) bounds.push_back(1);
  return bounds;
}

std::string cache_labels(const ServerMetricsOptions& options) {
  return format_labels({{"block_size", std::to_string(options.block_size)},
                        {"cache_dtype", options.cache_dtype},
                        {"enable_prefix_caching", options.enable_prefix_caching ? "True" : "False"},
                        {"engine", "0"},
                        {"num_gpu_blocks", std::to_string(options.num_blocks)}});
}

// A count of parts, of which `parts` make one. A count of ones stays exact.
uint64_t in_ones(uint64_t count, int parts) {
  return count / static_cast<uint64_t>(parts);
}
double in_ones(uint64_t count, double parts) {
  return static_cast<double>(count) / parts;
}

std::string with_label(std::string labels, std::string_view name, std::string_view value) {
  return std::move(labels) + "," + format_labels({{name, value}});
}

}  // namespace

ServerMetrics::HttpEndpoint::HttpEndpoint() : duration(http_duration_bounds(), kNanoseconds) {}

ServerMetrics::ServerMetrics(const ServerMetricsOptions& options)
    : labels_(format_labels({{"model_name", options.model_name}, {"engine", "0"}})),
      cache_labels_(cache_labels(options)),
      time_to_first_token_(first_token_bounds(), kNanoseconds),
      inter_token_latency_(token_gap_bounds(), kNanoseconds),
      time_per_output_token_(token_gap_bounds(), kNanoseconds),
      e2e_latency_(latency_bounds(), kNanoseconds),
      queue_time_(latency_bounds(), kNanoseconds),
      inference_time_(latency_bounds(), kNanoseconds),
      prefill_time_(latency_bounds(), kNanoseconds),
      decode_time_(latency_bounds(), kNanoseconds),
      prompt_length_(token_count_bounds(options.max_model_len), kWhole),
      generation_length_(token_count_bounds(options.max_model_len), kWhole),
      params_n_(answer_count_bounds(), kWhole),
      params_max_tokens_(token_count_bounds(options.max_model_len), kWhole) {}

void ServerMetrics::observe_first_token(double seconds, int32_t num_prompt_tokens) {
  time_to_first_token_.observe(seconds);
  prompt_tokens_.add(static_cast<uint64_t>(std::max(0, num_prompt_tokens)));
}

void ServerMetrics::observe_finished(const RequestRecord& record) {
  const auto reason =
      std::find(std::begin(kFinishReasons), std::end(kFinishReasons), record.finish_reason);
  if (reason != std::end(kFinishReasons)) finished_[reason - std::begin(kFinishReasons)].add();

  e2e_latency_.observe(record.finished - record.arrival);
  prompt_length_.observe(record.num_prompt_tokens);
  generation_length_.observe(record.num_generated_tokens);
  if (record.n > 0) params_n_.observe(record.n);
  if (record.max_tokens > 0) params_max_tokens_.observe(record.max_tokens);
  if (record.scheduled > 0) {
    queue_time_.observe(record.scheduled - record.arrival);
    inference_time_.observe(record.finished - record.scheduled);
    if (record.first_token > 0) prefill_time_.observe(record.first_token - record.scheduled);
  }
  if (record.first_token > 0) {
    const double decode_seconds = record.finished - record.first_token;
    decode_time_.observe(decode_seconds);
    if (record.num_generated_tokens > 1) {
      time_per_output_token_.observe(decode_seconds / (record.num_generated_tokens - 1));
    }
  }
}

void ServerMetrics::count_http(std::string_view method,
                               std::string_view endpoint,
                               int status,
                               double seconds) {
  if (std::find(std::begin(kMethods), std::end(kMethods), method) == std::end(kMethods)) {
    method = kOther;
  }
  if (status < 100 || status > 599) status = 0;
  const MutexLock lock(&mutex_);
  auto entry = endpoints_.find(endpoint);
  if (entry == endpoints_.end()) {
    const std::string_view name = endpoints_.size() < kMaxEndpoints ? endpoint : kOther;
    entry = endpoints_.try_emplace(std::string(name)).first;
  }
  ++entry->second.counts[{std::string(method), status}];
  entry->second.duration.observe(seconds);
}

void ServerMetrics::count_rejected(RejectReason reason) {
  rejected_[static_cast<size_t>(reason)].add();
}

// Writes a family under both prefixes.
class ServerMetrics::VllmWriter {
 public:
  VllmWriter(std::string_view labels, ExpositionWriter* out) : labels_(labels), out_(out) {}

  template <typename WriteSamples>
  void family(std::string_view name,
              MetricType type,
              std::string_view help,
              const WriteSamples& write_samples) {
    for (const std::string_view prefix : {"vllm:", "atom:"}) {
      out_->family(fmt::format("{}{}", prefix, name), type, help);
      write_samples();
    }
  }
  void counter(std::string_view name, std::string_view help, uint64_t value) {
    family(name, MetricType::kCounter, help, [&] { out_->sample(labels_, value); });
  }
  void gauge(std::string_view name, std::string_view help, double value) {
    family(name, MetricType::kGauge, help, [&] { out_->sample(labels_, value); });
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram) {
    const Histogram::Snapshot snapshot = histogram.snapshot();
    family(name, MetricType::kHistogram, help, [&] {
      out_->histogram(labels_, snapshot, histogram.bounds());
    });
  }
  ExpositionWriter* out() const { return out_; }

 private:
  const std::string_view labels_;
  ExpositionWriter* const out_;
};

void ServerMetrics::render_engine(const EngineSample& engine,
                                  VllmWriter* both,
                                  ExpositionWriter* out) const {
  const auto show =
      [&](std::string_view family, MetricType type, std::string_view help, auto value) {
        constexpr std::string_view kVllm = "vllm:";
        if (family.starts_with(kVllm)) {
          both->family(
              family.substr(kVllm.size()), type, help, [&] { out->sample(labels_, value); });
        } else if (!family.empty()) {
          out->family(family, type, help);
          out->sample(labels_, value);
        }
      };
#define COUNTER(name, family, parts, help) \
  show(family, MetricType::kCounter, help, in_ones(engine.core.name, parts));
#define GAUGE(name, family, help) \
  show(family, MetricType::kGauge, help, static_cast<double>(engine.core.name));
#include "engine/core_stats.def"
#undef COUNTER
#undef GAUGE
  both->family("spec_decode_num_accepted_tokens_per_pos_total",
               MetricType::kCounter,
               "Draft tokens that were accepted, by their place behind a sampled token.",
               [&] {
                 int position = 0;
                 for (const auto counter : CoreStats::kAcceptedAt) {
                   out->sample(with_label(labels_, "position", std::to_string(position++)),
                               engine.core.*counter);
                 }
               });
  const int64_t used_blocks = engine.core.num_blocks - engine.core.num_free_blocks;
  both->gauge("kv_cache_usage_perc",
              "Part of the KV cache in use; 1 is all of it.",
              engine.core.num_blocks > 0
                  ? static_cast<double>(used_blocks) / static_cast<double>(engine.core.num_blocks)
                  : 0.0);
  both->family("cache_config_info", MetricType::kGauge, "How the KV cache is laid out.", [&] {
    out->sample(cache_labels_, uint64_t{1});
  });

  show("atom:engine_up",
       MetricType::kGauge,
       "1 when the engine takes requests.",
       uint64_t{engine.up});
  show("atom:engine_restarts_total",
       MetricType::kCounter,
       "Times that the engine was started again.",
       engine.num_restarts);
  show("atom:engine_unresponsive_total",
       MetricType::kCounter,
       "Times that the engine made no progress.",
       engine.num_unresponsive);
}

void ServerMetrics::render_requests(VllmWriter* both) const {
  both->counter("prompt_tokens_total",
                "Prompt tokens of requests that got to their first token.",
                prompt_tokens_.value());
  both->counter("generation_tokens_total", "Tokens generated.", generation_tokens_.value());
  both->family(
      "request_success_total", MetricType::kCounter, "Answers finished, by what ended them.", [&] {
        for (size_t i = 0; i < std::size(kFinishReasons); ++i) {
          both->out()->sample(with_label(labels_, "finished_reason", kFinishReasonNames[i]),
                              finished_[i].value());
        }
      });
  both->histogram(
      "time_to_first_token_seconds", "From the request to its first token.", time_to_first_token_);
  both->histogram(
      "inter_token_latency_seconds", "Between two tokens of an answer.", inter_token_latency_);
  both->histogram("request_time_per_output_token_seconds",
                  "Mean time per token after the first of an answer.",
                  time_per_output_token_);
  both->histogram(
      "e2e_request_latency_seconds", "From the request to the end of the answer.", e2e_latency_);
  both->histogram(
      "request_queue_time_seconds", "From the request to the first step it is in.", queue_time_);
  both->histogram("request_inference_time_seconds",
                  "From the first step to the end of the answer.",
                  inference_time_);
  both->histogram(
      "request_prefill_time_seconds", "From the first step to the first token.", prefill_time_);
  both->histogram("request_decode_time_seconds",
                  "From the first token to the end of the answer.",
                  decode_time_);
  both->histogram("request_prompt_tokens", "Tokens of a prompt.", prompt_length_);
  both->histogram("request_generation_tokens", "Tokens of an answer.", generation_length_);
  both->histogram("request_params_n", "Answers asked for.", params_n_);
  both->histogram("request_params_max_tokens", "Limits of tokens asked for.", params_max_tokens_);
}

void ServerMetrics::render_http(const EngineSample& engine, ExpositionWriter* out) const {
  out->family("atom:http_connections", MetricType::kGauge, "Connections that are open.");
  out->sample("", engine.num_http_connections);
  out->family("atom:disconnects_total",
              MetricType::kCounter,
              "Clients that went away before their answer was complete.");
  out->sample("", disconnects_.value());
  out->family("atom:unknown_fields_total",
              MetricType::kCounter,
              "Fields of requests that are not known and were not read.");
  out->sample("", unknown_fields_.value());
  out->family("atom:requests_rejected_total",
              MetricType::kCounter,
              "Requests refused before they reached the engine, by reason.");
  for (int i = 0; i < kNumRejectReasons; ++i) {
    out->sample(format_labels({{"reason", kRejectReasonNames[i]}}), rejected_[i].value());
  }

  const MutexLock lock(&mutex_);
  out->family("atom:http_requests_total", MetricType::kCounter, "Requests answered.");
  for (const auto& [endpoint, series] : endpoints_) {
    for (const auto& [key, count] : series.counts) {
      const auto& [method, status] = key;
      const std::string code = status == 0 ? std::string(kOther) : std::to_string(status);
      out->sample(format_labels({{"method", method}, {"endpoint", endpoint}, {"status", code}}),
                  count);
    }
  }
  out->family("atom:http_request_duration_seconds",
              MetricType::kHistogram,
              "From a request to the last byte of its response.");
  for (const auto& [endpoint, series] : endpoints_) {
    out->histogram(format_labels({{"endpoint", endpoint}}),
                   series.duration.snapshot(),
                   series.duration.bounds());
  }
}

namespace {

void render_process(ExpositionWriter* out) {
  const std::optional<ProcessStats> stats = read_process_stats();
  if (!stats) return;
  const auto write =
      [out](std::string_view name, MetricType type, std::string_view help, auto value) {
        out->family(name, type, help);
        out->sample("", value);
      };
  write("process_cpu_seconds_total",
        MetricType::kCounter,
        "User and system time of the process.",
        stats->cpu_seconds);
  write("process_open_fds", MetricType::kGauge, "Open file descriptors.", stats->num_open_fds);
  write("process_max_fds",
        MetricType::kGauge,
        "File descriptors that may be open.",
        stats->max_open_fds);
  write(
      "process_virtual_memory_bytes", MetricType::kGauge, "Virtual memory.", stats->virtual_memory);
  write("process_resident_memory_bytes",
        MetricType::kGauge,
        "Resident memory.",
        stats->resident_memory);
  write("process_threads", MetricType::kGauge, "Threads of the process.", stats->num_threads);
  write("process_start_time_seconds",
        MetricType::kGauge,
        "Start of the process, in seconds since 1970.",
        stats->start_time);
}

}  // namespace

std::string ServerMetrics::render(const EngineSample& engine) const {
  ExpositionWriter out;
  VllmWriter both(labels_, &out);
  render_engine(engine, &both, &out);
  render_requests(&both);
  render_http(engine, &out);
  render_process(&out);
  return out.take();
}

}  // namespace atom::server
