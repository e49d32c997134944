// A core's profiles: records spans between start() and stop(), then writes them to a file of its
// folder on a thread of its own. One thread, but for the recorder.
#pragma once

#include <future>
#include <optional>
#include <string>

#include "base/chrome_trace.h"
#include "base/span_recorder.h"
#include "config/resolve.h"
#include "engine/messages.h"

namespace atom {

class Profiler {
 public:
  explicit Profiler(const ResolvedConfig& config) : config_(config) {}

  // Null when no folder for profiles was given.
  SpanRecorder* recorder() { return folder().empty() ? nullptr : &recorder_; }

  // Makes the folder, so that a wrong one is an error before there is anything to lose.
  Status start();
  // The file is written while the caller goes on.
  Status stop();
  bool is_writing() const { return written_.valid(); }
  // What came of writing, once.
  std::optional<CoreProfile> take_written();

 private:
  const std::string& folder() const { return config_.engine.profile_dir; }

  const ResolvedConfig& config_;
  SpanRecorder recorder_;
  std::future<CoreProfile> written_;  // its destructor waits for the file
};

}  // namespace atom
