// Sends requests on a fixed schedule and records what comes back and when. One thread, the
// caller's: an epoll loop over non-blocking connections that are kept alive and reused.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench_serve/answer_reader.h"
#include "bench_serve/connection.h"

namespace atom::bench_serve {

// All times are seconds since the start of the run.
struct RequestRecord {
  double scheduled = 0;
  double start = -1;       // the generator began to connect or to send; negative: never
  double lateness = 0;     // of the start, behind the schedule and the limit of concurrency
  int32_t prompt_len = 0;  // tokens asked for: what the server counts is in the answer
  bool started() const { return start >= 0; }
  Answer answer;
};

struct PreparedRequest {
  std::string bytes;       // HTTP, complete
  int32_t prompt_len = 0;  // tokens, as far as known
  bool streamed = true;
};

struct LiveFigures {
  double elapsed = 0;  // seconds
  size_t num_started = 0, num_finished = 0, num_failed = 0, num_requests = 0;
  uint64_t num_tokens = 0;  // events that carried tokens
};

struct LoadOptions {
  size_t max_concurrency = 0;  // requests at a time; 0: no limit
  double timeout = 3600;       // seconds for a request, connecting included
  int stop_fd = -1;            // the run ends early when it becomes readable
  double progress_interval = 0.1;
  std::function<void(const LiveFigures&)> on_progress;  // may be empty
};

struct LoadResult {
  std::vector<RequestRecord> records;  // one for each request, in their order
  double duration = 0;                 // until the last answer
  double cpu_seconds = 0;              // that this thread used
  size_t num_connections = 0;
  bool interrupted = false;
};

// `schedule`: when each request is sent, ascending. An error only when the machine refuses what
// the loop itself needs; requests that fail are in the records.
Result<LoadResult> run_load(const Connector& connector,
                            std::span<const PreparedRequest> requests,
                            std::span<const double> schedule,
                            const LoadOptions& options);

}  // namespace atom::bench_serve
