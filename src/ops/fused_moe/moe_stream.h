// Inside fused_moe: the few tokens of a decode step on Hopper.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

constexpr int kMaxStreamTokens = 64;
constexpr int kMaxStreamChoices = 1024;

// Whether the kernels take the call: bfloat16, weights of that, FP8, MXFP4 or integers, rows of
// whole vectors, and rows of x that fit shared memory.
bool fits_moe_stream(const FusedMoeGpuCall& call);

// The multiplication by one of the two matrices, the first with the activation. The second comes
// right after the first.
gpuError_t launch_moe_stream_matrix(const FusedMoeGpuCall& call,
                                    const FusedMoeGpuScratch& scratch,
                                    bool is_gate_up,
                                    bool overlaps_previous,
                                    gpuStream_t stream);

// Both, and the sum of each token's results. Scratch: `activated` and `results`. With
// `overlaps_previous` it may start before the kernel before it ends.
gpuError_t launch_moe_stream(const FusedMoeGpuCall& call,
                             const FusedMoeGpuScratch& scratch,
                             bool overlaps_previous,
                             gpuStream_t stream);

// The sums of each token's weighted results [choices, hidden_size], in the order of its choices.
gpuError_t add_moe_stream_results(const FusedMoeGpuCall& call,
                                  const float* results,
                                  gpuStream_t stream);

}  // namespace atom::ops
