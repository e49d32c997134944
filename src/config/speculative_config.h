// What a user chose of speculative decoding, checked, and what it means for the scheduler.
#pragma once

#include "base/status.h"
#include "config/engine_config.h"
#include "config/scheduler_config.h"

namespace atom {

// Reads `json`, chooses what is left open and refuses what does not fit together.
Result<SpeculativeOptions> resolve_speculative(const SpeculativeOptions& options);

void set_speculation(const SpeculativeOptions& options, SchedulerConfig* scheduler);

// "mtp", as the flag has it.
const char* name_of(SpeculativeMethod method);

}  // namespace atom
