// Inside fused_moe on Hopper: the launches that bring choices, and what is read of x, in the order
// of experts.
#pragma once

#include "ops/device/programmatic_launch.cuh"
#include "ops/fused_moe/moe_arrange.cuh"
#include "ops/fused_moe/moe_sort.h"

namespace atom::ops::device {

// Few choices by one launch of `arrange`, a block for each and one more that counts them; more are
// sorted first, and `gather` then has a block for each row.
template <typename Scratch>
gpuError_t arrange_choices(const FusedMoeGpuCall& call,
                           const Scratch& scratch,
                           int tile_rows,
                           gpuStream_t stream,
                           void (*arrange)(FusedMoeGpuCall, Scratch, int tile_rows),
                           void (*gather)(FusedMoeGpuCall, Scratch)) {
  const int num_choices = call.num_tokens * call.top_k;
  const dim3 block(kArrangeThreads);
  if (num_choices <= kFewChoices) {
    return launch(arrange, dim3(num_choices + 1), block, 0, stream, true, call, scratch, tile_rows);
  }
  const gpuError_t error = sort_many_moe_choices(call, scratch.shared, tile_rows, stream);
  if (error != cudaSuccess) return error;
  return launch(gather, dim3(num_choices), block, 0, stream, true, call, scratch);
}

}  // namespace atom::ops::device
