// How a core is started, and who is told what of it.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "engine/engine_health.h"
#include "engine/messages.h"

namespace atom {

struct CoreLaunch {
  bool child_process = false;
  // What to run as the child, with the arguments of engine/core_arguments.h; empty: this program,
  // which has to be atom then.
  std::string executable;
  std::string name = "the engine";  // in the log and in errors
};

// All are called on the manager's thread, and none is called any more once the manager is
// destroyed. They must return quickly: a death is not seen meanwhile. Any may be null.
struct CoreHandlers {
  std::function<void(const CoreLoading&)> on_loading;  // at the first start only
  // A core takes requests: those sent from now on reach it.
  std::function<void(const CoreReady&)> on_ready;
  std::function<void(StepOutput)> on_step;
  std::function<void(const CoreProfile&)> on_profile;
  // It is gone, with all that it had not finished, and nothing more comes from it. `lost` says so
  // to those requests, `refusal` to those that come before the next on_ready.
  std::function<void(const Status& lost, const Status& refusal)> on_down;
  std::function<void(const EngineHealth&)> on_health;  // at every change of its state
};

}  // namespace atom
