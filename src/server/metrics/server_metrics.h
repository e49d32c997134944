// Everything /metrics shows. What vLLM's V1 engine exports under `vllm:NAME` appears under that
// name and under `atom:NAME`; what only atom counts, under `atom:` alone; and process_*.
// Any thread may call any method; those that come with every delta are wait-free.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "base/mutex.h"
#include "engine/core_stats.h"
#include "engine/request_output.h"
#include "server/metrics/exposition.h"
#include "server/metrics/metric.h"

namespace atom::server {

// What does not change while the server runs.
struct ServerMetricsOptions {
  std::string model_name;
  int32_t max_model_len = 0;  // tokens; the histograms of token counts reach this far
  // The KV cache's, for cache_config_info.
  int32_t block_size = 0;
  int32_t num_blocks = 0;
  bool enable_prefix_caching = false;
  std::string cache_dtype;  // "bfloat16"
};

// The engine at the moment of the scrape. Counters may start again at 0 when the engine restarts.
struct EngineSample {
  bool up = false;
  uint64_t num_restarts = 0;
  uint64_t num_unresponsive = 0;  // times that it made no progress for too long
  CoreStats core;
  uint64_t num_http_connections = 0;
};

// One finished answer. Seconds of the steady clock; 0: did not happen or is not known, and leaves
// out what would be computed from it.
struct RequestRecord {
  double arrival = 0;
  double scheduled = 0;
  double first_token = 0;
  double finished = 0;
  int32_t num_prompt_tokens = 0;
  int32_t num_generated_tokens = 0;
  int32_t n = 0;           // answers the request asked for; 0 in all but one answer's record
  int32_t max_tokens = 0;  // 0: the request named none
  FinishReason finish_reason = FinishReason::kNone;
};

enum class RejectReason {
  kQueueFull,
  kDraining,
  kEngineDown,
  kUnauthorized,
  kInvalid,
  kRateLimited
};
inline constexpr int kNumRejectReasons = 6;

// For the first delta of an answer, before which there is no gap.
inline constexpr double kNoGap = -1;

class ServerMetrics {
 public:
  explicit ServerMetrics(const ServerMetricsOptions& options);

  // A delta of `count` tokens, `seconds_since_previous` after the one before in the same answer.
  // Each token counts as a `count`-th of the gap.
  void observe_tokens(int32_t count, double seconds_since_previous) {
    if (count <= 0) return;
    const auto times = static_cast<uint64_t>(count);
    generation_tokens_.add(times);
    if (seconds_since_previous >= 0) {
      inter_token_latency_.observe(seconds_since_previous / count, times);
    }
  }
  // A prompt is computed: its first token came `seconds` after the request. Once per prompt; the
  // token itself goes to observe_tokens(1, kNoGap).
  void observe_first_token(double seconds, int32_t num_prompt_tokens);
  // Once per answer, however it ended.
  void observe_finished(const RequestRecord& record);

  // `endpoint`: the pattern of the route, or a fixed word for what has none; never the path that a
  // client sent. Methods and statuses outside HTTP's own, and endpoints beyond the first 64, are
  // counted as "other".
  void count_http(std::string_view method, std::string_view endpoint, int status, double seconds);
  void count_rejected(RejectReason reason);
  // Fields of bodies that nobody knows.
  void count_unknown_fields(uint64_t count) { unknown_fields_.add(count); }
  // A client went away before its answer was complete.
  void count_disconnect() { disconnects_.add(); }

  // All of it, as kExpositionContentType. Takes some hundred microseconds.
  std::string render(const EngineSample& engine) const;

 private:
  struct HttpEndpoint {
    HttpEndpoint();
    std::map<std::pair<std::string, int>, uint64_t> counts;  // by method and status; 0: other
    Histogram duration;
  };
  class VllmWriter;

  void render_engine(const EngineSample& engine, VllmWriter* both, ExpositionWriter* out) const;
  void render_requests(VllmWriter* both) const;
  void render_http(const EngineSample& engine, ExpositionWriter* out) const;

  const std::string labels_;        // model_name and engine
  const std::string cache_labels_;  // of cache_config_info

  Counter prompt_tokens_;
  Counter generation_tokens_;
  Counter finished_[4];  // by reason, from kStop
  Counter rejected_[kNumRejectReasons];
  Counter disconnects_;
  Counter unknown_fields_;
  Histogram time_to_first_token_;
  Histogram inter_token_latency_;
  Histogram time_per_output_token_;
  Histogram e2e_latency_;
  Histogram queue_time_;
  Histogram inference_time_;
  Histogram prefill_time_;
  Histogram decode_time_;
  Histogram prompt_length_;
  Histogram generation_length_;
  Histogram params_n_;
  Histogram params_max_tokens_;

  mutable Mutex mutex_;
  std::map<std::string, HttpEndpoint, std::less<>> endpoints_ GUARDED_BY(mutex_);
};

}  // namespace atom::server
