// What a ModelRunner keeps of a sequence between steps.
#pragma once

#include <cstdint>
#include <vector>

#include "sampling/sampling_state.h"

namespace atom {

struct RunnerSequence {
  std::vector<int32_t> token_ids;  // prompt, then everything sampled
  int32_t num_prompt_tokens = 0;
  std::vector<int32_t> block_ids;
  SamplingState sampling;
};

}  // namespace atom
