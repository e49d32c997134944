// How an engine is, as its front end sees it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace atom {

enum class EngineState {
  kLoading,       // the first start
  kReady,         // serves
  kUnresponsive,  // its process has been silent for some heartbeats; requests are still taken
  kRestarting,    // its process died; requests are refused until it is kReady again
  kFailed,        // it will not serve again
  kStopping,
};

// "loading", "ready", "unresponsive", "restarting", "failed" or "stopping".
const char* engine_state_name(EngineState state);

struct EngineHealth {
  EngineState state = EngineState::kLoading;
  std::string reason;  // why it is not ready
  uint64_t num_restarts = 0;
  uint64_t num_unresponsive = 0;  // times that it fell silent
  pid_t pid = 0;                  // of its process; 0 while there is none, or within this one
  // When it was last known to make progress: while it executes a step that the step got further,
  // else that its loop turned.
  std::chrono::steady_clock::time_point last_progress;
};

// The health of an engine with these cores, at least one: ready while one is, with the reasons of
// those that are not and sums of what is counted.
EngineHealth health_of_all(const std::vector<EngineHealth>& cores);

}  // namespace atom
