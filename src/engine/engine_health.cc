#include "engine/engine_health.h"

#include <algorithm>

namespace atom {

const char* engine_state_name(EngineState state) {
  switch (state) {
    case EngineState::kLoading:
      return "loading";
    case EngineState::kReady:
      return "ready";
    case EngineState::kUnresponsive:
      return "unresponsive";
    case EngineState::kRestarting:
      return "restarting";
    case EngineState::kFailed:
      return "failed";
    case EngineState::kStopping:
      return "stopping";
  }
  return "";
}

EngineHealth health_of_all(const std::vector<EngineHealth>& cores) {
  EngineHealth all = cores.front();
  if (cores.size() == 1) return all;
  const auto find = [&](EngineState state) {
    return std::ranges::find(cores, state, &EngineHealth::state);
  };
  for (const EngineState state : {EngineState::kStopping,
                                  EngineState::kLoading,
                                  EngineState::kReady,
                                  EngineState::kUnresponsive,
                                  EngineState::kRestarting}) {
    if (const auto found = find(state); found != cores.end()) {
      all = *found;
      break;
    }
  }
  all.reason.clear();
  all.num_restarts = all.num_unresponsive = 0;
  for (const EngineHealth& core : cores) {
    if (!core.reason.empty()) all.reason += (all.reason.empty() ? "" : "; ") + core.reason;
    all.num_restarts += core.num_restarts;
    all.num_unresponsive += core.num_unresponsive;
    all.last_progress = std::min(all.last_progress, core.last_progress);
  }
  return all;
}

}  // namespace atom
