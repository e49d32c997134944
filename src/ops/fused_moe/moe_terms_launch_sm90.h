// Inside fused_moe by terms in FP8: its launches.
#pragma once

#include "ops/fused_moe/moe_terms.h"

namespace atom::ops {

// row_begins, tile_begins, choices, x and x_scales.
gpuError_t arrange_moe_terms(const FusedMoeGpuCall& call,
                             const MoeTermsScratch& scratch,
                             int tile_rows,
                             gpuStream_t stream);

// Both matrices by tiles of up to 8 or 16 tokens, of experts as rows or as images.
gpuError_t launch_moe_terms_float4(const FusedMoeGpuCall& call,
                                   const MoeTermsScratch& scratch,
                                   int num_tokens,
                                   gpuStream_t stream);
gpuError_t launch_moe_terms_images(const FusedMoeGpuCall& call,
                                   const MoeTermsScratch& scratch,
                                   int num_tokens,
                                   gpuStream_t stream);

}  // namespace atom::ops
