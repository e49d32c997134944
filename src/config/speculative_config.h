// What a user chose of speculative decoding, checked, and what it means for the scheduler.
#pragma once

#include <string_view>

#include "base/status.h"
#include "config/engine_config.h"
#include "config/scheduler_config.h"

namespace atom {

// What `json` may name once more.
struct DraftedModel {
  std::string_view name = {};  // as the user gave it
  int32_t tensor_parallel_size = 1;
};

// Reads `json` and refuses what does not fit together.
Result<SpeculativeOptions> resolve_speculative(const SpeculativeOptions& options,
                                               const DraftedModel& drafted = {});

// While the device is not known, the largest drafting batch is a GPU's, which is above a CPU's.
void set_speculation(const SpeculativeOptions& options, SchedulerConfig* scheduler);

// The largest batch that drafts, chosen or the device's.
void set_drafting_batch(const SpeculativeOptions& options, bool is_cpu, SchedulerConfig* scheduler);

// "mtp", as the flag has it.
const char* name_of(SpeculativeMethod method);

}  // namespace atom
