// Inside pending_tokens: what its kernels take.
#pragma once

#include <stdint.h>

namespace atom::ops {

struct PendingTokensArgs {
  const int32_t* chosen;
  int32_t* token_ids;
  int64_t num_tokens;
};

// On a GPU's queue (DeviceQueue::handle()).
void fill_pending_tokens_cuda(const PendingTokensArgs& args, void* queue);

}  // namespace atom::ops
