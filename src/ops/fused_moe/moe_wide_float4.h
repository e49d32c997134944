// Inside fused_moe: many tokens by experts in MXFP4 on Hopper. A matrix's codes are expanded to
// FP8 where they are multiplied, x and what is between the matrices are quantized to FP8, each 128
// columns by a scale of their own. Of a row's codes those count as zeros whose factor is less than
// 2^-14 of the row's largest; the others are exact.
#pragma once

#include "ops/fused_moe/moe_float8.h"

namespace atom::ops {

struct MoeFloat4Scratch {
  MoeFloat8Scratch shared;  // scales are [groups, rows]
  // [E][rows]: of what codes of a row are multiplied by.
  float* gate_up_scales;
  float* down_scales;
};

// x in bfloat16, rows of the matrices of whole 64 columns, silu or the clamped activation.
bool fits_moe_wide_float4(const FusedMoeGpuCall& call);
gpuError_t launch_moe_wide_float4(const FusedMoeGpuCall& call,
                                  const MoeFloat4Scratch& scratch,
                                  gpuStream_t stream);

}  // namespace atom::ops
