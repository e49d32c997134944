// Inside fused_moe by whole tiles in FP8 on Hopper: the launches that a file each defines.
#pragma once

#include "ops/fused_moe/moe_whole_float8_stage.cuh"

namespace atom::ops::device::whole8 {

gpuError_t launch_gated(const MoeWholeFloat8Args& args, int num_blocks, gpuStream_t stream);
gpuError_t launch_down(const MoeWholeFloat8Args& args, int num_blocks, gpuStream_t stream);

}  // namespace atom::ops::device::whole8
