#include "engine/engine_health.h"

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

}  // namespace atom
