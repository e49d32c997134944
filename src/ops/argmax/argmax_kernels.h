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

// On a GPU's queue (DeviceQueue::handle()). `partial`: [num_rows, parts] in its memory, for the
// parts of a row that blocks share. With `overlaps` it may start before the kernel before has
// ended.
void argmax_cuda(const ArgmaxArgs& args, int parts, bool overlaps, uint64_t* partial, void* queue);

}  // namespace atom::ops
