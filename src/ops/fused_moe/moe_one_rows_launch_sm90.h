// Inside fused_moe for one token on Hopper: the launches that the file of each weight type defines.
#pragma once

#include "ops/fused_moe/moe_one.h"

namespace atom::ops {

gpuError_t launch_moe_one_rows_bfloat16(const FusedMoeGpuCall& call,
                                        const MoeOneRowsScratch& scratch,
                                        gpuStream_t stream);
gpuError_t launch_moe_one_rows_float4(const FusedMoeGpuCall& call,
                                      const MoeOneRowsScratch& scratch,
                                      gpuStream_t stream);

}  // namespace atom::ops
