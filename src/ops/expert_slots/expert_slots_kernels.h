// Inside expert_slots: what its kernels take.
#pragma once

#include <stdint.h>

namespace atom::ops {

struct ExpertSlotsArgs {
  const int32_t* token_ids;
  const int32_t* positions;
  const int32_t* slot_mapping;  // or null
  const int32_t* table;
  int64_t* counts;  // or null
  int32_t* ids;
  int64_t num_tokens;
  int32_t num_choices;  // of a token
  int32_t num_experts;
  int32_t num_slots;
};

// On a GPU's queue (DeviceQueue::handle()).
void choose_expert_slots_cuda(const ExpertSlotsArgs& args, void* queue);

}  // namespace atom::ops
