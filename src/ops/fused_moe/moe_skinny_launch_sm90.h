// Inside fused_moe for few tokens by experts in FP8 on Hopper: the launch behind the matrices.
#pragma once

#include "ops/fused_moe/moe_skinny.h"

namespace atom::ops {

// The sums of each token's results, in the order of its choices; clears the counters.
gpuError_t add_moe_skinny_results(const FusedMoeGpuCall& call,
                                  const MoeSkinnyScratch& scratch,
                                  gpuStream_t stream);

}  // namespace atom::ops
