// Greedy choice on a GPU: per row of logits the lowest id that has the largest logit.
#pragma once

#include <cstdint>

#include "ops/device/gpu_element.h"
#include "tensor/gpu_api.h"

namespace atom {

// In place of a token id, for a row that admits no choice; the faults of sampling/logits_row.h.
constexpr int32_t kTokenNotANumber = -1;   // NaN or +inf among the logits
constexpr int32_t kTokenNoCandidate = -2;  // every logit is -inf

struct ArgmaxLaunch {
  const void* logits = nullptr;   // [num_rows, vocab_size] float32, float16 or bfloat16
  int32_t* token_ids = nullptr;   // [num_rows]
  uint64_t* workspace = nullptr;  // [argmax_workspace(num_rows)], overwritten
  int64_t logits_stride = 0;      // elements
  int32_t num_rows = 0;
  int32_t vocab_size = 0;
  ops::GpuElement element = ops::GpuElement::kFloat32;
  bool overlaps_previous = false;
};

// Elements of the workspace.
int64_t argmax_workspace(int64_t num_rows);

gpuError_t launch_argmax(const ArgmaxLaunch& params, gpuStream_t stream);

}  // namespace atom
