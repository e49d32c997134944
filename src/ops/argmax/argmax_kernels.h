// Inside argmax: what its kernels take.
#pragma once

#include <stdint.h>

namespace atom::ops {

struct ArgmaxArgs {
  const float* logits;
  int32_t* out;
  int64_t num_rows;
  int64_t num_ids;
  int64_t row_stride;  // in elements
};

constexpr int kArgmaxParts = 32;  // of a row, a block each

// On a GPU's queue (DeviceQueue::handle()). `partial`: [num_rows, kArgmaxParts] in its memory.
void argmax_cuda(const ArgmaxArgs& args, uint64_t* partial, void* queue);

}  // namespace atom::ops
