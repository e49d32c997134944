// Inside fused_moe: many tokens by experts in FP8 on Hopper. Rows of x are gathered by expert and
// quantized, each 128 columns by a scale of their own, as what is between the matrices is; the
// matrix units multiply codes by codes.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

constexpr int kMoeCodeGroup = 128;  // columns of x that share a scale

struct MoeFloat8Scratch {
  // `choices`, `row_begins`, `tile_begins` of tiles of kMoeTileRows, and `activated` in codes.
  FusedMoeGpuScratch shared;
  uint8_t* x;               // [rows, hidden_size] codes
  float* x_scales;          // [rows, ceil(hidden_size / 128)]
  float* activated_scales;  // [rows, ceil(intermediate_size / 128)]
  void* results;            // [choices, hidden_size], weighted, of x's type
};

// x in bfloat16, matrices in FP8 with a scale for each row or for each 128 x 128 values.
bool fits_moe_float8(const FusedMoeGpuCall& call);
gpuError_t launch_moe_float8(const FusedMoeGpuCall& call,
                             const MoeFloat8Scratch& scratch,
                             gpuStream_t stream);

}  // namespace atom::ops
