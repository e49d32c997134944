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

// Parts of a row that blocks of the GPU kernel share: of few rows more.
inline int64_t num_argmax_parts(int64_t num_rows) {
  constexpr int64_t kFewRows = 8;
  return num_rows <= kFewRows ? 128 : 32;
}

// On a GPU's queue (DeviceQueue::handle()). `partial`: [num_rows, num_argmax_parts(num_rows)] in
// its memory.
void argmax_cuda(const ArgmaxArgs& args, uint64_t* partial, void* queue);

}  // namespace atom::ops
