// Inside fused_moe: many tokens of each expert in MXFP4, on Hopper, x and what is between the
// matrices in FP8. Codes of E2M1 become E4M3 in registers, with what their block's exponent is
// below their row's largest in them, and are a product's first factor; tokens are the second.
#pragma once

#include "ops/fused_moe/fused_moe_gpu.h"
#include "tensor/gpu_api.h"

namespace atom::ops {

struct MoeMixedScratch {
  // `choices`, `rows`, `row_begins`, `tile_begins`.
  FusedMoeGpuScratch shared;
  uint8_t* codes;  // [choices, columns] E4M3, by expert: of x, then of what is activated
  float* scales;   // [groups, moe_mixed_scale_stride(choices)]
  void* values;    // [choices, columns] bfloat16, by expert: activated, then results
};

constexpr int kMoeMixedGroup = 128;  // columns of a token that share a scale

constexpr int64_t moe_mixed_scale_stride(int64_t num_choices) {
  return (num_choices + 3) / 4 * 4;
}

// Of an expert on average. Fewer are faster in bfloat16.
constexpr int kLeastMoeMixedRows = 96;

// Gates and ups by turns, and whole pairs of exponents.
bool fits_moe_mixed(int64_t hidden_size,
                    int64_t intermediate_size,
                    const GatedActivation& activation);
// MXFP4 of such sizes, x in bfloat16.
bool fits_moe_mixed(const FusedMoeGpuCall& call);
gpuError_t launch_moe_mixed(const FusedMoeGpuCall& call,
                            const MoeMixedScratch& scratch,
                            gpuStream_t stream);

}  // namespace atom::ops
