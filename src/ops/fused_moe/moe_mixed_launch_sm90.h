// Inside fused_moe by MXFP4 and FP8: its launches.
#pragma once

#include "ops/fused_moe/moe_mixed_sizes.cuh"

namespace atom::ops {

// Codes and their scales of tokens, to the rows of all of their choices, when these are sorted; or
// of what is activated.
gpuError_t quantize_mixed_tokens(const FusedMoeGpuCall& call,
                                 const MoeMixedScratch& scratch,
                                 gpuStream_t stream);
gpuError_t quantize_mixed_activated(const FusedMoeGpuCall& call,
                                    const MoeMixedScratch& scratch,
                                    gpuStream_t stream);

namespace device::mixed {

// The first matrix and the second, in a file of its own each.
gpuError_t launch_gated(const MoeMixedArgs& args, int num_blocks, gpuStream_t stream);
gpuError_t launch_down(const MoeMixedArgs& args, int num_blocks, gpuStream_t stream);

}  // namespace device::mixed
}  // namespace atom::ops
