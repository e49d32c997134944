// Inside argmax: what its kernels take. A logit and its id travel as one number, a key, that is
// larger for a better choice.
#pragma once

#include <stdint.h>

namespace atom::ops {

constexpr int kArgmaxParts = 32;  // of a rank's part of a row, a block each

struct ArgmaxKeysArgs {
  const float* logits;
  uint64_t* keys;  // [num_rows, kArgmaxParts]
  int64_t num_rows;
  int64_t num_ids;
  int64_t row_stride;  // in elements
  int32_t first_id;    // that of the first column
};

struct ArgmaxChoiceArgs {
  const uint64_t* keys;  // [num_ranks, num_rows, kArgmaxParts]
  int32_t* out;
  int64_t num_rows;
  int64_t num_ranks;
};

// On a GPU's queue (DeviceQueue::handle()).
void argmax_keys_cuda(const ArgmaxKeysArgs& args, void* queue);
void argmax_of_keys_cuda(const ArgmaxChoiceArgs& args, void* queue);

}  // namespace atom::ops
